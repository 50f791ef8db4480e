// A study or a suite that was run: its page, as the study writes it, and links to its runs.
import { get, post, runPath } from "../../parts/api.js";
import { button, empty, fill, h, say, table } from "../../parts/dom.js";
import { csv, download, fileName } from "../../parts/download.js";
import { comparisonTables } from "./tables.js";
import { deleteRun, runLink, stateChip } from "../home.js";

const SECONDS_BETWEEN_LOOKS = 5;
const UNITS = { study: "cells", suite: "tasks" };
const MAX_COMPARED = 60;
const SEED = /-seed-\d+$/;

export async function studyPage(id) {
  const place = h("div", { class: "study" });
  let shown = "";

  async function look() {
    const [told, { runs }] = await Promise.all([get(runPath(id)), get("/runs")]);
    const inside = runs.filter((one) => one.parent === id);
    const chance = mostFrequent(runs.filter((one) => one.parent === id || one.parent.startsWith(`${id}/`)));
    const now = JSON.stringify([told.run, told.card, chance, inside.map((one) => [one.id, one.state, one.headline])]);
    if (now === shown) return;
    const focused = place.contains(document.activeElement) ? document.activeElement.textContent : null;
    shown = now;
    draw(told, inside, chance);
    if (focused) [...place.querySelectorAll("a, button")].find((one) => one.textContent === focused)?.focus();
  }

  function actions({ run, card, jobs }, trained) {
    const isOn = ["running", "queued"].includes(run.state);
    const canGoOn = !isOn && run.state !== "finished" && jobs.length;
    return h("div", { class: "row" },
      isOn ? button("Stop", async () => { await post(runPath(id, "stop")); say("It finishes its step and saves."); await look(); }) : null,
      canGoOn ? button("Go on", async () => { await post(runPath(id, "resume")); say("It goes on where it stopped, as soon as the jobs before it are done."); await look(); }, { class: "primary" }) : null,
      trained.length > 1 ? h("a", { class: "button", href: `#/compare?${new URLSearchParams(trained.map((one) => ["runs", one]))}` }, `Compare the curves of its ${UNITS[run.kind] ?? "cells"}`) : null,
      run.has.includes("report") ? h("a", { class: "button", href: `/api${runPath(id, "report")}`, target: "_blank", rel: "noopener" }, "Open the report") : null,
      card ? button("Download Markdown", () => download(fileName(id, "md"), "text/markdown;charset=utf-8", card)) : null,
      h("a", { class: "button", href: `${runLink(id)}?log=1` }, "Output and tags"),
      isOn ? null : button("Delete", () => deleteRun(id, () => { location.hash = "#/compare"; }), { class: "quiet" }));
  }

  function draw(told, inside, chance) {
    const { run, card, jobs } = told;
    const begun = jobs.find((one) => !one.arguments.includes("--resume")) ?? jobs[0]; // the newest comes first
    // cells without pretraining have taken one step, and no curve
    const trained = inside.filter((one) => ["pretrain", "finetune"].includes(one.kind) && one.steps !== 1).map((one) => one.id);
    const pretrained = inside.filter((one) => one.kind === "pretrain" && trained.includes(one.id)).map((one) => ["run", one.id]);
    const differences = h("div", {});
    if (pretrained.length > 1) get(`/compare?${new URLSearchParams(pretrained.slice(0, MAX_COMPARED))}`).then((found) => fill(differences, comparisonTables(found)[1])).catch(() => {});
    fill(place,
      h("div", { class: "heading" }, h("div", {}, h("h1", {}, run.id), h("p", { class: "row" }, stateChip(run.state), h("span", { class: "hint" }, run.steps ? `${run.step} of ${run.steps} ${UNITS[run.kind] ?? "cells"}` : "", run.parent ? [" · in ", h("a", { href: runLink(run.parent) }, run.parent)] : null))), actions(told, trained)),
      run.state === "running" && run.steps ? h("progress", { max: run.steps, value: run.step, "aria-label": "Progress" }) : null,
      run.notes.map((note) => h("p", { class: "hint" }, note)),
      card ? markdown(card, id) : empty("No table yet", "It is written when the first part is done.", h("a", { class: "button", href: `${runLink(id)}?log=1` }, "See how it goes")),
      chance.length ? h("p", { class: "notice" }, `A model that always gives the most frequent answer has ${chance.join(", ")}: scores about as high mean that nothing was learned.`) : null,
      inside.length ? h("section", {}, h("h2", {}, "Its runs"), table("Its runs", ["Run", "State", "Reached"], inside.map((one) =>
        [h("a", { href: runLink(one.id) }, one.id.slice(id.length + 1)), stateChip(one.state), one.headline.map((f) => `${f.name} ${f.text}`).join(", ")]))) : null,
      differences,
      begun ? h("section", {}, h("h2", {}, "Command line"), h("div", { class: "copy" }, h("pre", { tabindex: "0", "aria-label": "Command line" }, begun.command_line),
        button("Copy", async () => navigator.clipboard.writeText(begun.command_line)))) : null);
  }

  await look();
  const timer = setInterval(() => { if (!document.hidden) look().catch(() => {}); }, 1000 * SECONDS_BETWEEN_LOOKS);
  return { title: id, element: place, leave() { clearInterval(timer); } };
}

