"""The answer to a question, a part of a text: SQuAD.

Rajpurkar et al. 2016, arXiv:1606.05250; with questions that have no answer Rajpurkar et al. 2018,
arXiv:1806.03822.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from unmask.config import from_dict
from unmask.finetuning.ask import SPANS, Ask, in_words
from unmask.finetuning.by_span import BySpan, around_context
from unmask.heads.model import HeadSpec
from unmask.published.card import Published, spans
from unmask.tasks.metrics.question_answering import answer_metrics
from unmask.tasks.readers import column_values
from unmask.tasks.readers.squad import answers_of
from unmask.tasks.readers.tables import Table
from unmask.tasks.readers.task_files import TaskFiles, as_record, refuse_choices
from unmask.tasks.task import Columns, Item, Task, Truth
from unmask.text.lines import EncodingErrors
from unmask.text.records import as_text, named
from unmask.tokens.tokenizer import Tokenizer

QUESTION, CONTEXT = "question", "context"
"""What is given to be answered: a table with these."""
_QUESTIONS = (QUESTION, "query")
_CONTEXTS = (CONTEXT, "passage", "paragraph", "document", "text")
_ANSWERS = ("answers", "answer", "label")
_ID, _IMPOSSIBLE = "id", "is_impossible"
_SHOWN = 60  # characters of a context


@dataclass(frozen=True, kw_only=True)
class AnswerOptions:
    """How contexts are read, and which spans are answers."""

    stride: int = 128
    """Tokens by which the windows of a long context overlap; at most half of a window."""
    longest: int = 30
    """Tokens of an answer at most (released code of BERT)."""
    n_best: int = 20
    """Spans that are kept of a question (released code of BERT)."""
    no_answer: bool | None = None
    """Whether a question may have no answer. None: whether one of the training file has none."""
    null_threshold: float | None = None
    """By how much the score of there being no answer must exceed the best span's. None: what is
    best on the dev file, and 0 before that is known."""

    def __post_init__(self) -> None:
        """Check what the types do not say."""
        for name, least in (("stride", 0), ("longest", 1), ("n_best", 1)):
            value = getattr(self, name)
            if value < least:
                raise ValueError(f"options.{name} must be at least {least}, got {value}")


@dataclass(frozen=True)
class QuestionRows:
    """Questions, contexts, and answers with their places."""

    tagged: bool = False

    def columns(
        self, table: Table, texts: Sequence[str], label: str | None, choices: Sequence[str]
    ) -> Columns:
        """Find a column of questions, one of contexts, and one of answers with their places."""
        refuse_choices(choices, "answer")
        column_values.check(table, texts, label, (2,), "answer")
        found = tuple(texts) or self._find(table)
        label = label or column_values.find_one(
            table, _ANSWERS, "answers", but=found, option="label"
        )
        return Columns(texts=found, label=label)

    def texts(self, table: Table, columns: Columns) -> Columns:
        """Find the columns of questions and contexts."""
        if all(name in table.columns for name in columns.texts):
            return columns
        return replace(columns, texts=self._find(table))

    def _find(self, table: Table) -> tuple[str, ...]:
        question = column_values.find_one(table, _QUESTIONS, QUESTION)
        return question, column_values.find_one(table, _CONTEXTS, CONTEXT, but=(question,))

    def items(
        self,
        table: Table,
        columns: Columns,
        errors: EncodingErrors,
        *,
        known: bool,
        options: Mapping[str, Any],
    ) -> list[Item]:
        """Read questions, contexts and answers; an empty list of answers says that there is none.

        Raises:
            ValueError: an answer does not stand where it should, with file and question.
        """
        texts = column_values.texts(table, columns.texts, errors)
        wheres = _named_places(table)
        if not known:
            return [Item(texts=t, where=where) for t, where in zip(texts, wheres, strict=True)]
        values = table.column(columns.label)
        impossible = _if_there(table, _IMPOSSIBLE)
        found: list[Item] = []
        for two, value, none, where in zip(texts, values, impossible, wheres, strict=True):
            golds = [] if value is None and none is True else answers_of(value, where, errors)
            if none is True and golds:
                raise ValueError(f"{where}: {_IMPOSSIBLE!r} is true, but there are answers")
            for text, start in golds:
                _check_place(text, start, two[1], where)
            truth, starts = tuple(t for t, _ in golds), tuple(s for _, s in golds)
            found.append(Item(texts=two, truth=truth, starts=starts, where=where))
        return found

    def given(self, task: Task, text: Any, where: str) -> Item:
        """Take {"question": ..., "context": ...}."""
        keys = (QUESTION, CONTEXT)
        record = as_record(text, keys, where)
        for key in keys:
            if not isinstance(record[key], str):
                raise ValueError(f"{where}: {key!r} must be text, got {named(record[key])}")
        texts = tuple(as_text(record[key], where, key, "strict") for key in keys)
        return Item(texts=texts, where=where)

    def plain(self, item: Item) -> Any:
        """Return {"question": ..., "context": ...}."""
        return {QUESTION: item.texts[0], CONTEXT: item.texts[1]}

    def line(self, task: Task, line: str) -> Any:
        """Read a question and a context with a tab between.

        Raises:
            ValueError: there is none.
        """
        question, tab, context = line.partition("\t")
        if not tab:
            raise ValueError(
                f"a line must be a question, a tab and the text that answers it, got {named(line)}"
            )
        return {QUESTION: question, CONTEXT: context}


@dataclass(frozen=True)
class AnswerFromText:
    """A part of a text that answers a question, or none."""

    files: TaskFiles = QuestionRows()
    in_parts: bool = True
    options: type = AnswerOptions
    one_label: bool = False

    def labels(self, items: Sequence[Item], where: object) -> tuple[str, ...]:
        """Answers are not labels; but some question must have one."""
        if not any(item.truth for item in items):
            raise ValueError(
                f"{where}: none of the {len(items)} questions has an answer; "
                "there is nothing to learn"
            )
        return ()

    def check(self, items: Sequence[Item], labels: Sequence[str], column: str) -> None:
        """Any answer will do that stands in its context."""

    def metrics(self, task: Task) -> tuple[str, ...]:
        """F1 of words, and exact match."""
        return ("answer_f1", "exact_match")

    def compute_metrics(
        self, task: Task, truth: Sequence[Truth], said: Sequence[Truth]
    ) -> dict[str, float]:
        """Compute the figures of answers."""
        golds = [cast("tuple[str, ...]", t) for t in truth]
        return answer_metrics(golds, [str(s) for s in said])

    def usual(self, task: Task, items: Sequence[Item]) -> Truth:
        """Return the most frequent first answer; an empty one if most have none."""
        counts = Counter(golds[0] if golds else "" for golds in map(_answers, items))
        return counts.most_common(1)[0][0]

    def settled(self, task: Task, card: Published, items: Sequence[Item]) -> Task:
        """Find out whether a question may have no answer."""
        if _options(task).no_answer is not None:
            return task
        some = any(not _answers(item) for item in items)
        return replace(task, options={**task.options, "no_answer": some})

    def heads(self, task: Task, card: Published) -> dict[str, HeadSpec]:
        """The head that marks where an answer starts and ends.

        Raises:
            ValueError: the model is an encoder-decoder.
        """
        if in_words(card):
            raise ValueError(
                f"{card.name} says its answers in words and cannot mark them in a text; "
                "fine-tune it with the task `generate`, or take an encoder, a decoder, BART or "
                "mBART"
            )
        return {SPANS: spans(card)}

    def ask(self, task: Task, card: Published, tokenizer: Tokenizer) -> Ask:
        """At each token of the context."""
        o = _options(task)
        return BySpan(
            task=task,
            tokenizer=tokenizer,
            around=around_context(tokenizer.special, card.architecture, task.length),
            stride=o.stride,
            longest=o.longest,
            n_best=o.n_best,
            no_answer=bool(o.no_answer),
            null_threshold=o.null_threshold or 0.0,
        )


def _options(task: Task) -> AnswerOptions:
    return from_dict(AnswerOptions, dict(task.options), "options")


def _answers(item: Item) -> tuple[str, ...]:
    return cast("tuple[str, ...]", item.truth)


def _if_there(table: Table, name: str) -> list[object]:
    return table.column(name) if name in table.columns else [None] * len(table)


def _named_places(table: Table) -> list[str]:
    """Say where each row stands, with its question's name, where it has one."""
    places = [table.where(i) for i in range(len(table))]
    return [
        at if name is None or repr(name) in at else f"{at}: question {name!r}"
        for at, name in zip(places, _if_there(table, _ID), strict=True)
    ]


def _check_place(text: str, start: int, context: str, where: str) -> None:
    """Check that an answer stands where it should.

    Raises:
        ValueError: it does not; what stands there is said, and where the answer stands.
    """
    if not text.strip():
        raise ValueError(
            f"{where}: an answer is empty; a question without an answer has an empty list of them"
        )
    there = context[start : start + len(text)]
    if there == text:
        return
    first = context.find(text)
    really = "it stands nowhere in the context" if first < 0 else f"it stands first at {first}"
    raise ValueError(
        f"{where}: the answer {_short(text)} should stand at character {start} of the context, "
        f"where there is {_short(there)}; {really}"
    )


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


ANSWER = AnswerFromText()
