// Scores of a fine-tuned model: by arm and seed, by label, at any threshold; calibration; errors with their texts.
import { button, h, table } from "../../parts/dom.js";
import { measured, percent, whole, words } from "../../parts/format.js";
import { errorsPart, numbersOf } from "./errors.js";
import { deviation, dotPlot, mean, reliability, scatter } from "./figures.js";
import { learningCurve } from "./learning_curve.js";
import { kindOf, majorityOf } from "./tasks.js";
import { thresholdPart } from "./threshold.js";

const MOST_BESIDE = 5;
const SPLITS = [["dev", "held out"], ["test", "test"]];

const known = (values) => (values ?? []).filter(Number.isFinite);
const score = (values, write) => {
  const all = known(values);
  if (!all.length) return "–";
  return all.length > 1 ? `${write(mean(all)).replace(/ %$/, "")} ± ${write(deviation(all))}` : write(all[0]);
};

/** The section of a run's results, and of {id, record, job, metrics}: {element, leave()}. */
export function resultsSection(results, run) {
  const errors = errorsPart(results);
  const curve = learningCurve(results, run);
  const numbers = numbersOf(results);
  const element = h("section", { class: "results" }, h("h2", {}, "Results"), scores(results, run.metrics ?? {}),
    results.found?.length ? byLabel(results) : null,
    results.confusion ? confusion(results.confusion, errors) : null,
    h("div", { class: "columns" }, results.probabilities ? thresholdPart(results.probabilities, results.confusion?.labels ?? []) : null,
      results.calibration?.bins?.some((one) => one.count) ? calibration(results.calibration) : null,
      numbers ? h("div", {}, h("h3", {}, "Predicted and true numbers"), scatter("Predicted and true numbers", numbers)) : null, curve.element),
    results.search?.length ? search(results) : null,
    errors?.element);
  return { element, leave: curve.leave };
}

const MEASURES = { loss: ["Loss", null], accuracy: ["Better response preferred", "share of pairs in which its probability rose more than that of the worse one"], margin: ["Margin", "how much more its log-probability rose, in nats"],
  chosen: ["Better responses", "change of their log-probability"], rejected: ["Worse responses", "change of their log-probability"], entropy: ["Entropy", "of a token: how undecided it is, in nats"], length: ["Length", "of a response, in tokens"],
  reward: ["Reward", "mean over what it writes"], kl: ["KL divergence", "how far it went from the model before, in nats"], win_rate: ["Win rate", "against what the model before wrote; ties count half"], distinct_2: ["Different bigrams", "of all"], cut: ["Cut off", "share of responses"] };

/** What preference optimization changed: a section; null where it is not known. */
export function measuresSection(measures) {
  if (!measures?.before || !measures?.after) return null;
  const names = [...new Set([...Object.keys(measures.after), ...Object.keys(measures.before)])];
  const write = (name, value) => (typeof value !== "number" ? "–" : ["accuracy", "win_rate", "cut", "distinct_2"].includes(name) ? percent(value) : measured(value));
  return h("section", { class: "results" }, h("h2", {}, "Before and after"), table("Before and after", ["held-out measure", "before", "after", "what it is"],
    names.map((one) => [MEASURES[one]?.[0] ?? words(one), write(one, measures.before[one]), write(one, measures.after[one]), MEASURES[one]?.[1] ?? ""]), { numeric: [1, 2] }),
    measures.before.accuracy === 0 && measures.before.margin === 0 ? h("p", { class: "hint" }, "Before, the model is its own reference: nothing rose, and no response is preferred.") : null);
}

function scores(results, names) {
  const nameOf = (metric) => names[metric]?.name ?? words(metric);
  const writerOf = (metric) => (names[metric]?.is_percent ? percent : measured);
  const [metric, write] = [nameOf(results.metric), writerOf(results.metric)];
  const splits = SPLITS.filter(([key]) => results.arms.some((one) => known(one[key]).length));
  const majority = majorityOf(kindOf(results));
  const hasWords = Number.isFinite(results.bag_of_words);
  const marks = results.chance ? [{ label: majority, value: results.chance }] : []; // of 0, a constant answer has no such score
  const own = known(results.arms[0]?.dev);
  const groups = (key) => [...results.arms.map((one) => ({ label: one.name, values: known(one[key]) })),
    ...(hasWords && key === "dev" ? [{ label: "bag of words", values: [results.bag_of_words] }] : [])];
  const hasPlot = marks.length || results.arms.length > 1 || results.arms.some((one) => known(one.dev).length > 1);
  const seeds = Math.max(...results.arms.flatMap((one) => [known(one.dev).length, known(one.test).length]), 0);
  return h("div", {},
    table("Scores", ["start", ...splits.map(([, name]) => `${metric}, ${name}`), "seeds"],
      results.arms.map((one) => [one.name, ...splits.map(([key]) => score(one[key], write)), String(Math.max(known(one.dev).length, known(one.test).length))]), { numeric: splits.map((_, i) => i + 1).concat(splits.length + 1) }),
    marks.length || hasWords ? h("p", { class: "hint" }, hasWords ? `A bag of words, a simple classifier that counts words and pairs of words: ${write(results.bag_of_words)} on the held-out examples. ${own.length ? besideWords(results, mean(own), writerOf(results.metric) === percent) : ""}` : "",
      marks.length ? `${majority.charAt(0).toUpperCase()}${majority.slice(1)}: ${write(results.chance)}.` : "", seeds > 1 ? " ± is the standard deviation over seeds." : "") : null,
    others(results.arms, splits, (name, values) => score(values, writerOf(name)), nameOf),
    hasPlot ? h("div", { class: "columns" }, splits.map(([key, name]) => h("figure", {}, h("h3", {}, `${metric}, ${name}`),
      dotPlot(`${metric}, ${name}`, groups(key), key === "dev" ? marks : [], write),
      h("figcaption", { class: "hint" }, seeds > 1 ? "A dot is a seed; the bar is mean ± standard deviation." : null)))) : null);
}

