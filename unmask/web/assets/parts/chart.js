// Curves on a canvas (uPlot), with a table for those who do not see them; small curves as SVG.
import { button, fill, h, table } from "./dom.js";
import { curvesAsCsv, download, fileName, svgOfLines } from "./download.js";
import { measured, whole } from "./format.js";

const COLORS = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c0"];
const MAX_TABLE_ROWS = 200;
const FEW_POINTS = 20;

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The color of the i-th line; from the sixth on, lines are dashed. */
export const lineStyle = (i) => ({
  color: color(COLORS[i % COLORS.length]),
  dash: i < COLORS.length ? [] : i < 2 * COLORS.length ? [6, 4] : [2, 3],
});

/** What a function gives while the page is light, as paper is; the page is not drawn meanwhile. */
function inLight(act) {
  const { dataset } = document.documentElement;
  const { theme } = dataset;
  dataset.theme = "light";
  try {
    return act();
  } finally {
    dataset.theme = theme;
  }
}

const STEPS = { label: "step", text: whole };
/** Distances between the marks of an axis of whole numbers. */
const WHOLE = [...Array(12).keys()].flatMap((i) => [1, 2, 5].map((one) => one * 10 ** i));

/**
 * A chart: `lines` are {label, steps, values, points}; values that are null are gaps.
 * `x`: what it is along, {label, text(value)}. `legend`: whether names and values are below it.
 * `onfocus`: called with the line that is pointed at, its place and value; with null, if there is none.
 * Returns {element, update(lines), leave()}.
 */
export function chart(title, lines, { log = false, unit = "", height = 240, format = measured, x = STEPS, legend = true, onfocus = null } = {}) {
  const place = h("div", { class: "plot", role: "img", "aria-label": title });
  const numbers = h("div", { hidden: true });
  const toggle = button("Show as table", () => {
    numbers.hidden = !numbers.hidden;
    toggle.textContent = numbers.hidden ? "Show as table" : "Hide table";
    if (!numbers.hidden) fill(numbers, asTable(title, current, { format, x }));
  }, { class: "quiet" });
  const full = button("Full screen", () => (isFull() ? document.exitFullscreen() : element.requestFullscreen()), { class: "quiet full", "aria-label": `${title}: full screen` });
  const isFull = () => document.fullscreenElement === element;
  const element = h("figure", { class: "chart" }, h("div", { class: "row" }, h("h3", {}, title), toggle), place, numbers);
  element.firstChild.append(full);
  let plot = null;
  let current = lines;
  let drawn = []; // whether each line has so few points that they are shown
  const file = (ending, type, text) => button(`Download ${ending.toUpperCase()}`, () => download(fileName(title, ending), type, text()), { class: "quiet", "aria-label": `Download ${ending.toUpperCase()}: ${title}` });
  const styled = () => inLight(() => current.map((one, i) => { const { color: stroke, dash } = lineStyle(one.color ?? i); return { ...one, stroke, dash: one.dash ?? dash, points: one.points || one.steps.length < FEW_POINTS }; }));
  toggle.after(file("csv", "text/csv;charset=utf-8", () => curvesAsCsv(current, x.label, title)), file("svg", "image/svg+xml", () => svgOfLines(title, styled(), { log, x, format })));

  function draw() {
    const width = place.clientWidth;
    plot?.destroy();
    plot = null;
    if (!width || !current.some((one) => one.steps.length)) {
      place.textContent = current.length ? "no numbers yet" : "nothing chosen";
      return;
    }
    place.textContent = "";
    const enlarged = letterSize(isFull());
    drawn = current.map((one) => one.steps.length < FEW_POINTS);
    place.setAttribute("aria-label", `${title}: ${describe(current, unit, { format, x })}`);
    const focus = (i, at) => onfocus?.(i === null || i < 1 || at === null ? null : current[i - 1], ...(i >= 1 && at !== null ? [plot.data[0][at], plot.data[i][at]] : []));
    plot = new uPlot(options(width, current, { log, unit, height: tall(), enlarged, format, x, legend, focus: onfocus && focus }), joined(current), place);
  }

  function update(next) {
    const isSame = plot && next.length === current.length &&
      next.every((one, i) => one.label === current[i].label && one.steps.length < FEW_POINTS === drawn[i]);
    current = next;
    if (isSame) plot.setData(joined(current));
    else draw();
    if (plot) place.setAttribute("aria-label", `${title}: ${describe(current, unit, { format, x })}`);
  }

  const tall = () => (isFull() ? Math.max(innerHeight - place.offsetTop - 5 * 16 * letterSize(true), 200) : height * letterSize(false));
  const seen = new ResizeObserver(() => {
    if (plot) plot.setSize({ width: place.clientWidth, height: tall() });
    else draw();
  });
  seen.observe(place);
  const screened = () => {
    if (!full.isConnected) return;
    full.textContent = isFull() ? "Leave full screen" : "Full screen";
    draw();
  };
  document.addEventListener("fullscreenchange", screened);
  addEventListener("themechange", draw);
  return { element, update, leave() { seen.disconnect(); document.removeEventListener("fullscreenchange", screened); removeEventListener("themechange", draw); plot?.destroy(); plot = null; } };
}

