"""Predictions of a fine-tuned model for new texts."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unmask.adapters.prefix import n_positions_taken
from unmask.batching.collate import example_length, group_by_length, pad_examples
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.config import from_dict
from unmask.finetuning.formulations.build import formulate
from unmask.finetuning.formulations.formulation import (
    CHOICE_HEAD,
    LABEL_HEAD,
    SPAN_HEAD,
    TOKEN_LABEL_HEAD,
    ItemScores,
    PredictionRecord,
    TaskFormulation,
    TaskInput,
    resolve_max_length,
)
from unmask.generation.text_batches import CUT_TEXTS
from unmask.heads.classification.sequence_classification import (
    SequenceClassification,
)
from unmask.heads.model import Model
from unmask.saved_format import read_saved
from unmask.tasks.all_kinds import TASK_KINDS, reads_choices
from unmask.tasks.readers.tables import Table
from unmask.tasks.readers.task_reader import find_text_or_pair
from unmask.tasks.task import Task, TaskColumns, TaskExample
from unmask.text.formats.records import format_names
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.unknown_tokens import warn_unknown_texts

_log = logging.getLogger(__name__)

RUN_FILE = "unmask.json"
DEFAULT_BATCH_TOKENS = 8192
"""Tokens in one forward pass, padding included."""
MAX_BATCH_ROWS = 256
"""Maximum number of texts in one forward pass."""


@dataclass(frozen=True, kw_only=True)
class PredictedScores:
    """The scores of items."""

    scores: Sequence[ItemScores]
    """Scores of each item, in the form of the task's formulation."""
    n_truncated: int = 0
    """Number of items that were too long: texts are truncated, tagged sentences are split."""


def read_task(folder: Path) -> Task | None:
    """Read the task of the model in a folder; None if the folder has no record of it.

    Raises:
        ValueError: `unmask.json` is damaged, or its task is invalid.
    """
    path = folder / RUN_FILE
    if not path.is_file():
        return None
    try:
        task = read_saved(path).get("task")
        return None if task is None else from_dict(Task, task, "task")
    except ValueError as error:  # not JSON, or not UTF-8, or no task
        raise ValueError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None


def infer_task(loaded_model: LoadedModel) -> Task:
    """Infer the task of a model with a classification head that another library fine-tuned.

    Raises:
        ValueError: it has no such head.
    """
    specs = loaded_model.model.head_specs
    spec = specs.get(LABEL_HEAD)
    length = resolve_max_length(
        loaded_model.preset,
        None,
        n_positions_taken(loaded_model.model, loaded_model.model.backbone.encoder_stack),
    )
    if TOKEN_LABEL_HEAD in specs:
        return Task(
            task_kind="tag",
            columns=TaskColumns(texts=("words",), label="tags"),
            labels=loaded_model.label_names,
            max_length=length,
            metric="token_accuracy",
        )
    if SPAN_HEAD in specs:
        return Task(
            task_kind="answer", columns=TaskColumns(texts=("question", "context"), label="answers"),
            max_length=length, metric="answer_f1",
        )  # fmt: skip
    if CHOICE_HEAD in specs:
        return Task(
            task_kind="choose", max_length=length,
            columns=TaskColumns(texts=("context", "question"), label="label", choices=("choices",)),
        )  # fmt: skip
    if loaded_model.preset.reads_pictures and loaded_model.model.architecture.is_encoder_decoder:
        raise ValueError(
            f"{loaded_model.preset.name} labels nothing: it describes pictures (unmask generate)"
        )
    if not isinstance(spec, SequenceClassification):
        raise ValueError(
            f"{loaded_model.preset.name} has no head that labels texts; fine-tune it first "
            f"(heads: {', '.join(specs) or 'none'})"
        )
    columns = TaskColumns(texts=(), label="label")
    reads = {"pooling": spec.pooling, "pooled_layers": spec.pooled_layers}
    if spec.n_labels == 1:
        return Task(
            task_kind="regress", columns=columns, max_length=length, metric="pearson", options=reads
        )  # fmt: skip
    if spec.loss.multi_label:
        return Task(
            task_kind="multilabel",
            columns=columns,
            labels=loaded_model.label_names,
            max_length=length,
            metric="micro_f1",
            options=reads,
        )
    return Task(
        task_kind="classify" if loaded_model.preset.reads_texts else "pictures",
        columns=columns,
        labels=loaded_model.label_names,
        max_length=length,
        options=reads if loaded_model.preset.reads_texts else {},
    )


