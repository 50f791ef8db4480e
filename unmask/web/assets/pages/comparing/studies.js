// Studies: those that were run here, and the published ones, with a form that starts one.
import { get, post } from "../../parts/api.js";
import { button, fill, h, say, table } from "../../parts/dom.js";
import { commandForm, commandLine, filePicker } from "../../parts/form.js";
import { short } from "../../parts/format.js";
import { runLink, stateChip } from "../home.js";

const OWN = "";

/** The section of studies; `look` draws those that are here anew. */
export function studies({ all }) {
  const here = h("div", {});
  const compose = button("Compose a study", () => showComposer(), { class: "primary" });
  const show = button("Show the published studies", () => showPublished());
  const own = button("Start one from a file", () => showForm(OWN));
  const published = h("div", {});
  const start = h("div", { id: "start-study" });
  let leaveForm = () => {};

  function drawHere(runs) {
    const found = runs.filter((one) => one.kind === "study");
    fill(here, found.length ? h("div", { class: "grid" }, found.map((run) => {
      const cells = runs.filter((one) => one.parent === run.id && one.kind === "pretrain" && one.steps !== 1).map((one) => one.id);
      return h("article", { class: "card" }, h("div", { class: "row" }, h("h3", {}, h("a", { href: runLink(run.id, "compare") }, run.id)), stateChip(run.state)),
        h("p", { class: "hint" }, [run.task, run.steps ? `${run.step} of ${run.steps} cells` : null].filter(Boolean).join(" · ")),
        cells.length > 1 ? h("p", {}, h("a", { href: `#/compare?${new URLSearchParams(cells.map((id) => ["runs", id]))}` }, "Compare the curves of its cells")) : null);
    })) : h("p", { class: "hint" }, "No study was run here yet."));
  }

  async function showComposer() {
    leaveForm();
    const { composer } = await import("./composer.js");
    const made = composer({ close: closeForm });
    leaveForm = made.leave;
    fill(start, made.element);
    made.focus();
  }

  function closeForm() {
    leaveForm();
    leaveForm = () => {};
    fill(start);
    compose.focus();
  }

  async function showPublished() {
    fill(published, h("p", { class: "hint", role: "status", "aria-busy": "true" }, "Reading the studies …"));
    try {
      const told = await post("/call/studies");
      fill(published, table("Published studies", ["Study", "Question", "Cells", "Tokens of each", ""], told.studies.map((one) => [
        one.name, [one.question, h("span", { class: "hint block" }, `After ${one.paper}`), one.cells.length ? h("details", {}, h("summary", {}, "Cells"), one.cells.join(", ")) : null],
        one.cells.length ? String(one.cells.length) : "–", one.tokens ? short(one.tokens) : "–",
        button("Set up", () => showForm(one.name), { "aria-label": `Set up ${one.name}` })]), { numeric: [2, 3], class: "published" }));
      show.hidden = true;
      published.querySelector("button")?.focus();
    } catch (error) {
      fill(published, h("p", { class: "error-line", role: "alert" }, error.line ?? String(error)), button("Try again", showPublished));
    }
  }

  async function showForm(name) {
    leaveForm();
    leaveForm = () => {};
    const line = commandLine("study");
    const note = h("p", { class: "error-line", role: "alert" });
    let [data, files] = [[], []];
    const form = await commandForm("study", { hide: ["study", "data"], key: `study-${name}`, onchange: () => tell() });
    const values = () => ({ study: name || files[0], data, ...form.values() });
    const tell = () => line.show(values());
    const text = filePicker({ label: "Text that its models are pretrained on", chosen: (paths) => { data = paths; tell(); } });
    const file = name ? null : filePicker({ label: "The study, a .toml file", several: false, accept: ".toml", chosen: (paths) => { files = paths; tell(); } });
    async function run() {
      fill(note);
      try {
        const job = await post("/jobs", { command: "study", values: values() });
        form.forget();
        say("The study is in the queue.");
        location.hash = job.run ? runLink(job.run) : "#/jobs";
      } catch (error) {
        if (!form.showError(error)) fill(note, error.line ?? String(error));
      }
    }
    const title = h("h3", { tabindex: "-1" }, name ? `Start ${name}` : "Start a study of your own");
    fill(start, title, h("div", { class: "columns" }, h("div", {}, file?.element, text.element, form.element),
      h("div", {}, h("p", { class: "label" }, "Command line"), line.element, note,
        h("p", { class: "hint" }, "A study trains each of its cells; with its own numbers that takes hours. Fewer tokens, rows and seeds take less."),
        h("p", { class: "actions" }, button("Start", run, { class: "primary" }), button("Close", closeForm)))));
    tell();
    title.focus();
    title.scrollIntoView({ block: "start" });
  }

  async function look() {
    drawHere((await get("/runs")).runs);
  }
  drawHere(all);
  const element = h("section", {}, h("h2", {}, "Studies"),
    h("p", { class: "lead" }, "A study trains several models under one budget, tunes each on the same tasks with several seeds, and writes a table."), here,
    h("div", { class: "actions" }, compose, show, own), published, start);
  return { element, look: () => look().catch(() => {}), leave: () => leaveForm() };
}
