// What a tokenizer makes of a text: its tokens with their numbers, and what it does not know.
import { post } from "../parts/api.js";
import { fill, h } from "../parts/dom.js";
import { whole } from "../parts/format.js";
import { keptText, panel } from "./panel.js";

export function tokensPanel(models) {
  const text = keptText("tokens", "Text", "Unbelievable! The naïve grandmother paid 2,024 € for 🍕.", { hint: "Below each token is its number in the vocabulary, which is all that the model reads." });
  return panel(models, [text.element], "Cut", async (model, place, signal) => {
    const told = await post("/call/tokenize", { model, text: text.area.value }, { signal });
    const characters = [...text.area.value];
    const unknown = new Set(told.unknown);
    fill(place,
      h("ol", { class: "cuts" }, told.tokens.map((one) => {
        const from = characters.slice(one.start, one.end).join("");
        const isUnknown = unknown.has(from);
        return h("li", { class: isUnknown ? "unknown" : null, title: isUnknown ? "not in the vocabulary" : null },
          h("span", { class: "piece" }, one.piece || "␣"), isUnknown ? h("span", { class: "from" }, from) : null, h("span", { class: "hint" }, one.id));
      })),
      h("p", {}, [`${whole(told.tokens.length)} tokens`, told.tokens_per_word ? `${Number(told.tokens_per_word.toFixed(2))} a word` : null,
        `${told.algorithm} with ${whole(told.vocab_size)} tokens in the vocabulary`].filter(Boolean).join(" · ")),
      unknown.size ? h("p", {}, h("strong", {}, "Not in the vocabulary: "), [...unknown].join("  ")) : null);
  });
}
