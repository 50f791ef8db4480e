// Forms from the descriptions of options: labels, help, defaults and errors are the command line's.
import { del, get, post, upload } from "./api.js";
import { ask, button, fill, h, keeping } from "./dom.js";
import { bytes, numberOf } from "./format.js";

let counter = 0;

/**
 * A field: {name, flag, help, kind, choices, default, shown_default, required}.
 * Returns {element, value(), set(value), error(line)}; what is not given is undefined.
 */
export function field(one, { onchange = () => {}, label = null, suggestions = [] } = {}) {
  const id = `field-${++counter}`;
  const input = control(one, id, onchange, suggestions);
  const line = h("p", { class: "error-line", id: `${id}-error`, hidden: true });
  const help = h("p", { class: "hint", id: `${id}-help` }, withLabels(one.help), shownDefault(one));
  input.element.setAttribute("aria-describedby", `${id}-help ${id}-error`);
  if (one.required) input.element.setAttribute("aria-required", "true");
  const name = label ?? words(one);
  const element = one.kind === "boolean"
    ? h("div", { class: "field check", "data-name": one.name }, h("label", { for: id }, input.element, " ", name), help, line)
    : h("div", { class: "field", "data-name": one.name }, h("label", { for: id }, name, one.required ? " *" : ""), help, input.outer ?? input.element, line);
  return {
    name: one.name, element, value: input.value, set: input.set, input: input.element,
    error(text) {
      element.classList.toggle("invalid", Boolean(text));
      input.element.setAttribute("aria-invalid", text ? "true" : "false");
      line.hidden = !text;
      line.textContent = text ?? "";
    },
  };
}

