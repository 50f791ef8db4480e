// The size of the network: layers, width, heads; and of its vocabulary and its texts.
import { button, fill, h } from "../parts/dom.js";
import { field } from "../parts/form.js";
import { whole } from "../parts/format.js";
import { choicesOf } from "./model.js";
import { ofOtherModel } from "./state.js";

/** The section: {element, start(), refuse(error), choices()}; `told(choices)` when they are known. */
export function sizeSection(state, { told }) {
  const { now } = state;
  let fields = [];
  let choices = null;
  let turn = 0;
  const place = h("div", { class: "grid fields" });
  const line = h("p", { class: "error-line", role: "alert", hidden: true });

  function numberField(name, label, help, value, set, kept) {
    const one = field({ name, flag: name, kind: "integer", help, shown_default: value === null ? "" : whole(value), default: value }, { label, onchange: () => set(one.input.value) });
    one.set(kept ?? "");
    fields.push(one);
    return one.element;
  }

  function draw() {
    fields = [];
    fill(place, choices.sizes.map((one) => {
      const keys = one.keys.join(" ");
      return numberField(keys, one.label, one.help, one.value, (value) => state.change({ sizes: { ...now.sizes, ...Object.fromEntries(one.keys.map((key) => [key, value])) } }), now.sizes[one.keys[0]]);
    }),
    choices.vocab_size === null ? null : numberField("vocab_size", "Vocabulary", `Tokens that the tokenizer learns from your text (${choices.tokenizer}${choices.lowercase ? ", lower case" : ""}).`, choices.vocab_size, (value) => state.change({ vocabSize: value }), now.vocabSize),
    choices.has_epochs || !choices.reads_texts ? null : numberField("sequence_length", "Sequence length", `Tokens that are read at once${choices.max_sequence_length ? `, at most ${whole(choices.max_sequence_length)}` : ""}.`, choices.sequence_length, (value) => state.change({ sequenceLength: value }), now.sequenceLength));
  }

  async function start() {
    const mine = ++turn;
    if (!place.hasChildNodes()) fill(place, h("p", { class: "hint" }, "Reading the model's sizes …"));
    place.setAttribute("aria-busy", "true");
    try {
      const found = await choicesOf(now.model);
      if (mine !== turn) return;
      choices = found;
      line.hidden = true;
      draw();
      told(choices);
    } catch (error) {
      if (mine !== turn) return;
      choices = null;
      fill(place);
      line.hidden = false;
      line.textContent = error.line ?? String(error);
    } finally {
      if (mine === turn) place.removeAttribute("aria-busy");
    }
  }

  /** Show an error beside the field whose key it names; returns the field. */
  function refuse(error) {
    for (const one of fields) one.error(null);
    const text = error?.line ?? "";
    const names = (one) => one.name.split(" ").flatMap((key) => [key.split(".").at(-1), ...(key === "vocab_size" ? ["vocabulary"] : [])]);
    const one = text && (fields.find((f) => f.name === error.field) ?? fields.find((f) => f.input.value && names(f).some((name) => text.includes(name)))
      ?? fields.find((f) => names(f).some((name) => new RegExp(`\\b${name}\\b`).test(text))));
    if (one) one.error(text);
    return one || null;
  }

  state.listen((changed) => { if (changed.has("model")) start(); });
  const reset = button("Published sizes", () => { state.change(structuredClone(ofOtherModel)); if (choices) draw(); });
  const element = h("section", { id: "size" }, h("div", { class: "heading tight" }, h("h2", {}, "Size"), reset), line, place);
  return { element, start, refuse, choices: () => choices };
}
