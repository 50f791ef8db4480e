// A new model: text, model, size, objective, length; what it costs; start.
import { get } from "../parts/api.js";
import { button, h, say } from "../parts/dom.js";
import { commandForm } from "../parts/form.js";
import { accentNotice } from "../new_model/accents.js";
import { modelSection } from "../new_model/model.js";
import { objectiveSection } from "../new_model/objective.js";
import { picturesPart } from "../new_model/pictures.js";
import { presetSection } from "../new_model/presets.js";
import { sizeSection } from "../new_model/size.js";
import { ofOtherModel, openState, sources, stateOfValues } from "../new_model/state.js";
import { lengthSection, summary } from "../new_model/summary.js";
import { textSection } from "../new_model/text.js";

const ASKED_HERE = ["model", "data", "out", "steps", "tokens", "minutes", "vocab_size", "sequence_length", "document_separator",
  "text_column", "encoding_errors", "objective", "resume"];

const MORE = "pretrain-more";
const drawAnew = () => dispatchEvent(new HashChangeEvent("hashchange"));

export async function page({ query, keepQuery }) {
  const state = openState();
  const { now } = state;
  const form = await commandForm("pretrain", { hide: ASKED_HERE, open: [], key: MORE, onchange: () => run.change() });
  if (query.get("again")) await takeRun(state, form, query.get("again"), query.get("from"), keepQuery);
  else if (query.get("model")) state.change({ model: query.get("model"), kind: query.get("kind") ?? now.kind, objective: "", options: {}, second: "", sizes: {} });
  let counted = null; // words of the text: {words, complete}
  const pictures = picturesPart(state);
  const text = textSection(state, { told: (found) => {
    counted = found && !found.problem ? { words: found.counts.words, complete: found.complete } : null;
    objective.read();
    accents.draw();
    run.change();
  } });
  const model = modelSection(state);
  const accents = accentNotice(state, { documents: () => text.documents(), choices: () => size.choices() });
  model.element.append(accents.element);
  const size = sizeSection(state, { told: () => { accents.draw(); objective.choicesKnown(); length.draw(); run.change(); } });
  const objective = objectiveSection(state, { documents: () => text.documents(), isReadable: () => text.isReadable(), choices: () => size.choices() });
  const length = lengthSection(state, { choices: () => size.choices() });
  const presets = presetSection(state);
  const run = summary(state, { choices: () => size.choices(), words: () => counted, more: () => form.values(), refuse, isReady, suggest: () => length.start() });

  function isReady() {
    if (sources(now).length) return true;
    text.refuse("Choose a file with text first, or take the bundled one.");
    return false;
  }

  /** Show an error beside its field, and go there if asked; null takes all back. */
  function refuse(error, { focus = false } = {}) {
    length.name.error(null);
    length.length.error(null);
    form.showError(null);
    objective.showError(null);
    const sized = size.refuse(error);
    if (!error) return false;
    const own = { out: length.name, steps: length.length, tokens: length.length, minutes: length.length };
    const field = own[error.field] ?? text.fields.find((one) => one.name === error.field);
    if (field) {
      field.error(error.line);
      if (focus) { field.input.focus(); field.element.scrollIntoView({ block: "center" }); }
    } else if (error.field === "data") text.refuse(error.line);
    else if (error.field === "objective" || error.line?.startsWith("objective")) {
      objective.showError(error.line);
      if (focus) objective.focus();
    } else if (sized) {
      if (focus) sized.input.focus();
    } else {
      if (form.fields.has(error.field)) others.setAttribute("open", "");
      return form.showError(error, { focus });
    }
    return true;
  }

  state.listen((changed) => { if (changed.has("model")) objective.start(); });
  const others = h("details", { class: "others" }, h("summary", {}, "Further options: optimizer, seed, initial weights, compression, device …"), form.element);
  const element = h("div", { class: "new-page" },
    h("div", { class: "heading" }, h("h1", {}, "New model"), button("Start afresh", () => {
      const [before, more] = [structuredClone(now), form.values()];
      form.set(Object.fromEntries(Object.keys(more).map((name) => [name, null])));
      form.forget();
      state.replace();
      drawAnew();
      say("All fields are as at first.", { undo: () => { state.replace(before); sessionStorage.setItem(`form:${MORE}`, JSON.stringify(more)); drawAnew(); } });
    }, { class: "quiet" })),
    h("p", { class: "lead" }, "A language model learns by predicting what is hidden from it. Choose a text and a model; everything else has a default that works."),
    presets.element,
    h("div", { class: "columns wide-left new-model" },
      h("div", {}, text.element, model.element, size.element, objective.element, pictures.hidden, length.element, others), run.element));
  text.element.append(pictures.look);
  text.start();
  pictures.change();
  run.change();
  length.start();
  model.start();
  size.start();
  objective.start();
  presets.start();
  return { element, leave() { text.stop(); pictures.stop(); objective.stop(); run.stop(); } };
}

/** Fill the form as it was for a run; `from`: a run whose weights are those to begin with. */
async function takeRun(state, form, id, from, keepQuery) {
  keepQuery(null); // what is changed here stays when the page is loaded again
  const { jobs } = await get("/jobs");
  const job = jobs.filter((one) => one.run === id && one.arguments[0] === "pretrain" && !one.arguments.includes("--resume")).at(-1);
  if (!job) {
    say(`${id} was not started here; its command is on its own page.`);
    return;
  }
  const { values } = await get(`/jobs/${job.id}/values`);
  const { patch, rest } = stateOfValues(values);
  state.change(from ? { ...patch, ...ofOtherModel, out: `${from.split("/").at(-1)}-further`, isNamed: true } : patch);
  form.set(from ? { ...rest, init_from: from } : rest);
  if (from) say(`It begins with the weights of ${from}, and with its tokenizer: see the further options.`);
}
