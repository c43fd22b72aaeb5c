// What bounds each layer: a roofline of its FLOP and bytes per second, beside the GPU's peaks, and what the values say.
import { axis, chart, css } from "./chart.js";
import { element, section, visible } from "./dom.js";
import { itemName } from "./names.js";
import { sortable } from "./table.js";
import { rounded, scaled, share, value } from "./values.js";

const UNITS = [["tensor_active", "--series-1"], ["fp32_active", "--series-2"]];

/** Items with FLOP and bytes per second: [{row, metric, colour, flops, bytes, intensity}]. */
function pointsOf(rows) {
  const found = [];
  for (const row of rows)
    for (const [metric, colour] of UNITS) {
      const flops = row.metrics[metric], bytes = row.metrics.dram_active;
      if (row.kind === "layer" && flops?.achieved > 0 && bytes?.achieved > 0)
        found.push({ row, metric, colour, flops, bytes, intensity: flops.achieved / bytes.achieved });
    }
  return found;
}

function drawRoof(u, peak, bandwidth, colour) {
  const { ctx } = u;
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1.5 * devicePixelRatio;
  ctx.beginPath();
  const [low, high] = [u.scales.x.min, u.scales.x.max];
  [low, peak / bandwidth, high].filter((x) => x >= low && x <= high).forEach((x, n) => {
    const at = [u.valToPos(x, "x", true), u.valToPos(Math.min(peak, x * bandwidth), "y", true)];
    if (n) ctx.lineTo(...at);
    else ctx.moveTo(...at);
  });
  ctx.stroke();
}

function drawPoints(u, points) {
  const { ctx } = u;
  ctx.save();
  ctx.beginPath();
  ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
  ctx.clip();
  for (const one of points) drawRoof(u, one.flops.peak, one.bytes.peak, css(one.colour));
  for (const one of points) {
    ctx.fillStyle = css(one.colour);
    ctx.beginPath();
    const size = devicePixelRatio * (3 + 9 * Math.sqrt(one.row.share ?? 0));
    ctx.arc(u.valToPos(one.intensity, "x", true), u.valToPos(one.flops.achieved, "y", true), size, 0, 2 * Math.PI);
    ctx.fill();
  }
  ctx.restore();
}

const power = (value, way) => 10 ** (way > 0 ? Math.ceil(Math.log10(value)) : Math.floor(Math.log10(value)));

function roofline(points) {
  const xs = points.map((one) => one.intensity), ys = points.map((one) => one.flops.achieved);
  const ridge = points.map((one) => one.flops.peak / one.bytes.peak), roofs = points.map((one) => one.flops.peak);
  const x = [power(Math.min(...xs, ...ridge), -1), power(Math.max(...xs, ...ridge), 1)];
  const y = [power(Math.min(...ys), -1), power(Math.max(...ys, ...roofs), 1)];
  const ordered = [...points].sort((a, b) => a.intensity - b.intensity);
  const scale = (range) => ({ distr: 3, log: 10, time: false, range });
  return (width) => [{
    width, height: 360, scales: { x: scale(x), y: scale(y) },
    axes: [axis({ label: "FLOP per byte of DRAM traffic", size: 44 }), axis({ label: "FLOP per second", size: 76,
      values: (u, told) => told.map((one) => (one === null ? "" : scaled(one, ""))) })],
    series: [{ label: "FLOP per byte", value: (u, told) => (told === null ? "" : rounded(told)) },
      { label: "FLOP per second", stroke: css("--series-1"), paths: () => null, points: { show: false },
        value: (u, told, k, n) => (n === null || told === null ? "" : `${visible(itemName(ordered[n].row))} ${ordered[n].row.phase}: ${scaled(told, "FLOP/s")}`) }],
    cursor: { drag: { x: false, y: false } },
    hooks: { draw: [(u) => drawPoints(u, points)] },
  }, [ordered.map((one) => one.intensity), ordered.map((one) => one.flops.achieved)]];
}

