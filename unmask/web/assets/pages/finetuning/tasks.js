// Kinds of tasks in plain words, and what the columns of their tables are.

const TASKS = {
  classify: ["One label for a text", "praise or complaint, a topic, a language"],
  pairs: ["One label for two texts", "does the second follow from the first, are they about the same"],
  multilabel: ["Any number of labels for a text", "all topics of a message"],
  regress: ["A number for a text", "stars, a degree of similarity"],
  tag: ["A label for each word", "names of people and places, parts of speech"],
  answer: ["An answer found in a passage", "a question, a passage, and where it says so"],
  choose: ["The best of several options", "multiple choice"],
  generate: ["A text for a text", "a summary, a translation"],
  cloze: ["One label, by filling a blank", "for models without a fine-tuned layer on top, and few examples"],
  pictures: ["One label for a picture", "kinds of leaves, hand-written digits"],
  instruct: ["Answers to instructions", "conversations, prompts with responses"],
  prefer: ["The better of two responses", "what people preferred"],
};
const ROLES = {
  tag: { text: "words", label: "tags" },
  answer: { text: "question", second: "passage", label: "answers" },
  regress: { label: "number" },
  generate: { text: "source", label: "text to write" },
  instruct: { text: "prompt", second: "further input", label: "response" },
  prefer: { text: "better response", second: "worse response" },
  choose: { text: "text", second: "question", option: "option", label: "right option" },
  multilabel: { label: "labels" },
};
const NEEDS_LABEL = new Set(["classify", "pairs", "multilabel", "regress", "tag", "answer", "generate", "cloze"]);
const TEXTS = { pairs: 2, answer: 2 };

/** A task in plain words. */
export const taskTitle = (kind) => TASKS[kind]?.[0] ?? kind;
/** Examples of what a task is for. */
export const taskExamples = (kind) => TASKS[kind]?.[1] ?? "";
/** What a column with a role is called in a task: roleName("tag", "label") -> "tags". */
export const roleName = (kind, role) => ROLES[kind]?.[role] ?? { text: "text", second: "second text", option: "option", label: "label", "": "ignore" }[role];
/** What a column may be in a task. */
export const rolesOf = (kind) => (kind === "choose" ? ["text", "second", "option", "label", ""] : kind === "prefer" ? ["text", "second", ""] : ["tag", "generate"].includes(kind) ? ["text", "label", ""] : ["text", "second", "label", ""]);
/** What so many examples of a task are called. */
export const examplesName = (kind) => ({ answer: "questions", prefer: "comparisons", tag: "sentences" })[kind] ?? "examples";
/** Whether the columns of a task are given to it by name. */
export const needsLabel = (kind) => NEEDS_LABEL.has(kind);
/** How many columns of text a task reads; null: one or two. */
export const textCount = (kind) => TEXTS[kind] ?? (["classify", "tag"].includes(kind) ? 1 : null);

const ERRORS = { title: "Errors", one: "error", many: "errors", predicted: "predicted", truth: "true" };
const ANSWERS = {
  regress: { title: "Predictions", one: "prediction", many: "predictions" },
  answer: { predicted: "answered", truth: "right" },
  choose: { predicted: "chose", truth: "right" },
  generate: { title: "What it wrote otherwise", one: "text", many: "texts", predicted: "wrote", truth: "in the example", order: "those whose example it expected least" },
  instruct: { title: "Responses that it expected least", one: "response", many: "responses", predicted: "wrote", truth: "in the example", order: "the least likely" },
  prefer: { predicted: "preferred", truth: "better" },
};
const MAJORITY = { regress: "always the mean", tag: "always the most frequent tag", answer: "always the most frequent answer", choose: "always the most frequent position", generate: "always the most frequent text" };

/** The kind of task that results are of: "classify", "tag", ... */
export const kindOf = (results) => String(results.task ?? "").split(" ")[0];
/** What the errors of a task, and its answers, are called. */
export const answerWords = (kind) => ({ ...ERRORS, ...ANSWERS[kind] });
/** What the answer that needs no model is called. */
export const majorityOf = (kind) => MAJORITY[kind] ?? "always the most frequent answer";
