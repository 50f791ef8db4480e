// The model that fine-tuning begins with: own runs, the bundled one, published weights, or any other.
import { post } from "../../parts/api.js";
import { button, fill, h } from "../../parts/dom.js";
import { short } from "../../parts/format.js";

const BUNDLED = "unmask-mini-en";
const WRITES = new Set(["generate", "instruct"]);
const WRITING = ["decoder", "encoder-decoder"];
const SMALL = 2e7;
const MOST_PARAMETERS = 2e8; // larger ones can be named
const OTHER = "\n"; // no model has this name
const ACCENTED = 0.005; // share of accented and foreign letters from which on a text is hardly English
const LEAST_LETTERS = 200;

/** Whether texts are hardly English, by their letters. */
export function isForeign(texts) {
  const letters = texts.join(" ").match(/\p{L}/gu) ?? [];
  return letters.length >= LEAST_LETTERS && letters.filter((one) => one > "\x7f").length > ACCENTED * letters.length;
}

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
  let isOfOtherLanguage = false;
  let isOurs = false; // whether it was chosen here, for a task that the bundled one cannot learn
  const select = h("select", { id: "model", "aria-describedby": "model-note model-error", onchange: () => { isOurs = false; draw(); if (select.value === OTHER) typed.focus(); changed(); } },
    h("optgroup", { label: "Comes with Unmask" }, option(BUNDLED, `${BUNDLED} – English`)),
    own.length ? h("optgroup", { label: "Your runs" }, own.map((one) => option(one.id, [one.id, one.model].filter(Boolean).join(" – ")))) : null,
    published, networks, writers, option(OTHER, "Another model …"));
  const typed = h("input", { type: "text", id: "model-name", spellcheck: "false", autocomplete: "off", "aria-describedby": "model-help model-error", oninput: changed });
  const other = h("div", { hidden: true }, h("label", { for: "model-name" }, "Name of the model"), h("p", { class: "hint", id: "model-help" }, help), typed);
  const note = h("p", { class: "hint", id: "model-note" });
  const warning = h("div", { class: "notice", role: "status", hidden: true });
  const line = h("p", { class: "error-line", id: "model-error", hidden: true });
  const element = h("div", { class: "field", "data-name": "base" }, h("label", { for: "model" }, "Model"), note, select, warning, other, line);

  function draw() {
    other.hidden = select.value !== OTHER;
    const texts = own.filter((one) => one.kind === "pretrain");
    warning.hidden = !isOfOtherLanguage || select.value !== BUNDLED;
    fill(warning, "Your texts do not seem to be English, and this model has read English alone. ",
      texts.length ? ["Better: a model of your own that has read your language. ", h("span", { class: "row" }, texts.slice(0, 4).map((one) => button(`Use ${one.id}`, () => { set(one.id); changed(); })))]
        : ["Better: ", h("a", { href: "#/new" }, "train a new model"), " on text of your language first, and choose it here; or one of the published models that read your language, if this machine has a connection."]);
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
    const isOfLabels = (one) => one.asks.every((asked) => ["masked", "label"].includes(asked)); // of pictures: not of captions
    for (const one of models) for (const name of [one.name, `hf:${one.hub}`]) kinds.set(name, one.kind === "images" && !isOfLabels(one) ? "captions" : one.kind);
    for (const one of models.filter((one) => WRITING.includes(one.kind) && one.parameters <= SMALL)) {
      facts.set(one.name, `${short(one.parameters)} parameters, ${one.line}. It begins with random weights, and will hardly write from some hundreds of examples.`);
      writers.append(option(one.name, `${one.name} – ${short(one.parameters)}`));
    }
    for (const one of models.filter((one) => one.kind === "images" && one.trains_here && isOfLabels(one))) {
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

  /** The kind of network of a model; of a run, that of what it began with; null: it is not known. */
  function kindOf(name, most = 5) {
    const base = own.find((one) => one.id === name)?.model;
    return kinds.get(name) ?? (base && most ? kindOf(base, most - 1) : null);
  }

  /** Whether a model can learn the task: pictures are read, and texts written, by networks of their own. */
  function fits(name) {
    const kind = kindOf(name);
    if (name === OTHER || kind === null) return true;
    return task === "pictures" ? kind === "images" : WRITES.has(task) ? WRITING.includes(kind) : !["images", "captions"].includes(kind);
  }

  /** The model to begin with for a task that the bundled one cannot learn: a run of one's own, or else a network without training. */
  function bestOf() {
    const [group, usual, kind] = task === "pictures" ? [networks, "vit-mini", "images"] : task === "generate" ? [writers, "t5-mini", "encoder-decoder"] : [writers, "gpt2-mini", "decoder"];
    const fitness = (one) => 2 * (one.kind === "pretrain") + (kindOf(one.id) === kind);
    const [mine] = own.filter((one) => kindOf(one.id) !== null && fits(one.id)).sort((a, b) => fitness(b) - fitness(a));
    return mine?.id ?? ([...group.children].some((one) => one.value === usual) ? usual : group.firstElementChild?.value ?? OTHER);
  }

  /** Offer what fits a task. */
  function setTask(kind) {
    task = kind;
    networks.hidden = task !== "pictures" || !networks.children.length;
    writers.hidden = !WRITES.has(task) || !writers.children.length;
    if (kinds.size && task) {
      for (const one of select.options) one.disabled = !fits(one.value);
      const before = select.value;
      if (isOurs && fits(BUNDLED)) { select.value = BUNDLED; isOurs = false; }
      else if (select.selectedOptions[0]?.disabled) { select.value = fits(BUNDLED) ? BUNDLED : bestOf(); isOurs = select.value !== BUNDLED; }
      if (select.value !== before) queueMicrotask(changed);
    }
    draw();
  }

  /** Say so where the texts are not of the model's language. */
  function setTexts(texts) {
    isOfOtherLanguage = isForeign(texts);
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
  return { element, set, setTask, setTexts, error, value: () => (select.value === OTHER ? typed.value.trim() : select.value),
    get input() { return select.value === OTHER ? typed : select; } };
}