/** How much larger than usual letters are: those of the page, or of a chart that fills the screen. */
function letterSize(isFull) {
  const own = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
  return isFull ? Math.max(own, innerWidth / 900) : own;
}

function options(width, lines, { log, unit, height, enlarged, format, x, legend, focus }) {
  const axis = { font: `${12 * enlarged}px ${getComputedStyle(document.body).fontFamily}`, size: 50 * enlarged, stroke: color("--soft"), grid: { stroke: color("--hair"), width: 1 }, ticks: { stroke: color("--line"), width: 1 } };
  return {
    width, height,
    scales: { x: { time: false }, y: log ? { distr: 3 } : {} },
    cursor: focus ? { focus: { prox: 24 } } : { sync: { key: "charts" } },
    ...(focus ? { focus: { alpha: 0.25 } } : {}),
    hooks: { ready: [latest], setData: [latest], setCursor: [latest], ...(focus ? { setSeries: [(plot, i) => focus(i, plot.cursor.idx)] } : {}) },
    legend: { show: legend },
    axes: [{ ...axis, space: 50 * enlarged, incrs: x === STEPS ? WHOLE : undefined, values: (_, all) => all.map(x.text) }, { ...axis, space: 30 * enlarged, size: 64 * enlarged, values: (_, all) => all.map((one) => (one === null ? "" : format(one))) }],
    series: [
      { label: x.label, value: (_, one) => (one === null ? "–" : x.text(one)) },
      ...lines.map((one, i) => {
        const { color: stroke, dash } = lineStyle(one.color ?? i);
        return { label: one.label, stroke, dash: one.dash ?? dash, width: (one.width ?? 1.5) * enlarged, spanGaps: true,
          points: { show: one.points || one.steps.length < FEW_POINTS, size: 5 * enlarged }, value: (_, v) => (v === null || v === undefined ? "–" : `${format(v)}${unit}`) };
      }),
    ],
  };
}

/** Where nothing is pointed at, the legend has the last numbers. */
function latest(plot) {
  if ((plot.cursor.idx ?? null) !== null) return;
  plot.setLegend({ idxs: plot.data.map((all) => all.findLastIndex((one) => one !== null && one !== undefined)) }, false);
}

/** One list of steps for all lines, as uPlot takes them. */
function joined(lines) {
  return uPlot.join(lines.map((one) => [one.steps, one.values]));
}

function lastOf(line) {
  for (let i = line.values.length - 1; i >= 0; i--) if (line.values[i] !== null) return [line.steps[i], line.values[i]];
  return [null, null];
}

/** What a chart shows, in words. */
function describe(lines, unit, { format, x }) {
  return lines.slice(0, 12).map((one) => {
    const [step, value] = lastOf(one);
    return value === null ? `${one.label}: no number yet` : `${one.label}: ${format(value)}${unit} at ${x.label} ${x.text(step)}`;
  }).join("; ");
}

function asTable(title, lines, { format, x }) {
  const [steps, ...columns] = joined(lines);
  const every = Math.max(Math.ceil(steps.length / MAX_TABLE_ROWS), 1);
  const kept = [...steps.keys()].filter((i) => i % every === 0 || i === steps.length - 1);
  const rows = kept.map((i) => [x.text(steps[i]), ...columns.map((one) => (one[i] === null || one[i] === undefined ? "" : format(one[i])))]);
  return table(title, [x.label, ...lines.map((one) => one.label)], rows, { numeric: [...Array(lines.length + 1).keys()] });
}

/** A small curve: values over steps, without axes. */
export function spark(steps, values, label) {
  const known = steps.map((x, i) => [x, values[i]]).filter(([, y]) => Number.isFinite(y));
  const svg = (name, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };
  const box = svg("svg", { class: "spark", viewBox: "0 0 100 30", preserveAspectRatio: "none", role: "img", "aria-label": label });
  if (known.length < 2) return box;
  const [xs, ys] = [known.map((one) => one[0]), known.map((one) => one[1])];
  const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const at = ([x, y]) => `${(100 * (x - left)) / (right - left || 1)} ${28 - (26 * (y - low)) / (high - low || 1)}`;
  box.append(svg("path", { d: `M${known.map(at).join("L")}` }));
  return box;
}
