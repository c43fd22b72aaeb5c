// Sessions, the latest first, as they run.
import { sessions } from "./api.js";
import { button, element, replace, unique } from "./dom.js";
import { follow } from "./follow.js";
import { keeping } from "./keep.js";
import { link, sessionLink } from "./state.js";
import { sortable, sortedBy } from "./table.js";
import { moment } from "./values.js";

export const nameOf = (one) => [one.namespace, one.session, one.session_uid].join("/");
/** {namespace, session, session_uid} of that; the session's own name may have slashes nowhere. */
export function named(text) {
  const [namespace, session, session_uid] = (text || "").split("/");
  return namespace && session ? { namespace, session, session_uid: session_uid || "" } : null;
}

export const OVER = ["Succeeded", "Failed"];
/** When something of a session was; what has not come yet comes while it runs, and no more. */
export const momentOf = (one, name) => moment(one[name], OVER.includes(one.session_phase) ? "none is known" : undefined);

/** How one is called in a list to choose from. */
export const labelOf = (one) => [`${one.namespace}/${one.session}`, (one.created_at ?? "").slice(0, 19)].filter(Boolean).join(", ");

/** The one of `items` that an address means: by its UID, or, where it names none, the latest of the name. */
export function meant(items, { namespace, session, session_uid }) {
  const same = items.filter((one) => one.namespace === namespace && one.session === session && (!session_uid || one.session_uid === session_uid));
  return sortedBy(same, (one) => one.created_at, true)[0];
}

/** Sessions to choose from: all that may be listed, and those that are chosen, which need no right to list others. */
export async function choosable(namespace, chosen, signal) {
  const listed = await sessions(namespace, signal).then(({ items }) => items, (problem) => {
    if (problem.status !== 403 || !chosen.length) throw problem;
    return [];
  });
  return [...listed, ...chosen.filter((one) => !meant(listed, one))];
}

const workloads = (one) => one.workloads.map((told) => `${told.kind} ${told.name}${told.pods > 1 ? ` (${told.pods} pods)` : ""}`).join(", ");

function table(items, chosen, onchange, kept) {
  const plain = (name, title) => ({ name, title, cell: (one) => one[name] ?? "", order: (one) => one[name] });
  const time = (name, title) => ({ name, title, cell: (one) => momentOf(one, name), order: (one) => one[name] });
  const columns = [
    { name: "choose", title: "Choose", cell: (one) => element("input", { type: "checkbox", "aria-label": `choose ${one.session}`, checked: chosen.has(nameOf(one)),
      onchange: (event) => onchange(one, event.target.checked) }) },
    { name: "session", title: "Session", cell: (one) => element("a", { href: sessionLink(one) }, one.session), order: (one) => one.session },
    plain("namespace", "Namespace"),
    { name: "session_phase", title: "Phase", cell: (one) => element("strong", { class: `phase ${one.session_phase}` }, one.session_phase), order: (one) => one.session_phase },
    plain("reason", "Reason"),
    { name: "workloads", title: "Workloads", cell: workloads, order: workloads },
    plain("method", "Method"), { ...plain("pods", "Pods"), number: true },
    time("created_at", "Created"), time("last_step", "Last step"), time("finished_at", "Finished"),
  ];
  return sortable(columns, items, { caption: "Sessions", head: "session", sort: "created_at", most: 100, kept,
    attributes: (one) => ({ "data-row": "session", "data-uid": one.session_uid }) });
}

function namespaceForm(namespace) {
  const id = unique("namespace");
  const field = element("input", { id, value: namespace, autocomplete: "off", spellcheck: "false" });
  return element("form", { class: "controls", onsubmit: (event) => {
    event.preventDefault();
    location.hash = link(["sessions"], { namespace: field.value.trim() });
  } }, element("span", { class: "field" }, element("label", { for: id }, "Namespace (empty: all)"), field), element("button", {}, "Show"));
}

export async function showSessions(main, query, signal) {
  const namespace = query.get("namespace") || "";
  const trouble = element("div"), spot = element("div", {}, element("p", {}, "Reading …"));
  const chosen = new Map();
  const bar = element("div", { class: "controls" });
  const drawBar = () => replace(bar, button(`Put ${chosen.size || "chosen"} side by side`, () => { location.hash = link(["jobs"], { namespace, s: [...chosen.keys()] }); },
    { disabled: chosen.size < 1 }), button("Compare the two chosen", () => {
    const [a, b] = [...chosen.values()].sort((x, y) => (x.created_at < y.created_at ? -1 : 1)).map(nameOf);
    location.hash = link(["compare"], { namespace, a, b });
  }, { disabled: chosen.size !== 2 }));
  const choose = (one, on) => {
    if (on) chosen.set(nameOf(one), one);
    else chosen.delete(nameOf(one));
    drawBar();
  };
  drawBar();
  replace(main, element("h1", {}, namespace ? `Sessions of ${namespace}` : "Sessions"), namespaceForm(namespace), trouble, spot, bar);
  const kept = {};
  let before = "";
  await follow(async () => {
    const { items } = await sessions(namespace, signal);
    const now = JSON.stringify(items);
    if (now === before) return;
    before = now;
    keeping(spot, () => replace(spot, items.length ? table(items, chosen, choose, kept)
      : element("p", {}, "There are none: a ProfileSession begins one (docs/profilesession.md).")));
  }, trouble, signal);
}
