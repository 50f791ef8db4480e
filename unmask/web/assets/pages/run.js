// One run: its curves as they grow, samples, settings, cost, log; stop, go on, use.
import { get, listen, post, runPath, watch } from "../parts/api.js";
import { chart } from "../parts/chart.js";
import { askText, button, empty, fill, h, say, table } from "../parts/dom.js";
import { download, fileName } from "../parts/download.js";
import { bytes, duration, measured, percent, short, when, whole, words } from "../parts/format.js";
import { deleteRun, kindName, runLink, stateChip } from "./home.js";
import { measuresSection, resultsSection } from "./finetuning/results.js";

const POINTS = 2000;
const SECONDS_BETWEEN_LOOKS = 3;
const TIMINGS = { tokens_per_second: ["Tokens a second", short], matmul_share: ["Share of the machine's peak", percent], memory_bytes: ["Memory", bytes] };

/** The numbers of a run's logs, by seed, with what the stream adds. */
class Numbers {
  constructor(told) {
    this.training = {};
    this.evaluation = {};
    this.timing = {};
    this.offsets = {};
    this.isSampled = Object.values(told.logs).some((one) => one.is_sampled);
    for (const [seed, one] of Object.entries(told.logs)) {
      this.training[seed] = columns(one.training);
      this.evaluation[seed] = columns(one.evaluation);
      this.offsets[seed] = { log: one.offset, timing: 0 };
    }
    for (const [seed, one] of Object.entries(told.timing)) {
      this.timing[seed] = columns(one.training);
      (this.offsets[seed] ??= { log: 0, timing: 0 }).timing = one.offset;
    }
  }

  /** Add lines of a log: {file, lines, restarted} of a seed. */
  add(seed, { file, lines, restarted }) {
    const target = file === "timing.jsonl" ? this.timing : this.training;
    if (restarted) {
      target[seed] = {};
      if (target === this.training) this.evaluation[seed] = {};
    }
    for (const text of lines) {
      let line;
      try { line = JSON.parse(text); } catch { continue; }
      if (!Number.isFinite(line.step)) continue;
      if (line.evaluation) put(this.evaluation[seed] ??= {}, line.step, line.evaluation, "");
      else put(target[seed] ??= {}, line.step, line, "");
    }
  }

  /** Names of the columns of a kind, of all seeds. */
  names(kind) {
    return [...new Set(Object.values(this[kind]).flatMap(Object.keys))];
  }

  /** Lines of a chart, one for each seed that has the column. */
  lines(kind, name, label, more = {}) {
    return Object.entries(this[kind]).filter(([, all]) => all[name]?.steps.length).map(([seed, all]) =>
      ({ label: seed ? `${label}, ${words(seed)}` : label, ...all[name], ...more }));
  }

  last(kind, name) {
    for (const all of Object.values(this[kind])) {
      const values = all[name]?.values ?? [];
      for (let i = values.length - 1; i >= 0; i--) if (values[i] !== null) return values[i];
    }
    return undefined;
  }
}

/** Columns of the server: {name: {steps, values}} */
function columns(told) {
  if (told.thinned) return told.thinned;
  return Object.fromEntries(Object.entries(told.columns).map(([name, values]) => [name, { steps: [...told.steps], values: [...values] }]));
}

function put(target, step, line, prefix) {
  for (const [key, value] of Object.entries(line)) {
    if (value !== null && typeof value === "object") { put(target, step, value, `${prefix}${key}.`); continue; }
    if (key === "step") continue;
    const column = (target[prefix + key] ??= { steps: [], values: [] });
    const number = Number.isFinite(value) ? value : null;
    let at = column.steps.length;
    while (at > 0 && column.steps[at - 1] >= step) at--;
    if (column.steps[at] === step) column.values[at] = number;
    else { column.steps.splice(at, 0, step); column.values.splice(at, 0, number); }
  }
}

const AGAIN = { finetune: "#/finetune", pretrain: "#/new" }; // their forms keep what was typed
const comes = (job) => (["pretrain", "finetune", "prefer"].includes(job.arguments[0]) ? "Its curves are" : "What it writes is");
const isOver = (job) => ["done", "stopped", "failed"].includes(job.state);

