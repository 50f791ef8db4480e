"""TaskReader: parses the rows of files, and inputs to be predicted, for a kind of task."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from unmask.tasks.readers import columns as column_values
from unmask.tasks.readers.tables import Table
from unmask.tasks.task import Label, Task, TaskColumns, TaskExample
from unmask.text.formats.records import describe_value
from unmask.text.lines import EncodingErrors


@runtime_checkable
class TaskReader(Protocol):
    """Reader of the files and inputs of a kind of task."""

    @property
    def word_per_line(self) -> bool:
        """Whether a row is a sentence, with one word per line in text files."""
        ...

    def find_columns(
        self, table: Table, texts: Sequence[str], label: str | None, choices: Sequence[str]
    ) -> TaskColumns:
        """Check the given columns, and find the others by usual names.

        Raises:
            ValueError: a column does not exist, or none is found; lists the columns.
        """
        ...

    def find_text_columns(self, table: Table, columns: TaskColumns) -> TaskColumns:
        """Find the columns of a file to be predicted: those of the training file, or usual ones.

        Raises:
            ValueError: the file has neither.
        """
        ...

    def read_examples(
        self,
        table: Table,
        columns: TaskColumns,
        encoding_errors: EncodingErrors,
        *,
        has_labels: bool,
        options: Mapping[str, Any],
    ) -> list[TaskExample]:
        """Read the items of a file.

        Args:
            table: the file.
            columns: the result of `find_columns` or `find_text_columns`.
            encoding_errors: treatment of NULs and lone surrogates.
            has_labels: read the answers, too.
            options: options of the task, some of which affect reading.

        Raises:
            ValueError: a value is invalid, with file and line.
        """
        ...

    def parse_input(self, task: Task, text: Any, location: str) -> TaskExample:
        """Parse an input to be predicted.

        Raises:
            ValueError: it is invalid for this task.
        """
        ...

    def format_input(self, example: TaskExample) -> Any:
        """Return an item in the form of `parse_input`'s argument."""
        ...

    def parse_line(self, task: Task, line: str) -> Any:
        """Return a line of text in the form of `parse_input`'s argument."""
        ...


@runtime_checkable
class NamesColumnsInOptions(Protocol):
    """A reader with some columns named by the options of the task."""

    def columns_in_options(self, options: Mapping[str, Any]) -> tuple[tuple[str, ...], str | None]:
        """Return the named columns of text, if any, and the target column.

        Raises:
            ValueError: an option is invalid.
        """
        ...

    def find_target_column(
        self, table: Table, texts: Sequence[str], options: Mapping[str, Any]
    ) -> str | None:
        """Find the target column by names that depend on the options; None: by the usual ones.

        Raises:
            ValueError: there is none, with the columns that there are.
        """
        ...


