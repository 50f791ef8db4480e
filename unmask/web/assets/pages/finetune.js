// Fine-tune a model on labeled examples: #/finetune, #/finetune/MODEL
import { get, post } from "../parts/api.js";
import { button, fill, h, keeping, say } from "../parts/dom.js";
import { commandForm, commandLine, field } from "../parts/form.js";
import { whole } from "../parts/format.js";
import { optionCheck } from "../new_model/live.js";
import { examplesPart } from "./finetuning/examples.js";
import { modelChoice } from "./finetuning/model_choice.js";
import { taskTitle } from "./finetuning/tasks.js";
import { tuningChoice } from "./finetuning/tuning.js";
import { runLink } from "./home.js";

const FEW = 30; // examples by which a score is rough
const KEPT = "finetune-page";
const OWN_FIELDS = ["seeds", "baseline", "epochs", "learning_rate"];
const HIDDEN = ["base", "task", "train", "dev", "test", "tune", "out", "text", "label", "choices", "columns", "encoding_errors", "resume", "tasks", "data", ...OWN_FIELDS];

function kept() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT) ?? "{}");
  } catch {
    return {};
  }
}

/** The texts of the rows that a preview shows. */
function textsOf(preview) {
  const at = (preview?.text ?? []).map((name) => preview.columns.findIndex((one) => one.name === name)).filter((i) => i >= 0);
  return (preview?.rows ?? []).flatMap((row) => at.map((i) => [row[i] ?? ""].flat().join(" ")));
}

