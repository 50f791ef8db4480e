// The model that fine-tuning begins with: own runs, the bundled one, published weights, or any other.
import { post } from "../../api.js";
import { fill, h } from "../../dom.js";
import { short } from "../../format.js";

const BUNDLED = "unmask-mini-en";
const OTHER = "\n"; // no model has this name

/** A field for the model: {element, value(), set(name), error(line), input}. */
export function modelChoice(runs, { help, changed }) {
  const facts = new Map([[BUNDLED, "A small model of English (11 million words read), ready to use. A good start for English texts."]]);
  const own = runs.filter((one) => one.has.includes("model"));
  for (const one of own) facts.set(one.id, [`Your own run${one.task ? `, already fine-tuned: ${one.task}` : ""}.`, one.headline.map((figure) => `${figure.name}: ${figure.text}.`)].flat().join(" "));
  const option = (value, text) => h("option", { value }, text);
  const published = h("optgroup", { label: "Published weights, downloaded first", hidden: true });
  const select = h("select", { id: "model", "aria-describedby": "model-note model-error", onchange: () => { draw(); if (select.value === OTHER) typed.focus(); changed(); } },
    h("optgroup", { label: "Comes with Unmask" }, option(BUNDLED, `${BUNDLED} – English`)),
    own.length ? h("optgroup", { label: "Your runs" }, own.map((one) => option(one.id, [one.id, one.model].filter(Boolean).join(" – ")))) : null,
    published, option(OTHER, "Another model …"));
  const typed = h("input", { type: "text", id: "model-name", spellcheck: "false", autocomplete: "off", "aria-describedby": "model-help model-error", oninput: changed });
  const other = h("div", { hidden: true }, h("label", { for: "model-name" }, "Name of the model"), h("p", { class: "hint", id: "model-help" }, help), typed);
  const note = h("p", { class: "hint", id: "model-note" });
  const line = h("p", { class: "error-line", id: "model-error", hidden: true });
  const element = h("div", { class: "field", "data-name": "base" }, h("label", { for: "model" }, "Model"), note, select, other, line);

  function draw() {
    other.hidden = select.value !== OTHER;
    fill(note, facts.get(select.value) ?? "");
  }

  /** Weights that the catalogue knows an address of; the list is there a little later. */
  async function loadPublished() {
    const { models } = await post("/call/models");
    const known = models.filter((one) => one.hub && !["word vectors", "images"].includes(one.kind));
    for (const one of known) {
      facts.set(`hf:${one.hub}`, `${short(one.parameters)} parameters, ${one.line}. Its weights are downloaded from the Hugging Face Hub when the job begins.`);
      published.append(option(`hf:${one.hub}`, `${one.name} – ${short(one.parameters)}`));
    }
    published.hidden = !known.length;
    if (select.value === OTHER && facts.has(typed.value)) set(typed.value);
  }

  function set(name) {
    const isListed = [...select.options].some((one) => one.value === name);
    select.value = isListed ? name : OTHER;
    if (!isListed) typed.value = name;
    draw();
  }

  function error(text) {
    element.classList.toggle("invalid", Boolean(text));
    for (const one of [select, typed]) one.setAttribute("aria-invalid", text ? "true" : "false");
    line.hidden = !text;
    line.textContent = text ?? "";
  }
  draw();
  loadPublished().catch(() => {}); // the choice goes without them
  return { element, set, error, value: () => (select.value === OTHER ? typed.value.trim() : select.value),
    get input() { return select.value === OTHER ? typed : select; } };
}
