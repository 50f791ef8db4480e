"""TaskFiles: what the rows of a file, or what is given to be predicted, say to a kind of task."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from unmask.tasks.readers import column_values
from unmask.tasks.readers.tables import Table
from unmask.tasks.task import Columns, Item, Task, Truth
from unmask.text.lines import EncodingErrors
from unmask.text.records import named


@runtime_checkable
class TaskFiles(Protocol):
    """What a kind of task reads."""

    @property
    def tagged(self) -> bool:
        """Whether a row of its files is a sentence, a word a line in text files."""
        ...

    def columns(
        self, table: Table, texts: Sequence[str], label: str | None, choices: Sequence[str]
    ) -> Columns:
        """Check the columns that were named, and find those that were not by customary names.

        Raises:
            ValueError: a named column does not exist, or nothing is found, with the columns that
                there are.
        """
        ...

    def texts(self, table: Table, columns: Columns) -> Columns:
        """Find the columns of a file to be predicted: the training file's, or customary ones.

        Raises:
            ValueError: it has neither.
        """
        ...

    def items(
        self,
        table: Table,
        columns: Columns,
        errors: EncodingErrors,
        *,
        known: bool,
        options: Mapping[str, Any],
    ) -> list[Item]:
        """Read the items of a file.

        Args:
            table: the file.
            columns: as `columns` or `texts` found them.
            errors: what becomes of NULs and lone surrogates.
            known: read the answers, too.
            options: those of the task, some of which say how a file is read.

        Raises:
            ValueError: a value is not what it should be, with file and line.
        """
        ...

    def given(self, task: Task, text: Any, where: str) -> Item:
        """Check something that is to be predicted.

        Raises:
            ValueError: it is not what this task takes.
        """
        ...

    def plain(self, item: Item) -> Any:
        """Return what `given` takes for an item."""
        ...

    def line(self, task: Task, line: str) -> Any:
        """Return what `given` takes for a line of text."""
        ...


@runtime_checkable
class Naming(Protocol):
    """Files of which some columns are named by the options of the task."""

    def named(self, options: Mapping[str, Any]) -> tuple[tuple[str, ...], str | None]:
        """Return the columns of text, none where none are named, and that of what is true.

        Raises:
            ValueError: an option is not what it should be.
        """
        ...

    def target(self, table: Table, texts: Sequence[str], options: Mapping[str, Any]) -> str | None:
        """Find the column of what is true by names that depend on the options; None: by others.

        Raises:
            ValueError: there is none, with the columns that there are.
        """
        ...


@runtime_checkable
class Deciding(Protocol):
    """Files of which the training file decides how the others are read."""

    def decided(
        self, table: Table, columns: Columns, errors: EncodingErrors, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the options with what the training file decides where nothing was said.

        Raises:
            ValueError: it leaves that open.
        """
        ...


Truths = Callable[[Table, Columns, EncodingErrors, Mapping[str, Any]], Sequence[Truth]]
"""Reads what is true of each row, by the options of the task."""


def each(read: Callable[[object, str, str], Truth]) -> Truths:
    """Read what is true of each row from its value in the column of labels, with file and line."""

    def truths(
        table: Table, columns: Columns, errors: EncodingErrors, options: Mapping[str, Any]
    ) -> list[Truth]:
        values = enumerate(table.column(columns.label))
        return [read(value, columns.label, table.where(i)) for i, value in values]

    return truths


LABELS = each(column_values.label)


