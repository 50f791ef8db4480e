"""Decisions of a fine-tuned model: the label, or the number, that it predicts for a text."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from jaxtyping import Int

from unmask.analysis.saliency.decisions import Decision, OutputFunction, OutputScore
from unmask.analysis.words import SPECIAL, WordPieces
from unmask.batch import Batch, Example
from unmask.batching.collate import pad_examples
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.finetuning.formulations.build import formulate
from unmask.finetuning.formulations.formulation import LABEL_HEAD, LabelFormulation
from unmask.finetuning.results.predict import infer_text_columns, predict_scores
from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.model import Model
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.tasks.task import Label, Task, TaskExample
from unmask.tokenizers.encode import Tokenizer


@dataclass(frozen=True)
class SplitText:
    """A text of which it is known which token is of which word."""

    words: tuple[str, ...]
    """Between white space."""
    word_of_token: Int[np.ndarray, "t"]


def split_text(tokenizer: Tokenizer, text: str, n_tokens: int | None = None) -> SplitText:
    """Return the words of a text as it was written, and the word of each of its first tokens.

    Words that have no token are left out, as those of an end that is cut off.
    """
    spans = [(found.start(), found.end()) for found in re.finditer(r"\S+", text)]
    offsets = tokenizer.offset_array(text)[:n_tokens]
    if not spans or not len(offsets):
        return SplitText((), np.zeros(0, np.int64))
    last_character = np.maximum(offsets[:, 1] - 1, offsets[:, 0])
    ends = np.array([end for _, end in spans])
    owners = np.minimum(np.searchsorted(ends, last_character, side="right"), len(spans) - 1)
    kept, word_of_token = np.unique(owners, return_inverse=True)
    return SplitText(tuple(text[slice(*spans[i])] for i in kept.tolist()), word_of_token)


def check_explained(task: Task) -> None:
    """Check that predictions of a task are explained.

    Raises:
        ValueError: they are not labels or numbers of texts.
    """
    formulation = TASK_KINDS[task.task_kind].formulation
    if formulation not in ("text_classification", "multilabel_classification"):
        raise ValueError(
            "saliency explains labels and numbers of texts, and tokens of language models; this "
            f"model was fine-tuned to {task.task_kind}"
        )


def label_decisions(
    loaded_model: LoadedModel, task: Task, items: Sequence[TaskExample]
) -> list[Decision | None]:
    """Return the decision of a fine-tuned model for each item; None for a text without a word.

    Raises:
        ValueError: the model is fine-tuned to read a pair twice.
    """
    model, tokenizer = loaded_model.model, loaded_model.tokenizer
    assert tokenizer is not None, "a pipeline has one"
    formulation = cast(  # `check_explained` has checked
        LabelFormulation,
        formulate(infer_text_columns(task, items), loaded_model.preset, tokenizer),
    )
    inputs = formulation.build_inputs(items)
    scores = predict_scores(formulation, model, inputs).scores
    decisions: list[Decision | None] = []
    for item, one, scored in zip(items, inputs, scores, strict=True):
        pieces = _pieces(formulation, tokenizer, item, one.example)
        index, labels = int(np.asarray(scored)[0].argmax()), formulation.task.labels
        decision = Decision(
            pieces=pieces,
            columns=_columns(one.example),
            make_batch=_batches_of(model, formulation, one.example),
            score=_output(formulation, index),
            pooled=_pooled(model, len(pieces.token_ids)),
            predicted=labels[index] if labels else _name(formulation.prediction(item, scored)),
            target=None if item.label is None else _name(item.label),
        )
        decisions.append(decision if pieces.words else None)
    return decisions


def _name(label: Label) -> str:
    if isinstance(label, tuple):
        return ", ".join(label)
    return f"{label:.3g}" if isinstance(label, float) else str(label)


def _output(formulation: LabelFormulation, index: int) -> OutputFunction:
    """Return how a model's output speaks for a label, or its number."""

    def score(model: Model, batch: Batch) -> OutputScore:
        found = formulation.label_log_odds(model, batch, index).float()
        return OutputScore(found, found.sigmoid() if formulation.task.labels else found)

    return score


def _batches_of(
    model: Model, formulation: LabelFormulation, example: Example
) -> Callable[[int], Batch]:
    """Return what makes a batch of equal rows."""
    plain = replace(example, label=None)

    def make_batch(n_rows: int) -> Batch:
        batch = pad_examples([plain] * n_rows, formulation.special_ids)
        return model.pad_for_network(batch)

    return make_batch


def _pieces(
    formulation: LabelFormulation, tokenizer: Tokenizer, item: TaskExample, example: Example
) -> WordPieces:
    """Return which tokens of a model's input are of which word of its texts."""
    ids = example.inputs if example.source is None else example.source
    split = [split_text(tokenizer, text) for text in item.texts]
    word_of_token = np.full(len(ids), SPECIAL)
    words: list[str] = []
    spans = formulation.text_spans([len(one.word_of_token) for one in split])
    for span, one in zip(spans, split, strict=True):
        kept = one.word_of_token[: span.length]
        word_of_token[span.start : span.start + span.length] = kept + len(words)
        words += one.words[: int(kept.max(initial=-1)) + 1]
    return WordPieces(tuple(words), ids, word_of_token)


def _columns(example: Example) -> tuple[Int[np.ndarray, "_"], ...]:
    """Return which token is in each column: of the encoder, and of a decoder that reads it too."""
    if example.source is None:
        return (np.arange(len(example.inputs)),)
    columns = np.arange(len(example.source))
    if not np.array_equal(example.inputs[1:], example.source[:-1]):
        return (columns,)
    return columns, np.append(SPECIAL, columns[:-1])


def _pooled(model: Model, n_tokens: int) -> Int[np.ndarray, "_"]:
    """Return the tokens whose hidden states the head reads."""
    columns = np.arange(n_tokens)
    if LABEL_HEAD not in model.head_specs:
        return columns
    pooling = cast(SequenceClassification, model.head_specs[LABEL_HEAD]).pooling
    if pooling in ("first", "summary"):
        return columns[:1]
    return columns[-1:] if pooling == "last" else columns
