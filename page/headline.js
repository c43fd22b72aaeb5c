// Where the GPU goes, in three sentences: the costliest layer, why it is slow, and how sure that is.
import { boundMeans, boundPhrase, boundSure } from "./bounds.js";
import { element, section } from "./dom.js";
import { itemName } from "./names.js";
import { areLengthened, atMost, itemAttributes, leastOf, metricsOf, total } from "./places.js";
import { grade } from "./quality.js";
import { estimate, gap, markedStep, metricName, quotient, share, sum, value } from "./values.js";

const most = (items, of) => items.reduce((best, one) => (best === null || of(one) > of(best) ? one : best), null);

/** The rows of the layer whose phases take most of a step together, by what they surely take (as `precisionprobe report` says);
 * the costliest phase first. */
function costliestOf(rows) {
  const found = new Map();
  for (const row of rows.filter((one) => one.kind === "layer")) found.set(row.layer, [...(found.get(row.layer) || []), row]);
  const phases = most([...found.values()], (told) => total(told, leastOf)) || [];
  return [...phases].sort((a, b) => leastOf(b) - leastOf(a));
}

function timeOf(phases) {
  const lengthened = areLengthened(phases);
  const said = [lengthened ? "at most " : "", sum(phases, "ms_per_step", ""), " ms a step, ", sum(phases, "share", "share of 1"), " of it"];
  if (lengthened) said.push("; ", sum(phases, "least_ms_per_step", ""), " ms at least: marks may have added the rest");
  if (phases.length > 1)
    said.push(": ", ...phases.flatMap((row, n) => [n ? ", " : "", element("span", itemAttributes(row), `${row.phase} `, atMost(row, estimate(row, "ms_per_step", "ms_per_step_stderr", "")))]));
  return said;
}

/** The evidence for what is told to bound a layer. */
const EVIDENCE = { Tensor: "tensor_active", FP32: "fp32_active", Memory: "dram_active" };

function why(row, several) {
  const said = [];
  const whose = several ? `Its ${row.phase} is` : "It is";
  if (row.bound) {
    said.push(`${whose} bound by `, element("strong", {}, boundPhrase(row.bound)), row.bound_likely === null ? "" : " (",
      row.bound_likely === null ? "" : boundSure(row, true), row.bound_likely === null ? "" : " sure)", `: ${boundMeans(row.bound)}. `);
    const told = row.metrics[EVIDENCE[row.bound]];
    if (told?.mean !== null && told !== undefined) {
      const made = estimate(told, "mean", "stderr", told.unit);
      made.setAttribute("data-metric", EVIDENCE[row.bound]);
      said.push(`${metricName(EVIDENCE[row.bound])} is `, made, ". ");
    }
    if (told?.achieved) said.push(`Of a peak of `, evidence(told, "peak", EVIDENCE[row.bound]), " it gets ", evidence(told, "achieved", EVIDENCE[row.bound]), ". ");
  } else said.push("What bounds its kernels is not known: that needs DRAMActive, FP32Active and TensorActive by layer, over the time in which its kernels ran. ");
  if (row.idle_share !== null) said.push("In ", share(row, "idle_share"), " of its own time no kernel of it ran.");
  return said;
}

function evidence(told, column, metric) {
  const made = value(told, column, told.peak_unit);
  made.setAttribute("data-metric", metric);
  return made;
}

/** Of a metric that nothing was held out of. */
const unchecked = (rows, metric) => (rows.every((row) => [undefined, "records", "none"].includes(row.metrics[metric]?.method))
  ? "counted, from kernel records" : "nothing was held out to check it");

function sure(rows, quality, gpu) {
  const told = metricsOf(rows.filter((row) => row.kind === "layer"));
  const ours = quality.filter((row) => row.gpu_uuid === gpu);
  const words = new Map();
  for (const metric of told) {
    const found = ours.filter((row) => row.metric === metric);
    const word = found.length ? found.map(grade).find((one) => one !== "checked") || "checked" : unchecked(rows, metric);
    words.set(word, [...(words.get(word) || []), metricName(metric)]);
  }
  const withheld = ours.filter((row) => row.doubt).map((row) => metricName(row.metric));
  const said = [...words].map(([word, metrics]) => `${metrics.join(", ")}: ${word}`).join("; ");
  return `${said || "No metric has a value by layer"}.${withheld.length ? ` Withheld, since something speaks against it: ${withheld.join(", ")}.` : ""}`;
}

export function headline(place, quality) {
  const phases = costliestOf(place.rows);
  const [row] = phases;
  if (!row) return section("Where the time goes", element("p", {}, "No layer has been seen yet."));
  return section("Where the time goes",
    element("div", { class: "headline", ...itemAttributes(row) },
      element("p", { class: "costliest" }, "Costliest: ", element("strong", {}, itemName(row)), phases.length > 1 ? ", " : ` ${row.phase}, `, ...timeOf(phases), "."),
      element("p", {}, "Why: ", ...why(row, phases.length > 1)),
      element("p", {}, "How sure: ", sure(place.rows, quality, row.gpu_uuid), row.shared === true ? " Others used the GPU meanwhile." : "")),
    stepFacts(row));
}

/** Of marked steps: what the page has divided, as the API's own columns say it. */
function markedFacts(row) {
  const steps = row.marked_steps > 0 && row.step_ns !== null;
  return [["A marked step takes, ms", markedStep(row)],
    ["In which no kernel ran", steps && row.gap_ns !== null ? quotient(row.gap_ns / row.step_ns, "gap_ns / step_ns", "share of 1", null) : gap("kernels were not recorded")]];
}

function stepFacts(row) {
  const counted = row.counted_ms_per_step !== null;
  const steps = counted ? [["A step takes, ms", estimate(row, "counted_ms_per_step", "counted_ms_per_step_stderr", "")],
    ["In which no kernel ran", share(row, "counted_idle_share", "kernels were not recorded")]] : markedFacts(row);
  return element("dl", { class: "facts", ...itemAttributes(row) }, ...[...steps, ["Steps without marks", value(row, "counted_steps")],
    ["Steps with marks", value(row, "marked_steps")], ["Captures", value(row, "captures")],
    ["Solved", row.final ? "all is there" : row.revision ? `so far, revision ${row.revision}` : gap("not yet")]]
    .map(([name, told]) => element("div", {}, element("dt", {}, name), element("dd", {}, told))));
}
