"""What a model got wrong, the worst first: answers that it was sure of, numbers far off."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from unmask.finetuning.ask import Ask, Scores
from unmask.finetuning.kinds.catalogue import TASK_KINDS
from unmask.tasks.task import Item, Truth

_MOST_CHARACTERS = 1000
_AROUND = 120  # characters on either side of what a mistake is about


def list_errors(
    asked: Ask, items: Sequence[Item], scores: Sequence[Scores]
) -> list[dict[str, Any]]:
    """List all wrong answers as a report shows them, or the words with wrong labels.

    The answers that the model was surest of come first, the numbers that are farthest off, or the
    targets that it found least likely.
    """
    tagged = TASK_KINDS[asked.task.does].files.tagged
    found: list[tuple[float, dict[str, Any]]] = []
    for item, rows in zip(items, scores, strict=True):
        if tagged:
            found += _words(asked, item, rows)
        elif not _right(item.truth, said := asked.truth(item, rows)):
            found.append(_mistake(asked, item, rows, said))
    found.sort(key=lambda pair: -pair[0])
    return [wrong for _, wrong in found]


def _right(truth: Truth | None, said: Truth) -> bool:
    """Say whether an answer is the right one, or one of several; none is right where none is."""
    return said == truth or (isinstance(truth, tuple) and said in (truth or ("",)))


def _mistake(asked: Ask, item: Item, rows: Scores, said: Truth) -> tuple[float, dict[str, Any]]:
    """Describe a wrong answer, and say how bad it is."""
    truth = item.truth
    text, marked = _text(item)
    wrong: dict[str, Any] = {"text": text, "marked": marked}
    if isinstance(said, float) and isinstance(truth, float):
        return abs(said - truth), wrong | {"truth": f"{truth:.4g}", "predicted": f"{said:.4g}"}
    wrong |= {"truth": _shown(truth, item), "predicted": _shown(said, item)}
    given = cast("Mapping[str, Any]", asked.answer(item, rows))
    shares: Any = given.get("probabilities")
    if isinstance(said, tuple):  # labels, each by itself
        sure, of_truth = _of_labels(shares, said), _of_labels(shares, cast("tuple[str]", truth))
    else:
        sure, of_truth = given.get("probability"), _of_one(shares, truth)
    if sure is None:
        total, places = asked.loss(item, rows)
        return total / max(places, 1), wrong
    return sure, wrong | {"probability": sure, "truth_probability": of_truth}


def _of_one(shares: Any, truth: Truth | None) -> float | None:
    """Return the probability of one of some labels, or of some options."""
    if isinstance(shares, Mapping):
        return cast("Mapping[Any, float]", shares)[truth]
    return None if shares is None else shares[cast("int", truth)]


def _of_labels(shares: Mapping[str, float], held: Sequence[str]) -> float:
    """Return the probability that just these labels hold, each being independent of the others."""
    return math.prod(p if label in held else 1 - p for label, p in shares.items())


def _words(asked: Ask, item: Item, rows: Scores) -> Iterator[tuple[float, dict[str, Any]]]:
    """Describe the words of a sentence that have a wrong label, each in its place."""
    given = cast("Mapping[str, Any]", asked.answer(item, rows))
    sentence, begin = " ".join(item.texts), 0
    for word, truth, said, sure in zip(
        item.texts, cast("tuple[str, ...]", item.truth), given["labels"], given["probabilities"],
        strict=True,
    ):  # fmt: skip
        if said != truth:
            text, marked = _around(sentence, begin, begin + len(word))
            wrong = {"text": text, "marked": marked, "truth": truth, "predicted": said}
            yield sure, wrong | {"probability": sure}
        begin += len(word) + 1


def _text(item: Item) -> tuple[str, list[int] | None]:
    """Write what was read, and where in it the right answer stands, if it stands there."""
    if not item.starts:
        return " | ".join(item.texts)[:_MOST_CHARACTERS], None
    *before, context = item.texts
    answer = cast("tuple[str, ...]", item.truth)[0]
    text, marked = _around(context, item.starts[0], item.starts[0] + len(answer))
    lead = "".join(f"{one} | " for one in before)[:_MOST_CHARACTERS]
    return lead + text, [len(lead) + at for at in marked]


def _around(text: str, begin: int, end: int) -> tuple[str, list[int]]:
    """Cut out what stands around a part of a text, and say where that part now stands."""
    first, last = max(begin - _AROUND, 0), min(end + _AROUND, len(text))
    lead = "…" if first else ""
    moved = len(lead) - first
    tail = "…" if last < len(text) else ""
    return lead + text[first:last] + tail, [begin + moved, end + moved]


def _shown(truth: Truth | None, item: Item) -> str:
    """Write an answer: of several texts each once, of a choice the option."""
    if isinstance(truth, int) and item.options:
        return item.options[truth]
    return " | ".join(dict.fromkeys(truth)) if isinstance(truth, tuple) else str(truth)
