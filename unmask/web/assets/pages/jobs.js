// The queue: what runs, what waits, what ended; stop, go on, move, delete.
import { del, get, listen, post } from "../parts/api.js";
import { button, empty, fill, h } from "../parts/dom.js";
import { bytes, duration, when, whole } from "../parts/format.js";
import { runLink, stateChip } from "./home.js";

const SECONDS_BETWEEN_LOOKS = 5;
const GOING = ["starting", "running", "stopping"];

export async function page() {
  const place = h("div", { class: "stack" });
  const { limits } = await get("/jobs");
  let shown = [];
  let runs = new Map();
  const outputs = new Map(); // id of a job -> what it said
  let acted = null; // the button that was pressed: it is disabled meanwhile, which takes its focus
  const act = (job, what, body) => post(`/jobs/${job.id}/${what}`, body);

  const isContinued = (job, jobs) => job.run && jobs.some((one) => one.run === job.run && one.created > job.created);

  function row(job, i, jobs) {
    const isOver = ["done", "stopped", "failed"].includes(job.state);
    const waiting = jobs.filter((one) => one.state === "waiting");
    const at = waiting.indexOf(job);
    const name = job.run ?? job.arguments[0];
    const make = (label, does) => button(label, () => { acted = { id: job.id, label, time: Date.now() }; return does(); }, { "aria-label": `${label}: ${name}` });
    return h("article", { class: "card", "data-job": job.id },
      h("div", { class: "row" }, stateChip(job.state), h("h3", {}, job.run ? h("a", { href: runLink(job.run) }, job.run) : job.arguments[0]), h("span", { class: "hint" }, when(job.created))),
      GOING.includes(job.state) ? progress(job.run ? runs.get(job.run) : null) : null,
      h("pre", { tabindex: "0" }, job.command_line),
      job.run || job.state === "waiting" ? null : output(job),
      job.ending ? h("p", {}, `${job.ending}.`) : null,
      job.last_lines.length && job.run ? h("pre", { tabindex: "0", "aria-label": "Last lines" }, job.last_lines.join("\n")) : null,
      h("div", { class: "actions" },
        GOING.includes(job.state) ? make(job.state === "stopping" ? "Stop now" : "Stop", () => act(job, "stop")) : null,
        at > 0 ? make("Sooner", () => act(job, "move", { place: at - 1 })) : null,
        at >= 0 && at < waiting.length - 1 ? make("Later", () => act(job, "move", { place: at + 1 })) : null,
        ["stopped", "failed"].includes(job.state) && !isContinued(job, jobs) ? make("Go on", () => act(job, "resume")) : null,
        isOver || job.state === "waiting" ? make("Remove", () => del(`/jobs/${job.id}`)) : null));
  }

  /** What a command without a folder of its own says: its answer is here alone. */
  function output(job) {
    const text = h("pre", { tabindex: "0", class: "log", "aria-label": "Output" }, outputs.get(job.id) ?? "");
    text.hidden = !outputs.get(job.id);
    get(`/jobs/${job.id}/output`).then((told) => {
      outputs.set(job.id, told.text.replace(/[^\n]*\r(?!\n)/g, "").trimEnd());
      text.textContent = outputs.get(job.id);
      text.hidden = !text.textContent;
    }).catch(() => {});
    return text;
  }

  /** How far the run of a job is, as far as it is known. */
  function progress(run) {
    if (!run?.steps || !run.step) return h("p", { class: "hint" }, run === null ? "Running …" : "Preparing …");
    const unit = run.kind === "study" ? "cells" : run.kind === "suite" ? "tasks" : "steps";
    const left = run.seconds && run.step < run.steps ? (run.seconds / run.step) * (run.steps - run.step) : null;
    return h("div", {}, h("progress", { max: run.steps, value: run.step, "aria-label": `Progress of ${run.id}` }),
      h("p", { class: "hint" }, [`${whole(run.step)} of ${whole(run.steps)} ${unit}`, left ? `about ${duration(left)} left` : null].filter(Boolean).join(" · ")));
  }

  function draw({ jobs }) {
    shown = jobs;
    if (!jobs.length) {
      fill(place, empty("No jobs", "What is started from this page waits and runs here; it goes on when the page is closed.", h("a", { class: "button primary", href: "#/new" }, "New model")));
      return;
    }
    const focused = place.contains(document.activeElement) ? document.activeElement : null;
    if (focused) acted = { id: focused.closest("[data-job]")?.dataset.job, label: focused.textContent, time: Date.now() };
    fill(place, jobs.map(row));
    if (!acted || Date.now() - acted.time > 1000 * SECONDS_BETWEEN_LOOKS || (!focused && document.activeElement !== document.body)) return;
    const same = place.querySelector(`[data-job="${acted.id}"]`); // whose buttons may be others now
    const others = [...(same?.querySelectorAll("button") ?? [])];
    (others.find((one) => one.textContent === acted.label) ?? others[0] ?? place.querySelector("button"))?.focus();
  }

  async function look() {
    const told = await get("/runs");
    const known = new Map(told.runs.map((one) => [one.id, one]));
    const isNews = shown.some((job) => GOING.includes(job.state) && JSON.stringify(known.get(job.run)) !== JSON.stringify(runs.get(job.run)));
    runs = known;
    if (isNews) draw({ jobs: shown });
  }
  await look();
  const end = listen("jobs", (told) => { draw(told); look().catch(() => {}); });
  const timer = setInterval(() => { if (!document.hidden && shown.some((job) => GOING.includes(job.state))) look().catch(() => {}); }, 1000 * SECONDS_BETWEEN_LOOKS);
  if (!place.hasChildNodes()) draw(await get("/jobs"));
  const element = h("div", {}, h("div", { class: "heading" }, h("h1", {}, "Jobs"), h("a", { class: "button", href: "#/command" }, "Other commands")),
    h("p", { class: "lead" }, `${limits.jobs === 1 ? "One job" : `${limits.jobs} jobs`} at once, on ${limits.cores} cores; another one starts only while they take less than ${bytes(limits.memory)} of memory.`),
    h("section", {}, place));
  return { element, leave() { clearInterval(timer); end(); } };
}
