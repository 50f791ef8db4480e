// Models that train on this machine in minutes, with the time that a plan computes for them.
import { post } from "../parts/api.js";
import { button, fill, h } from "../parts/dom.js";
import { short } from "../parts/format.js";
import { once } from "./live.js";
import { ofOtherModel } from "./state.js";

const PRESETS = [
  { title: "A first look", kind: "encoder", model: "bert-tiny", objective: "mlm", steps: 300, text: "A tiny BERT, to see how it all works." },
  { title: "A small BERT", kind: "encoder", model: "bert-tiny", objective: "mlm", steps: 2000, text: "To fine-tune as a classifier of your texts." },
  { title: "A small GPT", kind: "decoder", model: "gpt2-mini", steps: 600, text: "Writes on in the manner of your text." },
  { title: "Word vectors", kind: "word vectors", model: "word2vec-skipgram-mini", steps: null, text: "Which words are used alike: neighbors, analogies." },
];
const planOf = once((model, steps, objective) => post("/call/plan", { model, steps, ...(objective && { objective }) }));
const NUMBERS = ["", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];

/** "in five minutes", "in 40 seconds", "in 2 hours" */
export function inTime(seconds) {
  if (seconds < 50) return `in ${Math.max(Math.round(seconds / 10) * 10, 10)} seconds`;
  const minutes = Math.max(Math.round(seconds / 60), 1);
  if (minutes <= 10) return `in ${NUMBERS[minutes]} minute${minutes === 1 ? "" : "s"}`;
  if (minutes < 100) return `in ${Math.round(minutes / 5) * 5} minutes`;
  return `in ${Math.round(minutes / 60)} hours`;
}

export function presetSection(state) {
  const { now } = state;
  const element = h("section", {}, h("h2", {}, "Quick starts"), h("div", { class: "grid presets" }, PRESETS.map(card)));

  function card(one) {
    const title = h("h3", {}, one.title);
    const facts = h("p", { class: "hint" }, one.steps ? "Computing how long it takes here …" : "Counts, then passes over the text; the time is shown as it runs.");
    const take = button("Use this", () => state.change({ kind: one.kind, model: one.model, objective: one.objective ?? "", options: {}, second: "", ...ofOtherModel,
      ...(one.steps ? { unit: "steps", length: String(one.steps) } : {}), source: now.kind === "images" ? "own" : now.source }));
    one.load = async () => {
      if (!one.steps) return;
      try {
        const plan = await planOf(one.model, one.steps, one.objective);
        fill(title, `${one.title} ${inTime(plan.seconds)}`);
        fill(facts, `${short(plan.parameters)} parameters, reads ${short(plan.tokens)} tokens.`);
      } catch (error) {
        fill(facts, error.line ?? String(error));
      }
    };
    one.take = take;
    one.card = h("article", { class: "card preset" }, title, h("p", {}, one.text), facts, take);
    return one.card;
  }

  function mark() {
    for (const one of PRESETS) {
      const is = now.kind === one.kind && now.model === one.model && (!one.steps || (now.unit === "steps" && now.length === String(one.steps)));
      one.card.classList.toggle("chosen", is);
      one.take.textContent = is ? "Chosen" : "Use this";
      one.take.setAttribute("aria-label", `${one.take.textContent}: ${one.title}`);
      one.take.setAttribute("aria-pressed", String(is));
    }
  }
  state.listen(mark);
  mark();
  return { element, async start() { for (const one of PRESETS) await one.load(); } };
}