/** How a job ended that failed, the way on, where it has begun, and the way back to its form. */
function failed(job, goOn = null) {
  const form = AGAIN[job.arguments[0]] ?? `#/command/${job.arguments[0]}`;
  return h("div", { class: "card" }, h("h3", {}, job.ending), job.last_lines.length ? h("pre", { tabindex: "0" }, job.last_lines.join("\n")) : null,
    h("p", { class: "actions" }, goOn && job.status !== 2 ? button("Go on", goOn, { class: "primary" }) : null, h("a", { class: "button", href: form }, "Change and start again")));
}

/** What a job wrote that is no run: an analysis, predictions, a converted model; and what it said. */
function written(job) {
  const files = h("div", {});
  const said = h("pre", { tabindex: "0", "aria-label": "Output", class: "log", hidden: true });
  const address = (one) => `/api/jobs/${job.id}/file?${new URLSearchParams({ name: one.name })}`;
  get(`/jobs/${job.id}/files`).then((told) => fill(files, told.files.length ? table("Files", ["File", "Size"], told.files.map((one) =>
    [h("a", { href: address(one), ...(/\.(html|svg)$/.test(one.name) ? { target: "_blank", rel: "noopener" } : { download: "" }) }, one.name), bytes(one.bytes)])) : h("p", { class: "hint" }, "It wrote no file.")))
    .catch((error) => fill(files, h("p", { class: "error-line" }, error.line ?? String(error))));
  get(`/jobs/${job.id}/output`).then((told) => { said.textContent = told.text.replace(/[^\n]*\r(?!\n)/g, "").trimEnd(); said.hidden = !said.textContent; }).catch(() => {});
  return [h("section", {}, h("h2", {}, "What it wrote"), files), h("section", {}, h("h2", {}, "Output"), said)];
}

/** The page of a run that has no folder yet: its job waits, begins, or was refused; null: there is no such job. */
async function waitingPage(id) {
  const newest = ({ jobs }) => jobs.find((one) => one.run === id);
  const first = newest(await get("/jobs"));
  if (!first) return null;
  const place = h("div", { role: "status" });
  const doing = h("p", { class: "hint" });
  function draw(job) {
    if (!job) return fill(place, empty("The job was removed", "It had not begun.", h("a", { class: "button", href: "#/" }, "All runs")));
    return fill(place, h("p", { class: "row" }, stateChip(job.state)), job.state === "failed" ? failed(job) : job.state === "done" ? written(job)
      : isOver(job) ? empty("It was stopped before it began", "Nothing was written.", button("Go on", () => post(`/jobs/${job.id}/resume`)))
        : h("p", { class: "lead" }, job.state === "waiting" ? ["It waits until other ", h("a", { href: "#/jobs" }, "jobs"), ` are done. ${comes(job)} shown here as soon as it runs.`] : `It begins: the model is opened and the data are read. ${comes(job)} shown here in a moment.`),
    doing,
    isOver(job) || !job ? null : button("Stop", () => post(`/jobs/${job.id}/stop`)),
    h("section", {}, h("h2", {}, "Command line"), h("pre", { tabindex: "0" }, job.command_line)));
  }
  let isDone = false;
  async function look(told) {
    const job = newest(told ?? await get("/jobs"));
    const key = JSON.stringify(job ?? null);
    if (key !== place.dataset.shown) { place.dataset.shown = key; draw(job); }
    if (!job || isDone || job.state === "waiting") return;
    const { text } = await get(`/jobs/${job.id}/output?after=0`);
    doing.textContent = isOver(job) ? "" : text.trimEnd().split(/[\r\n]/).at(-1);
    await get(runPath(id)); // not there: try again later
    if (isDone) return;
    isDone = true;
    dispatchEvent(new HashChangeEvent("hashchange"));
  }
  const end = listen("jobs", (told) => look(told).catch(() => {}));
  const timer = setInterval(() => look().catch(() => {}), 1000 * SECONDS_BETWEEN_LOOKS);
  draw(first);
  return { element: h("div", {}, h("div", { class: "heading" }, h("h1", {}, id)), place), title: id, leave() { isDone = true; end(); clearInterval(timer); } };
}

