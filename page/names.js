// Layers' names cut so that they stay apart: as many parts from the right as tell them from each other, and of long ones
// the middle left out.

const MOST = 28;

function ends(name, parts) {
  const all = name.split(".");
  return all.slice(-parts).join(".");
}

function clipped(text) {
  if (text.length <= MOST) return text;
  const half = Math.floor((MOST - 1) / 2);
  return `${text.slice(0, half)}…${text.slice(-half)}`;
}

function alike(texts) {
  const seen = new Map();
  for (const one of texts.values()) seen.set(one, (seen.get(one) || 0) + 1);
  return (text) => seen.get(text) > 1;
}

/** {name: short text}, of names that differ. */
export function shortened(names) {
  const parts = new Map(names.map((name) => [name, 1]));
  let texts = new Map();
  for (let round = 0; round < 16; round += 1) {
    texts = new Map(names.map((name) => [name, clipped(ends(name, parts.get(name)))]));
    const twice = alike(texts);
    const more = names.filter((name) => twice(texts.get(name)) && parts.get(name) < name.split(".").length);
    if (!more.length) break;
    for (const name of more) parts.set(name, parts.get(name) + 1);
  }
  const twice = alike(texts);
  return new Map(names.map((name) => [name, twice(texts.get(name)) ? name : texts.get(name)]));
}

/** What an item is called: its layer, or what it is instead of one. */
export const itemName = (row) => (row.kind === "layer" ? row.layer : `(${row.kind})`);
export const itemKey = (row) => JSON.stringify([row.kind, row.layer, row.phase]);
