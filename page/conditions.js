// A session's conditions: what is wrong, in words, and all of them.
import { element } from "./dom.js";
import { drawn, scrolling } from "./table.js";
import { gap, moment } from "./values.js";

// The status that is wrong of each, and what it means. The others follow from these.
const WRONG = {
  Stalled: ["True", "Somebody has to act"],
  Failed: ["True", "It has failed"],
  Accepted: ["False", "Its spec is not accepted"],
  Injected: ["False", "Pods are not profiled"],
  ClockSkewed: ["True", "A clock is wrong"],
  MetricsAvailable: ["False", "Metrics are missing"],
  Sampled: ["False", "GPUs are not sampled"],
  Replayed: ["False", "Layers are not replayed"],
  Explained: ["False", "Values of layers are withheld"],
  Stored: ["False", "It is not stored"],
};
const WAITED_FOR = ["NoMatchingPods", "OtherSession", "NotLinux", "Released"]; // Stalled says so once it takes too long

/** Those that are wrong, each reason once. */
function wrong(conditions) {
  const of = Object.keys(WRONG).map((type) => conditions.find((one) => one.type === type && one.status === WRONG[type][0])).filter(Boolean);
  return of.filter((one, n) => of.findIndex((other) => other.reason === one.reason) === n && !(one.type === "Injected" && WAITED_FOR.includes(one.reason)));
}

function table(conditions) {
  const plain = (name, title) => ({ name, title, cell: (one) => one[name] ?? gap() });
  const columns = [plain("type", "Condition"), plain("status", "Status"), plain("reason", "Reason"), plain("message", "Message"),
    { name: "since", title: "Since", cell: (one) => moment(one.last_transition_time) }];
  return scrolling("Conditions", drawn(columns, conditions, { name: null }, { caption: "As the session has them", head: "type",
    attributes: (one) => ({ "data-row": "condition", "data-type": one.type, "data-status": one.status }) }));
}

/** Of the API's `conditions`; nothing where there are none. `opened`: whether all were seen before, null: they were not there. */
export function conditionsOf(conditions, opened) {
  if (!conditions?.length) return [];
  const bad = wrong(conditions);
  return [...bad.map((one) => element("p", { class: "problem", "data-wrong": one.type }, element("strong", {}, WRONG[one.type][1]), `: ${one.message} (${one.reason})`)),
    element("details", { class: "conditions", open: opened ?? bad.length > 0 }, element("summary", {}, "Conditions"), table(conditions))];
}
