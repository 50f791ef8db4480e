// Labeled examples: the file, what its columns hold, the task that fits, labels and warnings.
import { post } from "../../parts/api.js";
import { button, fill, h } from "../../parts/dom.js";
import { filePicker } from "../../parts/form.js";
import { percent, whole } from "../../parts/format.js";
import { columnTable } from "./columns.js";
import { byTheirNames, foreignNote, isSpreadsheet, leaveOut, mayBeForeign, rewriteTable } from "./foreign.js";
import { examplesName, needsLabel, roleName, taskExamples, taskTitle } from "./tasks.js";

const ACCEPTED = ".csv,.tsv,.xlsx,.ods,.jsonl,.json,.parquet,.txt,.conll,.conllu,.zip,.gz,.xz,.zst";
const PICTURES = /\.(zip|npz)$/i;
const FIRST_LABELS = 12;
const UPLOADED = ".unmask/files/";
const FLAGS = /; name (it|them)\b.*$/s; // how a command line is told which columns
const NO_TABLE = { text: [], label: null, columns: [], rows: [] };
const nameOf = (path) => path.split("/").at(-1);

/**
 * The part of the page about the examples. `tasks` are the task's choices; `state` is what is kept:
 * {train, dev, test: facts of files, task, texts, label, noHeader}. `changed` is called when it changes.
 * Returns {element, state, values(), preview(), problem(), error(field, line)}.
 */
