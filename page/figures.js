// The paper's figures for any session: 2a, GPUUtil by layer, forward and backward; 2b, the other metrics.
import { bars, chart } from "./chart.js";
import { choice, element, replace, section } from "./dom.js";
import { shortened } from "./names.js";
import { metricsOf } from "./places.js";
import { note } from "./state.js";
import { sortable } from "./table.js";
import { level, levelOf, metricName, rounded } from "./values.js";

const PHASES = ["forward", "backward"];
const MOST = 30;

/** [{layer, forward: row, backward: row, ms}], by name. */
function layersOf(rows) {
  const found = new Map();
  for (const row of rows) {
    if (row.kind !== "layer" || !PHASES.includes(row.phase)) continue;
    if (!found.has(row.layer)) found.set(row.layer, { layer: row.layer, ms: 0 });
    const one = found.get(row.layer);
    one[row.phase] = row;
    one.ms += row.ms_per_step ?? 0;
  }
  return [...found.values()];
}

/** Those that take most time, as they stand. */
function costliest(layers, most) {
  if (layers.length <= most) return layers;
  const least = [...layers].sort((a, b) => b.ms - a.ms)[most - 1].ms;
  return layers.filter((one) => one.ms >= least).slice(0, most);
}

const told = (layer, phase, metric) => levelOf(layer[phase]?.metrics[metric]);

function numbers(layers, metric, kept) {
  const column = (phase) => ({ name: phase, title: phase, number: true, order: (layer) => told(layer, phase, metric)?.mean ?? null,
    cell: (layer) => {
      const made = level(layer[phase]?.metrics[metric], "no such phase ran");
      made.setAttribute("data-phase", phase);
      return made;
    } });
  return sortable([{ name: "layer", title: "Layer", cell: (layer) => layer.layer, order: (layer) => layer.layer }, ...PHASES.map(column)],
    layers, { caption: `${metricName(metric)} by layer`, head: "layer", sort: null, most: 100, kept, attributes: (layer) => {
      const row = layer.forward || layer.backward;
      return { "data-row": "figure", "data-layer": layer.layer, "data-gpu": row.gpu_uuid, "data-pod": row.pod_uid, "data-metric": metric };
    } });
}

/** Bars are in per cent where the metric is a share: the page's only other unit, and the table has the API's. */
const inBars = (one) => (one === null ? null : one.unit === "share of 1"
  ? { ...one, mean: 100 * one.mean, stderr: one.stderr === null ? null : 100 * one.stderr } : one);

function figure(title, layers, all, metric, kept) {
  const names = shortened(layers.map((one) => one.layer));
  const unit = all.flatMap((one) => PHASES.map((phase) => one[phase]?.metrics[metric]?.unit)).find(Boolean) || "";
  const lacking = layers.flatMap((one) => PHASES.filter((phase) => !told(one, phase, metric))).length;
  const ofGroups = layers.flatMap((one) => PHASES.filter((phase) => told(one, phase, metric)?.group)).length;
  const summary = `${layers.length === all.length ? `All ${all.length} layers` : `The ${layers.length} of ${all.length} layers that take most time`}, `
    + `forward and backward, with standard errors.${lacking ? ` Crosses: not measured (${lacking}).` : ""}${ofGroups ? ` Paler: the value of a group, known only together with others (${ofGroups}).` : ""}`;
  const series = PHASES.map((phase) => ({ name: phase, values: layers.map((one) => inBars(told(one, phase, metric))) }));
  const make = bars({ what: "Layer", names: layers.map((one) => names.get(one.layer)), series, unit: unit === "share of 1" ? "percent" : unit });
  return chart(title, summary, make, () => numbers(layers, metric, kept));
}

export function figureSection(place, query, kept) {
  const all = layersOf(place.rows);
  if (!all.length) return section("Figures", element("p", {}, "There are no layers yet."));
  const spot = element("div", { class: "figures" });
  const counts = [...new Set([Math.min(MOST, all.length), Math.min(100, all.length), all.length])];
  let most = Number(query.get("most")) || counts[0];
  const draw = () => {
    const layers = costliest(all, most);
    const metrics = metricsOf(all.flatMap((one) => PHASES.map((phase) => one[phase]).filter(Boolean)));
    const others = metrics.filter((metric) => metric !== "gpu_util");
    replace(spot, metrics.includes("gpu_util") ? figure("2a: GPUUtil", layers, all, "gpu_util", kept)
      : element("p", {}, "2a: GPUUtil was not measured by layer."),
    ...others.map((metric) => figure(`2b: ${metricName(metric)}`, layers, all, metric, kept)));
  };
  draw();
  return section("Figures",
    element("div", { class: "controls" }, counts.length > 1 && choice("Layers", counts.map((n) => [String(n),
      n === all.length ? `all ${n}` : `the ${n} costliest`]), String(most), (n) => {
      most = Number(n);
      note("most", most === counts[0] ? "" : String(n));
      draw();
    }), element("span", { class: "hint" }, "Drag across a figure to zoom, double-click to see all.")), spot,
    element("p", { class: "hint" }, coverage(all, most)));
}

function coverage(all, most) {
  const total = all.reduce((before, one) => before + one.ms, 0);
  const part = costliest(all, most).reduce((before, one) => before + one.ms, 0);
  return all.length <= most || !total ? "" : `The first ${most} take ${rounded((100 * part) / total)} % of the layers' time.`;
}
