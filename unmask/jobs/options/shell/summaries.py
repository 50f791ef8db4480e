"""One sentence on each command, for its help and for pages that offer it."""

from collections.abc import Mapping

SUMMARIES: Mapping[str, str] = {
    "demo": "Run the whole path on the bundled text: pretrain, fine-tune, write a report, in 8 "
    "minutes.",
    "models": "List the bundled models and the presets of the catalogue.",
    "show": "Describe a model: paper, architecture, parameters, FLOPs, memory.",
    "hide": "Show the inputs and targets that a model's objective makes of a text or a picture.",
    "prepare": "Tokenize a corpus into shards for many runs; clean and deduplicate it if asked.",
    "plan": "Plan a run before it starts: FLOPs, memory, time, energy, CO2e, price.",
    "pretrain": "Pretrain a model on your text, from scratch or from given weights (--from).",
    "finetune": "Fine-tune a model on labeled data.",
    "prefer": "Train a model on preferences: DPO and its kin on pairs, or PPO by a reward.",
    "augment": "Make a new training table: a teacher's outputs as targets, or words replaced.",
    "evaluate": "Evaluate a model on held-out text, on labeled data, or on tasks by prompting.",
    "predict": "Predict labels, tags, numbers or answers with a fine-tuned model.",
    "fill": "Predict the tokens at each [MASK] of a text.",
    "generate": "Generate text: continuations of prompts, answers, chats, or descriptions of "
    "pictures.",
    "embed": "Embed texts as vectors.",
    "convert": "Convert a model between formats, average its last checkpoints, or expand its "
    "vocabulary.",
    "compress": "Make a model smaller: weights of few bits, or fewer weights.",
    "probe": "Analyze what a model knows and where, beside the same network with random weights.",
    "neighbors": "Show the nearest words by their vectors, or the nearest sentences of a file.",
    "picture": "Plot word vectors in two dimensions.",
    "study": "Compare pretraining, fine-tuning or compression under one budget.",
    "align": "Align two spaces of word vectors: two languages, or two periods.",
    "report": "Rewrite the HTML report of a run.",
    "serve": "Open the workbench: a local page from which everything here can be done and watched.",
}
"""By name, in the order of `unmask --help`."""
