"""A label for each word of a sentence."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from unmask.config import from_dict
from unmask.finetuning.ask import TOKEN_LABEL, Around, Ask, in_words
from unmask.finetuning.by_word import ByWord
from unmask.finetuning.kinds.classify import most_frequent
from unmask.heads.model import HeadSpec
from unmask.heads.recurrent import RecurrentTags
from unmask.published.card import Published, token_labels
from unmask.tasks.metrics.tagging import SCHEMES, marks_entities, tagging_metrics
from unmask.tasks.readers import column_values
from unmask.tasks.readers.conll import WORDS
from unmask.tasks.readers.tables import Table
from unmask.tasks.readers.task_files import TaskFiles, as_words, refuse_choices
from unmask.tasks.tag_schemes import Scheme, impossible, scheme_of, unread
from unmask.tasks.task import Columns, Item, Task, Truth
from unmask.text.lines import EncodingErrors, parts
from unmask.text.records import listed
from unmask.tokens.tokenizer import Tokenizer

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TagOptions:
    """Which head labels words, and how labels that mark entities are written."""

    head: Literal["linear", "recurrent"] = "linear"
    """Each word by itself (Devlin et al. 2019, section 4.3), or an LSTM and a CRF over the words of
    a sentence; see `RecurrentTags`."""
    width: int = 200
    """Of the recurrent head's states in each direction."""
    crf: bool = True
    """Whether the recurrent head has a CRF."""
    repair: bool = True
    """Whether entities are said as their scheme demands, the same entities in any case."""
    scheme: Scheme | None = None
    """How labels mark entities. None: as in the training file; if that marks none, nothing is
    repaired, and no label is impossible behind another."""

    def __post_init__(self) -> None:
        """Check what the types do not say."""
        if self.width < 1:
            raise ValueError(f"options.width must be at least 1, got {self.width}")
        if self.head == "linear" and (self.width != TagOptions.width or not self.crf):
            raise ValueError("options.width and options.crf are of options.head = 'recurrent'")


@dataclass(frozen=True)
class SentenceRows:
    """Sentences, and the tags of their words."""

    tagged: bool = True

    def columns(
        self, table: Table, texts: Sequence[str], label: str | None, choices: Sequence[str]
    ) -> Columns:
        """Find a column of words, and one of tags; of CoNLL files without names the last."""
        refuse_choices(choices, "tag")
        column_values.check(table, texts, label, (1,), "tag")
        found = tuple(texts) or (column_values.find_one(table, column_values.SENTENCES, "words"),)
        if label is None and table.columns[0] == WORDS and len(table.columns) > 1:
            known = [name for name in table.columns if name.lower() in column_values.TAGS]
            label = known[0] if known else table.columns[-1]
        label = label or column_values.find_one(
            table, column_values.TAGS, "tags", but=found, option="label"
        )
        return Columns(texts=found, label=label)

    def texts(self, table: Table, columns: Columns) -> Columns:
        """Find the column of words."""
        if columns.texts[0] in table.columns:
            return columns
        return replace(
            columns, texts=(column_values.find_one(table, column_values.SENTENCES, "words"),)
        )

    def items(
        self,
        table: Table,
        columns: Columns,
        errors: EncodingErrors,
        *,
        known: bool,
        options: Mapping[str, Any],
    ) -> list[Item]:
        """Read sentences and their tags. A sentence without words is left out."""
        values = table.column(columns.texts[0])
        truths = table.column(columns.label) if known else [None] * len(values)
        found: list[Item] = []
        for i, (value, truth) in enumerate(zip(values, truths, strict=True)):
            where = table.where(i)
            words = column_values.words(value, columns.texts[0], where, errors)
            tags = column_values.tags(truth, columns.label, where, len(words)) if known else None
            if words:
                found.append(Item(texts=words, truth=tags, where=where))
        return found

    def given(self, task: Task, text: Any, where: str) -> Item:
        """Take a list of words."""
        return Item(texts=as_words(text, where), where=where)

    def plain(self, item: Item) -> Any:
        """Return a list of words."""
        return list(item.texts)

    def line(self, task: Task, line: str) -> Any:
        """Read words between spaces (or tabs); a no-break space is of a word."""
        return parts(line)


