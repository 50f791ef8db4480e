// All runs: those that run first, with their curves, what each learned, filters and tags.
import { del, get, listen, post, runPath } from "../parts/api.js";
import { spark } from "../parts/chart.js";
import { askText, button, empty, fill, h, say, slowly } from "../parts/dom.js";
import { duration, when, whole } from "../parts/format.js";

const SECONDS_BETWEEN_LOOKS = 5;
const FIRST_SHOWN = 60;
const KINDS = { pretrain: "pretraining", finetune: "fine-tuning", prefer: "preferences", study: "study", suite: "suite", model: "model" };

export const kindName = (kind) => KINDS[kind] ?? kind;
export const runLink = (id, name = "run") => `#/${name}/${id.split("/").map(encodeURIComponent).join("/")}`;
export const stateChip = (state) => h("span", { class: `chip ${state}` }, state);

/** Delete a run, with a message that takes it back. */
export async function deleteRun(id, after) {
  const told = await del(runPath(id));
  say(`${id} was deleted.`, { undo: async () => { await post("/trash/restore", { item: told.item }); after(); } });
  after();
}

export async function page({ query, keepQuery }) {
  let shown = Number(query.get("shown")) || FIRST_SHOWN;
  let runs = (await get("/runs")).runs;
  const search = h("input", { type: "search", placeholder: "Name, model, objective, task or tag", "aria-label": "Filter runs", value: query.get("text") ?? "", oninput: slowly(() => draw(), 120) });
  const kind = h("select", { "aria-label": "Kind of run", onchange: () => draw() });
  const state = h("select", { "aria-label": "State of run", onchange: () => draw() });
  const inner = h("input", { type: "checkbox", checked: query.has("inner"), onchange: () => draw() });
  const innerText = h("span", {});
  const innerField = h("div", { class: "check", hidden: true }, h("label", {}, inner, " ", innerText));
  const list = h("div", {});
  const picked = new Set(query.getAll("runs"));
  const compare = h("div", { class: "row", hidden: true });

  /** Filters and chosen runs are part of the address, so that Back and Reload have them again. */
  function keep() {
    const named = { text: search.value, kind: kind.value, state: state.value, inner: inner.checked ? "1" : "", shown: shown > FIRST_SHOWN ? shown : "" };
    keepQuery(new URLSearchParams([...Object.entries(named).filter(([, value]) => value), ...[...picked].map((id) => ["runs", id])]));
  }

  function options(select, first, values, now = select.value) {
    fill(select, h("option", { value: "" }, first), values.map((one) => h("option", { value: one }, kindName(one))));
    select.value = values.includes(now) ? now : "";
  }

  function fits(run) {
    if (kind.value && run.kind !== kind.value) return false;
    if (state.value && run.state !== state.value) return false;
    const text = [run.id, run.model, run.objective, run.task, ...run.tags].join(" ").toLowerCase();
    return search.value.toLowerCase().split(/\s+/).every((word) => text.includes(word));
  }

  const curves = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) { curves.unobserve(entry.target); loadCurve(entry.target); }
  });

  async function loadCurve(place) {
    try {
      const told = await get(runPath(place.dataset.run, "curve"));
      if (told.steps.length > 1) fill(place, spark(told.steps, told.values, `${told.label} of ${place.dataset.run}`), h("span", { class: "hint" }, told.label));
    } catch { /* a run that was removed meanwhile has no curve */ }
  }

  function card(run) {
    const place = h("div", { "data-run": run.id });
    if (["pretrain", "finetune", "prefer"].includes(run.kind)) curves.observe(place);
    const progress = run.state === "running" && run.steps ? h("progress", { max: run.steps, value: run.step, "aria-label": `Steps of ${run.id}` }) : null;
    const box = h("input", { type: "checkbox", "aria-label": `Choose ${run.id} to compare`, checked: picked.has(run.id),
      onchange: () => { if (box.checked) picked.add(run.id); else picked.delete(run.id); drawCompare(); } });
    return h("article", { class: "card" },
      h("div", { class: "row" }, box, h("h3", {}, h("a", { href: runLink(run.id) }, run.id)), stateChip(run.state)),
      h("p", { class: "hint" }, [kindName(run.kind), run.model, run.objective, run.task].filter(Boolean).join(" · ")),
      place, progress,
      run.headline.length ? h("dl", { class: "facts" }, run.headline.map((one) => [h("dt", {}, one.name), h("dd", {}, h("strong", {}, one.text))])) : null,
      h("p", { class: "hint" }, [run.kind === "study" ? null : run.steps ? `${whole(run.step)} of ${whole(run.steps)} ${run.kind === "suite" ? "tasks" : "steps"}` : run.step ? `${whole(run.step)} steps` : null,
        run.seconds ? duration(run.seconds) : null, when(run.modified)].filter(Boolean).join(" · ")),
      run.tags.length ? h("p", { class: "row" }, run.tags.map((tag) => h("span", { class: "chip" }, tag))) : null,
      run.notes.length ? h("p", { class: "hint" }, run.notes[0]) : null,
      run.n_runs ? h("p", { class: "hint" }, `${whole(run.n_runs)} runs in it`) : null);
  }

  function drawCompare() {
    const known = new Map(runs.map((one) => [one.id, one]));
    for (const id of picked) if (!known.has(id)) picked.delete(id);
    keep();
    compare.hidden = picked.size === 0;
    const compared = new URLSearchParams([...picked].map((id) => ["runs", id]));
    const isOn = [...picked].some((id) => ["running", "queued"].includes(known.get(id).state));
    fill(compare, h("a", { class: "button primary", href: `#/compare?${compared}` }, `Compare ${picked.size}`),
      button("Tag", tagPicked), button("Delete", deletePicked, { disabled: isOn, title: isOn ? "One of them is still running or waiting." : null }),
      button("Clear", () => { picked.clear(); draw(); drawCompare(); }));
  }

  async function tagPicked() {
    const answer = await askText("Add tags", `To ${picked.size} ${picked.size === 1 ? "run" : "runs"}; separated by commas.`, "");
    const added = (answer ?? "").split(",").map((one) => one.trim()).filter(Boolean);
    if (!added.length) return;
    for (const one of runs.filter((run) => picked.has(run.id))) {
      await post(runPath(one.id, "tags"), { tags: [...new Set([...one.tags, ...added])] });
    }
    await look(true);
  }

  async function deletePicked() {
    const items = [];
    try {
      for (const id of [...picked]) {
        items.push((await del(runPath(id))).item);
        picked.delete(id);
      }
    } finally {
      if (items.length) {
        say(`${items.length} ${items.length === 1 ? "run was" : "runs were"} deleted.`, { undo: async () => {
          for (const item of items) await post("/trash/restore", { item });
          await look(true);
        } });
      }
      await look(true);
    }
  }

  function draw() {
    keep();
    options(kind, "every kind", [...new Set(runs.map((one) => one.kind))].sort());
    options(state, "every state", [...new Set(runs.map((one) => one.state))].sort());
    if (!runs.length) {
      fill(list, empty("No runs yet", "Train a model of your own text, or start with the bundled one.",
        h("a", { class: "button primary", href: "#/new" }, "New model"), h("a", { class: "button", href: "#/finetune" }, "Fine-tune"), h("a", { class: "button", href: "#/try/unmask-mini-en" }, "Try the bundled model"), h("a", { class: "button", href: "#/teach" }, "See what models read")));
      return;
    }
    const nInner = runs.filter((one) => one.parent).length;
    innerField.hidden = nInner === 0;
    innerText.textContent = `also the ${whole(nInner)} ${nInner === 1 ? "run" : "runs"} of studies and suites`;
    const listed = inner.checked ? runs : runs.filter((one) => !one.parent);
    const found = listed.filter(fits);
    const isAll = found.every((one) => picked.has(one.id));
    const all = found.length > 1 && !isAll ? button(`Choose ${found.length === 2 ? "both" : `all ${whole(found.length)}`}`, () => { for (const one of found) picked.add(one.id); draw(); drawCompare(); compare.querySelector("a")?.focus(); }, { class: "quiet" }) : null;
    fill(list, h("div", { class: "row" }, h("p", { class: "hint", role: "status" }, found.length === listed.length ? listed.length === 1 ? "1 run" : `${whole(listed.length)} runs` : `${whole(found.length)} of ${whole(listed.length)} runs`), innerField, all),
      found.length ? h("div", { class: "grid" }, found.slice(0, shown).map(card)) : empty("No run fits", "Change the filter.", button("Show all", () => { search.value = kind.value = state.value = ""; draw(); })),
      found.length > shown ? h("p", { class: "actions" }, button(`Show ${whole(Math.min(found.length - shown, 240))} more`, () => { shown += 240; draw(); })) : null);
  }

  let before = runs;
  async function look(anew = false) {
    const told = await get("/runs");
    if (told.runs === before && !anew) return; // not changed: the very same object
    before = runs = told.runs;
    if (anew || !list.contains(document.activeElement)) draw();
    if (anew || (picked.size && !compare.contains(document.activeElement))) drawCompare();
  }
  const timer = setInterval(() => look().catch(() => {}), 1000 * SECONDS_BETWEEN_LOOKS);
  const end = listen("jobs", () => look().catch(() => {}));
  options(kind, "", [query.get("kind") ?? ""], query.get("kind") ?? "");
  options(state, "", [query.get("state") ?? ""], query.get("state") ?? "");
  draw();
  drawCompare();
  const element = h("div", {},
    h("div", { class: "heading" }, h("h1", {}, "Runs"), h("div", { class: "row" }, h("a", { class: "button primary", href: "#/new" }, "New model"), h("a", { class: "button", href: "#/finetune" }, "Fine-tune"))),
    h("div", { class: "row filters" }, search, kind, state, compare), list);
  return { element, leave() { clearInterval(timer); end(); curves.disconnect(); } };
}
