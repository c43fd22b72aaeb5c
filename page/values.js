// How values are shown. What the API says stands in `data-value` with all its digits, and as the title; the text may be
// rounded. What was not measured is said to be so, and is no number.
import { element } from "./dom.js";

const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** Four digits, without an exponent where that is short. */
export function rounded(value, digits = 4) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e7 && digits >= 4) return String(value);
  if (size >= 1e7 || size < 1e-4) return value.toExponential(digits - 1);
  return String(Number(value.toPrecision(digits)));
}

/** In units that go with its size, as 4.92 TB/s. */
export function scaled(value, unit, digits = 4) {
  const found = PREFIXES.find(([size]) => Math.abs(value) >= size);
  return found ? `${rounded(value / found[0], digits)} ${found[1]}${unit}` : `${rounded(value, digits)} ${unit}`;
}

const SHORT = { "bytes per second": "B/s", "FLOP per second": "FLOP/s", bytes: "B", joules: "J" };

/** ns in a unit that goes with their size. */
function time(ns, digits) {
  const [size, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]].find(([one]) => Math.abs(ns) >= one) || [1, "ns"];
  return `${rounded(ns / size, digits)} ${unit}`;
}

const LEAST = 1e-4; // per cent that anybody asks for

const percent = (value, digits) => (value !== 0 && Math.abs(value) < LEAST ? `less than ${LEAST.toFixed(4)} %` : `${rounded(value, digits)} %`);

/** The text of a value in a unit of the API. */
export function text(value, unit, digits = 4) {
  if (unit === "ns") return time(value, digits);
  if (unit === "share of 1") return percent(100 * value, digits);
  if (unit === "percent") return percent(value, digits);
  if (unit === "watts") return `${rounded(value, digits)} W`;
  if (SHORT[unit]) return scaled(value, SHORT[unit], digits);
  return unit ? `${rounded(value, digits)} ${unit}` : rounded(value, digits);
}

export function gap(reason) {
  return element("span", { class: "gap", title: reason || "not measured" },
    element("span", { "aria-hidden": "true" }, "–"),
    element("span", { class: "heard" }, `not measured${reason ? `: ${reason}` : ""}`));
}

/** A column of a row; null is a gap. */
export function value(row, column, unit = "", reason = "", digits = 4) {
  const told = row[column];
  if (told === null || told === undefined) return gap(reason);
  return element("span", { class: "value", "data-column": column, "data-value": told, title: `${told} ${unit}`.trim() },
    text(told, unit, digits));
}

/** A share of 1 in per cent. */
export const share = (row, column, reason) => value(row, column, "share of 1", reason);

/** Digits with which a value ends where two of its standard error's do. */
function digitsBy(mean, error) {
  if (!(error > 0) || !mean) return 4;
  const place = (size) => Math.floor(Math.log10(Math.abs(size)));
  return Math.max(4, Math.min(8, place(mean) - place(error) + 2));
}

const errorOf = (content) => element("span", { class: "stderr" }, " ± ", content);

/** mean and stderr, whatever the two are called. */
export function estimate(row, mean, stderr, unit, reason) {
  if (row[mean] === null || row[mean] === undefined) return gap(reason);
  const error = row[stderr] ?? null;
  const made = element("span", { class: "estimate" }, value(row, mean, unit, "", digitsBy(row[mean], error)));
  if (error !== null) made.append(errorOf(value(row, stderr, unit, "", 2)));
  return made;
}

/** Of a metric's value, or, where it has none of its own, of that of the group which only together has one; null: neither. */
export function levelOf(told) {
  if (!told || (told.mean === null && (told.group_mean ?? null) === null)) return null;
  return told.mean !== null ? { mean: told.mean, stderr: told.stderr ?? null, unit: told.unit, group: "" }
    : { mean: told.group_mean, stderr: told.group_stderr ?? null, unit: told.unit, group: told.group_name };
}

/** The same for a table. */
export function level(told, lacking) {
  const found = levelOf(told);
  if (!found) return gap(told?.reason || lacking);
  if (!found.group) return estimate(told, "mean", "stderr", told.unit);
  const made = estimate(told, "group_mean", "group_stderr", told.unit);
  made.prepend(element("abbr", { title: `only together with others: ${found.group}` }, "group "));
  return made;
}

/** What the page has made of columns that the API tells: how, says its title. `error`: null where it is not known. */
export function quotient(made, how, unit, error) {
  const told = element("span", { class: "estimate", "data-made": how, "data-quotient": made, title: `${made}, ${how}` }, text(made, unit, digitsBy(made, error)));
  if (error !== null && error !== undefined) told.append(errorOf(text(error, unit, 2)));
  return told;
}

/** What the page has added up, which the API does not tell: of how many rows, says its title. `most`: each may be less. */
export function sum(rows, column, unit, most = false) {
  const told = rows.map((row) => row[column]).filter((one) => one !== null && one !== undefined);
  if (!told.length) return gap("not measured in any of its rows");
  const total = told.reduce((before, one) => before + one, 0);
  const whole = told.length === rows.length;
  const bound = whole ? (most ? "≤ " : "") : most ? "about " : "≥ ";
  return element("span", { class: "sum", "data-sum": total, "data-column": column,
    title: (whole ? `${total}, the sum of ${told.length} rows` : `${most ? "" : "at least: "}the sum of the ${told.length} of ${rows.length} rows that are known`)
      + (most ? "; marks may have added to it" : "") },
  `${bound}${text(total, unit)}`);
}

/** A step that was marked; of an item of the kind `job`. */
export const markedStep = (row) => (row.marked_steps > 0 && row.step_ns !== null
  ? quotient(row.step_ns / 1e6 / row.marked_steps, "step_ns / 1e6 / marked_steps", "", row.step_ms_stderr) : gap("no step was marked"));

export function moment(told, lacking = "not yet") {
  if (!told) return gap(lacking);
  return element("time", { datetime: told, title: told }, told.slice(0, 19).replace("T", " ") + " UTC");
}

export const METRICS = {
  gpu_util: "GPUUtil", gpu_mem: "GPUMem", dram_active: "DRAMActive", fp32_active: "FP32Active",
  sm_occupancy: "SMOccupancy", sm_active: "SMActive", tensor_active: "TensorActive", fp16_active: "FP16Active",
  sm_clock: "SMClock", power: "Power", pcie_tx: "PCIeTx", pcie_rx: "PCIeRx", nvlink_tx: "NVLinkTx", nvlink_rx: "NVLinkRx",
};
/** As the paper and spec.metrics call it. */
export const metricName = (metric) => METRICS[metric] || metric;
