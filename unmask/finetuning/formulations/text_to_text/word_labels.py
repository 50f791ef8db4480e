"""Labels and numbers as target texts of a text-to-text model."""

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
    TokenSpan,
    encode_texts,
    label_cross_entropy,
    label_indices,
    label_prediction_record,
    language_modeling_head,
    log_odds,
    spans_after,
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
"""Logits in memory at the same time while labels are scored: 128 MiB."""


@dataclass(frozen=True, kw_only=True)
class WordLabelFormulation:
    """Labels as target texts: Raffel et al. 2020, section 2.4.

    The encoder reads "name column: text column: text"; the target is the label. The prediction is
    the label with the highest likelihood, end token included, so it is always one of the labels.
    Numbers are rounded to about 25 values from the minimum to the maximum (for 0 to 5: 0.0, 0.2,
    ..., 5.0, as in the paper), which are the labels.
    """

    task: Task
    tokenizer: Tokenizer
    label_token_ids: tuple[tuple[int, ...], ...]
    """Tokens of each label."""

    @property
    def special_ids(self) -> SpecialTokenIds:
        """The vocabulary's special tokens."""
        return self.tokenizer.special_ids

    @property
    def _lead(self) -> list[str]:
        lead = [f"{self.task.task_name} {self.task.columns.texts[0]}:".strip()]
        return lead + [f"{name}:" for name in self.task.columns.texts[1:]]

    def text_spans(self, lengths: Sequence[int]) -> list[TokenSpan]:
        """Return where the tokens of each text are; see `LabelFormulation`."""
        before = [len(ids) for ids in self.tokenizer.encode_ids_batch(self._lead)]
        budget = self.task.max_length - sum(before) - len(self.special_ids.suffix)
        return spans_after(before, lengths, budget)

    def build_inputs(self, items: Sequence[TaskExample]) -> list[TaskInput]:
        """Build the sources; only texts are truncated, never the words around them."""
        lead = self._lead
        prefixes = self.tokenizer.encode_ids_batch(lead)
        fixed = sum(map(len, prefixes)) + len(self.special_ids.suffix)
        if fixed + 2 > self.task.max_length:
            raise ValueError(
                f"max_length must be at least {fixed + 2}, since {' '.join(lead)!r} is read too, "
                f"got {self.task.max_length}"
            )
        after, room = np.array(self.special_ids.suffix, np.int64), self.task.max_length - fixed
        task_inputs: list[TaskInput] = []
        for i, (item, texts) in enumerate(
            zip(items, encode_texts(self.tokenizer, items, room), strict=True)
        ):
            n_kept = truncate_longest_first([len(t) for t in texts], room)
            parts = [p for a, b, n in zip(prefixes, texts, n_kept, strict=True) for p in (a, b[:n])]
            example = self._target_example(
                None if item.label is None else label_indices(self.task, item.label)[0]
            )
            example = replace(example, source=np.concatenate([*parts, after]))
            task_inputs.append(
                TaskInput(
                    item_index=i, example=example, truncated=n_kept != [len(t) for t in texts]
                )
            )
        return task_inputs

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
        """Compute the log-likelihood of each label."""
        logs = self._label_log_probabilities(model, batch)
        return list(logs[:, None].cpu().numpy())

    def label_log_odds(self, model: Model, batch: Batch, index: int) -> Float[Tensor, "b"]:
        """Return the log-odds of a label among all labels, with a gradient."""
        return log_odds(self._label_log_probabilities(model, batch), index)

    def _label_log_probabilities(self, model: Model, batch: Batch) -> Float[Tensor, "b labels"]:
        memory = model.backbone.encode(batch)
        longest_word = max(map(len, self.label_token_ids))
        cost = len(memory) * longest_word * model.vocab_size
        at_once = max(MAX_LOGITS_PER_CHUNK // cost, 1)
        parts = [
            self._label_likelihoods(model, batch, memory, self.label_token_ids[i : i + at_once])
            for i in range(0, len(self.label_token_ids), at_once)
        ]
        return torch.cat(parts, 1).log_softmax(-1)

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
        """Return the most likely label, in regression as a number."""
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
            f"{preset.name} generates text in languages, not labels: fine-tune it with the task "
            "`generate`, or take another model"
        )
    refuse_pooling(preset, options)
    return {LANGUAGE_HEAD: replace(language_modeling_head(preset), term=LABEL_HEAD)}


def pad_answers(answer_ids: Sequence[Sequence[int]]) -> Int[Tensor, "n t"]:
    """Pad answers to rows of equal length with IGNORE."""
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
        batch: batch with the sources.
        encoder_hidden_states: output of the encoder.
        source_rows: row of the source of each answer.
        targets: the answers, from `pad_answers`.
        start_id: first input token of the decoder.
    """
    inputs = torch.full_like(targets, start_id)
    inputs[:, 1:] = targets[:, :-1].clamp(min=0)
    source_rows, inputs, targets = (
        x.to(encoder_hidden_states.device) for x in (source_rows, inputs, targets)
    )
    source_document = batch.source_visibility.document
    again = Batch(
        inputs=inputs,
        visibility=Visibility(causal=True),
        source_visibility=Visibility(
            document=None if source_document is None else source_document[source_rows]
        ),
    )
    logits = model.answer_logits(again, encoder_hidden_states[source_rows])
    logs = logits.float().log_softmax(-1)  # [n t v]
    token_logs = logs.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    return (token_logs * (targets != IGNORE_INDEX)).sum(-1)


def encode_labels(task: Task, tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """Return the tokens of each label.

    Raises:
        ValueError: two labels have the same tokens.
    """
    special = tokenizer.special_ids
    ends = special.suffix or ((special.end,) if special.end is not None else ())
    words = [
        (*special.decoder_prefix, *ids.tolist(), *ends)
        for ids in tokenizer.encode_ids_batch(task.labels)
    ]
    label_of_tokens: dict[tuple[int, ...], str] = {}
    for label, word in zip(task.labels, words, strict=True):
        if word in label_of_tokens:
            pieces = " ".join(tokenizer.pieces(word))
            raise ValueError(
                f"the labels {label_of_tokens[word]!r} and {label!r} have the same tokens in this "
                f"vocabulary ({pieces}); rename one"
            )
        label_of_tokens[word] = label
    return tuple(words)


def rounded_number_labels(numbers: Sequence[float]) -> tuple[str, ...]:
    """List round numbers as labels, in about 25 steps from the minimum to the maximum.

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
    """Return a regression task with its labels, if the model predicts numbers as words."""
    if not TASK_KINDS[task.task_kind].predicts_number or not uses_word_labels(preset):
        return task
    numbers = [item.label for item in examples if isinstance(item.label, float)]
    return replace(task, labels=rounded_number_labels(numbers))
