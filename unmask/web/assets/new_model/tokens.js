// Tokens as `unmask hide` shows them, and as a tokenizer cuts them.
import { h } from "../parts/dom.js";
import { whole, words } from "../parts/format.js";

const ROLES = {
  masked: "hidden", replaced: "replaced by another token", kept: "to be predicted, but left as it is",
  unseen: "to be predicted, not seen at its place", sentinel: "stands for what was taken out", special: "special token",
};

function tokenList(tokens, label) {
  return h("ol", { class: "tokens", "aria-label": label }, tokens.map((one) =>
    h("li", {}, h("span", { class: `token ${one.role}`, title: ROLES[one.role] }, one.piece || "␣"),
      one.asked === null || one.asked === undefined ? null
        : h("span", { class: "target" }, h("span", { class: "hidden" }, ", to be predicted: "), one.asked || "␣"))));
}

/** What an objective makes of a text. */
export function hiddenText(told) {
  if (told.picture) return h("p", { class: "hint" }, "Of a picture, patches are hidden.");
  const tokens = [...(told.source ?? []), ...told.inputs];
  const roles = Object.keys(ROLES).filter((role) => tokens.some((one) => one.role === role));
  const asked = tokens.filter((one) => one.asked !== null && one.asked !== undefined).length;
  const reader = told.source ? "the decoder" : "the model";
  return h("div", { class: "stack-small" },
    told.source ? h("p", { class: "label" }, "The encoder reads") : null,
    told.source ? tokenList(told.source, "The encoder reads") : null,
    h("p", { class: "label" }, `${reader[0].toUpperCase()}${reader.slice(1)} reads`, h("span", { class: "hint" }, asked ? ", and predicts the tokens in italics below" : "")),
    tokenList(told.inputs, `${reader} reads`),
    h("dl", { class: "facts" },
      h("dt", {}, "Predicted"), h("dd", {}, `${whole(asked)} of ${whole(told.inputs.length)} positions`),
      told.label ? [h("dt", {}, "Of the whole text"), h("dd", {}, told.label)] : null,
      told.sees ? [h("dt", {}, "Attention"), h("dd", {}, told.sees)] : null,
      told.weighting ? [h("dt", {}, "Weights"), h("dd", {}, told.weighting)] : null,
      told.asks?.length ? [h("dt", {}, "Loss"), h("dd", {}, told.asks.map(words).join(", "))] : null),
    roles.length ? h("p", { class: "legend" }, roles.map((role) => h("span", {}, h("span", { class: `token ${role}`, "aria-hidden": "true" }, "a"), ` ${ROLES[role]}`))) : null);
}

/** How a tokenizer cuts a text. */
export function cutText(told) {
  return h("div", { class: "stack-small" },
    h("ol", { class: "tokens cut", "aria-label": "Tokens" }, told.tokens.map((one) =>
      h("li", {}, h("span", { class: "token", title: `token ${one.id}` }, one.piece || "␣")))),
    h("p", { class: "hint" }, [`${whole(told.tokens.length)} tokens`,
      told.tokens_per_word ? `${Number(told.tokens_per_word.toFixed(2))} a word` : null,
      `${told.algorithm}, ${whole(told.vocab_size)} tokens in the vocabulary`].filter(Boolean).join(" · ")));
}
