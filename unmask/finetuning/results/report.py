"""The results of fine-tuning: the scores of all runs, and `results.json`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
from jaxtyping import Float, Int

from unmask.finetuning.formulations.conversations.reward_metrics import N_BINS
from unmask.finetuning.formulations.formulation import ItemScores, TaskFormulation, label_indices
from unmask.finetuning.results.error_analysis import list_errors
from unmask.finetuning.results.predict import PredictedScores
from unmask.finetuning.results.task_metrics import compute_metrics, majority_predictions
from unmask.images.drawing import thumbnail, to_png_text
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.tasks.metrics.calibration import DEFAULT_N_BINS, calibration, count_probabilities
from unmask.tasks.metrics.tagging import entity_counts, has_entity_labels
from unmask.tasks.task import Label, Task, TaskExample

MAX_SAVED_ERRORS, MAX_SAVED_PICTURES = 200, 25
"""Number of errors that `results.json` keeps: of texts, and of pictures, which are larger."""
THUMBNAIL_EDGE = 96
"""Pixels of the longer edge of a picture in a report, at most."""
_MAX_LABELS = 50


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """The scores of the best checkpoint of one run."""

    arm: str
    """Initialization of the weights."""
    seed: int
    best_step: int
    """Step with the best dev score."""
    dev: Mapping[str, float]
    test: Mapping[str, float]
    """Metrics on the test file; empty without one."""
    n_trainable_parameters: int = 0
    """Number of trained parameters."""


def build_report(
    run_results: Sequence[RunResult],
    formulation: TaskFormulation,
    train_name: str,
    train: Sequence[TaskExample],
    dev: Sequence[TaskExample],
    predicted: PredictedScores,
) -> dict[str, Any]:
    """Return the content of `results.json`: all scores, and the error analysis of the best run.

    Args:
        run_results: all runs; those of the baseline come last.
        formulation: formulation of the task.
        train_name: name of the training file.
        train: training items, for the majority baseline.
        dev: dev items.
        predicted: scores of the best model on the dev items.
    """
    task = formulation.task
    wrong = list_errors(formulation, dev, predicted.scores)
    arms = [
        {
            "name": arm,
            "dev": [s.dev[task.metric] for s in run_results if s.arm == arm],
            "test": [s.test[task.metric] for s in run_results if s.arm == arm and s.test],
            "metrics": _other_metrics([s for s in run_results if s.arm == arm], task.metric),
        }
        for arm in dict.fromkeys(s.arm for s in run_results)
    ]
    return {
        "task": f"{task.task_kind} {train_name}",
        "metric": task.metric,
        "arms": arms,
        "chance": majority_baseline(task, train, dev),
        "confusion": confusion_matrix(formulation, dev, predicted.scores),
        "found": label_counts(formulation, dev, predicted.scores),
        "calibration": calibration_report(task, dev, predicted.scores),
        "probabilities": probability_counts(task, dev, predicted.scores),
        "errors": [_with_thumbnail(error) for error in _saved_errors(wrong)],
        "wrong": len(wrong),
    }


def _other_metrics(
    run_results: Sequence[RunResult], leading: str
) -> dict[str, dict[str, list[float]]]:
    """Return all metrics but the leading one and the loss: of each, its scores by split."""
    names = dict.fromkeys(name for one in run_results for name in (*one.dev, *one.test))
    splits = {"dev": [s.dev for s in run_results], "test": [s.test for s in run_results if s.test]}
    return {
        name: {split: [one[name] for one in some if name in one] for split, some in splits.items()}
        for name in names
        if name not in (leading, "loss")
    }


def _saved_errors(wrong: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    has_pictures = any("picture" in error for error in wrong)
    return wrong[: MAX_SAVED_PICTURES if has_pictures else MAX_SAVED_ERRORS]


def _with_thumbnail(error: Mapping[str, Any]) -> dict[str, Any]:
    """Return an error as plain data: its picture, if it has one, as a small PNG file in Base64."""
    shown, stored = dict(error), error.get("picture")
    if stored is not None:
        pixels = stored.store.pixels([stored.index])[0]
        shown["picture"] = to_png_text(thumbnail(pixels, THUMBNAIL_EDGE))
    return shown


def majority_baseline(
    task: Task, train: Sequence[TaskExample], dev: Sequence[TaskExample]
) -> float | None:
    """Compute the score of always predicting the most frequent answer of the training data.

    None: a constant answer has no such score, as that of a loss.
    """
    predictions: list[Any] = majority_predictions(task, train, dev)
    if TASK_KINDS[task.task_kind].reader.word_per_line:
        predictions = [
            (tag,) * len(cast("tuple[str, ...]", item.label))
            for tag, item in zip(predictions, dev, strict=True)
        ]
    return compute_metrics(task, dev, predictions).get(task.metric)


def confusion_matrix(
    formulation: TaskFormulation, items: Sequence[TaskExample], scores: Sequence[ItemScores]
) -> dict[str, Any] | None:
    """Count how often each label (row) was predicted as each label (column), for texts or words.

    None if there are too many labels, or predictions are not single labels.
    """
    kind, labels = TASK_KINDS[formulation.task.task_kind], formulation.task.labels
    if not (kind.is_single_label or kind.reader.word_per_line) or len(labels) > _MAX_LABELS:
        return None
    counts = np.zeros((len(labels), len(labels)), np.int64)
    for item, rows in zip(items, scores, strict=True):
        truth, predicted = item.label, formulation.prediction(item, rows)
        assert truth is not None
        np.add.at(
            counts,
            (label_indices(formulation.task, truth), label_indices(formulation.task, predicted)),
            1,
        )
    return {"labels": list(labels), "counts": counts.tolist()}


def label_counts(
    formulation: TaskFormulation, items: Sequence[TaskExample], scores: Sequence[ItemScores]
) -> list[dict[str, Any]]:
    """Count the true positives, false negatives and false positives of each label.

    Only for multi-label tasks, and for tags that mark entities: of each type of entity. Others have
    a confusion matrix.
    """
    task = formulation.task
    answers = [
        (
            cast("tuple[str, ...]", item.label),
            cast("tuple[str, ...]", formulation.prediction(item, rows)),
        )
        for item, rows in zip(items, scores, strict=True)
    ]
    if TASK_KINDS[task.task_kind].reader.word_per_line:
        return entity_counts(answers) if has_entity_labels(task.labels) else []
    if not _is_multi_label(task, items):
        return []
    pairs = [(set(truth), set(predicted)) for truth, predicted in answers]
    return [
        {
            "label": label,
            "found": sum(label in truth & predicted for truth, predicted in pairs),
            "missed": sum(label in truth - predicted for truth, predicted in pairs),
            "invented": sum(label in predicted - truth for truth, predicted in pairs),
        }
        for label in task.labels
    ]


def _is_multi_label(task: Task, items: Sequence[TaskExample]) -> bool:
    """Return whether the task is multi-label classification."""
    sets = any(isinstance(item.label, tuple) for item in items)
    return bool(task.labels) and sets and not TASK_KINDS[task.task_kind].reader.word_per_line


def calibration_report(
    task: Task, items: Sequence[TaskExample], scores: Sequence[ItemScores]
) -> dict[str, Any] | None:
    """Compute the calibration of probabilities, for tasks with a fixed set of answers."""
    decided = _decisions(task, items, scores) if items else None
    if decided is None:
        return None
    truth, logs = decided
    shares = np.exp(logs - logs.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    n_bins = N_BINS if task.task_kind == "prefer" else DEFAULT_N_BINS
    return asdict(calibration(truth, shares, n_bins))


def probability_counts(
    task: Task, items: Sequence[TaskExample], scores: Sequence[ItemScores]
) -> dict[str, Any] | None:
    """Count the probabilities of the second of two labels, for the choice of a threshold.

    None: there are not two labels, or several may hold.
    """
    is_between_two = TASK_KINDS[task.task_kind].is_single_label and len(task.labels) == 2
    decided = _decisions(task, items, scores) if items and is_between_two else None
    if decided is None:
        return None
    truth, logs = decided
    probabilities = 1 / (1 + np.exp(np.clip(logs[:, 0] - logs[:, 1], -700, 700)))
    return asdict(count_probabilities(task.labels[1], truth == 1, probabilities))


def _decisions(
    task: Task, items: Sequence[TaskExample], scores: Sequence[ItemScores]
) -> tuple[Int[np.ndarray, "n"], Float[np.ndarray, "n answers"]] | None:
    """Return the decisions: indices of correct answers, and log-probabilities up to a constant.

    A decision is the label of a text or of each word, the correct option, or, in multi-label
    classification, whether each label is true.
    """
    kind = TASK_KINDS[task.task_kind]
    if kind.reader.word_per_line:
        words = [
            label for item in items for label in label_indices(task, cast("Label", item.label))
        ]
        return np.array(words), np.concatenate(
            [rows.log_probabilities for rows in scores], dtype=np.float64
        )
    if _is_multi_label(task, items):
        is_true = [
            label in cast("tuple[str]", item.label) for item in items for label in task.labels
        ]
        odds = np.concatenate([rows[0] for rows in scores]).astype(np.float64)
        return np.array(is_true, np.int64), np.stack([np.zeros_like(odds), odds], 1)
    if kind.is_single_label:
        labels = [label_indices(task, cast("Label", item.label))[0] for item in items]
        return np.array(labels), np.array([rows[0] for rows in scores], np.float64)
    if items[0].choices:
        logs = np.full((len(items), max(len(item.choices) for item in items)), -np.inf)
        for row, rows in zip(logs, scores, strict=True):
            row[: rows.shape[1]] = rows[0]
        return np.array([cast("int", item.label) for item in items]), logs
    return None


def to_json(data: Any) -> str:
    """Write plain data as JSON."""
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
