// When what ran in one step: steps that were kept one by one, of one process.
import { timeline } from "./api.js";
import { axis, chart, css, SERIES } from "./chart.js";
import { button, choice, element, replace, section, visible } from "./dom.js";
import { keeping } from "./keep.js";
import { sortable } from "./table.js";
import { rounded, value } from "./values.js";

const NS = 1e6; // in a ms
const FIRST = 20; // steps that are read at first
const MORE = 100; // and each time that more are asked for
const LEGEND = 24; // modules of it at most
const LANES = ["forward", "recompute", "inference", "backward", "optimizer", "zero_grad", "data", "communication", "other"];

const lanesOf = (intervals) => {
  const there = new Set(intervals.map((one) => one.phase));
  return [...LANES.filter((one) => there.has(one)), ...[...there].filter((one) => !LANES.includes(one))];
};

const nameOf = (one) => (one.layer === "" ? `(${one.phase})` : one.layer);

const outermostOf = (one) => one.layer.split(".")[0];

/** The outermost modules in the order of the step: {name: number of its colour}. */
function coloursOf(intervals) {
  const found = new Map();
  for (const one of intervals) if (!found.has(outermostOf(one))) found.set(outermostOf(one), found.size % SERIES.length);
  return found;
}

/** Which colour is whose; where there are more modules than colours, they begin again. */
function legend(intervals) {
  const found = [...coloursOf(intervals)];
  return element("ul", { class: "legend", "aria-label": "Colours" }, ...found.slice(0, LEGEND).map(([name, number]) =>
    element("li", {}, element("span", { class: `swatch series-${number + 1}`, "aria-hidden": "true" }), name || "outside of layers")),
  found.length > LEGEND && element("li", {}, `and ${found.length - LEGEND} more, in the same colours again`));
}

/** The pale box is the time, what is filled of it from below the share in which a kernel ran. */
function drawIntervals(u, intervals, lanes, colour) {
  const { ctx } = u;
  ctx.save();
  ctx.beginPath();
  ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
  ctx.clip();
  const lane = Math.abs(u.valToPos(1, "y", true) - u.valToPos(0, "y", true)) * 0.8;
  for (const one of intervals) {
    const x = u.valToPos(one.start_ns / NS, "x", true);
    const width = Math.max(1, u.valToPos((one.start_ns + one.duration_ns) / NS, "x", true) - x);
    const foot = u.valToPos(lanes.length - 1 - lanes.indexOf(one.phase), "y", true) + lane / 2;
    ctx.fillStyle = colour(one);
    ctx.globalAlpha = 0.35;
    ctx.fillRect(x, foot - lane, width, lane);
    ctx.globalAlpha = 1;
    if (one.busy_ns === null || !one.duration_ns) continue;
    const busy = (lane * Math.min(one.busy_ns, one.duration_ns)) / one.duration_ns;
    ctx.fillRect(x, foot - busy, width, busy);
  }
  ctx.restore();
}

function options(step, width) {
  const { intervals } = step;
  const lanes = lanesOf(intervals);
  const colours = coloursOf(intervals);
  const colour = (one) => css(SERIES[colours.get(outermostOf(one))]);
  const most = Math.max(step.duration_ns, ...intervals.map((one) => one.start_ns + one.duration_ns)) / NS;
  const at = (ms, lane) => intervals.find((one) => one.phase === lanes[lanes.length - 1 - lane] && one.start_ns / NS <= ms
    && (one.start_ns + one.duration_ns) / NS >= ms);
  const told = (u) => {
    const { left, top } = u.cursor;
    if (left === null || left < 0) return "";
    const found = at(u.posToVal(left, "x"), Math.round(u.posToVal(top, "y")));
    return found ? `${visible(nameOf(found))} ${found.phase}: ${rounded(found.duration_ns / NS)} ms` : "";
  };
  return [{
    width, height: 90 + 44 * lanes.length,
    scales: { x: { time: false, range: (u, low, high) => (high > low ? [low, high] : [0, most]) }, y: { range: [-0.6, lanes.length - 0.4] } },
    axes: [axis({ label: "ms since the step's begin", size: 44 }), axis({ size: 110, grid: { show: false }, incrs: [1], space: 20,
      values: (u, places) => places.map((place) => (Number.isInteger(place) ? lanes[lanes.length - 1 - place] ?? "" : "")) })],
    series: [{ label: "ms", value: (u, ms) => (ms === null ? "" : rounded(u.posToVal(u.cursor.left, "x"))) },
      { label: "What", stroke: css("--ink"), paths: () => null, points: { show: false }, value: told }],
    cursor: { drag: { x: true, y: false } },
    hooks: { draw: [(u) => drawIntervals(u, intervals, lanes, colour)] },
  }, [[0, most], [0, 0]]];
}

function numbers(step) {
  const ns = (name, title) => ({ name, title, number: true, cell: (row) => value(row, name, "ns", "kernels were not recorded"),
    order: (row) => row[name] });
  const rows = step.intervals.map((one, n) => ({ n, ...one }));
  return sortable([
    { name: "layer", title: "Layer", cell: nameOf, order: nameOf }, { name: "phase", title: "Phase", cell: (row) => row.phase, order: (row) => row.phase },
    ns("start_ns", "Begins"), ns("duration_ns", "Takes"), ns("busy_ns", "Busy")],
  rows, { caption: `What ran in step ${step.step}`, head: "layer", sort: "start_ns", down: false,
    attributes: (row) => ({ "data-row": "interval", "data-step": step.step, "data-number": row.n }) });
}

