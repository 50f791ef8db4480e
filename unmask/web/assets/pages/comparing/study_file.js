// The files of a study that was composed: its cells, and the table of its task, as TOML.

const MAX_SEEDS = 20;
const text = (value) => JSON.stringify(String(value)).replaceAll("\u007f", "\\u007f"); // a basic string of TOML is one of JSON
const list = (values) => `[${values.map(text).join(", ")}]`;
const number = (value, other) => { const plain = Number(String(value).replace(/[\s,_]/g, "")); return Number.isFinite(plain) && plain > 0 ? plain : other; };
const named = (name) => name.replace(/[^\w.+-]/g, "-");

/** The changes of the recipes of all cells, KEY=VALUE. */
const changesOf = ({ changes }) => Object.entries(changes).filter(([, value]) => String(value).trim()).map(([key, value]) => `${key}=${String(value).trim()}`);

/**
 * The cells of a study: {name, model, objective, changes, isRandom, plan}; `can(model, objective)` tells
 * which there are. One without pretraining comes first, so that it is done first.
 */
export function cellsOf(now, can) {
  const n = Math.min(Math.floor(number(now.pretrainingSeeds, 1)), MAX_SEEDS);
  const common = changesOf(now);
  const found = [];
  for (const model of now.models) {
    const own = now.objectives.filter((one) => can(model, one) && !now.left.includes(`${model} ${one}`));
    if (now.withRandom && own.length) found.push({ name: named(`${model}-random`), model, objective: own[0], changes: [], isRandom: true });
    for (const objective of own) {
      for (let seed = 0; seed < n; seed++) {
        found.push({ name: named([model, objective || "own", n > 1 ? `seed-${seed}` : null].filter(Boolean).join("-")), model, objective, changes: n > 1 ? [`seed=${seed}`] : [], isRandom: false,
          plan: { model, tokens: number(now.tokens, 1), changes: common, ...(objective && { objective }) } });
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
  return [`question = ${text(now.question || "Which is best?")}`, `tasks = ${text(tasks)}`, `tokens = ${number(now.tokens, 1)}`,
    `rows = ${Math.floor(number(now.rows, 1000))}`, `epochs = ${number(now.epochs, 3)}`, `seeds = ${Math.floor(number(now.seeds, 3))}`,
    ...(changes.length ? [`changes = ${list(changes)}`] : []), "cells = [", ...cells.map(cell), "]", ""].join("\n");
}

/** The file of the tasks of a study: one, whose labels are in an uploaded table. */
export function tasksToml(table) {
  return ["[[benchmarks]]", `name = ${text(table.name.replace(/\.\w+$/, ""))}`, `task = ${text(table.task)}`, "", "[[benchmarks.files]]", `train = ${text(table.name)}`,
    `text = ${list(table.texts)}`, ...(table.label ? [`label = ${text(table.label)}`] : []), ""].join("\n");
}
