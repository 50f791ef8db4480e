// Runs side by side: #/compare?runs=a&runs=b. Studies: below, and #/compare/ID of a study's folder.
import { get, listen } from "../../parts/api.js";
import { chart } from "../../parts/chart.js";
import { empty, fill, h, slowly } from "../../parts/dom.js";
import { measured, percent } from "../../parts/format.js";
import { MAX_RUNS, legend, runSearch } from "./chosen.js";
import { AXES, columnGroups, columnWords, readCurves, smoothed } from "./curves.js";
import { studies } from "./studies.js";
import { comparisonTables } from "./tables.js";

const KEPT = "compare";
const MAX_POINTS_SHOWN = 60;
const MANY_POINTS = 20000; // dashes and wide lines take a second to draw, and are not seen

function readState(query) {
  const kept = query.has("runs") || query.has("study") ? query : new URLSearchParams(sessionStorage.getItem(KEPT) ?? "");
  const axis = kept.get("axis");
  const smooth = Number(kept.get("smooth") ?? 0);
  return {
    runs: [...new Set(kept.getAll("runs"))].slice(0, MAX_RUNS), hidden: new Set(kept.getAll("hidden")),
    part: ["training", "evaluation", "timing"].includes(kept.get("part")) ? kept.get("part") : "training", column: kept.get("column") || "loss",
    axis: axis in AXES ? axis : "step", smooth: smooth >= 0 && smooth < 1 ? smooth : 0, log: kept.get("log") === "1",
  };
}

function addressOf(state) {
  const query = new URLSearchParams(state.runs.map((one) => ["runs", one]));
  for (const id of state.hidden) if (state.runs.includes(id)) query.append("hidden", id);
  if (state.part !== "training") query.set("part", state.part);
  if (state.column !== "loss") query.set("column", state.column);
  if (state.axis !== "step") query.set("axis", state.axis);
  if (state.smooth) query.set("smooth", state.smooth);
  if (state.log) query.set("log", "1");
  return query;
}

