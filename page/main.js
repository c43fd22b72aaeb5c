// Which view the address asks for.
import { login, Problem, token } from "./api.js";
import { showCompare } from "./compare.js";
import { button, element, replace, title } from "./dom.js";
import { showJobs } from "./jobs.js";
import { showLogin } from "./login.js";
import { showPattern, showPatterns } from "./patterns.js";
import { showSession } from "./session.js";
import { showSessions } from "./sessions.js";
import { link, read } from "./state.js";

const main = document.getElementById("main");
let running = null;
let namespace = "";

const VIEWS = {
  sessions: (path, query, signal) => showSessions(main, query, signal),
  session: ([namespace, session], query, signal) => showSession(main, { namespace, session, session_uid: query.get("uid") || "" }, signal),
  jobs: (path, query, signal) => showJobs(main, query, signal),
  compare: (path, query, signal) => showCompare(main, query, signal),
  patterns: (path, query, signal) => showPatterns(main, query, signal),
  pattern: ([namespace, name], query, signal) => showPattern(main, namespace, name, signal),
};

function account() {
  replace(document.getElementById("account"), token() && button("Forget the token", () => {
    login("");
    show();
  }));
}

/** Links keep to the namespace that was named last: its reader may have no right to list others. */
function markPart(name, query) {
  if (query.has("namespace") || name === "sessions") namespace = query.get("namespace") || "";
  for (const one of document.querySelectorAll("#parts a")) {
    const part = read(one.getAttribute("href")).path[0];
    one.setAttribute("href", link([part], { namespace }));
    if (part === name) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
}

const RIGHTS = " Name a namespace that you may list, at Sessions.";

function failed(error, signal) {
  if (signal.aborted) return;
  if (error instanceof Problem && error.status === 401) {
    showLogin(main, token() ? error.message : "", show);
    return;
  }
  const said = element("p", { class: "problem", role: "alert" }, `${error.message}.${error.status === 403 ? RIGHTS : ""}`);
  for (const one of main.querySelectorAll("p")) if (one.textContent === "Reading …") one.remove();
  if (main.children.length) main.append(said);
  else replace(main, said);
}

/** Without TLS it is the operator's port on loopback, which knows no logins, or a proxy: that is found by asking. */
async function show() {
  running?.abort();
  running = new AbortController();
  const { signal } = running;
  const { path, query } = read();
  const view = VIEWS[path[0]] ? path[0] : "sessions";
  account();
  markPart(view, query);
  title(path.at(-1) || "Sessions");
  if (!token() && location.protocol === "https:") {
    showLogin(main, "", show);
    return;
  }
  try {
    await VIEWS[view](path.slice(1), query, signal);
  } catch (error) {
    failed(error, signal);
  }
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", show);
show();
