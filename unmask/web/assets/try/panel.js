// What the panels share: an input that is kept, a button, and a column of output for each model.
import { button, fill, h } from "../parts/dom.js";

let counter = 0;

/** A labeled text area whose text is kept in the browser. */
export function keptText(key, label, first, { rows = 3, hint = "" } = {}) {
  const id = `try-${++counter}`;
  const area = h("textarea", { id, rows, value: sessionStorage.getItem(`try:${key}`) ?? first, "aria-describedby": `${id}-hint`,
    oninput: () => sessionStorage.setItem(`try:${key}`, area.value) });
  return { element: h("div", { class: "field" }, h("label", { for: id }, label), hint ? h("p", { class: "hint", id: `${id}-hint` }, hint) : null, area), area };
}

/** A labeled number or text; `value()` is undefined where nothing is given. */
export function setting(label, { value = "", min = null, max = null, step = "any", type = "number", hint = "" } = {}) {
  const id = `try-${++counter}`;
  const input = h("input", { type, id, value, min, max, step: type === "number" ? step : null, title: hint || null });
  const given = () => (input.value === "" ? undefined : type === "number" ? Number(input.value) : input.value);
  return { element: h("div", { class: "field" }, h("label", { for: id }, label), input), input, value: given };
}

/**
 * A panel: inputs at the top, a column for each model below. `act(model, place, signal)` fills one
 * column; what was asked before is cancelled, and its late answers are not shown.
 */
export function panel(models, inputs, label, act, { more = [] } = {}) {
  const places = models.map(() => h("div", { class: "output", "aria-live": "polite" }));
  const start = button(label, () => { run(); }, { class: "primary" });
  const cancel = button("Stop", () => stop(), { hidden: true });
  let control = null;
  const stop = () => { control?.abort(); control = null; cancel.hidden = true; start.removeAttribute("aria-busy"); };

  async function run() {
    stop();
    const mine = (control = new AbortController());
    cancel.hidden = false;
    start.setAttribute("aria-busy", "true");
    for (const [i, model] of models.entries()) {
      if (mine.signal.aborted) return;
      const place = h("div", {});
      fill(places[i], h("p", { class: "hint" }, "Computing …"), place);
      try {
        await act(model, place, mine.signal);
      } catch (error) {
        if (error.name !== "AbortError") fill(place, h("p", { class: "error-line", role: "alert" }, error.line ?? String(error)));
      }
      places[i].firstChild.remove();
    }
    if (control === mine && places[0].getBoundingClientRect().bottom > innerHeight) element.scrollIntoView({ block: "start" });
    if (control === mine) stop();
  }
  const element = h("div", { class: "asking" }, inputs, h("div", { class: "actions" }, start, cancel, more),
    h("section", { class: models.length > 1 ? "columns" : "" }, models.map((model, i) => h("div", {}, models.length > 1 ? h("h2", {}, model) : null, places[i]))));
  element.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run(); });
  return { element, run, leave: stop };
}
