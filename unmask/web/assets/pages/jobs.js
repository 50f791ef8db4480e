// The queue: what runs, what waits, what ended; stop, go on, move, delete.
import { del, get, listen, post } from "../parts/api.js";
import { button, empty, fill, h } from "../parts/dom.js";
import { bytes, when } from "../parts/format.js";
import { runLink, stateChip } from "./home.js";

export async function page() {
  const place = h("div", { class: "stack" });
  const { limits } = await get("/jobs");
  const act = (job, what, body) => post(`/jobs/${job.id}/${what}`, body);

  function row(job, i, jobs) {
    const isOver = ["done", "stopped", "failed"].includes(job.state);
    const waiting = jobs.filter((one) => one.state === "waiting");
    const at = waiting.indexOf(job);
    return h("article", { class: "card", "data-job": job.id },
      h("div", { class: "row" }, stateChip(job.state), job.run ? h("h3", {}, h("a", { href: runLink(job.run) }, job.run)) : h("h3", {}, job.arguments[0]), h("span", { class: "hint" }, when(job.created))),
      h("pre", { tabindex: "0" }, job.command_line),
      job.last_lines.length ? h("pre", { tabindex: "0", "aria-label": "Last lines" }, job.last_lines.join("\n")) : null,
      h("div", { class: "actions" },
        isOver ? null : button(job.state === "stopping" ? "Stop now" : "Stop", () => act(job, "stop")),
        at > 0 ? button("Sooner", () => act(job, "move", { place: at - 1 })) : null,
        at >= 0 && at < waiting.length - 1 ? button("Later", () => act(job, "move", { place: at + 1 })) : null,
        ["stopped", "failed"].includes(job.state) ? button("Go on", () => act(job, "resume")) : null,
        isOver || job.state === "waiting" ? button("Remove", () => del(`/jobs/${job.id}`)) : null));
  }

  function draw({ jobs }) {
    if (!jobs.length) {
      fill(place, empty("No jobs", "What is started from this page waits and runs here; it goes on when the page is closed.", h("a", { class: "button primary", href: "#/new" }, "New model")));
      return;
    }
    fill(place, jobs.map(row));
  }
  const end = listen("jobs", draw);
  if (!place.hasChildNodes()) draw(await get("/jobs"));
  const element = h("div", {}, h("div", { class: "heading" }, h("h1", {}, "Jobs")),
    h("p", { class: "lead" }, `${limits.jobs === 1 ? "One job" : `${limits.jobs} jobs`} at once, on ${limits.cores} cores; another one starts only while they take less than ${bytes(limits.memory)} of memory.`),
    h("section", {}, place));
  return { element, leave: end };
}
