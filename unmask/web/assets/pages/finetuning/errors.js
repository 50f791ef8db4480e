// What a fine-tuned model got wrong, with its texts: filters, and words that fit the task.
import { button, fill, h, slowly } from "../../parts/dom.js";
import { measured, percent, whole } from "../../parts/format.js";
import { answerWords, kindOf } from "./tasks.js";

const FIRST_ERRORS = 10;
const MORE_ERRORS = 40;
const MOST_LABELS = 60;
const LONG = 60; // characters of an answer that gets a line of its own

const isNumber = (text) => Number.isFinite(Number(text || NaN));

/** Pairs of true and predicted numbers where nearly all are kept, as of scores; else null. */
export function numbersOf({ errors = [], wrong, confusion: matrix }) {
  const isScored = errors.length > 2 && errors.length === wrong && !matrix && errors.every((one) => one.probability == null && isNumber(one.truth) && isNumber(one.predicted));
  return isScored ? errors.map((one) => [Number(one.truth), Number(one.predicted)]) : null;
}

/** Errors with filters: {element, show(truth, predicted)}; null where there are none. */
export function errorsPart(results) {
  const all = results.errors ?? [];
  if (!all.length) return results.wrong === 0 ? { element: h("p", { class: "hint" }, "No errors on the held-out examples."), show() {} } : null;
  const named = answerWords(kindOf(results));
  const isOfNumbers = Boolean(numbersOf(results));
  const order = named.order ?? (Number.isFinite(all[0].probability) ? "the surest" : isOfNumbers ? "the farthest off" : "the worst");
  const values = (key) => [...new Set(all.map((one) => one[key]))].sort();
  const isLabeled = Number.isFinite(all[0].probability) && values("truth").length <= MOST_LABELS && values("predicted").length <= MOST_LABELS && !all.some((one) => one.predicted.length > LONG);
  const picker = (key, label) => h("select", { "aria-label": label, onchange: () => draw() }, h("option", { value: "" }, `${label}: any`), values(key).map((one) => h("option", { value: one }, `${label}: ${one}`)));
  const [truth, predicted] = [picker("truth", "True"), picker("predicted", "Predicted")];
  const text = h("input", { type: "search", placeholder: "Words in the text", "aria-label": "Words in the text", oninput: slowly(() => draw(), 120) });
  const list = h("div", { class: "errors" });
  const count = h("p", { class: "hint", role: "status" });
  const heading = h("h3", { tabindex: "-1" }, named.title);
  let shown = FIRST_ERRORS;

  function draw() {
    const found = all.filter((one) => (!truth.value || one.truth === truth.value) && (!predicted.value || one.predicted === predicted.value) && one.text.toLowerCase().includes(text.value.toLowerCase()));
    const total = results.wrong ?? all.length;
    fill(count, found.length === all.length ? "" : `${whole(found.length)} fit. `, total > all.length ? `${whole(all.length)} of ${whole(total)} ${named.many} are kept, ${order} first.` : `${whole(total)} ${total === 1 ? named.one : `${named.many}, ${order} first`}.`);
    fill(list, found.slice(0, shown).map((one) => errorCard(one, named, isOfNumbers)),
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

function errorCard(one, named, isOfNumbers) {
  const sure = (p) => (p === null || p === undefined ? "" : ` (${percent(p)})`);
  const isLong = one.predicted.length > LONG || one.truth.length > LONG;
  const answer = (name, value, p, kind) => h(isLong ? "p" : "span", { class: isLong ? "hint" : null }, `${name} `, h("strong", { class: kind }, value || "nothing"), sure(p));
  return h("article", { class: "card", tabindex: "-1" },
    one.picture ? h("img", { src: `data:image/png;base64,${one.picture}`, alt: one.text }) : null,
    h("p", { class: "text" }, marked(one)),
    h(isLong ? "div" : "p", { class: isLong ? "long" : "row hint" }, isSilent(one, named) ? null : answer(named.predicted, one.predicted, one.probability, "wrong"), answer(named.truth, one.truth, one.truth_probability),
      isOfNumbers ? h("span", {}, "off by ", measured(Math.abs(Number(one.predicted) - Number(one.truth)))) : null));
}

/** Whether nothing was written at all: of instructions, where only likelihoods are computed. */
const isSilent = (one, named) => one.predicted === "" && Boolean(named.order);

function marked(one) {
  if (!one.marked) return one.text;
  const [start, end] = one.marked;
  return [one.text.slice(0, start), h("mark", {}, one.text.slice(start, end)), one.text.slice(end)];
}
