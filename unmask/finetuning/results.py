"""What came out of fine-tuning: the scores of every run, and the files that say so."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unmask.finetuning.ask import Ask, Scores
from unmask.finetuning.kinds.catalogue import TASK_KINDS
from unmask.finetuning.measures.calibration import brier, calibration
from unmask.finetuning.predict import Said
from unmask.finetuning.tasks import Item, Task, Truth

MISTAKES = 25
"""Wrong answers that are shown."""
_MOST_LABELS = 50
_MOST_CHARACTERS = 1000


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
        "confusion": confusion(task, dev, said.scores),
        "calibration": trust(task, dev, said.scores),
        "errors": mistakes(asked, dev, said.scores),
    }


def chance(task: Task, train: Sequence[Item], dev: Sequence[Item]) -> float:
    """Compute the score of always giving the answer that is most frequent in training."""
    kind = TASK_KINDS[task.does]
    usual = kind.usual(task, train)
    known = [item.truth for item in dev if item.truth is not None]
    if kind.files.tagged:
        said: list[Any] = [(usual,) * len(t) for t in known if isinstance(t, tuple)]
    else:
        said = [usual] * len(known)
    return kind.measure(task, known, said)[task.metric]


def confusion(task: Task, items: Sequence[Item], scores: Sequence[Scores]) -> dict[str, Any] | None:
    """Count how often each true label (row) was given each label (column); None if too many."""
    if not TASK_KINDS[task.does].one_label or len(task.labels) > _MOST_LABELS:
        return None
    counts = np.zeros((len(task.labels), len(task.labels)), np.int64)
    for item, rows in zip(items, scores, strict=True):
        counts[task.labels.index(str(item.truth)), int(rows[0].argmax())] += 1
    return {"labels": list(task.labels), "counts": counts.tolist()}


def trust(task: Task, items: Sequence[Item], scores: Sequence[Scores]) -> dict[str, Any] | None:
    """Compute how far probabilities can be trusted: of tasks whose answer is one of some labels."""
    if not TASK_KINDS[task.does].one_label or not items:
        return None
    logs = np.array([rows[0] for rows in scores], np.float64)  # [items labels]
    shares = np.exp(logs - logs.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    truth = np.array([task.labels.index(str(item.truth)) for item in items], np.int64)
    found = calibration(truth, shares)
    return {
        "ece": found.error,
        "brier": brier(truth, shares),
        "bins": [vars(one) for one in found.bins],
    }


def mistakes(asked: Ask, items: Sequence[Item], scores: Sequence[Scores]) -> list[dict[str, Any]]:
    """List the wrong answers that the model was surest of, or the numbers farthest off."""
    task = asked.task
    if TASK_KINDS[task.does].files.tagged:
        return []
    found: list[tuple[float, dict[str, Any]]] = []
    for item, rows in zip(items, scores, strict=True):
        said, truth = asked.truth(item, rows), item.truth
        if said == truth or (isinstance(truth, tuple) and said in (truth or ("",))):
            continue
        given = asked.answer(item, rows)
        sure = given.get("probability") if isinstance(given, dict) else None
        shares = given.get("probabilities") if isinstance(given, dict) else None
        if isinstance(said, float) and isinstance(truth, float):
            weight, shown = abs(said - truth), (f"{truth:.4g}", f"{said:.4g}")
        else:
            weight, shown = sure or 0.0, (_shown(truth, item), _shown(said, item))
        wrong = {
            "text": " | ".join(item.texts)[:_MOST_CHARACTERS],
            "truth": shown[0],
            "predicted": shown[1],
            "probability": sure,
            "truth_probability": shares.get(truth) if isinstance(shares, dict) else None,
        }
        found.append((weight, wrong))
    found.sort(key=lambda pair: -pair[0])
    return [wrong for _, wrong in found[:MISTAKES]]


def _shown(truth: Truth | None, item: Item) -> str:
    """Write an answer: of several texts all, of a choice the option."""
    if isinstance(truth, int) and item.options:
        return item.options[truth]
    return " | ".join(truth) if isinstance(truth, tuple) else str(truth)


def as_json(data: Any) -> str:
    """Write plain data as JSON."""
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
