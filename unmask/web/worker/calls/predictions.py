"""`predict`: what a fine-tuned model says of texts, with places in characters."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from unmask.config import from_dict
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.tasks.metrics.tagging import extract_entities, has_entity_labels
from unmask.web.worker.open_models import open_models

MAX_INPUTS = 1000
_WORD = re.compile(r"\w+(?:['\u2019.-]\w+)*|[^\w\s]")
"""A word with inner apostrophes, hyphens and points, or a sign; files of tagged words have signs
apart."""


@dataclass(frozen=True, kw_only=True)
class _PredictArguments:
    model: str
    inputs: Sequence[Any]
    """A line each, as for `unmask predict` (parts separated by tabs); or parts as a list or table.
    Of a tagger, a text, whose words are found, or a list of words."""
    mixture_task: str | None = None
    language: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.inputs) <= MAX_INPUTS:
            raise ValueError(f"inputs must be 1 to {MAX_INPUTS}, got {len(self.inputs):,}")


def predict(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return "task" and, for each input, the record of `unmask predict`, extended.

    A number is {"number"}. Of a tagger, a record has "words" ({"text", "start", "end", "label",
    "probability"}) and "spans" ({"text", "start", "end", "label"}). An answer has its "end".
    """
    given = from_dict(_PredictArguments, arguments)
    pipeline = open_models().pipeline(given.model, given.language)
    if given.mixture_task is not None:
        pipeline = pipeline.mixture_task(given.mixture_task)
    task = pipeline.required_task()
    if task.task_kind == "tag":
        found = [_split(one) for one in given.inputs]
        records = pipeline.predict([words for words, _ in found])
        predictions = [
            _tagged(words, places, cast("Mapping[str, Any]", record))
            for (words, places), record in zip(found, records, strict=True)
        ]
        return {"task": task.task_kind, "predictions": predictions}
    reader = TASK_KINDS[task.task_kind].reader
    inputs = [reader.parse_line(task, one) if isinstance(one, str) else one for one in given.inputs]
    predictions = [_plain(record) for record in pipeline.predict(inputs)]
    return {"task": task.task_kind, "labels": list(task.labels), "predictions": predictions}


def _split(text: Any) -> tuple[list[str], list[tuple[int, int]]]:
    """Return the words of a text, and where they are; given words are joined by spaces."""
    if isinstance(text, str):
        found = [*_WORD.finditer(text)]
        return [one[0] for one in found], [one.span() for one in found]
    words, places, end = [str(word) for word in text], list[tuple[int, int]](), 0
    for word in words:
        places.append((end, end + len(word)))
        end += len(word) + 1
    return words, places


def _tagged(
    words: Sequence[str], places: Sequence[tuple[int, int]], record: Mapping[str, Any]
) -> dict[str, Any]:
    labels: list[str] = list(record["labels"])
    shares = [_largest(one) for one in record["probabilities"]]
    tagged = [
        {"text": word, "start": start, "end": end, "label": label, "probability": share}
        for word, (start, end), label, share in zip(words, places, labels, shares, strict=True)
    ]
    spans: list[dict[str, Any]] = []
    if has_entity_labels([label for label in labels if label != "O"]):
        for first, last, kind in extract_entities(labels):
            start, end = places[first][0], places[last - 1][1]
            text = " ".join(words[first:last])
            spans.append({"text": text, "start": start, "end": end, "label": kind})
    return {"words": tagged, "spans": spans}


def _largest(share: Any) -> float:
    """Return the probability of a tag, which may be given with those of the others."""
    return max(share.values()) if isinstance(share, Mapping) else float(share)


def _plain(record: Any) -> dict[str, Any]:
    if not isinstance(record, Mapping):
        return {"number": float(record)}
    facts = dict(cast("Mapping[str, Any]", record))
    if facts.get("start") is not None:
        facts["end"] = facts["start"] + len(facts["answer"])
    return facts