/** What the most frequent answer has on each task, "sst 57.5 %": of fine-tuned runs of cells. */
function mostFrequent(tuned) {
  const found = tuned.flatMap((one) => one.headline.filter((figure) => figure.name === "most frequent answer").map((figure) => `${figure.text} on ${one.id.split("/").at(-1)}`));
  return [...new Set(found)].sort();
}

/** The parts of Markdown that a study's page has: headings, tables, lists, paragraphs, its plot. */
function markdown(text, id) {
  const blocks = text.trim().split(/\n{2,}/);
  return h("div", { class: "markdown" }, blocks.map((block) => {
    const lines = block.split("\n");
    const heading = /^(#+) (.*)/.exec(lines[0]);
    if (heading) return heading[1].length > 1 ? h("h2", {}, plain(heading[2])) : null; // its name is above
    const image = /^!\[(.*)\]\(([\w.-]+)\)$/.exec(block);
    if (image) return image[2] === "plot.svg" ? plot(id, plain(image[1])) : null;
    if (lines[0].startsWith("|")) return markdownTable(lines, id);
    if (lines.every((line) => line.startsWith("- "))) return h("ul", {}, lines.map((line) => h("li", {}, plain(line.slice(2)))));
    return h("p", {}, plain(lines.join(" ")));
  }));
}

function plot(id, alt) {
  const source = `/api${runPath(id, "plot", { at: Date.now() })}`; // it is written anew after each cell
  return h("figure", {}, h("img", { class: "study-plot", src: source, alt }), h("p", {}, h("a", { href: source, download: fileName(`${id} plot`, "svg") }, "Download the plot (SVG)")));
}

function markdownTable(lines, id) {
  const cells = (line) => line.replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((one) => plain(one.trim()));
  const marks = cells(lines[1] ?? "");
  const numeric = marks.flatMap((mark, i) => (mark.endsWith(":") ? [i] : []));
  const [head, rows] = [cells(lines[0]), lines.slice(2).map(cells)];
  const save = (all, name) => button("Download CSV", () => download(fileName(`${id} ${name}`, "csv"), "text/csv;charset=utf-8", csv([head, ...all])), { class: "quiet", "aria-label": `Download CSV: ${name}` });
  const over = overSeeds(rows, numeric);
  return h("div", {}, table("Results", head, rows, { numeric }), save(rows, "results"),
    over.length ? [h("h3", {}, "Over the seeds of pretraining"), h("p", { class: "hint" }, "Mean and standard deviation of the means above. A difference that is not well above the deviations may be chance."), table("Over the seeds of pretraining", head, over, { numeric }), save(over, "over seeds")] : null);
}

/** Rows of cells that differ in their seed alone, as one each: mean ± deviation of what is in them; none, if none does. */
function overSeeds(rows, numeric) {
  const groups = grouped(rows);
  if (![...groups.values()].some((group) => group.length > 1)) return [];
  return [...groups].map(([name, group]) => group[0].map((first, i) => {
    if (i === 0) return group.length > 1 ? `${name} (${group.length} seeds)` : name;
    if (group.length === 1 || !numeric.includes(i) || group.every((row) => row[i] === first)) return first;
    const values = group.map((row) => Number.parseFloat(row[i].replaceAll(",", "")));
    if (values.some((one) => !Number.isFinite(one))) return ""; // not all are done
    const mean = values.reduce((a, b) => a + b) / values.length;
    const deviation = Math.sqrt(values.reduce((sum, one) => sum + (one - mean) ** 2, 0) / (values.length - 1));
    const digits = /\.(\d+)/.exec(first)?.[1].length ?? 0;
    return `${mean.toFixed(digits)} ± ${deviation.toFixed(digits)}`;
  }));
}

function grouped(rows) {
  const groups = new Map();
  for (const row of rows) {
    const name = row[0].replace(SEED, "");
    groups.set(name, [...(groups.get(name) ?? []), row]);
  }
  return groups;
}

const plain = (text) => text.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").replace(/\*\*|`/g, "").replace(/\\([\\`*_{}[\]()#+\-.!|<>~])/g, "$1");
