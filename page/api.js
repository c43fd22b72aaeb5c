// The operator's HTTP API (docs/api.md): the token, pages, and what the browser has already. Paths are relative, so that
// the page works behind a proxy's prefix.

const BASE = new URL("../api/v1/", location.href);
const KEY = "precisionprobe-token";
const known = new Map(); // {address: {etag, document, letters}}
const ANSWERS_KEPT = 64, LETTERS_KEPT = 2 ** 26;
const AGAIN = 3; // times that all pages are read anew
const TRIES = 4;

export class Problem extends Error {
  constructor(document, status) {
    super(document.detail || `the answer was ${status}`);
    this.status = status;
    this.field = document.field;
  }
}

export const token = () => sessionStorage.getItem(KEY);
export function login(text) {
  known.clear();
  if (text) sessionStorage.setItem(KEY, text);
  else sessionStorage.removeItem(KEY);
}

/** Not as Authorization, which a proxy takes for its own, and the API server behind it for who asks. */
function headers(etag) {
  const told = { Accept: "application/json" };
  if (token()) told["X-PrecisionProbe-Token"] = token();
  if (etag) told["If-None-Match"] = etag;
  return told;
}

function address(path, query) {
  const made = new URL(path.map(encodeURIComponent).join("/"), BASE);
  for (const [name, told] of Object.entries(query))
    if (told !== null && told !== undefined && told !== "") made.searchParams.set(name, told);
  return made.href;
}

const pause = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

/** As the API asks: 429 and 503 say when to come again. */
async function patiently(make, signal) {
  for (let left = TRIES; ; left -= 1) {
    const answer = await make();
    const again = Number(answer.headers.get("Retry-After"));
    if ((answer.status !== 429 && answer.status !== 503) || !again || left <= 1) return answer;
    await pause(again);
    signal?.throwIfAborted();
  }
}

const lettersKept = () => [...known.values()].reduce((sum, one) => sum + one.letters, 0);

function keep(at, etag, document, letters) {
  known.delete(at);
  known.set(at, { etag, document, letters });
  while (known.size > ANSWERS_KEPT || lettersKept() > LETTERS_KEPT) known.delete(known.keys().next().value);
}

/** One document; the same object as before where nothing has changed. */
export async function get(path, query = {}, signal = undefined) {
  const at = address(path, query);
  const before = known.get(at);
  const answer = await patiently(() =>
    fetch(at, { headers: headers(before?.etag), signal, cache: "no-store", credentials: "omit" }), signal);
  if (answer.status === 304 && before) return before.document;
  if (!answer.ok) throw new Problem(await answer.json().catch(() => ({})), answer.status);
  const text = await answer.text();
  const document = JSON.parse(text);
  if (answer.headers.get("ETag")) keep(at, answer.headers.get("ETag"), document, text.length);
  return document;
}

/** All rows of all pages, or of as many as are enough by `enough(rows)`, with what the first page says beside them. */
export async function all(path, query = {}, signal = undefined, enough = () => false) {
  let page = await get(path, { limit: 5000, ...query }, signal);
  const found = { ...page, items: [...page.items] };
  while (page.continue && !enough(found.items)) {
    page = await get(path, { limit: 5000, ...query, continue: page.continue }, signal);
    found.items.push(...page.items);
  }
  return found;
}

/** Whether a GPU's rows are of two revisions: it was evaluated anew between two pages. */
function torn(items) {
  const revisions = new Map();
  for (const row of items) {
    const gpu = `${row.pod_uid} ${row.gpu_uuid}`;
    if (!revisions.has(gpu)) revisions.set(gpu, row.revision);
    if (revisions.get(gpu) !== row.revision) return true;
  }
  return false;
}

const at = (one, ...below) => ["namespaces", one.namespace, "sessions", one.session, ...below];
const of = (one) => ({ uid: one.session_uid });

export const sessions = (namespace, signal) =>
  all(namespace ? ["namespaces", namespace, "sessions"] : ["sessions"], {}, signal);
export const session = (one, signal) => get(at(one), of(one), signal);
/** Of `below`: layers, quality, kernels, waits, copies, ranks. */
export async function rows(one, below, signal, enough) {
  const read = () => all(at(one, below), of(one), signal, enough);
  let told = await read();
  for (let again = 0; again < AGAIN && torn(told.items); again++) told = await read();
  return told;
}
export const timeline = (one, query, signal) => get(at(one, "timeline"), { ...of(one), ...query }, signal);
export const patterns = (namespace, signal) => all(["namespaces", namespace, "patterns"], {}, signal);
export const pattern = (namespace, name, signal) => get(["namespaces", namespace, "patterns", name], {}, signal);
