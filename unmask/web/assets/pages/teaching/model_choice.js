// Other models than those of the lecture, and the trained model that answers.
import { post } from "../../parts/api.js";
import { fill, h } from "../../parts/dom.js";
import { LESSONS } from "./lessons.js";

const BUNDLED = "unmask-mini-en";

const trainedOf = (runs) => runs.filter((one) => one.has.includes("model")).map((one) => one.id);

/** Two selects: the model of the lesson, and who answers. */
export function modelChoices({ runs, state, pick, pickAnswers }) {
  const trained = [BUNDLED, ...trainedOf(runs)];
  const option = (value, label = value) => h("option", { value }, label);
  const model = h("select", { id: "teach-model", onchange: () => { if (model.value) pick(model.value); }, onfocus: () => load(), onpointerdown: () => load() });
  const reading = h("p", { class: "hint", role: "status" });
  const answers = h("select", { id: "teach-answers", onchange: () => pickAnswers(answers.value) },
    option("", "nobody"), trained.map((one) => option(one, one === BUNDLED ? `${one}, bundled` : one)));
  if (state.answers && !trained.includes(state.answers)) answers.append(option(state.answers));
  answers.value = state.answers;
  let wanted = null;

  function drawModels(families = {}) {
    const groups = Object.entries(families).map(([family, names]) => h("optgroup", { label: family }, names.map((one) => option(one))));
    fill(model, option("", "choose …"), h("optgroup", { label: "of the lecture" }, LESSONS.map((one) => option(one.model, one.name))),
      h("optgroup", { label: "trained" }, trained.map((one) => option(one))), groups);
    show();
  }

  function show() {
    model.value = state.model;
    if (model.value !== state.model) { model.append(option(state.model)); model.value = state.model; }
  }

  /** Offer runs that have ended meanwhile as well. */
  function know(others) {
    const found = trainedOf(others).filter((one) => !trained.includes(one));
    trained.push(...found);
    for (const one of found) answers.append(option(one));
    model.querySelector("optgroup[label=trained]").append(...found.map((one) => option(one)));
  }

  /** Read the catalogue, once, when it is asked for: the first time it takes some seconds. */
  function load() {
    if (!wanted) reading.textContent = "Reading the catalogue …";
    wanted ??= post("/call/models").then(({ models, families }) => {
      const pictures = new Set(models.filter((one) => one.kind === "images").map((one) => one.name));
      const kept = Object.entries(families).map(([family, names]) => [family, names.filter((name) => !pictures.has(name))]);
      drawModels(Object.fromEntries(kept.filter(([, names]) => names.length)));
    }).then(() => fill(reading)).catch((error) => { wanted = null; reading.textContent = error.line ?? String(error); });
    return wanted;
  }

  drawModels();
  const element = h("div", {},
    h("div", { class: "field" }, h("label", { for: "teach-model" }, "Another model"), h("p", { class: "hint" }, "Any of the catalogue, or one that you trained."), model, reading),
    h("div", { class: "field" }, h("label", { for: "teach-answers" }, "Who answers"), h("p", { class: "hint" }, "A trained model. Where it learned the task that is shown, the text is cut into its tokens, and it answers; elsewhere the newest of your runs that did."), answers));
  return { element, isTrained: (name) => trained.includes(name), show, know };
}
