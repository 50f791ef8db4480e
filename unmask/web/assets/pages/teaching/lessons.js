// The models that a lecture steps through: what is told of each, and who can answer its questions.

/**
 * `model`: whose objective it is; `kind`: of its network. `objective`: another name of it, as `unmask hide --objective` takes.
 * `asked`: the task by which a trained model is known to answer. `families`: only these were trained so.
 * `trained`: the objective with which a trained model of another family is asked.
 * `changes`: of its settings, for a simpler picture. `reads`: who reads the tokens.
 * `variants`: [label, objective] of a model that learns several at once.
 */
export const LESSONS = [
  {
    name: "BERT", model: "bert-mini", kind: "encoder", by: "Devlin et al. 2019", asked: "masked", trained: "mlm",
    idea: "Some words are hidden. Each is to be guessed from all the others, before it and after it.",
  },
  {
    name: "RoBERTa, whole words", model: "roberta-mini", kind: "encoder", objective: "whole-word", by: "Liu et al. 2019; whole words: BERT, 2019", asked: "masked", trained: "whole-word",
    idea: "A word is hidden with all its pieces, so that none of them gives away the rest.",
  },
  {
    name: "ELECTRA", model: "electra-mini", kind: "encoder", by: "Clark et al. 2020", asked: "masked", trained: "rtd", detects: true, reads: "The small model reads",
    idea: "A small model fills in what is hidden. The large one reads the result and tells of every word whether it stood there.",
  },
  {
    name: "GPT", model: "gpt2-mini", kind: "decoder", by: "Radford et al. 2018, 2019", asked: "next_token",
    idea: "Every word is to be guessed from those before it. Nothing is hidden but what comes after.",
  },
  {
    name: "UniLM", model: "unilm-mini", kind: "encoder", by: "Dong et al. 2019", asked: "masked", families: ["unilm"],
    idea: "Words are hidden as in BERT, but who may see whom changes from text to text.",
    variants: [["as drawn", ""], ["both sides", "token-spans"], ["left to right", "token-spans+unidirectional"],
      ["right to left", "token-spans+unidirectional:direction=backward"], ["source, then target", "token-spans+seq2seq-lm"]],
  },
  {
    name: "XLNet", model: "xlnet-mini", kind: "encoder", by: "Yang et al. 2019", asked: "permuted", families: ["xlnet"], changes: ["reuse_fraction=0"],
    idea: "No word is hidden in the text. Some are guessed one after another, in a random order, each from the known ones and those guessed before it. (Here without memory of earlier text.)",
  },
  {
    name: "T5", model: "t5-mini", kind: "encoder-decoder", by: "Raffel et al. 2020", asked: "denoised", families: ["t5"],
    idea: "Pieces of the text are cut out, each with a numbered sign in its place. The decoder writes what is missing.",
  },
  {
    name: "BART", model: "bart-mini", kind: "encoder-decoder", by: "Lewis et al. 2020", asked: "denoised", families: ["bart"],
    idea: "Sentences are shuffled, and runs of words replaced by one mask each. The decoder writes the whole text anew.",
  },
];

/** The lesson of a model; of one that has none, what is known of it. */
export const lessonOf = (model) => LESSONS.find((one) => one.model === model)
  ?? { name: model, model, by: "", idea: "", isOther: true };

const TASKS = {
  masked: "the word that stood there",
  next_token: "the next word",
  permuted: "the word at this place",
  denoised: "what is missing, or the whole text, word by word",
  next_sentence: "of the whole text: does B follow A?",
  sentence_order: "of the whole text: are A and B in their order?",
  neighbor: "which of many texts stands beside this one",
  contrast: "which of many is its counterpart",
  both_sides: "each word, from either side",
};

export const taskWords = (term) => TASKS[term] ?? term.replaceAll("_", " ");

/** What became of a token, in words; null: nothing. */
export const ROLE_WORDS = {
  masked: ["hidden", "a mask stands in its place"],
  replaced: ["another word", "another word, drawn at random, stands in its place"],
  kept: ["left as it is", "it is asked for, though it was left as it is"],
  unseen: ["its place alone", "whoever is asked for it knows its place alone"],
  sentinel: ["sign of a gap", "it stands for words that were cut out"],
};

const SETTING_WORDS = {
  rate: "Share of words that are hidden",
  mask_probability: "Of these, a mask in their place",
  random_token_probability: "Of these, a random word in their place",
  whole_spans: "All words of a span alike",
  mean_span_length: "Length of a span on average",
  max_span_length: "Longest span",
  max_ngram: "Longest run of words",
  geometric_p: "How short spans are",
  context_factor: "One word asked of so many",
  random_order: "In a random order",
  "sentence_task.random_probability": "B from another text",
  "sentence_task.short_probability": "Short texts",
  "sentence_task.single_sentences": "One sentence each",
  random_probability: "B from another text",
  reuse_fraction: "Share of a row that is only memory",
  fraction: "Share of texts whose sentences are shuffled",
  crop_fraction: "Share of the text that a crop has",
  window: "Neighbors on each side, at most",
  dynamic_window: "Fewer neighbors at random",
  n_negatives: "Words drawn to be told apart",
};

/** The name of a setting: its key is a dotted path. */
export function settingWords(key) {
  const parts = key.split(".");
  const name = parts.at(-1);
  const known = SETTING_WORDS[parts.slice(-2).join(".")] ?? SETTING_WORDS[name];
  const plain = name.replaceAll("_", " ");
  return known ?? plain.charAt(0).toUpperCase() + plain.slice(1);
}
