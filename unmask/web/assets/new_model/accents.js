// That a tokenizer drops the accents of the user's text, and a model of the same size that keeps them.
import { button, fill, h } from "../parts/dom.js";
import { choicesOf } from "./model.js";

const KEEPS = "roberta-mini";
const SHOWN = 4;

/** Letters of texts that lose an accent, the most frequent first. */
function accented(texts) {
  const counts = new Map();
  for (const one of texts.join(" ").normalize("NFC").toLowerCase()) {
    if (/\p{M}/u.test(one.normalize("NFD"))) counts.set(one, (counts.get(one) ?? 0) + 1);
  }
  return [...counts].sort(([, a], [, b]) => b - a).map(([letter]) => letter);
}

/** The notice: {element, draw()}. */
export function accentNotice(state, { documents, choices }) {
  const { now } = state;
  const element = h("div", { class: "notice", role: "status", hidden: true });

  /** The other model, as large as the one that is chosen. */
  async function keepAccents() {
    const [own, other] = [choices(), await choicesOf(KEEPS)];
    const values = Object.fromEntries(own.sizes.flatMap((one) => one.keys.map((key) => [key, now.sizes[key] || String(one.value)])));
    const sizes = Object.fromEntries(other.sizes.flatMap((one) => one.keys.filter((key) => key in values && values[key] !== String(one.value)).map((key) => [key, values[key]])));
    state.change({ model: KEEPS, sizes });
  }

  function draw() {
    const letters = choices()?.model === now.model && choices().lowercase && now.kind === "encoder" ? accented(documents().map((one) => one.text)) : [];
    element.hidden = !letters.length;
    if (!letters.length) return;
    const some = letters.slice(0, SHOWN);
    fill(element, `This model reads all in lower case and without accents: ${some.join(", ")} of your text become ${some.map((one) => one.normalize("NFD").replace(/\p{M}/gu, "")).join(", ")}. RoBERTa works alike and keeps them. `,
      button("Use RoBERTa in this size", keepAccents));
  }
  state.listen((changed) => { if (["model", "kind", "files", "source"].some((key) => changed.has(key))) draw(); });
  return { element, draw };
}
