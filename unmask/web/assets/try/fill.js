// Blanks of a text, with candidates and their probabilities.
import { post } from "../parts/api.js";
import { button, fill, h } from "../parts/dom.js";
import { percent } from "../parts/format.js";
import { keptText, panel } from "./panel.js";

/** A probability as a bar beside a word. */
export const bar = (label, share) => h("div", { class: "bar" }, h("span", {}, label), h("meter", { min: 0, max: 1, value: share, "aria-label": `${label}: ${percent(share)}` }), h("span", { class: "number" }, percent(share)));

export function fillPanel(models) {
  const text = keptText("fill", "Text with blanks", "The capital of France is [MASK].", { hint: "Write [MASK] or ___ in the place of each word that the model should find." });
  const blank = button("Insert [MASK]", () => {
    const { area } = text;
    area.setRangeText("[MASK]", area.selectionStart, area.selectionEnd, "end");
    area.dispatchEvent(new Event("input"));
    area.focus();
  });
  return panel(models, [text.element], "Fill", async (model, place, signal) => {
    const found = await post("/call/fill", { model, text: text.area.value.replaceAll(/_{2,}/g, "[MASK]"), n: 8 }, { signal });
    fill(place, h("p", { class: "text" }, found.filled),
      found.blanks.map((candidates, i) => h("div", {}, found.blanks.length > 1 ? h("h3", {}, `Blank ${i + 1}`) : null, candidates.filter((one) => Number.isFinite(one.probability)).map((one) => bar(one.token ?? one.text ?? one.word, one.probability)))));
  }, { more: [blank] });
}