def predict(
    loaded_model: LoadedModel,
    texts: Sequence[Any],
    *,
    task: Task | None = None,
    batch_tokens: int = DEFAULT_BATCH_TOKENS,
) -> list[PredictionRecord]:
    """Label texts, pairs of texts, or the words of sentences.

    Predictions do not depend on the other texts. (Padding is masked; rounding depends on the shape
    of the batch, with differences below 1e-5 in log-probabilities.) Texts that are too long are
    truncated, as in training.

    Args:
        loaded_model: a model with a classification head, or a fine-tuned encoder-decoder.
        texts: texts; or pairs of texts; or lists of words for tagging; see the kinds of tasks for
            others.
        task: the task, from `read_task`. None: inferred from the head.
        batch_tokens: tokens in one forward pass.

    Raises:
        ValueError: the model has no tokenizer or no task, or an input does not fit the task.
    """
    if loaded_model.tokenizer is None:
        raise ValueError(f"{loaded_model.preset.name} has no tokenizer, which reading text needs")
    if len(texts) == 0:
        return []
    task = infer_task(loaded_model) if task is None else task
    items = make_items(task, texts)
    formulation = formulate(
        infer_text_columns(task, items), loaded_model.preset, loaded_model.tokenizer
    )
    inputs = inputs_with_warnings(formulation, items, loaded_model.tokenizer)
    predictions = predict_scores(formulation, loaded_model.model, inputs, batch_tokens)
    return [
        formulation.prediction_record(item, scores)
        for item, scores in zip(items, predictions.scores, strict=True)
    ]


def inputs_with_warnings(
    formulation: TaskFormulation, items: Sequence[TaskExample], tokenizer: Tokenizer | None
) -> list[TaskInput]:
    """Build the inputs of items; warn of texts that are cut, or are unknown tokens for the most.

    Texts that are read in parts are not cut.
    """
    inputs, task = formulation.build_inputs(items), formulation.task
    n_cut = len({task_input.item_index for task_input in inputs if task_input.truncated})
    if n_cut and not TASK_KINDS[task.task_kind].splits_long_texts:
        _log.warning(CUT_TEXTS, n_cut, task.max_length, extra={"is_count": True})
    if tokenizer is not None:
        texts = [" ".join((*item.texts, *item.choices)) for item in items]
        warn_unknown_texts(tokenizer.encode_prefix_batch(texts, 1000), tokenizer.special_ids)
    return inputs


def make_items(task: Task, texts: Sequence[Any]) -> list[TaskExample]:
    """Convert inputs to items of a task.

    Raises:
        ValueError: an input does not fit the task.
    """
    parse_input = TASK_KINDS[task.task_kind].reader.parse_input
    items = [parse_input(task, text, f"text {i}") for i, text in enumerate(texts, 1)]
    if any(not any(map(str.strip, (*item.texts, *item.choices))) for item in items):
        _log.warning("an empty text is answered too; what is said of it rests on no word")
    return items


def infer_text_columns(task: Task, items: Sequence[TaskExample]) -> Task:
    """Return the task with as many text columns as items have texts, if it has no columns.

    Raises:
        ValueError: some items have one text and some two.
    """
    if task.columns.texts or not items:
        return task
    n = len(items[0].texts)
    odd = next((item for item in items if len(item.texts) != n), None)
    if odd is not None:
        description, first = ("a text", "pairs") if n == 2 else ("a pair of texts", "texts")
        raise ValueError(
            f"{odd.location} is {description} (in a line, a tab separates two), and those before "
            f"it are {first}: the model's folder does not say which it reads, so all must be alike"
        )
    return with_text_columns(task, ("text",) if n == 1 else ("text1", "text2"))


