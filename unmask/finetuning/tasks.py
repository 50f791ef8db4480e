"""What is learned: a Task says which columns are read, which answers there are, how to score them.

`classify` gives a text one of some labels, `pairs` two texts, `regress` gives one or two texts a
number, `tag` gives each word of a sentence a label.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np

from unmask.finetuning import metrics
from unmask.finetuning.metrics import METRICS
from unmask.finetuning.tables import WORDS, Table
from unmask.text.lines import EncodingErrors
from unmask.text.records import as_text, listed, named

Kind = Literal["classify", "pairs", "regress", "tag"]
KINDS: tuple[Kind, ...] = ("classify", "pairs", "regress", "tag")

_ONE = ("text", "sentence", "review", "question", "content", "document", "body", "message", "tweet")
_TWO = (
    ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"),
    ("sentence_a", "sentence_b"), ("text1", "text2"), ("text_a", "text_b"),
    ("question", "sentence"), ("question", "passage"), ("query", "passage"), ("question", "answer"),
)  # fmt: skip
_SENTENCES = (WORDS, "tokens", "form")
_CLASSES = (
    "label", "gold_label", "labels", "class", "category", "target", "sentiment", "intent", "topic",
    "stars", "rating",
)  # fmt: skip
_NUMBERS = ("score", "relatedness", "similarity", "label", "rating", "stars", "target", "value")
_TAGS = ("tags", "labels", "ner_tags", "pos_tags", "upos", "ner", "pos")

LARGEST = 1e30
"""Of the numbers that can be learned: float32 ends at 3e38."""

Truth = str | float | tuple[str, ...]
"""A label, a number, or a label for each word."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """One thing to be labelled."""

    texts: tuple[str, ...]
    """One text, two, or the words of a sentence."""
    truth: Truth | None = None
    where: str = ""
    """File and line, for messages."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which columns of a file are read."""

    texts: tuple[str, ...]
    label: str


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a fine-tuned model does; a part of its `unmask.json`."""

    does: Kind
    columns: Columns
    labels: tuple[str, ...] = ()
    """In the order of the scores. None for a number, but for one that is said in words: there, the
    numbers."""
    name: str = ""
    """What an encoder-decoder reads before the text."""
    length: int = 512
    """Tokens that the model reads at most, special ones included."""
    metric: str = "accuracy"
    """By which the best model was chosen."""

    @property
    def of(self) -> metrics.What:
        """What its answers are."""
        return _of(self.does)

    def measure(self, truth: Sequence[Truth], said: Sequence[Truth]) -> dict[str, float]:
        """Compute all figures of the answers `said`.

        Raises:
            FloatingPointError: a number said is not finite.
        """
        if self.of == "numbers":
            return metrics.of_numbers(_numbers(truth), _numbers(said))
        if self.of == "tags":
            return metrics.of_tags(_tags(truth), _tags(said), self.labels)
        place = {label: i for i, label in enumerate(self.labels)}
        return metrics.of_classes(
            np.array([place[str(t)] for t in truth], np.int64),
            np.array([place[str(s)] for s in said], np.int64),
            len(self.labels),
        )

    def better(self, new: Mapping[str, float], old: Mapping[str, float]) -> bool:
        """Say whether figures are better than others: by the metric, then by the loss."""
        sign = 1 if METRICS[self.metric].higher else -1
        a, b = sign * new[self.metric], sign * old[self.metric]
        return a > b or (a == b and new["loss"] < old["loss"])

    def most_frequent(self, items: Iterable[Item]) -> Truth:
        """Return the most frequent label, of ties the first; or the mean number."""
        truths = [item.truth for item in items if item.truth is not None]
        if self.of == "numbers":
            return float(np.mean(_numbers(truths)))
        flat = [t for truth in truths for t in (truth if isinstance(truth, tuple) else (truth,))]
        counts = Counter(map(str, flat))
        return max(self.labels, key=lambda label: (counts[label], -self.labels.index(label)))


def choose_metric(kind: Kind, labels: Sequence[str], asked: str | None) -> str:
    """Return the metric that is asked for, or the customary one.

    That is accuracy, Pearson's correlation, or F1 of entities where the tags mark some.

    Raises:
        ValueError: there is no such metric for this kind of task.
    """
    of = _of(kind)
    fitting = [name for name, metric in METRICS.items() if metric.of == of]
    if of == "classes" and len(labels) != 2:
        fitting.remove("f1")
    if of == "tags" and not metrics.marks_entities(labels):
        fitting.remove("entity_f1")
    if asked is None:
        return fitting[0]
    if asked not in fitting:
        raise ValueError(
            f"metric must be one of {', '.join(fitting)} for this {kind} task "
            f"with {len(labels)} labels, got {asked!r}"
        )
    return asked


def find_columns(
    table: Table, kind: Kind, texts: Sequence[str] = (), label: str | None = None
) -> Columns:
    """Check the columns that were named, and find those that were not by their customary names.

    Raises:
        ValueError: a named column does not exist, or nothing is found, with the columns that there
            are.
    """
    for name in (*texts, *([label] if label else ())):
        table.check(name)
    n = {"classify": (1,), "tag": (1,), "pairs": (2,), "regress": (1, 2)}[kind]
    if texts and len(texts) not in n:
        raise ValueError(
            f"{kind} reads {' or '.join(map(str, n))} columns of text, "
            f"got {len(texts)}: {listed(texts)}"
        )
    found = tuple(texts) or _find_texts(table, kind)
    return Columns(texts=found, label=label or _find_label(table, kind, found))


def find_texts(table: Table, kind: Kind, texts: Sequence[str]) -> tuple[str, ...]:
    """Find the columns of text of a file to be predicted: the training file's, or customary ones.

    Raises:
        ValueError: it has neither.
    """
    if all(name in table.columns for name in texts):
        return tuple(texts)
    return _find_texts(table, kind)


def _find_texts(table: Table, kind: Kind) -> tuple[str, ...]:
    by_name = {name.lower(): name for name in reversed(table.columns)}
    if kind in ("pairs", "regress"):
        for two in _TWO:
            if all(name in by_name for name in two):
                return tuple(by_name[name] for name in two)
    if kind == "pairs":
        raise ValueError(
            f"{table.path}: which two columns hold the texts? "
            f"None are called {' and '.join(_TWO[0])} or the like; name them "
            f"(columns: {listed(table.columns)})"
        )
    for name in _SENTENCES if kind == "tag" else _ONE:
        if name in by_name:
            return (by_name[name],)
    what = "words" if kind == "tag" else "text"
    raise ValueError(
        f"{table.path}: which column holds the {what}? None is called {what!r} or the like; "
        f"name it (columns: {listed(table.columns)})"
    )


def _find_label(table: Table, kind: Kind, texts: Sequence[str]) -> str:
    by_name = {name.lower(): name for name in reversed(table.columns) if name not in texts}
    customary = {"tag": _TAGS, "regress": _NUMBERS}.get(kind, _CLASSES)
    for name in customary:
        if name in by_name:
            return by_name[name]
    if kind == "tag" and table.columns[0] == WORDS and len(table.columns) > 1:
        return table.columns[-1]
    what = {"tag": "tags", "regress": "score"}.get(kind, "label")
    raise ValueError(
        f"{table.path}: which column holds the {what}? None is called {what!r} or the like; "
        f"name it (columns: {listed(table.columns)})"
    )


def items(
    table: Table,
    kind: Kind,
    texts: Sequence[str],
    label: str | None,
    errors: EncodingErrors = "strict",
) -> list[Item]:
    """Read the items of a file. An empty text is a text; a sentence without words is left out.

    Args:
        table: the file.
        kind: of the task.
        texts: columns.
        label: column; None: nothing is known of the answers.
        errors: what becomes of NULs and lone surrogates in a text.

    Raises:
        ValueError: a text is no text, a label is missing, or a number is none, with file and line.
    """
    columns = [table.column(name) for name in texts]
    truths = table.column(label) if label is not None else [None] * len(table)
    found: list[Item] = []
    for i, (values, truth) in enumerate(zip(zip(*columns, strict=True), truths, strict=True)):
        where = table.where(i)
        if kind == "tag":
            words = _words(values[0], texts[0], where, errors)
            tags = None if label is None else _tags_of(truth, label, where, len(words))
            if words:
                found.append(Item(texts=words, truth=tags, where=where))
            continue
        read = tuple(as_text(v, where, c, errors) for v, c in zip(values, texts, strict=True))
        known = None
        if label is not None:
            known = (
                _number(truth, label, where) if kind == "regress" else _label(truth, label, where)
            )
        found.append(Item(texts=read, truth=known, where=where))
    return found


def _words(value: object, column: str, where: str, errors: EncodingErrors) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{where}: {column!r} must be a list of words, got {named(value)}")
    return tuple(as_text(word, where, column, errors) for word in cast("list[object]", value))


def _tags_of(value: object, column: str, where: str, n: int) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{where}: {column!r} must be a list of tags, got {named(value)}")
    tags = tuple(_label(tag, column, where) for tag in cast("list[object]", value))
    if len(tags) != n:
        raise ValueError(f"{where}: {n} words, but {len(tags)} tags in {column!r}")
    return tags


def _label(value: object, column: str, where: str) -> str:
    """Write a label as text; a whole number is the same label whether a file writes 1 or 1.0."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int | float):
        return str(value)
    text = as_text(value, where, column, "strict").strip()
    if not text:
        raise ValueError(f"{where}: no label in column {column!r}")
    return text


