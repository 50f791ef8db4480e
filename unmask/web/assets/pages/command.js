// Any command of the command line, as a form: #/command/prepare?data=...
import { get, post } from "../parts/api.js";
import { button, fill, h, say } from "../parts/dom.js";
import { commandForm, commandLine, filePicker } from "../parts/form.js";
import { runLink } from "./home.js";

const READ = ["data", "train", "text", "input", "file"]; // fields of what a command reads

export async function page({ rest, query }) {
  if (!rest) {
    const { commands } = await get("/commands");
    return h("div", {}, h("h1", {}, "Commands"), h("section", { class: "grid" }, commands.map((one) =>
      h("a", { class: "card", href: `#/command/${one.name}` }, h("h3", {}, one.name), h("p", { class: "hint" }, one.summary)))));
  }
  const line = commandLine(rest);
  const note = h("p", { class: "error-line", role: "alert" });
  const show = () => line.show(form.values());
  const described = await get(`/commands/${rest}`);
  const form = await commandForm(rest, { open: ["essential", "data"], onchange: () => show() });
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
  const ofFiles = described.fields.filter((one) => (one.kind === "path" || one.items === "path") && one.name !== described.out);
  const first = ofFiles.find((one) => one.required) ?? ofFiles.find((one) => READ.includes(one.name)); // where a file that is sent goes
  const files = first ? filePicker({ label: `Files for ${first.flag}`, several: first.kind === "list", chosen(paths) {
    form.set({ [first.name]: first.kind === "list" ? paths : paths[0] ?? null });
    show();
  } }).element : null;
  show();
  return { title: rest, element: h("div", {}, h("div", { class: "heading" }, h("h1", {}, rest)), h("p", { class: "lead" }, form.summary),
    h("section", { class: "columns" }, h("div", {}, files, form.element), h("div", {}, h("h2", {}, "Command line"), line.element, note, h("p", { class: "actions" }, button("Start", start, { class: "primary" }))))) };
}
