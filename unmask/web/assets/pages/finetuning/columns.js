// The first rows of a table; what each column is can be chosen at its head.
import { button, fill, h } from "../../parts/dom.js";
import { whole } from "../../parts/format.js";
import { roleName, rolesOf } from "./tasks.js";

const PROMPTS = ["prompt", "instruction", "input"]; // of preferences, read by their names
const [FIRST_ROWS, ALL_ROWS] = [6, 20];

/**
 * The table of a preview: `chosen({texts, label, choices}, name)` is called when the user says what a column is.
 * Returns {element, draw(preview), error(line)}.
 */
export function columnTable({ chosen }) {
  const place = h("div", {});
  const line = h("p", { class: "error-line", id: "columns-error", role: "alert", hidden: true });
  const element = h("div", { class: "field", "data-name": "columns-of-table" }, h("p", { class: "label" }, "Columns"),
    h("p", { class: "hint" }, "Say at the head of each column what it holds."), line, place);
  const selects = new Map();
  let shownRows = FIRST_ROWS;
  let preview = null;

  const roleOf = (name) => (preview.choices?.includes(name) ? "option" : name === preview.label ? "label" : (["text", "second"][preview.text.indexOf(name)] ?? ""));

  function choose(name, role) {
    const texts = [preview.text[0] ?? null, preview.text[1] ?? null].map((one) => (one === name ? null : one));
    let label = preview.label === name ? null : preview.label;
    if (role === "text") texts[0] = name;
    if (role === "second") texts[1] = name;
    if (role === "label") label = name;
    const isOption = (column) => (column.name === name ? role === "option" : preview.choices?.includes(column.name));
    chosen({ texts: texts.filter((one) => one !== null), label, choices: preview.columns.filter(isOption).map((column) => column.name) }, name);
  }

  function head(column) {
    const name = column.name;
    const select = h("select", { "aria-label": `What column ${name} holds`, "aria-describedby": "columns-error", "data-column": name, onchange: () => choose(name, select.value) },
      rolesOf(preview.task).map((role) => h("option", { value: role }, roleName(preview.task, role))));
    select.value = roleOf(name);
    const isPrompt = preview.task === "prefer" && PROMPTS.includes(name);
    if (!isPrompt) selects.set(name, select);
    return h("th", { scope: "col", class: `column role-${isPrompt ? "text" : roleOf(name) || "ignored"}` }, h("span", { class: "name" }, name), isPrompt ? h("p", {}, "prompt") : select,
      h("span", { class: "hint" }, `${whole(column.distinct)} different`));
  }

  function draw(next) {
    const focused = document.activeElement?.dataset?.column;
    preview = next;
    selects.clear();
    const columns = preview.columns;
    const rows = preview.rows.slice(0, shownRows);
    fill(place, h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "First rows" },
      h("table", { class: "columns-table" }, h("caption", { class: "hidden" }, `The first rows of ${preview.file}`),
        h("thead", {}, h("tr", {}, columns.map(head))),
        h("tbody", {}, rows.map((row) => h("tr", {}, columns.map((column, i) => h("td", { class: `role-${roleOf(column.name) || "ignored"}` }, h("div", { class: "cell" }, shown(row[i]))))))))),
    h("p", { class: "row hint" }, `${whole(rows.length)} of ${whole(preview.n_rows)} rows.`,
      preview.rows.length > rows.length ? button("Show more rows", () => { shownRows = ALL_ROWS; draw(preview); place.querySelector(".scroll").focus(); }, { class: "quiet" }) : null));
    if (focused) selects.get(focused)?.focus();
  }

  /** Say what is wrong with the columns; the one that the line names is marked. */
  function error(text, name = null) {
    line.hidden = !text;
    line.textContent = text ?? "";
    const named = name ?? [...selects.keys()].find((one) => text?.includes(`'${one}'`)) ?? null;
    for (const [one, select] of selects) select.setAttribute("aria-invalid", text && one === named ? "true" : "false");
  }
  const focus = () => (selects.get([...selects].find(([, one]) => one.getAttribute("aria-invalid") === "true")?.[0]) ?? selects.values().next().value)?.focus();
  return { element, draw, error, focus };
}

function shown(value) {
  if (value === null || value === undefined) return h("span", { class: "hint" }, "–");
  if (Array.isArray(value)) return value.every((one) => one === null || typeof one !== "object") ? value.join(" ") : JSON.stringify(value);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