function numbers(points, kept) {
  const rate = (name, title, of) => ({ name, title, number: true, order: (one) => one[of].achieved,
    cell: (one) => {
      const made = value(one[of], "achieved", one[of].peak_unit);
      made.setAttribute("data-metric", of === "bytes" ? "dram_active" : one.metric);
      return made;
    } });
  return sortable([
    { name: "layer", title: "Layer", cell: (one) => itemName(one.row), order: (one) => itemName(one.row) },
    { name: "phase", title: "Phase", cell: (one) => one.row.phase, order: (one) => one.row.phase },
    { name: "unit", title: "Unit", cell: (one) => (one.metric === "tensor_active" ? "Tensor" : "FP32"), order: (one) => one.metric },
    rate("flops", "FLOP a second", "flops"), rate("bytes", "Bytes a second", "bytes"),
    { name: "intensity", title: "FLOP a byte", number: true, order: (one) => one.intensity,
      cell: (one) => element("span", { title: `${one.intensity}, one by the other` }, rounded(one.intensity)) },
    { name: "bound", title: "Bound by", cell: (one) => one.row.bound || "–", order: (one) => one.row.bound },
    { name: "likely", title: "How sure", number: true, order: (one) => one.row.bound_likely, cell: (one) => boundSure(one.row) },
  ], points, { caption: "Where each layer stands", head: "layer", sort: "flops", kept, attributes: ({ row }) => ({ "data-row": "roofline",
    "data-gpu": row.gpu_uuid, "data-pod": row.pod_uid, "data-layer": row.layer, "data-phase": row.phase }) });
}

const PHRASES = { Tensor: "tensor cores", FP32: "FP32 pipes", Memory: "memory bandwidth", Latency: "latency of kernels", Communication: "communication",
  Data: "data loading", Synchronization: "host synchronization", Launch: "launches", Unknown: "unknown" };
/** What a bound is called for people, here and on a terminal. */
export const boundPhrase = (bound) => PHRASES[bound] || bound;

const ALL = 0.9995; // nearer to 1 than the digits that are shown

/** How sure a row's bound is, in words or in the places of a column. */
export function boundSure(row, words = false) {
  const made = share(row, "bound_likely");
  if (row.bound_likely >= ALL) made.replaceChildren(words ? "more than 99.9 %" : "> 99.9 %");
  return made;
}

const BOUNDS = {
  Tensor: "its kernels keep the tensor cores at 60 % of their peak or more: fewer or smaller products help, or a narrower type",
  FP32: "its kernels keep the FP32 pipes, which do integer products too, at 60 % of their peak or more: fewer operations help, or tensor cores",
  Memory: "its kernels keep the memory at 60 % of its peak or more: fewer bytes help, as by fusing what follows each other",
  Latency: "its kernels keep none of these units busy for 60 % of the time: there are too few threads, or each waits too long",
  Data: "the training waits for its next batch", Communication: "nothing but communication runs, or waits for other ranks",
  Synchronization: "the host waits for the GPU, which then has nothing to do", Launch: "the host has not launched the next kernel yet",
  Unknown: "too little was measured to say",
};
export const boundMeans = (bound) => BOUNDS[bound] || "";

export function boundSection(place, kept) {
  const points = pointsOf(place.rows);
  if (!points.length)
    return section("Roofline", element("p", { class: "gap" }, "Not measured: a roofline needs DRAMActive and FP32Active or TensorActive by layer, and SMClock."));
  const summary = "A point for each layer in a phase, larger where it takes more of a step: its tensor cores' FLOP in the first colour, its FP32 pipes' in the second, each with its "
    + "line, the GPU's peaks. Point at one to read its name. Below the slope memory bounds, below the level the unit.";
  return section("Roofline", chart("Roofline", summary, roofline(points), () => numbers(points, kept)));
}
