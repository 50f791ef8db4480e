// Scores of a fine-tuned model: by arm and seed, by label, at any threshold; calibration; errors with their texts.
import { button, fill, h, slowly, table } from "../../parts/dom.js";
import { measured, percent, whole, words } from "../../parts/format.js";
import { deviation, dotPlot, mean, reliability, scatter } from "./figures.js";
import { learningCurve } from "./learning_curve.js";
import { thresholdPart } from "./threshold.js";

const FIRST_ERRORS = 10;
const MORE_ERRORS = 40;
const MOST_LABELS = 60;
const MOST_BESIDE = 5;

const ARMS = { "random initialization": "the same network, not pretrained" };

const known = (values) => (values ?? []).filter(Number.isFinite);
const score = (values) => {
  const all = known(values);
  if (!all.length) return "–";
  return all.length > 1 ? `${measured(mean(all))} ± ${measured(deviation(all))}` : measured(all[0]);
};

/** The section of a run's results, and of {id, record, job}: {element, leave()}. */
export function resultsSection(results, run) {
  const errors = errorsPart(results);
  const curve = learningCurve(results, run);
  const numbers = numbersOf(results);
  const element = h("section", { class: "results" }, h("h2", {}, "Results"), scores(results),
    results.confusion ? confusion(results.confusion, errors) : null,
    results.found?.length ? h("div", {}, h("h3", {}, "By label"), perLabel(results.found)) : null,
    h("div", { class: "columns" }, results.probabilities ? thresholdPart(results.probabilities, results.confusion?.labels ?? []) : null,
      results.calibration?.bins?.some((one) => one.count) ? calibration(results.calibration) : null,
      numbers ? h("div", {}, h("h3", {}, "Predicted and true numbers"), scatter("Predicted and true numbers", numbers)) : null, curve.element),
    results.search?.length ? search(results) : null,
    errors?.element);
  return { element, leave: curve.leave };
}

/** Pairs of true and predicted numbers where nearly all are kept, as of scores; else null. */
function numbersOf({ errors = [], wrong, confusion: matrix }) {
  const isScored = errors.length > 2 && errors.length === wrong && !matrix && errors.every((one) => one.probability == null && Number.isFinite(Number(one.truth || NaN)) && Number.isFinite(Number(one.predicted || NaN)));
  return isScored ? errors.map((one) => [Number(one.truth), Number(one.predicted)]) : null;
}

function scores(results) {
  const metric = words(results.metric);
  const splits = [["dev", "development"], ["test", "test"]].filter(([key]) => results.arms.some((one) => known(one[key]).length));
  const hasWords = Number.isFinite(results.bag_of_words);
  const marks = Number.isFinite(results.chance) ? [{ label: "always the most frequent answer", value: results.chance }] : [];
  const own = known(results.arms[0]?.dev);
  const isAsGood = hasWords && own.length > 0 && results.bag_of_words >= mean(own) && !/loss|error|perplexity/.test(results.metric);
  const groups = (key) => [...results.arms.map((one) => ({ label: ARMS[one.name] ?? one.name, values: known(one[key]) })),
    ...(hasWords && key === "dev" ? [{ label: "bag of words", values: [results.bag_of_words] }] : [])];
  const hasPlot = marks.length || results.arms.length > 1 || results.arms.some((one) => known(one.dev).length > 1);
  const seeds = Math.max(...results.arms.flatMap((one) => [known(one.dev).length, known(one.test).length]), 0);
  return h("div", {},
    table("Scores", ["start", ...splits.map(([, name]) => `${metric}, ${name}`), "seeds"],
      results.arms.map((one) => [ARMS[one.name] ?? one.name, ...splits.map(([key]) => score(one[key])), String(Math.max(known(one.dev).length, known(one.test).length))]), { numeric: splits.map((_, i) => i + 1).concat(splits.length + 1) }),
    marks.length || hasWords ? h("p", { class: "hint" }, hasWords ? `A bag of words, a simple classifier that counts words and pairs of words: ${measured(results.bag_of_words)} on the development examples. ${isAsGood ? "It is as good as the model: here the words alone tell the answer. " : ""}` : "",
      marks.length ? `Always the most frequent answer: ${measured(results.chance)}.` : "", seeds > 1 ? " ± is the standard deviation over seeds." : "") : null,
    hasPlot ? h("div", { class: "columns" }, splits.map(([key, name]) => h("figure", {}, h("h3", {}, `${metric.charAt(0).toUpperCase()}${metric.slice(1)}, ${name}`),
      dotPlot(`${metric}, ${name}`, groups(key), key === "dev" ? marks : []),
      h("figcaption", { class: "hint" }, seeds > 1 ? "A dot is a seed; the bar is mean ± standard deviation." : null)))) : null);
}