function stepChart(step) {
  const summary = `It took ${rounded(step.duration_ns / NS)} ms${step.gap_ns === null ? "" : `, in ${rounded(step.gap_ns / NS)} ms of which no kernel ran`}. `
    + "Boxes: elapsed time; filled: the part in which a kernel of it ran.";
  const facts = element("p", { class: "hint", "data-row": "step", "data-step": step.step }, "Duration ", value(step, "duration_ns", "ns"), ", without a kernel ",
    value(step, "gap_ns", "ns", "kernels were not recorded"));
  return element("div", {}, chart(`Step ${step.step}`, summary, (width) => options(step, width), () => numbers(step)), legend(step.intervals), facts);
}

const labelOf = (step) => `step ${step.step}, capture ${step.capture}`;
const keyOf = (step) => JSON.stringify([step.capture, step.step, step.start_ns]);

/** These steps are there to choose from; the one that is chosen stays, where it still is, and so do options, in which its reader may be. */
function offer(select, steps) {
  const keys = steps.map(keyOf), now = select.value;
  const other = [...select.options].findIndex((one, n) => one.value !== keys[n]);
  const from = other < 0 ? select.length : other;
  for (const one of [...select.options].slice(from)) one.remove();
  select.append(...steps.slice(from).map((one) => element("option", { value: keyOf(one) }, labelOf(one))));
  if (keys.includes(now)) select.value = now;
}

/** How many steps are there to choose from, and what reads more. */
function countOf(n, more, onmore) {
  if (!more) return [`All ${n} steps that were kept one by one.`];
  return [`The first ${n} steps that were kept one by one. `, button("Read more of them", onmore)];
}

/** The steps of one process, read page by page: {element, look()}; look() reads what has come since. */
function stepsOf(session, { pod, process }, signal) {
  const place = element("div", {}, element("p", {}, "Reading …")), trouble = element("div"), count = element("p", { class: "hint" }), shown = element("div");
  const pages = [];
  let drawn = "", reading = false, again = false;
  const steps = () => pages.flatMap((page) => page.items);
  const draw = (key) => {
    const step = steps().find((one) => keyOf(one) === key);
    const now = JSON.stringify(step);
    if (now !== drawn) keeping(shown, () => replace(shown, stepChart(step)));
    drawn = now;
  };
  const chooser = choice("Step", [], "", draw);
  const select = chooser.querySelector("select");
  const told = () => {
    const all = steps();
    if (!all.length) {
      drawn = "";
      return replace(place, element("p", { class: "gap" }, "No step was kept one by one, or they have gone with the session's activity."));
    }
    if (!place.contains(chooser)) replace(place, element("div", { class: "controls" }, chooser, count), shown);
    offer(select, all);
    keeping(count, () => replace(count, ...countOf(all.length, pages.at(-1).continue, () => ask(pages.length))));
    return draw(select.value);
  };
  const ask = async (n) => {
    if (reading) return;
    reading = true;
    try {
      const page = await timeline(session, { limit: n ? MORE : FIRST, pod: pod.pod_uid, process, continue: pages[n - 1]?.continue }, signal);
      replace(trouble);
      if (page === pages[n]) return;
      pages[n] = page;
      told();
    } catch (error) {
      if (signal.aborted) return;
      replace(trouble, element("p", { class: "problem" }, error.message));
      if (!pages.length) replace(place);
    } finally {
      reading = false;
      if (again && !signal.aborted) look();
    }
  };
  const look = () => {
    again = reading; // it may have been the last one: what is being read may be from before it
    if (reading) return;
    if (!pages.at(-1)?.continue) ask(Math.max(0, pages.length - 1)); // else what has come is on a page that was not asked for
  };
  return { element: element("div", {}, trouble, place), look };
}

const processesOf = (session) => session.pods.flatMap((pod) => pod.processes.map((process) => ({ key: `${pod.pod_uid} ${process}`, pod, process,
  name: `${pod.pod_name}, process ${process}` })));

/** {element, look(session)}: look() shows what has come since. Steps are read of one process at a time: they are large. */
export function timelinePart(signal) {
  const whose = element("div"), spot = element("div", {}, element("p", { class: "gap" }, "No process was seen yet."));
  let now = null, known = "";
  const look = (session) => {
    const processes = processesOf(session);
    const keys = JSON.stringify(processes.map((one) => one.key));
    const show = (key) => {
      now = { key, steps: stepsOf(session, processes.find((one) => one.key === key), signal) };
      replace(spot, now.steps.element); // an answer that is late is of one that has gone
      now.steps.look();
    };
    if (keys !== known && processes.length > 1)
      keeping(whose, () => replace(whose, element("div", { class: "controls" }, choice("Process", processes.map((one) => [one.key, one.name]), now?.key ?? processes[0].key, show))));
    known = keys;
    if (now) now.steps.look();
    else if (processes.length) show(processes[0].key);
  };
  return { element: section("Timeline of a step", whose, spot), look };
}
