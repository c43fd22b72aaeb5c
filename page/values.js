// How values are shown. What the API says stands in `data-value` with all its digits, and as the title; the text may be
// rounded. What was not measured is said to be so, and is no number.
import { element } from "./dom.js";

const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** Four digits, without an exponent where that is short. */
export function rounded(value, digits = 4) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e7) return String(value);
  if (size >= 1e7 || size < 1e-4) return value.toExponential(digits - 1);
  return String(Number(value.toPrecision(digits)));
}

/** In units that go with its size, as 4.92 TB/s. */
export function scaled(value, unit) {
  const found = PREFIXES.find(([size]) => Math.abs(value) >= size);
  return found ? `${rounded(value / found[0])} ${found[1]}${unit}` : `${rounded(value)} ${unit}`;
}

const SHORT = { "bytes per second": "B/s", "FLOP per second": "FLOP/s", bytes: "B", joules: "J" };

/** ns in a unit that goes with their size. */
function time(ns) {
  const [size, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]].find(([one]) => Math.abs(ns) >= one) || [1, "ns"];
  return `${rounded(ns / size)} ${unit}`;
}

/** The text of a value in a unit of the API. */
export function text(value, unit) {
  if (unit === "ns") return time(value);
  if (unit === "share of 1") return `${rounded(100 * value)} %`;
  if (unit === "percent") return `${rounded(value)} %`;
  if (unit === "watts") return `${rounded(value)} W`;
  if (SHORT[unit]) return scaled(value, SHORT[unit]);
  return unit ? `${rounded(value)} ${unit}` : rounded(value);
}

export function gap(reason) {
  return element("span", { class: "gap", title: reason || "not measured" },
    element("span", { "aria-hidden": "true" }, "–"),
    element("span", { class: "heard" }, `not measured${reason ? `: ${reason}` : ""}`));
}

/** A column of a row; null is a gap. */
export function value(row, column, unit = "", reason = "") {
  const told = row[column];
  if (told === null || told === undefined) return gap(reason);
  return element("span", { class: "value", "data-column": column, "data-value": told, title: `${told} ${unit}`.trim() },
    text(told, unit));
}

/** A share of 1 in per cent. */
export const share = (row, column, reason) => value(row, column, "share of 1", reason);

/** mean and stderr, whatever the two are called. */
export function estimate(row, mean, stderr, unit, reason) {
  if (row[mean] === null || row[mean] === undefined) return gap(reason);
  const made = element("span", { class: "estimate" }, value(row, mean, unit));
  if (row[stderr] !== null && row[stderr] !== undefined)
    made.append(element("span", { class: "stderr" }, " ± ", value(row, stderr, unit)));
  return made;
}

/** What the page has added up, which the API does not tell: of how many rows, says its title. */
export function sum(rows, column, unit) {
  const told = rows.map((row) => row[column]).filter((one) => one !== null && one !== undefined);
  if (!told.length) return gap("not measured in any of its rows");
  const total = told.reduce((before, one) => before + one, 0);
  return element("span", { class: "sum", "data-sum": total, "data-column": column,
    title: `${total}, the sum of ${told.length} rows` }, text(total, unit));
}

export function moment(told) {
  if (!told) return gap("not yet");
  return element("time", { datetime: told, title: told }, told.slice(0, 19).replace("T", " ") + " UTC");
}

export const METRICS = {
  gpu_util: "GPUUtil", gpu_mem: "GPUMem", dram_active: "DRAMActive", fp32_active: "FP32Active",
  sm_occupancy: "SMOccupancy", sm_active: "SMActive", tensor_active: "TensorActive", fp16_active: "FP16Active",
  sm_clock: "SMClock", power: "Power", pcie_tx: "PCIeTx", pcie_rx: "PCIeRx", nvlink_tx: "NVLinkTx", nvlink_rx: "NVLinkRx",
};
/** As the paper and spec.metrics call it. */
export const metricName = (metric) => METRICS[metric] || metric;
