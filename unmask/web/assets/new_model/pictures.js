// The pictures that a model learns from: some of what is read, and what is hidden of one of them.
import { post } from "../parts/api.js";
import { button, fill, h } from "../parts/dom.js";
import { short, whole } from "../parts/format.js";
import { live } from "./live.js";
import { sources } from "./state.js";

const SHOWN = 24;
const LITTLE = 2000;
const TITLES = { picture: "The picture", seen: "What the model sees", asked: "What it is asked" };
const KINDS = "Pictures: a zip of PNG or JPEG files (in one folder for each label, if there are labels), a table that names them, arrays (.npz, MNIST's .gz), or Parquet.";
const NOTHING = "Nothing of a picture is hidden: the model learns which captions belong to it, or to write them.";
const lacks = (what, where) => h("p", { class: "notice" }, `This model learns from ${what}, and these pictures have none: take ${where}; or MAE or ViT, which need neither labels nor captions.`);
const png = (data) => `data:image/png;base64,${data}`;

/** What is read of pictures, and the section on what is hidden of them: {look, hidden, change(), stop()}. */
export function picturesPart(state) {
  const { now } = state;
  const look = h("div", { "aria-live": "polite" });
  const line = h("p", { class: "error-line", role: "alert", hidden: true });
  const views = h("div", { "aria-live": "polite" });
  const another = button("Another picture", () => state.change({ sampleAt: now.sampleAt + 1 }));
  const otherPatches = button("Hide other patches", () => state.change({ seed: now.seed + 1 }));
  const hidden = h("section", { id: "hidden-patches", hidden: true }, h("h2", {}, "What is hidden"), h("p", { class: "actions tight" }, another, otherPatches), views);
  let count = 0; // of pictures that can be read
  let counts = { captions: 0, labels: 0 };

  const busy = (place, text) => (is) => {
    place.setAttribute("aria-busy", is ? "true" : "false");
    if (is && !place.hasChildNodes()) fill(place, h("p", { class: "hint" }, text));
  };
  const reading = live((question, signal) => post("/call/preview_images", question, { signal }), {
    show(found) {
      counts = { captions: found.counts.captions, labels: found.n_labels };
      told(found.problem, found.counts.pictures);
      drawLook(found);
    },
    fail(error) { fill(look); told(error.line ?? String(error), 0); },
    busy: busy(look, "Reading the pictures …"), wait: 200,
  });
  const hide = live((question, signal) => post("/call/hide", question, { signal }), {
    show(found) { drawHidden(found.picture); },
    fail(error) {
      const isOfCaptions = /learns from texts/.test(error.line);
      fill(views, h("p", { class: "hint" }, isOfCaptions ? NOTHING : error.line ?? String(error)), isOfCaptions && !counts.captions ? lacks("captions", "a table with a column of file names and one of captions, beside a zip of the pictures") : null);
      another.hidden = otherPatches.hidden = true;
    },
    busy: busy(views, "Hiding patches …"),
  });

  function told(problem, n) {
    line.hidden = !problem;
    line.textContent = problem ?? "";
    count = problem ? 0 : n;
    ask();
  }

  function drawLook({ counts, labels, n_labels: n, pictures, complete }) {
    const figure = (name, value) => h("div", {}, h("dt", { class: "hint" }, name), h("dd", { class: "big" }, `${complete ? "" : "at least "}${short(value)}`));
    fill(look, h("dl", { class: "figures" }, figure("Pictures", counts.pictures), n ? figure("Labels", n) : null, counts.captions ? figure("Captions", counts.captions) : null),
      complete && counts.pictures < LITTLE ? h("p", { class: "notice" }, `These are few pictures: ${whole(counts.pictures)}. A small network wants ten thousand or more; it will learn, but not see much.`) : null,
      h("details", { open: true }, h("summary", {}, "Some of the pictures as they are read"),
        h("div", { class: "pictures" }, pictures.map((one) => h("figure", {}, h("img", { src: png(one.png), alt: one.name, title: one.name }), h("figcaption", { class: "hint" }, one.caption ?? one.label ?? ""))))),
      n ? h("p", { class: "hint" }, labels.slice(0, 12).map(([label, m]) => `${label}: ${whole(m)}`).join(", "), n > 12 ? " …" : "") : null);
  }

  function drawHidden(found) {
    another.hidden = count < 2;
    otherPatches.hidden = found.views.length < 2; // nothing is hidden
    const name = (one) => TITLES[one.title] ?? one.title;
    fill(views, found.asks.includes("label") && !counts.labels ? lacks("labels", "a zip with the pictures in one folder for each label") : null, h("div", { class: "pictures large" }, found.views.map((one) => h("figure", {}, h("img", { src: png(one.png), alt: `${name(one)}: ${found.picture}` }), h("figcaption", { class: "hint" }, name(one))))),
      h("dl", {}, Object.entries(found.notes).map(([key, text]) => [h("dt", { class: "label" }, key.charAt(0).toUpperCase() + key.slice(1)), h("dd", { class: "hint" }, `${text}.`)])));
  }

  function ask() {
    const [file] = sources(now);
    hidden.hidden = now.kind !== "images" || !count;
    if (hidden.hidden) { hide.forget(); fill(views); } else hide.change({ model: now.model, file, seed: now.seed, number: now.sampleAt % count });
  }

  function change() {
    const files = sources(now);
    part.hidden = now.kind !== "images";
    told(null, 0);
    reading.forget();
    if (part.hidden) return;
    if (files.length) reading.change({ files, n: SHOWN });
    else fill(look, h("p", { class: "hint" }, KINDS));
  }

  state.listen((changed) => {
    if (["files", "source", "kind"].some((key) => changed.has(key))) change();
    else if (["model", "seed", "sampleAt"].some((key) => changed.has(key))) ask();
  });
  const part = h("div", {}, line, look);
  return { look: part, hidden, change, stop() { reading.stop(); hide.stop(); } };
}
