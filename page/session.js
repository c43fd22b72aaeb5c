// One session: what is costly, why, how sure that is; then all of it.
import { rows, session as readSession } from "./api.js";
import { boundSection } from "./bounds.js";
import { conditionsOf } from "./conditions.js";
import { announce, element, facts, replace } from "./dom.js";
import { figureSection } from "./figures.js";
import { follow } from "./follow.js";
import { headline } from "./headline.js";
import { jobTable } from "./job.js";
import { keeping } from "./keep.js";
import { layerTable } from "./layers.js";
import { moreSection } from "./more.js";
import { chosen, enoughFor, placeChoice, places } from "./places.js";
import { qualityTable } from "./quality.js";
import { momentOf, OVER } from "./sessions.js";
import { choose, link, read } from "./state.js";
import { timelinePart } from "./timeline.js";
import { gap } from "./values.js";

function title(one, opened) {
  return [element("h1", {}, one.session),
    facts([["Namespace", one.namespace], ["Phase", element("strong", { class: `phase ${one.session_phase}` }, one.session_phase)],
      ["Method", one.method || gap()], ["First step", momentOf(one, "first_step")], ["Last step", momentOf(one, "last_step")], ["Finished", momentOf(one, "finished_at")],
      ["Pods", String(one.pods.length)]]), ...conditionsOf(one.conditions, opened),
    element("p", { class: "links" },
      element("a", { href: link(["compare"], { namespace: one.namespace, b: [one.namespace, one.session, one.session_uid].join("/") }) }, "Compare it with an earlier session"), " · ",
      element("a", { href: link(["jobs"], { namespace: one.namespace, s: [one.namespace, one.session, one.session_uid].join("/") }) }, "Put other jobs beside it"), " · ",
      element("a", { href: link(["patterns"], { namespace: one.namespace }) }, "What bounds its workload"))];
}

function draw(spot, one, told, quality, query, kept) {
  const all = places(told.items);
  if (!all.length) {
    replace(spot, element("p", {}, OVER.includes(one.session_phase) ? "It has no results." : "There are no results yet: they come while it runs."));
    return;
  }
  const now = chosen(all, query.get("at"));
  const ours = quality.items.filter((row) => row.pod_uid === now.rows[0]?.pod_uid && row.gpu_uuid === now.rows[0]?.gpu_uuid);
  const choice = placeChoice(one, all, now, (key) => choose("at", key));
  replace(spot, choice && element("div", { class: "controls" }, choice), headline(now, ours), layerTable(now, ours, query, kept),
    jobTable(now.job), figureSection(now, query, kept), boundSection(now, kept), qualityTable(ours, kept));
}

/** Whether there is a process that something is known of. */
const seen = (one) => one.pods.some((pod) => pod.processes.length);

/** `asked`: {namespace, session, session_uid}. Goes on reading while it runs. */
export async function showSession(main, asked, signal) {
  const kept = {};
  const head = element("div"), trouble = element("div"), spot = element("div", {}, element("p", {}, "Reading …")), below = element("div");
  const timeline = timelinePart(signal);
  replace(main, head, trouble, spot);
  let before = null;
  let layers = null;
  const look = async () => {
    const results = Promise.all([rows(asked, "layers", signal, enoughFor(read().query.get("at") || "")), rows(asked, "quality", signal)]);
    results.catch(() => {}); // it is told below, where the session itself can be read
    const one = await readSession(asked, signal);
    if (one !== before) keeping(head, () => replace(head, ...title(one, head.querySelector(".conditions")?.open)));
    const [told, quality] = await results;
    const newest = JSON.stringify(told.items.map((row) => [row.revision, row.total_ns]));
    const choosing = Boolean(main.contains(document.activeElement) && document.activeElement.closest("input, select"));
    if (newest !== layers && !choosing) {
      layers = newest;
      keeping(spot, () => draw(spot, one, told, quality, read().query, kept));
      if (before) announce("The values are newer now.");
    }
    if (!before) main.append(timeline.element, below);
    timeline.look(one);
    if (!before || (!seen(before) && seen(one))) replace(below, moreSection(one, signal));
    before = one;
    return OVER.includes(one.session_phase) && newest === layers; // else the last values are still to be drawn
  };
  await follow(look, trouble, signal);
}
