// How workloads use their GPUs, and what bounds them (docs/patterns.md).
import { pattern as readPattern, patterns, sessions } from "./api.js";
import { boundMeans } from "./bounds.js";
import { chart, bars } from "./chart.js";
import { element, facts, replace, section, title, unique } from "./dom.js";
import { link } from "./state.js";
import { sortable } from "./table.js";
import { estimate, gap, metricName, moment, value } from "./values.js";

const SURE = 2; // standard errors by which a bound leads (docs/patterns.md)

const NOT_KNOWN = "its results do not tell";
const boundOf = (one) => one.bound ?? gap(NOT_KNOWN);

const TOO_LITTLE = "too little was measured";
const isUnknown = (one) => one.bound === "Unknown"; // which leads nothing, though it has all of the step
const leadOf = (one) => (isUnknown(one) ? gap(TOO_LITTLE) : estimate(one, "lead", "lead_stderr", "share of 1", TOO_LITTLE));

const sure = (one) => (one.lead === null || !one.bound || isUnknown(one) ? TOO_LITTLE
  : one.lead_stderr === null ? "how sure is not known" : one.lead > SURE * one.lead_stderr ? "sure" : "the next one may be it as well");

const millis = (one, column) => value(one, column, "ns", "not measured");

async function namespacesOf(query, signal) {
  if (query.get("namespace")) return [query.get("namespace")];
  const { items } = await sessions("", signal);
  return [...new Set(items.map((one) => one.namespace))];
}

const attributes = (one) => ({ "data-row": "pattern", "data-namespace": one.namespace, "data-pattern": one.pattern });

function listTable(items) {
  const columns = [
    { name: "workload", title: "Workload", cell: (one) => element("a", { href: link(["pattern", one.namespace, one.pattern]) }, `${one.workload_kind} ${one.workload_name}`),
      order: (one) => one.workload_name },
    { name: "namespace", title: "Namespace", cell: (one) => one.namespace, order: (one) => one.namespace },
    { name: "bound", title: "Bound by", cell: boundOf, order: (one) => one.bound },
    { name: "lead", title: "Leads by", number: true, cell: leadOf, order: (one) => (isUnknown(one) ? null : one.lead) },
    { name: "sure", title: "How sure", cell: sure, order: sure },
    { name: "step_ns", title: "A step", number: true, cell: (one) => estimate(one, "step_ns", "step_ns_stderr", "ns", "not measured"), order: (one) => one.step_ns },
    { name: "idle", title: "Idle", number: true, cell: (one) => estimate(one, "idle", "idle_stderr", "share of 1", "kernels were not recorded"), order: (one) => one.idle },
    { name: "sessions", title: "Sessions", number: true, cell: (one) => value(one, "sessions"), order: (one) => one.sessions },
    { name: "last_finished", title: "Last", cell: (one) => moment(one.last_finished), order: (one) => one.last_finished },
  ];
  return sortable(columns, items, { caption: "One row for each workload", head: "workload", sort: "last_finished", attributes });
}

export async function showPatterns(main, query, signal) {
  const id = unique("namespace");
  const field = element("input", { id, value: query.get("namespace") || "" });
  const spot = element("div", {}, element("p", {}, "Reading …"));
  replace(main, element("h1", {}, "Consumption patterns"), element("form", { class: "controls", onsubmit: (event) => {
    event.preventDefault();
    location.hash = link(["patterns"], { namespace: field.value.trim() });
  } }, element("span", { class: "field" }, element("label", { for: id }, "Namespace (empty: those of all sessions)"), field), element("button", {}, "Show")), spot);
  const all = await Promise.all((await namespacesOf(query, signal)).map((namespace) => patterns(namespace, signal)));
  const items = all.flatMap((page) => page.items);
  replace(spot, items.length ? listTable(items) : element("p", {}, "There are none yet: they come with the first session that Succeeded."));
}

