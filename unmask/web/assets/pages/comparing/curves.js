// The curves of several runs: what can be drawn, along what, how smooth.
import { get } from "../../parts/api.js";
import { duration, short, whole, words } from "../../parts/format.js";

export const AXES = {
  step: { label: "step", text: whole, name: "Steps" },
  tokens: { label: "tokens", text: short, name: "Tokens" },
  seconds: { label: "time", text: duration, name: "Time" },
};
const PARTS = { training: "training", evaluation: "held out", timing: "speed and memory" };
const FIRST = ["loss", "accuracy", "tokens_per_second"];
const LEFT_OUT = new Set(["step", "tokens", "total_steps", "seconds", "skipped"]);

const UNITS = { loss: "nats" };
const NAMES = { rate: "learning rate", matmul_share: "share of the peak speed", memory_bytes: "memory (bytes)" };

/** The name of a column in words. */
export function columnWords(part, column) {
  const plain = NAMES[column] ?? words(column.replace(/_asked$/, ": tokens scored").replace(/^parts\./, "loss, ").replace(/^accuracy\./, "accuracy, "));
  const named = plain.charAt(0).toUpperCase() + plain.slice(1);
  if (part === "timing") return named;
  return `${named}, ${PARTS[part]}${UNITS[column] ? ` (${UNITS[column]})` : ""}`;
}

/** Groups of columns for a select: {label, options: [{value, part, column, label}]}; `columns` as of /compare. */
export function columnGroups(columns) {
  return Object.entries(PARTS).map(([part, label]) => ({
    label: label.charAt(0).toUpperCase() + label.slice(1),
    options: (columns[part] ?? []).filter((one) => !LEFT_OUT.has(one)).sort((a, b) => rank(a) - rank(b))
      .map((column) => ({ value: `${part}:${column}`, part, column, label: columnWords(part, column) })),
  })).filter((one) => one.options.length);
}

function rank(column) {
  const at = FIRST.findIndex((one) => column === one || column.startsWith(`${one}.`));
  return at < 0 ? FIRST.length : at;
}

/** The address of the curves of runs. */
export function curvesPath(runs, { part, column, axis }) {
  const query = new URLSearchParams([...runs.map((one) => ["run", one]), ["part", part], ["column", column], ["axis", axis]]);
  return `/compare/curves?${query}`;
}

/** Read curves: {run, seed, label, steps, values}. */
export async function readCurves(runs, wanted, signal) {
  const { curves } = await get(curvesPath(runs, wanted), { signal });
  return curves.map((one) => ({ run: one.run_id, seed: one.seed, label: one.seed ? `${one.run_id}, ${words(one.seed)}` : one.run_id, steps: one.steps, values: one.values }));
}

/** A moving average that forgets: of 0 the values as they are, near 1 hardly any change. */
export function smoothed(values, weight) {
  if (!weight) return values;
  let [sum, total] = [0, 0];
  return values.map((value) => {
    if (value === null) return null;
    sum = weight * sum + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return sum / total;
  });
}

/** Names of runs without the folder that all of them are in, which is what a narrow place would show. */
export function shortNames(ids) {
  const folders = ids.map((id) => id.split("/").slice(0, -1));
  let n = ids.length > 1 ? Math.min(...folders.map((one) => one.length)) : 0;
  while (n && !folders.every((one) => one.slice(0, n).join("/") === folders[0].slice(0, n).join("/"))) n -= 1;
  return (id) => id.split("/").slice(n).join("/");
}