function confusion({ labels, counts }, errors) {
  const rowSums = counts.map((row) => row.reduce((a, b) => a + b, 0));
  const columnSums = labels.map((_, j) => counts.reduce((a, row) => a + row[j], 0));
  const total = rowSums.reduce((a, b) => a + b, 0);
  const cell = (i, j) => {
    const n = counts[i][j];
    const says = `${labels[i]} taken for ${labels[j]}: ${n}`;
    return h("td", { class: i === j ? "right" : "wrong", style: { "--share": rowSums[i] ? n / rowSums[i] : 0 } },
      n && i !== j && errors ? button(whole(n), () => errors.show(labels[i], labels[j]), { "aria-label": `${says}; show these errors`, title: says }) : h("span", { title: says }, whole(n)));
  };
  const part = (n, of) => (of ? n / of : NaN);
  const measures = labels.map((label, i) => {
    const [recall, precision] = [part(counts[i][i], rowSums[i]), part(counts[i][i], columnSums[i])];
    return [label, whole(rowSums[i]), percent(precision), percent(recall), measured(part(2 * counts[i][i], rowSums[i] + columnSums[i]))];
  });
  return h("div", { class: labels.length > MOST_BESIDE ? null : "columns" },
    h("div", {}, h("h3", {}, "Confusion matrix"), h("p", { class: "hint" }, `${whole(total)} answers on the development examples: a row is the true label, a column what was predicted.`, errors ? " A number off the diagonal shows its errors below." : ""),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Confusion matrix" }, h("table", { class: "confusion" }, h("caption", { class: "hidden" }, "Confusion matrix"),
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "true ↓ predicted →"), labels.map((one) => h("th", { scope: "col", title: one }, h("div", { class: "cell" }, one))))),
        h("tbody", {}, labels.map((one, i) => h("tr", {}, h("th", { scope: "row" }, one), labels.map((_, j) => cell(i, j)))))))),
    h("div", {}, h("h3", {}, "By label"), h("p", { class: "hint" }, "Precision: how many of those predicted are right. Recall: how many of those there are were found. F1 is their harmonic mean."),
      table("By label", ["label", "examples", "precision", "recall", "F1"], measures, { numeric: [1, 2, 3, 4] })));
}

function perLabel(found) {
  const part = (n, of) => (of ? n / of : NaN);
  return table("By label", ["label", "examples", "found", "missed", "invented", "precision", "recall", "F1"], found.map((one) => [one.label, whole(one.found + one.missed), whole(one.found), whole(one.missed), whole(one.invented),
    percent(part(one.found, one.found + one.invented)), percent(part(one.found, one.found + one.missed)), measured(part(2 * one.found, 2 * one.found + one.missed + one.invented))]), { numeric: [1, 2, 3, 4, 5, 6, 7] });
}

function calibration({ ece, brier, bins }) {
  const rows = bins.filter((one) => one.count).map((one) => [`${percent(one.low)} to ${percent(one.high)}`, whole(one.count), percent(one.confidence), percent(one.accuracy)]);
  return h("div", {}, h("h3", {}, "Calibration"),
    h("p", { class: "hint" }, "Whether the model's probabilities can be believed: of the answers given with 80 %, 80 % should be right. Bars below the line: it is too sure; above: too unsure."),
    reliability(bins), h("p", { class: "hint" }, `Expected calibration error ${percent(ece)}, Brier score ${measured(brier)} (0 is best).`),
    h("details", {}, h("summary", {}, "As table"), table("Calibration", ["confidence", "answers", "mean confidence", "right"], rows, { numeric: [1, 2, 3] })));
}

