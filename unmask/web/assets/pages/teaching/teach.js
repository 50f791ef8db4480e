// A lecture: a sentence, and what each model sees of it, is asked, and answers: #/teach?model=gpt2-mini&text=...
import { get, listen, post } from "../../parts/api.js";
import { button, fill, h, slowly } from "../../parts/dom.js";
import { commandLine } from "../../parts/form.js";
import { LESSONS, lessonOf, taskWords } from "./lessons.js";
import { matrices } from "./matrix.js";
import { modelChoices } from "./model_choice.js";
import { presentation } from "./presentation.js";
import { settingsPanel } from "./settings.js";
import { answerCards, detectorTokens, legend, tokenRow } from "./tokens.js";

const TEXT = "The cat sat on the mat because it was tired. Then it slept.";
const ANSWERER = "unmask-mini-en";
const KEPT = "teach";
const SHOWN_ANSWERS = 3;
const PREPARED_AFTER = 1200; // milliseconds

/** What the address says, or else what was there last. */
function readState(query) {
  const kept = query.size ? query : new URLSearchParams(sessionStorage.getItem(KEPT) ?? "");
  const seed = Number(kept.get("seed") ?? 0);
  const settings = {};
  for (const one of kept.getAll("set")) {
    const [key, value] = one.split("=");
    if (value === "true" || value === "false") settings[key] = value === "true";
    else if (value !== undefined && Number.isFinite(Number(value))) settings[key] = Number(value);
  }
  return {
    model: kept.get("model") || LESSONS[0].model, text: kept.get("text") ?? TEXT, seed: Number.isSafeInteger(seed) && seed >= 0 ? seed : 0,
    objective: kept.get("objective") ?? "", answers: kept.get("answers") ?? ANSWERER, shows: kept.get("shown") === "1", targets: kept.get("targets") !== "0", settings,
  };
}

function addressOf(state) {
  const query = new URLSearchParams({ model: state.model, text: state.text, seed: state.seed });
  if (state.objective) query.set("objective", state.objective);
  if (state.answers !== ANSWERER) query.set("answers", state.answers);
  if (state.shows) query.set("shown", "1");
  if (!state.targets) query.set("targets", "0");
  for (const [key, value] of Object.entries(state.settings)) query.append("set", `${key}=${value}`);
  return query;
}

/** Answers of the worker that are known already. */
class Known {
  #found = new Map();

