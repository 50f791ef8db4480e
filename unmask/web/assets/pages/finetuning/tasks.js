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
  instruct: { text: "prompt", label: "response" },
  multilabel: { label: "labels" },
};
const NEEDS_LABEL = new Set(["classify", "pairs", "multilabel", "regress", "tag", "answer", "generate", "cloze"]);
const TEXTS = { pairs: 2, answer: 2 };

/** A task in plain words. */
export const taskTitle = (kind) => TASKS[kind]?.[0] ?? kind;
/** Examples of what a task is for. */
export const taskExamples = (kind) => TASKS[kind]?.[1] ?? "";
/** What a column with a role is called in a task: roleName("tag", "label") -> "tags". */
export const roleName = (kind, role) => ROLES[kind]?.[role] ?? { text: "text", second: "second text", label: "label", "": "ignore" }[role];
/** Whether the columns of a task are given to it by name. */
export const needsLabel = (kind) => NEEDS_LABEL.has(kind);
/** How many columns of text a task reads; null: one or two. */
export const textCount = (kind) => TEXTS[kind] ?? (["classify", "tag"].includes(kind) ? 1 : null);
