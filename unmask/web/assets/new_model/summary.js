// What the run will be: parameters, memory, time, energy; the command and the recipe; Start.
import { get, post } from "../parts/api.js";
import { button, fill, h } from "../parts/dom.js";
import { commandLine, field } from "../parts/form.js";
import { bytes, numberOf, short, whole } from "../parts/format.js";
import { runLink } from "../pages/home.js";
import { live, optionCheck } from "./live.js";
import { about } from "./model.js";
import { commandValues, planArguments } from "./state.js";

const UNITS = { minutes: "minutes", steps: "steps", tokens: "tokens" };
/** Seconds for a million words and a pass over them at a width of 100, as measured on one core of an AMD EPYC. */
const VECTOR_SECONDS = { "word2vec-skipgram": 8, "word2vec-cbow": 2, fasttext: 6, glove: 3, "svd-ppmi": 8, lsa: 1 };
const VECTOR_START = 10; // seconds until the first pass begins, and those of reading a million words
const READING = 3;
const PLAUSIBLE = { minutes: [0, 120], steps: [10, Infinity], tokens: [10_000, Infinity] };
const USUAL = { minutes: "10", steps: "1000", tokens: "5000000" };

/** How long, and under which name. */
export function lengthSection(state, { choices }) {
  const { now } = state;
  const length = field({ name: "length", flag: "length", kind: "number", help: "" }, { label: "Length", onchange: () => state.change({ length: length.input.value }) });
  const unit = h("select", { "aria-label": "Unit of the length", onchange: () => {
    const [least, most] = PLAUSIBLE[unit.value];
    const isPlausible = numberOf(now.length) >= least && numberOf(now.length) <= most;
    const length_ = Object.values(USUAL).includes(now.length) || !isPlausible ? USUAL[unit.value] : now.length; // of 300 steps, not 300 minutes
    state.change({ unit: unit.value, length: length_ });
  } }, Object.entries(UNITS).map(([value, label]) => h("option", { value }, label)));
  const joined = h("div", { class: "joined" });
  length.input.replaceWith(joined);
  joined.append(length.input, unit);
  const name = field({ name: "out", flag: "--out", kind: "text", required: true, help: "Name of the run, and of its folder." }, { label: "Name", onchange: () => state.change({ out: name.input.value, isNamed: name.input.value.trim() !== "" }) });
  const epochs = h("p", { class: "hint" }, "Word vectors are trained for whole passes over the text: set the epochs above, where the method has them.");
  const hint = length.element.querySelector(".hint");

  function draw() {
    const hasEpochs = Boolean(choices()?.has_epochs);
    length.element.hidden = hasEpochs;
    epochs.hidden = !hasEpochs;
    if (document.activeElement !== length.input) length.set(now.length);
    unit.value = now.unit;
    if (document.activeElement !== name.input) name.set(now.out);
    hint.textContent = { minutes: "The number of steps is measured at the start, and fixed.", steps: "Steps of the optimizer.", tokens: "Tokens that are read, padding included." }[now.unit];
  }

  /** Suggest a name that no run has. */
  async function suggest() {
    if (now.isNamed) return;
    const [{ runs }, { jobs }] = await Promise.all([get("/runs"), get("/jobs")]);
    const taken = new Set([...runs.map((one) => one.id), ...jobs.map((one) => one.run)]);
    if (now.isNamed) return;
    const base = [now.model.replace(/-mini$/, ""), now.objective].filter(Boolean).join("-");
    let free = base;
    for (let i = 2; taken.has(free); i += 1) free = `${base}-${i}`;
    state.change({ out: free });
  }

  state.listen((changed) => {
    draw();
    if (["model", "objective", "isNamed"].some((key) => changed.has(key))) suggest().catch(() => {});
  });
  draw();
  const element = h("section", { id: "length" }, h("h2", {}, "Length and name"), h("div", { class: "grid fields" }, h("div", {}, length.element, epochs), name.element));
  return { element, draw, start: () => suggest().catch(() => {}), length, name };
}

