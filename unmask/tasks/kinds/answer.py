"""Extractive question answering: SQuAD.

Rajpurkar et al. 2016, arXiv:1606.05250; with unanswerable questions, Rajpurkar et al. 2018,
arXiv:1806.03822.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from unmask.config import from_dict
from unmask.tasks.metrics.question_answering import answer_metrics
from unmask.tasks.readers import columns as column_values
from unmask.tasks.readers.squad import parse_answers
from unmask.tasks.readers.tables import Table
from unmask.tasks.readers.task_reader import TaskReader, check_record, refuse_choices
from unmask.tasks.task import Label, Task, TaskColumns, TaskExample
from unmask.tasks.task_kind import FormulationName, TaskWording
from unmask.text.formats.records import check_text, describe_value
from unmask.text.lines import EncodingErrors

QUESTION, CONTEXT = "question", "context"
"""Keys of an input to be predicted."""
_QUESTION_COLUMNS = (QUESTION, "query")
_CONTEXT_COLUMNS = (CONTEXT, "passage", "paragraph", "document", "text")
_ANSWER_COLUMNS = ("answers", "answer", "label")
_ID_COLUMN, _IMPOSSIBLE_COLUMN = "id", "is_impossible"
_SHOWN_CHARACTERS = 60  # characters of a context


@dataclass(frozen=True, kw_only=True)
class QuestionAnsweringOptions:
    """Windows over long contexts and the choice of answer spans."""

    window_overlap: int = 128
    """Overlap of the windows of a long context, in tokens; at most half a window."""
    max_answer_length: int = 30
    """Maximum length of an answer in tokens (released code of BERT)."""
    n_best: int = 20
    """Number of candidate spans per question (released code of BERT)."""
    allow_no_answer: bool | None = None
    """Whether a question may have no answer. None: if one in the training file has none."""
    no_answer_threshold: float | None = None
    """Margin by which the no-answer score must exceed that of the best span. None: the best on the
    dev file; 0 until that is known."""

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        for name, least in (("window_overlap", 0), ("max_answer_length", 1), ("n_best", 1)):
            value = getattr(self, name)
            if value < least:
                raise ValueError(f"options.{name} must be at least {least}, got {value}")


@dataclass(frozen=True)
class QuestionReader:
    """Reads questions, contexts, and answers with their positions."""

    word_per_line: bool = False

    def find_columns(
        self, table: Table, texts: Sequence[str], label: str | None, choices: Sequence[str]
    ) -> TaskColumns:
        """Find the columns of questions, contexts, and answers with their positions."""
        refuse_choices(choices, "answer")
        column_values.check_columns(table, texts, label, (2,), "answer")
        text_columns = tuple(texts) or self._find(table)
        label = label or column_values.find_column(
            table, _ANSWER_COLUMNS, "answers", excluded=text_columns, option="label"
        )
        return TaskColumns(texts=text_columns, label=label)

    def find_text_columns(self, table: Table, columns: TaskColumns) -> TaskColumns:
        """Find the columns of questions and contexts."""
        if all(name in table.columns for name in columns.texts):
            return columns
        return replace(columns, texts=self._find(table))

    def _find(self, table: Table) -> tuple[str, ...]:
        question = column_values.find_column(table, _QUESTION_COLUMNS, QUESTION)
        return question, column_values.find_column(
            table, _CONTEXT_COLUMNS, CONTEXT, excluded=(question,)
        )

    def read_examples(
        self,
        table: Table,
        columns: TaskColumns,
        encoding_errors: EncodingErrors,
        *,
        has_labels: bool,
        options: Mapping[str, Any],
    ) -> list[TaskExample]:
        """Read questions, contexts and answers; an empty list means there is no answer.

        Raises:
            ValueError: an answer is not at its position, with file and question.
        """
        texts = column_values.read_texts(table, columns.texts, encoding_errors)
        locations = _row_locations(table)
        if not has_labels:
            return [
                TaskExample(texts=t, location=location)
                for t, location in zip(texts, locations, strict=True)
            ]
        values = table.column(columns.label)
        impossible = _optional_column(table, _IMPOSSIBLE_COLUMN)
        examples: list[TaskExample] = []
        for pair, value, is_impossible, location in zip(
            texts, values, impossible, locations, strict=True
        ):
            golds = (
                []
                if value is None and is_impossible is True
                else parse_answers(value, location, encoding_errors)
            )
            if is_impossible is True and golds:
                raise ValueError(
                    f"{location}: {_IMPOSSIBLE_COLUMN!r} is true, but there are answers"
                )
            for text, start in golds:
                _check_answer_position(text, start, pair[1], location)
            answers, starts = (
                tuple(t for t, _ in golds),
                tuple(s for _, s in golds),
            )
            examples.append(
                TaskExample(texts=pair, label=answers, answer_starts=starts, location=location)
            )
        return examples

    def parse_input(self, task: Task, text: Any, location: str) -> TaskExample:
        """Parse {"question": ..., "context": ...}."""
        keys = (QUESTION, CONTEXT)
        record = check_record(text, keys, location)
        for key in keys:
            if not isinstance(record[key], str):
                raise ValueError(
                    f"{location}: {key!r} must be text, got {describe_value(record[key])}"
                )
        texts = tuple(check_text(record[key], location, key, "strict") for key in keys)
        return TaskExample(texts=texts, location=location)

    def format_input(self, example: TaskExample) -> Any:
        """Return {"question": ..., "context": ...}."""
        return {QUESTION: example.texts[0], CONTEXT: example.texts[1]}

    def parse_line(self, task: Task, line: str) -> Any:
        """Parse a question and a context separated by a tab.

        Raises:
            ValueError: there is no tab.
        """
        question, tab, context = line.partition("\t")
        if not tab:
            raise ValueError(
                f"a line must be a question, a tab and a context, got {describe_value(line)}"
            )
        return {QUESTION: question, CONTEXT: context}


WORDING = TaskWording(
    purpose="answer questions",
    majority_answer="most frequent answer",
    answered_unit="questions",
    example='{"question": "Where was she born?", "context": "She was born in Warsaw."}',
)


@dataclass(frozen=True)
class ExtractiveQuestionAnswering:
    """A span of the context as the answer, or none."""

    reader: TaskReader = QuestionReader()
    splits_long_texts: bool = True
    options: type = QuestionAnsweringOptions
    is_single_label: bool = False
    formulation: FormulationName = "span_extraction"
    wording: TaskWording = WORDING
    predicts_number: bool = False

    def find_labels(self, examples: Sequence[TaskExample], location: object) -> tuple[str, ...]:
        """Return no labels; at least one question must have an answer."""
        if not any(item.label for item in examples):
            raise ValueError(
                f"{location}: none of the {len(examples)} questions has an answer; "
                "there is nothing to learn"
            )
        return ()

    def check_examples(
        self, examples: Sequence[TaskExample], labels: Sequence[str], column: str
    ) -> None:
        """Accept all: positions were checked when read."""

    def metric_names(self, task: Task) -> tuple[str, ...]:
        """Word F1 and exact match."""
        return ("answer_f1", "exact_match")

    def compute_metrics(
        self, task: Task, labels: Sequence[Label], predictions: Sequence[Label]
    ) -> dict[str, float]:
        """Compute word F1 and exact match."""
        golds = [cast("tuple[str, ...]", t) for t in labels]
        return answer_metrics(golds, [str(s) for s in predictions])

    def majority_baseline(self, task: Task, examples: Sequence[TaskExample]) -> Label:
        """Return the most frequent first answer; empty if most have none."""
        counts = Counter(golds[0] if golds else "" for golds in map(_gold_answers, examples))
        return counts.most_common(1)[0][0]

    def complete_task(self, task: Task, examples: Sequence[TaskExample]) -> Task:
        """Allow questions without an answer if one of the examples has none."""
        if from_dict(QuestionAnsweringOptions, task.options, "options").allow_no_answer is not None:
            return task
        some = any(not _gold_answers(item) for item in examples)
        return replace(task, options={**task.options, "allow_no_answer": some})


def _gold_answers(example: TaskExample) -> tuple[str, ...]:
    return cast("tuple[str, ...]", example.label)


def _optional_column(table: Table, name: str) -> list[object]:
    return table.column(name) if name in table.columns else [None] * len(table)


def _row_locations(table: Table) -> list[str]:
    """Return the location of each row, with the question's id if it has one."""
    locations = [table.location(i) for i in range(len(table))]
    return [
        location if name is None or repr(name) in location else f"{location}: question {name!r}"
        for location, name in zip(locations, _optional_column(table, _ID_COLUMN), strict=True)
    ]


def _check_answer_position(text: str, start: int, context: str, location: str) -> None:
    """Check that an answer is at its position.

    Raises:
        ValueError: it is not, with the text found there and the answer's position.
    """
    if not text.strip():
        raise ValueError(
            f"{location}: an answer is empty; a question without an answer needs an empty list"
        )
    actual = context[start : start + len(text)]
    if actual == text:
        return
    first = context.find(text)
    occurrence = "it is nowhere in the context" if first < 0 else f"it occurs first at {first}"
    raise ValueError(
        f"{location}: the answer {_shorten(text)} should be at character {start} of the context, "
        f"which has {_shorten(actual)} there; {occurrence}"
    )


def _shorten(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}...")


ANSWER = ExtractiveQuestionAnswering()
