// Kernels, waits of the host, copies, ranks: rows of the views of these names, read when they are asked for.
import { rows } from "./api.js";
import { disclosure } from "./chart.js";
import { element, replace, section } from "./dom.js";
import { sortable } from "./table.js";
import { gap, value } from "./values.js";

const TEXTS = new Set(["layer", "phase", "kernel", "call", "file", "type", "memory", "pod_name", "process"]);
const VIEWS = {
  kernels: { title: "GPU kernels", sort: "ms_per_step", columns: ["kernel", "layer", "phase", "calls_per_step", "ms_per_step", "share"],
    keys: ["process", "layer", "phase", "kernel"] },
  waits: { title: "Where the host waited", sort: "ms_per_step", columns: ["call", "file", "line", "layer", "phase", "calls_per_step", "ms_per_step", "share_of_steps"],
    keys: ["process", "layer", "phase", "call", "file", "line"] },
  copies: { title: "Copies and fills", sort: "ms_per_step", columns: ["type", "memory", "layer", "phase", "per_step", "bytes_per_step", "ms_per_step", "gb_per_second"],
    keys: ["process", "layer", "phase", "type", "memory"] },
  ranks: { title: "Ranks side by side", sort: "own_ms_per_step", columns: ["pod_name", "process", "rank", "world_size", "steps", "ms_per_step", "wait_ms_per_step",
    "own_ms_per_step", "own_stderr_ms", "others_own_ms_per_step"], keys: ["process"] },
};

const NO_LAYER = "of no layer"; // an optimizer's kernels, and what runs outside of modules

const WHOSE = ["pod_name", "process"]; // what tells rows of several ranks apart

const UNITS = { share: "share of 1", share_of_steps: "share of 1", bytes_per_step: "bytes" };

function table(name, told) {
  const { title, sort, columns: [first, ...others], keys } = VIEWS[name];
  const whose = new Set(told.map((row) => JSON.stringify(WHOSE.map((one) => row[one])))).size > 1 ? WHOSE.filter((one) => one !== first && !others.includes(one)) : [];
  const column = (one) => (TEXTS.has(one)
    ? { name: one, title: one, cell: (row) => (row[one] === "" || row[one] === null ? gap(one === "layer" ? NO_LAYER : "not told apart") : String(row[one])), order: (row) => row[one] }
    : { name: one, title: one.replaceAll("_", " "), number: true, order: (row) => row[one],
      cell: (row) => (one === "line" && row.line === 0 ? gap("not known") : value(row, one, UNITS[one])) });
  return sortable([first, ...whose, ...others].map(column), told, { caption: title, head: first, sort,
    attributes: (row) => ({ "data-row": name, "data-pod": row.pod_uid, "data-key": JSON.stringify(keys.map((key) => row[key])) }) });
}

function part(name, session, signal) {
  return disclosure(VIEWS[name].title, () => {
    const spot = element("div", {}, element("p", {}, "Reading …"));
    rows(session, name, signal).then(
      ({ items }) => replace(spot, items.length ? table(name, items) : element("p", { class: "gap" }, "Nothing was recorded.")),
      (error) => signal.aborted || replace(spot, element("p", { class: "problem" }, error.message)));
    return spot;
  });
}

export const moreSection = (session, signal) => section("More of this session", ...Object.keys(VIEWS).map((name) => part(name, session, signal)));
