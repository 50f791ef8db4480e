// A model for other programs: formats that it can be written in, a download, a snippet that opens it.
import { post } from "../parts/api.js";
import { button, empty, fill, h, table } from "../parts/dom.js";
import { bytes } from "../parts/format.js";
import { runLink } from "./home.js";

const NAMES = {
  huggingface: ["Hugging Face", "a folder that transformers opens"],
  unmask: ["Unmask", "a folder that unmask.load opens, for every model"],
  onnx: ["ONNX", "a graph for ONNX Runtime, in browsers and on phones"],
  gguf: ["GGUF", "a file for llama.cpp"],
  peft: ["PEFT", "the adapter alone, for the library PEFT"],
  elmo: ["ELMo", "the files of the original implementation"],
  "word2vec-text": ["word2vec, text", "vectors as text, one word a line"],
  "word2vec-binary": ["word2vec, binary", "vectors as word2vec writes them"],
  glove: ["GloVe", "vectors as GloVe writes them"],
  fasttext: ["fastText", "vectors with those of n-grams"],
};

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
        one.can ? [more[one.format] ?? null, button("Write", () => write(one.format, name), { "aria-label": `Write ${name}` })] : h("p", { class: "hint" }, `Not for this model: ${one.reason}.`));
    };
    async function write(format, name) {
      const told = await post("/exports", { model: id, format, int8: format === "onnx" && int8.checked, dtype: dtype.value });
      const code = h("code", {}, told.snippet);
      fill(result, h("h2", {}, `Written: ${name}`), h("p", {}, h("a", { class: "button primary", href: `/api/exports/download?${new URLSearchParams({ name: told.name })}`, download: true }, "Download")),
        table("Files", ["file", "size"], told.files.map((file) => [file.name, bytes(file.bytes)]), { numeric: [1] }),
        h("p", { class: "hint" }, `On the machine of the server: ${told.path}, in the folder of the runs.`),
        h("div", { class: "copy" }, h("pre", { tabindex: "0", "aria-label": "Program that opens it" }, code), button("Copy", async () => navigator.clipboard.writeText(code.textContent))));
      result.scrollIntoView({ block: "nearest" });
    }
    const [can, cannot] = [formats.filter((one) => one.can), formats.filter((one) => !one.can)];
    fill(place, h("div", { class: "grid" }, can.map(card)), result,
      cannot.length ? h("section", {}, h("details", {}, h("summary", {}, `${cannot.length} formats that it cannot be written in`), h("div", { class: "grid" }, cannot.map(card)))) : null);
  }
}