def with_text_columns(task: Task, text_columns: tuple[str, ...]) -> Task:
    """Return the task with these text columns."""
    does = "pairs" if task.task_kind == "classify" and len(text_columns) == 2 else task.task_kind
    return replace(task, task_kind=does, columns=replace(task.columns, texts=text_columns))


def select_columns(
    task: Task, table: Table, text: Sequence[str] = (), choices: Sequence[str] = ()
) -> Task:
    """Return the task with the given columns of texts and options.

    If none are given and the task has none, they are found by common names; a pair is logged.

    Raises:
        ValueError: there is no such column, or there are fewer or more than the task needs.
    """
    for name in (*text, *choices):
        table.check_column(name)
    if choices and not reads_choices(task):
        raise ValueError(
            f"choices are of a model that chooses, and it was fine-tuned to {task.task_kind}"
        )
    own = task.columns
    counts = (len(own.texts),) if own.texts else (1, 2)
    if text and not reads_choices(task) and len(text) not in counts:
        raise ValueError(
            f"{table.path}: the model reads {' or '.join(map(str, counts))} columns of text, got "
            f"{len(text)}: {format_names(text)}"
        )
    text_columns = tuple(text) or own.texts
    if not text_columns:
        text_columns = find_text_or_pair(table)
        if len(text_columns) == 2:
            _log.warning(
                "%s: pairs are read, of %r and %r; --text names other columns",
                table.path,
                *text_columns,
            )
    task = with_text_columns(task, text_columns)
    return replace(task, columns=replace(task.columns, choices=tuple(choices) or own.choices))


@torch.no_grad()
def predict_scores(
    formulation: TaskFormulation,
    model: Model,
    task_inputs: Sequence[TaskInput],
    batch_tokens: int = DEFAULT_BATCH_TOKENS,
) -> PredictedScores:
    """Run a model over inputs, batched by similar length; scores are in the order of the items.

    The training or evaluation mode of the model is restored.
    """
    parts: list[Any] = [None] * len(task_inputs)
    training = model.training
    model.eval()
    try:
        for group in group_by_length(
            [example_length(q.example) for q in task_inputs], batch_tokens, MAX_BATCH_ROWS
        ):
            some = [task_inputs[i] for i in group]
            batch = model.pad_for_network(
                pad_examples([q.example for q in some], formulation.special_ids)
            )
            batch = batch.to(model.device)
            for i, scores in zip(
                group, formulation.compute_scores(model, batch, some), strict=True
            ):
                _check_finite(scores)
                parts[i] = scores
    finally:
        model.train(training)
    places: dict[int, list[int]] = {}
    for i, question in enumerate(task_inputs):
        places.setdefault(question.item_index, []).append(i)
    return PredictedScores(
        scores=[
            formulation.merge_scores([task_inputs[i] for i in some], [parts[i] for i in some])
            for _, some in sorted(places.items())
        ],
        n_truncated=len({q.item_index for q in task_inputs if q.truncated}),
    )


def _check_finite(scores: Any) -> None:
    """Check that numeric scores are finite.

    Raises:
        FloatingPointError: one is not.
    """
    numbers = np.asarray(scores) if isinstance(scores, np.ndarray | float) else np.zeros(0)
    odd = numbers.dtype.kind == "f" and (np.isnan(numbers) | np.isposinf(numbers)).any()
    if odd:
        raise FloatingPointError(
            "what the model says is not finite: it has diverged, and a lower rate may help, or its "
            "weights or configuration are damaged"
        )


def mean_loss(
    formulation: TaskFormulation, items: Sequence[TaskExample], scores: Sequence[ItemScores]
) -> float:
    """Compute the mean loss: in nats, or squared error in regression; 0 without targets."""
    total, n = 0.0, 0
    for item, item_scores in zip(items, scores, strict=True):
        loss, places = formulation.loss(item, item_scores)
        total += loss
        n += places
    return total / n if n else 0.0