export async function page({ rest, query, keepQuery }) {
  if (rest) return (await import("./study.js")).studyPage(rest);
  const state = readState(query);
  let drawn = null; // the chart
  let lines = [];
  let stop = new AbortController();
  let first = state.runs.length ? readCurves(state.runs, state, stop.signal) : null; // asked for beside the list of runs
  first?.catch(() => {});
  const { runs: all } = await get("/runs");
  const known = new Set(all.map((one) => one.id));
  const gone = state.runs.filter((id) => !known.has(id));
  state.runs = state.runs.filter((id) => known.has(id));
  if (gone.length) first = null;

  const plot = h("div", { class: "plot-place" });
  const pointed = h("p", { class: "hint pointed" });
  const names = h("div", {});
  const notes = h("div", { class: "notes" });
  const tables = h("div", {});
  const problem = h("p", { class: "error-line", role: "alert", hidden: true });
  const column = h("select", { id: "compare-column", onchange: () => { [state.part, state.column] = split(column.value); load(); } });
  const axis = h("select", { id: "compare-axis", onchange: () => { state.axis = axis.value; load(); } }, Object.entries(AXES).map(([value, one]) => h("option", { value }, one.name)));
  const smooth = h("input", { type: "range", id: "compare-smooth", min: 0, max: 0.99, step: 0.01, oninput: () => { state.smooth = Number(smooth.value); tellSmooth(); drawSoon(); } });
  const smoothText = h("output", { for: "compare-smooth" });
  const log = h("input", { type: "checkbox", id: "compare-log", checked: state.log, onchange: () => { state.log = log.checked; draw(true); } });
  const search = runSearch({ all, chosen: () => state.runs, add: (id) => { state.runs.push(id); load(); } });
  const chosen = h("div", {});
  const drawSoon = slowly(() => draw(), 30);
  axis.value = state.axis;
  smooth.value = state.smooth;
  const tellSmooth = () => { smoothText.textContent = state.smooth ? percent(state.smooth) : "off"; smooth.setAttribute("aria-valuetext", smoothText.textContent); };
  tellSmooth();

  function drawColumns(columns) {
    const now = `${state.part}:${state.column}`;
    const groups = columnGroups(columns);
    fill(column, groups.map((one) => h("optgroup", { label: one.label }, one.options.map((o) => h("option", { value: o.value }, o.label)))));
    if (!groups.some((one) => one.options.some((o) => o.value === now))) column.append(h("option", { value: now }, columnWords(state.part, state.column)));
    column.value = now;
  }

  function keepAddress() {
    const address = addressOf(state);
    keepQuery(state.runs.length ? address : null);
    sessionStorage.setItem(KEPT, String(address));
  }

  async function load() {
    const early = first;
    first = null;
    if (!early) { stop.abort(); stop = new AbortController(); }
    const { signal } = stop;
    keepAddress();
    drawEmpty();
    search.draw();
    if (!state.runs.length) { lines = []; drawn?.leave(); drawn = null; return; }
    plot.setAttribute("aria-busy", "true");
    try {
      const wanted = [...state.runs];
      const curves = await (early ?? readCurves(wanted, state, signal));
      if (signal.aborted) return;
      const isMuch = curves.reduce((n, one) => n + one.steps.length, 0) > MANY_POINTS;
      const plain = isMuch ? { dash: [], width: 1 } : {};
      lines = curves.map((one, i) => ({ ...one, color: i, points: one.steps.length <= MAX_POINTS_SHOWN, ...plain }));
      draw(true);
      const compared = await get(`/compare?${new URLSearchParams(wanted.map((one) => ["run", one]))}`, { signal });
      if (signal.aborted) return;
      drawColumns(compared.columns);
      fill(notes, compared.notes.map((text) => h("p", { class: "notice" }, text)),
        compared.notes.length ? h("p", { class: "actions" }, h("a", { class: "button", href: "#/finetune" }, "Fine-tune"), h("a", { class: "button", href: "#/command/evaluate" }, "Evaluate")) : null);
      fill(tables, comparisonTables(compared));
      tell(null);
    } catch (error) {
      if (error.name !== "AbortError") tell(error);
    } finally {
      if (!signal.aborted) plot.removeAttribute("aria-busy");
    }
  }

  function tell(error) {
    problem.hidden = !error;
    problem.textContent = error?.line ?? error?.message ?? "";
  }

  /** Draw the lines that are not hidden; `anew`: the axes are others. */
  function draw(anew = false) {
    keepAddress();
    legend(names, { runs: state.runs, lines, hidden: state.hidden, tell: () => draw(), remove });
    const shown = lines.filter((one) => !state.hidden.has(one.run)).map((one) => ({ ...one, values: smoothed(one.values, state.smooth) }));
    if (drawn && !anew) { drawn.update(shown); return; }
    drawn?.leave();
    const x = AXES[state.axis];
    drawn = chart(columnWords(state.part, state.column), shown, { log: state.log, height: innerWidth < 700 ? 280 : 420, x, legend: false,
      onfocus: (line, at, value) => { pointed.textContent = line && value !== null && value !== undefined ? `${line.label}: ${measured(value)} at ${x.label} ${x.text(at)}` : ""; } });
    fill(plot, drawn.element);
  }

  function remove(id) {
    const at = state.runs.indexOf(id);
    state.runs = state.runs.filter((one) => one !== id);
    state.hidden.delete(id);
    load();
    const next = state.runs[Math.min(at, state.runs.length - 1)];
    if (next) { legend(names, { runs: state.runs, lines, hidden: state.hidden, tell: () => draw(), remove }); names.querySelector(`[data-run="${CSS.escape(next)}"] button`)?.focus(); } else search.focus();
  }

  function drawEmpty() {
    body.hidden = tables.hidden = !state.runs.length;
    fill(chosen, state.runs.length ? null : empty("No runs chosen", all.length ? "Choose two or more, by the search or on the page of all runs." : "Train some first: each run is a line in the chart.",
      h("a", { class: "button", href: "#/" }, "All runs"), h("a", { class: "button", href: "#/new" }, "New model")));
  }

  const body = h("div", {},
    h("div", { class: "compare-controls" },
      h("div", { class: "field" }, h("label", { for: "compare-column" }, "Show"), column),
      h("div", { class: "field" }, h("label", { for: "compare-axis" }, "Along"), axis),
      h("div", { class: "field" }, h("div", { class: "row between" }, h("label", { for: "compare-smooth" }, "Smoothing"), smoothText), smooth),
      h("div", { class: "field check" }, h("label", { for: "compare-log" }, log, " Logarithmic"))),
    problem, plot, pointed, names, notes);
  const other = studies({ all });
  const element = h("div", { class: "compare" }, h("div", { class: "heading" }, h("h1", {}, "Compare")),
    gone.length ? h("p", { class: "hint" }, `No longer there: ${gone.join(", ")}.`) : null,
    chosen, body, h("div", { class: "add" }, search.element), tables, other.element);
  drawColumns({});
  load();
  const isOn = () => all.some((one) => state.runs.includes(one.id) && one.state === "running");
  const timer = setInterval(() => { if (isOn() && !document.hidden && !names.contains(document.activeElement)) load(); }, 5000);
  const end = listen("jobs", () => other.look());
  return { element, leave() { stop.abort(); clearInterval(timer); end(); other.leave(); drawn?.leave(); } };
}

const split = (value) => { const at = value.indexOf(":"); return [value.slice(0, at), value.slice(at + 1)]; };