export async function page({ rest }) {
  const state = kept();
  const [{ runs }, described] = await Promise.all([get("/runs"), get("/commands/finetune")]);
  const fieldOf = (name) => described.fields.find((one) => one.name === name);
  const taken = new Set(runs.map((one) => one.id)); // names of runs, and of those started here
  let isReady = false;
  const keep = keeping(() => sessionStorage.setItem(KEPT, JSON.stringify({ ...state, ...examples.state, base: model.value(), tune: tune.value() ?? null, out: isNamed ? out.value() : null,
    own: Object.fromEntries(OWN_FIELDS.map((name) => [name, own[name].value() ?? null])) })), 200);
  const changed = () => {
    if (!isReady) return;
    suggestName();
    keep();
    draw();
  };

  const model = modelChoice(runs, { help: fieldOf("base").help, changed });
  const tune = tuningChoice({ changed });
  const labelOf = { seeds: "Runs with different seeds", baseline: "Was it worth it? Compare with the same network, not pretrained, and a bag of words", epochs: "Passes over the examples", learning_rate: "Learning rate" };
  const helpOf = { learning_rate: "How large the steps of learning are. Empty: what suits the model and what is trained.",
    baseline: "The same is learned by a network that begins with random weights, in the same time again; and, of one label for a text, by a simple classifier that counts words." };
  const own = Object.fromEntries(OWN_FIELDS.map((name) => [name, field({ ...fieldOf(name), ...(helpOf[name] && { help: helpOf[name], shown_default: "" }) }, { onchange: changed, label: labelOf[name] })]));
  let isNamed = Boolean(state.out);
  const out = field({ ...fieldOf("out"), help: "Folder of the run; it appears under this name among the runs.", default: null, shown_default: "" }, { label: "Name", onchange: () => { isNamed = Boolean(out.value()); changed(); } });
  const form = await commandForm("finetune", { hide: HIDDEN, open: [], key: "finetune-more", onchange: changed });
  const examples = examplesPart({ tasks: fieldOf("task").choices, state, changed });

  model.set(rest || state.base || "unmask-mini-en");
  tune.set(state.tune);
  for (const name of OWN_FIELDS) if (state.own?.[name] !== null && state.own?.[name] !== undefined) own[name].set(state.own[name]);
  if (state.out) out.set(state.out);

  /** A name that no run has, from the file's, until the user gives one. */
  function suggestName() {
    if (isNamed) return;
    const stem = (examples.state.train?.name ?? described.suggested_out).replace(/(-(utf8|complete)(-\d+)?)*\..*$/, "").replace(/[^\p{L}\p{N}._-]+/gu, "-").replace(/^[-._]+|[-._]+$/g, "").slice(0, 60) || described.suggested_out;
    let name = stem;
    for (let n = 2; taken.has(name); n++) name = `${stem}-${n}`;
    out.set(name);
  }

  /** Options of the task that the table asks for, before those that are given. */
  const taskOptions = () => {
    const all = [...(examples.values().task_options ?? []), ...(form.values().task_options ?? [])];
    return all.length ? { task_options: all } : {};
  };
  const values = () => ({ base: model.value() || undefined, ...examples.values(), tune: tune.value(),
    ...Object.fromEntries(OWN_FIELDS.map((name) => [name, own[name].value()])), ...form.values(), ...taskOptions(), out: out.value() });

  const line = commandLine("finetune");
  const plan = h("ul", { class: "plan" });
  const note = h("p", { class: "error-line", role: "alert" });

  function draw() {
    const preview = examples.preview();
    model.setTask(preview?.task ?? null);
    model.setTexts(textsOf(preview));
    fill(plan, planLines(preview).map((text) => h("li", {}, text)));
    fill(note);
    const isWhole = Boolean(examples.state.train && preview?.task);
    missing.hidden = isWhole;
    line.element.hidden = !isWhole;
    if (isWhole) { line.show(values()); check.change(values()); }
  }
  const missing = h("p", { class: "hint" }, "The command line is shown here when there are examples.");

  function planLines(preview) {
    if (!examples.state.train) return ["Choose a file of examples first."];
    if (!preview) return [examples.problem() ?? `${examples.state.train.name} is being read.`];
    if (!preview.task) return ["Choose the task, or say what the columns hold."];
    const lines = [`${taskTitle(preview.task)}: ${model.value()} learns it.`];
    const n = preview.n_examples;
    if (n && preview.n_held_out) lines.push(`${whole(n - preview.n_held_out)} examples are learned from, ${whole(preview.n_held_out)} are set aside to measure${preview.n_held_out < FEW ? ": too few for more than a rough score" : ""}.`);
    else if (n) lines.push(`${whole(n)} examples are learned from.`);
    for (const [name, what] of [["dev", "Measured on"], ["test", "Tested at the end on"]]) if (examples.state[name]) lines.push(`${what} ${examples.state[name].name}.`);
    const seeds = Number(own.seeds.value() ?? 1);
    const hasBaseline = own.baseline.value() === true;
    const count = seeds * (hasBaseline ? 2 : 1);
    lines.push(count > 1 ? `${whole(count)} trainings one after another${hasBaseline ? `, ${whole(seeds)} of them from random weights` : ""}; the best model is kept.` : "One training; its best state is kept.");
    return lines;
  }

  const check = optionCheck("finetune", (problem) => showError(problem, { focus: false }));

  /** Show an error beside its field; null takes all back. */
  function showError(error, { focus = true } = {}) {
    fill(note);
    for (const one of [model, tune, out, ...Object.values(own)]) one.error(null);
    form.showError(null);
    if (!error) return;
    const mine = { base: model, tune, out, ...own }[error.field];
    if (mine) {
      mine.error(error.line);
      mine.input.closest("details")?.setAttribute("open", "");
      if (focus) mine.input.focus();
    } else if (!(focus && examples.error(error.field, error.line)) && !form.showError(error, { focus })) fill(note, error.line ?? String(error));
  }

  async function start() {
    if (!examples.state.train) return showError({ field: "train", line: "Choose a file of examples first." });
    if (examples.problem()) { fill(note, "The examples cannot be learned from yet: ", examples.problem()); examples.focusProblem(); return; }
    if (!examples.preview()) { fill(note, `${examples.state.train.name} is still being read.`); return; }
    const problem = await check.now(values());
    if (problem) { showError(problem); return; }
    try {
      const job = await post("/jobs", { command: "finetune", values: values() });
      isNamed = false;
      state.out = null;
      taken.add(job.run);
      suggestName();
      sessionStorage.setItem(KEPT, JSON.stringify({ ...JSON.parse(sessionStorage.getItem(KEPT) ?? "{}"), out: null }));
      say("The job is in the queue.");
      location.hash = job.run ? runLink(job.run) : "#/jobs";
    } catch (error) {
      showError(error);
    }
  }

  isReady = true;
  suggestName();
  draw();
  const step = (number, title, ...children) => h("section", { class: "step", "aria-labelledby": `step-${number}` }, h("h2", { id: `step-${number}` }, `${number}. ${title}`), children);
  const element = h("div", { class: "finetune" },
    h("div", { class: "heading" }, h("div", {}, h("h1", {}, "Fine-tune"), h("p", { class: "lead" }, "A model that has read much text learns your task from labeled examples; some hundreds are often enough."))),
    h("div", { class: "columns wide-left" },
      h("div", {},
        step(1, "Examples", examples.element),
        step(2, "Model", model.element),
        step(3, "Training", tune.element, h("div", { class: "pair" }, own.seeds.element, own.epochs.element, own.learning_rate.element), own.baseline.element,
          h("details", { class: "all-settings" }, h("summary", {}, "All settings"), h("p", { class: "hint" }, "What is left empty is chosen for the model and the examples."), form.element))),
      h("section", { class: "start" }, h("h2", {}, "Start"), out.element, plan, h("h3", {}, "Command line"), line.element, missing, note, h("p", { class: "actions" }, button("Start", start, { class: "primary" })))));
  return { element, leave() { examples.leave(); check.stop(); } };
}