@runtime_checkable
class InfersOptionsFromTable(Protocol):
    """A reader that infers options from the training file for all files."""

    def infer_options_from_table(
        self,
        table: Table,
        columns: TaskColumns,
        encoding_errors: EncodingErrors,
        options: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Return the options, completed from the training file.

        Raises:
            ValueError: the training file is ambiguous.
        """
        ...


ReadLabels = Callable[[Table, TaskColumns, EncodingErrors, Mapping[str, Any]], Sequence[Label]]
"""Reads the label of each row, given the options of the task."""


def label_per_row(parse: Callable[[object, str, str], Label]) -> ReadLabels:
    """Return a function that parses the label column row by row, with file and line."""

    def labels(
        table: Table, columns: TaskColumns, errors: EncodingErrors, options: Mapping[str, Any]
    ) -> list[Label]:
        values = enumerate(table.column(columns.label))
        return [parse(value, columns.label, table.location(i)) for i, value in values]

    return labels


READ_LABELS = label_per_row(column_values.parse_label)


@dataclass(frozen=True, kw_only=True)
class TextReader:
    """Reads rows of texts and their labels or targets. Empty texts are valid."""

    task_kind: str
    """Kind of task, for messages."""
    allowed_text_counts: Sequence[int] | None
    """Allowed numbers of text columns. None: any."""
    find_default_columns: Callable[[Table], tuple[str, ...]]
    """Finds the text columns if none are given."""
    label_column_names: Sequence[str] = column_values.LABEL_COLUMNS
    """Usual names of the label column."""
    label_purpose: str = "label"
    """Contents of the label column, for messages."""
    read_labels: ReadLabels = READ_LABELS
    word_per_line: bool = False

    def find_columns(
        self, table: Table, texts: Sequence[str], label: str | None, choices: Sequence[str]
    ) -> TaskColumns:
        """Find the text columns and the label column."""
        refuse_choices(choices, self.task_kind)
        counts = (
            range(len(table.columns) + 1)
            if self.allowed_text_counts is None
            else self.allowed_text_counts
        )
        column_values.check_columns(table, texts, label, counts, self.task_kind)
        text_columns = tuple(texts) or self.find_default_columns(table)
        label = label or column_values.find_column(
            table,
            self.label_column_names,
            self.label_purpose,
            excluded=text_columns,
            option="label",
        )
        return TaskColumns(texts=text_columns, label=label)

    def find_text_columns(self, table: Table, columns: TaskColumns) -> TaskColumns:
        """Find the text columns."""
        if columns.texts and all(map(table.has_column, columns.texts)):
            return columns
        find = self.find_default_columns if columns.texts else find_text_or_pair
        return replace(columns, texts=find(table))

    def read_examples(
        self,
        table: Table,
        columns: TaskColumns,
        encoding_errors: EncodingErrors,
        *,
        has_labels: bool,
        options: Mapping[str, Any],
    ) -> list[TaskExample]:
        """Read texts and their labels."""
        texts = column_values.read_texts(table, columns.texts, encoding_errors)
        labels = (
            self.read_labels(table, columns, encoding_errors, options)
            if has_labels
            else [None] * len(texts)
        )
        return [
            TaskExample(texts=t, label=label, location=table.location(i))
            for i, (t, label) in enumerate(zip(texts, labels, strict=True))
        ]

    def parse_input(self, task: Task, text: Any, location: str) -> TaskExample:
        """Parse a text, or one text per column; one or two if the columns are unknown.

        Raises:
            ValueError: it is neither.
        """
        texts = (text,) if isinstance(text, str) else tuple(text) if _is_list(text) else ()
        n = len(task.columns.texts) or (1 if isinstance(text, str) else 2)
        fits = isinstance(text, str) if n == 1 else not isinstance(text, str) and len(texts) == n
        if not fits or not all(isinstance(t, str) for t in texts):
            expected = {1: "a text", 2: "a pair of texts"}.get(n, f"{n} texts")
            tabs = " (in a line, separated by tabs)" if n > 1 else ""
            raise ValueError(f"{location} must be {expected}{tabs}, got {describe_value(text)}")
        return TaskExample(texts=texts, location=location)

    def format_input(self, example: TaskExample) -> Any:
        """Return a text, or several."""
        return example.texts[0] if len(example.texts) == 1 else example.texts

    def parse_line(self, task: Task, line: str) -> Any:
        """Parse a text, or several separated by tabs."""
        alone = len(task.columns.texts) == 1 or (not task.columns.texts and "\t" not in line)
        return line if alone else line.split("\t")


def find_text_column(table: Table) -> tuple[str, ...]:
    """Find a column of text.

    Raises:
        ValueError: there is none, with a list of the columns; or there are two that form a pair.
    """
    try:
        return (column_values.find_column(table, column_values.TEXT_COLUMNS, "text"),)
    except ValueError:
        if (two := column_values.find_column_pair(table, column_values.TEXT_PAIR_COLUMNS)) is None:
            raise
        raise ValueError(
            f"{table.path}: {two[0]!r} and {two[1]!r} are a pair of texts: use task = pairs, "
            "or name one by text (--text)"
        ) from None


def find_text_pair(table: Table) -> tuple[str, ...]:
    """Find two columns of text.

    Raises:
        ValueError: there are none, with a list of the columns.
    """
    two = column_values.find_column_pair(table, column_values.TEXT_PAIR_COLUMNS)
    if two is None:
        raise ValueError(
            f"{table.path}: which two columns hold the texts? "
            f"None are called {' and '.join(column_values.TEXT_PAIR_COLUMNS[0])} or the like; "
            f"{table.column_hint('text, given twice')}"
        )
    return two


def find_text_or_pair(table: Table) -> tuple[str, ...]:
    """Find two columns of text, or one."""
    return column_values.find_column_pair(
        table, column_values.TEXT_PAIR_COLUMNS
    ) or find_text_column(table)


def refuse_choices(choices: Sequence[str], task_kind: str) -> None:
    """Reject columns of options.

    Raises:
        ValueError: some are given.
    """
    if choices:
        raise ValueError(f"{task_kind} has no options to choose from; choices need task = choose")


def check_words(text: Any, location: str) -> tuple[str, ...]:
    """Check the words of a sentence.

    Raises:
        ValueError: it is not a list of words.
    """
    if not _is_list(text) or not all(isinstance(word, str) for word in text):
        raise ValueError(f"{location} must be a list of words, got {describe_value(text)}")
    return tuple(text)


def check_record(text: Any, keys: Sequence[str], location: str) -> Mapping[str, Any]:
    """Check a table with some keys: {"question": ..., "context": ...}.

    Raises:
        ValueError: it is not a table or lacks a key.
    """
    if not isinstance(text, Mapping) or any(key not in text for key in keys):
        raise ValueError(
            f"{location} must be a table with {', '.join(keys)}, got {describe_value(text)}"
        )
    return text


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)
