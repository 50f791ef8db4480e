// What is asked for a prediction, by task: one text on each line, two texts, a passage, options, pictures.
import { h } from "../parts/dom.js";
import { filePicker } from "../parts/form.js";
import { keptText } from "./panel.js";

const PAIR = ["A man is playing a guitar.", "Someone makes music."];
const PICTURES = ".png,.jpg,.jpeg,.gif,.bmp,.webp,.tif,.tiff,.ppm";
const lines = (text) => text.split("\n").map((one) => one.trim()).filter(Boolean);
const named = (columns, i) => (columns[i] ? `As in column ${columns[i]} of the examples.` : "");

/**
 * The inputs of a task: {elements, read()}. `read()` gives {arguments, shown} of the call `predict`,
 * with what is shown beside each prediction, or {missing}: what is to be given first.
 * `ability` is what the model says of its predictions: {task, columns, labels}.
 */
export function inputsOf(ability) {
  const kind = ability.task;
  const texts = ability.columns?.texts ?? [];
  if (kind === "pictures") return pictures(ability);
  const make = FORMS[kind];
  if (make) return make(texts, kind);
  if (texts.length === 2) return pair(texts, kind);
  return texts.length ? severalLines(kind) : oneOrTwo(kind);
}

const FORMS = {
  pairs: pair,
  answer(columns) {
    const question = field("answer:question", "Question", "Where was she born?", 2);
    const passage = field("answer:passage", "Passage with the answer", "Marie Curie was born in Warsaw. She studied in Paris.", 6);
    return form([question, passage], ([asked, read]) => ({ question: asked, context: read }), ([, read]) => read);
  },
  choose(columns) {
    const text = field("choose:text", "Text before the options", "The man turned on the faucet, therefore", 3, columns.length === 1 ? named(columns, 0) : "");
    const options = field("choose:options", "Options, one on each line", "water flowed from the spout.\nthe toilet filled with water.", 4);
    return form([text, options], ([before, listed]) => ({ context: before, choices: lines(listed) }), ([before, listed]) => ({ text: before, options: lines(listed) }),
      ([, listed]) => (lines(listed).length < 2 ? "Write two options or more." : null));
  },
  prefer() {
    const prompt = field("prefer:prompt", "Prompt", "Can you help me with my homework?", 3);
    const responses = field("prefer:responses", "Responses, one on each line", "Of course. What is it about?\nNo, do it yourself.", 4);
    return form([prompt, responses], ([asked, listed]) => (lines(listed).length > 1 ? { prompt: asked, responses: lines(listed) } : { prompt: asked, response: lines(listed)[0] }),
      ([asked, listed]) => ({ text: asked, options: lines(listed) }));
  },
  generate: (columns) => form([field("generate", "Text to write from", "", 6, named(columns, 0))], ([text]) => text, ([text]) => text),
  instruct: () => form([field("instruct", "Instruction", "Name three colors.", 3)], ([text]) => text, ([text]) => text),
};

const field = (key, label, first, rows, hint = "") => ({ label, ...keptText(`predict:${key}`, label, first, { rows, hint }) });

/** A single example made of several fields, none of them empty. */
function form(fields, input, shown, problem = () => null) {
  return { elements: fields.map((one) => one.element), read() {
    const values = fields.map((one) => one.area.value.trim());
    const empty = fields[values.indexOf("")];
    const missing = empty ? `${empty.label}: nothing is written yet.` : problem(values);
    return missing ? { missing } : { arguments: { inputs: [input(values)] }, shown: [shown(values)] };
  } };
}

function pair(columns, kind) {
  const fields = ["First text", "Second text"].map((label, i) => field(`${kind}:${i}`, label, PAIR[i], 2, named(columns, i)));
  return form(fields, (values) => values, (values) => values.join("\n"));
}

function severalLines(kind) {
  const text = keptText(`predict:${kind}`, "Texts, one on each line", kind === "tag" ? "Angela Merkel met Barack Obama in Berlin." : "", { rows: 4, hint: "Empty lines are left out." });
  return { elements: [text.element], read() {
    const inputs = lines(text.area.value);
    return inputs.length ? { arguments: { inputs }, shown: inputs } : { missing: "Write a text first." };
  } };
}

/** Of a model that another library fine-tuned, which does not say how many texts it reads. */
function oneOrTwo(kind) {
  const [first, second] = [field(`${kind}:first`, "Text", "", 3), field(`${kind}:second`, "Second text, where it reads pairs", "", 2)];
  return { elements: [first.element, second.element], read() {
    const values = [first.area.value.trim(), second.area.value.trim()].filter(Boolean);
    return first.area.value.trim() ? { arguments: { inputs: [values.length > 1 ? values : values[0]] }, shown: [values.join("\n")] } : { missing: "Write a text first." };
  } };
}

/** A place for pictures: {element, files(), original(name)}. */
export function pictureFiles() {
  let files = [];
  const picker = filePicker({ label: "Pictures", accept: PICTURES, known: (name) => PICTURES.split(",").some((end) => name.toLowerCase().endsWith(end)), chosen: (paths, facts) => { files = facts; } });
  return { element: picker.element, files: () => files, original: picker.original };
}

function pictures(ability) {
  const picker = pictureFiles();
  const names = ability.labels.length ? null : keptText("predict:names", "What may be on them, one name on each line", "a cat\na dog\na car", { rows: 4, hint: "The model compares each picture with these names." });
  const look = (one) => {
    const file = picker.original(one.name);
    return file ? h("img", { src: URL.createObjectURL(file), alt: one.name, class: "tried" }) : one.name;
  };
  return { elements: [picker.element, names?.element], read() {
    const labels = names ? lines(names.area.value) : [];
    const files = picker.files();
    const missing = !files.length ? "Choose a picture first." : names && labels.length < 2 ? "Write two names or more." : null;
    return missing ? { missing } : { arguments: { files: files.map((one) => one.path), ...(names && { labels }) }, shown: files.map(look) };
  } };
}
