// Two sessions: what changed of each layer, and whether it is more than noise, by the rule of `precisionprobe report --compare`.
import { rows, session as readSession } from "./api.js";
import { choice, element, replace, section } from "./dom.js";
import { itemKey, itemName } from "./names.js";
import { chosen, enoughFor, keyOfGpu, placeChoice, places } from "./places.js";
import { choosable, labelOf, meant, nameOf, named } from "./sessions.js";
import { choose, link, note } from "./state.js";
import { holm, studentP, welch } from "./statistics.js";
import { sortable } from "./table.js";
import { gap, metricName, rounded, text, value } from "./values.js";

const COUNTED = "counted_ms_per_step", MARKED = "marked_ms_per_step";
const TIMES = { ms_per_step: "Time, ms a step", busy_ms_per_step: "Busy, ms a step" };
const STEPS = { [COUNTED]: "A step, ms", [MARKED]: "A marked step, ms" };
const UNLIKE = { method: "the methods differ", source: "the sources differ", basis: "one is a mean over busy, the other over elapsed time" };
const FEW_CAPTURES = 3;
const LEVELS = { steps: 0.01, rows: 0.04 }; // of Holm's procedure
const LONG_NS = 1e10; // longer than what is alike in a capture lasts
const MOST_ROWS = 10000; // of both sessions, up to which all GPUs are read: they are some 30 MB of answers
const SAME_PEAK = 0.005; // of a peak, by which two of GPUs of one model may differ
const nameOfWhat = (what) => TIMES[what] || STEPS[what] || metricName(what);

/** ms a step, and how sure that is. */
const timeOf = (row, column) => ({ mean: row[column] ?? null, stderr: row[`${column}_stderr`] ?? null, freedom: row[`${column}_freedom`] ?? null, unit: "ms",
  reason: column === "busy_ms_per_step" && row.busy_reason ? row.busy_reason : "it took no time that is known" });

const markedStepOf = (row) => ({ mean: row.marked_steps > 0 && row.step_ns !== null ? row.step_ns / 1e6 / row.marked_steps : null,
  stderr: row.step_ms_stderr ?? null, freedom: row.step_ms_freedom ?? null, unit: "ms", reason: "no step was marked" });

/** [what, estimate] of a row's times: of the job those of whole steps. */
const timesOf = (row) => (row.kind === "job" ? [[COUNTED, timeOf(row, COUNTED)], [MARKED, markedStepOf(row)]]
  : Object.keys(TIMES).map((column) => [column, timeOf(row, column)]));

/** {metric: its peak} of a place's GPU. */
function peaksOf(place) {
  const found = new Map();
  for (const row of place.job ? [...place.rows, place.job] : place.rows)
    for (const [metric, one] of Object.entries(row.metrics)) if (typeof one.peak === "number" && !found.has(metric)) found.set(metric, one.peak);
  return found;
}

/** Why nothing of two places is differenced; "" where it is. */
function otherGpu(a, b) {
  const theirs = peaksOf(b);
  for (const [metric, peak] of peaksOf(a))
    if (theirs.has(metric) && Math.abs(peak - theirs.get(metric)) > SAME_PEAK * Math.abs(peak)) return "the GPUs are of different models";
  return "";
}

/** Of what a metric's standard error is an estimate of: of windows, or of the steps that its row's times are by; samples are many. */
const freedomOf = (row, one) => (["job", "replay"].includes(one.method) ? Math.max(one.windows - 1, 1) : one.method === "records" ? row.busy_ms_per_step_freedom : null);

/** {key: {row, told: {metric: estimate}}} of a place's items; of levels of the whole GPU the job's alone. */
function itemsOf(place) {
  const found = new Map();
  for (const row of place.job ? [...place.rows, place.job] : place.rows) {
    const told = Object.entries(row.metrics).filter(([, one]) => row.kind === "job" || one.method !== "job").map(([name, one]) => [name, { ...one, freedom: freedomOf(row, one) }]);
    found.set(itemKey(row), { row, told: new Map([...timesOf(row), ...told]) });
  }
  return found;
}

