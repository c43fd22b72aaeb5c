// A session's rows by where they were measured: one pod's GPU at a time. The API has them in that order, so that of many GPUs
// no more is read than those up to the one that is looked at.
import { choice, element } from "./dom.js";

const keyOf = (row) => `${row.pod_uid} ${row.gpu_uuid}`;
const nameOf = (pod, gpu) => `${pod}, ${gpu || "no GPU"}`;

/** Whether rows have all of a place, "" being the first. */
export const enoughFor = (key) => (rows) => {
  const [first, last] = [keyOf(rows[0]), keyOf(rows.at(-1))];
  return key ? last !== key && rows.some((row) => keyOf(row) === key) : last !== first;
};

/** [{key, name, gpu, rows, job}], in the API's order. */
export function places(rows) {
  const found = new Map();
  for (const row of rows) {
    const key = keyOf(row);
    if (!found.has(key)) found.set(key, { key, name: nameOf(row.pod_name, row.gpu_uuid), gpu: row.gpu_uuid, rows: [], job: null });
    const place = found.get(key);
    if (row.kind === "job") place.job = row;
    else place.rows.push(row);
  }
  return [...found.values()];
}

/** The one that is asked for, or the first. */
export const chosen = (all, key) => all.find((one) => one.key === key) || all[0];

/** Where a session has a GPU; "" where it has not. */
export function keyOfGpu(session, gpu) {
  const pod = session.pods.find((one) => (one.gpus || []).some((told) => told.gpu_uuid === gpu));
  return pod ? keyOf({ pod_uid: pod.pod_uid, gpu_uuid: gpu }) : "";
}

/** Of those that the session says to have, and those that were read; null where there is nothing to choose. */
export function placeChoice(session, read, now, onchoose) {
  const options = new Map(session.pods.flatMap((pod) => (pod.gpus || []).map((gpu) => [`${pod.pod_uid} ${gpu.gpu_uuid}`, nameOf(pod.pod_name, gpu.gpu_uuid)])));
  for (const one of read) options.set(one.key, one.name);
  return options.size < 2 ? null : choice("Pod and GPU", [...options], now.key, onchoose);
}

/** What says of an element whose row it shows. */
export const itemAttributes = (row) => ({ "data-row": "item", "data-gpu": row.gpu_uuid, "data-pod": row.pod_uid, "data-kind": row.kind,
  "data-layer": row.layer, "data-phase": row.phase });

const NOTICEABLE = 0.95; // of a time, below which what marks may have added is told
export const leastOf = (row) => row.least_ms_per_step ?? row.ms_per_step ?? 0;
export const total = (rows, of) => rows.reduce((before, row) => before + (of(row) ?? 0), 0);
/** Whether marks may have lengthened what these rows take together. */
export const areLengthened = (rows) => total(rows, leastOf) < NOTICEABLE * total(rows, (row) => row.ms_per_step);

/** A time of a row, or a share of it, with what marks may have added, where that is worth telling. */
export function atMost(row, made) {
  if (areLengthened([row]) && !made.classList.contains("gap")) return element("span", {}, element("abbr", { title: "marks may have added to it" }, "≤ "), made);
  return made;
}

/** A level of the whole GPU, as its memory, stands in each row, and is no row's own. */
const OF_THE_GPU = "it is a level of the whole GPU, as below";
const isOwn = (told) => told.method !== "job" && (told.mean !== null || told.group_mean !== null);

/** Metrics that any of these rows has a value of its own of, by the API's names. */
export function metricsOf(rows) {
  const found = new Set();
  for (const row of rows)
    for (const [name, told] of Object.entries(row.metrics)) if (isOwn(told)) found.add(name);
  return [...found].sort();
}

/** Metrics without a value by layer, with why: {metric: Set of reasons}. */
export function lackingMetrics(rows) {
  const told = new Set(metricsOf(rows));
  const found = new Map();
  for (const row of rows)
    for (const [name, one] of Object.entries(row.metrics)) {
      const reason = one.method === "job" ? OF_THE_GPU : one.reason;
      if (told.has(name) || !reason || row.total_ns === 0) continue;
      if (!found.has(name)) found.set(name, new Set());
      found.get(name).add(reason);
    }
  return found;
}
