// What is drawn anew leaves to its reader what they had: the focus, what is open, how far it is scrolled.

const nameOf = (one) => one.labels?.[0]?.textContent ?? one.getAttribute("aria-label") ?? (one.querySelector("summary") || one).textContent;

/** What an element is known by, however often it is made. */
const keyOf = (one) => JSON.stringify([one.localName, nameOf(one), one.closest("section")?.querySelector("h2")?.textContent,
  one.closest("figure")?.dataset.figure, { ...one.closest("tr")?.dataset }]);

/** {key: what `of` tells} of a place's elements. */
function noted(place, selector, of) {
  const found = new Map();
  for (const one of place.querySelectorAll(selector)) found.set(keyOf(one), of(one));
  return found;
}

function applied(place, selector, before, apply) {
  if (!before.size) return;
  for (const one of place.querySelectorAll(selector)) {
    const key = keyOf(one);
    if (before.has(key)) apply(one, before.get(key));
  }
}

/** Does what draws `place` anew, and gives back what its reader had. */
export function keeping(place, draw) {
  const active = place.contains(document.activeElement) ? document.activeElement : null;
  const focus = new Map(active ? [[keyOf(active), null]] : []);
  const opened = noted(place, "details", (one) => one.open);
  const scrolled = noted(place, ".scrolls", (one) => [one.scrollLeft, one.scrollTop]);
  const heights = new Map([...place.querySelectorAll("figure")].map((one) => [one.dataset.figure, one.querySelector(".chart").getBoundingClientRect().height]));
  const [x, y] = [scrollX, scrollY];
  draw();
  applied(place, "details", opened, (one, open) => {
    if (one.open === open) return;
    one.open = open;
    one.dispatchEvent(new Event("toggle")); // else what is inside is made later
  });
  // Charts are drawn when they are seen: until then the page is not to be shorter than before.
  for (const one of place.querySelectorAll("figure"))
    if (heights.has(one.dataset.figure)) one.querySelector(".chart").style.minHeight = `${heights.get(one.dataset.figure)}px`;
  applied(place, ".scrolls", scrolled, (one, [left, top]) => one.scrollTo(left, top));
  if (active) applied(place, active.localName, focus, (one) => one.focus({ preventScroll: true }));
  scrollTo(x, y);
}