def _number(value: object, column: str, where: str) -> float:
    try:
        number = float(cast("str | float", value))
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not abs(number) <= LARGEST:
        raise ValueError(
            f"{where}: {column!r} must be a number of at most {LARGEST:g}, got {named(value)}"
        )
    return number


def labels_of(found: Sequence[Item], where: object) -> tuple[str, ...]:
    """List the labels that occur: by value where all are whole numbers, else by the alphabet.

    Raises:
        ValueError: there is but one.
    """
    labels = {t for item in found for t in _labels_in(item)}
    if len(labels) < 2:
        only = f"only one label, {next(iter(labels))!r}" if labels else "no label"
        raise ValueError(f"{where}: {only} in {len(found)} rows; there is nothing to learn")
    if all(label.removeprefix("-").isdecimal() and label.isascii() for label in labels):
        return tuple(sorted(labels, key=lambda label: (int(label), label)))
    return tuple(sorted(labels))


def check_labels(found: Sequence[Item], labels: Sequence[str], column: str) -> None:
    """Check that all labels are known.

    Raises:
        ValueError: one is not; it is named, with file and line.
    """
    known = set(labels)
    for item in found:
        for label in _labels_in(item):
            if label not in known:
                raise ValueError(
                    f"{item.where}: label {label!r} in column {column!r} is none of those in the "
                    f"training file: {listed(labels)}"
                )


