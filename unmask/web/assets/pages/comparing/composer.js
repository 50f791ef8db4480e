// A study of one's own, composed: models x objectives under one budget, tuned on one table.
import { post, upload } from "../../parts/api.js";
import { button, fill, h, say, slowly } from "../../parts/dom.js";
import { download } from "../../parts/download.js";
import { commandLine, filePicker } from "../../parts/form.js";
import { duration, short } from "../../parts/format.js";
import { catalogue } from "../../new_model/model.js";
import { live, once } from "../../new_model/live.js";
import { runLink } from "../home.js";
import { MAX_SEEDS, cellsOf, seedsOf, studyToml, tasksToml } from "./study_file.js";

const KEY = "compose-study";
const FIRST = {
  name: "my-study", question: "Which pretraining objective is best?", models: ["bert-tiny"], objectives: ["mlm", "rtd", "clm"], left: [], withRandom: true,
  changes: {}, tokens: "1000000", pretrainingSeeds: "1", rows: "1000", epochs: "3", seeds: "3", text: [], table: null,
};
const SIZES = {
  "architecture.n_layers": ["Layers", "of each model"], "architecture.d_model": ["Width", "a multiple of the heads"], "architecture.n_heads": ["Attention heads", ""], "architecture.d_ff": ["Feed-forward width", ""],
  sequence_length: ["Sequence length", "tokens that are read at once"],
};
const NUMBERS = {
  tokens: ["Tokens of each", "The budget: every cell reads as many."], pretrainingSeeds: ["Pretraining seeds", "Each cell is pretrained so many times; more than one tells chance from effect."],
  rows: ["Labeled rows", "At most so many of the table are learned from."], epochs: ["Epochs", "Passes over these rows."], seeds: ["Fine-tuning seeds", "The table has their mean and deviation."],
};
const OWN = ""; // the objective of the model itself
const objectivesOf = once(async (model) => (await post("/call/objective_choices", { model })).objectives);
const COMMON = ["mlm", "whole-word", "spans", "rtd", "clm", "prefix-lm", "span-corruption"];

