// The files of a study that was composed: its cells, and the table of its task, as TOML.

export const MAX_SEEDS = 20;
const text = (value) => JSON.stringify(String(value)).replaceAll("\u007f", "\\u007f"); // a basic string of TOML is one of JSON
const list = (values) => `[${values.map(text).join(", ")}]`;
const plain = (value) => Number(String(value).replace(/[\s,_]/g, ""));
/** A number as TOML; what is none stays a text, which the check of the study refuses in its own words. */
const number = (value) => (String(value).trim() && Number.isFinite(plain(value)) ? String(plain(value)) : text(value));
/** `key = number`, or nothing where it is left empty: the study's own number holds. */
const optional = (key, value) => (String(value).trim() ? [`${key} = ${number(value)}`] : []);
const named = (name) => name.replace(/[^\w.+-]/g, "-");

/** The changes of the recipes of all cells, KEY=VALUE: their heads begin alike, though a preset has this for its own objective. */
const changesOf = ({ changes, objectives }) => [...Object.entries(changes).filter(([, value]) => String(value).trim()).map(([key, value]) => `${key}=${String(value).trim()}`), ...(objectives.length > 1 ? ["init_previous_token_heads=0"] : [])];

/** How often each cell is pretrained; null: what was typed is no such number. */
export function seedsOf({ pretrainingSeeds }) {
  const n = String(pretrainingSeeds).trim() ? plain(pretrainingSeeds) : 1;
  return Number.isInteger(n) && n >= 1 && n <= MAX_SEEDS ? n : null;
}

/**
 * The cells of a study: {name, model, objective, changes, isRandom, plan}; `can(model, objective)` tells
 * which there are. One without pretraining comes first, so that it is done first.
 */
export function cellsOf(now, can) {
  const n = seedsOf(now) ?? 1;
  const common = changesOf(now);
  const found = [];
  for (const model of now.models) {
    const own = now.objectives.filter((one) => can(model, one) && !now.left.includes(`${model} ${one}`));
    if (now.withRandom && own.length) found.push({ name: named(`${model}-random`), model, objective: own[0], changes: [], isRandom: true });
    for (const objective of own) {
      for (let seed = 0; seed < n; seed++) {
        found.push({ name: named([model, objective || "own", n > 1 ? `seed-${seed}` : null].filter(Boolean).join("-")), model, objective, changes: n > 1 ? [`seed=${seed}`] : [], isRandom: false,
          plan: { model, tokens: plain(now.tokens), changes: common, ...(objective && { objective }) } });
      }
    }
  }
  return found;
}

/** The file of a study; `tasks` is the name of the file of its tasks, beside it. */
export function studyToml(now, cells, tasks = `${now.name}-tasks.toml`) {
  const cell = (one) => `    {name = ${text(one.name)}, model = ${text(one.model)}${one.objective ? `, objective = ${text(one.objective)}` : ""}`
    + `${one.changes.length ? `, changes = ${list(one.changes)}` : ""}${one.isRandom ? ", token_factor = 0.0" : ""}},`;
  const changes = changesOf(now);
  return [`question = ${text(now.question || "Which is best?")}`, `tasks = ${text(tasks)}`, `tokens = ${number(now.tokens)}`, ...optional("rows", now.rows), ...optional("epochs", now.epochs), ...optional("seeds", now.seeds),
    ...(changes.length ? [`changes = ${list(changes)}`] : []), "cells = [", ...cells.map(cell), "]", ""].join("\n");
}

/** The file of the tasks of a study: one, whose labels are in an uploaded table. */
export function tasksToml(table) {
  return ["[[benchmarks]]", `name = ${text(table.name.replace(/\.\w+$/, ""))}`, `task = ${text(table.task)}`, "", "[[benchmarks.files]]", `train = ${text(table.name)}`,
    `text = ${list(table.texts)}`, ...(table.label ? [`label = ${text(table.label)}`] : []), ""].join("\n");
}