/** Why two values are not differenced; "" where they are. */
function unlike(a, b) {
  if (a.mean === null || b.mean === null) return "one has no value";
  for (const [name, reason] of Object.entries(UNLIKE)) if (a[name] && b[name] && a[name] !== b[name]) return reason;
  return "";
}

function compared(row, what, a, b, other) {
  const made = { row, what, a, b, unit: (a || b).unit, p: null, z: null, difference: null, stderr: null, marked: false, reason: "" };
  made.reason = a && b ? unlike(a, b) || other : "only one has it";
  if (made.reason) return made;
  made.difference = b.mean - a.mean;
  if (a.stderr === null || b.stderr === null) return { ...made, reason: "a standard error is not known" };
  made.stderr = Math.hypot(a.stderr, b.stderr);
  if (!(made.stderr > 0)) return { ...made, reason: "neither has a standard error" };
  made.z = made.difference / made.stderr;
  made.p = studentP(made.z, welch(a, b));
  return made;
}

/** Of steps in which nothing was marked, where both tell how sure that is; marked steps are longer, and not held against others. */
function oneStep(found) {
  const [counted, marked] = [COUNTED, MARKED].map((what) => found.find((one) => one.what === what));
  const told = (one) => one && (one.a?.mean ?? null) !== null && (one.b?.mean ?? null) !== null;
  const left = told(counted) && (counted.p !== null || !told(marked) || marked.p === null) ? marked : counted;
  return found.filter((one) => one !== left);
}

/** What changed between two places. */
export function compareAll(first, second) {
  const [a, b] = [itemsOf(first), itemsOf(second)];
  const other = otherGpu(first, second);
  const found = [];
  for (const key of new Set([...a.keys(), ...b.keys()])) {
    const [x, y] = [a.get(key), b.get(key)];
    for (const what of new Set([...(x?.told.keys() || []), ...(y?.told.keys() || [])])) {
      const [p, q] = [x?.told.get(what), y?.told.get(what)];
      if (p?.mean !== null || q?.mean !== null) found.push(compared((y || x).row, what, p, q, other));
    }
  }
  return oneStep(found);
}

const judgeable = (items) => items.filter((one) => one.p !== null);

const isStep = (one) => one.what === COUNTED || one.what === MARKED;

/** Marks what is more than noise, judged together with values of other pairs of places, and whole steps by themselves: how many values that are. */
function markAll(items, others) {
  for (const [level, belongs] of [[LEVELS.steps, isStep], [LEVELS.rows, (one) => !isStep(one)]]) {
    const told = judgeable(items).filter(belongs);
    const ps = [...told, ...others.filter(belongs)].map((one) => one.p);
    holm(ps, level).slice(0, told.length).forEach((marked, n) => { told[n].marked = marked; });
  }
  return judgeable(items).length + others.length;
}

/** The second's place of the same GPU, else its first of a GPU that the first session has not; as `precisionprobe report --compare` pairs them. */
function partnerOf(place, firsts, left) {
  return left.find((one) => one.gpu === place.gpu)
    || left.find((one) => one.gpu && place.gpu && !firsts.some((other) => other.gpu === one.gpu));
}

/** [first, second] of all that belong together. */
function pairsOf(firsts, seconds) {
  const left = [...seconds];
  const found = [];
  for (const a of firsts) {
    const b = partnerOf(a, firsts, left);
    if (!b) continue;
    left.splice(left.indexOf(b), 1);
    found.push([a, b]);
  }
  return found;
}

/** The pair that is looked at, by keys that may be "", and the report's other pairs, but for those that have one of its places. */
function family(firsts, seconds, [a, b]) {
  const all = pairsOf(firsts, seconds);
  const first = chosen(firsts, a);
  const partner = all.find(([one]) => one === first)?.[1];
  const second = seconds.find((one) => one.key === b) || partner || seconds[0];
  return { now: [first, second], others: all.filter(([one, other]) => one !== first && other !== second), isReports: second === partner };
}

// --- what is shown ----------------------------------------------------------------

function cellOf(told, side, what) {
  if (!told) return gap("it is not in this session");
  if (told.mean === null) return gap(told.reason);
  const made = element("span", { "data-side": side, "data-metric": what }, value(told, "mean", told.unit));
  if (told.stderr !== null) made.append(element("span", { class: "stderr" }, " ± ", value(told, "stderr", told.unit)));
  return made;
}