/** The form; `close` is called when it is no longer needed. */
export function composer({ close }) {
  let kept = {};
  try { kept = JSON.parse(sessionStorage.getItem(KEY) ?? "{}"); } catch { /* begin anew */ }
  const now = { ...structuredClone(FIRST), ...kept };
  now.changes = Object.fromEntries(Object.entries(now.changes).filter(([key]) => key in SIZES));
  const keep = slowly(() => sessionStorage.setItem(KEY, JSON.stringify(now)), 150);
  const known = new Map(); // model -> its objectives
  const plans = new Map(); // name of a cell -> {seconds, parameters}
  const problem = h("p", { class: "error-line", role: "alert" });
  const grid = h("div", {});
  const figures = h("p", { class: "lead", role: "status" });
  const code = h("code", {});
  const line = commandLine("study");
  const tableFacts = h("p", { class: "hint", role: "status" });

  const input = (key, label, help, target = now) => {
    const id = `compose-${key.replaceAll(".", "-")}`;
    const isText = ["name", "question"].includes(key);
    return h("div", { class: "field" }, h("label", { for: id }, label), h("p", { class: "hint", id: `${id}-help` }, help),
      h("input", { type: "text", id, inputmode: isText ? null : "numeric", value: target[key] ?? "", "aria-describedby": `${id}-help`, autocomplete: "off", oninput: (event) => { target[key] = event.target.value; change(); } }));
  };
  const addModel = h("select", { id: "compose-model", onchange: () => { if (addModel.value && !now.models.includes(addModel.value)) now.models.push(addModel.value); addModel.value = ""; drawGrid(); change(); } });
  const addObjective = h("select", { id: "compose-objective", onchange: () => { const value = addObjective.value === "own" ? OWN : addObjective.value; if (addObjective.selectedIndex && !now.objectives.includes(value)) now.objectives.push(value); addObjective.selectedIndex = 0; drawGrid(); change(); } });
  const random = h("input", { type: "checkbox", id: "compose-random", checked: now.withRandom, onchange: () => { now.withRandom = random.checked; change(); } });
  const text = filePicker({ label: "Text that all are pretrained on", chosen: (paths, facts) => { now.text = facts; change(); } });
  const table = filePicker({ label: "Table that all are fine-tuned on", several: false, accept: ".csv,.tsv,.jsonl,.parquet", chosen: (paths, facts) => { if (facts[0]?.path !== now.table?.path) { now.table = facts[0] ?? null; lookAtTable(); } change(); } });

  async function lookAtTable() {
    const own = now.table;
    if (!own) { fill(tableFacts); return; }
    fill(tableFacts, "Looking at its columns …");
    try {
      const found = await post("/call/preview_table", { file: own.path });
      if (now.table?.path !== own.path) return;
      Object.assign(own, { task: found.task, texts: found.text, label: found.label, problem: found.problem ?? (found.task ? null : `no task fits ${own.name}: a table has a column of texts and one of labels`) });
      fill(tableFacts, own.problem ? h("span", { class: "error-line" }, own.problem) : `Task: ${own.task}. Text: ${own.texts.join(", ")}. Label: ${own.label ?? "–"}. ${short(found.n_examples)} examples, of which a part is held out for the scores.`);
    } catch (error) {
      fill(tableFacts, h("span", { class: "error-line" }, error.line ?? String(error)));
      own.problem = error.line ?? String(error);
    }
    change();
  }

  const can = (model, objective) => objective === OWN || (known.get(model)?.find((one) => one.name === objective)?.can ?? false);
  const cells = () => cellsOf(now, can);

  function drawGrid() {
    const remove = (list, value) => button("×", () => { now[list] = now[list].filter((one) => one !== value); drawGrid(); change(); (list === "models" ? addModel : addObjective).focus(); }, { class: "quiet", "aria-label": `Remove ${value || "its own objective"}` });
    const box = (model, objective) => {
      const one = known.get(model)?.find((o) => o.name === objective);
      if (objective !== OWN && !known.has(model)) return h("span", { class: "hint" }, "…");
      if (!can(model, objective)) return h("span", { class: "hint" }, one?.reason ?? "no");
      const key = `${model} ${objective}`;
      const element = h("input", { type: "checkbox", "aria-label": `${model} with ${objective || "its own objective"}`, checked: !now.left.includes(key), onchange: () => { now.left = now.left.filter((o) => o !== key); if (!element.checked) now.left.push(key); change(); } });
      return element;
    };
    fill(grid, h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Cells" }, h("table", { class: "cells" }, h("caption", { class: "hidden" }, "Cells: models and objectives"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Model"), now.objectives.map((one) => h("th", { scope: "col" }, one || "its own", remove("objectives", one))))),
      h("tbody", {}, now.models.map((model) => h("tr", {}, h("th", { scope: "row" }, model, remove("models", model)), now.objectives.map((one) => h("td", {}, box(model, one)))))))));
    for (const model of now.models) {
      if (known.has(model)) continue;
      objectivesOf(model).then((found) => { known.set(model, found); drawGrid(); change(); }).catch((error) => fill(problem, error.line ?? String(error)));
    }
  }

  let refused = null; // the line with which the study is refused
  const planning = live(async ({ toml, plans: wanted }, signal) => {
    await post("/call/check_study", { toml }, { signal });
    const found = [];
    for (const one of wanted) {
      const plan = await post("/call/plan", one.plan, { signal });
      found.push([one.name, { seconds: plan.seconds, parameters: plan.parameters }]);
    }
    return found;
  }, { show(found) { refused = null; plans.clear(); for (const [name, plan] of found) plans.set(name, plan); drawFigures(); }, fail(error) { refused = (error.line ?? String(error)).replace(/^study: /, ""); drawFigures(); }, busy(is) { figures.setAttribute("aria-busy", is ? "true" : "false"); } });

  function drawFigures() {
    const all = cells().filter((one) => !one.isRandom);
    if (!all.length) { fill(figures, now.models.every((one) => known.has(one)) ? "No cell is chosen." : "Asking which objectives each model supports …"); return; }
    if (seedsOf(now) === null) { fill(figures, h("span", { class: "error-line" }, `Pretraining seeds: a whole number from 1 to ${MAX_SEEDS}.`)); return; }
    if (refused) { fill(figures, h("span", { class: "error-line" }, refused)); return; }
    const planned = all.filter((one) => plans.has(one.name));
    const seconds = planned.reduce((sum, one) => sum + plans.get(one.name).seconds, 0);
    const sizes = [...new Set(planned.map((one) => plans.get(one.name).parameters))].sort((a, b) => a - b);
    const size = sizes.length > 1 ? `${short(sizes[0])} to ${short(sizes.at(-1))}` : sizes.length ? short(sizes[0]) : "";
    fill(figures, planned.length < all.length ? `${cells().length} cells; computing how long they take …`
      : `${cells().length} cells of ${size} parameters; pretraining takes about ${duration(seconds)} here, and fine-tuning comes on top.`);
  }

  function change() {
    keep();
    const all = cells();
    code.textContent = all.length ? studyToml(now, all) : "…";
    line.show({ study: `.unmask/files/${now.name}.toml`, data: now.text.map((one) => one.path), out: now.name, tasks_data: now.table ? ".unmask/files" : undefined });
    refused = null;
    if (all.length) planning.change({ toml: code.textContent, plans: all.filter((one) => !one.isRandom).map((one) => ({ name: one.name, plan: one.plan })) });
    else planning.forget();
    drawFigures();
  }

  async function start() {
    fill(problem);
    const all = cells();
    const wrong = !all.length ? "Choose a cell." : seedsOf(now) === null ? "Pretraining seeds are not a number." : refused ? refused : !now.text.length ? "Choose a text that all are pretrained on." : !now.table ? "Choose a table that all are fine-tuned on." : now.table.problem
      || (/^[\p{L}\p{N}_][\p{L}\p{N}_.+-]{0,90}$/u.test(now.name) ? null : "The name must be letters, digits, - and _ .");
    if (wrong) { fill(problem, wrong); return; }
    try {
      const tasks = await upload(new File([tasksToml(now.table)], `${now.name}-tasks.toml`));
      const study = await upload(new File([studyToml(now, all, tasks.name)], `${now.name}.toml`));
      const job = await post("/jobs", { command: "study", values: { study: study.path, data: now.text.map((one) => one.path), tasks_data: ".unmask/files", out: now.name } });
      say("The study is in the queue.");
      location.hash = job.run ? runLink(job.run) : "#/jobs";
    } catch (error) {
      fill(problem, error.line ?? String(error));
    }
  }

  async function begin() {
    for (const one of [addModel, addObjective]) fill(one, h("option", { value: "" }, "Reading the catalogue …"));
    try {
      const models = (await catalogue()).filter((one) => !["word vectors", "images"].includes(one.kind) && one.parameters < 6e7);
      const kinds = [...new Set(models.map((one) => one.kind))];
      fill(addModel, h("option", { value: "" }, "Add a model …"), kinds.map((kind) => h("optgroup", { label: kind }, models.filter((one) => one.kind === kind).map((one) => h("option", { value: one.name }, `${one.name} (${short(one.parameters)} parameters)`)))));
      const all = await objectivesOf(now.models[0] ?? "bert-tiny");
      const option = (one) => h("option", { value: one.name }, `${one.name}: ${one.description}`);
      fill(addObjective, h("option", { value: "" }, "Add an objective …"), h("option", { value: "own" }, "its own: that of each model"), COMMON.map((name) => all.find((one) => one.name === name)).filter(Boolean).map(option), all.filter((one) => !COMMON.includes(one.name)).map(option));
    } catch (error) {
      fill(problem, error.line ?? String(error), " ", button("Try again", begin));
    }
  }

  if (now.text.length) text.set(now.text);
  if (now.table) table.set([now.table]);
  const title = h("h3", { tabindex: "-1" }, "Compose a study");
  const fields = (names, of) => h("div", { class: "grid fields" }, Object.entries(names).map(([key, [label, help]]) => input(key, label, help, of)));
  const element = h("div", {}, title, h("div", { class: "columns" },
    h("div", {},
      h("div", { class: "grid fields" }, input("name", "Name", "Of the study, and of its folder."), input("question", "Question", "A line above its table.")),
      h("p", { class: "label" }, "Cells"), h("p", { class: "hint" }, "Each model with each objective that it supports is a cell. Uncheck those that are not to be trained."), grid,
      h("div", { class: "grid fields" }, h("div", { class: "field" }, h("label", { for: "compose-model" }, "Another model"), addModel), h("div", { class: "field" }, h("label", { for: "compose-objective" }, "Another objective"), addObjective)),
      h("div", { class: "field check" }, h("label", { for: "compose-random" }, random, " Each model also without pretraining, from random weights: what pretraining is worth")),
      text.element, table.element, tableFacts, fields(NUMBERS, now),
      h("details", {}, h("summary", {}, "The same size for all models"), h("p", { class: "hint" }, "Empty: that of each model. Cells can be compared only as far as sizes are alike."), fields(SIZES, now.changes))),
    h("div", {}, figures, h("p", { class: "label" }, "The study as a file"), h("div", { class: "copy" }, h("pre", { tabindex: "0", "aria-label": "Study as TOML" }, code), button("Copy", async () => navigator.clipboard.writeText(code.textContent), { "aria-label": "Copy the study" })),
      h("p", { class: "actions" }, button("Download TOML", () => download(`${now.name}.toml`, "application/toml", code.textContent), { class: "quiet" })),
      h("p", { class: "label" }, "Command line"), line.element, problem,
      h("p", { class: "actions" }, button("Start", start, { class: "primary" }), button("Close", close)))));
  drawGrid();
  begin();
  change();
  return { element, focus() { title.focus(); title.scrollIntoView({ block: "start" }); }, leave() { planning.stop(); } };
}
