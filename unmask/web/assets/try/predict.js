// What a fine-tuned model says: labels, tags as colored spans, answers, numbers, options, texts.
import { post } from "../parts/api.js";
import { fill, h, table } from "../parts/dom.js";
import { measured, percent } from "../parts/format.js";
import { bar } from "./fill.js";
import { inputsOf } from "./inputs.js";
import { panel } from "./panel.js";
import { filePart, takesFiles } from "./predict_file.js";

const WRITTEN = new Set(["generate", "instruct"]);
const MOST_SHARES = 12;
const MOST_ANSWERS = 5;

export function predictPanel(models, facts) {
  const ability = facts[0].abilities.predict;
  const task = facts[0].task?.kind ?? ability.task ?? "";
  const inputs = inputsOf(ability);
  const few = panel(models, inputs.elements, "Predict", async (model, place, signal) => {
    const given = inputs.read();
    if (given.missing) return fill(place, h("p", { class: "hint" }, given.missing));
    const found = await post("/call/predict", { model, ...given.arguments }, { signal });
    const show = WRITTEN.has(found.task) ? written : prediction;
    fill(place, found.predictions.map((one, i) => h("article", { class: "card" }, show(given.shown[i], one))));
  });
  if (models.length > 1 || !takesFiles(task)) return few;
  const file = filePart(models[0], ability);
  return { element: h("div", {}, few.element, file.element), leave() { few.leave(); file.leave(); } };
}

const said = (name, value) => h("p", {}, `${name}: `, h("strong", {}, value));
const input = (shown) => (typeof shown === "string" ? h("p", { class: "text" }, shown) : shown);

function prediction(shown, one) {
  if (one.words) return tagged(shown, one);
  if (one.answer !== undefined) return answered(shown, one);
  if (shown?.options) return [h("p", { class: "text" }, shown.text), ranked(shown.options, one)];
  if (one.number !== undefined) return [input(shown), h("p", { class: "big" }, measured(one.number))];
  const shares = one.probabilities;
  const rows = shares && !Array.isArray(shares) ? Object.entries(shares).sort((a, b) => b[1] - a[1]) : [];
  return [input(shown), one.label === undefined ? null : said("Label", String(one.label)), one.labels ? said("Labels", one.labels.join(", ") || "none") : null,
    rows.slice(0, MOST_SHARES).map(([label, share]) => bar(label, share)),
    rows.length || one.label !== undefined ? null : h("pre", { tabindex: "0" }, JSON.stringify(one, null, 1))];
}

const written = (shown, one) => [h("details", {}, h("summary", {}, "What was given"), input(shown)), h("p", { class: "text" }, one.answer || h("span", { class: "hint" }, "It wrote nothing."))];

/** Options or responses with their probabilities, the best first; a single response has its reward alone. */
function ranked(options, one) {
  if (one.reward !== undefined) return [h("p", {}, options[0]), said("Reward", measured(one.reward)), h("p", { class: "hint" }, "Rewards compare responses to one prompt: write two or more.")];
  const order = options.map((_, i) => i).sort((a, b) => one.probabilities[b] - one.probabilities[a]);
  return [said("Best", options[one.index]), order.map((i) => bar(options[i], one.probabilities[i])),
    one.rewards ? h("p", { class: "hint" }, `Rewards: ${order.map((i) => measured(one.rewards[i])).join(", ")}. The bars are the probabilities that a response is the best of these.`) : null];
}

/** The passage with the answer marked, and what else it might have been. */
function answered(passage, one) {
  const others = (one.candidates ?? []).slice(1, MOST_ANSWERS);
  return [h("p", { class: "text" }, one.start === null || one.start === undefined ? passage : spans(passage, [{ start: one.start, end: one.end }])),
    h("p", {}, "Answer: ", h("strong", {}, one.answer || "none in this passage"), Number.isFinite(one.probability) ? ` (${percent(one.probability)})` : ""),
    others.length ? h("details", {}, h("summary", {}, "What else it might be"), others.map((other) => bar(other.answer || "no answer", other.probability))) : null];
}

/** A text with marked places; those that overlap are left out. */
function spans(text, places) {
  const parts = [];
  let at = 0;
  for (const one of [...places].sort((a, b) => a.start - b.start)) {
    if (one.start < at) continue;
    parts.push(text.slice(at, one.start), h("mark", { class: one.class ?? null }, text.slice(one.start, one.end), one.label ? h("sub", {}, ` ${one.label}`) : null));
    at = one.end;
  }
  return [...parts, text.slice(at)];
}

function tagged(text, one) {
  const labels = [...new Set((one.spans.length ? one.spans : one.words).map((word) => word.label))];
  const places = (one.spans.length ? one.spans : one.words.filter((word) => word.label !== "O")).map((span) => ({ ...span, class: `tag${labels.indexOf(span.label) % 6}` }));
  return [h("p", { class: "text" }, spans(text, places)), places.length ? null : h("p", { class: "hint" }, "It found nothing to mark."), h("details", {}, h("summary", {}, "Word by word"),
    table("Tags", ["word", "tag", "probability"], one.words.map((word) => [word.text, word.label, percent(word.probability)]), { numeric: [2] }))];
}
