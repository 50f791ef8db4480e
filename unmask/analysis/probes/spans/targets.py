"""Labeled spans of words: those that tags mark, and files in the format of edge probing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from unmask.tasks.metrics.tagging import SCHEME_PREFIXES, extract_entities, has_entity_labels
from unmask.tasks.readers.tables import Table
from unmask.text.formats.records import describe_value

TARGETS_COLUMN = "targets"
"""Column of a file of spans, beside "text"."""


@dataclass(frozen=True)
class SpanTarget:
    """A label of a span, or of two, of one sentence."""

    span1: tuple[int, int]
    """First word, and the word after the last."""
    label: str
    span2: tuple[int, int] | None = None
    """None: the label is of one span."""

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """One span, or two."""
        return (self.span1,) if self.span2 is None else (self.span1, self.span2)


SentenceTargets = tuple[SpanTarget, ...]
"""The targets of one sentence, which may be none."""


def marks_spans(labels: Sequence[str]) -> bool:
    """Return whether labels mark spans with types, as B-X, I-X and O."""
    return has_entity_labels(labels) and all("-" in label for label in labels if label != "O")


def tagged_spans(table: Table, tags: Sequence[Sequence[str]]) -> tuple[SentenceTargets, ...]:
    """Return the spans that tags of a file mark, as B-X, I-X and O, labeled with their types.

    Raises:
        ValueError: the tags mark no spans with types.
    """
    known = sorted({tag for row in tags for tag in row})
    if not marks_spans(known):
        i, tag = _first_unmarked(tags)
        raise ValueError(
            f"{table.location(i)}: spans need labels that mark them with a type, as B-X, I-X and "
            f"O ({', '.join(SCHEME_PREFIXES)}), got {tag!r}"
        )
    return tuple(
        tuple(SpanTarget((start, end), kind) for start, end, kind in extract_entities(row))
        for row in tags
    )


def _first_unmarked(tags: Sequence[Sequence[str]]) -> tuple[int, str]:
    """Return the first tag that marks no span, and its sentence; or the first tag."""
    odd = ((i, tag) for i, row in enumerate(tags) for tag in row if tag != "O")
    return next((found for found in odd if not marks_spans([found[1]])), (0, tags[0][0]))


def read_targets(
    table: Table,
) -> tuple[tuple[tuple[str, ...], ...], tuple[SentenceTargets, ...]]:
    """Read the words and targets of a file in the format of edge probing.

    A row has a "text", whose words are between white space, and "targets": objects with "span1",
    [first word, word after the last], "span2" alike or none, and a "label". Other keys are not
    read.

    Raises:
        ValueError: a row is otherwise, some targets have one span and others two, or there are
            none.
    """
    table.check_column("text")
    texts, targets = table.column("text"), table.column(TARGETS_COLUMN)
    words: list[tuple[str, ...]] = []
    found: list[SentenceTargets] = []
    n_spans = 0
    for i, (text, rows) in enumerate(zip(texts, targets, strict=True)):
        place = table.location(i)
        if not isinstance(text, str) or not text.split():
            raise ValueError(f"{place}: text must be words, got {describe_value(text)}")
        if not isinstance(rows, list):
            raise ValueError(f"{place}: targets must be a list, got {describe_value(rows)}")
        words.append(tuple(text.split()))
        of_sentence: list[SpanTarget] = []
        for k, row in enumerate(cast("list[object]", rows)):
            target = _read_target(row, len(words[-1]), f"{place}: targets[{k}]")
            n_spans = n_spans or len(target.spans)
            if len(target.spans) != n_spans:
                raise ValueError(
                    f"{place}: targets[{k}]: has {_count(len(target.spans))}, but those before it "
                    f"{_count(n_spans)}"
                )
            of_sentence.append(target)
        found.append(tuple(of_sentence))
    if not n_spans:
        raise ValueError(f"{table.path}: no targets")
    return tuple(words), tuple(found)


def spans_per_target(sentences: Sequence[SentenceTargets]) -> int:
    """Return how many spans the targets of a file have, 1 or 2; 0 without targets."""
    return next((len(target.spans) for some in sentences for target in some), 0)


def _read_target(row: object, n_words: int, place: str) -> SpanTarget:
    if not isinstance(row, dict):
        raise ValueError(f"{place}: must be an object with span1 and label, got {row!r:.60}")
    fields = cast("Mapping[str, object]", row)
    label = fields.get("label")
    if not isinstance(label, str) or not label:
        raise ValueError(f"{place}: label must be one text, got {describe_value(label)}")
    second = fields.get("span2")
    return SpanTarget(
        span1=_read_span(fields.get("span1"), n_words, f"{place}: span1"),
        label=label,
        span2=None if second is None else _read_span(second, n_words, f"{place}: span2"),
    )


def _read_span(value: object, n_words: int, place: str) -> tuple[int, int]:
    ends = cast("list[object]", value) if isinstance(value, list) else []
    numbers = [x for x in ends if isinstance(x, int) and not isinstance(x, bool)]
    if len(ends) != 2 or len(numbers) != 2 or not 0 <= numbers[0] < numbers[1] <= n_words:
        raise ValueError(
            f"{place} must be [first word, word after the last], rising from 0 to at most "
            f"{n_words}, got {value!r:.60}"
        )
    return numbers[0], numbers[1]


def _count(n_spans: int) -> str:
    return "one span" if n_spans == 1 else "two spans"
