"""What came out of fine-tuning: the scores of every run, and the files that say so."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from jaxtyping import Float, Int

from unmask.finetuning.ask import Ask, Scores, places
from unmask.finetuning.error_analysis import list_errors
from unmask.finetuning.kinds.catalogue import TASK_KINDS
from unmask.finetuning.predict import Said
from unmask.finetuning.task_metrics import compute_metrics, majority_predictions
from unmask.tasks.metrics.calibration import brier, calibration
from unmask.tasks.task import Item, Task, Truth

MISTAKES = 25
"""Wrong answers that are shown."""
_MOST_LABELS = 50


@dataclass(frozen=True, kw_only=True)
class Scored:
    """One run: how good its best state is."""

    arm: str
    """How it began."""
    seed: int
    step: int
    """After which it was best on the dev file."""
    dev: Mapping[str, float]
    test: Mapping[str, float]
    """Empty where there is no test file."""
    tuned: int = 0
    """Numbers that were tuned."""


def comparison(
    scored: Sequence[Scored],
    asked: Ask,
    data: str,
    train: Sequence[Item],
    dev: Sequence[Item],
    said: Said,
) -> dict[str, Any]:
    """Return what `results.json` holds: all scores, and the confusions and mistakes of the best.

    Args:
        scored: every run, the arm under study first.
        asked: the task, as the model is asked.
        data: what the training file is called.
        train: from which the most frequent answer is known.
        dev: on which the scores were reached.
        said: what the best model says of it.
    """
    task = asked.task
    wrong = list_errors(asked, dev, said.scores)
    arms = [
        {
            "name": arm,
            "dev": [s.dev[task.metric] for s in scored if s.arm == arm],
            "test": [s.test[task.metric] for s in scored if s.arm == arm and s.test],
        }
        for arm in dict.fromkeys(s.arm for s in scored)
    ]
    return {
        "task": f"{task.does} {data}",
        "metric": task.metric,
        "arms": arms,
        "chance": chance(task, train, dev),
        "confusion": confusion(asked, dev, said.scores),
        "found": found(asked, dev, said.scores),
        "calibration": trust(task, dev, said.scores),
        "errors": wrong[:MISTAKES],
        "wrong": len(wrong),
    }


def chance(task: Task, train: Sequence[Item], dev: Sequence[Item]) -> float:
    """Compute the score of always giving the answer that is most frequent in training."""
    said: list[Any] = majority_predictions(task, train, dev)
    if TASK_KINDS[task.does].files.tagged:
        said = [
            (tag,) * len(cast("tuple[str, ...]", item.truth))
            for tag, item in zip(said, dev, strict=True)
        ]
    return compute_metrics(task, dev, said)[task.metric]


def confusion(asked: Ask, items: Sequence[Item], scores: Sequence[Scores]) -> dict[str, Any] | None:
    """Count how often each true label (row) was given each label (column), of texts or of words.

    None if there are too many labels, or answers are not one of them.
    """
    kind, labels = TASK_KINDS[asked.task.does], asked.task.labels
    if not (kind.one_label or kind.files.tagged) or len(labels) > _MOST_LABELS:
        return None
    counts = np.zeros((len(labels), len(labels)), np.int64)
    for item, rows in zip(items, scores, strict=True):
        truth, said = item.truth, asked.truth(item, rows)
        assert truth is not None
        np.add.at(counts, (places(asked.task, truth), places(asked.task, said)), 1)
    return {"labels": list(labels), "counts": counts.tolist()}


def found(asked: Ask, items: Sequence[Item], scores: Sequence[Scores]) -> list[dict[str, Any]]:
    """Count how often each label was found, missed, and said of a text where it does not hold.

    Only of tasks where several labels may hold of a text; others have a confusion matrix.
    """
    if not _several(asked.task, items):
        return []
    pairs = [
        (set(cast("tuple[str, ...]", item.truth)), set(cast("tuple[str]", asked.truth(item, rows))))
        for item, rows in zip(items, scores, strict=True)
    ]
    return [
        {
            "label": label,
            "found": sum(label in truth & said for truth, said in pairs),
            "missed": sum(label in truth - said for truth, said in pairs),
            "invented": sum(label in said - truth for truth, said in pairs),
        }
        for label in asked.task.labels
    ]


def _several(task: Task, items: Sequence[Item]) -> bool:
    """Say whether several of the labels may hold of a text."""
    sets = any(isinstance(item.truth, tuple) for item in items)
    return bool(task.labels) and sets and not TASK_KINDS[task.does].files.tagged


def trust(task: Task, items: Sequence[Item], scores: Sequence[Scores]) -> dict[str, Any] | None:
    """Compute how far probabilities can be trusted: of tasks whose answers are among some."""
    decided = _decided(task, items, scores) if items else None
    if decided is None:
        return None
    truth, logs = decided
    shares = np.exp(logs - logs.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    found = calibration(truth, shares)
    return {
        "ece": found.error,
        "brier": brier(truth, shares),
        "bins": [vars(one) for one in found.bins],
    }


def _decided(
    task: Task, items: Sequence[Item], scores: Sequence[Scores]
) -> tuple[Int[np.ndarray, "n"], Float[np.ndarray, "n answers"]] | None:
    """List what was decided among some answers: the right one, and log-probabilities but for a sum.

    Of a text that is its label, of a sentence each word's, of options the right one; where several
    labels may hold, whether each does.
    """
    kind = TASK_KINDS[task.does]
    if kind.files.tagged:
        words = [label for item in items for label in places(task, cast("Truth", item.truth))]
        return np.array(words), np.concatenate([rows.logs for rows in scores], dtype=np.float64)
    if _several(task, items):
        held = [label in cast("tuple[str]", item.truth) for item in items for label in task.labels]
        odds = np.concatenate([rows[0] for rows in scores]).astype(np.float64)
        return np.array(held, np.int64), np.stack([np.zeros_like(odds), odds], 1)
    if kind.one_label:
        labels = [places(task, cast("Truth", item.truth))[0] for item in items]
        return np.array(labels), np.array([rows[0] for rows in scores], np.float64)
    if items[0].options:
        logs = np.full((len(items), max(len(item.options) for item in items)), -np.inf)
        for row, rows in zip(logs, scores, strict=True):
            row[: rows.shape[1]] = rows[0]
        return np.array([cast("int", item.truth) for item in items]), logs
    return None


def as_json(data: Any) -> str:
    """Write plain data as JSON."""
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
