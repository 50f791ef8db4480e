// The runs that are compared: a legend that hides, shows and removes; a search that adds.
import { button, fill, h } from "../../parts/dom.js";
import { lineStyle } from "../../parts/chart.js";
import { when, whole } from "../../parts/format.js";
import { kindName, runLink } from "../home.js";
import { shortNames } from "./curves.js";

const MAX_FOUND = 8;
export const MAX_RUNS = 60;
const WITH_CURVES = ["pretrain", "finetune", "prefer"];

/** The legend: `labels` of lines by run with their places; `tell` is called after a change. */
export function legend(place, { runs, lines, hidden, tell, remove }) {
  const line = (one) => {
    const { color, dash } = { ...lineStyle(one.color), ...(one.dash ? { dash: one.dash } : {}) };
    return h("span", { class: "stroke", "aria-hidden": "true", style: { "border-top": `3px ${dash.length ? (dash[0] > 2 ? "dashed" : "dotted") : "solid"} ${color}` } });
  };
  const name = shortNames(runs);
  const toggle = (id) => { if (hidden.has(id)) hidden.delete(id); else hidden.add(id); tell(); };
  fill(place, h("ul", { class: "chosen", "aria-label": "Runs in the chart" }, runs.map((id) => {
    const own = lines.filter((one) => one.run === id);
    const box = h("input", { type: "checkbox", checked: !hidden.has(id), disabled: !own.length, "aria-label": `Show ${id}`, onchange: () => toggle(id) });
    return h("li", { "data-run": id }, box, own.slice(0, 3).map(line),
      h("a", { href: runLink(id), title: id }, name(id)), own.length > 1 ? h("span", { class: "hint" }, `${own.length} seeds`) : null,
      own.length ? null : h("span", { class: "hint" }, "does not have this"),
      button("×", () => remove(id), { class: "quiet", "aria-label": `Remove ${id}` }));
  })));
}

/** The search for runs to add; `add` is called with the id of one. */
export function runSearch({ all, chosen, add }) {
  const input = h("input", { type: "search", id: "compare-add", placeholder: "Name, model, objective, task or tag", autocomplete: "off", oninput: () => draw() });
  const found = h("ul", { class: "found" });
  const more = h("p", { class: "hint", role: "status" });

  function draw() {
    const ids = new Set(chosen());
    const asked = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = all.filter((run) => !ids.has(run.id) && WITH_CURVES.includes(run.kind)
      && asked.every((word) => [run.id, run.model, run.objective, run.task, ...run.tags].join(" ").toLowerCase().includes(word)));
    const isFull = ids.size >= MAX_RUNS;
    const isQuiet = !asked.length && ids.size > 1; // two are there: only what is looked for is shown
    fill(found, isFull || isQuiet ? null : fits.slice(0, MAX_FOUND).map((run) => h("li", {},
      button(["+ ", run.id], () => { const isKey = document.activeElement?.closest(".found"); add(run.id); draw(); if (isKey) input.focus(); }, { "aria-label": `Add ${run.id}` }),
      h("span", { class: "hint" }, [kindName(run.kind), run.model, ...run.headline.map((one) => `${one.name} ${one.text}`).slice(0, 1), when(run.modified)].filter(Boolean).join(" · ")))));
    more.textContent = isFull ? `${MAX_RUNS} runs are the most that can be compared.` : isQuiet ? "" : fits.length > MAX_FOUND ? `${whole(fits.length - MAX_FOUND)} more; type to find them.`
      : fits.length ? "" : asked.length ? "No other run fits." : "There are no other runs.";
  }
  draw();
  return { element: h("div", { class: "field" }, h("label", { for: "compare-add" }, "Add runs"), input, found, more), draw, focus: () => input.focus() };
}
