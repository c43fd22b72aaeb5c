// Tables that are sorted by their headers. A column is {name, title, cell(row), order(row), note}; order() gives what rows
// are sorted by, null being last whichever way.
import { announce, button, element, replace } from "./dom.js";

const names = new Intl.Collator("en", { numeric: true });

/** A new list, by what order() gives of each, once. */
export function sortedBy(list, order, down) {
  const lacks = (told) => told === null || told === undefined;
  const compare = ([x], [y]) => {
    if (lacks(x) || lacks(y)) return lacks(x) - lacks(y);
    const sign = typeof x === "string" ? names.compare(x, y) : x - y;
    return down ? -sign : sign;
  };
  return list.map((one) => [order(one), one]).sort(compare).map(([, one]) => one);
}

function heading(column, sorted, onsort) {
  const way = sorted.name === column.name ? (sorted.down ? "descending" : "ascending") : column.order ? "none" : null;
  const inside = column.order ? button(column.title, () => onsort(column), { class: "sort", title: column.note }) : column.title;
  return element("th", { scope: "col", "aria-sort": way, class: column.number ? "number" : null,
    title: column.order ? null : column.note }, inside);
}

const CLIPPED = 30; // letters that a cell surely has room for

/** The title of a cell, whose text page.css may clip; null where it cannot be. */
export function titleOf(told) {
  const text = typeof told === "string" ? told : told?.localName === "a" ? told.textContent : "";
  return text.length > CLIPPED ? text : null;
}

/** `row` says what stands in a row: attributes, and `head`, the column that names it. */
export function drawn(columns, rows, sorted, { caption, head, attributes = () => ({}), onsort }) {
  const body = rows.map((row) => element("tr", attributes(row), ...columns.map((column) => {
    const heads = column.name === head;
    const told = column.cell(row);
    return element(heads ? "th" : "td", { scope: heads ? "row" : null, class: column.number ? "number" : null, title: titleOf(told) }, told);
  })));
  return element("table", {}, element("caption", {}, caption),
    element("thead", {}, element("tr", {}, ...columns.map((column) => heading(column, sorted, onsort)))),
    element("tbody", {}, ...body));
}

/** A region that scrolls is reached by the keyboard. */
export function scrolling(label, table) {
  return element("div", { class: "scrolls", role: "group", "aria-label": label, tabindex: "0" }, table);
}

/** One that sorts itself. `most`: rows shown at first. `kept`: {caption: what its reader has chosen}, for when it is made anew. */
export function sortable(columns, rows, { caption, head, sort, down = true, most = 50, attributes, kept = {} }) {
  const place = element("div");
  kept[caption] ??= { sorted: { name: sort, down }, shown: most };
  const state = kept[caption];
  const draw = () => {
    const { sorted, shown } = state;
    const column = columns.find((one) => one.name === sorted.name);
    const ordered = column ? sortedBy(rows, column.order, sorted.down) : rows;
    const onsort = (one) => {
      const now = { name: one.name, down: sorted.name === one.name ? !sorted.down : one.number === true };
      state.sorted = now;
      draw();
      place.querySelector(`th[aria-sort="${now.down ? "descending" : "ascending"}"] button`)?.focus();
      announce(`sorted by ${one.title}, ${now.down ? "the largest first" : "the smallest first"}`);
    };
    replace(place, scrolling(caption, drawn(columns, ordered.slice(0, shown), sorted, { caption, head, attributes, onsort })),
      ordered.length > shown && button(`Show all ${ordered.length} rows`, () => { state.shown = Infinity; draw(); }));
  };
  draw();
  return place;
}
