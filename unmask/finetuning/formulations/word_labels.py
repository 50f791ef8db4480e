"""Labels and numbers that are said in words, by a model that writes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.batch import IGNORE_INDEX, Batch, Example, Visibility
from unmask.finetuning.formulations.formulation import (
    LABEL_HEAD,
    LANGUAGE_HEAD,
    PredictionRecord,
    TaskInput,
    encode_texts,
    label_cross_entropy,
    label_indices,
    label_prediction_record,
    language_modeling_head,
    truncate_longest_first,
    uses_word_labels,
)
from unmask.finetuning.formulations.pooling import refuse_pooling
from unmask.heads.model import Model
from unmask.heads.spec import HeadSpec
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.tasks.kinds.pooling_options import PoolingOptions
from unmask.tasks.task import Label, Task, TaskExample
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.zoo.preset import Published

MAX_LOGITS_PER_CHUNK = 2**25
"""Scores of tokens that are held at the same time while labels are compared: 128 MiB."""


@dataclass(frozen=True, kw_only=True)
class WordLabelFormulation:
    """Labels said in words: Raffel et al. 2020, section 2.4.

    The encoder reads "name column: text column: text"; the decoder says the label. An answer is the
    label whose words the model finds likeliest, the end token included, so it is always one of the
    labels. A number is rounded to one of some, about 25 from the least to the greatest (of 0 to 5:
    0.0, 0.2, ..., 5.0, as in the paper), and said likewise.
    """

    task: Task
    tokenizer: Tokenizer
    label_token_ids: tuple[tuple[int, ...], ...]
    """The tokens of each label."""

    @property
    def special_ids(self) -> SpecialTokenIds:
        """The vocabulary's special tokens."""
        return self.tokenizer.special_ids

    def build_inputs(self, items: Sequence[TaskExample]) -> list[TaskInput]:
        """Write the source; what it says besides the texts is never cut off."""
        lead = [f"{self.task.task_name} {self.task.columns.texts[0]}:".strip()]
        lead += [f"{name}:" for name in self.task.columns.texts[1:]]
        prefixes = self.tokenizer.encode_ids_batch(lead)
        fixed = sum(map(len, prefixes)) + len(self.special_ids.suffix)
        if fixed + 2 > self.task.max_length:
            raise ValueError(
                f"max_length must be at least {fixed + 2}, since {' '.join(lead)!r} is read too, "
                f"got {self.task.max_length}"
            )
        after, room = np.array(self.special_ids.suffix, np.int64), self.task.max_length - fixed
        found: list[TaskInput] = []
        for i, (item, texts) in enumerate(
            zip(items, encode_texts(self.tokenizer, items, room), strict=True)
        ):
            kept = truncate_longest_first([len(t) for t in texts], room)
            parts = [p for a, b, n in zip(prefixes, texts, kept, strict=True) for p in (a, b[:n])]
            example = self._target_example(
                None if item.label is None else label_indices(self.task, item.label)[0]
            )
            example = replace(example, source=np.concatenate([*parts, after]))
            found.append(
                TaskInput(item_index=i, example=example, truncated=kept != [len(t) for t in texts])
            )
        return found

    def _target_example(self, label: int | None) -> Example:
        start = self.special_ids.start
        answer_ids = (IGNORE_INDEX,) if label is None else self.label_token_ids[label]
        inputs = np.array([start, *answer_ids[:-1]], np.int64)
        return Example(
            inputs=inputs, targets=np.array(answer_ids, np.int64), rank=np.arange(len(answer_ids))
        )

    def compute_scores(
        self, model: Model, batch: Batch, task_inputs: Sequence[TaskInput]
    ) -> list[Float[np.ndarray, "_ labels"]]:
        """Compare how likely the words of each label are."""
        memory = model.backbone.encode(batch)
        longest_word = max(map(len, self.label_token_ids))
        b, cost = len(memory), len(memory) * longest_word * model.vocab_size
        at_once = max(MAX_LOGITS_PER_CHUNK // cost, 1)
        parts = [
            self._label_likelihoods(model, batch, memory, self.label_token_ids[i : i + at_once])
            for i in range(0, len(self.label_token_ids), at_once)
        ]
        logs = torch.cat(parts, 1).log_softmax(-1).reshape(b, 1, -1)
        return list(logs.cpu().numpy())

    def _label_likelihoods(
        self,
        model: Model,
        batch: Batch,
        encoder_hidden_states: Float[Tensor, "b s d"],
        answer_ids: Sequence[Sequence[int]],
    ) -> Float[Tensor, "b labels"]:
        b, n = len(encoder_hidden_states), len(answer_ids)
        rows = torch.arange(b).repeat_interleave(n)
        targets = pad_answers(answer_ids).repeat(b, 1)  # [b·n t]
        return answer_log_likelihoods(
            model, batch, encoder_hidden_states, rows, targets, self.special_ids.start
        ).reshape(b, n)

    def merge_scores(
        self, task_inputs: Sequence[TaskInput], input_scores: Sequence[np.ndarray]
    ) -> np.ndarray:
        """Merge the scores of the parts of an item."""
        return np.concatenate(input_scores)

    def prediction(self, item: TaskExample, scores: Float[np.ndarray, "1 labels"]) -> Label:
        """Return the likeliest label; of a number, as a number."""
        label = self.task.labels[int(scores[0].argmax())]
        return float(label) if TASK_KINDS[self.task.task_kind].predicts_number else label

    def prediction_record(
        self, item: TaskExample, scores: Float[np.ndarray, "1 labels"]
    ) -> PredictionRecord:
        """Return {"label", "probability", "probabilities"}, or the number."""
        predicted = self.prediction(item, scores)
        return (
            predicted
            if isinstance(predicted, float)
            else label_prediction_record(self.task, predicted, scores)
        )

    def loss(self, item: TaskExample, scores: Float[np.ndarray, "1 labels"]) -> tuple[float, int]:
        """Return the cross-entropy of the label among all, in nats."""
        assert item.label is not None
        return label_cross_entropy(self.task, item.label, scores), 1


def word_label_heads(preset: Published, options: PoolingOptions) -> dict[str, HeadSpec]:
    """Return the language head that predicts labels as words.

    Raises:
        ValueError: the model generates text in languages, or pooling options are given.
    """
    if preset.tokenizer.special_tokens.languages:
        raise ValueError(
            f"{preset.name} says texts in languages and no labels: fine-tune it with the task "
            "`generate`, or take another model"
        )
    refuse_pooling(preset, options)
    return {LANGUAGE_HEAD: replace(language_modeling_head(preset), term=LABEL_HEAD)}


def pad_answers(answer_ids: Sequence[Sequence[int]]) -> Int[Tensor, "n t"]:
    """Lay answers in rows, IGNORE after each."""
    targets = torch.full((len(answer_ids), max(map(len, answer_ids))), IGNORE_INDEX)
    for row, word in zip(targets, answer_ids, strict=True):
        row[: len(word)] = torch.tensor(word)
    return targets


def answer_log_likelihoods(
    model: Model,
    batch: Batch,
    encoder_hidden_states: Float[Tensor, "b s d"],
    source_rows: Int[Tensor, "n"],
    targets: Int[Tensor, "n t"],
    start_id: int,
) -> Float[Tensor, "n"]:
    """Return the log-likelihood of each answer.

    Args:
        model: an encoder-decoder.
        batch: whose source was read.
        encoder_hidden_states: what the encoder made of it.
        source_rows: the row of the source that each answer is to.
        targets: the answers, as `pad_answers` lays them.
        start_id: what the decoder reads first.
    """
    inputs = torch.full_like(targets, start_id)
    inputs[:, 1:] = targets[:, :-1].clamp(min=0)
    source_rows, inputs, targets = (
        x.to(encoder_hidden_states.device) for x in (source_rows, inputs, targets)
    )
    there = batch.source_visibility.document
    again = Batch(
        inputs=inputs,
        visibility=Visibility(causal=True),
        source_visibility=Visibility(document=None if there is None else there[source_rows]),
    )
    hidden = model.backbone(again, None, encoder_hidden_states[source_rows])
    logs = model.language_head.logits(hidden).float().log_softmax(-1)  # [n t v]
    each = logs.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    return (each * (targets != IGNORE_INDEX)).sum(-1)


def encode_labels(task: Task, tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """Return the tokens of each label.

    Raises:
        ValueError: two labels are the same tokens.
    """
    special = tokenizer.special_ids
    ends = special.suffix or ((special.end,) if special.end is not None else ())
    words = [
        (*special.decoder_prefix, *ids.tolist(), *ends)
        for ids in tokenizer.encode_ids_batch(task.labels)
    ]
    seen: dict[tuple[int, ...], str] = {}
    for label, word in zip(task.labels, words, strict=True):
        if word in seen:
            pieces = " ".join(tokenizer.pieces(word))
            raise ValueError(
                f"the labels {seen[word]!r} and {label!r} are the same to this tokenizer "
                f"({pieces}); give them other names"
            )
        seen[word] = label
    return tuple(words)


def rounded_number_labels(numbers: Sequence[float]) -> tuple[str, ...]:
    """List the numbers that may be said: round ones, in about 25 steps from least to greatest.

    Raises:
        ValueError: all numbers are the same.
    """
    low, high = min(numbers), max(numbers)
    rough = high / 25 - low / 25
    if rough <= 0:
        raise ValueError(f"the number is {low} in all rows; there is nothing to learn")
    unit = 10.0 ** math.floor(math.log10(rough))
    step = min((f * unit for f in (1, 2, 5, 10)), key=lambda s: abs(math.log(s / rough)))
    digits = max(-math.floor(math.log10(step * 1.000001)), 0)
    first, last = round(low / step), round(high / step)
    return tuple(f"{i * step:.{digits}f}" for i in range(first, last + 1))


def with_number_labels(task: Task, preset: Published, examples: Sequence[TaskExample]) -> Task:
    """Return a regression task with its labels, where the model predicts numbers as words."""
    if not TASK_KINDS[task.task_kind].predicts_number or not uses_word_labels(preset):
        return task
    numbers = [item.label for item in examples if isinstance(item.label, float)]
    return replace(task, labels=rounded_number_labels(numbers))
