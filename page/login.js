// A token of the cluster, which the browser keeps until the tab is closed.
import { login } from "./api.js";
import { element, replace, unique } from "./dom.js";

const HOW = "kubectl create token reader --namespace NAMESPACE";

export function showLogin(main, why, ondone) {
  const id = unique("token");
  const field = element("input", { id, type: "password", autocomplete: "off", spellcheck: "false", required: true, "aria-describedby": `${id}-how` });
  replace(main, element("h1", {}, "Who are you?"), why && element("p", { class: "problem", role: "alert" }, why),
    element("form", { class: "login", onsubmit: (event) => {
      event.preventDefault();
      login(field.value.trim());
      ondone();
    } }, element("label", { for: id }, "A token for the cluster's API server"), field, element("button", {}, "Go on"),
    element("p", { id: `${id}-how`, class: "hint" }, "Whoever may read a ProfileSession may read its results: ", element("code", {}, HOW),
      " makes a token of a service account. It is kept in this tab alone.")));
  field.focus();
}