export function examplesPart({ tasks, state, changed }) {
  let preview = null;
  let problem = null; // a line: the table cannot be learned from as it stands
  let turn = 0;
  let cancel = new AbortController();
  const status = h("div", { class: "row", role: "status", hidden: true });
  const found = h("div", { hidden: true });
  const columns = columnTable({ chosen: chooseColumns });
  const task = h("select", { id: "task", "aria-describedby": "task-reason task-error", onchange: () => { state.task = task.value; look(); } }, tasks.map((one) => h("option", { value: one }, taskTitle(one))));
  const reason = h("p", { class: "hint", id: "task-reason" });
  const taskLine = h("p", { class: "error-line", id: "task-error", hidden: true });
  const taskField = h("div", { class: "field", "data-name": "task" }, h("label", { for: "task" }, "Task"), reason, task, taskLine);
  const header = h("input", { type: "checkbox", id: "no-header", checked: state.noHeader === true, onchange: () => {
    state.noHeader = header.checked;
    state.names = header.checked ? preview.columns.map((_, i) => `column${i + 1}`) : null;
    forgetColumns();
    look();
  } });
  const headerField = h("div", { class: "field check" }, h("label", { for: "no-header" }, header, " The first row is an example, not the names of the columns"));
  const labels = h("div", { class: "field" });
  const pictures = h("div", { class: "field" });
  const warnings = h("ul", { class: "warnings" });
  const note = h("div", { class: "notice", role: "status", hidden: true });
  const incomplete = h("div", { class: "notice", hidden: true });
  const fileLine = h("p", { class: "error-line", id: "train-error", role: "alert", hidden: true });

  const picker = (name, label) => {
    const made = filePicker({ label, several: false, accept: ACCEPTED, chosen: (paths, facts) => takeFile(name, paths, facts) });
    if (state[name]) made.set([state[name]]);
    return made;
  };
  let isReady = false;
  let isDerived = false; // whether a training file that is set is made of the one before
  const pickers = { train: picker("train", "Examples to learn from"), dev: picker("dev", "File of held-out examples"), test: picker("test", "Test file") };
  const otherLines = Object.fromEntries(["dev", "test"].map((name) => [name, h("p", { class: "error-line", role: "alert", hidden: true })]));
  isReady = true;

  const otherProblem = () => Object.values(otherLines).find((line) => !line.hidden);

  function takeFile(name, paths, facts = []) {
    if (!isReady) return;
    const path = paths[0] ?? null;
    const isSame = path === (state[name]?.path ?? null);
    if (isSame && !(name === "train" && problem)) return;
    if (name === "train" && state.train && !isDerived) for (const other of ["dev", "test"]) pickers[other].set([]); // they are another table's
    state[name] = path === null ? null : { path, name: facts[0]?.name ?? nameOf(path), bytes: facts[0]?.bytes, ...(facts[0]?.foreign && { foreign: facts[0].foreign }) };
    if (name === "train") { state.task = ""; header.checked = state.noHeader = false; forgetColumns(); look(); } else if (name === "dev") look();
    else lookAtOther(name);
    changed();
  }

  function forgetColumns() {
    state.texts = null;
    state.label = null;
    state.choices = null;
    state.chosen = false;
    state.encoding = null;
  }

  function chooseColumns({ texts, label, choices }, name) {
    state.texts = texts;
    state.label = label;
    state.choices = choices;
    state.chosen = true;
    preview = { ...preview, text: texts, label, choices };
    columns.draw(preview);
    const missing = !texts.length ? roleName(preview.task, "text") : label === null && needsLabel(preview.task) ? roleName(preview.task, "label") : null;
    if (missing) {
      tell(`Which column holds the ${missing}? None is chosen.`, name);
      changed();
    } else look();
  }

  /** Read the table as the task would; a later look overtakes an earlier one. */
  async function look() {
    const mine = ++turn;
    cancel.abort();
    cancel = new AbortController();
    problem = null;
    if (!state.train) { preview = null; show(); changed(); return; }
    if (isSpreadsheet(state.train.path)) { rewrite(state.train); return; }
    const before = setTimeout(() => {
      status.hidden = false;
      fill(status, h("span", {}, `Reading ${state.train.name} …`), button("Cancel", () => { cancel.abort(); turn++; status.hidden = true; refuse("It was not read. Choose it again, or another file."); }, { class: "quiet" }));
    }, 200);
    found.setAttribute("aria-busy", "true");
    try {
      const told = PICTURES.test(state.train.name)
        ? { ...NO_TABLE, reason: "an archive of pictures", ...await post("/call/preview_pictures", { file: state.train.path, learned: state.dev ? "with dev" : "alone" }, { signal: cancel.signal }) }
        : await post("/call/preview_table", { ...request(state.train.path), learned: state.dev ? "with dev" : "alone" }, { signal: cancel.signal });
      if (mine !== turn) return;
      preview = told;
      show();
    } catch (error) {
      if (mine !== turn || error.name === "AbortError") return;
      const said = error.line ?? String(error);
      if (!state.encoding && !state.train.foreign && mayBeForeign(state.train.name, said)) await rewrite(state.train, {}, said);
      else refuse(said);
    } finally {
      clearTimeout(before);
      if (mine === turn) { status.hidden = true; found.removeAttribute("aria-busy"); }
    }
    changed();
    for (const name of ["dev", "test"]) lookAtOther(name);
  }

  function request(file) {
    const asked = { file };
    if (state.noHeader && state.names) asked.columns = state.names;
    if (state.encoding) asked.encoding_errors = state.encoding;
    if (state.task) asked.task = state.task;
    if (state.texts?.length) asked.text = state.texts;
    if (state.label) asked.label = state.label;
    if (state.choices?.length) asked.choices = state.choices;
    return asked;
  }

  /** Whether a held-out or test file can be read as the training file is. */
  async function lookAtOther(name) {
    const line = otherLines[name];
    const refuseOther = (text) => { line.textContent = byTheirNames(text, state[name]); line.hidden = !text; changed(); };
    line.hidden = true;
    const path = state[name]?.path;
    if (!path || !preview?.task || preview.task === "pictures") return;
    try {
      if (isSpreadsheet(path)) return await rewriteOther(name);
      const told = await post("/call/preview_table", { ...request(path), task: preview.task, text: preview.text, ...(preview.label ? { label: preview.label } : {}), ...(preview.choices?.length ? { choices: preview.choices } : {}) });
      if (state[name]?.path !== path) return;
      refuseOther(told.problem ?? "");
    } catch (error) {
      const said = error.line ?? String(error);
      if (mayBeForeign(path, said) && !state[name].foreign) return await rewriteOther(name).catch(() => refuseOther(said));
      refuseOther(said);
    }
  }

  async function rewriteOther(name) {
    const { encoding } = state.train.foreign ?? {};
    pickers[name].set([await rewriteTable(state[name], encoding ? { encoding } : {})]);
  }

  function refuse(text) {
    preview = null;
    show();
    problem = byTheirNames(text, state.train);
    fill(fileLine, problem, state.encoding || !/UTF-8/.test(text) ? null : h("span", { class: "actions" },
      button("Read it with � in place of such letters", () => { state.encoding = "replace"; look(); }, { class: "quiet" })));
    fileLine.hidden = false;
    changed();
  }

  /** Read the table as another program saved it, and go on with what was read; `said`: why it was refused. */
  async function rewrite(file, asked = {}, said = null) {
    const mine = turn;
    status.hidden = false;
    fill(status, h("span", {}, `Reading ${file.name} …`));
    try {
      const facts = await rewriteTable(file, asked);
      if (mine === turn) derive(facts);
    } catch (error) {
      if (mine === turn) refuse([error.line ?? String(error), said].filter(Boolean).join("; "));
    } finally {
      status.hidden = true;
    }
  }

  /** Go on with a file that was made of the one that is read. */
  const goOn = (facts) => derive({ ...facts, name: state.train.name, ...(state.train.foreign && { foreign: state.train.foreign }) });

  function derive(facts) {
    isDerived = true;
    pickers.train.set([facts]);
    isDerived = false;
  }

  function drawNotes() {
    const foreign = state.train?.foreign;
    note.hidden = !foreign || preview === null;
    if (foreign) fill(note, foreignNote(foreign, (asked) => rewrite(foreign.file, { ...(foreign.wanted && { encoding: foreign.wanted }), ...asked })));
    incomplete.hidden = !preview?.n_incomplete || !/\.(csv|tsv)$/i.test(preview.file);
    if (!incomplete.hidden) {
      const { text: texts, label } = preview;
      fill(incomplete, leaveOut(preview, { file: state.train.path, needed: [...texts, ...(label ? [label] : [])],
        ...(state.noHeader && state.names && { columns: state.names }), ...(state.encoding && { encoding_errors: state.encoding }) }, goOn));
    }
  }

  function tell(text, name = null) {
    problem = text ? byTheirNames(text, state.train).replace(FLAGS, "; say so at the heads of the columns") : null;
    columns.error(problem, name);
  }

  function show() {
    fileLine.hidden = true;
    found.hidden = preview === null;
    problem = null;
    drawNotes();
    if (preview === null) return;
    const isTable = preview.task !== "pictures";
    columns.element.hidden = headerField.hidden = !isTable;
    headerField.hidden = !isTable || !/\.(csv|tsv)(\.\w+)?$/i.test(preview.file);
    if (isTable) columns.draw(preview);
    for (const one of task.options) one.disabled = (one.value === "pictures") === isTable; // what the file is not
    task.value = preview.task ?? "";
    const guessed = state.task ? ["You chose it. ", button("Guess again", () => { state.task = ""; look(); }, { class: "quiet" })] : preview.task ? [`Guessed: ${preview.reason}.`] : [`${preview.reason}. Choose the task, or other columns.`];
    fill(reason, guessed, preview.task ? ` For example: ${taskExamples(preview.task)}.` : "", preview.task === "prefer" ? preferHint() : null);
    if (!isTable && preview.problem) { fileLine.textContent = problem = preview.problem; fileLine.hidden = false; } else tell(preview.problem ?? (preview.task ? null : `${preview.reason}: choose what each column holds`));
    pictures.hidden = isTable;
    if (!isTable) fill(pictures, h("p", { class: "label" }, "Some of the pictures"), h("div", { class: "pictures" }, preview.pictures.map((one) =>
      h("figure", {}, h("img", { src: `data:image/png;base64,${one.png}`, alt: one.name }), h("figcaption", { class: "hint" }, one.label)))));
    drawLabels();
    const all = preview.table_warnings ?? [];
    fill(warnings, all.map((text) => h("li", {}, text.charAt(0).toUpperCase() + text.slice(1), ".")));
    warnings.hidden = !all.length;
  }

  /** That a model may also learn to write what is preferred, from the same file. */
  function preferHint() {
    const open = () => { sessionStorage.setItem("form:prefer", JSON.stringify({ train: state.train.path })); };
    return [" Here a model learns to tell the better response: a reward model. ", h("a", { href: "#/command/prefer", onclick: open }, "Let a model that writes learn to write them (DPO)"), "."];
  }

  let isLong = false;
  function drawLabels() {
    const counts = preview.labels ?? [];
    labels.hidden = !counts.length;
    if (!counts.length) { labels.hidden = !preview.n_examples || preview.task === "pictures"; fill(labels, h("p", { class: "label" }, `${whole(preview.n_examples)} ${examplesName(preview.task)}`)); return; }
    const most = Math.max(...counts.map(([, n]) => n));
    const total = preview.n_examples;
    const base = preview.task === "tag" ? counts.reduce((sum, [, n]) => sum + n, 0) : total;
    const some = isLong ? counts : counts.slice(0, FIRST_LABELS);
    fill(labels, h("p", { class: "label" }, `${whole(total)} ${examplesName(preview.task)}, ${whole(preview.n_labels)} different ${{ regress: "numbers", tag: "tags", choose: "positions of the right option" }[preview.task] ?? "labels"}`),
      h("table", { class: "label-counts" }, h("caption", { class: "hidden" }, "Examples of each label"), h("tbody", {}, some.map(([label, n]) =>
        h("tr", {}, h("th", { scope: "row" }, label), h("td", { class: "share" }, h("div", { style: { width: `${(100 * n) / most}%` } })), h("td", { class: "number" }, whole(n)), h("td", { class: "number hint" }, percent(n / base)))))),
      counts.length > some.length ? button(`Show all ${whole(counts.length)}`, () => { isLong = true; drawLabels(); }, { class: "quiet" }) : null);
  }

  /** The values for the command line. */
  function values() {
    const given = { task: preview?.task ?? (state.task || undefined), train: state.train?.path, dev: state.dev?.path, test: state.test?.path };
    if (preview && (needsLabel(preview.task) || state.chosen)) {
      if (preview.text.length) given.text = preview.text;
      if (preview.label) given.label = preview.label;
      if (preview.choices?.length) given.choices = preview.choices;
    }
    const options = Object.entries(preview?.options ?? {});
    if (options.length) given.task_options = options.map(([name, value]) => `${name}=${value}`);
    if (state.noHeader && state.names) given.columns = state.names;
    if (state.encoding) given.encoding_errors = state.encoding;
    return given;
  }

  /** Show the server's line beside the field it is about; whether there is such a field. */
  function error(field, text) {
    taskLine.hidden = true;
    if (["text", "label", "columns", "choices"].includes(field) && preview) { tell(text); columns.focus(); return true; }
    if (field === "task") { taskLine.textContent = text; taskLine.hidden = false; task.focus(); return true; }
    const line = field === "train" ? fileLine : otherLines[field];
    if (!line) return false;
    line.textContent = text;
    line.hidden = false;
    line.scrollIntoView({ block: "center" });
    return true;
  }

  const element = h("div", {},
    h("p", { class: "hint" }, "A table with one example in each row: a column of texts and one of labels. Excel (.xlsx), LibreOffice (.ods), CSV, TSV, JSON Lines, Parquet; CoNLL for words with tags; a zip of pictures in one folder for each label."),
    pickers.train.element, fileLine, status, note, found);
  found.append(incomplete, columns.element, pictures, headerField, taskField, labels, warnings,
    h("details", { open: Boolean(state.dev || state.test) }, h("summary", {}, "Held-out and test files"),
      h("p", { class: "hint" }, "Without a file of them, a tenth of the examples is set aside to see how well others than those learned are answered. A test file is looked at once, at the end."),
      pickers.dev.element, otherLines.dev, pickers.test.element, otherLines.test));
  if (state.train) look();
  return { element, state, values, error, preview: () => preview, problem: () => problem ?? otherProblem()?.textContent ?? null, focusProblem: () => { const line = problem ? null : otherProblem(); if (line) { line.closest("details").open = true; line.scrollIntoView({ block: "center" }); } else if (preview) columns.focus(); else fileLine.scrollIntoView({ block: "center" }); }, leave: () => cancel.abort() };
}

