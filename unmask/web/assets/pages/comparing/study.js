// A study that was run: its page, as the study writes it, and links to its runs.
import { get, runPath } from "../../parts/api.js";
import { empty, h, table } from "../../parts/dom.js";
import { runLink, stateChip } from "../home.js";

export async function studyPage(id) {
  const [told, { runs }] = await Promise.all([get(runPath(id)), get("/runs")]);
  const { run, card } = told;
  const inside = runs.filter((one) => one.parent === id);
  const trained = inside.filter((one) => one.kind === "pretrain").map((one) => one.id);
  const element = h("div", { class: "study" },
    h("div", { class: "heading" }, h("div", {}, h("h1", {}, run.id), h("p", { class: "row" }, stateChip(run.state), h("span", { class: "hint" }, run.steps ? `${run.step} of ${run.steps} cells` : ""))),
      h("div", { class: "row" },
        trained.length > 1 ? h("a", { class: "button primary", href: `#/compare?${new URLSearchParams(trained.map((one) => ["runs", one]))}` }, "Compare the curves of its cells") : null,
        run.has.includes("report") ? h("a", { class: "button", href: `/api${runPath(id, "report")}`, target: "_blank", rel: "noopener" }, "Open the report") : null,
        h("a", { class: "button", href: runLink(id) }, "Log and settings"))),
    run.notes.map((note) => h("p", { class: "hint" }, note)),
    card ? markdown(card, id) : empty("No table yet", "It is written when the first cell is done.", h("a", { class: "button", href: runLink(id) }, "See how it goes")),
    inside.length ? h("section", {}, h("h2", {}, "Its runs"), table("Runs of the study", ["Run", "State", "Reached"], inside.map((one) =>
      [h("a", { href: runLink(one.id) }, one.id.slice(id.length + 1)), stateChip(one.state), one.headline.map((f) => `${f.name} ${f.text}`).join(", ")]))) : null);
  return { title: run.id, element };
}

/** The parts of Markdown that a study's page has: headings, tables, lists, paragraphs, its plot. */
function markdown(text, id) {
  const blocks = text.trim().split(/\n{2,}/);
  return h("div", { class: "markdown" }, blocks.map((block) => {
    const lines = block.split("\n");
    const heading = /^(#+) (.*)/.exec(lines[0]);
    if (heading) return heading[1].length > 1 ? h("h2", {}, plain(heading[2])) : null; // its name is above
    const image = /^!\[(.*)\]\(([\w.-]+)\)$/.exec(block);
    if (image) return image[2] === "plot.svg" ? h("img", { class: "study-plot", src: `/api${runPath(id, "plot")}`, alt: plain(image[1]) }) : null;
    if (lines[0].startsWith("|")) return markdownTable(lines);
    if (lines.every((line) => line.startsWith("- "))) return h("ul", {}, lines.map((line) => h("li", {}, plain(line.slice(2)))));
    return h("p", {}, plain(lines.join(" ")));
  }));
}

function markdownTable(lines) {
  const cells = (line) => line.replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((one) => plain(one.trim()));
  const marks = cells(lines[1] ?? "");
  const numeric = marks.flatMap((mark, i) => (mark.endsWith(":") ? [i] : []));
  return table("Results of the study", cells(lines[0]), lines.slice(2).map(cells), { numeric });
}

const plain = (text) => text.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").replace(/\*\*|`/g, "").replace(/\\([\\`*_{}[\]()#+\-.!|<>~])/g, "$1");
