// Tables as other programs save them: spreadsheets, other encodings, other signs between columns.
import { post } from "../../parts/api.js";
import { button, fill, h } from "../../parts/dom.js";
import { isUnicode, languages, tableEncodings } from "../../parts/encodings.js";
import { whole } from "../../parts/format.js";

const UPLOADED = ".unmask/files/";
const SIGNS = { ";": "semicolons", "\t": "tabs", "|": "vertical bars", ",": "commas" };
const SPREADSHEET = /\.(xlsx?|xlsm|xlsb|ods|numbers)$/i;
const DELIMITED = /\.(csv|tsv|txt)$/i;
const FOREIGN = /UTF-8|parted by (semicolons|tabs|vertical bars)|there are 1 columns/; // the last: a title above the header

export const isSpreadsheet = (path) => SPREADSHEET.test(path);
/** A line with the names that the user gave to files, in place of those that were made of them. */
export const byTheirNames = (text, ...files) => files.reduce((line, one) => (one?.name ? line.replaceAll(one.path.split("/").at(-1), one.name) : line), text.replaceAll(UPLOADED, ""));
/** Whether a table that is refused with such a line may be read as another program saved it. */
export const mayBeForeign = (name, line) => DELIMITED.test(name) && FOREIGN.test(line);

/** Write a table as CSV in UTF-8; gives facts of the new file, under the old one's name, with `foreign`: how that was read. */
export async function rewriteTable(file, asked = {}) {
  const told = await post("/call/rewrite_table", { file: file.path, languages: languages(), ...asked });
  const { name, bytes, ...found } = told;
  return { path: UPLOADED + name, name: file.name, bytes, foreign: { file, ...found, wanted: asked.encoding ?? null } };
}

/** How a table was read, with what may be chosen anew: `again({encoding, sheet, header})`. */
export function foreignNote({ file, encoding, separator, sheet, sheets, header }, again) {
  const choice = (label, options, value, chosen) => {
    const select = h("select", { "aria-label": label, onchange: () => chosen(select.value) }, options.map(([name, text]) => h("option", { value: name }, text)));
    select.value = value;
    return h("label", { class: "row" }, h("span", {}, label), select);
  };
  const at = h("input", { type: "number", min: 1, value: header, "aria-label": "The header is in row", onchange: () => { if (at.checkValidity() && at.value) again({ header: Number(at.value), ...(sheet !== null && { sheet }) }); } });
  const row = h("label", { class: "row" }, h("span", {}, "The header is in row"), at);
  if (sheet !== null) {
    return [h("p", {}, `${file.name} was read as a spreadsheet: the sheet ${sheet}.`),
      sheets.length > 1 ? choice("Sheet", sheets.map((one) => [one, one]), sheet, (one) => again({ sheet: one })) : null, row];
  }
  const odd = [isUnicode(encoding) ? null : "its letters are not in UTF-8", separator === "," ? null : `its columns are separated by ${SIGNS[separator]}`].filter(Boolean);
  return [h("p", {}, `${file.name} was read as a spreadsheet program saves it${odd.length ? `: ${odd.join(", and ")}` : ""}.`),
    isUnicode(encoding) ? null : [choice("Letters", tableEncodings(), encoding, (one) => again({ encoding: one })), h("p", { class: "hint" }, "Guessed. Look at the accented letters in the rows below; if they are wrong, choose another.")], row];
}

/** A button that leaves out the rows without a text or label; `done` is called with facts of the new file. */
export function leaveOut({ n_incomplete: n, n_rows: rows }, asked, done) {
  const line = h("p", { class: "error-line", role: "alert", hidden: true });
  return [h("p", {}, `${whole(n)} of ${whole(rows)} rows have no text or no label.`),
    button(n === 1 ? "Leave this row out" : "Leave these rows out", async () => {
      try {
        const { name, bytes } = await post("/call/leave_out_rows", asked);
        done({ path: UPLOADED + name, name, bytes });
      } catch (error) {
        fill(line, error.line ?? String(error));
        line.hidden = false;
      }
    }), line];
}