export async function page({ rest: id }) {
  let told;
  try {
    told = await get(runPath(id));
  } catch (error) {
    const waiting = error.status === 404 ? await waitingPage(id) : null;
    if (!waiting) throw error;
    return waiting;
  }
  if (["study", "suite"].includes(told.run.kind) && location.hash === runLink(id)) { // its table and plot are what it is for
    location.replace(runLink(id, "compare"));
    return { element: h("p", { class: "hint" }, "Its table …") };
  }
  const numbers = new Numbers(await get(runPath(id, "series", { points: POINTS })));
  const endings = [];
  const head = h("div", {});
  const charts = new Map();
  const plots = h("div", { class: "columns charts" });
  const hasCells = ["study", "suite"].includes(told.run.kind); // its runs have the curves
  const events = h("ul", { class: "hint" });

  function drawHead() {
    const run = told.run;
    const step = numbers.last("training", "step") ?? run.step;
    const isOn = run.state === "running";
    document.title = `${run.id} · Unmask`;
    const focused = head.contains(document.activeElement) ? document.activeElement.textContent : null;
    fill(head,
      h("div", { class: "heading" }, h("div", {}, h("h1", {}, run.id), h("p", { class: "row" }, stateChip(run.state), h("span", { class: "hint" },
        [kindName(run.kind), run.model, run.task, run.state === "running" ? "" : when(run.modified)].filter(Boolean).join(" · ")), run.parent ? h("a", { href: runLink(run.parent) }, `in ${run.parent}`) : null, run.tags.map((tag) => h("span", { class: "chip" }, tag)))),
        h("div", { class: "row" }, actions(run))),
      isOn && run.steps ? h("progress", { max: run.steps, value: Math.max(run.step, step), "aria-label": "Steps" }) : null,
      h("div", { class: "figures" }, figures(run)),
      run.notes.map((note) => h("p", { class: "hint" }, note)),
      failure());
    if (focused) [...head.querySelectorAll("a, button")].find((one) => one.textContent === focused)?.focus({ preventScroll: true });
  }

  function figures(run) {
    const found = run.headline.map((one) => [one.name, one.text]);
    const loss = numbers.last("training", "loss");
    if (loss !== undefined && !run.headline.length) found.push(["Loss", measured(loss)]);
    if (run.step && !hasCells) found.push(["Steps", run.steps ? `${whole(run.step)} of ${whole(run.steps)}` : whole(run.step)]);
    if (run.seconds) found.push(["Time", duration(run.seconds)]);
    const speed = numbers.last("timing", "tokens_per_second");
    if (speed) found.push(["Tokens a second", short(speed)]);
    if (run.state === "running" && speed && run.steps > run.step && run.seconds) found.push(["Left", duration((run.seconds / Math.max(run.step, 1)) * (run.steps - run.step))]);
    const parameters = told.record?.parameters;
    if (parameters) found.push(["Parameters", short(parameters)]);
    return found.map(([name, text]) => h("div", {}, h("p", { class: "label" }, name), h("p", { class: "big" }, text)));
  }

  function actions(run) {
    const link = (name, label) => h("a", { class: "button", href: runLink(run.id, name) }, label);
    if (["running", "queued"].includes(run.state)) return [button("Stop", async () => { await post(runPath(id, "stop")); say("It finishes its step and saves."); await look(); })];
    const hasModel = run.has.includes("model");
    return [
      run.state !== "finished" && !canGoOnBelow() && (["pretrain", "finetune", "prefer"].includes(run.kind) || told.jobs.length) ? button("Go on", resume, { class: "primary" }) : null,
      run.state === "finished" && run.kind === "pretrain" && hasModel && !hasEpochs() ? h("a", { class: "button", href: `#/new?${new URLSearchParams({ again: run.id, from: run.id })}`, title: "A new run that begins with these weights" }, "Train further") : null,
      hasCells ? link("compare", "Table and runs") : null,
      hasModel ? link("try", "Try") : null,
      hasModel ? h("a", { class: "button", href: `#/finetune/${encodeURIComponent(run.id)}` }, "Fine-tune") : null,
      hasModel ? link("export", "Export") : null,
      run.kind === "pretrain" ? h("a", { class: "button", href: `#/new?${new URLSearchParams({ again: run.id })}` }, "Again with changes") : null,
      h("a", { class: "button", href: `#/compare?${new URLSearchParams({ runs: run.id })}` }, "Compare"),
      button("Tags", editTags),
      button("Rename", rename),
      button("Delete", () => deleteRun(run.id, () => { location.hash = "#/"; }), { class: "quiet" }),
    ];
  }

  async function resume() {
    await post(runPath(id, "resume"));
    say("It goes on as soon as its state is read.");
    await look();
  }

  /** Whether it is trained for whole passes over its text, as word vectors are. */
  const hasEpochs = () => told.record?.recipe?.objective?.epochs !== undefined || told.samples?.some((one) => one.kind?.toLowerCase() === "near");

  async function editTags() {
    const answer = await askText("Tags", "Separated by commas.", told.run.tags.join(", "));
    if (answer === null) return;
    await post(runPath(id, "tags"), { tags: answer.split(",").map((one) => one.trim()).filter(Boolean) });
    await look();
  }

  async function rename() {
    const answer = await askText("New name", "Letters, digits, spaces and - _ .", told.run.title);
    if (answer === null || answer === told.run.title) return;
    const { run } = await post(runPath(id, "rename"), { name: answer });
    location.hash = runLink(run);
  }

  const failure = () => (told.jobs[0]?.state === "failed" ? failed(told.jobs[0], resume) : null);
  const canGoOnBelow = () => told.jobs[0]?.state === "failed" && told.jobs[0].status !== 2;

  function setChart(key, title, all, options = {}) {
    const lines = all.filter((one) => one.values.some(Number.isFinite));
    if (!lines.length) return;
    if (charts.has(key)) charts.get(key).update(lines);
    else {
      const made = chart(title, lines, options);
      charts.set(key, made);
      plots.append(made.element);
      endings.push(made.leave);
    }
  }

  function drawCharts() {
    const training = numbers.names("training");
    const held = numbers.names("evaluation");
    setChart("loss", "Loss", [...numbers.lines("training", "loss", "training"), ...numbers.lines("evaluation", "loss", "held out", { points: true, width: 2 })]);
    const parts = training.filter((one) => one.startsWith("parts."));
    if (parts.length > 1) setChart("parts", "Parts of the loss", parts.flatMap((one) => numbers.lines("training", one, words(one.slice(6)))));
    setChart("accuracy", "Accuracy", [
      ...training.filter((one) => one.startsWith("accuracy.")).flatMap((one) => numbers.lines("training", one, `training ${words(one.slice(9))}`)),
      ...held.filter((one) => /(^|_)accuracy$/.test(one)).flatMap((one) => numbers.lines("evaluation", one, `held out ${words(one.replace(/_?accuracy$/, ""))}`.trim(), { points: true, width: 2 })),
    ], { format: percent });
    for (const one of training.filter((name) => name.startsWith("measures."))) {
      const name = one.slice(9);
      setChart(one, sentence(name), [...numbers.lines("training", one, "training"), ...numbers.lines("evaluation", name, "held out", { points: true, width: 2 })]);
    }
    for (const name of held.filter((one) => !/loss$|accuracy|asked$|_low$|_high$/.test(one) && !training.includes(`measures.${one}`))) {
      setChart(`held.${name}`, `${told.metrics?.[name]?.name ?? sentence(name)}, held out`, numbers.lines("evaluation", name, words(name), { points: true, width: 2 }));
    }
    setChart("rate", "Learning rate", numbers.lines("training", "rate", "learning rate"));
    setChart("norm", "Gradient norm", numbers.lines("training", "gradient_norm", "gradient norm"));
    for (const [name, [title, format]] of Object.entries(TIMINGS)) setChart(name, title, numbers.lines("timing", name, title.toLowerCase()), { format });
    if (!charts.size) fill(plots, told.run.kind === "model" ? h("p", { class: "hint" }, told.jobs.length ? "It has no curves: the command below made it of another model." : "A model that was put here: how it was trained is not known.") : empty("No numbers yet", "The first are written after some steps.", doing));
    else plots.querySelector(".empty")?.remove();
  }

  function drawEvents() {
    const found = numbers.isSampled ? ["The log is very long: the curves show samples of its lines."] : [];
    for (const [seed, all] of Object.entries(numbers.training)) {
      const skipped = all.skipped?.values ?? [];
      const last = skipped.filter((one) => one !== null).at(-1);
      if (last) found.push(`${seed ? `${words(seed)}: ` : ""}${last} steps were skipped: their gradient was not finite`);
    }
    fill(events, found.map((text) => h("li", {}, text)));
  }

  let job = null;
  const doing = h("span", { class: "hint", role: "status" });
  const output = h("pre", { tabindex: "0", "aria-label": "Output", class: "log" });
  let read = 0;
  async function readOutput() {
    const newest = told.jobs[0];
    if (!newest) return;
    if (job !== newest.id) { job = newest.id; read = 0; output.textContent = ""; }
    const piece = await get(`/jobs/${job}/output?after=${read}`);
    read = piece.offset;
    if (!piece.text) return;
    const isAtEnd = output.scrollTop + output.clientHeight >= output.scrollHeight - 8;
    output.append(piece.text.replace(/[^\n]*\r(?!\n)/g, ""));
    if (isAtEnd) output.scrollTop = output.scrollHeight;
    doing.textContent = output.textContent.trimEnd().split("\n").at(-1);
  }

  async function look() {
    told = await get(runPath(id));
    drawHead();
    drawSides();
    await readOutput();
  }
  const lookSoon = (() => { let timer = null; return () => { clearTimeout(timer); timer = setTimeout(() => look().catch(() => {}), 300); }; })();

  const results = h("div", {});
  let shownResults = "null";
  let leaveResults = () => {};
  endings.push(() => leaveResults());
  const sides = h("div", {});
  let shownSides = "";
  const samples = h("div", {});
  let shownSamples = "";
  const cited = citedRecipe(told);
  function drawSides() {
    const text = JSON.stringify(told.results ?? null);
    if (text !== shownResults) { // else what was chosen in it stays
      shownResults = text;
      leaveResults();
      const made = told.results ? resultsSection(told.results, { id, record: told.record, job: told.jobs.at(-1) ?? null, metrics: told.metrics }) : null;
      leaveResults = made?.leave ?? (() => {});
      fill(results, made?.element);
    }
    const texts = JSON.stringify([told.samples, told.run.state === "running"]);
    if (texts !== shownSamples) {
      shownSamples = texts;
      fill(samples, told.samples?.length ? h("section", {}, h("h2", {}, told.run.state === "running" ? "Samples, so far" : "Samples"), h("div", { class: "stack" }, told.samples.map(sample))) : null);
    }
    const now = JSON.stringify([told.record, told.card, told.jobs[0]?.command_line]);
    if (now === shownSides) return; // else what was opened would close
    shownSides = now;
    fill(sides,
      measuresSection(told.measures),
      hasCells ? null : h("section", {}, h("h2", {}, "Settings"), settings(told.record)),
      told.card ? h("section", {}, h("details", {}, h("summary", {}, "Model card"), h("pre", { tabindex: "0" }, told.card))) : null,
      told.jobs.length ? h("section", {}, h("h2", {}, "Output"), told.jobs[0] ? h("pre", { tabindex: "0" }, told.jobs[0].command_line) : null, cited, output) : null);
  }

  drawHead();
  drawCharts();
  drawEvents();
  drawSides();
  await readOutput();
  const seeds = Object.keys(numbers.offsets);
  const seedId = (seed) => (seed ? `${id}/${seed}` : id);
  const watched = seeds.length ? seeds.map((seed) => ({ id: seedId(seed), ...numbers.offsets[seed] })) : [{ id }];
  watch(watched);
  let isDrawn = true;
  endings.push(
    listen("log", (event) => {
      const seed = event.run === id ? "" : event.run.slice(id.length + 1);
      numbers.add(seed, event);
      if (!isDrawn) return;
      isDrawn = false;
      requestAnimationFrame(() => { isDrawn = true; drawCharts(); drawEvents(); });
      lookSoon();
    }),
    listen("state", lookSoon),
    listen("jobs", lookSoon),
    () => watch([]),
    everySeconds(SECONDS_BETWEEN_LOOKS, () => { if (told.run.state === "running") lookSoon(); }),
  );
  const report = told.run.has.includes("report") ? h("a", { href: `/api${runPath(id, "report")}`, target: "_blank", rel: "noopener" }, "Open the report") : null;
  const element = h("div", {}, head, results, hasCells ? null : h("section", {}, h("div", { class: "heading" }, h("h2", {}, "Curves"), report), plots, events), samples, sides);
  return { element, title: id, leave() { for (const end of endings) end(); } };
}

