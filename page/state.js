// What is shown stands in the address behind #, so that it can be sent to somebody, kept, and gone back to.

/** {path: ["session", "ml", "dlrm"], query: URLSearchParams} */
export function read(hash = location.hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  return { path: path.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(query) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function link(path, query = {}) {
  const parts = new URLSearchParams();
  for (const [name, told] of Object.entries(query))
    for (const one of Array.isArray(told) ? told : [told])
      if (one !== null && one !== undefined && one !== "") parts.append(name, one);
  const behind = parts.toString();
  return `#/${path.map(encodeURIComponent).join("/")}${behind ? `?${behind}` : ""}`;
}

/** Notes a choice without going anywhere: what is there stays. "" takes it away. */
export function note(name, told) {
  const { path, query } = read();
  if (told) query.set(name, told);
  else query.delete(name);
  const behind = query.toString();
  history.replaceState(null, "", `#/${path.map(encodeURIComponent).join("/")}${behind ? `?${behind}` : ""}`);
}

/** The same, and shows what the address says now. */
export function choose(name, told) {
  note(name, told);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

/** Where a session's page is. */
export const sessionLink = (one, query = {}) =>
  link(["session", one.namespace, one.session], { uid: one.session_uid, ...query });
