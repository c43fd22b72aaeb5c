// The layers of one pod's GPU as a table: as a tree by their dotted names, or side by side. Rows of no time are folded into
// one line.
import { boundSure } from "./bounds.js";
import { button, choice, element, replace, section, unique } from "./dom.js";
import { itemName } from "./names.js";
import { areLengthened, atMost, itemAttributes, lackingMetrics, metricsOf } from "./places.js";
import { sureness } from "./quality.js";
import { note } from "./state.js";
import { drawn, scrolling, sortedBy, titleOf } from "./table.js";
import { estimate, gap, level, levelOf, metricName, share, sum, value } from "./values.js";

const AT_FIRST = 80; // rows: what is open at first, and shown of a flat table
const AT_ONCE = 40; // layers below one name
const DEPTHS = 12; // that page.css indents

const unitOf = (rows, metric) => rows.find((row) => row.metrics[metric])?.metrics[metric].unit || "";

function metricCell(row, metric) {
  const made = level(row.metrics[metric], "it was not asked for");
  made.setAttribute("data-metric", metric);
  return made;
}

function boundCell(row) {
  if (!row.bound) return gap("too little was measured");
  return element("span", {}, row.bound, row.bound_likely === null ? "" : " ", row.bound_likely === null ? "" : boundSure(row));
}

/** A layer that stands for those in it says so, and why. */
function classCell(row) {
  if (row.type === null) return gap("it is no layer");
  if (!row.whole_reason) return row.type;
  return element("span", { title: row.whole_reason }, row.type, " ", element("small", { "data-whole": row.whole_reason }, `told whole: ${row.whole_reason}`));
}

function columnsOf(rows, quality) {
  const metrics = metricsOf(rows).map((metric) => ({ name: metric, title: metricName(metric), number: true, metric,
    note: sureness(quality, metric, unitOf(rows, metric)) || "its quality is not told",
    cell: (row) => metricCell(row, metric), order: (row) => levelOf(row.metrics[metric])?.mean ?? null }));
  const plain = (name, title, cell, note) => ({ name, title, number: true, cell, note, order: (row) => row[name] });
  return [
    { name: "layer", title: "Layer", cell: itemName, order: itemName },
    { name: "phase", title: "Phase", cell: (row) => row.phase, order: (row) => row.phase },
    plain("ms_per_step", "ms a step", (row) => atMost(row, estimate(row, "ms_per_step", "ms_per_step_stderr", "")),
      "Elapsed, in marked steps; items that overlap share the time; ≤: with what marks may have added"),
    plain("share", "Share", (row) => share(row, "share"), "Of the steps' time"),
    plain("busy_ms_per_step", "Busy ms", (row) => estimate(row, "busy_ms_per_step", "busy_ms_per_step_stderr", "", row.busy_reason), "In which a kernel of it ran"),
    plain("idle_share", "Idle", (row) => atMost(row, share(row, "idle_share", row.busy_reason)), "Of its own time, in which no kernel of it ran"),
    { name: "bound", title: "Kernels bound by", cell: boundCell, order: (row) => row.bound, note: "While they run, and how sure that is; idle time is beside it" },
    ...metrics,
    plain("memory_peak_bytes", "Memory peak", (row) => value(row, "memory_peak_bytes", "bytes", "not known"), "Most that torch had allocated while it ran"),
    plain("calls", "Calls in all", (row) => value(row, "calls")),
    { name: "type", title: "Class", cell: classCell, order: (row) => row.type },
    plain("parameters", "Parameters", (row) => value(row, "parameters", "", "it is no module")),
  ];
}

// --- the tree ---------------------------------------------------------------------

/** Nodes by the parts of dotted names: {part, path, nodes, rows, all}; `all` are the rows below it, too. */
function treeOf(rows) {
  const root = { path: "", nodes: new Map(), rows: [], all: [] };
  for (const row of rows) {
    let node = root;
    root.all.push(row);
    if (row.kind === "layer") {
      for (const part of row.layer.split(".")) {
        if (!node.nodes.has(part))
          node.nodes.set(part, { part, path: node.path ? `${node.path}.${part}` : part, nodes: new Map(), rows: [], all: [] });
        node = node.nodes.get(part);
        node.all.push(row);
      }
    }
    node.rows.push(row);
  }
  return root;
}

