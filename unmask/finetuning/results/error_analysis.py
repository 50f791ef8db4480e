"""Error analysis: wrong predictions, the most confident or the farthest off first."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from unmask.finetuning.formulations.formulation import ItemScores, TaskFormulation
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.tasks.task import Label, TaskExample

_MAX_CHARACTERS = 1000
_CONTEXT_CHARACTERS = 120  # characters on either side of the error


def list_errors(
    formulation: TaskFormulation, items: Sequence[TaskExample], scores: Sequence[ItemScores]
) -> list[dict[str, Any]]:
    """List all wrong predictions, or words with wrong labels, as a report shows them.

    The order is by descending confidence, absolute error, or loss of the target.
    """
    tagged = TASK_KINDS[formulation.task.task_kind].reader.word_per_line
    errors: list[tuple[float, dict[str, Any]]] = []
    for item, rows in zip(items, scores, strict=True):
        if tagged:
            errors += _word_errors(formulation, item, rows)
        elif not _is_correct(item.label, prediction := formulation.prediction(item, rows)):
            errors.append(_describe_error(formulation, item, rows, prediction))
    errors.sort(key=lambda pair: -pair[0])
    return [wrong for _, wrong in errors]


def _is_correct(label: Label | None, prediction: Label) -> bool:
    """Return whether a prediction is the label, or one of several; if there are none, empty."""
    return prediction == label or (isinstance(label, tuple) and prediction in (label or ("",)))


def _describe_error(
    formulation: TaskFormulation, item: TaskExample, item_scores: ItemScores, prediction: Label
) -> tuple[float, dict[str, Any]]:
    """Return the severity of an error, and its description."""
    truth = item.label
    text, marked = _source_excerpt(item)
    wrong: dict[str, Any] = {"text": text, "marked": marked}
    if item.picture is not None:
        wrong["picture"] = item.picture
    if isinstance(prediction, float) and isinstance(truth, float):
        return abs(prediction - truth), wrong | {
            "truth": f"{truth:.4g}",
            "predicted": f"{prediction:.4g}",
        }
    wrong |= {"truth": _format_answer(truth, item), "predicted": _format_answer(prediction, item)}
    record = cast("Mapping[str, Any]", formulation.prediction_record(item, item_scores))
    shares: Any = record.get("probabilities")
    if isinstance(prediction, tuple):  # labels, each by itself
        sure, of_truth = (
            _joint_probability(shares, prediction),
            _joint_probability(shares, cast("tuple[str]", truth)),
        )
    else:
        sure, of_truth = record.get("probability"), _probability_of(shares, truth)
    if sure is None:
        total, places = formulation.loss(item, item_scores)
        return total / max(places, 1), wrong
    return sure, wrong | {"probability": sure, "truth_probability": of_truth}


def _probability_of(probabilities: Any, label: Label | None) -> float | None:
    """Return the probability of a label, or of an option."""
    if isinstance(probabilities, Mapping):
        return cast("Mapping[Any, float]", probabilities)[label]
    return None if probabilities is None else probabilities[cast("int", label)]


def _joint_probability(
    probabilities: Mapping[str, float], predicted_labels: Sequence[str]
) -> float:
    """Return the probability of exactly these labels, which are independent."""
    return math.prod(
        p if label in predicted_labels else 1 - p for label, p in probabilities.items()
    )


def _word_errors(
    formulation: TaskFormulation, item: TaskExample, item_scores: ItemScores
) -> Iterator[tuple[float, dict[str, Any]]]:
    """Describe the words of a sentence that have a wrong label, with their context."""
    record = cast("Mapping[str, Any]", formulation.prediction_record(item, item_scores))
    sentence, begin = " ".join(item.texts), 0
    for word, truth, predicted, sure in zip(
        item.texts, cast("tuple[str, ...]", item.label), record["labels"], record["probabilities"],
        strict=True,
    ):  # fmt: skip
        if predicted != truth:
            text, marked = _excerpt(sentence, begin, begin + len(word))
            wrong = {"text": text, "marked": marked, "truth": truth, "predicted": predicted}
            yield sure, wrong | {"probability": sure}
        begin += len(word) + 1


def _source_excerpt(item: TaskExample) -> tuple[str, list[int] | None]:
    """Return the input text, and the position of the correct answer in it, if any."""
    if not item.answer_starts:
        return " | ".join(item.texts)[:_MAX_CHARACTERS], None
    *before, context = item.texts
    answer = cast("tuple[str, ...]", item.label)[0]
    text, marked = _excerpt(context, item.answer_starts[0], item.answer_starts[0] + len(answer))
    lead = "".join(f"{one} | " for one in before)[:_MAX_CHARACTERS]
    return lead + text, [len(lead) + at for at in marked]


def _excerpt(text: str, begin: int, end: int) -> tuple[str, list[int]]:
    """Return an excerpt around a part of a text, and the position of the part in it."""
    first, last = max(begin - _CONTEXT_CHARACTERS, 0), min(end + _CONTEXT_CHARACTERS, len(text))
    lead = "…" if first else ""
    moved = len(lead) - first
    tail = "…" if last < len(text) else ""
    return lead + text[first:last] + tail, [begin + moved, end + moved]


def _format_answer(label: Label | None, item: TaskExample) -> str:
    """Format an answer: of several texts each once, of a choice the option."""
    if isinstance(label, int) and item.choices:
        return item.choices[label]
    return " | ".join(dict.fromkeys(label)) if isinstance(label, tuple) else str(label)
