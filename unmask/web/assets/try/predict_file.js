// A whole file of texts: each row gets an answer, and the table is there to download.
import { post, postStream } from "../parts/api.js";
import { button, fill, h, table } from "../parts/dom.js";
import { languages } from "../parts/encodings.js";
import { filePicker } from "../parts/form.js";
import { bytes, percent, whole } from "../parts/format.js";
import { byTheirNames, isSpreadsheet, mayBeForeign, rewriteTable } from "../pages/finetuning/foreign.js";

const TASKS = ["classify", "pairs", "multilabel", "regress", "cloze"];

/** Whether files are for models of a task. */
export const takesFiles = (task) => TASKS.includes(task);

/** The part for a file: {element, leave()}; `ability`: what the model predicts, with its columns. */
export function filePart(model, ability) {
  const wanted = ability.columns?.texts ?? [];
  const line = h("p", { class: "error-line", role: "alert", hidden: true });
  const choices = h("div", { class: "row" });
  const status = h("div", { class: "row", role: "status" });
  const result = h("div", {});
  let file = null;
  let selects = [];
  let control = null;
  const picker = filePicker({ label: "A file of texts", several: false, accept: ".xlsx,.ods,.csv,.tsv,.txt,.jsonl,.parquet", chosen: (paths, facts) => take(facts[0] ?? null) });
  const start = button("Predict all rows", run, { disabled: true });

  function refuse(error) {
    line.hidden = !error;
    line.textContent = error ? byTheirNames(error.line ?? String(error), file ?? {}) : "";
  }

  /** Read the columns of a file, as another program saved it where it must be. */
  async function take(facts) {
    leave();
    file = facts;
    start.disabled = true;
    refuse(null);
    fill(choices);
    fill(result);
    if (!facts) return;
    fill(status, h("span", {}, `Reading ${facts.name} …`));
    try {
      if (isSpreadsheet(facts.name)) file = await rewriteTable(facts);
      const told = await post("/call/preview_table", { file: file.path }).catch(async (error) => {
        if (file.foreign || !mayBeForeign(facts.name, error.line ?? "")) throw error;
        file = await rewriteTable(facts, { languages: languages() });
        return post("/call/preview_table", { file: file.path });
      });
      const names = told.columns.map((one) => one.name);
      const asked = wanted.length ? wanted : told.text.slice(0, 1);
      selects = asked.map((name, i) => {
        const select = h("select", { "aria-label": asked.length > 1 ? `Column of text ${i + 1}` : "Column of texts" }, names.map((one) => h("option", { value: one }, one)));
        select.value = names.includes(name) ? name : (told.text[i] ?? names[0]);
        return select;
      });
      fill(choices, h("span", {}, `${whole(told.n_rows)} rows; the ${asked.length > 1 ? "texts are in" : "text is in"}`), selects);
      start.disabled = false;
    } catch (error) {
      refuse(error);
    } finally {
      fill(status);
    }
  }

  async function run() {
    leave();
    const mine = (control = new AbortController());
    const bar = h("progress", { max: 1, value: 0, "aria-label": "Rows with an answer" });
    const count = h("span", {}, "The model is opened …");
    refuse(null);
    fill(result);
    fill(status, bar, count, button("Stop", leave));
    start.disabled = true;
    try {
      for await (const told of postStream("/call-stream/predict_file", { model, file: file.path, text: selects.map((one) => one.value) }, mine.signal)) {
        bar.value = told.of ? told.done / told.of : 0;
        fill(count, `${whole(told.done)} of ${whole(told.of)} rows`);
        if (told.files) show(told);
      }
    } catch (error) {
      if (error.name !== "AbortError") refuse(error);
    } finally {
      if (control === mine || control === null) { fill(status); start.disabled = false; }
    }
  }

  function show(told) {
    const n = told.n_rows - told.skipped;
    const [sheet, plain] = told.files;
    const link = (one, label, kind) => h("a", { class: kind, href: `/api/files/${encodeURIComponent(one.name)}`, download: one.name }, `${label} (${bytes(one.bytes)})`);
    const turned = (row) => [...row.slice(-told.n_answers), ...row.slice(0, -told.n_answers)]; // answers first
    fill(result, h("h3", {}, `${whole(n)} rows have an answer`),
      h("p", { class: "actions" }, link(sheet, "Download for Excel (.xlsx)", "button primary"), link(plain, "Download as CSV", "button")),
      h("p", { class: "hint" }, "All columns of your file, then the answer, how sure the model is of it, and the probability of each label."),
      told.skipped ? h("p", { class: "hint" }, told.skipped === 1 ? "1 row has no text, and no answer." : `${whole(told.skipped)} rows have no text, and no answer.`) : null,
      told.compared ? h("p", {}, `${whole(told.compared)} rows have a label already; ${whole(told.agree)} of these (${percent(told.agree / told.compared)}) are predicted so. Of rows that the model has learned from, this says nothing.`) : null,
      told.counts.length ? table("Answers", ["answer", "rows", "share"], told.counts.map(([label, of]) => [label, whole(of), percent(of / n)]), { numeric: [1, 2] }) : null,
      h("h3", {}, "The first rows"),
      table("The first rows with their answers", turned(told.columns), told.rows.map((row) => turned(row).map((value) => h("div", { class: "cell" }, String(value ?? "")))), { class: "predicted-rows" }));
  }

  function leave() { control?.abort(); control = null; }
  const element = h("section", { class: "predict-file" }, h("h2", {}, "A whole file"),
    h("p", { class: "hint" }, "An Excel file, CSV, or a text file with one text on each line. You get it back as a table with an answer in each row."),
    picker.element, line, choices, h("p", { class: "actions" }, start), status, result);
  return { element, leave };
}