/** What a node sorts by: the sum of its rows' figures, or their largest. */
function orderOfNode(column) {
  if (["layer", "phase", "type", "bound"].includes(column.name)) return (node) => node.part;
  const added = ["ms_per_step", "share", "busy_ms_per_step", "calls"].includes(column.name);
  return (node) => {
    const told = node.all.map(column.order).filter((one) => one !== null && one !== undefined);
    if (!told.length) return null;
    return added ? told.reduce((a, b) => a + b, 0) : told.reduce((a, b) => Math.max(a, b));
  };
}

function nodeCells(node, columns, depth, open, toggle) {
  const added = { ms_per_step: "", share: "share of 1", busy_ms_per_step: "" };
  return columns.map((column) => {
    if (column.name === "layer")
      return element("th", { scope: "row", class: `level-${Math.min(depth, DEPTHS)}` },
        button(node.part || "''", toggle, { class: "node", "aria-expanded": String(open), title: node.path }));
    const cell = element("td", { class: column.number ? "number" : null });
    if (column.name in added) cell.append(sum(node.all, column.name, added[column.name], column.name === "ms_per_step" && areLengthened(node.all)));
    else if (column.name === "phase") cell.append(`${node.all.length} rows`);
    return cell;
  });
}

/** The last part of its name, in full where it is no layer. */
const lastPart = (row) => (row.kind === "layer" ? row.layer.split(".").pop() || "''" : itemName(row));

function leafCells(row, columns, depth) {
  return columns.map((column) => {
    if (column.name === "layer") return element("th", { scope: "row", class: `level-${Math.min(depth, DEPTHS)}`, title: row.layer }, lastPart(row));
    const told = column.cell(row);
    return element("td", { class: column.number ? "number" : null, title: titleOf(told) }, told);
  });
}

/** A layer that no other's name goes on from has its phases in rows beside each other. */
const isLeaf = (node) => node.nodes.size === 0;
const linesOf = (node) => [...node.nodes.values()].slice(0, AT_ONCE).reduce((sum, one) => sum + (isLeaf(one) ? one.rows.length : 1), node.rows.length);
const groupsOf = (node) => [...node.nodes.values()].filter((one) => !isLeaf(one));

/** Opens what fits into the first rows, the costliest first. */
function openAtFirst(root, most) {
  const open = new Set();
  let shown = linesOf(root);
  const cost = orderOfNode({ name: "ms_per_step", order: (row) => row.ms_per_step });
  let ahead = sortedBy(groupsOf(root), cost, true);
  while (ahead.length) {
    const node = ahead.shift();
    const more = linesOf(node);
    if (shown + more > most) continue;
    shown += more;
    open.add(node.path);
    const inside = groupsOf(node);
    if (inside.length) ahead = sortedBy([...ahead, ...inside], cost, true);
  }
  return open;
}

/** What stands below a node, each [order, rows, node or null]; a leaf's rows go together. */
function insideOf(node, column, down) {
  const inside = [...[...node.nodes.values()].map((one) => ({ ...one, group: isLeaf(one) ? null : one })),
    ...node.rows.map((row) => ({ part: itemName(row), rows: [row], all: [row], group: null }))];
  return sortedBy(inside, orderOfNode(column), down);
}

/** `most`: of the rows below one node; what is left is told in a row that shows it. */
function treeRows(root, columns, state, toggle, showMore) {
  const column = columns.find((one) => one.name === state.sorted.name);
  const made = [];
  const add = (node, depth) => {
    const most = state.wide.has(node.path) ? Infinity : AT_ONCE;
    const inside = insideOf(node, column, state.sorted.down);
    for (const one of inside.slice(0, most)) {
      if (!one.group) {
        const rows = sortedBy(one.rows, column.order, state.sorted.down);
        made.push(...rows.map((row) => element("tr", itemAttributes(row), ...leafCells(row, columns, depth))));
        continue;
      }
      const shown = state.open.has(one.path);
      made.push(element("tr", { class: "group", "data-path": one.path },
        ...nodeCells(one.group, columns, depth, shown, () => toggle(one.path))));
      if (shown) add(one.group, depth + 1);
    }
    if (inside.length > most)
      made.push(element("tr", {}, element("td", { colspan: columns.length },
        button(`${inside.length - most} more${node.path ? ` of ${node.path}` : ""}`, () => showMore(node.path)))));
  };
  add(root, 0);
  return made;
}

// --- the section ------------------------------------------------------------------

const PHASES = ["", "forward", "backward", "recompute", "inference"];
const FIRST_SORT = "ms_per_step";

const stateOf = (query) => ({ view: query.get("view") || "tree", filter: query.get("filter") || "", phase: query.get("phase") || "",
  sorted: { name: query.get("sort") || FIRST_SORT, down: query.get("way") !== "up" }, folded: true, shown: AT_FIRST, open: null, wide: new Set() });

