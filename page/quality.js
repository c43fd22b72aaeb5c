// How sure a metric's values are (docs/results.md, view result_quality).
import { element, section } from "./dom.js";
import { sortable } from "./table.js";
import { gap, metricName, rounded, text, value } from "./values.js";

const METHODS = { regression: "windows shared out over the layers in them", sampling: "PM samples joined with kernels",
  replay: "windows in which one layer was replayed" };

function sentence(row, unit) {
  if (row.doubt) return `withheld: ${row.doubt}`;
  if (row.untold) return `windows say nothing of layers: ${row.untold}`;
  const said = [];
  if (row.explained !== null) said.push(`layers predict ${rounded(100 * row.explained)} % of how held out values vary`);
  if (row.items_z !== null) said.push(`layers missed by ${rounded(row.items_z)} of their standard errors (1: as they say)`);
  if (row.held !== null && row.difference !== null)
    said.push(`together they are ${text(row.difference, unit)} off the ${text(row.held, unit)} that was held out`);
  return said.length ? said.join("; ") : "too little was held out to say";
}

/** "" where a session's quality rows have nothing of the metric. */
export function sureness(rows, metric, unit) {
  return rows.filter((row) => row.metric === metric)
    .map((row) => `${METHODS[row.method] || row.method}: ${sentence(row, unit)}`).join(". ");
}

/** In one word, for a headline. */
export function grade(row) {
  if (row.doubt) return "doubtful";
  if (row.untold) return "untold";
  if (row.explained === null && row.held === null) return "unchecked";
  if (row.items_z !== null && row.items_z > 2) return "more wrong than it says";
  return "checked";
}

const ALL = ["explained", "miss", "expected_miss", "items", "items_z", "idle", "idle_stderr", "held", "difference", "noise",
  "windows", "lag_ns", "lag_stderr_ns", "shift_ns", "shift_stderr_ns", "times", "failed_times", "period_ns"];
const SAYS = { explained: "Of what was held out, the share of the variance that layers predict", items_z:
  "By how many of its standard errors a layer missed what was held out: near 1 where these are right",
  miss: "By how much predictions missed, root mean square", expected_miss: "By how much they were to miss",
  idle: "What the metric reads where no kernel of the training ran", held: "Mean of what was held out",
  difference: "What the values say of it, less that", noise: "Standard deviation of what is left" };

export function qualityTable(rows, kept) {
  const said = (told) => (told === null || told === undefined ? gap("nothing") : told);
  const columns = [
    { name: "metric", title: "Metric", cell: (row) => metricName(row.metric), order: (row) => row.metric },
    { name: "method", title: "Method", cell: (row) => row.method, order: (row) => row.method },
    { name: "grade", title: "In a word", cell: grade, order: grade },
    { name: "doubt", title: "What speaks against it", cell: (row) => said(row.doubt) },
    { name: "untold", title: "Why nothing is told", cell: (row) => said(row.untold) },
    ...ALL.map((name) => ({ name, title: name, number: true, note: SAYS[name], cell: (row) => value(row, name),
      order: (row) => row[name] })),
  ];
  if (!rows.length)
    return section("How sure the values are", element("p", {}, "Nothing is told of it: no value by layer was made."));
  return section("How sure the values are",
    sortable(columns, rows, { caption: "One row for each GPU, method and metric", head: "metric", sort: null, kept,
      attributes: (row) => ({ "data-row": "quality", "data-gpu": row.gpu_uuid, "data-method": row.method,
        "data-process": row.process ?? "", "data-metric": row.metric }) }));
}