/** By p; of those too small for a number, by how far they are off. */
const significance = (one) => (one.p > 1e-300 ? -Math.log10(one.p) : 300 + Math.abs(one.z));
const word = (one) => (one.p === null ? "cannot be said" : !one.marked ? "no" : one.difference > 0 ? "yes, higher" : "yes, lower");
const signed = (told, unit) => `${told > 0 ? "+" : ""}${text(told, unit)}`;

function table(items) {
  const columns = [
    { name: "layer", title: "Layer", cell: (one) => itemName(one.row), order: (one) => itemName(one.row) },
    { name: "phase", title: "Phase", cell: (one) => one.row.phase, order: (one) => one.row.phase },
    { name: "what", title: "What", cell: (one) => nameOfWhat(one.what), order: (one) => one.what },
    { name: "a", title: "First", number: true, cell: (one) => cellOf(one.a, "a", one.what), order: (one) => one.a?.mean ?? null },
    { name: "b", title: "Second", number: true, cell: (one) => cellOf(one.b, "b", one.what), order: (one) => one.b?.mean ?? null },
    { name: "difference", title: "Difference", number: true, order: (one) => one.difference, cell: (one) => (one.difference === null ? gap(one.reason)
      : element("span", { "data-difference": one.difference, title: String(one.difference) }, signed(one.difference, one.unit),
        one.stderr === null ? "" : ` ± ${text(one.stderr, one.unit)}`)) },
    { name: "z", title: "In standard errors", number: true, order: (one) => (one.z === null ? null : Math.abs(one.z)),
      cell: (one) => (one.z === null ? gap(one.reason) : element("span", { "data-z": one.z, title: String(one.z) }, rounded(one.z, 3))) },
    { name: "p", title: "p", number: true, order: (one) => (one.p === null ? null : significance(one)), note: "How often as much comes by chance alone",
      cell: (one) => (one.p === null ? gap(one.reason) : element("span", { "data-p": one.p, title: String(one.p) }, one.p < 1e-16 ? "< 1e-16" : rounded(one.p, 2))) },
    { name: "word", title: "More than noise?", cell: (one) => element("span", { class: `verdict ${word(one).replace(/[ ,].*/, "")}` }, word(one)), order: word },
  ];
  return sortable(columns, items, { caption: "The most significant first", head: "layer", sort: "p",
    attributes: (one) => ({ "data-row": "compare", "data-kind": one.row.kind, "data-layer": one.row.layer, "data-phase": one.row.phase, "data-what": one.what }) });
}

function summary(items, { words, count }) {
  const told = judgeable(items);
  const beyond = told.filter((one) => one.marked);
  return element("p", { class: "summary", "data-comparisons": told.length, "data-beyond": beyond.length, "data-judged": count },
    `${beyond.length} of ${told.length} comparisons are more than noise, by Holm's procedure over ${words}, the whole step at 1 % and the others at 4 %: `
    + `where nothing differs, 1 time in 20 any is taken for more. ${items.length - told.length} values cannot be compared. `
    + "Standard errors are of one session each: by how much two sessions of the same training differ by themselves is not in them.");
}

function list(items, over, only, onchoose) {
  const whats = [...new Set(items.map((one) => one.what))].sort();
  const now = whats.includes(only) ? only : "";
  return [element("div", { class: "controls" }, choice("What", [["", "all"], ...whats.map((one) => [one, nameOfWhat(one)])], now, onchoose)),
    summary(items, over), table(now ? items.filter((one) => one.what === now) : items)];
}

/** Whether a place has a single capture, which is as good as several. */
const isLong = ({ job }) => job?.captures === 1 && job.step_ns >= LONG_NS;