/** `query`: what the address says of it (URLSearchParams); `kept`: {layers: what its reader has chosen}, for when it is made anew. */
export function layerTable(place, quality, query, kept) {
  const columns = columnsOf(place.rows, quality);
  kept.layers ??= stateOf(query);
  const state = kept.layers;
  state.fresh = !state.toggled; // what newer rows bring is opened where the reader has not chosen
  if (!columns.some((one) => one.name === state.sorted.name)) state.sorted = { name: FIRST_SORT, down: true };
  const spot = element("div");
  const draw = (focus) => {
    replace(spot, ...body(place, columns, state, draw));
    if (focus) spot.querySelector(focus)?.focus();
  };
  draw();
  const id = unique("filter");
  return section("Layers",
    element("div", { class: "controls" },
      choice("Show as", [["tree", "tree by names"], ["flat", "one table"]], state.view, (told) => {
        state.view = told;
        note("view", told === "tree" ? "" : told);
        draw();
      }),
      choice("Phase", PHASES.map((one) => [one, one || "all"]), state.phase, (told) => {
        state.phase = told;
        note("phase", told);
        draw();
      }),
      element("span", { class: "field" }, element("label", { for: id }, "Names or classes with"),
        element("input", { id, type: "search", value: state.filter, oninput: (event) => {
          Object.assign(state, { filter: event.target.value, open: null, toggled: false });
          note("filter", state.filter);
          draw();
        } }))),
    spot, lackingNote(place.rows));
}

function lackingNote(rows) {
  const lacking = lackingMetrics(rows);
  if (!lacking.size) return null;
  return element("div", { class: "lacking" }, element("h3", {}, "Not told by layer"),
    element("ul", {}, ...[...lacking].map(([metric, reasons]) =>
      element("li", {}, `${metricName(metric)}: ${[...reasons].join("; ")}`))));
}

function chosenRows(place, state) {
  const wanted = state.filter.toLowerCase();
  const found = place.rows.filter((row) => (!state.phase || row.phase === state.phase)
    && (!wanted || itemName(row).toLowerCase().includes(wanted) || (row.type || "").toLowerCase().includes(wanted)));
  return { told: found.filter((row) => row.total_ns !== 0), none: found.filter((row) => row.total_ns === 0) };
}

function body(place, columns, state, draw) {
  const { told, none } = chosenRows(place, state);
  const rows = state.folded ? told : [...told, ...none];
  const onsort = (column) => {
    const same = state.sorted.name === column.name;
    state.sorted = { name: column.name, down: same ? !state.sorted.down : column.number === true };
    note("sort", column.name);
    note("way", state.sorted.down ? "" : "up");
    draw(`th[aria-sort="${state.sorted.down ? "descending" : "ascending"}"] button`);
  };
  const table = state.view === "flat" ? flat(rows, columns, state, onsort) : tree(rows, columns, state, onsort, draw);
  const left = state.view === "flat" && rows.length > state.shown;
  return [
    scrolling("Layers", table),
    left && button(`Show all ${rows.length} rows`, () => { state.shown = Infinity; draw(); }),
    none.length > 0 && button(`${none.length === 1 ? "1 row" : `${none.length} rows`} took no time: ${state.folded ? "show" : "fold"}`,
      () => { state.folded = !state.folded; draw(); }, { class: "fold", "aria-expanded": String(!state.folded) }),
  ];
}

const CAPTION = "What each layer takes of a step and of the GPU, with standard errors. Sums of groups are the page's own.";

function flat(rows, columns, state, onsort) {
  const column = columns.find((one) => one.name === state.sorted.name);
  const ordered = sortedBy(rows, column.order, state.sorted.down);
  return drawn(columns, ordered.slice(0, state.shown), state.sorted, { caption: CAPTION, head: "layer", attributes: itemAttributes, onsort });
}

function tree(rows, columns, state, onsort, draw) {
  const root = treeOf(rows);
  if (!state.open || state.fresh) state.open = new Set([...(state.open || []), ...openAtFirst(root, AT_FIRST)]);
  state.fresh = false;
  const toggle = (path) => {
    state.toggled = true;
    if (!state.open.delete(path)) state.open.add(path);
    draw(`tr[data-path="${CSS.escape(path)}"] button`);
  };
  const showMore = (path) => {
    state.wide.add(path);
    draw();
  };
  const made = drawn(columns, [], state.sorted, { caption: CAPTION, onsort });
  made.tBodies[0].append(...treeRows(root, columns, state, toggle, showMore));
  return made;
}
