// The text that a model learns from: uploaded, or the bundled one, with a look at what is read.
import { post } from "../parts/api.js";
import { button, fill, h } from "../parts/dom.js";
import { ENCODINGS, languages } from "../parts/encodings.js";
import { field, filePicker } from "../parts/form.js";
import { bytes, short, whole } from "../parts/format.js";
import { isSpreadsheet, rewriteTable } from "../pages/finetuning/foreign.js";
import { live } from "./live.js";
import { BUNDLED, sources } from "./state.js";

const TEXTS = ".txt,.xlsx,.ods,.jsonl,.csv,.tsv,.parquet,.gz,.xz,.zst";
const PICTURES = ".zip,.npz,.gz,.parquet,.tsv,.csv,.jsonl,.png,.jpg,.jpeg";
const SHOWN = 8;
const decoded = async (file, encoding) => new TextDecoder(encoding).decode(await file.arrayBuffer());
const LITTLE = 200_000;
const TABLE = /\.(jsonl|csv|tsv|parquet)(\.(gz|xz|zst))?$/i;

/**
 * The section: {element, errors, documents()}. `told(preview)` is called with what is read; null:
 * there is no text yet.
 */
export function textSection(state, { told }) {
  const { now } = state;
  let documents = [];
  let isReadable = false;
  const place = h("div", { "aria-live": "polite" });
  const picker = filePicker({ label: "Files with your text", accept: TEXTS, chosen: (paths, facts) => (now.kind === "images" ? state.change({ files: facts }) : take(facts)) });
  if (now.files.length) picker.set(now.files);
  const radio = (value, label, hint) => h("label", { class: "card pick" },
    h("input", { type: "radio", name: "source", value, checked: now.source === value, onchange: () => state.change({ source: value }) }), " ", h("strong", {}, label), h("span", { class: "hint block" }, hint));
  const choice = h("fieldset", { class: "grid" }, h("legend", { class: "hidden" }, "Source of the text"),
    radio("own", "Your own", "Text files, or tables with a column of text."),
    radio("bundled", "The bundled one", "English novels for text, 360 emoji for pictures: a start for who has none."));

  const separator = field({ name: "document_separator", flag: "--document", kind: "choice", choices: ["blank", "line", "file"],
    help: "What separates documents in .txt files: blank lines, each line, or each file.", shown_default: "blank" },
  { label: "Documents are separated by", onchange: () => state.change({ documentSeparator: separator.value() ?? "" }) });
  const column = field({ name: "text_column", flag: "--text", kind: "text", help: "Column of tables and key of records with the text.", shown_default: "text" },
    { label: "Text column", onchange: () => state.change({ textColumn: column.value() ?? "" }) });
  const encoding = field({ name: "encoding_errors", flag: "--encoding-errors", kind: "choice", choices: ["strict", "replace"],
    help: "Bytes that are not UTF-8: refused, or replaced by U+FFFD.", shown_default: "strict" },
  { label: "Bytes that are not UTF-8", onchange: () => state.change({ encodingErrors: encoding.value() ?? "" }) });
  const convert = h("div", { class: "card convert", hidden: true });
  const picks = h("div", { class: "row" });
  const options = h("div", { class: "grid fields" }, separator.element, column.element, encoding.element);
  const line = h("p", { class: "error-line", role: "alert", hidden: true });

  const look = live((question, signal) => post("/call/preview_text", question, { signal }), {
    show(found) {
      documents = found.documents;
      isReadable = !found.problem;
      draw(found);
      told(found);
    },
    fail(error) {
      documents = [];
      isReadable = false;
      convert.hidden = true;
      fill(picks);
      fill(place);
      told(null);
      showError(error.line ?? String(error), error.field);
    },
    busy(is) {
      place.setAttribute("aria-busy", is ? "true" : "false");
      if (is && !place.hasChildNodes()) fill(place, h("p", { class: "hint" }, "Reading the beginning of the text …"));
    },
    wait: 250,
  });

  /** Take files; spreadsheets, and tables as spreadsheet programs save them, are written as CSV first. */
  async function take(facts, foreign = (one) => isSpreadsheet(one.path)) {
    const others = facts.filter((one) => !foreign(one));
    if (others.length === facts.length) return state.change({ files: facts });
    try {
      const made = [];
      for (const one of facts.filter(foreign)) made.push(await rewriteTable(one));
      for (const one of facts.filter(foreign)) picker.drop(one.name);
      picker.set(made);
    } catch (error) {
      for (const one of facts.filter(foreign)) picker.drop(one.name);
      picker.set([]);
      showError(error.line ?? String(error));
    }
  }

  function showError(text, name) {
    for (const one of [separator, column, encoding]) one.error(null);
    const one = [separator, column, encoding].find((f) => f.name === name) ?? (/column/.test(text) ? column : /UTF-8/.test(text) ? encoding : null);
    line.hidden = !text || Boolean(one);
    line.textContent = text ?? "";
    if (one && text) { one.error(text); one.element.hidden = false; }
  }

  /** Where a file that was sent just now is not UTF-8: read it as another encoding, and send that. */
  function drawEncodings(found) {
    const name = found.problem?.includes("UTF-8") && found.problem.split(":")[0];
    const file = name && picker.original(name);
    convert.hidden = !file;
    if (!file) return;
    const read = button("Read it like this", async () => {
      const text = await decoded(file, select.value);
      picker.drop(file.name);
      await picker.take([new File([text], file.name, { type: "text/plain" })]);
    }, { disabled: true });
    const select = h("select", { id: "charset" }, Object.entries(ENCODINGS).map(([value, label]) => h("option", { value }, label)));
    const sample = h("p", { class: "text" });
    const shown = async () => { sample.textContent = (await decoded(file.slice(0, 600), select.value)).slice(0, 160); };
    select.addEventListener("change", shown);
    shown();
    post("/call/guess_encoding", { file: now.files.find((one) => one.name === name)?.path, languages: languages() }).then(({ encoding: guessed }) => {
      if (guessed in ENCODINGS) select.value = guessed;
      return shown();
    }).catch(() => {}).finally(() => { read.disabled = false; }); // where it is not guessed, the first is shown
    fill(convert, h("label", { for: "charset" }, `${file.name} is not UTF-8. What is it?`), select, sample, read);
  }

  function draw(found) {
    const { counts, complete } = found;
    const parted = now.files.find((one) => !one.foreign && found.problem?.startsWith(`${one.name}: columns are parted by`));
    if (parted) { take(now.files, (one) => one === parted); return; }
    const about = complete ? "" : "at least ";
    showError(found.problem);
    encoding.element.hidden = !(found.problem?.includes("UTF-8") || counts.replaced || now.encodingErrors);
    const warnings = [
      counts.replaced ? `${whole(counts.replaced)} characters stand for bytes that are not UTF-8: is the file in another encoding?` : null,
      complete && counts.documents === 1 ? "All of it is one document; if it is many, choose what separates them." : null,
      complete && counts.characters < LITTLE ? `This is little text: ${short(counts.characters)} characters. A small model wants a million or more; it will learn, but hardly more than which words are frequent.` : null,
    ].filter(Boolean);
    const columns = /no column .*, only ((?:'[^']*'(?:, )?)+)/.exec(found.problem ?? "")?.[1].match(/'[^']*'/g) ?? [];
    drawEncodings(found);
    fill(picks, columns.length ? [h("span", { class: "hint" }, "Read the column"), columns.map((quoted) => quoted.slice(1, -1)).map((name) =>
      button(name, () => { column.set(name); state.change({ textColumn: name }); }))] : null);
    if (found.problem && !counts.documents) { fill(place); return; }
    fill(place, h("dl", { class: "figures" },
      [["Documents", counts.documents], ["Words", counts.words], ["Characters", counts.characters]].map(([name, n]) =>
        h("div", {}, h("dt", { class: "hint" }, name), h("dd", { class: "big" }, `${about}${short(n)}`)))),
    h("p", { class: "hint" }, found.files.map((one) => `${one.name} (${bytes(one.bytes)})`).join(", ")),
    warnings.map((one) => h("p", { class: "notice" }, one)),
    found.documents.length ? h("details", { open: true }, h("summary", {}, found.documents.length === 1 ? "The first document as it is read" : `The first ${found.documents.length} documents as they are read`),
      h("div", { class: "documents scroll", tabindex: "0", role: "region", "aria-label": "First documents" }, found.documents.map((one, i) =>
        h("article", {}, h("p", { class: "hint" }, `${i + 1} · ${one.location} · ${whole(one.characters)} characters`), h("p", { class: "text" }, one.text.slice(0, 400), one.text.length > 400 ? " …" : ""))))) : null);
  }

  function change() {
    const isPictures = now.kind === "images";
    picker.element.hidden = now.source === "bundled";
    element.querySelector("h2").textContent = isPictures ? "Pictures" : "Text";
    picker.element.querySelector(".label").textContent = isPictures ? "Pictures" : "Files with your text";
    picker.element.querySelector("input").accept = isPictures ? PICTURES : TEXTS;
    const files = sources(now);
    options.hidden = isPictures || now.source === "bundled" || !files.length;
    separator.element.hidden = files.every((one) => TABLE.test(one));
    column.element.hidden = !files.some((one) => TABLE.test(one));
    if (isPictures || !files.length) {
      look.forget();
      showError(null);
      documents = [];
      isReadable = false;
      convert.hidden = true;
      fill(picks);
      fill(place);
      told(null);
      return;
    }
    look.change({ files, n: SHOWN, ...(now.documentSeparator && { document_separator: now.documentSeparator }),
      ...(now.textColumn && { text_column: now.textColumn }), ...(now.encodingErrors && { encoding_errors: now.encodingErrors }) });
  }

  separator.set(now.documentSeparator);
  column.set(now.textColumn);
  encoding.set(now.encodingErrors);
  state.listen((changed) => {
    if (["files", "source", "documentSeparator", "textColumn", "encodingErrors", "kind"].some((key) => changed.has(key))) change();
  });
  encoding.element.hidden = !now.encodingErrors;
  const element = h("section", { id: "text" }, h("h2", {}, "Text"), choice, picker.element, line, convert, options, picks, place);
  return {
    element, start: change, stop: look.stop, documents: () => documents, isReadable: () => isReadable, fields: [separator, column, encoding],
    refuse(text) { line.hidden = false; line.textContent = text; picker.element.querySelector("input").focus(); },
    isBundled: () => sources(now)[0] === BUNDLED,
  };
}
