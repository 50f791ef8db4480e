// Scores of a fine-tuned model: by arm and seed, by class, errors with their texts, calibration.
import { h, table } from "../dom.js";
import { measured, percent } from "../format.js";

const mean = (all) => all.reduce((a, b) => a + b, 0) / all.length;
const deviation = (all) => (all.length < 2 ? 0 : Math.sqrt(all.reduce((a, b) => a + (b - mean(all)) ** 2, 0) / (all.length - 1)));
const score = (values) => {
  const known = (values ?? []).filter((one) => one !== null);
  if (!known.length) return "–";
  return known.length > 1 ? `${measured(mean(known))} ± ${measured(deviation(known))}` : measured(known[0]);
};

/** The section of a run's results. */
export function resultsSection(results) {
  return h("section", {}, h("h2", {}, "Results"),
    table("Scores", ["", `${results.metric}, development`, `${results.metric}, test`, "seeds"],
      results.arms.map((one) => [one.name, score(one.dev), score(one.test), String(Math.max(one.dev?.length ?? 0, one.test?.length ?? 0))]), { numeric: [1, 2, 3] }),
    results.chance === null || results.chance === undefined ? null : h("p", { class: "hint" }, `Always the most frequent answer: ${measured(results.chance)}`),
    results.confusion ? confusion(results.confusion) : null,
    results.found?.length ? perLabel(results.found) : null,
    results.errors?.length ? errors(results) : null);
}

function confusion({ labels, counts }) {
  const recall = counts.map((row, i) => row[i] / Math.max(row.reduce((a, b) => a + b, 0), 1));
  const precision = counts.map((_, i) => counts[i][i] / Math.max(counts.reduce((a, row) => a + row[i], 0), 1));
  const rows = labels.map((label, i) => [label, ...counts[i].map((n, j) => (i === j ? h("strong", {}, String(n)) : String(n))), percent(recall[i]), percent(precision[i])]);
  return h("div", {}, h("h3", {}, "Confusion matrix"), h("p", { class: "hint" }, "Rows are true labels, columns what was predicted."),
    table("Confusion matrix", ["true label", ...labels, "recall", "precision"], rows, { numeric: [...Array(labels.length + 3).keys()].slice(1) }));
}

function perLabel(found) {
  return table("By label", ["label", "found", "missed", "invented", "F1"], found.map((one) => [one.label, String(one.found), String(one.missed), String(one.invented),
    measured((2 * one.found) / Math.max(2 * one.found + one.missed + one.invented, 1))]), { numeric: [1, 2, 3, 4] });
}

function errors(results) {
  return h("details", { open: true }, h("summary", {}, results.wrong ? `Errors: ${results.errors.length} of ${results.wrong}` : "Errors"),
    results.errors.slice(0, 50).map((one) => h("article", { class: "card" }, h("p", { class: "text" }, marked(one)),
      h("p", { class: "hint" }, "predicted ", h("strong", {}, one.predicted), one.probability === null || one.probability === undefined ? "" : ` (${percent(one.probability)})`, ", true label ", h("strong", {}, one.truth)))));
}

function marked(one) {
  if (!one.marked) return one.text;
  const [start, end] = one.marked;
  return [one.text.slice(0, start), h("mark", {}, one.text.slice(start, end)), one.text.slice(end)];
}
