// The objective: what is hidden from the model, in the user's own text; and the tokenizer.
import { post } from "../parts/api.js";
import { button, fill, h, keeping } from "../parts/dom.js";
import { live, once } from "./live.js";
import { objectiveName, sources } from "./state.js";
import { cutText, hiddenText } from "./tokens.js";

const SAMPLE = 260;
const EXAMPLE = "The old king sat by the fire. He was cold, and he asked for his coat.";
const objectivesOf = once(async (model) => (await post("/call/objective_choices", { model })).objectives);

export function objectiveSection(state, { documents, isReadable, choices }) {
  const { now } = state;
  let all = [];
  let turn = 0;
  const select = h("select", { id: "objective", "aria-describedby": "objective-error objective-help", onchange: () => state.change({ objective: select.value, options: {}, ...(select.value ? {} : { second: "" }) }) });
  const second = h("select", { id: "second", onchange: () => state.change({ second: second.value }) });
  const options = h("div", { class: "grid fields small" });
  const line = h("p", { class: "error-line", id: "objective-error", role: "alert", hidden: true });
  const help = h("p", { class: "hint", id: "objective-help" });
  const refused = h("details", { hidden: true });
  const sample = h("textarea", { id: "sample", rows: 3, value: now.sample, oninput: keeping(() => state.change({ sample: sample.value }), 300) });
  const picture = h("div", { "aria-live": "polite" });
  const cut = h("div", { "aria-live": "polite" });
  const chooser = h("div", {}, h("div", { class: "grid fields two" },
    h("div", { class: "field" }, h("label", { for: "objective" }, "Objective"), help, select, line),
    h("div", { class: "field" }, h("label", { for: "second" }, "Together with"), h("p", { class: "hint" }, "A second task, or what wraps the first."), second)), options, refused);

  const show = (place, text) => (is) => {
    place.setAttribute("aria-busy", is ? "true" : "false");
    if (is && !place.querySelector(".tokens")) fill(place, h("p", { class: "hint" }, text));
  };
  const hide = live((question, signal) => post("/call/hide", question, { signal }), {
    show(found) { showError(null); fill(picture, oneText(found), hiddenText(found)); },
    fail(error) {
      const text = error.line ?? String(error);
      const isOther = /vocabulary|tokenizer|symbols/.test(text); // the tokenizer says so as well
      fill(picture, isOther ? h("p", { class: "hint" }, "What is hidden is shown once there is a tokenizer.") : null);
      showError(isOther ? null : text);
    },
    busy: show(picture, "Hiding tokens; a tokenizer is learned from the text first …"),
  });
  const tokenize = live((question, signal) => post("/call/tokenize", question, { signal }), {
    show(found) { fill(cut, cutText(found)); },
    fail(error) { fill(cut, h("p", { class: "error-line" }, error.line ?? String(error))); },
    busy: show(cut, "Learning a tokenizer from the text …"), wait: 700,
  });

  /** Of a task on two parts of a text, that this passage has one alone. */
  function oneText(found) {
    if (!found.label?.startsWith("none")) return null;
    return h("div", { class: "notice" }, "This passage is not cut into two parts, as the objective needs it: it learns only from documents of several sentences. ",
      button("Use mlm, which needs one", () => state.change({ objective: "mlm", options: {}, second: "" })));
  }

  function showError(text) {
    line.hidden = !text;
    line.textContent = text ?? "";
    select.setAttribute("aria-invalid", text ? "true" : "false");
  }

  /** A passage of the user's text, as long as is well looked at. */
  function passage() {
    const texts = documents().map((one) => one.text.trim()).filter(Boolean);
    if (!texts.length) return EXAMPLE;
    const first = now.sampleAt % texts.length;
    let text = texts[first];
    for (let i = first + 1; text.length < SAMPLE / 2 && i < texts.length; i += 1) text += `\n${texts[i]}`;
    if (text.length <= SAMPLE) return text;
    const begin = Math.floor(now.sampleAt / texts.length) * SAMPLE % Math.max(text.length - SAMPLE, 1);
    const part = text.slice(begin, begin + SAMPLE);
    const end = Math.max(part.lastIndexOf(". ") + 1, part.lastIndexOf("。") + 1, 0);
    return (end > SAMPLE / 3 ? part.slice(0, end) : part.slice(0, part.lastIndexOf(" ") > 0 ? part.lastIndexOf(" ") : SAMPLE)).trim();
  }

  function drawChoices() {
    const known = choices();
    const own = known?.objective;
    const can = all.filter((one) => one.can);
    fill(select, h("option", { value: "" }, own ? `That of the model: ${own}` : "That of the model"),
      can.filter((one) => !one.follows || ["nsp", "sop"].includes(one.name)).map((one) => h("option", { value: one.name }, `${one.name}: ${one.description}`)));
    select.value = now.objective;
    if (now.objective && select.selectedIndex < 0) {
      const one = all.find((o) => o.name === now.objective);
      if (all.length) {
        state.change({ objective: "", options: {}, second: "" });
        if (one) showError(`${one.name}: ${one.reason}`);
      } else {
        select.append(h("option", { value: now.objective }, now.objective));
        select.value = now.objective;
      }
    }
    fill(second, h("option", { value: "" }, "nothing"), can.filter((one) => one.follows && one.name !== now.objective).map((one) => h("option", { value: one.name }, `${one.name}: ${one.description}`)));
    second.value = now.second;
    second.disabled = !now.objective;
    const chosen = all.find((one) => one.name === (now.objective || own));
    fill(help, chosen ? chosen.description : known?.asks?.length ? `Predicts: ${known.asks.join(", ")}` : "");
    drawOptions(now.objective ? chosen : null);
    const cannot = all.filter((one) => !one.can);
    refused.hidden = !cannot.length;
    fill(refused, h("summary", {}, `${cannot.length} ${cannot.length === 1 ? "objective" : "objectives"} that this model does not support`), h("ul", { class: "plain" }, cannot.map((one) => h("li", { class: "hint" }, h("strong", {}, one.name), `: ${one.reason}`))));
  }

  function drawOptions(chosen) {
    if (options.contains(document.activeElement)) return;
    fill(options, (chosen?.options ?? []).map((one) => {
      const id = `option-${one.name}`;
      const input = h("input", { id, type: "text", inputmode: "decimal", value: now.options[one.name] ?? "", placeholder: one.value === null ? "" : String(one.value), autocomplete: "off",
        oninput: () => state.change({ options: { ...now.options, [one.name]: input.value } }) });
      return h("div", { class: "field" }, h("label", { for: id }, one.name.replaceAll("_", " ")), input);
    }));
  }

  function ask() {
    const isPictures = now.kind === "images";
    element.hidden = isPictures;
    const text = sample.value.trim();
    if (isPictures || !text) { hide.forget(); tokenize.forget(); fill(picture); fill(cut); return; }
    const files = sources(now);
    if (files.length && !isReadable()) { hide.forget(); tokenize.forget(); fill(picture, h("p", { class: "hint" }, "What is hidden is shown once the text can be read.")); fill(cut); return; }
    const size = Number(now.vocabSize) || undefined;
    const learned = files.length ? { files, ...(size && { vocab_size: size }), ...(now.textColumn && { text_column: now.textColumn }) } : {};
    const shared = { model: now.model, text, ...learned };
    const objective = objectiveName(now);
    hide.change({ ...shared, seed: now.seed, ...(objective && { objective }) });
    tokenize.change(shared);
  }

  /** Take a passage of what was read, unless the user wrote one. */
  function read() {
    if (!now.sample.trim() || now.sample === EXAMPLE || now.sampleTaken) take();
    ask();
  }

  function take() {
    sample.value = passage();
    state.change({ sample: sample.value, sampleTaken: true });
  }

  async function start() {
    const mine = ++turn;
    chooser.hidden = now.kind === "word vectors" || now.kind === "images";
    all = [];
    drawChoices();
    ask();
    if (chooser.hidden) return;
    try {
      const found = await objectivesOf(now.model);
      if (mine !== turn) return;
      all = found;
      drawChoices();
    } catch (error) {
      if (mine === turn) showError(error.line ?? String(error));
    }
  }

  state.listen((changed) => {
    if (changed.has("sample") && changed.size === 1 && sample.value === now.sample) state.now.sampleTaken = false;
    if (changed.has("model")) showError(null);
    if (["objective", "second"].some((key) => changed.has(key))) { showError(null); drawChoices(); }
    if (["objective", "options", "second", "sample", "seed", "vocabSize", "files", "source", "textColumn"].some((key) => changed.has(key))) ask();
  });
  const element = h("section", { id: "hidden" }, h("h2", {}, "Objective"), chooser,
    h("div", { class: "field" }, h("label", { for: "sample" }, "A passage of your text"), sample, h("p", { class: "actions tight" },
      button("Another passage", () => { state.change({ sampleAt: now.sampleAt + 1 }); take(); }),
      button("Hide other tokens", () => state.change({ seed: now.seed + 1 })))),
    picture, h("h3", { class: "apart" }, "The tokenizer"), cut);
  return { element, start, read, choicesKnown: drawChoices, showError, focus: () => select.focus(), stop() { hide.stop(); tokenize.stop(); } };
}
