// What runs reached and the options in which they differ, side by side.
import { button, h, table } from "../../parts/dom.js";
import { csv, download } from "../../parts/download.js";
import { duration, short, whole } from "../../parts/format.js";
import { kindName, runLink, stateChip } from "../home.js";
import { shortNames } from "./curves.js";

const MAX_BESIDE = 6;
const FIRST_OPTIONS = 16;

/** Tables: each run a column, or of many runs each a line. */
export function comparisonTables({ runs, options, figures, n_equal_options: nEqual }) {
  const known = [
    { name: "State", values: runs.map((one) => stateChip(one.state)), plain: runs.map((one) => one.state) },
    { name: "Kind", values: runs.map((one) => kindName(one.kind)) },
    { name: "Model", values: runs.map((one) => one.model) },
    { name: "Objective", values: runs.map((one) => one.objective) },
    { name: "Task", values: runs.map((one) => one.task) },
    { name: "Steps", values: runs.map((one) => (one.steps ? `${whole(one.step)} of ${whole(one.steps)}` : one.step ? whole(one.step) : null)), isNumber: true },
    { name: "Time", values: runs.map((one) => (one.seconds ? duration(one.seconds) : null)), isNumber: true },
    ...figures.map((one) => ({ ...one, isNumber: true })),
  ].filter((one) => one.values.some((value) => value !== null && value !== ""));
  return [
    h("section", {}, h("div", { class: "heading" }, h("h2", {}, "What they reached"), saveButton("What they reached", "reached.csv", runs, known)), sideBySide("What they reached", runs, known)),
    h("section", {}, h("div", { class: "heading" }, h("h2", {}, "Options that differ"), options.length && runs.length > 1 ? saveButton("Options that differ", "options.csv", runs, options.map((one) => ({ ...one, name: one.key }))) : null),
      runs.length < 2 ? h("p", { class: "hint" }, "Add another run to see in what they differ.")
        : options.length ? optionTables(runs, options.map((one) => ({ ...one, values: one.values.map(shown), title: one.key }))) : h("p", { class: "hint" }, "None."),
      runs.length > 1 ? h("p", { class: "hint" }, `${whole(nEqual)} options are equal.`) : null),
  ];
}

/** A table as a file: each run a line, as a table in a paper has them. */
function saveButton(caption, name, runs, rows) {
  const cells = (i) => rows.map((row) => (row.plain ?? row.values)[i]);
  return button("Download CSV", () => download(name, "text/csv;charset=utf-8", csv([["Run", ...rows.map((row) => row.name)], ...runs.map((one, i) => [one.id, ...cells(i)])])), { class: "quiet", "aria-label": `Download CSV: ${caption}` });
}

/** Options that all runs have come first; of many, the rest is folded. */
function optionTables(runs, options) {
  const missing = (one) => one.values.filter((value) => value === null).length;
  const sorted = [...options].sort((a, b) => (missing(a) ? 1 : 0) - (missing(b) ? 1 : 0));
  const [first, rest] = [sorted.slice(0, FIRST_OPTIONS), sorted.slice(FIRST_OPTIONS)];
  return [sideBySide("Options that differ", runs, first),
    rest.length ? h("details", {}, h("summary", {}, `${whole(rest.length)} more that differ`), sideBySide("More options that differ", runs, rest)) : null];
}

function shown(value) {
  return value !== null && /^\d{5,}$/.test(value) ? short(Number(value)) : value;
}

function sideBySide(caption, runs, rows) {
  const cell = (value) => value ?? "–";
  const nameOf = shortNames(runs.map((one) => one.id));
  const links = runs.map((one) => h("a", { href: runLink(one.id), title: one.id }, nameOf(one.id)));
  const name = (row) => h("span", { title: row.title ?? null }, row.name);
  if (runs.length <= MAX_BESIDE) {
    return table(caption, ["", ...links], rows.map((row) => [name(row), ...row.values.map(cell)]), { class: "beside" });
  }
  return table(caption, ["Run", ...rows.map(name)], runs.map((_, i) => [links[i], ...rows.map((row) => cell(row.values[i]))]),
    { numeric: rows.flatMap((row, j) => (row.isNumber ? [j + 1] : [])), class: "beside" });
}