/** What it means that a bag of words is as good as the model or better; empty where the model is the better. */
function besideWords({ metric, bag_of_words: words, confusion: matrix }, model, isPercent) {
  if (/loss|error|perplexity/.test(metric)) return "";
  const n = matrix?.counts.flat().reduce((a, b) => a + b, 0);
  const chance = metric === "accuracy" && n ? 1.96 * Math.sqrt((model * (1 - model) + words * (1 - words)) / n) : 0; // 95 % interval of the difference
  const gap = words - model;
  if (gap < -chance || (gap < 0 && !chance)) return "";
  const points = (value) => (isPercent ? `${(100 * value).toFixed(1)} points` : measured(value));
  if (gap > chance) return `That is better than the model by ${points(gap)}${chance ? ` (± ${points(chance)} with ${whole(n)} examples)` : ""}: more pretraining or a larger model is needed. `;
  return `That is as good as the model${chance ? `, within the ± ${points(chance)} that ${whole(n)} examples can tell` : ""}: here the words alone tell the answer. `;
}

/** The other metrics of each start, a row each; null where none was kept. */
function others(arms, splits, write, nameOf) {
  const names = [...new Set(arms.flatMap((one) => Object.keys(one.metrics ?? {})))];
  if (!names.length) return null;
  const columns = arms.flatMap((one) => splits.map(([key, name]) => [arms.length > 1 ? `${one.name}, ${name}` : name, (metric) => write(metric, one.metrics?.[metric]?.[key])]));
  return h("div", {}, h("h3", {}, "Other measures"), table("Other measures", ["measure", ...columns.map(([name]) => name)],
    names.map((one) => [nameOf(one), ...columns.map(([, of]) => of(one))]), { numeric: columns.map((_, i) => i + 1) }));
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
    return [label, whole(rowSums[i]), percent(precision), percent(recall), percent(part(2 * counts[i][i], rowSums[i] + columnSums[i]))];
  });
  return h("div", { class: labels.length > MOST_BESIDE ? null : "columns" },
    h("div", {}, h("h3", {}, "Confusion matrix"), h("p", { class: "hint" }, `${whole(total)} answers on the held-out examples: a row is the true label, a column what was predicted.`, errors ? " A number off the diagonal shows its errors below." : ""),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Confusion matrix" }, h("table", { class: "confusion" }, h("caption", { class: "hidden" }, "Confusion matrix"),
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "true ↓ predicted →"), labels.map((one) => h("th", { scope: "col", title: one }, h("div", { class: "cell" }, one))))),
        h("tbody", {}, labels.map((one, i) => h("tr", {}, h("th", { scope: "row" }, one), labels.map((_, j) => cell(i, j)))))))),
    h("div", {}, h("h3", {}, "By label"), h("p", { class: "hint" }, "Precision: how many of those predicted are right. Recall: how many of those there are were found. F1 is their harmonic mean."),
      table("By label", ["label", "examples", "precision", "recall", "F1"], measures, { numeric: [1, 2, 3, 4] })));
}

/** What was found, missed and invented: of labels, of which several may hold, or of entities. */
function byLabel({ found, confusion: matrix }) {
  const [title, hint] = matrix ? ["Entities", "An entity is found where its first word, its last and its type are all right."] : ["By label", null];
  return h("div", {}, h("h3", {}, title), hint ? h("p", { class: "hint" }, hint) : null, perLabel(title, found));
}

function perLabel(title, found) {
  const part = (n, of) => (of ? n / of : NaN);
  return table(title, [title === "Entities" ? "type" : "label", "examples", "found", "missed", "invented", "precision", "recall", "F1"], found.map((one) => [one.label, whole(one.found + one.missed), whole(one.found), whole(one.missed), whole(one.invented),
    percent(part(one.found, one.found + one.invented)), percent(part(one.found, one.found + one.missed)), percent(part(2 * one.found, 2 * one.found + one.missed + one.invented))]), { numeric: [1, 2, 3, 4, 5, 6, 7] });
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
