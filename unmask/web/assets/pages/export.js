// A model for other programs: formats that it can be written in, a download, a snippet that opens it.
import { post } from "../parts/api.js";
import { button, empty, fill, h, table } from "../parts/dom.js";
import { bytes } from "../parts/format.js";
import { runLink } from "./home.js";

const NAMES = {
  huggingface: ["Hugging Face", "For Python programs with the library transformers, and all that reads its folders: the usual choice."],
  onnx: ["ONNX", "For apps, web pages, phones and other programming languages, by ONNX Runtime: no Python is needed there."],
  unmask: ["Unmask", "A copy of the model, to be kept, or for Unmask on another computer."],
  gguf: ["GGUF", "One file for llama.cpp."],
  peft: ["PEFT", "The adapter alone, for the library PEFT."],
  elmo: ["ELMo", "The files of the original implementation."],
  "word2vec-text": ["word2vec, text", "Vectors as text, one word a line."],
  "word2vec-binary": ["word2vec, binary", "Vectors as word2vec writes them."],
  glove: ["GloVe", "Vectors as GloVe writes them."],
  fasttext: ["fastText", "Vectors with those of n-grams."],
};
const ORDER = Object.keys(NAMES);
const VECTORS = new Set(["word2vec-text", "word2vec-binary", "glove", "fasttext"]);

export async function page({ rest: id }) {
  const place = h("div", {}, h("p", { class: "hint", role: "status" }, "Opening the model …"));
  const element = h("div", {}, h("div", { class: "heading" }, h("h1", {}, `Export ${id}`), h("a", { href: runLink(id) }, "The run")), place);
  post("/call/export_formats", { model: id }).then(({ formats }) => show(formats)).catch((error) =>
    fill(place, empty("This model cannot be opened", error.line ?? String(error), h("a", { href: runLink(id) }, "The run"))));
  return { element, title: `Export ${id}` };

  function show(formats) {
    const result = h("section", { "aria-live": "polite" });
    const int8 = h("input", { type: "checkbox", id: "int8" });
    const dtype = h("select", { id: "dtype" }, ["float32", "float16"].map((one) => h("option", {}, one)));
    const more = { onnx: h("p", { class: "check" }, int8, " ", h("label", { for: "int8" }, "8-bit weights")), gguf: h("p", {}, h("label", { for: "dtype" }, "Numbers "), dtype) };
    const card = (one) => {
      const [name, text] = NAMES[one.format] ?? [one.format, ""];
      return h("article", { class: "card" }, h("h3", {}, name), h("p", { class: "hint" }, text), one.note ? h("p", { class: "hint" }, one.note) : null,
        one.can ? [more[one.format] ?? null, h("p", { class: "actions" }, button("Write", () => write(one.format, name), { "aria-label": `Write ${name}` }))] : h("p", { class: "hint" }, `Not for this model: ${one.reason}.`));
    };
    async function write(format, name) {
      fill(result, h("p", { class: "hint", role: "status" }, `Writing ${name} …`));
      let told;
      try {
        told = await post("/exports", { model: id, format, int8: format === "onnx" && int8.checked, dtype: dtype.value });
      } catch (error) {
        fill(result, h("p", { class: "error-line", role: "alert" }, `${name}: ${error.line ?? String(error)}`));
        return;
      }
      const code = h("code", {}, told.snippet);
      fill(result, h("h2", {}, `Written: ${name}`), h("p", {}, h("a", { class: "button primary", href: `/api/exports/download?${new URLSearchParams({ name: told.name })}`, download: true }, "Download")),
        h("p", {}, "Unpack what you download where it is to be used; this opens it there:"),
        h("div", { class: "copy" }, h("pre", { tabindex: "0", "aria-label": "Program that opens it" }, code), button("Copy", async () => navigator.clipboard.writeText(code.textContent))),
        table("Files", ["file", "size"], told.files.map((file) => [file.name, bytes(file.bytes)]), { numeric: [1] }),
        h("p", { class: "hint" }, `On the machine of the server: ${told.path}, in the folder of the runs.`));
      result.scrollIntoView({ block: "nearest" });
    }
    const sorted = [...formats].sort((a, b) => ORDER.indexOf(a.format) - ORDER.indexOf(b.format));
    const [can, cannot] = [sorted.filter((one) => one.can), sorted.filter((one) => !one.can)];
    const vectors = can.filter((one) => VECTORS.has(one.format));
    const main = vectors.length < can.length ? can.filter((one) => !VECTORS.has(one.format)) : can;
    fill(place, h("p", { class: "lead" }, "To use the model here, nothing has to be exported: ", h("a", { href: runLink(id, "try") }, "try it"), ", on single texts or a whole file. For other programs it is written as they read it, and downloaded."),
      h("div", { class: "grid" }, main.map(card)), result,
      main.length < can.length ? h("section", {}, h("details", {}, h("summary", {}, "Its table of tokens alone, as word vectors"), h("div", { class: "grid" }, vectors.map(card)))) : null,
      cannot.length ? h("section", {}, h("details", {}, h("summary", {}, `${cannot.length} formats that it cannot be written in`), h("div", { class: "grid" }, cannot.map(card)))) : null);
  }
}
