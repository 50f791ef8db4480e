// What is trained: all weights, some of them, or small parts that are added.
import { h } from "../../parts/dom.js";

const WAYS = [
  ["full", "All weights", "Every weight of the model is trained. The best scores in most cases; the result is as large as the model."],
  ["frozen", "Only a new last layer", "The model stays as it is; a layer on top learns the labels. Fastest, and a fair baseline."],
  ["lora", "LoRA", "Small matrices beside the weights are trained (Hu et al. 2021). Little memory, nearly the scores of all weights.", "rank=8"],
  ["top", "The upper layers", "The last layers and a new one on top are trained.", "n_layers=2"],
  ["gradual", "Layer by layer", "From the top down, one layer after another joins in (Howard and Ruder 2018). Helps with few examples."],
  ["bitfit", "Only biases", "The additive terms alone are trained, a thousandth of all weights (Ben Zaken et al. 2021)."],
  ["scalar_mix", "A mixture of all layers", "The model stays as it is; weights of its layers and a layer on top are learned (Peters et al. 2018)."],
  ["houlsby", "Adapters, two in a layer", "Small networks inside each layer are trained (Houlsby et al. 2019)."],
  ["pfeiffer", "Adapters, one in a layer", "As above, with half of the adapters (Pfeiffer et al. 2021)."],
  ["adamix", "A mixture of adapters", "Several adapters in each layer, drawn at random while training (Wang et al. 2022)."],
  ["ia3", "(IA)³", "Factors for keys, values and feed-forward layers are trained (Liu et al. 2022). The fewest weights of all."],
  ["prefix", "Prefixes", "Vectors put before each layer's keys and values are trained (Li and Liang 2021).", "n_virtual_tokens=20"],
  ["prompt", "Soft prompt", "Vectors put before the text are trained (Lester et al. 2021). Weak with small models.", "n_virtual_tokens=20"],
  ["source_encoder", "A new source encoder", "For translation from another language with an encoder-decoder (Lewis et al. 2019)."],
];
const SHOWN = 3;

/** The names of all ways. */
export const WAY_NAMES = WAYS.map(([name]) => name);

/** A field for the way of tuning: {element, value(), set(text), error(line), input}. */
export function tuningChoice({ changed }) {
  const line = h("p", { class: "error-line", id: "tune-error", hidden: true });
  const settings = h("input", { type: "text", id: "tune-settings", spellcheck: "false", autocomplete: "off", "aria-describedby": "tune-settings-help tune-error", oninput: changed });
  const radios = new Map();
  const chosen = () => [...radios].find(([, one]) => one.checked)?.[0] ?? "full";
  const changedWay = () => { settings.placeholder = WAYS.find(([name]) => name === chosen())[3] ?? ""; changed(); };
  const way = ([name, title, text]) => {
    const radio = h("input", { type: "radio", name: "tune", value: name, id: `tune-${name}`, "aria-describedby": `tune-${name}-help`, onchange: changedWay });
    radios.set(name, radio);
    return h("div", { class: "way" }, h("label", { for: `tune-${name}` }, radio, " ", title, title.toLowerCase() === name ? null : h("code", {}, name)), h("p", { class: "hint", id: `tune-${name}-help` }, text));
  };
  const more = h("details", {}, h("summary", {}, "More ways"), WAYS.slice(SHOWN).map(way),
    h("label", { for: "tune-settings" }, "Settings of the way"), h("p", { class: "hint", id: "tune-settings-help" }, "Separated by commas, as in rank=4,alpha=8; empty for the usual ones."), settings);
  const element = h("fieldset", { class: "field ways", "data-name": "tune" }, h("legend", { class: "label" }, "What is trained"), WAYS.slice(0, SHOWN).map(way), more, line);
  radios.get("full").checked = true;

  function set(text) {
    const [name, given = ""] = String(text ?? "full").split(/:(.*)/s);
    if (!radios.has(name)) return;
    radios.get(name).checked = true;
    settings.value = given;
    if (given || WAY_NAMES.indexOf(name) >= SHOWN) more.open = true;
  }
  const value = () => {
    const given = settings.value.trim();
    const text = given ? `${chosen()}:${given}` : chosen();
    return text === "full" ? undefined : text;
  };
  return { element, set, value, get input() { return settings.value ? settings : radios.get(chosen()); },
    error(text) {
      element.classList.toggle("invalid", Boolean(text));
      if (text) more.open = true;
      line.hidden = !text;
      line.textContent = text ?? "";
    } };
}
