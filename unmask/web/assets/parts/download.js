// What is on the page as a file for a paper: tables as CSV, curves as SVG.
import { measured } from "./format.js";

/** Let the browser save a text as a file. */
export function download(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

/** A name for a file: letters and digits of a title. */
export const fileName = (title, ending) => `${title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "") || "unmask"}.${ending}`;

/** Rows as CSV (RFC 4180); a cell that a spreadsheet would compute is text. */
export function csv(rows) {
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    const computed = /^[=+@\t\r]/.test(text) || (text.startsWith("-") && Number.isNaN(Number(text)));
    const plain = typeof value !== "number" && computed ? `'${text}` : text;
    return /[",\r\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
  };
  return rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}

/** All points of lines as CSV, a line of it each: name, place, value. */
export const curvesAsCsv = (lines, x, y) => csv([["run", x, y],
  ...lines.flatMap((one) => one.steps.map((place, i) => [one.label, place, one.values[i]]).filter((row) => row[2] !== null && row[2] !== undefined))]);

const [WIDTH, HEIGHT, LEFT, TOP, LINE] = [720, 380, 64, 34, 18]; // pixels; the legend is below the height
const MAX_POINTS = 1500; // of a line: more are not seen on paper

/**
 * Lines as an SVG: {label, steps, values, stroke, dash, points}; `x` is {label, text(value)}.
 * It is made of what is shown, on white, with a legend below.
 */
export function svgOfLines(title, lines, { log = false, x, format = measured }) {
  const drawn = lines.map((one) => ({ ...one, points: thinned(one, log), hasPoints: one.points })).filter((one) => one.points.length);
  const ends = (i) => { const all = drawn.flatMap((one) => one.points.map((point) => point[i])); return all.length ? [all.reduce((a, b) => Math.min(a, b)), all.reduce((a, b) => Math.max(a, b))] : [0, 1]; };
  const [left, right] = ends(0);
  const yTicks = log ? logTicks(...ends(1)) : ticks(...ends(1), 6);
  const of = log ? Math.log : (value) => value;
  const [low, high] = [Math.min(ends(1)[0], yTicks[0] ?? Infinity), Math.max(ends(1)[1], yTicks.at(-1) ?? -Infinity)];
  const [width, height] = [WIDTH - LEFT - 16, HEIGHT - TOP - 46];
  const px = (value) => round(LEFT + (width * (value - left)) / (right - left || 1));
  const py = (value) => round(TOP + height - (height * (of(value) - of(low))) / (of(high) - of(low) || 1));
  const label = (text, at, more = "") => `<text x="${at[0]}" y="${at[1]}"${more}>${escaped(text)}</text>`;
  const columns = Math.min(drawn.length, Math.max(Math.floor(WIDTH / (60 + 7 * Math.max(...drawn.map((one) => one.label.length), 1))), 1));
  const total = HEIGHT + LINE * (Math.ceil(drawn.length / Math.max(columns, 1)) + 1);
  return [`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${total}" width="${WIDTH}" height="${total}" font-family="Helvetica, Arial, sans-serif" font-size="12" fill="#222">`,
    `<title>${escaped(title)}</title><rect width="100%" height="100%" fill="#fff"/>`, label(title, [LEFT, 20], ' font-size="14" font-weight="bold"'),
    ...yTicks.flatMap((value) => [`<path d="M${LEFT} ${py(value)}h${width}" stroke="#ddd"/>`, label(format(value), [LEFT - 8, py(value) + 4], ' text-anchor="end"')]),
    ...ticks(left, right, 8).filter((value) => value >= left && value <= right).flatMap((value) => [`<path d="M${px(value)} ${TOP + height}v5" stroke="#888"/>`, label(x.text(value), [px(value), TOP + height + 20], ' text-anchor="middle"')]),
    `<path d="M${LEFT} ${TOP}v${height}h${width}" fill="none" stroke="#888"/>`, label(x.label, [LEFT + width / 2, TOP + height + 38], ' text-anchor="middle"'),
    ...drawn.map((one) => `<path d="M${one.points.map(([a, b]) => `${px(a)} ${py(b)}`).join("L")}" fill="none" stroke="${escaped(one.stroke)}" stroke-width="1.5"${dashes(one)}/>${one.hasPoints || one.points.length < 2 ? one.points.map(([a, b]) => `<circle cx="${px(a)}" cy="${py(b)}" r="2.2" fill="${escaped(one.stroke)}"/>`).join("") : ""}`),
    ...drawn.map((one, i) => { const at = [LEFT + ((WIDTH - LEFT) / columns) * (i % columns), HEIGHT + LINE * (Math.floor(i / columns) + 1)]; return `<path d="M${round(at[0])} ${at[1] - 4}h22" stroke="${escaped(one.stroke)}" stroke-width="2"${dashes(one)}/>${label(one.label, [round(at[0] + 28), at[1]])}`; }),
    "</svg>\n"].join("\n");
}

const round = (value) => Number(value.toFixed(2));
const dashes = (one) => (one.dash?.length ? ` stroke-dasharray="${one.dash.join(" ")}"` : "");
const escaped = (text) => String(text).replace(/[&<>"]/g, (one) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[one]);

function thinned({ steps, values }, log) {
  const known = steps.map((place, i) => [place, values[i]]).filter(([, value]) => Number.isFinite(value) && (!log || value > 0));
  const every = Math.ceil(known.length / MAX_POINTS);
  return known.filter((_, i) => i % every === 0 || i === known.length - 1);
}

/** Round numbers that cover a range. */
function ticks(low, high, about) {
  const width = high - low || Math.abs(high) || 1;
  const power = 10 ** Math.floor(Math.log10(width / about));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => width / one <= about);
  const first = Math.floor(low / step);
  return [...Array(Math.ceil(high / step) - first + 1).keys()].map((i) => Number(((first + i) * step).toPrecision(12)));
}

function logTicks(low, high) {
  const all = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) all.push(...[1, 2, 5].map((one) => Number((one * 10 ** power).toPrecision(6))));
  const below = Math.max(all.findLastIndex((one) => one <= low), 0);
  const above = all.findIndex((one) => one >= high);
  return all.slice(below, above < 0 ? undefined : above + 1);
}