def _labels_in(item: Item) -> tuple[str, ...]:
    if isinstance(item.truth, tuple):
        return item.truth
    return (item.truth,) if isinstance(item.truth, str) else ()


def check_varies(found: Sequence[Item], where: object) -> None:
    """Check that numbers differ.

    Raises:
        ValueError: they do not.
    """
    numbers = {item.truth for item in found}
    if len(numbers) < 2:
        only = next(iter(numbers), None)
        raise ValueError(
            f"{where}: the number is {only} in all {len(found)} rows; there is nothing to learn"
        )  # fmt: skip


def split(
    found: Sequence[Item], share: float = 0.1, seed: int = 0
) -> tuple[list[Item], list[Item]]:
    """Take a part of the items away to choose by, the same share of each label, at random.

    A label that occurs once stays where it is learned from.

    Raises:
        ValueError: there are too few items.
    """
    rng = np.random.default_rng(seed)
    groups: dict[str, list[int]] = {}
    for i, item in enumerate(found):
        groups.setdefault(item.truth if isinstance(item.truth, str) else "", []).append(i)
    taken: set[int] = set()
    for _, group in sorted(groups.items()):
        n = max(round(share * len(group)), 1) if len(group) > 1 else 0
        taken |= {group[i] for i in rng.permutation(len(group))[:n]}
    if not taken or len(taken) == len(found):
        raise ValueError(
            f"{len(found)} rows are too few to set some aside to choose the best model by; "
            "give a dev file"
        )
    kept = [item for i, item in enumerate(found) if i not in taken]
    return kept, [item for i, item in enumerate(found) if i in taken]


def digest(found: Iterable[Item]) -> str:
    """Compute a hash of what items say, by which a resumed run knows its data again."""
    total = hashlib.sha256()
    for item in found:
        total.update(json.dumps([item.texts, item.truth]).encode() + b"\n")
    return total.hexdigest()


def _of(kind: Kind) -> metrics.What:
    return "numbers" if kind == "regress" else "tags" if kind == "tag" else "classes"


def _numbers(values: Sequence[Truth]) -> np.ndarray:
    return np.array([float(cast("float", v)) for v in values], np.float64)


def _tags(values: Sequence[Truth]) -> list[tuple[str, ...]]:
    return [cast("tuple[str, ...]", v) for v in values]
