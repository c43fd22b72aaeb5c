// Elements from names and texts. All text becomes text nodes: what a training calls its layers is never markup. What turns
// writing around or is not seen stands there by its number.

const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\p{Default_Ignorable_Code_Point}]/gu;

function numbered(one) {
  const digits = one.codePointAt(0).toString(16).padStart(4, "0");
  return digits.length > 4 ? `\\u{${digits}}` : `\\u${digits}`;
}

export const visible = (text) => text.replace(UNSEEN, numbered);

const SEEN = new Set(["title", "aria-label"]); // attributes that somebody reads
const shown = (child) => (typeof child === "string" ? visible(child) : child);
const there = (child) => child !== null && child !== undefined && child !== false;

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : SEEN.has(key) ? visible(String(value)) : String(value));
  }
  made.append(...children.filter(there).map(shown));
  return made;
}

export function replace(place, ...children) {
  place.replaceChildren(...children.filter(there).map(shown));
}

/** What the browser calls the page. */
export function title(text) {
  document.title = visible(`${text} – PrecisionProbe`);
}

let last = 0;
/** A name that no other element of the page has. */
export function unique(stem) {
  last += 1;
  return `${stem}-${last}`;
}

/** A landmark that is named by its heading. */
export function section(title, ...children) {
  const id = unique("heading");
  return element("section", { "aria-labelledby": id }, element("h2", { id }, title), ...children);
}

/** Texts that go with each other, in a line: [["Phase", "Running"], ...]; a value may be an element. */
export function facts(pairs) {
  return element("dl", { class: "facts" }, ...pairs.map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

export function button(text, onclick, more = {}) {
  return element("button", { type: "button", onclick, ...more }, text);
}

/** One of several: options are [value, text]. */
export function choice(label, options, chosen, onchoose) {
  const id = unique("choice");
  const made = element("select", { id, onchange: (event) => onchoose(event.target.value) },
    ...options.map(([value, text]) => element("option", { value, selected: value === chosen }, text)));
  return element("span", { class: "field" }, element("label", { for: id }, label), made);
}

/** Says something to whoever listens instead of looks. */
export function announce(text) {
  document.getElementById("news").textContent = text;
}
