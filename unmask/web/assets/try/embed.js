// Vectors: which texts or words are near each other, and a map of them.
import { post } from "../parts/api.js";
import { fill, h, table } from "../parts/dom.js";
import { measured } from "../parts/format.js";
import { keptText, panel, setting } from "./panel.js";

const SIZE = 520;
const [LINE, CROWD] = [14, 20]; // height of a label; so many points have labels that overlap

/** Heights of labels, moved down where two of them would be one on the other; crowds are left as they are. */
function besideEachOther(heights) {
  if (heights.length > CROWD) return heights;
  const moved = [...heights];
  let last = -LINE;
  for (const i of [...heights.keys()].sort((a, b) => heights[a] - heights[b])) last = moved[i] = Math.max(heights[i], last + LINE);
  return moved;
}

/** A map of points with their labels. */
function pointMap(points, labels, caption) {
  const svg = (name, attributes, ...children) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };
  const scale = (axis) => {
    const all = points.map((one) => one[axis]);
    const [low, high] = [Math.min(...all), Math.max(...all)];
    return (value) => 40 + ((SIZE - 80) * (value - low)) / (high - low || 1);
  };
  const [x, y] = [scale(0), scale(1)];
  const height = besideEachOther(points.map((one) => SIZE - y(one[1]) + 4));
  const marks = points.flatMap((one, i) => {
    const isRight = x(one[0]) > SIZE / 2; // there is more room to the left
    return [svg("circle", { cx: x(one[0]), cy: SIZE - y(one[1]), r: 4 }, svg("title", {}, labels[i])),
      svg("text", { x: x(one[0]) + (isRight ? -7 : 7), y: height[i], "text-anchor": isRight ? "end" : "start" }, labels[i].length > 28 ? `${labels[i].slice(0, 27)}…` : labels[i])];
  });
  return h("figure", { class: "map" }, svg("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img", "aria-label": `Map of ${labels.length} vectors` }, ...marks), h("figcaption", { class: "hint" }, caption));
}

export function embedPanel(models) {
  const text = keptText("embed", "Texts, one on each line", "A dog runs in the park.\nA puppy plays on the grass.\nThe bank raised its rates.\nInterest on loans went up.", { rows: 6 });
  return panel(models, [text.element], "Compare", async (model, place, signal) => {
    const texts = text.area.value.split("\n").map((one) => one.trim()).filter(Boolean);
    if (texts.length < 2) return fill(place, h("p", { class: "hint" }, "Write two texts or more."));
    const found = await post("/call/embed", { model, texts, n: 3 }, { signal });
    fill(place, table("Nearest texts", ["text", "nearest", "cosine"], texts.map((one, i) => {
      const first = found.neighbors[i][0];
      return [one, first ? texts[first.index] : "–", first ? measured(first.score) : "–"];
    }), { numeric: [2] }), pointMap(found.points, texts, found.caption));
  });
}

export function wordsPanel(models) {
  const word = setting("Word", { type: "text", value: "king" });
  const minus = setting("Minus", { type: "text", hint: "For an analogy: king minus man plus woman" });
  const plus = setting("Plus", { type: "text" });
  return panel(models, [h("div", { class: "grid" }, word.element, minus.element, plus.element)], "Find", async (model, place, signal) => {
    if (minus.value() && plus.value()) {
      const found = await post("/call/analogy", { model, a: minus.value(), b: word.value(), c: plus.value() }, { signal });
      return fill(place, near(found.neighbors));
    }
    const found = await post("/call/neighbors", { model, word: word.value() }, { signal });
    fill(place, near(found.neighbors), pointMap(found.points, found.words, found.caption));
  });
}

const near = (found) => table("Nearest words", ["word", "cosine"], found.map((one) => [one.word, measured(one.score)]), { numeric: [1] });
