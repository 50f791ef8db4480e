// What a network of pictures puts in the place of hidden patches.
import { post } from "../parts/api.js";
import { fill, h } from "../parts/dom.js";
import { pictureFiles } from "./inputs.js";
import { panel, setting } from "./panel.js";

const TITLES = { picture: "The picture", seen: "What it sees", asked: "What it is asked", made: "What it makes of it" };

export function patchesPanel(models) {
  const picker = pictureFiles();
  const seed = setting("Which patches are hidden", { value: 0, min: 0, step: 1, hint: "Another number hides others" });
  return panel(models, [picker.element, h("div", { class: "grid" }, seed.element)], "Reconstruct", async (model, place, signal) => {
    if (!picker.files().length) return fill(place, h("p", { class: "hint" }, "Choose a picture first."));
    for (const { path, name } of picker.files()) {
      const { picture } = await post("/call/hide", { model, file: path, seed: seed.value() ?? 0 }, { signal });
      place.append(h("article", { class: "card" }, h("h3", {}, name), h("div", { class: "pictures large" }, picture.views.map((one) =>
        h("figure", {}, h("img", { src: `data:image/png;base64,${one.png}`, alt: `${TITLES[one.title] ?? one.title}: ${name}` }), h("figcaption", { class: "hint" }, TITLES[one.title] ?? one.title))))));
    }
  });
}
