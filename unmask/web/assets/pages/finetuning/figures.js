// Pictures of results, as SVG of names and numbers: scores as dots, reliability.
import { measured, percent } from "../../parts/format.js";

const WIDTH = 420;

/** An SVG element, as `h` makes HTML ones. */
export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null && value !== undefined) element.setAttribute(key, value);
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined) element.append(child instanceof Node ? child : String(child));
  return element;
}

/** About `n` round numbers from low to high. */
function ticks(low, high, n = 5) {
  const rough = (high - low) / n;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * size).find((one) => one >= rough);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}

export const mean = (all) => all.reduce((a, b) => a + b, 0) / all.length;
export const deviation = (all) => (all.length < 2 ? 0 : Math.sqrt(all.reduce((a, b) => a + (b - mean(all)) ** 2, 0) / (all.length - 1)));

/**
 * A row of dots for each of several groups {label, values}, with their mean and a bar of one standard
 * deviation to either side; `marks` are {label, value}, as lines from top to bottom. `write` writes a number.
 */
export function dotPlot(title, groups, marks = [], write = measured) {
  const known = groups.filter((one) => one.values.length);
  const all = [...known.flatMap((one) => [...one.values, mean(one.values) - deviation(one.values), mean(one.values) + deviation(one.values)]), ...marks.map((one) => one.value)];
  const [least, most] = [Math.min(...all), Math.max(...all)];
  const margin = (most - least || Math.abs(most) || 1) * 0.08;
  const [low, high] = [least - margin, most + margin];
  const [row, top, left, right] = [44, marks.length ? 24 : 8, 12, 12];
  const bottom = top + row * known.length;
  const x = (value) => left + ((WIDTH - left - right) * (value - low)) / (high - low);
  const rows = known.map((one, i) => {
    const y = top + row * i + 30;
    const [center, spread] = [mean(one.values), deviation(one.values)];
    return svg("g", { class: i === 0 ? "lead" : null },
      svg("text", { x: left, y: y - 14 }, one.label, ": ", svg("tspan", { class: "value" }, write(center), spread ? ` ± ${write(spread)}` : "")),
      spread ? svg("line", { x1: x(center - spread), x2: x(center + spread), y1: y, y2: y, class: "spread" }) : null,
      one.values.map((value) => svg("circle", { cx: x(value), cy: y, r: 4 }, svg("title", {}, write(value)))),
      one.values.length > 1 ? svg("line", { x1: x(center), x2: x(center), y1: y - 8, y2: y + 8, class: "mean" }) : null);
  });
  const said = known.map((one) => `${one.label} ${one.values.map(write).join(", ")}`).concat(marks.map((one) => `${one.label} ${write(one.value)}`)).join("; ");
  return svg("svg", { class: "figure", viewBox: `0 0 ${WIDTH} ${bottom + 24}`, role: "img", "aria-label": `${title}: ${said}` },
    ticks(low, high).map((one) => [svg("line", { x1: x(one), x2: x(one), y1: top, y2: bottom, class: "grid" }), svg("text", { x: x(one), y: bottom + 16, class: "tick", "text-anchor": "middle" }, write(one))]),
    marks.map((one) => [svg("line", { x1: x(one.value), x2: x(one.value), y1: top, y2: bottom, class: "mark" }),
      svg("text", { x: x(one.value), y: 14, class: "tick", "text-anchor": x(one.value) > WIDTH / 2 ? "end" : "start" }, one.label)]),
    rows);
}