/** Do something again and again; returns what ends it. */
function everySeconds(n, act) {
  const timer = setInterval(act, 1000 * n);
  return () => clearInterval(timer);
}

const sentence = (name) => { const text = words(name).replace(/\bf1\b/, "F1"); return text.charAt(0).toUpperCase() + text.slice(1); };

/** A sample as the report shows it: blanks filled, texts continued, neighbors. */
function sample(one) {
  const kind = String(one.kind ?? "").toLowerCase();
  if (kind === "fill") {
    return h("div", { class: "card" }, h("p", { class: "text" }, one.text), (one.after?.length ? one.after : one.before ?? []).map((blank, i) =>
      h("p", { class: "hint" }, `${one.answers?.[i] ? `“${one.answers[i]}” stood here. ` : ""}${one.after?.length ? "Now" : "Before training"}: `, blank.map(([word, p]) => h("span", { class: "chip" }, p === null ? word : `${word} ${percent(p)}`)),
        one.after?.length && one.before?.[i] ? [" Before: ", one.before[i].slice(0, 3).map(([word]) => h("span", { class: "chip" }, word))] : null)));
  }
  if (kind === "generate") {
    return h("div", { class: "card" }, h("p", { class: "label" }, one.prompt), one.after ? null : h("p", { class: "hint" }, "Before training:"), h("p", { class: "text" }, one.after || one.before), one.before && one.after ? h("details", {}, h("summary", {}, "Before training"), h("p", { class: "text" }, one.before)) : null, one.settings ? h("p", { class: "hint" }, one.settings) : null);
  }
  if (kind === "near") return h("div", { class: "card" }, h("h3", {}, one.word), h("p", {}, (one.neighbors ?? []).map(([word, cosine]) => h("span", { class: "chip" }, `${word} ${measured(cosine)}`))));
  if (kind === "picture") return h("div", { class: "card" }, h("h3", {}, one.name), h("div", { class: "row" }, (one.panels ?? []).map(([title, data]) => h("figure", {}, h("img", { src: `data:image/png;base64,${data}`, alt: title }), h("figcaption", { class: "hint" }, title)))), (one.lines ?? []).map((text) => h("p", {}, text)));
  return null;
}

