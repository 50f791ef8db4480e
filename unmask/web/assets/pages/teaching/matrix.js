// Who sees whom: rows are tokens that look, columns the tokens seen; each row is told in words.
import { fill, h } from "../../parts/dom.js";
import { piece, plainPiece } from "./tokens.js";

const MAX_NAMED = 9;
const MAX_EXCEPTIONS = 3;

/**
 * The matrix: `rows` and `columns` are pieces, `sees` lists of 0 and 1; `own`: where the columns of
 * the rows themselves begin (after those of an encoder), -1 if there are none.
 */
export function matrix(title, rows, columns, sees, own = 0) {
  const words = h("p", { class: "spoken", role: "status" });
  const heads = rows.map((text, i) => h("th", { scope: "row", tabindex: i ? "-1" : "0" }, piece(text)));
  const lines = rows.map((_, i) => h("tr", {}, heads[i], columns.map((_, j) =>
    h("td", { class: sees[i][j] ? (j === own + i && own >= 0 ? "seen self" : "seen") : null }, h("span", { class: "hidden" }, sees[i][j] ? "sees" : "–")))));
  const tops = columns.map((text) => h("th", { scope: "col" }, h("span", {}, piece(text))));
  let chosen = -1;

  function choose(i) {
    if (i === chosen) return;
    lines[chosen]?.classList.remove("chosen");
    chosen = i;
    lines[i].classList.add("chosen");
    tops.forEach((one, j) => one.classList.toggle("seen", Boolean(sees[i][j])));
    fill(words, sentence(rows[i], columns, sees[i], own >= 0 ? own + i : -1));
  }

  function focus(i) {
    const next = Math.min(Math.max(i, 0), rows.length - 1);
    heads.forEach((one, j) => { one.tabIndex = j === next ? 0 : -1; });
    heads[next].focus();
  }
  lines.forEach((line, i) => line.addEventListener("mouseenter", () => choose(i)));
  lines.forEach((line, i) => line.addEventListener("click", () => choose(i)));
  heads.forEach((head, i) => {
    head.addEventListener("focus", () => choose(i));
    head.addEventListener("keydown", (event) => {
      const next = { ArrowDown: i + 1, ArrowUp: i - 1 }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      focus(next);
    });
  });
  const table = h("table", { class: "sightmap", style: { "--n": rows.length + room(columns), "--m": columns.length + room(rows) } }, h("caption", { class: "hidden" }, `${title}: rows are tokens that look, columns the tokens that they see`),
    h("thead", {}, h("tr", {}, h("td", {}), tops)), h("tbody", {}, lines));
  choose(Math.min(2, rows.length - 1));
  return h("figure", { class: "sees" }, h("figcaption", { class: "label" }, title), words,
    h("div", { class: "scroll", role: "region", "aria-label": title }, table));
}

/** Cells that the longest name of a row or column takes. */
const room = (names) => 1 + Math.ceil(0.45 * Math.max(...names.map((one) => one.length)));

/** “cat” sees “the” and itself. */
export function sentence(name, columns, sees, self) {
  const seen = columns.map((text, j) => [text, j]).filter(([, j]) => sees[j]);
  const others = seen.filter(([, j]) => j !== self);
  const isSelf = others.length < seen.length;
  const quote = (text) => `“${plainPiece(text)}”`;
  const who = quote(name);
  if (!seen.length) return `${who} sees nothing.`;
  if (seen.length === columns.length) return self < 0 ? `${who} sees every token.` : `${who} sees every token, and itself.`;
  if (!others.length) return `${who} sees itself alone.`;
  if (!isSelf && self >= 0 && others.length === columns.length - 1) return `${who} sees every token but itself.`;
  const missing = columns.map((text, j) => [text, j]).filter(([, j]) => !sees[j] && j !== self);
  if (missing.length <= MAX_EXCEPTIONS && missing.length < others.length) return `${who} sees every token but ${list(missing.map(([text]) => quote(text)))}${isSelf || self < 0 ? "" : ", and not itself"}.`;
  const named = others.slice(0, MAX_NAMED).map(([text]) => quote(text));
  if (others.length > MAX_NAMED) named.push(`${others.length - MAX_NAMED} more`);
  if (isSelf) named.push("itself");
  return `${who} sees ${list(named)}${!isSelf && self >= 0 ? ", not itself" : ""}.`;
}

const list = (all) => (all.length > 1 ? `${all.slice(0, -1).join(", ")} and ${all.at(-1)}` : all[0]);

/** The matrices of what `hide` answered: of an encoder, of a decoder or the only stack, of two streams. */
export function matrices({ source, inputs, visible, shown }) {
  const pieces = (tokens) => tokens.slice(0, shown).map((one) => one.piece);
  const own = pieces(inputs);
  const found = [];
  if (source && visible.source) found.push(matrix("Who sees whom in the encoder", pieces(source), pieces(source), visible.source));
  if (source && visible.inputs) {
    const read = pieces(source);
    found.push(matrix("What the decoder sees: first all that the encoder read, then its own", own, [...read, ...own], visible.inputs.map((row) => [...read.map(() => 1), ...row]), read.length));
  } else if (visible.inputs) found.push(matrix(visible.queries ? "Who sees whom, once words are known" : "Who sees whom", own, own, visible.inputs));
  if (visible.queries) found.push(matrix("What is seen by whoever is asked for a word", own, own, visible.queries));
  return found;
}