/** The column beside the form; `refuse(error)` shows an error beside its field, and tells whether. */
export function summary(state, { choices, words: counted, more, refuse, isReady, suggest }) {
  const { now } = state;
  const figures = h("dl", { class: "figures", "aria-live": "polite" });
  const note = h("div", {});
  const problem = h("p", { class: "error-line", role: "alert" });
  const line = commandLine("pretrain");
  const recipe = h("code", {});
  const missing = h("p", { class: "hint" }, "It is shown here once there is a text.");
  const texts = h("div", {}, line.element,
    h("details", {}, h("summary", {}, "As a recipe (TOML)"), h("div", { class: "copy" }, h("pre", { tabindex: "0", "aria-label": "Recipe" }, recipe),
      button("Copy", async () => navigator.clipboard.writeText(recipe.textContent), { "aria-label": "Copy the recipe" }))));
  const started = h("p", { role: "status" });
  let failure = null; // of the plan
  let problemOf = null; // of the options
  let planned = null; // of what was planned last

  const plan = live((question, signal) => post("/call/plan", question, { signal }), {
    show(found) {
      failure = null;
      refuse(problemOf);
      planned = found;
      drawPlan(found);
    },
    fail(error) {
      planned = null;
      failure = error.status === 400 ? error : null;
      drawUnknown();
      if (!refuse(problemOf ?? error)) fill(note, h("p", { class: "error-line" }, error.line ?? String(error)));
    },
    busy(is) {
      figures.setAttribute("aria-busy", is ? "true" : "false");
      if (is && !figures.hasChildNodes()) fill(note, h("p", { class: "hint" }, "Computing the cost; this machine is measured first …"));
    },
  });
  const check = optionCheck("pretrain", (found) => {
    problemOf = found;
    refuse(found ?? failure);
  });
  const toml = live((question, signal) => post("/recipe", question, { signal }), {
    show(found) { recipe.textContent = found.recipe; },
    fail(error) { recipe.textContent = error.line ?? String(error); },
    wait: 150,
  });

  const figure = (name, value, hint) => h("div", {}, h("dt", { class: "hint" }, name), h("dd", {}, h("span", { class: "big" }, value), hint ? h("span", { class: "hint block" }, hint) : null));

  function drawPlan(found) {
    const ofMinutes = now.unit === "minutes" && now.length.trim() && !choices()?.has_epochs ? numberOf(now.length) ?? NaN : null;
    if (ofMinutes !== null && !(ofMinutes > 0)) { fill(figures, figure("Parameters", short(found.parameters)), figure("Memory", bytes(found.memory_bytes.total))); fill(note); return; }
    const seconds = ofMinutes ? 60 * ofMinutes : found.seconds;
    const share = seconds / found.seconds;
    const tokens = found.tokens * share;
    const kwh = found.energy.kwh === null ? null : found.energy.kwh * share;
    fill(figures, figure("Parameters", short(found.parameters), "numbers that it learns"),
      figure("Memory", bytes(found.memory_bytes.total), found.fits ? "while it learns" : `more than the ${bytes(found.hardware.memory_bytes)} here`),
      figure("Time", about(seconds), `${short(found.tokens_per_second)} tokens a second`),
      figure("Reads", `${short(tokens)} tokens`, `pieces of words; ${whole(found.steps * share)} steps of ${whole(found.batch_tokens)}`),
      kwh === null ? null : figure("Energy", kwh < 1 ? `${Number((1000 * kwh).toPrecision(2))} Wh` : `${Number(kwh.toPrecision(3))} kWh`, `at ${whole(found.energy.watts)} W`));
    fill(note, found.fits ? null : h("p", { class: "notice" }, "It does not fit into the memory: make it smaller, or its texts shorter."),
      seconds > 24 * 3600 ? h("p", { class: "notice" }, `This takes ${about(seconds)} here. A smaller size, or fewer steps, learn sooner.`) : null,
      h("p", { class: "hint" }, `Computed for this machine (${found.hardware.source}, ${found.precision}); the run tells the measured time.`));
  }

  function drawUnknown() {
    fill(figures);
  }

  function drawVectors() {
    plan.forget();
    planned = failure = null;
    const known = choices();
    const width = Number(now.sizes["architecture.d_model"] || known.sizes[0]?.value);
    const words = Number(now.vocabSize || known.vocab_size);
    fill(figures, figure("Parameters", `at most ${short(width * words)}`, `${whole(words)} words × ${whole(width)}`));
    const text = counted();
    const pass = Object.entries(VECTOR_SECONDS).find(([name]) => now.model.startsWith(name))?.[1];
    if (text && pass) {
      const passes = Number(now.sizes["objective.epochs"] || known.sizes.find((one) => one.keys.includes("objective.epochs"))?.value || 1);
      const seconds = VECTOR_START + (text.words / 1e6) * (READING + (pass * passes * width) / 100);
      figures.append(figure("Time", `${text.complete ? "" : "at least "}${about(seconds)}`, "roughly, on one core"), figure("Reads", `${text.complete ? "" : "at least "}${short(text.words)} words`, passes > 1 ? `${whole(passes)} times` : null));
    }
    fill(note, h("p", { class: "hint" }, "Words that are rarer than the smallest count get no vector.", text && pass ? " The time is that of such a text elsewhere; the run tells its own after its first part." : " The time is shown here when there is a text."));
  }

  function change() {
    const known = choices();
    const values = commandValues(now, more(), { hasEpochs: Boolean(known?.has_epochs) });
    const isWhole = Boolean(values.data);
    texts.hidden = !isWhole;
    missing.hidden = isWhole;
    if (isWhole) {
      line.show(values);
      toml.change({ command: "pretrain", values });
      check.change(values);
    }
    if (!known || known.model !== now.model) return;
    if (known.has_epochs) drawVectors();
    else {
      if (planned) drawPlan(planned); // minutes are not part of the plan
      plan.change(planArguments(now, more()));
    }
  }

  async function start({ stay = false } = {}) {
    fill(problem);
    refuse(null);
    if (!isReady()) return;
    if (failure && refuse(failure, { focus: true })) return;
    const values = commandValues(now, more(), { hasEpochs: Boolean(choices()?.has_epochs) });
    problemOf = await check.now(values);
    if (problemOf) {
      if (!refuse(problemOf, { focus: true })) fill(problem, problemOf.line);
      return;
    }
    try {
      const job = await post("/jobs", { command: "pretrain", values });
      state.change({ isNamed: false });
      if (stay) {
        fill(started, `${job.run} is in the queue. Change what the next run is to have otherwise, and start it. `, h("a", { href: runLink(job.run) }, `Watch ${job.run}`));
        await suggest();
        return;
      }
      location.hash = job.run ? runLink(job.run) : "#/jobs";
    } catch (error) {
      if (!refuse(error, { focus: true })) fill(problem, error.line ?? String(error));
    }
  }

  state.listen(change);
  const element = h("aside", { class: "summary", "aria-label": "The run" },
    h("h2", {}, "The run"), figures, note, problem,
    h("p", { class: "actions" }, button("Start", () => start(), { class: "primary" }), button("Start, and compose another", () => start({ stay: true }))),
    h("p", { class: "hint" }, "A run goes on when this page is closed."), started,
    h("h3", { class: "apart" }, "As a command"), missing, texts);
  return { element, change, stop() { plan.stop(); toml.stop(); check.stop(); } };
}