/** What the peaks of a metric, and of the bound by its unit, are in. */
const RATES = { dram_active: "bytes per second", fp32_active: "FLOP per second", tensor_active: "FLOP per second" };
const RATES_OF_BOUNDS = { Memory: RATES.dram_active, FP32: RATES.fp32_active, Tensor: RATES.tensor_active };
const achieved = (unitOf) => ({ name: "achieved", number: true, order: (row) => row.achieved,
  cell: (row) => estimate(row, "achieved", "achieved_stderr", unitOf(row), unitOf(row) ? "the GPU or its clock is not known" : "it has no peak") });

function shares(heading, caption, rows) {
  const columns = [{ name: "name", title: "What", cell: (row) => row.name, order: (row) => row.name },
    { name: "share", title: "Share", number: true, cell: (row) => estimate(row, "share", "share_stderr", "share of 1", "not measured"), order: (row) => row.share },
    ...(rows.some((row) => row.achieved !== null) ? [{ ...achieved((row) => RATES_OF_BOUNDS[row.name]), title: "Meanwhile its unit does" }] : []),
    { name: "means", title: "Which means", cell: (row) => (row.kind === "bound" ? boundMeans(row.name) : row.kind === "layer" ? "layers of this class" : "the step's own phase") }];
  const series = [{ name: heading, values: rows.map((row) => (row.share === null ? null : { mean: 100 * row.share, stderr: row.share_stderr === null ? null : 100 * row.share_stderr })) }];
  return section(heading, sortable(columns, rows, { caption, head: "name", sort: "share", attributes: (row) => ({ "data-row": "share", "data-kind": row.kind, "data-name": row.name }) }),
    rows.length > 0 && chart(heading, "Per cent of a step, with standard errors.", bars({ what: "What", names: rows.map((row) => row.name), series, unit: "percent of a step", height: 260 }),
      null));
}

function metricTable(rows) {
  const told = (mean, stderr, title) => ({ name: mean, title, number: true, order: (row) => row[mean], cell: (row) => (stderr ? estimate(row, mean, stderr, "") : value(row, mean)) });
  return section("Metrics over a step", sortable([
    { name: "metric", title: "Metric", cell: (row) => metricName(row.metric), order: (row) => row.metric },
    { name: "source", title: "From", cell: (row) => row.source ?? gap(NOT_KNOWN), order: (row) => row.source },
    told("mean", "mean_stderr", "Mean"), told("p50", "p50_stderr", "Median"), told("p95", "p95_stderr", "95 %"), told("most", null, "Most"),
    { ...achieved((row) => RATES[row.metric]), title: "Which is" },
    { name: "peak", title: "Of a peak of", number: true, order: (row) => row.peak, cell: (row) => value(row, "peak", RATES[row.metric], RATES[row.metric] ? "the GPU is not known" : "it has no peak") }],
  rows, { caption: "In the metric's own unit", head: "metric", sort: null, attributes: (row) => ({ "data-row": "usage", "data-metric": row.metric }) }));
}

export async function showPattern(main, namespace, name, signal) {
  const one = await readPattern(namespace, name, signal);
  const head = element("div", attributes(one), facts([["Namespace", one.namespace], ["Bound by", element("strong", {}, boundOf(one))],
    ["Leads by", leadOf(one)], ["How sure", sure(one)],
    ["A step", estimate(one, "step_ns", "step_ns_stderr", "ns", "not measured")], ["From step to step", millis(one, "step_sd_ns")],
    ["Idle", estimate(one, "idle", "idle_stderr", "share of 1", "kernels were not recorded")], ["GPU", one.gpu_model || gap("not known")], ["Sessions", value(one, "sessions")], ["GPUs", value(one, "gpus")],
    ["Steps", value(one, "steps")], ["Models", one.models.map((model) => model.class).filter(Boolean).join(", ") || gap("not known")], ["Last", moment(one.last_finished)]]));
  title(one.workload_name);
  replace(main, element("h1", {}, `${one.workload_kind} ${one.workload_name}`), head,
    element("p", { class: "costliest" }, one.bound ? `What bounds it: ${one.bound}: ${boundMeans(one.bound)}.` : "What bounds it is not known."),
    shares("What bounds a step", "Shares of a step; their sum is 1", one.bounds), shares("Where the time goes", one.busy ? "Time in which kernels ran" : "Elapsed time", one.time),
    metricTable(one.metrics));
}