@dataclass(frozen=True, kw_only=True)
class TextRows:
    """Rows of texts and what is true of them: a label, if nothing else. An empty text is a text."""

    kind: str
    """Of task, for messages."""
    counts: Sequence[int] | None
    """How many columns of text can be named. None: any number."""
    find: Callable[[Table], tuple[str, ...]]
    """Finds columns of text that are not named."""
    customary: Sequence[str] = column_values.CLASSES
    """Names of the column of what is true."""
    what: str = "label"
    """Such a column holds, for messages."""
    truths: Truths = LABELS
    tagged: bool = False

    def columns(
        self, table: Table, texts: Sequence[str], label: str | None, choices: Sequence[str]
    ) -> Columns:
        """Find the columns of text, and the one of what is true of them."""
        refuse_choices(choices, self.kind)
        counts = range(len(table.columns) + 1) if self.counts is None else self.counts
        column_values.check(table, texts, label, counts, self.kind)
        found = tuple(texts) or self.find(table)
        label = label or column_values.find_one(
            table, self.customary, self.what, but=found, option="label"
        )
        return Columns(texts=found, label=label)

    def texts(self, table: Table, columns: Columns) -> Columns:
        """Find the columns of text."""
        if columns.texts and all(map(table.has, columns.texts)):
            return columns
        find = self.find if columns.texts else find_text_or_pair
        return replace(columns, texts=find(table))

    def items(
        self,
        table: Table,
        columns: Columns,
        errors: EncodingErrors,
        *,
        known: bool,
        options: Mapping[str, Any],
    ) -> list[Item]:
        """Read texts, and what is true of them."""
        texts = column_values.texts(table, columns.texts, errors)
        truths = self.truths(table, columns, errors, options) if known else [None] * len(texts)
        return [
            Item(texts=t, truth=truth, where=table.where(i))
            for i, (t, truth) in enumerate(zip(texts, truths, strict=True))
        ]

    def given(self, task: Task, text: Any, where: str) -> Item:
        """Take a text, or as many as there are columns; one or two, where these are not known.

        Raises:
            ValueError: it is neither.
        """
        read = (text,) if isinstance(text, str) else tuple(text) if _is_list(text) else ()
        n = len(task.columns.texts) or (1 if isinstance(text, str) else 2)
        fits = isinstance(text, str) if n == 1 else not isinstance(text, str) and len(read) == n
        if not fits or not all(isinstance(t, str) for t in read):
            wanted = {1: "a text", 2: "a pair of texts"}.get(n, f"{n} texts")
            tabs = " (in a line, with tabs between)" if n > 1 else ""
            raise ValueError(f"{where} must be {wanted}{tabs}, got {named(text)}")
        return Item(texts=read, where=where)

    def plain(self, item: Item) -> Any:
        """Return a text, or several."""
        return item.texts[0] if len(item.texts) == 1 else item.texts

    def line(self, task: Task, line: str) -> Any:
        """Read a text, or several with tabs between."""
        alone = len(task.columns.texts) == 1 or (not task.columns.texts and "\t" not in line)
        return line if alone else line.split("\t")


def find_text(table: Table) -> tuple[str, ...]:
    """Find a column of text.

    Raises:
        ValueError: there is none, with the columns that there are; or there are two that belong
            together.
    """
    try:
        return (column_values.find_one(table, column_values.ONE_TEXT, "text"),)
    except ValueError:
        if (two := column_values.find_two(table, column_values.TWO_TEXTS)) is None:
            raise
        raise ValueError(
            f"{table.path}: {two[0]!r} and {two[1]!r} are two texts, which task = pairs reads "
            "together; for one of them name it by text (--text)"
        ) from None


def find_pair(table: Table) -> tuple[str, ...]:
    """Find two columns of text.

    Raises:
        ValueError: there are none, with the columns that there are.
    """
    two = column_values.find_two(table, column_values.TWO_TEXTS)
    if two is None:
        raise ValueError(
            f"{table.path}: which two columns hold the texts? "
            f"None are called {' and '.join(column_values.TWO_TEXTS[0])} or the like; "
            f"{table.named_by('text, given twice')}"
        )
    return two


def find_text_or_pair(table: Table) -> tuple[str, ...]:
    """Find two columns of text, or one."""
    return column_values.find_two(table, column_values.TWO_TEXTS) or find_text(table)


def refuse_choices(choices: Sequence[str], kind: str) -> None:
    """Refuse columns of options.

    Raises:
        ValueError: some are named.
    """
    if choices:
        raise ValueError(f"{kind} has no options to choose from; choices are of `choose`")


def as_words(text: Any, where: str) -> tuple[str, ...]:
    """Check the words of a sentence.

    Raises:
        ValueError: they are none.
    """
    if not _is_list(text) or not all(isinstance(word, str) for word in text):
        raise ValueError(f"{where} must be a list of words, got {named(text)}")
    return tuple(text)


def as_record(text: Any, keys: Sequence[str], where: str) -> Mapping[str, Any]:
    """Check a table with some keys: {"question": ..., "context": ...}.

    Raises:
        ValueError: it is none, or lacks one.
    """
    if not isinstance(text, Mapping) or any(key not in text for key in keys):
        raise ValueError(f"{where} must be a table with {', '.join(keys)}, got {named(text)}")
    return text


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)