function search({ search: trials, metric }) {
  const scored = trials.filter((one) => one.score !== null);
  const rows = trials.map((one) => [String(one.number), measured(one.rate), String(one.batch), one.score === null ? "diverged" : measured(one.score), `${Math.round(one.seconds)} s`]);
  return h("div", {}, h("h3", {}, "Search"), h("p", { class: "hint" }, `${whole(trials.length)} trials before the runs${scored.length < trials.length ? `, ${trials.length - scored.length} of which diverged` : ""}.`),
    table("Search trials", ["trial", "learning rate", "batch size", words(metric), "time"], rows, { numeric: [0, 1, 2, 3, 4] }));
}

/** Errors with filters: {element, show(truth, predicted)}; null where there are none. */
function errorsPart(results) {
  const all = results.errors ?? [];
  if (!all.length) return results.wrong === 0 ? { element: h("p", { class: "hint" }, "No errors on the development examples."), show() {} } : null;
  const order = Number.isFinite(all[0].probability) ? "the surest" : numbersOf(results) ? "the farthest off" : "the worst";
  const values = (key) => [...new Set(all.map((one) => one[key]))].sort();
  const isLabeled = Number.isFinite(all[0].probability) && values("truth").length <= MOST_LABELS && values("predicted").length <= MOST_LABELS;
  const picker = (key, label) => h("select", { "aria-label": label, onchange: () => draw() }, h("option", { value: "" }, `${label}: any`), values(key).map((one) => h("option", { value: one }, `${label}: ${one}`)));
  const [truth, predicted] = [picker("truth", "True"), picker("predicted", "Predicted")];
  const text = h("input", { type: "search", placeholder: "Words in the text", "aria-label": "Words in the text", oninput: slowly(() => draw(), 120) });
  const list = h("div", { class: "errors" });
  const count = h("p", { class: "hint", role: "status" });
  const heading = h("h3", { tabindex: "-1" }, "Errors");
  let shown = FIRST_ERRORS;

  function draw() {
    const found = all.filter((one) => (!truth.value || one.truth === truth.value) && (!predicted.value || one.predicted === predicted.value) && one.text.toLowerCase().includes(text.value.toLowerCase()));
    const total = results.wrong ?? all.length;
    fill(count, found.length === all.length ? "" : `${whole(found.length)} fit. `, total > all.length ? `${whole(all.length)} of ${whole(total)} errors are kept, ${order} first.` : `${whole(total)} ${total === 1 ? "error" : `errors, ${order} first`}.`);
    fill(list, found.slice(0, shown).map(errorCard),
      found.length ? null : h("p", { class: "hint" }, all.length < total ? "None of those that are kept fits." : "None fits.", " ", button("Show all", () => { truth.value = predicted.value = text.value = ""; draw(); })),
      found.length > shown ? h("p", { class: "actions" }, button(`Show ${whole(Math.min(found.length - shown, MORE_ERRORS))} more`, () => { const first = shown; shown += MORE_ERRORS; draw(); list.children[first]?.focus(); })) : null);
  }
  draw();
  const filters = all.length > 3 ? h("div", { class: "row filters" }, isLabeled ? [truth, predicted] : null, text) : null;
  const element = h("div", {}, heading, count, filters, list);
  return { element, show(from, to) {
    const isThere = [[truth, from], [predicted, to]].every(([select, one]) => [...select.options].some((option) => option.value === one));
    truth.value = isThere ? from : "";
    predicted.value = isThere ? to : "";
    shown = FIRST_ERRORS;
    draw();
    if (!isThere) fill(count, `The errors that are kept have none of ${from} taken for ${to}.`);
    heading.scrollIntoView({ block: "start" });
    heading.focus({ preventScroll: true });
  } };
}

function errorCard(one) {
  const sure = (p) => (p === null || p === undefined ? "" : ` (${percent(p)})`);
  return h("article", { class: "card", tabindex: "-1" },
    one.picture ? h("img", { src: `data:image/png;base64,${one.picture}`, alt: one.text }) : null,
    h("p", { class: "text" }, marked(one)),
    h("p", { class: "row hint" }, h("span", {}, "predicted ", h("strong", { class: "wrong" }, one.predicted), sure(one.probability)), h("span", {}, "true ", h("strong", {}, one.truth), sure(one.truth_probability))));
}

function marked(one) {
  if (!one.marked) return one.text;
  const [start, end] = one.marked;
  return [one.text.slice(0, start), h("mark", {}, one.text.slice(start, end)), one.text.slice(end)];
}
