// Where heads of attention look, and which words speak for a prediction.
import { post } from "../parts/api.js";
import { fill, h } from "../parts/dom.js";
import { measured, percent } from "../parts/format.js";
import { keptText, panel } from "./panel.js";

/** The mean of matrices. */
const mean = (all) => all[0].map((row, i) => row.map((_, j) => all.reduce((sum, one) => sum + one[i][j], 0) / all.length));

export function attentionPanel(models) {
  const text = keptText("attention", "Text", "The cat sat on the mat because it was warm.");
  return panel(models, [text.element], "Show", async (model, place, signal) => {
    const found = await post("/call/attention", { model, text: text.area.value }, { signal });
    const select = h("select", { "aria-label": "Head", onchange: () => draw() }, 
      h("option", { value: "" }, "mean of all heads"), found.heads.map((one, i) => h("option", { value: i }, `layer ${one.layer}, head ${one.head}`)));
    const grid = h("div", {});
    const told = h("p", { class: "hint", "aria-live": "polite" });
    let looking = null;
    const draw = () => {
      const weights = select.value === "" ? mean(found.weights) : found.weights[select.value];
      const row = (i) => h("tr", {}, h("th", { scope: "row" }, found.tokens[i]), weights[i].map((value, j) => {
        const cell = h("td", { class: "heat", title: `${found.tokens[i]} → ${found.tokens[j]}: ${percent(value)}` });
        cell.style.setProperty("--share", String(value));
        cell.addEventListener("pointerenter", () => { if (looking !== cell) { looking = cell; told.textContent = cell.title; } });
        return cell;
      }));
      fill(grid, h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Attention" }, h("table", { class: "matrix" }, h("caption", { class: "hidden" }, "Each row is a token that looks, each column a token that is looked at."),
        h("thead", {}, h("tr", {}, h("td", {}), found.tokens.map((one) => h("th", { scope: "col" }, h("span", {}, one))))), h("tbody", {}, found.tokens.map((_, i) => row(i))))));
    };
    fill(place, found.cut ? h("p", { class: "hint" }, `The last ${found.cut} words are left out.`) : null, select, grid, told);
    draw();
  });
}

const BASELINES = { mask: "with masks in place of all words", pad: "with padding in place of all words", zero: "with vectors of zeros in place of all words" };

export function saliencyPanel(models, facts) {
  const isTuned = facts[0].abilities.predict?.can;
  const goesOn = (one) => !one.abilities.predict?.can && ["decoder", "recurrent"].includes(one.kind) && !one.abilities.fill?.can;
  const [key, first, hint] = isTuned ? ["task", "", "A text as for Predict."]
    : facts.every(goesOn) ? ["next", "The capital of France is", "Which words speak for the token that the model puts next."]
      : ["language", "The capital of France is [MASK].", `A text with one [MASK]: which words speak for what the model puts there.${facts.some(goesOn) ? " A model that only goes on reads what is before it." : ""}`];
  const text = keptText(`saliency:${key}`, "Text", first, { hint });
  return panel(models, [text.element], "Show", async (model, place, signal) => {
    const isNext = goesOn(facts[models.indexOf(model)]);
    const found = await post("/call/saliency", { model, text: isNext ? text.area.value.split("[MASK]")[0] : text.area.value }, { signal });
    const most = Math.max(...found.values.map((one) => Math.abs(one ?? 0)), 1e-9);
    fill(place, h("p", {}, "Predicted: ", h("strong", {}, String(found.predicted)), ` (${percent(found.probability)})`),
      h("p", { class: "text" }, found.labels.map((label, i) => {
        const value = found.values[i];
        if (value === null) return h("span", { class: "soft" }, `${label} `);
        const word = h("span", { class: value >= 0 ? "speaks for" : "speaks against", title: measured(value) }, label);
        word.style.setProperty("--share", String(Math.abs(value) / most));
        return [word, " "];
      })),
      h("p", { class: "hint" }, `Words in blue speak for the prediction, those in red against it; ${found.method.replaceAll("_", " ")}, compared ${BASELINES[found.baseline] ?? `with ${found.baseline}`}.`));
  });
}
