// The kind of network, its family and its published sizes.
import { post } from "../parts/api.js";
import { button, fill, h } from "../parts/dom.js";
import { short } from "../parts/format.js";
import { once } from "./live.js";
import { ofOtherModel } from "./state.js";

const KINDS = [
  ["encoder", "Encoder", "Reads in both directions: to classify, tag, search. BERT, RoBERTa, ELECTRA."],
  ["decoder", "Decoder", "Reads from left to right and writes on. GPT, Llama."],
  ["encoder-decoder", "Encoder-decoder", "Reads one text and writes another. T5, BART."],
  ["recurrent", "Recurrent", "Reads word after word with a memory. LSTM, ELMo."],
  ["word vectors", "Word vectors", "A vector for each word. word2vec, GloVe, fastText, SVD."],
  ["images", "Pictures", "Learns from pictures, or pictures with captions. ViT, CLIP."],
];
const FIRST_OF_KIND = { encoder: "bert-mini", decoder: "gpt2-mini", "encoder-decoder": "t5-mini", recurrent: "lstm-mini",
  "word vectors": "word2vec-skipgram-mini", images: "mae-mini" };
const LARGE = 50e6;

/** The models of the catalogue: [{name, family, kind, parameters, ...}], without bundled weights. */
export const catalogue = once(async () => (await post("/call/models")).models.filter((one) => !one.has_weights));
/** What of a model can be changed. */
export const choicesOf = once((model) => post("/call/preset_choices", { model }));

export function modelSection(state) {
  const { now } = state;
  let models = null;
  const line = h("p", { class: "error-line", role: "alert", hidden: true });
  const family = h("select", { id: "family", onchange: () => pick(smallestOf(family.value)) });
  const familyField = h("div", { class: "field" }, h("label", { for: "family" }, "Family"), family);
  const paper = h("p", { class: "hint" });
  const list = h("fieldset", { class: "models" });
  const place = h("div", {}, h("p", { class: "hint", role: "status" }, "Reading the catalogue of models …"));
  const cards = KINDS.map(([value, label, text]) => h("label", { class: "card pick" },
    h("input", { type: "radio", name: "kind", value, checked: now.kind === value, onchange: () => choose(value) }), " ", h("strong", {}, label), h("span", { class: "hint block" }, text)));

  const ofFamily = (name) => (models ?? []).filter((one) => one.family === name && one.kind === now.kind);
  const smallestOf = (name) => ofFamily(name)[0]?.name;

  function choose(kind) {
    state.change({ kind, model: FIRST_OF_KIND[kind], objective: usual(kind, FIRST_OF_KIND[kind]), options: {}, second: "", ...ofOtherModel });
  }

  /** The objective that a model is offered with: its own, but of BERT masked words alone, which need no pairs. */
  const usual = (kind, model) => (kind === "encoder" && model.startsWith("bert-") ? "mlm" : "");

  /** Another model: an objective that was not chosen is that of the new one. */
  function pick(model) {
    if (!model) return;
    const isChosen = now.objective !== usual(now.kind, now.model) || Object.keys(now.options).length || now.second;
    state.change({ model, ...(isChosen ? {} : { objective: usual(now.kind, model) }), ...ofOtherModel });
  }

  function draw() {
    for (const card of cards) {
      const input = card.querySelector("input");
      input.checked = input.value === now.kind;
      card.classList.toggle("chosen", input.checked);
    }
    if (!models) return;
    const here = models.filter((one) => one.kind === now.kind);
    const chosen = here.find((one) => one.name === now.model) ?? here[0];
    const families = [...new Set(here.map((one) => one.family))];
    fill(family, families.map((name) => {
      const first = here.find((one) => one.family === name);
      return h("option", { value: name }, `${name} (${first.paper.authors.split(",")[0]} ${first.year})`);
    }));
    family.value = chosen.family;
    const all = ofFamily(chosen.family);
    const large = all.filter((one) => one.parameters > LARGE && one.name !== chosen.name);
    fill(list, h("legend", { class: "label" }, now.kind === "word vectors" ? "Method" : "Published size, to start from"), all.filter((one) => !large.includes(one)).map(row),
      large.length ? h("details", {}, h("summary", {}, `${large.length} larger ${large.length === 1 ? "one" : "ones"}, for larger machines`), large.map(row)) : null);
    familyField.hidden = families.length === 1;
    if (!list.isConnected) fill(place, familyField, list, paper);
    fill(paper, `${chosen.paper.title}, ${chosen.paper.authors} ${chosen.year}. `,
        chosen.paper.arxiv ? `arXiv:${chosen.paper.arxiv}. ` : null, chosen.note);
  }

  function row(one) {
    const isNetwork = one.kind !== "word vectors";
    const facts = [`${short(one.parameters)} parameters`, isNetwork && one.kind !== "images" ? `${pace(one.minutes_per_million_tokens)} a million tokens here` : null];
    return h("label", { class: "model" }, h("input", { type: "radio", name: "model", value: one.name, checked: one.name === now.model, onchange: () => pick(one.name) }),
      h("span", {}, one.name), h("span", { class: "hint" }, facts.filter(Boolean).join(" · ")));
  }

  async function start() {
    try {
      models = await catalogue();
      line.hidden = true;
      const own = models.find((one) => one.name === now.model);
      if (own) state.change({ kind: own.kind }); // of a run that is made again
      draw();
    } catch (error) {
      line.hidden = false;
      fill(line, error.line ?? String(error), " ", button("Try again", start));
      fill(place);
    }
  }

  state.listen((changed) => {
    if (!changed.has("kind") && !changed.has("model")) return;
    const focused = document.activeElement?.name === "model" && place.contains(document.activeElement) ? document.activeElement.value : null;
    draw();
    if (focused) list.querySelector(`input[value="${CSS.escape(focused)}"]`)?.focus();
  });
  draw();
  const element = h("section", { id: "model" }, h("h2", {}, "Model"),
    h("fieldset", { class: "grid" }, h("legend", { class: "hidden" }, "Kind of model"), cards), line, place);
  return { element, start };
}

/** "5 min", "2 h" of a number of minutes. */
function pace(minutes) {
  if (minutes < 1) return `${Math.max(Math.round(60 * minutes), 1)} s`;
  if (minutes < 90) return `${Math.round(minutes)} min`;
  if (minutes < 60 * 48) return `${Math.round(minutes / 60)} h`;
  return `${short(minutes / 60 / 24)} days`;
}

export const about = (seconds) => pace(seconds / 60);