  async call(name, given, signal) {
    const key = JSON.stringify([name, given]);
    if (!this.#found.has(key)) this.#found.set(key, await post(`/call/${name}`, given, { signal }));
    return this.#found.get(key);
  }
}

export async function page({ query, keepQuery }) {
  const state = readState(query);
  const known = new Known();
  let { runs } = await get("/runs");
  let stop = new AbortController();
  let settingsTold = "";

  const text = h("textarea", { id: "teach-text", rows: 2, value: state.text, spellcheck: "false", oninput: slowly(() => { state.text = text.value; change(); }, 200) });
  const error = h("p", { class: "error-line", id: "teach-error", role: "alert", hidden: true });
  text.setAttribute("aria-describedby", "teach-error");
  const busy = h("p", { class: "hint busy", role: "status" });
  const told = h("p", { class: "hidden", role: "status" });
  const slide = h("div", { class: "slide", tabindex: "-1", role: "region", "aria-label": "The lesson" });
  const names = h("div", { class: "lessons", role: "group", "aria-label": "Models" });
  const settings = h("div", {});
  const line = commandLine("hide");
  const choices = modelChoices({ runs, state, pick: (model) => go(model), pickAnswers: (model) => { state.answers = model; change(); } });
  const shows = button("", () => { state.shows = !state.shows; change(); }, { class: "shows", title: "A" });
  const targets = button("", () => { state.targets = !state.targets; change(); }, { class: "targets", title: "T" });
  const draw = button("New draw", () => { state.seed += 1; change(); }, { title: "N: other words are hidden" });
  const seed = h("span", { class: "hint" });
  const previous = button("← Previous", () => step(-1), { title: "Arrow left, Page up" });
  const next = button("Next →", () => step(1), { title: "Arrow right, Page down" });
  const field = h("div", { class: "field text-field" }, h("label", { for: "teach-text" }, "Your text"), text,
    h("p", { class: "hint" }, "Two sentences or more, so that there are two parts to tell apart."));
  const present = presentation({ step, forward, back, draw: () => draw.click(), shows: () => shows.click(), targets: () => targets.click(), field });
  let shown = { asks: false, answers: false }; // what the lesson on the page has

  function go(model) {
    if (model === state.model) return;
    Object.assign(state, { model, objective: "", settings: {} });
    const lesson = lessonOf(model);
    fill(told, `${lesson.name}. ${lesson.idea}`);
    present.top();
    change();
  }

  function step(by) {
    const at = LESSONS.findIndex((one) => one.model === state.model);
    go(LESSONS[(at < 0 ? (by > 0 ? 0 : LESSONS.length - 1) : at + by + LESSONS.length) % LESSONS.length].model);
  }

  /** What comes next: what is asked, what is answered, who sees whom, the next lesson. */
  function forward() {
    if (!slide.firstChild) return;
    if (present.isSight()) {
      present.sight(false);
      Object.assign(state, { targets: false, shows: false });
      step(1);
    } else if (!state.targets && shown.asks) { state.targets = true; change(); }
    else if (!state.shows && shown.answers) { state.shows = true; change(); }
    else present.sight(true);
  }

  function back() {
    if (present.isSight()) present.sight(false);
    else if (state.shows && shown.answers) { state.shows = false; change(); }
    else if (state.targets && shown.asks) { state.targets = false; change(); }
    else { state.targets = true; step(-1); }
  }

  function drawNames() {
    const focused = names.contains(document.activeElement);
    fill(names, LESSONS.map((one) => button(one.name, () => go(one.model), { "aria-current": one.model === state.model ? "true" : null })));
    const current = names.querySelector("[aria-current]");
    if (focused) current?.focus({ preventScroll: true });
    if (current) names.scrollLeft = current.offsetLeft - names.offsetLeft - (names.clientWidth - current.clientWidth) / 2;
  }

  /** The arguments of `hide`: the lesson's, or those of the trained model that is asked the same. */
  async function argumentsOf(lesson, signal, objective = state.objective) {
    const rest = { text: state.text, seed: state.seed };
    const own = { model: lesson.model, ...rest, changes: objective ? [] : lesson.changes ?? [] };
    if (objective || lesson.objective) own.objective = objective || lesson.objective;
    if (lesson.isOther) return { given: own, answers: choices.isTrained(lesson.model) ? lesson.model : null };
    if (!state.answers) return { given: own, answers: null };
    const { answers, why } = await answererOf(lesson, signal);
    if (!answers) return { given: own, answers, why };
    const given = { ...own, model: answers };
    delete given.objective;
    if (objective || lesson.trained) given.objective = objective || lesson.trained;
    return { given, answers };
  }

  /** Who can answer a lesson: the one that was chosen, or else the newest run of the lesson's model. */
  async function answererOf(lesson, signal) {
    const own = runs.filter((one) => one.kind === "pretrain" && one.model === lesson.model && one.has.includes("model")).map((one) => one.id);
    let why = null;
    for (const answers of [state.answers, ...own.slice(0, 1)]) {
      try {
        const trained = await known.call("describe", { model: answers }, signal);
        const isSame = trained.asks?.includes(lesson.asked) && (lesson.families?.includes(trained.family) ?? true);
        if (isSame && trained.abilities.hide_answers?.can) return { answers, why: null };
        why ??= `${answers} was not trained for this task, and there is no run of ${lesson.model} yet.`;
      } catch (problem) {
        if (problem.name === "AbortError") throw problem;
        why ??= problem.line;
      }
    }
    return { answers: null, why };
  }

  async function change() {
    stop.abort();
    const { signal } = (stop = new AbortController());
    const address = addressOf(state);
    keepQuery(address);
    sessionStorage.setItem(KEPT, String(address));
    drawNames();
    choices.show();
    shows.textContent = state.shows ? "Hide answers" : "Show answers";
    targets.textContent = state.targets ? "Hide targets" : "Show targets";
    seed.textContent = `draw ${state.seed + 1}`;
    slide.setAttribute("aria-busy", "true");
    const slow = setTimeout(() => fill(busy, "Working. The first time takes some seconds: what opens models is started, and a model gets a tokenizer."), 600);
    try {
      const lesson = lessonOf(state.model);
      const asked = await argumentsOf(lesson, signal);
      const given = { ...asked.given, settings: state.settings };
      const hidden = await known.call("hide", given, signal);
      const answers = state.shows && asked.answers && !hidden.picture ? await answersOf(asked, given, signal) : null;
      if (signal.aborted) return;
      tell(null);
      drawSlide(lesson, hidden, answers, asked);
      drawSettings(hidden, given);
      line.show({ model: given.model, text: state.text, objective: given.objective, seed: state.seed || undefined, changes: hidden.changes?.length ? hidden.changes : undefined });
      prepareOthers(lesson, signal);
    } catch (problem) {
      if (problem.name === "AbortError") return;
      tell(problem);
    } finally {
      clearTimeout(slow);
      if (!signal.aborted) { slide.removeAttribute("aria-busy"); fill(busy); }
    }
  }

  /** The answers; null, where there are none of this text: `asked` says why. */
  async function answersOf(asked, given, signal) {
    try {
      return await known.call("hide_answers", { ...given, n: SHOWN_ANSWERS }, signal);
    } catch (problem) {
      if (problem.name === "AbortError") throw problem;
      asked.why = `${asked.answers} does not answer: ${problem.line ?? problem.message}.`;
      asked.isRefused = true;
      return null;
    }
  }

  function tell(problem) {
    const about = problem?.line ?? problem?.message ?? "";
    error.hidden = !problem;
    error.textContent = about;
    text.setAttribute("aria-invalid", problem ? "true" : "false");
    slide.classList.toggle("stale", Boolean(problem));
  }

  /** Let the worker have the other lessons ready, the next one first, so that stepping on is at once. */
  async function prepareOthers(lesson, signal) {
    const at = LESSONS.indexOf(lesson);
    if (at < 0) return;
    for (const one of [...LESSONS.slice(at + 1), ...LESSONS.slice(0, at)]) {
      await new Promise((resolve) => { setTimeout(resolve, PREPARED_AFTER); }); // what the teacher does goes first
      if (signal.aborted) return;
      try {
        const { given } = await argumentsOf(one, signal, "");
        await known.call("hide", { ...given, settings: {} }, signal);
      } catch { /* it is told when the lesson is shown */ }
    }
  }

  function drawSettings(hidden, given) {
    const now = JSON.stringify([given.model, given.objective, (hidden.settings ?? []).map((one) => one.key)]);
    if (now === settingsTold) return; // a slider that is moved stays
    settingsTold = now;
    fill(settings, settingsPanel(hidden.settings ?? [], (values) => { state.settings = values; change(); }, state.settings, () => { state.settings = {}; settingsTold = ""; change(); }));
  }

  function drawSlide(lesson, hidden, answers, asked) {
    if (hidden.picture) {
      fill(slide, h("h2", {}, lesson.name), h("p", {}, "This model reads pictures; its page shows what is hidden of one."));
      return;
    }
    shown = { asks: hidden.inputs.some((one) => one.asked), answers: Boolean(asked.answers) };
    const found = answers && new Map(answers.answers.map((one) => [one.position, one]));
    const asks = hidden.inputs.filter((one) => one.asked).length;
    const reads = hidden.source ? "The decoder reads" : lesson.reads ?? "It reads";
    fill(slide,
      h("div", { class: "title" }, h("h2", {}, lesson.name), h("p", { class: "hint" }, lesson.by)),
      lesson.idea ? h("p", { class: "idea" }, lesson.idea) : null,
      lesson.variants ? variantButtons(lesson) : null,
      h("div", { class: "words" },
        state.shows && !found && asked.why ? h("p", { class: "hint" }, asked.why) : null,
        hidden.source ? tokenRow("The encoder reads", hidden.source) : null,
        tokenRow(asks ? `${reads}, and below is what it is asked` : reads, hidden.inputs, { numbered: Boolean(found), showTargets: state.targets }),
        hidden.label ? h("p", {}, h("span", { class: "label" }, "Asked of the whole text: "), hidden.label) : null,
        asks || hidden.label ? null : h("p", { class: "hint" }, "No single word is asked of this text. Draw again, or write a longer one."),
        found ? answerCards(`${asked.answers} answers`, answers.answers, { showTargets: state.targets }) : null,
        found && lesson.detects && state.targets ? tokenRow("The large model reads, here with the most probable words, and is asked of each whether it stood there", detectorTokens(hidden.inputs, found)) : null,
        hidden.unknown.length ? h("p", { class: "unknown-parts" }, "Not in the vocabulary of this tokenizer: ", hidden.unknown.map((one) => h("span", {}, one))) : null,
        legend([...(hidden.source ?? []), ...hidden.inputs])),
      h("p", { class: "in-words" }, `Who sees whom: ${hidden.sees}.`),
      h("div", { class: "matrices" }, matrices(hidden), facts(hidden, answers, asked)));
  }

  function variantButtons(lesson) {
    return h("div", { class: "row variants", role: "group", "aria-label": "Who sees whom" }, lesson.variants.map(([label, objective]) =>
      button(label, () => { state.objective = objective; state.settings = {}; change(); }, { "aria-pressed": String(state.objective === objective) })));
  }

  function facts(hidden, answers, asked) {
    const rows = [
      ["Asked", hidden.asks.map(taskWords).join("; ") || "each neighbor"],
      ["Who sees whom", hidden.sees],
      hidden.weighting ? ["Loss", hidden.weighting] : null,
      answers ? ["Answers", `${asked.answers}; mean loss ${answers.loss === null ? "–" : answers.loss.toFixed(2)}`] : null,
      !answers && asked.answers && !state.shows ? ["Answers", [`${asked.answers} can answer: `, h("span", { class: "hint" }, "Show answers.")]] : null,
      asked.isRefused ? ["Answers", asked.why] : asked.why ? ["Answers", [asked.why, " ", h("a", { href: `#/new?${new URLSearchParams({ model: state.model, kind: lessonOf(state.model).kind })}` }, `Train ${state.model}`), ", or choose another model below."]] : null,
    ].filter(Boolean);
    return h("dl", { class: "facts" }, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
  }

  const controls = h("div", { class: "controls" },
    h("div", { class: "row" }, previous, next, draw, seed, targets, shows, present.buttons), names);
  const element = h("div", { class: "teach" },
    h("div", { class: "heading" }, h("h1", {}, "Teach")),
    present.wrap(error, controls, busy, told, slide),
    h("section", { class: "columns more" },
      h("div", {}, h("h2", {}, "Settings of the task"), settings),
      h("div", {}, h("h2", {}, "Models"), choices.element, h("h2", { class: "spaced" }, "The same on the command line"), line.element,
        h("p", { class: "hint" }, "The address of this page brings this text, model, draw and settings back."))));
  present.mount(element);
  const unlisten = listen("jobs", () => get("/runs").then((told) => { ({ runs } = told); choices.know(runs); }, () => {})); // one may have ended
  change();
  return { element, title: "Teach", leave() { stop.abort(); unlisten(); present.leave(); } };
}
