// What a fine-tuned model says of texts: labels, tags as colored spans, answers, numbers.
import { post } from "../parts/api.js";
import { fill, h, table } from "../parts/dom.js";
import { measured, percent } from "../parts/format.js";
import { bar } from "./fill.js";
import { keptText, panel } from "./panel.js";
import { filePart, takesFiles } from "./predict_file.js";

const EXAMPLES = {
  pair: "A man is playing a guitar.\tSomeone makes music.",
  qa: "Where was she born?\tMarie Curie was born in Warsaw.",
  tag: "Angela Merkel met Barack Obama in Berlin.",
};
const HINTS = {
  pair: "The two texts of a pair, separated by a tab; one pair on each line.",
  qa: "A question and its passage, separated by a tab; one on each line.",
};

export function predictPanel(models, facts) {
  const ability = facts[0].abilities.predict;
  const task = facts[0].task?.kind ?? ability.task ?? "";
  const text = keptText(`predict:${task}`, "Texts, one on each line", EXAMPLES[task] ?? "", { rows: 4, hint: HINTS[task] ?? "Empty lines are left out." });
  const few = panel(models, [text.element], "Predict", async (model, place, signal) => {
    const inputs = text.area.value.split("\n").filter((line) => line.trim());
    if (!inputs.length) return fill(place, h("p", { class: "hint" }, "Write a text first."));
    const found = await post("/call/predict", { model, inputs }, { signal });
    fill(place, found.predictions.map((one, i) => h("article", { class: "card" }, prediction(inputs[i], one))));
  });
  if (models.length > 1 || !takesFiles(task)) return few;
  const file = filePart(models[0], ability);
  return { element: h("div", {}, few.element, file.element), leave() { few.leave(); file.leave(); } };
}

function prediction(input, one) {
  if (one.words) return tagged(input, one);
  if (one.answer !== undefined) {
    const passage = input.split("\t").slice(1).join("\t");
    return [h("p", { class: "text" }, one.start === null || one.start === undefined ? passage : spans(passage, [{ start: one.start, end: one.end }])), h("p", {}, "Answer: ", h("strong", {}, one.answer || "none"))];
  }
  if (one.number !== undefined) return [h("p", { class: "text" }, input), h("p", { class: "big" }, measured(one.number))];
  const shares = one.probabilities;
  const rows = shares && !Array.isArray(shares) ? Object.entries(shares).sort((a, b) => b[1] - a[1]) : [];
  return [h("p", { class: "text" }, input), one.label === undefined ? null : h("p", {}, "Label: ", h("strong", {}, String(one.label))), one.labels ? h("p", {}, "Labels: ", h("strong", {}, one.labels.join(", ") || "none")) : null,
    rows.slice(0, 12).map(([label, share]) => bar(label, share)),
    rows.length || one.label !== undefined ? null : h("pre", { tabindex: "0" }, JSON.stringify(one, null, 1))];
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

function tagged(input, one) {
  const labels = [...new Set((one.spans.length ? one.spans : one.words).map((word) => word.label))];
  const places = (one.spans.length ? one.spans : one.words.filter((word) => word.label !== "O")).map((span) => ({ ...span, class: `tag${labels.indexOf(span.label) % 6}` }));
  return [h("p", { class: "text" }, spans(input, places)), h("details", {}, h("summary", {}, "Word by word"),
    table("Tags", ["word", "tag", "probability"], one.words.map((word) => [word.text, word.label, percent(word.probability)]), { numeric: [2] }))];
}