/** What makes a comparison say little, though each value may be compared. */
function strangers([a, b], items) {
  const said = [];
  if (!items.some((one) => one.row.kind === "layer" && one.a && one.b)) said.push("They have no layer in common: these are different trainings, or another model.");
  if (peaksOf(a).size === 0 && peaksOf(b).size === 0) said.push("The GPUs' peaks are not known, so whether both ran on GPUs of one model is not, either.");
  else if (peaksOf(a).size === 0 || peaksOf(b).size === 0) said.push("Of one the GPU's peaks are not known, so whether both ran on GPUs of one model is not, either.");
  const least = Math.min(...[a, b].filter((place) => place.job?.captures > 0 && !isLong(place)).map((place) => place.job.captures));
  if (least === 1) said.push("How captures differ a single one does not say, so some marks of times may be chance.");
  else if (least <= FEW_CAPTURES) said.push(`${a.job?.captures ?? "?"} and ${b.job?.captures ?? "?"} captures say little of how captures differ, so of times only large differences are told.`);
  return said.length ? element("p", { class: "problem" }, said.join(" ")) : null;
}

const REPORT = "`precisionprobe report --compare`";

/** What is judged together, in words. */
function overWhat({ others, isReports }, whole) {
  if (!whole) return "those of this pair of GPUs alone, since there are too many to read all";
  if (isReports) return others.length ? `all values of all ${others.length + 1} pairs of GPUs, as ${REPORT} pairs them` : "all of them";
  return `all values of this pair of GPUs, which ${REPORT} does not make, ${others.length ? `and of the ${others.length} of its pairs that have neither of the two` : "alone"}`;
}

/** All places of both sessions; null where they have too many rows. */
async function allOf(pair, signal) {
  const found = [];
  let left = MOST_ROWS;
  for (const one of pair) {
    const { items } = await rows(one, "layers", signal, (told) => told.length > left);
    left -= items.length;
    if (left < 0) return null;
    found.push(places(items));
  }
  return found;
}

/** Places up to those that are looked at; of the second by itself up to the first's GPU. */
async function someOf(pair, [a, b], session, signal) {
  const upTo = async (one, key) => places((await rows(one, "layers", signal, enoughFor(key))).items);
  const firsts = await upTo(pair[0], a);
  return [firsts, await upTo(pair[1], b || keyOfGpu(session, chosen(firsts, a)?.gpu))];
}

async function draw(spot, pair, query, signal) {
  const keys = ["a", "b"].map((name) => query.get(`at-${name}`) || "");
  const wholes = await Promise.all(pair.map((one) => readSession(one, signal)));
  const whole = await allOf(pair, signal);
  const all = whole ?? await someOf(pair, keys, wholes[1], signal);
  if (all.some((one) => !one.length)) {
    replace(spot, element("p", {}, "One of the two has no results yet."));
    return;
  }
  const judged = family(...all, keys);
  const { now } = judged;
  const items = compareAll(...now);
  const count = markAll(items, whole ? judged.others.flatMap((one) => judgeable(compareAll(...one))) : []);
  const chooseplaces = now.map((one, n) => placeChoice(wholes[n], all[n], one, (key) => choose(`at-${"ab"[n]}`, key)));
  const place = element("div");
  const over = { words: overWhat(judged, whole), count };
  const show = (only) => replace(place, ...list(items, over, only, (next) => {
    note("what", next);
    show(next);
  }));
  show(query.get("what") || "");
  replace(spot, element("div", { class: "controls" }, ...chooseplaces.filter(Boolean)),
    element("p", { class: "hint" }, `First: ${now[0].name}. Second: ${now[1].name}.`), strangers(now, items), place);
}

export async function showCompare(main, query, signal) {
  const pair = ["a", "b"].map((name) => named(query.get(name)));
  const items = await choosable(query.get("namespace") || "", pair.filter(Boolean), signal);
  const options = [["", "choose a session"], ...items.map((one) => [nameOf(one), labelOf(one)])];
  const [a, b] = pair.map((one) => (one ? nameOf(meant(items, one)) : ""));
  const go = (name) => (told) => {
    location.hash = link(["compare"], { namespace: query.get("namespace"), a: query.get("a"), b: query.get("b"), [name]: told });
  };
  const spot = element("div", {}, element("p", {}, pair.every(Boolean) ? "Reading …" : "Choose two sessions."));
  replace(main, element("h1", {}, "Two sessions compared"), element("div", { class: "controls" }, choice("First, as yesterday's", options, a, go("a")),
    choice("Second, as today's", options, b, go("b"))), section("What changed", spot));
  if (pair.every(Boolean)) await draw(spot, pair, query, signal);
}
