// Texts that a model writes, token by token, with what else might have come; conversations.
import { postStream } from "../parts/api.js";
import { button, fill, h } from "../parts/dom.js";
import { measured, percent } from "../parts/format.js";
import { bar } from "./fill.js";
import { pictureFiles } from "./inputs.js";
import { keptText, panel, setting } from "./panel.js";

function settings() {
  const fields = {
    max_new_tokens: setting("New tokens at most", { value: 60, min: 1, max: 2000, step: 1 }),
    temperature: setting("Temperature", { value: 0.8, min: 0, hint: "0: always the most probable token" }),
    top_p: setting("Top p", { value: 0.95, min: 0, max: 1, hint: "The most probable tokens that have this share together" }),
    top_k: setting("Top k", { min: 1, step: 1, hint: "So many of the most probable tokens" }),
    beams: setting("Beams", { min: 1, step: 1, hint: "Search for the most probable text instead of drawing one" }),
    seed: setting("Seed", { value: 0, min: 0, step: 1 }),
  };
  const values = () => {
    const all = Object.fromEntries(Object.entries(fields).map(([name, one]) => [name, one.value()]).filter(([, value]) => value !== undefined));
    if (all.beams > 1) for (const name of ["temperature", "top_p", "top_k", "seed"]) delete all[name];
    else delete all.beams;
    if (all.temperature === 0) for (const name of ["temperature", "top_p", "top_k", "seed"]) delete all[name];
    return all;
  };
  return { element: h("details", {}, h("summary", {}, "Settings"), h("div", { class: "grid" }, Object.values(fields).map((one) => one.element))), values };
}

/** A token whose ends of lines and lone spaces can be seen. */
const visible = (token) => (token.trim() ? token : token.replaceAll(" ", "␣")).replaceAll("\n", "⏎");

/** Tokens in color by their probability; pressing one shows what else might have come. */
function tokenView() {
  const line = h("p", { class: "tokens" });
  const detail = h("div", { "aria-live": "polite" });
  const add = (tokens) => {
    for (const one of tokens) {
      const level = one.probability > 0.5 ? "sure" : one.probability > 0.1 ? "likely" : "unlikely";
      line.append(button(visible(one.token), () => fill(detail, h("h3", {}, `Here “${visible(one.token)}” came (${percent(one.probability)}). The most probable were`),
        one.alternatives.map(([token, share]) => bar(visible(token), share))), { class: `token ${level}`, title: percent(one.probability) }));
    }
  };
  const how = h("p", { class: "hint" }, h("span", { class: "token sure" }, "above 50 %"), " ", h("span", { class: "token likely" }, "above 10 %"), " ", h("span", { class: "token unlikely" }, "less"),
    " Press a token to see what else might have come.");
  return { element: h("details", { open: true }, h("summary", {}, "Tokens and their probabilities"), line, how, detail), add };
}

const ENDS = { end: "The model ended the text.", length: "The limit of tokens was reached.", stop: "" };

export function generatePanel(models, facts) {
  const picker = facts[0].abilities.generate.reads === "pictures" ? pictureFiles() : null; // which it describes
  const prompt = keptText("generate", "Prompt", "Once upon a time");
  const how = settings();
  return panel(models, [picker?.element ?? prompt.element, how.element], picker ? "Describe" : "Generate", async (model, place, signal) => {
    if (picker && !picker.files().length) return fill(place, h("p", { class: "hint" }, "Choose a picture first."));
    const given = picker ? { file: picker.files()[0].path } : { prompt: prompt.area.value };
    const text = h("span", {});
    const tokens = tokenView();
    const end = h("p", { class: "hint" });
    const start = h("span", { class: "soft" });
    fill(place, h("p", { class: "text" }, start, text), end, tokens.element);
    for await (const piece of postStream("/call-stream/generate", { model, ...given, settings: how.values() }, signal)) {
      text.append(piece.text);
      tokens.add(piece.tokens);
      if (piece.continues && !picker) start.textContent = prompt.area.value;
      if (piece.candidates?.length > 1) end.append(h("ol", {}, piece.candidates.map((one) => h("li", {}, one.text, ` (${measured(one.score)})`))));
      else if (piece.end) end.textContent = ENDS[piece.end] ?? "";
    }
    tokens.element.hidden = !tokens.element.querySelector(".token");
  });
}

export function chatPanel(models) {
  const histories = models.map(() => []);
  const message = keptText("chat", "Message", "", { rows: 2 });
  const how = settings();
  const shown = (turns, extra) => fill(extra.place, turns.map((turn) => h("div", { class: `turn ${turn.role}` }, h("p", { class: "label" }, turn.role === "user" ? "You" : "Model"), h("p", { class: "text" }, turn.content))));
  const made = panel(models, [message.element, how.element], "Send", async (model, place, signal) => {
    const turns = histories[models.indexOf(model)];
    const asked = message.area.value.trim();
    if (!asked) return shown(turns, { place });
    turns.push({ role: "user", content: asked });
    const answer = { role: "assistant", content: "" };
    try {
      for await (const piece of postStream("/call-stream/chat", { model, messages: turns, settings: how.values() }, signal)) {
        answer.content += piece.text;
        shown([...turns, answer], { place });
      }
      turns.push(answer);
    } catch (error) {
      turns.pop();
      throw error;
    }
    if (model === models.at(-1)) { message.area.value = ""; message.area.dispatchEvent(new Event("input")); }
  }, { more: [button("New conversation", () => { for (const one of histories) one.length = 0; for (const one of made.element.querySelectorAll(".output")) fill(one); })] });
  return made;
}
