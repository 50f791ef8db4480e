"""TaskReader: what the rows of a file, or what is given to be predicted, say to a kind of task."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from unmask.tasks.readers import columns as column_values
from unmask.tasks.readers.tables import Table
from unmask.tasks.task import Label, Task, TaskColumns, TaskExample
from unmask.text.lines import EncodingErrors
from unmask.text.records import describe_value


@runtime_checkable
class TaskReader(Protocol):
    """What a kind of task reads."""

    @property
    def word_per_line(self) -> bool:
        """Whether a row of its files is a sentence, a word a line in text files."""
        ...

    def find_columns(
        self, table: Table, texts: Sequence[str], label: str | None, choices: Sequence[str]
    ) -> TaskColumns:
        """Check the columns that were named, and find those that were not by customary names.

        Raises:
            ValueError: a named column does not exist, or nothing is found, with the columns that
                there are.
        """
        ...

    def find_text_columns(self, table: Table, columns: TaskColumns) -> TaskColumns:
        """Find the columns of a file to be predicted: the training file's, or customary ones.

        Raises:
            ValueError: it has neither.
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
            columns: as `find_columns` or `find_text_columns` found them.
            encoding_errors: what becomes of NULs and lone surrogates.
            has_labels: read the answers, too.
            options: those of the task, some of which say how a file is read.

        Raises:
            ValueError: a value is invalid, with file and line.
        """
        ...

    def parse_input(self, task: Task, text: Any, where: str) -> TaskExample:
        """Check something that is to be predicted.

        Raises:
            ValueError: it is not what this task takes.
        """
        ...

    def format_input(self, example: TaskExample) -> Any:
        """Return what `parse_input` takes for an item."""
        ...

    def parse_line(self, task: Task, line: str) -> Any:
        """Return what `parse_input` takes for a line of text."""
        ...


@runtime_checkable
class NamesColumnsInOptions(Protocol):
    """Files of which some columns are named by the options of the task."""

    def columns_in_options(self, options: Mapping[str, Any]) -> tuple[tuple[str, ...], str | None]:
        """Return the columns of text, none where none are named, and that of what is true.

        Raises:
            ValueError: an option is invalid.
        """
        ...

    def find_target_column(
        self, table: Table, texts: Sequence[str], options: Mapping[str, Any]
    ) -> str | None:
        """Find the column of what is true by names that depend on the options; None: by others.

        Raises:
            ValueError: there is none, with the columns that there are.
        """
        ...


@runtime_checkable
class InfersOptionsFromTable(Protocol):
    """Files of which the training file decides how the others are read."""

    def infer_options_from_table(
        self,
        table: Table,
        columns: TaskColumns,
        encoding_errors: EncodingErrors,
        options: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Return the options with what the training file decides where nothing was said.

        Raises:
            ValueError: it leaves that open.
        """
        ...


ReadLabels = Callable[[Table, TaskColumns, EncodingErrors, Mapping[str, Any]], Sequence[Label]]
"""Reads what is true of each row, by the options of the task."""


def label_per_row(parse: Callable[[object, str, str], Label]) -> ReadLabels:
    """Read what is true of each row from its value in the column of labels, with file and line."""

    def truths(
        table: Table, columns: TaskColumns, errors: EncodingErrors, options: Mapping[str, Any]
    ) -> list[Label]:
        values = enumerate(table.column(columns.label))
        return [parse(value, columns.label, table.location(i)) for i, value in values]

    return truths


READ_LABELS = label_per_row(column_values.parse_label)


@dataclass(frozen=True, kw_only=True)
class TextReader:
    """Rows of texts and what is true of them: a label, if nothing else. An empty text is a text."""

    task_kind: str
    """Of task, for messages."""
    allowed_text_counts: Sequence[int] | None
    """How many columns of text can be named. None: any number."""
    find_default_columns: Callable[[Table], tuple[str, ...]]
    """Finds columns of text that are not named."""
    label_column_names: Sequence[str] = column_values.LABEL_COLUMNS
    """Names of the column of what is true."""
    label_purpose: str = "label"
    """Such a column holds, for messages."""
    read_labels: ReadLabels = READ_LABELS
    word_per_line: bool = False

    def find_columns(
        self, table: Table, texts: Sequence[str], label: str | None, choices: Sequence[str]
    ) -> TaskColumns:
        """Find the columns of text, and the one of what is true of them."""
        refuse_choices(choices, self.task_kind)
        counts = (
            range(len(table.columns) + 1)
            if self.allowed_text_counts is None
            else self.allowed_text_counts
        )
        column_values.check_columns(table, texts, label, counts, self.task_kind)
        found = tuple(texts) or self.find_default_columns(table)
        label = label or column_values.find_column(
            table, self.label_column_names, self.label_purpose, excluded=found, option="label"
        )
        return TaskColumns(texts=found, label=label)

    def find_text_columns(self, table: Table, columns: TaskColumns) -> TaskColumns:
        """Find the columns of text."""
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
        """Read texts, and what is true of them."""
        texts = column_values.read_texts(table, columns.texts, encoding_errors)
        truths = (
            self.read_labels(table, columns, encoding_errors, options)
            if has_labels
            else [None] * len(texts)
        )
        return [
            TaskExample(texts=t, label=truth, location=table.location(i))
            for i, (t, truth) in enumerate(zip(texts, truths, strict=True))
        ]

    def parse_input(self, task: Task, text: Any, where: str) -> TaskExample:
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
            raise ValueError(f"{where} must be {wanted}{tabs}, got {describe_value(text)}")
        return TaskExample(texts=read, location=where)

    def format_input(self, example: TaskExample) -> Any:
        """Return a text, or several."""
        return example.texts[0] if len(example.texts) == 1 else example.texts

    def parse_line(self, task: Task, line: str) -> Any:
        """Read a text, or several with tabs between."""
        alone = len(task.columns.texts) == 1 or (not task.columns.texts and "\t" not in line)
        return line if alone else line.split("\t")


def find_text_column(table: Table) -> tuple[str, ...]:
    """Find a column of text.

    Raises:
        ValueError: there is none, with the columns that there are; or there are two that belong
            together.
    """
    try:
        return (column_values.find_column(table, column_values.TEXT_COLUMNS, "text"),)
    except ValueError:
        if (two := column_values.find_column_pair(table, column_values.TEXT_PAIR_COLUMNS)) is None:
            raise
        raise ValueError(
            f"{table.path}: {two[0]!r} and {two[1]!r} are two texts, which task = pairs reads "
            "together; for one of them name it by text (--text)"
        ) from None


def find_text_pair(table: Table) -> tuple[str, ...]:
    """Find two columns of text.

    Raises:
        ValueError: there are none, with the columns that there are.
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
    """Refuse columns of options.

    Raises:
        ValueError: some are named.
    """
    if choices:
        raise ValueError(f"{task_kind} has no options to choose from; choices are of `choose`")


def check_words(text: Any, where: str) -> tuple[str, ...]:
    """Check the words of a sentence.

    Raises:
        ValueError: they are none.
    """
    if not _is_list(text) or not all(isinstance(word, str) for word in text):
        raise ValueError(f"{where} must be a list of words, got {describe_value(text)}")
    return tuple(text)


def check_record(text: Any, keys: Sequence[str], where: str) -> Mapping[str, Any]:
    """Check a table with some keys: {"question": ..., "context": ...}.

    Raises:
        ValueError: it is none, or lacks one.
    """
    if not isinstance(text, Mapping) or any(key not in text for key in keys):
        raise ValueError(
            f"{where} must be a table with {', '.join(keys)}, got {describe_value(text)}"
        )
    return text


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)
