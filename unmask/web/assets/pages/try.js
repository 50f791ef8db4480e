// Try a model: fill, generate, chat, predict, embed, attention, saliency; two side by side.
import { get, post } from "../parts/api.js";
import { button, empty, fill, h } from "../parts/dom.js";
import { short, whole } from "../parts/format.js";
import { attentionPanel, saliencyPanel } from "../try/look.js";
import { chatPanel, generatePanel } from "../try/generate.js";
import { embedPanel, wordsPanel } from "../try/embed.js";
import { fillPanel } from "../try/fill.js";
import { patchesPanel } from "../try/patches.js";
import { predictPanel } from "../try/predict.js";
import { tokensPanel } from "../try/tokens.js";
import { runLink } from "./home.js";

const BUNDLED = "unmask-mini-en";
const PANELS = [
  ["predict", "Predict", predictPanel],
  ["reconstruct", "Hidden patches", patchesPanel],
  ["fill", "Fill blanks", fillPanel],
  ["generate", "Generate", generatePanel],
  ["chat", "Chat", chatPanel],
  ["embed", "Similar texts", embedPanel],
  ["neighbors", "Similar words", wordsPanel],
  ["attention", "Attention", attentionPanel],
  ["saliency", "Saliency", saliencyPanel],
  ["tokens", "Tokenizer", tokensPanel],
];

/** A model in one line: its family and size, and where it was published. */
function whatItIs(one) {
  if (one.kind === "word vectors") return `word vectors, ${whole(one.words)} words of ${whole(one.width)} numbers each`;
  const article = /^[aeiou]/.test(one.kind) ? "an" : "a";
  const kind = one.kind === "images" ? "a model that reads pictures" : one.kind === "recurrent" ? "a recurrent network" : `${article} ${one.kind}`;
  return `${one.family}, ${kind} with ${short(one.parameters)} parameters${one.max_length ? ` that reads ${whole(one.max_length)} tokens at most` : ""}. ${one.line}`;
}

export async function page({ rest, query, keepQuery }) {
  const { runs } = await get("/runs");
  const known = [...runs.filter((one) => one.has.includes("model")).map((one) => one.id), BUNDLED];
  const model = rest || known[0];
  const other = query.get("with") === model ? null : query.get("with");
  const go = (first, second, panel) => {
    const more = new URLSearchParams([["with", second], ["do", panel]].filter(([, value]) => value));
    location.hash = `${runLink(first, "try")}${more.size ? `?${more}` : ""}`;
  };
  const choose = (id, value, first, change) => {
    const names = [...new Set([...known, value].filter(Boolean))].filter((one) => !first || one !== model);
    const select = h("select", { id, onchange: () => change(select.value) }, first ? h("option", { value: "" }, first) : null, names.map((one) => h("option", { value: one }, one)));
    select.value = value ?? "";
    return select;
  };
  const content = h("div", {});
  const head = h("div", { class: "columns" },
    h("div", { class: "field" }, h("label", { for: "try-model" }, "Model"), choose("try-model", model, null, (value) => go(value, other, query.get("do")))),
    h("div", { class: "field" }, h("label", { for: "try-other" }, "Beside it"), choose("try-other", other, "no other model", (value) => go(model, value, query.get("do")))));
  const element = h("div", {}, h("div", { class: "heading" }, h("h1", {}, "Try"), h("a", { href: runLink(model) , hidden: model === BUNDLED }, "The run")), head, content);
  const stops = [];
  open();
  return { element, title: `Try ${model}`, leave() { for (const stop of stops) stop(); } };

  async function open() {
    fill(content, h("p", { class: "hint", role: "status" }, "Opening the model …"));
    content.setAttribute("aria-busy", "true");
    try {
      const models = [model, other].filter(Boolean);
      const facts = [];
      for (const one of models) facts.push(await post("/call/describe", { model: one }));
      show(models, facts);
    } catch (error) {
      fill(content, empty("This model cannot be opened", error.line ?? String(error), button("Try again", open)));
    } finally {
      content.removeAttribute("aria-busy");
    }
  }

  function show(models, facts) {
    const can = (name) => facts.every((one) => one.abilities[name === "tokens" ? "hide" : name]?.can);
    const isOf = (name) => facts.every((one) => one.kind === name);
    const first = isOf("word vectors") ? "neighbors" : facts[0].abilities.predict?.task === "instruct" ? "chat" : null; // what it is for
    const offered = PANELS.filter(([name]) => can(name)).sort(([a], [b]) => (b === first) - (a === first));
    const place = h("div", { role: "tabpanel", id: "try-panel", tabindex: "-1" });
    const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "What to try" });
    let leave = () => {};
    stops.push(() => leave());
    const select = (name, isNew = false) => {
      leave();
      for (const tab of tabs.children) {
        const is = tab.dataset.name === name;
        tab.setAttribute("aria-selected", String(is));
        tab.tabIndex = is ? 0 : -1;
      }
      const made = PANELS.find(([one]) => one === name)[2](models, facts);
      leave = made.leave ?? (() => {});
      fill(place, made.element ?? made);
      keepQuery(new URLSearchParams([...(other ? [["with", other]] : []), ["do", name]]), isNew);
    };
    for (const [name, label] of offered) {
      tabs.append(button(label, () => select(name, tabs.querySelector("[aria-selected=true]").dataset.name !== name), { role: "tab", "data-name": name, "aria-controls": "try-panel" }));
    }
    tabs.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const all = [...tabs.children];
      const next = all[(all.indexOf(document.activeElement) + step + all.length) % all.length];
      next.focus();
      select(next.dataset.name);
    });
    const missing = facts.flatMap((fact, i) => Object.entries(fact.abilities).filter(([, one]) => !one.can && one.reason)
      .map(([name, one]) => `${models.length > 1 ? `${models[i]}, ` : ""}${PANELS.find(([known]) => known === name)?.[1] ?? "Answers on the page Teach"}: ${one.reason}`));
    fill(content,
      facts.map((one, i) => h("p", { class: "hint" }, `${models[i]}: ${whatItIs(one)}.`)),
      offered.length ? [tabs, place] : empty("Nothing to try", "This model has no ability that can be shown here."),
      missing.length ? h("details", {}, h("summary", {}, models.length > 1 ? "What one of them cannot do, and why" : "What it cannot do, and why"), h("ul", { class: "hint" }, missing.map((one) => h("li", {}, one)))) : null);
    const wanted = query.get("do");
    if (offered.length) select(offered.some(([name]) => name === wanted) ? wanted : offered[0][0]);
  }
}