@dataclass(frozen=True)
class Tag:
    """A label for each word."""

    files: TaskFiles = SentenceRows()
    in_parts: bool = True
    options: type = TagOptions
    one_label: bool = False

    def labels(self, items: Sequence[Item], where: object) -> tuple[str, ...]:
        """List the tags that occur."""
        return column_values.labels_of(items, where)

    def check(self, items: Sequence[Item], labels: Sequence[str], column: str) -> None:
        """Check that all tags are known; warn of some that only look as if they marked entities."""
        column_values.check_labels(items, labels, column)
        if (odd := unread(labels)) is not None:
            _log.warning(
                "labels look as if they marked entities, but %r is of no scheme that is read (%s, "
                "the letter before the type): there is no entity score",
                odd, ", ".join(SCHEMES),
            )  # fmt: skip

    def informed(
        self, items: Sequence[Item], labels: Sequence[str], options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Find by which scheme the training file marks entities, if it does.

        Raises:
            ValueError: a scheme was named, and the labels mark no entities.
        """
        found = scheme_of(labels, _tags([item.truth for item in items if item.truth is not None]))
        said = _options(options).scheme
        if said is not None and found is None:
            raise ValueError(
                f"options.scheme = {said!r} is of labels that mark entities: 'O', and "
                f"{', '.join(SCHEMES[said])}, each with a hyphen and a type; got {listed(labels)}"
            )
        return {**options, "scheme": said or found}

    def metrics(self, task: Task) -> tuple[str, ...]:
        """F1 of entities where the tags mark some, and the share of right words."""
        marked = marks_entities(task.labels)
        return (*(("entity_f1",) if marked else ()), "token_accuracy")

    def compute_metrics(
        self, task: Task, truth: Sequence[Truth], said: Sequence[Truth]
    ) -> dict[str, float]:
        """Compute the figures of tags."""
        return tagging_metrics(_tags(truth), _tags(said), task.labels)

    def usual(self, task: Task, items: Sequence[Item]) -> Truth:
        """Return the most frequent tag, which `results.chance` gives to every word."""
        return most_frequent(
            task.labels, (t for item in items for t in column_values.labels_in(item))
        )

    def settled(self, task: Task, card: Published, items: Sequence[Item]) -> Task:
        """Nothing is left to settle."""
        return task

    def heads(self, task: Task, card: Published) -> dict[str, HeadSpec]:
        """A head on each token, or on all words."""
        if in_words(card):
            raise ValueError(
                f"{card.name} says its answers in words and cannot label each word; "
                "tagging needs an encoder, a decoder, BART or mBART"
            )
        options, n = _options(task.options), max(len(task.labels), 1)
        if options.head == "linear":
            return {TOKEN_LABEL: replace(token_labels(card), n_labels=n)}
        never = impossible(task.labels, options.scheme) if options.scheme is not None else ()
        spec = RecurrentTags(n_labels=n, width=options.width, crf=options.crf, impossible=never)
        return {TOKEN_LABEL: spec}

    def ask(self, task: Task, card: Published, tokenizer: Tokenizer) -> Ask:
        """At one token of each word."""
        around = Around.of(tokenizer.special, card.architecture, task.length)
        options = _options(task.options)
        scheme = options.scheme if options.repair else None
        return ByWord(task=task, tokenizer=tokenizer, around=around, scheme=scheme)


def _options(given: Mapping[str, Any]) -> TagOptions:
    return from_dict(TagOptions, dict(given), "options")


def _tags(values: Sequence[Truth]) -> list[tuple[str, ...]]:
    return [cast("tuple[str, ...]", v) for v in values]


TAG = Tag()
