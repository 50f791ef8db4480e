// A row of tokens: what stands in each place, what is asked there, and what a model answers.
import { h } from "../../parts/dom.js";
import { percent } from "../../parts/format.js";
import { ROLE_WORDS } from "./lessons.js";

const LETTERS = "ABCDEFGHIJ";

/** A piece for people: ▁, the sign of a space, is shown pale. */
export function piece(text) {
  if (!text.startsWith("▁") || text.length === 1) return text;
  return [h("span", { class: "space", "aria-hidden": "true" }, "▁"), text.slice(1)];
}

/** A piece in a sentence. */
export const plainPiece = (text) => (text.startsWith("▁") && text.length > 1 ? text.slice(1) : text);

/**
 * The row: `tokens` as of `hide`; `numbered`: targets have the numbers of their answers;
 * `showTargets`: what is asked is written below, or else a question mark.
 */
export function tokenRow(label, tokens, { numbered = false, showTargets = true } = {}) {
  const segments = new Set(tokens.map((one) => one.segment).filter((one) => one !== null && one !== undefined));
  let n = 0;
  return h("div", { class: "token-row" },
    h("p", { class: "label" }, label),
    h("ol", { class: "spots" }, tokens.map((one, i) => {
      const [word, meaning] = ROLE_WORDS[one.role] ?? [null, null];
      const isNew = segments.size > 1 && one.segment !== tokens[i - 1]?.segment;
      return h("li", { class: `spot ${one.role}` },
        isNew ? h("span", { class: "segment" }, LETTERS[one.segment % LETTERS.length]) : null,
        h("span", { class: "piece", title: meaning }, piece(one.piece)),
        word && one.role !== "masked" ? h("span", { class: "role" }, word) : null,
        one.asked ? h("span", { class: "asked" }, h("span", { class: "hidden" }, showTargets ? "asked: " : "asked, not shown"),
          numbered ? h("span", { class: "target-number" }, ++n) : null, showTargets ? piece(one.asked) : "?") : null);
    })));
}

/** What a model answers at each target: the most probable words, and the right one. */
export function answerCards(label, answers, { showTargets = true } = {}) {
  return h("div", { class: "token-row" }, h("p", { class: "label" }, label), h("ol", { class: "cards" }, answers.map((one, i) => {
    const isRight = (text) => showTargets && text === one.target;
    return h("li", { class: "answers" }, h("p", { class: "asked" }, h("span", { class: "target-number" }, i + 1), showTargets ? piece(one.target) : "?"),
      one.top.map(([text, p]) => answerLine(text, p, isRight(text))),
      showTargets && !one.top.some(([text]) => isRight(text)) ? answerLine(one.target, one.probability, true) : null);
  })));
}

function answerLine(text, probability, isRight) {
  const bar = h("span", { class: "bar", "aria-hidden": "true", style: { "--share": probability } });
  return h("span", { class: isRight ? "answer right" : "answer" }, h("span", { class: "word" }, piece(text), isRight ? h("span", { class: "hidden" }, " (right)") : null),
    h("span", { class: "share" }, shareText(probability)), bar);
}

const shareText = (p) => (p < 0.001 ? "< 0.1 %" : percent(p));

/** What the signs of a row mean, of those that are in it. */
export function legend(tokens) {
  const roles = Object.keys(ROLE_WORDS).filter((role) => tokens.some((one) => one.role === role));
  if (!roles.length) return null;
  return h("ul", { class: "signs" }, roles.map((role) => h("li", { class: `spot ${role}` }, h("span", { class: "piece" }, ROLE_WORDS[role][0]), ROLE_WORDS[role][1])));
}

/**
 * What ELECTRA's discriminator reads: the generator's most probable word in each gap,
 * and of each word whether it stood there.
 */
export function detectorTokens(tokens, answers) {
  return tokens.map((one, i) => {
    const answer = answers.get(i);
    const read = answer ? answer.top[0][0] : one.piece;
    const isNew = answer !== undefined && read !== answer.target;
    return { piece: read, role: one.role === "special" ? "special" : isNew ? "replaced" : "shown", segment: one.segment,
      asked: one.role === "special" ? null : isNew ? "replaced" : "original" };
  });
}