/** Reliability: of predictions of a confidence, the share that is right; bars of {low, high, confidence, accuracy, count}. */
export function reliability(bins) {
  const size = 320;
  const [left, top, edge] = [44, 8, size - 64];
  const x = (value) => left + edge * value;
  const y = (value) => top + edge * (1 - value);
  const total = bins.reduce((sum, one) => sum + one.count, 0);
  const known = bins.filter((one) => one.count);
  const said = known.map((one) => `confidence ${percent(one.confidence)}, right ${percent(one.accuracy)} of ${one.count}`).join("; ");
  return svg("svg", { class: "figure square", viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": `Reliability: ${said}` },
    [0, 0.25, 0.5, 0.75, 1].map((one) => [
      svg("line", { x1: x(one), x2: x(one), y1: top, y2: top + edge, class: "grid" }), svg("line", { x1: left, x2: left + edge, y1: y(one), y2: y(one), class: "grid" }),
      svg("text", { x: x(one), y: top + edge + 16, class: "tick", "text-anchor": "middle" }, `${100 * one}`), svg("text", { x: left - 6, y: y(one) + 4, class: "tick", "text-anchor": "end" }, `${100 * one}`)]),
    known.map((one) => svg("rect", { x: x(one.low) + 1, width: Math.max(edge * (one.high - one.low) - 2, 1), y: y(one.accuracy), height: edge * one.accuracy, class: "bar", "fill-opacity": 0.35 + 0.65 * Math.sqrt(one.count / total) },
      svg("title", {}, `${one.count} predictions of confidence ${percent(one.confidence)}: ${percent(one.accuracy)} right`))),
    svg("line", { x1: x(0), x2: x(1), y1: y(0), y2: y(1), class: "mark" }),
    svg("text", { x: left + edge / 2, y: size - 8, class: "tick", "text-anchor": "middle" }, "confidence of the model, %"),
    svg("text", { x: 0, y: 0, class: "tick", "text-anchor": "middle", transform: `translate(9 ${top + edge / 2}) rotate(-90)` }, "of these right, %"));
}

/** A curve over numbers on a scale of doublings: points are {x, values}; mean, and a bar of one deviation. */
export function growth(title, points, xLabel) {
  const known = points.filter((one) => one.values.length).sort((a, b) => a.x - b.x);
  const all = known.flatMap((one) => [...one.values, mean(one.values) - deviation(one.values), mean(one.values) + deviation(one.values)]);
  const margin = (Math.max(...all) - Math.min(...all) || 0.1) * 0.1;
  const [low, high] = [Math.min(...all) - margin, Math.max(...all) + margin];
  const [left, right, top, bottom] = [48, 24, 8, 200];
  const [first, last] = [Math.log2(known[0].x), Math.log2(known.at(-1).x)];
  const x = (value) => left + ((WIDTH - left - right) * (Math.log2(value) - first)) / (last - first || 1);
  const y = (value) => bottom - ((bottom - top) * (value - low)) / (high - low);
  const said = known.map((one) => `${measured(mean(one.values))} with ${one.x}`).join("; ");
  return svg("svg", { class: "figure", viewBox: `0 0 ${WIDTH} ${bottom + 44}`, role: "img", "aria-label": `${title}: ${said}` },
    ticks(low, high).map((one) => [svg("line", { x1: left, x2: WIDTH - right, y1: y(one), y2: y(one), class: "grid" }), svg("text", { x: left - 6, y: y(one) + 4, class: "tick", "text-anchor": "end" }, measured(one))]),
    svg("g", { class: "lead" },
      svg("path", { d: `M${known.map((one) => `${x(one.x)} ${y(mean(one.values))}`).join("L")}`, class: "curve" }),
      known.map((one) => [
        deviation(one.values) ? svg("line", { x1: x(one.x), x2: x(one.x), y1: y(mean(one.values) - deviation(one.values)), y2: y(mean(one.values) + deviation(one.values)), class: "spread" }) : null,
        svg("circle", { cx: x(one.x), cy: y(mean(one.values)), r: 4 }, svg("title", {}, `${measured(mean(one.values))} with ${one.x}`)),
        svg("text", { x: x(one.x), y: bottom + 18, class: "tick", "text-anchor": "middle" }, String(one.x))])),
    svg("text", { x: (left + WIDTH - right) / 2, y: bottom + 38, class: "tick", "text-anchor": "middle" }, xLabel));
}

/** Predicted over true numbers; points are [true, predicted]. */
export function scatter(title, points) {
  const size = 320;
  const all = points.flat();
  const margin = (Math.max(...all) - Math.min(...all) || 1) * 0.05;
  const [low, high] = [Math.min(...all) - margin, Math.max(...all) + margin];
  const [left, top, edge] = [44, 8, size - 64];
  const x = (value) => left + (edge * (value - low)) / (high - low);
  const y = (value) => top + edge - (edge * (value - low)) / (high - low);
  return svg("svg", { class: "figure square", viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": `${title}: ${points.length} points` },
    ticks(low, high).map((one) => [
      svg("line", { x1: x(one), x2: x(one), y1: top, y2: top + edge, class: "grid" }), svg("line", { x1: left, x2: left + edge, y1: y(one), y2: y(one), class: "grid" }),
      svg("text", { x: x(one), y: top + edge + 16, class: "tick", "text-anchor": "middle" }, measured(one)), svg("text", { x: left - 6, y: y(one) + 4, class: "tick", "text-anchor": "end" }, measured(one))]),
    svg("line", { x1: x(low), x2: x(high), y1: y(low), y2: y(high), class: "mark" }),
    svg("g", { class: "lead" }, points.map(([truth, predicted]) => svg("circle", { cx: x(truth), cy: y(predicted), r: 3 }))),
    svg("text", { x: left + edge / 2, y: size - 8, class: "tick", "text-anchor": "middle" }, "true"),
    svg("text", { x: 0, y: 0, class: "tick", "text-anchor": "middle", transform: `translate(9 ${top + edge / 2}) rotate(-90)` }, "predicted"));
}
