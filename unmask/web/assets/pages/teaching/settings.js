// The numbers of a task as sliders and switches.
import { button, fill, h, slowly } from "../../parts/dom.js";
import { measured, percent } from "../../parts/format.js";
import { settingWords } from "./lessons.js";

const FIRST = 2;
let counter = 0;

/** `settings` as of `hide`; `tell` is called with all that were changed, `reset` takes them back. */
export function settingsPanel(settings, tell, changed, reset) {
  if (!settings.length) return h("p", { class: "hint" }, "This task has no numbers to change.");
  const values = { ...changed };
  const soon = slowly(() => tell({ ...values }), 150);
  const set = (key, value) => { values[key] = value; soon(); };
  const [first, rest] = [settings.slice(0, FIRST), settings.slice(FIRST)];
  return h("div", {}, first.map((one) => control(one, set)),
    rest.length ? h("details", { open: rest.some((one) => one.key in changed) }, h("summary", {}, "More settings"), rest.map((one) => control(one, set))) : null,
    h("p", { class: "actions" }, button("Reset", reset)));
}

function control(one, set) {
  const id = `setting-${++counter}`;
  const help = one.help ? h("p", { class: "hint", id: `${id}-help` }, one.help) : null;
  if (one.kind === "boolean") {
    const box = h("input", { type: "checkbox", id, checked: one.value, "aria-describedby": help ? `${id}-help` : null, onchange: () => set(one.key, box.checked) });
    return h("div", { class: "field check" }, h("label", { for: id }, box, " ", settingWords(one.key)), help);
  }
  const shown = (value) => (one.kind === "share" ? percent(value) : measured(value));
  const output = h("output", { for: id }, shown(one.value));
  const input = h("input", { type: "range", id, min: one.low, max: one.high, step: one.step, "aria-describedby": help ? `${id}-help` : null, "aria-valuetext": shown(one.value),
    oninput: () => {
      fill(output, shown(Number(input.value)));
      input.setAttribute("aria-valuetext", shown(Number(input.value)));
      set(one.key, Number(input.value));
    } });
  input.value = one.value;
  return h("div", { class: "field" }, h("div", { class: "row between" }, h("label", { for: id }, settingWords(one.key)), output), help, input);
}
