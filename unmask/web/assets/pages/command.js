// Any command of the command line, as a form: #/command/prepare?data=...
import { get, post, upload } from "../parts/api.js";
import { button, fill, h, say } from "../parts/dom.js";
import { commandForm, commandLine } from "../parts/form.js";
import { runLink } from "./home.js";

const BUNDLED = "unmask-mini-en";
const FOLDER = ".unmask/files"; // of suites of tasks, whose files are uploaded

export async function page({ rest, query }) {
  if (!rest) {
    const { commands } = await get("/commands");
    return h("div", {}, h("div", { class: "heading" }, h("h1", {}, "Commands")), h("p", { class: "lead" }, "All that unmask does in a terminal, each as a form. What a command says is shown beside its job."),
      h("section", { class: "grid" }, commands.map((one) => h("a", { class: "card", href: `#/command/${one.name}` }, h("h3", {}, one.name), h("p", { class: "hint" }, one.summary)))));
  }
  const line = commandLine(rest);
  const note = h("p", { class: "error-line", role: "alert" });
  const show = () => line.show(form.values());
  const form = await commandForm(rest, { open: ["essential", "data"], onchange: () => show() });
  const [{ fields }, { files }, { runs }] = await Promise.all([get(`/commands/${rest}`), get("/files"), get("/runs")]);
  for (const one of fields) {
    const made = form.fields.get(one.name);
    if (one.kind === "model") suggest(made, [BUNDLED, ...runs.filter((run) => run.has.includes("model")).map((run) => run.id)]);
    if ([one.kind, one.items].includes("path") && !["out", "page"].includes(one.name)) made.element.append(fileChoice(made, one, files));
  }
  form.set(Object.fromEntries([...query.keys()].map((key) => [key, query.getAll(key).length > 1 ? query.getAll(key) : query.get(key)])));
  async function start() {
    fill(note);
    try {
      const job = await post("/jobs", { command: rest, values: form.values() });
      form.showError(null);
      form.forget();
      say("The job is in the queue.");
      location.hash = job.run ? runLink(job.run) : "#/jobs";
    } catch (error) {
      if (!form.showError(error)) fill(note, error.line ?? String(error));
    }
  }
  show();
  return { title: rest, element: h("div", {}, h("div", { class: "heading" }, h("h1", {}, rest), h("a", { class: "button", href: "#/command" }, "All commands")), h("p", { class: "lead" }, form.summary),
    h("section", { class: "columns" }, form.element, h("div", {}, h("h2", {}, "Command line"), line.element, note, h("p", { class: "actions" }, button("Start", start, { class: "primary" }))))) };
}

/** Names that a field suggests while one is typed. */
function suggest(made, names) {
  const id = `${made.input.id}-names`;
  made.input.setAttribute("list", id);
  made.element.append(h("datalist", { id }, names.map((value) => h("option", { value }))));
}

/** Uploaded files, and a file to upload, for a field that takes paths. */
function fileChoice(made, one, files) {
  const id = `${made.input.id}-file`;
  const isList = one.kind === "list";
  const take = (path) => {
    made.set(isList ? [...(made.value() ?? []), path] : path);
    made.input.dispatchEvent(new Event("input"));
  };
  const known = h("select", { "aria-label": `${one.flag}: a file that is there`, hidden: !files.length, onchange: () => { if (known.value) take(known.value); known.value = ""; } },
    h("option", { value: "" }, "… or take one that is there"), files.map((file) => h("option", { value: file.path }, file.name)), h("option", { value: FOLDER }, "the folder of all of these"));
  const input = h("input", { type: "file", id, multiple: isList, class: "hidden", onchange: async () => {
    try {
      for (const file of [...input.files]) take((await upload(file)).path);
    } catch (error) {
      made.error(error.line ?? String(error));
    }
    input.value = "";
  } });
  return h("div", { class: "row file-choice" }, h("label", { for: id, class: "button" }, "Choose files"), input, known);
}
