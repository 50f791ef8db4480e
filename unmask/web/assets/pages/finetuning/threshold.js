// The probability from which on the answer is yes: what precision and recall become of it.
import { button, fill, h } from "../../parts/dom.js";
import { measured, percent, whole } from "../../parts/format.js";

const HALF = 50;

/** Counts at a threshold of t hundredths: right and wrong, of those with the label and of others. */
export function countsAt({ positives, negatives }, t) {
  const above = (counts) => counts.slice(t).reduce((a, b) => a + b, 0);
  const all = (counts) => counts.reduce((a, b) => a + b, 0);
  const [hits, falseAlarms] = [above(positives), above(negatives)];
  return { hits, falseAlarms, misses: all(positives) - hits, rejected: all(negatives) - falseAlarms };
}

/** Precision, recall, F1 and accuracy of such counts; NaN where there is none. */
export function scoresOf({ hits, falseAlarms, misses, rejected }) {
  const part = (n, of) => (of ? n / of : NaN);
  return { precision: part(hits, hits + falseAlarms), recall: part(hits, hits + misses), f1: part(2 * hits, 2 * hits + falseAlarms + misses), accuracy: part(hits + rejected, hits + falseAlarms + misses + rejected) };
}

/** The counts as seen from the other label. */
const turned = ({ positives, negatives }, label) => ({ label, positives: [...negatives].reverse(), negatives: [...positives].reverse() });

/** A slider over the threshold, with what it does; `labels` are both labels. */
export function thresholdPart(told, labels) {
  let counts = told;
  const other = labels.find((one) => one !== told.label);
  const both = other === undefined ? [told.label] : [told.label, other];
  const place = h("div", { "aria-live": "polite" });
  const slider = h("input", { type: "range", id: "threshold", min: 1, max: 99, value: HALF, oninput: draw });
  const shown = h("output", { for: "threshold" });
  const label = h("select", { id: "threshold-label", onchange: () => { counts = label.value === told.label ? told : turned(told, label.value); slider.value = 100 - slider.value; draw(); } }, both.map((one) => h("option", { value: one }, one)));

  /** The middle of the thresholds with the best F1. */
  function best() {
    const all = Array.from({ length: 99 }, (_, i) => [i + 1, scoresOf(countsAt(counts, i + 1)).f1 || 0]);
    const top = Math.max(...all.map(([, f1]) => f1));
    const tied = all.filter(([, f1]) => f1 === top).map(([t]) => t);
    return tied.includes(HALF) ? HALF : tied[tied.length >> 1];
  }

  function draw() {
    const t = Number(slider.value);
    const at = countsAt(counts, t);
    const { precision, recall, f1, accuracy } = scoresOf(at);
    fill(shown, percent(t / 100));
    slider.setAttribute("aria-valuetext", percent(t / 100));
    const figure = (name, value) => h("div", {}, h("p", { class: "label" }, name), h("p", { class: "big" }, value));
    fill(place, h("div", { class: "figures" }, figure("Precision", percent(precision)), figure("Recall", percent(recall)), figure("F1", measured(f1)), figure("Accuracy", percent(accuracy))),
      h("p", { class: "hint" }, `Of ${whole(at.hits + at.misses)} with the label ${counts.label}, ${whole(at.hits)} are found and ${whole(at.misses)} missed; ${whole(at.falseAlarms)} of ${whole(at.falseAlarms + at.rejected)} others are taken for it.`));
  }
  draw();
  return h("div", { class: "threshold" }, h("h3", {}, "Threshold"),
    h("p", { class: "hint" }, "How sure the model must be before an answer counts. Higher: fewer false alarms, more misses."),
    h("div", { class: "field" }, h("label", { for: "threshold-label" }, "Label"), label),
    h("div", { class: "field" }, h("label", { for: "threshold" }, "At least this probability: ", shown), slider),
    place, h("p", { class: "actions" }, button("Best F1", () => { slider.value = best(); draw(); }), button("Half", () => { slider.value = HALF; draw(); }, { class: "quiet" })));
}
