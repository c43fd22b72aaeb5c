// The GPU's averages over the whole job.
import { element, section } from "./dom.js";
import { drawn, scrolling } from "./table.js";
import { estimate, gap, metricName, value } from "./values.js";

export const jobAttributes = (row) => ({ "data-row": "item", "data-gpu": row.gpu_uuid, "data-pod": row.pod_uid, "data-kind": "job", "data-layer": "",
  "data-phase": "" });

export function jobCell(row, metric) {
  const told = row?.metrics[metric];
  if (!told) return gap("it was not asked for");
  const made = told.mean === null ? gap(told.reason) : estimate(told, "mean", "stderr", told.unit);
  made.setAttribute("data-metric", metric);
  return made;
}

export function jobTable(row) {
  if (!row) return section("The whole GPU", element("p", {}, "Nothing is known of it yet."));
  const rate = (one, column, unit) => {
    const told = row.metrics[one];
    const made = value(told, column, told[unit] || "", "it is no rate");
    made.setAttribute("data-metric", one);
    return made;
  };
  const columns = [
    { name: "metric", title: "Metric", cell: (one) => metricName(one) },
    { name: "mean", title: "Mean", number: true, cell: (one) => jobCell(row, one) },
    { name: "amount", title: "In a step", number: true, cell: (one) => rate(one, "amount_per_step", "amount_unit") },
    { name: "achieved", title: "Which is", number: true, cell: (one) => rate(one, "achieved", "peak_unit") },
    { name: "peak", title: "Of a peak of", number: true, cell: (one) => rate(one, "peak", "peak_unit") },
  ];
  return section("The whole GPU", scrolling("The whole GPU", drawn(columns, Object.keys(row.metrics).sort(), { name: null }, {
    caption: "Averages over the job, with standard errors", head: "metric", attributes: () => jobAttributes(row) })),
  element("p", { class: "hint" }, "What a metric is and what each reason means: docs/results.md."));
}