/** A help text of the command line, with the labels of the form in place of flags. */
const withLabels = (text) => text.replace(/(^|[\s(])--([a-z][a-z-]*[a-z])/g, (_, before, flag) => `${before}“${words({ flag })}”`);

/** The default in words; that a box is not ticked is seen. */
function shownDefault(one) {
  if (!one.shown_default || (one.kind === "boolean" && one.default !== true)) return "";
  return ` Default: ${one.kind === "boolean" ? "yes" : withLabels(one.shown_default)}.`;
}

const words = (one) => {
  const plain = one.flag.replace(/^--?/, "").replaceAll("-", " ");
  return plain.charAt(0).toUpperCase() + plain.slice(1).toLowerCase();
};

function control(one, id, onchange, suggestions) {
  if (one.kind === "boolean") {
    const element = h("input", { type: "checkbox", id, checked: one.default === true, onchange });
    return { element, value: () => (element.checked === (one.default === true) ? undefined : element.checked), set: (v) => { element.checked = v === true; } };
  }
  if (one.choices?.length && one.kind !== "list") {
    const element = h("select", { id, onchange }, one.required ? null : h("option", { value: "" }, one.shown_default ? `(${one.shown_default})` : "(default)"),
      one.choices.map((choice) => h("option", { value: choice }, String(choice))));
    element.value = one.default ?? "";
    const isGiven = () => element.value && (one.required || element.value !== one.default);
    return { element, value: () => (isGiven() ? element.value : undefined), set: (v) => { element.value = v ?? one.default ?? ""; } };
  }
  if (one.kind === "list" || one.kind === "assignments") return severalLines(one, id, onchange);
  const kinds = { integer: "numeric", number: "decimal" };
  const list = suggestions.length ? h("datalist", { id: `${id}-list` }, suggestions.map((v) => h("option", { value: v }))) : null;
  const element = h("input", { type: "text", id, inputmode: kinds[one.kind] ?? null, spellcheck: "false", autocomplete: "off",
    placeholder: one.default === null || one.default === undefined ? null : String(one.default), list: list ? `${id}-list` : null, oninput: onchange });
  const value = () => {
    const text = element.value.trim();
    if (!text) return undefined;
    return one.kind in kinds ? numberOf(text) ?? text : text;
  };
  return { element, outer: list ? h("div", {}, element, list) : null, value, set: (v) => { element.value = v ?? ""; } };
}

/** Several values, one on each line. */
function severalLines(one, id, onchange) {
  const element = h("textarea", { id, rows: 2, spellcheck: "false", oninput: onchange, placeholder: one.kind === "assignments" ? "key=value" : null });
  const lines = () => element.value.split("\n").map((text) => text.trim()).filter(Boolean);
  return { element, value: () => (lines().length ? lines() : undefined), set: (v) => { element.value = [v ?? []].flat().join("\n"); } };
}

/**
 * The form of a command: groups of fields, the essential ones open, the rest folded.
 * `hide`: names of fields that the page asks for itself. What was typed is kept in the browser.
 * Returns {element, fields, values(), set(values), showError(error), check()}.
 */
export async function commandForm(command, { hide = [], open = ["essential"], key = command, onchange = () => {} } = {}) {
  const form = await get(`/commands/${command}`);
  const suggestions = await namesThere(form.fields.filter((one) => !hide.includes(one.name)));
  const fields = new Map();
  const groups = new Map();
  const keep = keeping(() => sessionStorage.setItem(`form:${key}`, JSON.stringify(values())), 300);
  const changed = () => { keep(); onchange(); };
  for (const one of form.fields) {
    if (hide.includes(one.name)) continue;
    const made = field(one, { onchange: changed, suggestions: suggestions[one.kind] });
    fields.set(one.name, made);
    if (!groups.has(one.group)) groups.set(one.group, []);
    groups.get(one.group).push(made.element);
  }
  const element = h("div", { class: "form" }, [...groups].map(([name, members]) =>
    open.includes(name) ? h("div", {}, members) : h("details", { "data-group": name }, h("summary", {}, name.charAt(0).toUpperCase() + name.slice(1)), members)));
  function values() {
    return Object.fromEntries([...fields].map(([name, one]) => [name, one.value()]).filter(([, value]) => value !== undefined));
  }
  function set(given) {
    for (const [name, value] of Object.entries(given)) fields.get(name)?.set(value);
  }
  /** Show an error beside its field, and go there; returns whether there is such a field. */
  function showError(error, { focus = true } = {}) {
    for (const one of fields.values()) one.error(null);
    const one = error && fields.get(error.field);
    if (!one) return false;
    one.error(error.line);
    for (let at = one.element.closest("details"); at; at = at.parentElement.closest("details")) at.open = true;
    if (focus) one.input.focus();
    return true;
  }
  try {
    set(JSON.parse(sessionStorage.getItem(`form:${key}`) ?? "{}"));
  } catch { /* what was kept is not readable: begin anew */ }
  /** What was typed is kept no more, what is typed just now neither. */
  const forget = () => { keep.cancel(); sessionStorage.removeItem(`form:${key}`); };
  return { element, fields, values, set, showError, forget, summary: form.summary };
}

/** What fields of files and models suggest: {path, model}, of those that are there. */
async function namesThere(fields) {
  const has = (kind) => fields.some((one) => one.kind === kind);
  const files = has("path") ? get("/files").then((told) => told.files.map((one) => one.path)) : [];
  const models = has("model") ? get("/runs").then((told) => [...told.runs.filter((one) => one.has.includes("model")).map((one) => one.id), "unmask-mini-en"]) : [];
  const [path, model] = await Promise.all([files, models]).catch(() => [[], []]); // the form goes without them
  return { path, model };
}

/** The command line that a form stands for, with a button that copies it; kept up to date by `show`. */
export function commandLine(command) {
  const code = h("code", {});
  const element = h("div", { class: "copy" }, h("pre", { tabindex: "0", "aria-label": "Command line" }, code),
    button("Copy", async () => navigator.clipboard.writeText(code.textContent)));
  let turn = 0;
  async function show(values) {
    const mine = ++turn;
    try {
      const told = await post("/command-line", { command, values });
      if (mine === turn) code.textContent = told.command_line;
      return null;
    } catch (error) {
      const missing = /^missing argument '(.*)'/.exec(error.line)?.[1];
      if (mine === turn) code.textContent = missing ? `It is shown here when ${missing} is given.` : error.line;
      return error;
    }
  }
  return { element, show };
}

/**
 * A place for files: drop, choose, or take one that is there. `chosen` is called with their paths and
 * facts; `known(name)` says of which of those that are there.
 */
export function filePicker({ label, several = true, accept = null, chosen, known: fits = () => true }) {
  const id = `field-${++counter}`;
  const input = h("input", { type: "file", id, multiple: several, accept, class: "hidden" });
  const state = h("div", { class: "files" });
  const taken = new Map(); // path -> facts
  const originals = new Map(); // name that a file got -> the file, of those sent just now
  const tell = () => { chosen([...taken.keys()], [...taken.values()]); draw(); };
  const draw = () => fill(state, [...taken.values()].map((one) => h("p", { class: "row" }, h("span", {}, one.name), h("span", { class: "hint" }, bytes(one.bytes)),
    button("Remove", () => { taken.delete(one.path); tell(); }, { class: "quiet", "aria-label": `Remove ${one.name}` }))));
  const line = h("p", { class: "error-line", role: "alert", hidden: true });
  async function take(files) {
    line.hidden = true;
    for (const file of files) {
      const bar = h("progress", { max: 1, value: 0, "aria-label": `Sending ${file.name}` });
      state.append(bar);
      try {
        const facts = await upload(file, (share) => { bar.value = share; });
        if (!several) taken.clear();
        taken.set(facts.path, facts);
        originals.set(facts.name, file);
      } catch (error) {
        line.hidden = false;
        line.textContent = `${file.name}: ${error.line}`;
      } finally {
        bar.remove();
      }
    }
    tell();
    list();
  }
  const area = h("div", { class: "drop" }, h("p", {}, h("label", { for: id, class: "button" }, "Choose files"), input, " or drop them here"),
    h("p", { class: "hint" }, "They stay on the machine that runs unmask serve."));
  input.addEventListener("change", () => { take([...input.files]); input.value = ""; });
  for (const [name, is] of [["dragover", true], ["dragleave", false], ["drop", false]]) {
    area.addEventListener(name, (event) => { event.preventDefault(); area.classList.toggle("over", is); });
  }
  area.addEventListener("drop", (event) => take([...event.dataTransfer.files]));
  const known = h("select", { "aria-label": `${label}: a file that is there` }, h("option", { value: "" }, "… or take one that is there"));
  let files = [];
  const uploads = h("details", { class: "uploads", hidden: true, ontoggle: () => { if (uploads.open) list(); } }, h("summary", {}, "Delete files that were sent"), h("ul", {}));
  async function list() {
    files = (await get("/files")).files.filter((one) => fits(one.name) && !one.made_from);
    known.hidden = uploads.hidden = !files.length;
    fill(known, h("option", { value: "" }, "… or take one that is there"), files.map((one) => h("option", { value: one.path }, `${one.name} (${bytes(one.bytes)})`)));
    fill(uploads.querySelector("ul"), files.map((one) => h("li", { class: "row" }, h("span", {}, one.name), h("span", { class: "hint" }, bytes(one.bytes)),
      button("Delete", () => remove(one), { class: "quiet", "aria-label": `Delete ${one.name}` }))));
  }
  async function remove(one) {
    if (!await ask(`Delete ${one.name}?`, "What was made of it goes, too. Runs that learned from it stay; they cannot be continued without it.", "Delete")) return;
    try {
      await del(`/files/${encodeURIComponent(one.name)}`);
      for (const [path, file] of taken) if (path === one.path || file.name === one.name) taken.delete(path);
      tell();
    } catch (error) {
      line.hidden = false;
      line.textContent = error.line ?? String(error);
    }
    await list();
  }
  known.addEventListener("change", () => {
    const one = files.find((f) => f.path === known.value);
    if (!one) return;
    if (!several) taken.clear();
    taken.set(one.path, one);
    known.value = "";
    tell();
  });
  list();
  const set = (facts) => { if (!several) taken.clear(); for (const one of facts) taken.set(one.path, one); tell(); };
  return { element: h("div", { class: "field" }, h("p", { class: "label" }, label), area, known, uploads, state, line), take, set,
    original: (name) => originals.get(name),
    drop(name) { for (const [path, one] of taken) if (one.name === name) taken.delete(path); } };
}
