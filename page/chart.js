// What all charts share: uPlot with the page's colours, and drawings of their own upon its axes. Each chart is an image to
// a screen reader, and has its numbers in a table beside it.
import uPlot from "./uPlot.esm.js";
import { element, visible } from "./dom.js";
import { rounded } from "./values.js";

export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const SERIES = ["--series-1", "--series-2", "--series-3", "--series-4", "--series-5", "--series-6"];

export const axis = (more) => ({ stroke: css("--ink"), grid: { stroke: css("--line"), width: 1 },
  ticks: { stroke: css("--line"), width: 1 }, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif", ...more });

const drawnCharts = new Set(); // functions that draw one anew

function widthOf(place) {
  return Math.max(280, place.clientWidth || 800);
}

/** Draws when it is seen, with the width that it has then, and anew where the colours or the width change. One that has left the
 * page is destroyed: uPlot would keep it. */
function whenSeen(place, draw) {
  let made = null;
  const anew = () => {
    made?.destroy();
    made = draw(widthOf(place));
  };
  const seen = new IntersectionObserver((entries) => {
    if (!entries.some((one) => one.isIntersecting)) return;
    seen.disconnect();
    anew();
    drawnCharts.add(anew);
    const sized = new ResizeObserver(() => {
      if (place.isConnected) {
        if (Math.abs(made.width - widthOf(place)) > 8) made.setSize({ width: widthOf(place), height: made.height });
        return;
      }
      sized.disconnect();
      drawnCharts.delete(anew);
      made.destroy();
    });
    sized.observe(place);
  }, { rootMargin: "200px" });
  seen.observe(place);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const anew of drawnCharts) anew();
});

/** `make(width)` gives [options, data] of uPlot; `table` makes the numbers as a table, when it is opened; null: they stand
 * elsewhere. */
export function chart(title, summary, make, table) {
  const place = element("div", { class: "chart", role: "img", "aria-label": `${title}. ${summary}` });
  whenSeen(place, (width) => new uPlot(...make(width), place));
  return element("figure", { "data-figure": title }, element("figcaption", {}, element("strong", {}, title), ` ${summary}`), place,
    ...(table ? [disclosure("The numbers", table)] : []));
}

/** What is inside is made when it is opened first. */
export function disclosure(title, make) {
  const made = element("details", {}, element("summary", {}, title));
  made.addEventListener("toggle", () => made.children.length < 2 && made.append(make()), { once: true });
  return made;
}

/** x of a bar: its group's place and its own within. */
function corners(u, place, k, of) {
  const room = u.valToPos(1, "x", true) - u.valToPos(0, "x", true);
  const width = Math.max(1, (0.76 * room) / of);
  return [u.valToPos(place, "x", true) - 0.38 * room + k * width, width];
}

function drawError(u, x, mean, stderr) {
  const [top, foot] = [u.valToPos(mean + stderr, "y", true), u.valToPos(mean - stderr, "y", true)];
  u.ctx.beginPath();
  u.ctx.moveTo(x, top);
  u.ctx.lineTo(x, foot);
  u.ctx.stroke();
}

/** A cross on the axis, where something was not measured. */
function drawGap(u, x) {
  const y = u.valToPos(0, "y", true) - 5 * devicePixelRatio, arm = 2.5 * devicePixelRatio;
  u.ctx.beginPath();
  u.ctx.moveTo(x - arm, y - arm);
  u.ctx.lineTo(x + arm, y + arm);
  u.ctx.moveTo(x - arm, y + arm);
  u.ctx.lineTo(x + arm, y - arm);
  u.ctx.stroke();
}

function drawBars(u, series, colours) {
  const { ctx } = u;
  ctx.save();
  ctx.beginPath();
  ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
  ctx.clip();
  ctx.lineWidth = devicePixelRatio;
  const zero = u.valToPos(0, "y", true);
  const [from, to] = [u.scales.x.min - 1, u.scales.x.max + 1];
  series.forEach((one, k) => one.values.forEach((told, place) => {
    if (place < from || place > to) return;
    const [x, width] = corners(u, place, k, series.length);
    if (told === null) {
      ctx.strokeStyle = css("--quiet");
      if (width > 4) drawGap(u, x + width / 2);
      return;
    }
    const y = u.valToPos(told.mean, "y", true);
    ctx.fillStyle = colours[k];
    ctx.globalAlpha = told.group ? 0.45 : 1;
    ctx.fillRect(x, Math.min(y, zero), Math.max(1, width - 1), Math.max(1, Math.abs(zero - y)));
    ctx.globalAlpha = 1;
    ctx.strokeStyle = css("--ink");
    if (told.stderr !== null && width > 3) drawError(u, x + width / 2, told.mean, told.stderr);
  }));
  ctx.restore();
}

/** Steps between names on the axis: all where there is room, else every second, fifth, ... */
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];

/**
 * Bars in groups: `names` of the groups, `series` [{name, values: [{mean, stderr, group} or null]}]; `group`: whose value it is in truth. The x axis can be zoomed by
 * dragging; a double click shows all again.
 */
export function bars({ what, names, series, unit, height = 300 }) {
  const colours = SERIES.map(css);
  const shown = names.map(visible);
  const tops = series.flatMap((one) => one.values.filter(Boolean).map((told) => told.mean + (told.stderr ?? 0)));
  const most = Math.max(0, ...tops) || 1;
  const least = Math.min(0, ...series.flatMap((one) => one.values.filter(Boolean).map((told) => told.mean - (told.stderr ?? 0))));
  return (width) => [{
    width, height,
    scales: { x: { time: false, range: (u, low, high) => (low === 0 && high === names.length - 1 ? [-0.6, names.length - 0.4] : [low, high]) },
      y: { range: [Math.max(least, -most), most * 1.05] } },
    axes: [axis({ rotate: -50, size: 110, space: 16, incrs: STEPS, grid: { show: false },
      values: (u, places) => places.map((place) => (Number.isInteger(place) ? shown[place] ?? "" : "")) }),
    axis({ label: unit, size: 56 })],
    series: [{ label: what, value: (u, place) => shown[place] ?? "" },
      ...series.map((one, k) => ({ label: visible(one.name), stroke: colours[k], fill: colours[k], paths: () => null, points: { show: false },
        value: (u, told, of, place) => (place === null ? "" : told === null ? "not measured" : `${one.values[place]?.group ? "group " : ""}${rounded(told)}`) }))],
    cursor: { drag: { x: true, y: false }, y: false },
    hooks: { draw: [(u) => drawBars(u, series, colours)] },
  }, [names.map((_, place) => place), ...series.map((one) => one.values.map((told) => (told ? told.mean : null)))]];
}
