// The model that fine-tuning begins with: own runs, the bundled one, published weights, or any other.
import { post } from "../../parts/api.js";
import { fill, h } from "../../parts/dom.js";
import { short } from "../../parts/format.js";

const BUNDLED = "unmask-mini-en";
const WRITES = new Set(["generate", "instruct"]);
const WRITING = ["decoder", "encoder-decoder"];
const SMALL = 2e7;
const MOST_PARAMETERS = 2e8; // larger ones can be named
const OTHER = "\n"; // no model has this name

/** A field for the model: {element, value(), set(name), error(line), input}. */
export function modelChoice(runs, { help, changed }) {
  const facts = new Map([[BUNDLED, "A small model of English (11 million words read), ready to use. A good start for English texts."]]);
  const own = runs.filter((one) => one.has.includes("model"));
  for (const one of own) facts.set(one.id, [`Your own run${one.task ? `, already fine-tuned: ${one.task}` : ""}.`, one.headline.map((figure) => `${figure.name}: ${figure.text}.`)].flat().join(" "));
  const option = (value, text) => h("option", { value }, text);
  const published = h("optgroup", { label: "Published weights, downloaded first", hidden: true });
  const networks = h("optgroup", { label: "Networks for pictures, not yet trained", hidden: true });
  const writers = h("optgroup", { label: "Networks that write, not yet trained", hidden: true });
  const kinds = new Map(); // name of a model -> what kind of network it is, of those that are known
  let task = null;
  let isOurs = false; // whether it was chosen here, for a task that needs a model that writes
  const select = h("select", { id: "model", "aria-describedby": "model-note model-error", onchange: () => { isOurs = false; draw(); if (select.value === OTHER) typed.focus(); changed(); } },
    h("optgroup", { label: "Comes with Unmask" }, option(BUNDLED, `${BUNDLED} – English`)),
    own.length ? h("optgroup", { label: "Your runs" }, own.map((one) => option(one.id, [one.id, one.model].filter(Boolean).join(" – ")))) : null,
    published, networks, writers, option(OTHER, "Another model …"));
  const typed = h("input", { type: "text", id: "model-name", spellcheck: "false", autocomplete: "off", "aria-describedby": "model-help model-error", oninput: changed });
  const other = h("div", { hidden: true }, h("label", { for: "model-name" }, "Name of the model"), h("p", { class: "hint", id: "model-help" }, help), typed);
  const note = h("p", { class: "hint", id: "model-note" });
  const line = h("p", { class: "error-line", id: "model-error", hidden: true });
  const element = h("div", { class: "field", "data-name": "base" }, h("label", { for: "model" }, "Model"), note, select, other, line);

  function draw() {
    other.hidden = select.value !== OTHER;
    fill(note, facts.get(select.value) ?? "", WRITES.has(task) ? " This task needs a model that writes: a decoder or an encoder-decoder." : null,
      WRITES.has(task) && [...writers.children].some((one) => one.selected) ? [" Pretrain one on your text first: ", h("a", { href: "#/new" }, "New model"), "."] : null);
  }

  /** Weights that the catalogue knows an address of; the list is there a little later. */
  async function loadPublished() {
    const { models } = await post("/call/models");
    const known = models.filter((one) => one.hub && one.parameters <= MOST_PARAMETERS && !["word vectors", "images"].includes(one.kind));
    for (const one of known) {
      facts.set(`hf:${one.hub}`, `${short(one.parameters)} parameters, ${one.line}. Its weights are downloaded from the Hugging Face Hub when the job begins.`);
      published.append(option(`hf:${one.hub}`, `${one.name} – ${short(one.parameters)}`));
    }
    published.hidden = !known.length;
    for (const one of models) kinds.set(one.name, one.kind).set(`hf:${one.hub}`, one.kind);
    for (const one of own) kinds.set(one.id, kinds.get(one.model) ?? WRITING[0]);
    for (const one of models.filter((one) => WRITING.includes(one.kind) && one.parameters <= SMALL)) {
      facts.set(one.name, `${short(one.parameters)} parameters, ${one.line}. It begins with random weights, and will hardly write from some hundreds of examples.`);
      writers.append(option(one.name, `${one.name} – ${short(one.parameters)}`));
    }
    for (const one of models.filter((one) => one.kind === "images" && one.trains_here && one.asks.every((asked) => ["masked", "label"].includes(asked)))) {
      facts.set(one.name, `${short(one.parameters)} parameters, ${one.line}. It begins with random weights: give it some thousands of pictures, or choose a run of your own that was pretrained on pictures.`);
      networks.append(option(one.name, `${one.name} – ${short(one.parameters)}`));
    }
    setTask(task);
    if (select.value === OTHER && facts.has(typed.value)) set(typed.value);
  }

  function set(name) {
    const isListed = [...select.options].some((one) => one.value === name);
    select.value = isListed ? name : OTHER;
    if (!isListed) typed.value = name;
    draw();
  }

  /** Offer what fits a task: pictures are read by other networks than texts. */
  function setTask(kind) {
    task = kind;
    networks.hidden = task !== "pictures" || !networks.children.length;
    const isNetwork = [...networks.children].some((one) => one.selected);
    if (!networks.hidden && select.value === BUNDLED) { select.value = networks.firstElementChild.value; queueMicrotask(changed); }
    else if (networks.hidden && isNetwork) { select.value = BUNDLED; queueMicrotask(changed); }
    offerWriters();
    draw();
  }

  /** Of a task that needs a model that writes: only such models, own runs before networks without training. */
  function offerWriters() {
    const isWritten = WRITES.has(task);
    const writes = (name) => WRITING.includes(kinds.get(name) ?? "");
    writers.hidden = !isWritten || !writers.children.length;
    for (const one of select.options) one.disabled = isWritten && kinds.size > 0 && one.value !== OTHER && !writes(one.value);
    if (isWritten && select.selectedOptions[0]?.disabled) {
      const usual = task === "generate" ? "t5-mini" : "gpt2-mini";
      const best = task === "generate" ? "encoder-decoder" : "decoder";
      const fitness = (one) => 2 * (one.kind === "pretrain") + (kinds.get(one.id) === best);
      const fits = own.filter((one) => writes(one.id)).sort((a, b) => fitness(b) - fitness(a));
      select.value = fits[0]?.id ?? ([...writers.children].some((one) => one.value === usual) ? usual : OTHER);
      isOurs = true;
      queueMicrotask(changed);
    } else if (!isWritten && isOurs) {
      isOurs = false;
      select.value = BUNDLED;
      queueMicrotask(changed);
    }
  }

  function error(text) {
    element.classList.toggle("invalid", Boolean(text));
    for (const one of [select, typed]) one.setAttribute("aria-invalid", text ? "true" : "false");
    line.hidden = !text;
    line.textContent = text ?? "";
  }
  draw();
  loadPublished().catch(() => {}); // the choice goes without them
  return { element, set, setTask, error, value: () => (select.value === OTHER ? typed.value.trim() : select.value),
    get input() { return select.value === OTHER ? typed : select; } };
}