/** The command with which a run began and its recipe as TOML, to be cited; null: it was begun in a terminal. */
function citedRecipe({ jobs, run }) {
  const begun = jobs.find((one) => !one.arguments.includes("--resume")); // the newest comes first
  if (!begun || run.kind !== "pretrain") return null;
  const code = h("code", {}, "…");
  const element = h("details", {}, h("summary", {}, "Command and recipe to cite"), h("p", { class: "hint" }, begun.command_line), h("div", { class: "copy" }, h("pre", { tabindex: "0", "aria-label": "Recipe" }, code),
    button("Copy", async () => navigator.clipboard.writeText(code.textContent), { "aria-label": "Copy the recipe" })), button("Download TOML", () => download(fileName(run.title, "toml"), "application/toml", code.textContent), { class: "quiet" }));
  element.addEventListener("toggle", async () => {
    try {
      code.textContent = (await post("/recipe", await get(`/jobs/${begun.id}/values`))).recipe;
    } catch (error) {
      code.textContent = error.line ?? String(error);
    }
  });
  return element;
}

/** The settings of a run, flattened, those that matter least folded away. */
function settings(record) {
  if (!record) return h("p", { class: "hint" }, "They are not known.");
  const rows = flat(record.recipe ?? record);
  const filter = h("input", { type: "search", placeholder: "Filter settings", "aria-label": "Filter settings", oninput: () => draw() });
  const place = h("div", {});
  const draw = () => fill(place, table("Settings", ["setting", "value"], rows.filter(([key]) => key.includes(filter.value)).slice(0, 400)));
  draw();
  return h("details", {}, h("summary", {}, `${rows.length} settings`), filter, place);
}

function flat(value, prefix = "") {
  if (value === null || typeof value !== "object") return [[prefix, String(value)]];
  if (Array.isArray(value)) return value.every((one) => one === null || typeof one !== "object") ? [[prefix, value.join(", ")]] : value.flatMap((one, i) => flat(one, `${prefix}[${i}]`));
  return Object.entries(value).filter(([key]) => key !== "kind" || !prefix).flatMap(([key, one]) => (key === "kind" ? [] : flat(one, prefix ? `${prefix}.${key}` : key)));
}
