// Where the GPU goes, in three sentences: the costliest layer, why it is slow, and how sure that is.
import { boundMeans } from "./bounds.js";
import { element, section } from "./dom.js";
import { itemName } from "./names.js";
import { metricsOf } from "./places.js";
import { grade } from "./quality.js";
import { estimate, gap, metricName, share, value } from "./values.js";

const most = (rows) => rows.reduce((best, row) => (best === null || (row.share ?? 0) > (best.share ?? 0) ? row : best), null);

/** The evidence for what is told to bound a layer. */
const EVIDENCE = { Tensor: "tensor_active", FP32: "fp32_active", Memory: "dram_active" };

function why(row) {
  const said = [];
  if (row.bound) {
    said.push("It is bound by ", element("strong", {}, row.bound), row.bound_likely === null ? "" : " (likely to ",
      row.bound_likely === null ? "" : share(row, "bound_likely"), row.bound_likely === null ? "" : ")", `: ${boundMeans(row.bound)}. `);
    const told = row.metrics[EVIDENCE[row.bound]];
    if (told?.mean !== null && told !== undefined) {
      const made = estimate(told, "mean", "stderr", told.unit);
      made.setAttribute("data-metric", EVIDENCE[row.bound]);
      said.push(`${metricName(EVIDENCE[row.bound])} is `, made, ". ");
    }
    if (told?.achieved) said.push(`Of a peak of `, evidence(told, "peak", EVIDENCE[row.bound]), " it gets ", evidence(told, "achieved", EVIDENCE[row.bound]), ". ");
  } else said.push("What bounds its kernels was not measured: that needs DRAMActive, FP32Active and TensorActive by layer. ");
  if (row.idle_share !== null)
    said.push("In ", share(row, "idle_share"), " of its own time no kernel of it ran: the GPU waited for the host.");
  return said;
}

function evidence(told, column, metric) {
  const made = value(told, column, told.peak_unit);
  made.setAttribute("data-metric", metric);
  return made;
}

/** Of a metric that nothing was held out of. */
const unchecked = (rows, metric) => (rows.every((row) => [undefined, "records", "none"].includes(row.metrics[metric]?.method))
  ? "counted, from kernel records" : "not checked");

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
  const row = most(place.rows.filter((one) => one.kind === "layer"));
  if (!row) return section("Where the time goes", element("p", {}, "No layer has been seen yet."));
  return section("Where the time goes",
    element("div", { class: "headline", "data-row": "item", "data-gpu": row.gpu_uuid, "data-pod": row.pod_uid, "data-kind": row.kind,
      "data-layer": row.layer, "data-phase": row.phase },
    element("p", { class: "costliest" }, "Costliest: ", element("strong", {}, itemName(row)), ` ${row.phase}, `,
      estimate(row, "ms_per_step", "ms_per_step_stderr", ""), " ms a step, ", share(row, "share"), " of it."),
    element("p", {}, "Why: ", ...why(row)),
    element("p", {}, "How sure: ", sure(place.rows, quality, row.gpu_uuid), row.shared === true ? " Others used the GPU meanwhile." : "")),
    stepFacts(row));
}

function stepFacts(row) {
  const item = { class: "facts", "data-row": "item", "data-gpu": row.gpu_uuid, "data-pod": row.pod_uid, "data-kind": row.kind, "data-layer": row.layer,
    "data-phase": row.phase };
  const fact = (name, told) => element("div", {}, element("dt", {}, name), element("dd", {}, told));
  return element("dl", item,
    fact("A step takes, ms", estimate(row, "counted_ms_per_step", "counted_ms_per_step_stderr", "", "no step without marks was counted")),
    fact("In which no kernel ran", share(row, "counted_idle_share", "kernels were not recorded")),
    fact("Steps without marks", value(row, "counted_steps")),
    fact("Steps with marks", value(row, "marked_steps")), fact("Captures", value(row, "captures")),
    fact("Solved", row.final ? "all is there" : row.revision ? `so far, revision ${row.revision}` : gap("not yet")));
}
