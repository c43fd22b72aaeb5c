// The paper's Table III and figure 3: jobs side by side.
import { rows } from "./api.js";
import { bars, chart } from "./chart.js";
import { button, element, replace, section } from "./dom.js";
import { jobAttributes, jobCell } from "./job.js";
import { places } from "./places.js";
import { choosable, labelOf, meant, nameOf, named } from "./sessions.js";
import { link, sessionLink } from "./state.js";
import { drawn, scrolling } from "./table.js";
import { estimate, gap, markedStep, metricName, value } from "./values.js";

/** [{name, one, row}]: a column for each GPU of each session. */
async function columnsOf(chosen, signal) {
  const told = await Promise.all(chosen.map((one) => rows(one, "layers", signal)));
  return told.flatMap((page, n) => {
    const all = places(page.items).filter((place) => place.job);
    return all.map((place, k) => ({ one: chosen[n], row: place.job, whole: `${chosen[n].session}, ${place.name}`,
      name: all.length > 1 ? `${chosen[n].session}, GPU ${k + 1}` : chosen[n].session }));
  });
}

const NOT_COUNTED = "no step without marks was counted";
const countedStep = (row) => estimate(row, "counted_ms_per_step", "counted_ms_per_step_stderr", "", NOT_COUNTED);

/** Marks lengthen steps: those with and without them are never in one line. */
const ofJob = [["counted_ms_per_step", "ms a step", "", countedStep], ["counted_idle_share", "No kernel ran", "share of 1", null, NOT_COUNTED],
  ["step_ns", "ms a marked step", "", markedStep], ["memory_peak_bytes", "Memory of torch, peak", "bytes"],
  ["memory_live_bytes", "Left allocated by a step", "bytes"]];

function table(jobs, metrics) {
  const cell = (one, job) => {
    const made = element("span", { ...jobAttributes(job.row), "data-session": job.one.session });
    const plain = () => (one.made ? one.made(job.row) : value(job.row, one.column, one.unit, one.lacking || "not measured"));
    made.append(one.metric ? jobCell(job.row, one.metric) : plain());
    return made;
  };
  const lines = [...ofJob.map(([column, title, unit, made, lacking]) => ({ column, title, unit, made, lacking })), ...metrics.map((metric) => ({ metric, title: metricName(metric) }))];
  const columns = [{ name: "metric", title: "", cell: (one) => one.title },
    ...jobs.map((job, n) => ({ name: `job-${n}`, title: element("a", { href: sessionLink(job.one, { at: `${job.row.pod_uid} ${job.row.gpu_uuid}` }), title: job.whole }, job.name), number: true, cell: (one) => cell(one, job) }))];
  columns[0].title = "Metric";
  return scrolling("Jobs side by side", drawn(columns, lines, { name: null }, { caption: "Table III: averages over each job, with standard errors", head: "metric" }));
}

/** Metrics of one unit can stand beside each other. */
function figure(jobs, metrics) {
  const share = (metric) => ["share of 1", "percent"].includes(jobs.map((job) => job.row.metrics[metric]?.unit).find(Boolean));
  const told = metrics.filter(share);
  const bar = (job, metric) => {
    const one = job.row.metrics[metric];
    if (!one || one.mean === null) return null;
    const by = one.unit === "share of 1" ? 100 : 1;
    return { mean: by * one.mean, stderr: one.stderr === null ? null : by * one.stderr };
  };
  if (!told.length) return gap("no metric that is a share was measured");
  const series = jobs.slice(0, 6).map((job) => ({ name: job.name, values: told.map((metric) => bar(job, metric)) }));
  return chart("Figure 3", `Metrics of ${series.length} jobs, in per cent, with standard errors.${jobs.length > 6 ? " The first six; the table has all." : ""}`,
    bars({ what: "Metric", names: told.map(metricName), series, unit: "percent" }), () => table(jobs, told));
}

function chooser(items, chosen, query) {
  const boxes = items.map((one) => element("input", { type: "checkbox", value: nameOf(one), checked: chosen.some((other) => meant(items, other) === one) }));
  return element("details", { open: !chosen.length }, element("summary", {}, "Choose jobs"),
    element("ul", { class: "choices" }, ...items.map((one, n) => element("li", {}, element("label", {}, boxes[n], ` ${labelOf(one)}`)))),
    button("Show them", () => { location.hash = link(["jobs"], { namespace: query.get("namespace"), s: boxes.filter((box) => box.checked).map((box) => box.value) }); }));
}

export async function showJobs(main, query, signal) {
  const chosen = query.getAll("s").map(named).filter(Boolean);
  const items = await choosable(query.get("namespace") || "", chosen, signal);
  const spot = element("div", {}, element("p", {}, chosen.length ? "Reading …" : "None is chosen."));
  replace(main, element("h1", {}, "Jobs side by side"), chooser(items, chosen, query), section("Table III and figure 3", spot));
  if (!chosen.length) return;
  const jobs = await columnsOf(chosen, signal);
  const metrics = [...new Set(jobs.flatMap((job) => Object.keys(job.row.metrics)))].sort();
  replace(spot, jobs.length ? table(jobs, metrics) : element("p", {}, "None of them has results yet."), jobs.length > 0 && figure(jobs, metrics));
}
