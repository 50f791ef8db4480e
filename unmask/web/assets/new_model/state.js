// What a new model is to be: kept in the browser; as values of the form of `pretrain`, and of a plan.
import { keeping } from "../parts/dom.js";
import { numberOf } from "../parts/format.js";

const KEY = "new-model";
export const BUNDLED = "demo:novels";
const PICTURES = "demo:emoji";
const LABELS = /-labels-idx1-ubyte(\.\w+)?$/i; // read beside their pictures
const FIRST = {
  source: "own", files: [], documentSeparator: "", textColumn: "", encodingErrors: "",
  kind: "encoder", model: "bert-mini", sizes: {}, vocabSize: "", sequenceLength: "",
  objective: "mlm", options: {}, second: "", sample: "", sampleTaken: false, seed: 0, sampleAt: 0,
  unit: "minutes", length: "10", out: "", isNamed: false,
};

let keptLater = null; // what the page that is open keeps in a moment

/** The state, its changes told to all who listen: `change(patch)`, `listen(f)`, `now`. */
export function openState() {
  let kept = {};
  try {
    kept = JSON.parse(sessionStorage.getItem(KEY) ?? "{}");
  } catch { /* what was kept is not readable: begin anew */ }
  const now = { ...structuredClone(FIRST), ...kept };
  const listeners = new Set();
  const keep = keeping(() => sessionStorage.setItem(KEY, JSON.stringify(now)), 150);
  keptLater = keep;
  return {
    now,
    change(patch) {
      const changed = Object.keys(patch).filter((key) => JSON.stringify(patch[key]) !== JSON.stringify(now[key]));
      if (!changed.length) return;
      Object.assign(now, patch);
      keep();
      for (const one of [...listeners]) one(new Set(changed));
    },
    listen(listener) { listeners.add(listener); },
    /** Keep what is now to be shown when the page is drawn anew. */
    replace(other = structuredClone(FIRST)) {
      keptLater.cancel();
      for (const key of Object.keys(now)) delete now[key];
      Object.assign(now, other);
      sessionStorage.setItem(KEY, JSON.stringify(now));
    },
  };
}

/** What is not kept from one model to another: its sizes. */
export const ofOtherModel = { sizes: {}, vocabSize: "", sequenceLength: "" };

/** Where the text, or the pictures, are. */
export function sources(now) {
  if (now.kind === "images") return now.source === "bundled" ? [PICTURES] : now.files.map((one) => one.path).filter((one) => !LABELS.test(one));
  return now.source === "bundled" ? [BUNDLED] : now.files.map((one) => one.path);
}

/** The objective as the command line writes it: "mlm:rate=0.3+nsp"; undefined: that of the model. */
export function objectiveName(now) {
  if (!now.objective) return undefined;
  const given = Object.entries(now.options).filter(([, value]) => String(value).trim() !== "");
  const options = given.length ? `:${given.map(([key, value]) => `${key}=${String(value).trim()}`).join(",")}` : "";
  return now.objective + options + (now.second ? `+${now.second}` : "");
}

/** The changed sizes as KEY=VALUE. */
export function sizeChanges(now) {
  return Object.entries(now.sizes).filter(([, value]) => String(value).trim() !== "")
    .map(([key, value]) => `${key}=${String(value).trim()}`);
}

const number = (text) => {
  const trimmed = String(text).trim();
  return trimmed ? numberOf(trimmed) ?? trimmed : undefined;
};

const given = (values) => Object.fromEntries(Object.entries(values).filter(([, one]) =>
  one !== undefined && one !== "" && !(Array.isArray(one) && !one.length)));

/** The values of the form of `pretrain`; `more` are those of the folded options. */
export function commandValues(now, more = {}, { hasEpochs = false } = {}) {
  const isText = now.kind !== "images";
  return given({
    model: now.model,
    data: sources(now),
    [now.unit]: hasEpochs ? undefined : number(now.length),
    out: now.out.trim(),
    vocab_size: number(now.vocabSize),
    sequence_length: number(now.sequenceLength),
    document_separator: isText ? now.documentSeparator : "",
    text_column: isText ? now.textColumn.trim() : "",
    encoding_errors: isText ? now.encodingErrors : "",
    objective: objectiveName(now),
    ...more,
    changes: [...sizeChanges(now), ...(more.changes ?? [])],
  });
}

/** The arguments of a plan of the same run. */
export function planArguments(now, more = {}) {
  const changes = [...sizeChanges(now), ...(more.changes ?? [])];
  if (number(now.vocabSize) !== undefined) changes.push(`vocab_size=${number(now.vocabSize)}`);
  const length = now.unit === "minutes" ? {} : { [now.unit]: number(now.length) };
  return given({ model: now.model, objective: objectiveName(now), sequence_length: number(now.sequenceLength), ...length, changes });
}

/** The state for the values of a run's command, and the values that are not of it. */
export function stateOfValues(values) {
  const rest = { ...values };
  const take = (key) => { const value = rest[key]; delete rest[key]; return value; };
  const patch = { ...structuredClone(FIRST), isNamed: false };
  patch.model = take("model") ?? FIRST.model;
  const data = [take("data") ?? []].flat();
  patch.source = data.length && data.every((one) => one === BUNDLED || one === PICTURES) ? "bundled" : "own";
  patch.files = patch.source === "bundled" ? [] : data.map((path) => ({ path, name: path.split("/").at(-1), bytes: NaN }));
  for (const unit of ["steps", "tokens", "minutes"]) {
    const value = take(unit);
    if (value !== undefined) Object.assign(patch, { unit, length: String(value) });
  }
  patch.vocabSize = String(take("vocab_size") ?? "");
  patch.sequenceLength = String(take("sequence_length") ?? "");
  patch.documentSeparator = take("document_separator") ?? "";
  patch.textColumn = take("text_column") ?? "";
  patch.encodingErrors = take("encoding_errors") ?? "";
  const [first, ...others] = (take("objective") ?? "").split("+");
  const [name, options] = first.split(":");
  patch.objective = name;
  patch.second = others.join("+");
  patch.options = Object.fromEntries((options ?? "").split(",").filter(Boolean).map((one) => one.split("=")));
  const isSize = /^(architecture\.[\w.]+|objective\.(epochs|window))=/;
  const changes = take("changes") ?? [];
  for (const one of changes.filter((text) => isSize.test(text))) {
    const [key, value] = one.split("=");
    patch.sizes[key] = value;
  }
  const kept = changes.filter((text) => !isSize.test(text));
  take("out");
  return { patch, rest: { ...rest, ...(kept.length && { changes: kept }) } };
}
