"""Preferences: which of several responses to a prompt is better."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from unmask.config import from_dict
from unmask.conversations.messages import Message, read_conversation, read_responses
from unmask.tasks.kinds.instruct import LAST_TURN
from unmask.tasks.kinds.pooling_options import PoolingOptions
from unmask.tasks.metrics.intervals import wilson_interval
from unmask.tasks.readers.columns import parse_number
from unmask.tasks.readers.tables import Table
from unmask.tasks.readers.task_reader import TaskReader, refuse_choices
from unmask.tasks.task import Label, Task, TaskColumns, TaskExample
from unmask.tasks.task_kind import FormulationName, TaskWording
from unmask.text.formats.records import check_text, describe_value, format_names
from unmask.text.lines import EncodingErrors

CHOSEN, REJECTED, RANKED = "chosen", "rejected", "responses"
"""Columns: of the better response and the worse one, or of a list of responses, best first."""
MARGIN = "margin"
"""Optional column: the difference of rewards that is sought between the responses of a row."""
MAX_RANKED = 64
NO_RESPONSE = -2
"""In place of a constant answer, which comparisons do not have: the better response is first."""


@dataclass(frozen=True, kw_only=True)
class PreferenceOptions(PoolingOptions):
    """The chat template, and pooling of an encoder."""

    chat_template: str | None = None
    """Chat template: a Jinja text, or the path of a file with one. None: the model's own, or, of a
    model without one, headings of Alpaca's kind."""
    template_tokens: Mapping[str, str] | None = None
    """Special tokens that the template may name, {"eos_token": "</s>"}. None: the model's."""
    margin: float = 0.0
    """Difference of rewards that is sought (Touvron et al. 2023, arXiv:2307.09288, equation 2), of
    rows without a number in the column `margin`."""


@dataclass(frozen=True)
class PreferenceReader:
    """Reads a prompt with responses, the better one first."""

    word_per_line: bool = False

    def find_columns(
        self, table: Table, texts: Sequence[str], label: str | None, choices: Sequence[str]
    ) -> TaskColumns:
        """Find the columns of responses: chosen and rejected, or a list; `texts` names others."""
        refuse_choices(choices, "prefer")
        if len(texts) not in (0, 2) and tuple(texts) != (RANKED,):
            raise ValueError(
                f"{table.path}: text must name two columns, the better response first, or "
                f"{RANKED!r}, got {format_names(texts)}"
            )
        found = tuple(texts) or ((RANKED,) if RANKED in table.columns else (CHOSEN, REJECTED))
        for name in found:
            table.check_column(name)
        return TaskColumns(texts=found, label=LAST_TURN)

    def find_text_columns(self, table: Table, columns: TaskColumns) -> TaskColumns:
        """Find the columns of a file of responses to be scored."""
        if columns.texts and all(map(table.has_column, columns.texts)):
            return columns
        return self.find_columns(table, (), None, ())

    def read_examples(
        self,
        table: Table,
        columns: TaskColumns,
        encoding_errors: EncodingErrors,
        *,
        has_labels: bool,
        options: Mapping[str, Any],
    ) -> list[TaskExample]:
        """Read prompts and responses; the first response is the best one."""
        examples: list[TaskExample] = []
        for i, (_, fields) in enumerate(table.rows):
            location = table.location(i)
            row: dict[str, Any] = dict(zip(table.columns, fields, strict=True))
            for name, value in row.items():
                if isinstance(value, str):
                    row[name] = check_text(value, location, name, encoding_errors)
            keys = columns.texts
            if keys == (RANKED,):
                row, keys = ranked_columns(row, location)
            found = [c.messages for c in read_responses(row, keys, location)]
            example = _example(found, location, label=0 if has_labels else None)
            examples.append(replace(example, margin=_margin_of(row, location)))
        return examples

    def parse_input(self, task: Task, text: Any, location: str) -> TaskExample:
        """Parse messages that end with a response, or a row of two or more responses.

        Raises:
            ValueError: it is neither.
        """
        if isinstance(text, list | tuple):
            messages = read_conversation({"messages": list(cast("Any", text))}, location).messages
            return _example([messages], location, label=None)
        if not isinstance(text, Mapping):
            raise ValueError(
                f"{location} must be a list of messages, or a table with prompt, {CHOSEN} and "
                f"{REJECTED}, got {describe_value(text)}"
            )
        row, keys = dict(cast("Mapping[str, Any]", text)), (CHOSEN, REJECTED)
        if RANKED in row:
            row, keys = ranked_columns(row, location)
        elif CHOSEN not in row:
            return _example([read_conversation(row, location).messages], location, label=None)
        found = [c.messages for c in read_responses(row, keys, location)]
        return _example(found, location, label=None)

    def format_input(self, example: TaskExample) -> Any:
        """Return the responses after their prompt, in the form of `parse_input`."""
        prompt = [m.to_dict() for m in example.turns]
        if len(example.choices) == 1:
            return [*prompt, {"role": "assistant", "content": example.choices[0]}]
        return {"prompt": prompt, RANKED: list(example.choices)}

    def parse_line(self, task: Task, line: str) -> Any:
        """Parse a prompt and a response, separated by a tab."""
        prompt, tab, response = line.partition("\t")
        if not tab:
            raise ValueError(f"a line must be a prompt, a tab and a response, got {line[:60]!r}")
        return {"prompt": prompt, "response": response}


def _margin_of(row: Mapping[str, Any], location: str) -> float | None:
    """Return the margin of a row. None: it has none."""
    value = row.get(MARGIN)
    return None if value is None or value == "" else parse_number(value, MARGIN, location)


def ranked_columns(row: dict[str, Any], location: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a row with a column for each of the ranked responses, and their names."""
    listed = row[RANKED]
    if not isinstance(listed, list | tuple) or not 2 <= len(listed) <= MAX_RANKED:
        raise ValueError(
            f"{location}: {RANKED!r} must be a list of 2 to {MAX_RANKED} responses, best first, "
            f"got {describe_value(listed)}"
        )
    named = {f"{RANKED}[{i}]": x for i, x in enumerate(cast("Sequence[Any]", listed))}
    return {**row, **named}, tuple(named)


def _example(
    conversations: Sequence[tuple[Message, ...]], location: str, label: int | None
) -> TaskExample:
    prompt = conversations[0][:-1]
    if not prompt:
        raise ValueError(f"{location}: there is no prompt before the response")
    return TaskExample(
        texts=tuple(m.content for m in prompt),
        label=label,
        choices=tuple(turns[-1].content for turns in conversations),
        location=location,
        turns=prompt,
    )


WORDING = TaskWording(
    purpose="tell better responses from worse ones",
    majority_answer="first response",
    answered_unit="comparisons",
    decision_unit="comparisons",
    example='{"prompt": "Hello!", "responses": ["Good morning.", "Go away."]}',
)


@dataclass(frozen=True)
class Preferences:
    """A reward for a response, learned from comparisons."""

    reader: TaskReader = PreferenceReader()
    splits_long_texts: bool = False
    options: type = PreferenceOptions
    is_single_label: bool = False
    formulation: FormulationName = "rewards"
    wording: TaskWording = WORDING
    predicts_number: bool = False

    def find_labels(self, examples: Sequence[TaskExample], location: object) -> tuple[str, ...]:
        """Return none: responses have no names."""
        return ()

    def check_examples(
        self, examples: Sequence[TaskExample], labels: Sequence[str], column: str
    ) -> None:
        """Accept all: each was checked when it was read."""

    def metric_names(self, task: Task) -> tuple[str, ...]:
        """How often the best response has the greatest reward."""
        return ("accuracy",)

    def compute_metrics(
        self, task: Task, labels: Sequence[Label], predictions: Sequence[Label]
    ) -> dict[str, float]:
        """Return the accuracy, and its 95 % interval (Wilson 1927, doi:10.2307/2276774)."""
        if all(answer == NO_RESPONSE for answer in predictions):
            return {}
        n = len(labels)
        right = sum(a == b for a, b in zip(labels, predictions, strict=True))
        low, high = wilson_interval(right, n)
        return {"accuracy": right / n, "accuracy_low": low, "accuracy_high": high}

    def majority_baseline(self, task: Task, examples: Sequence[TaskExample]) -> Label:
        """Return no response: they are in no order that a constant answer could use."""
        return NO_RESPONSE


def parse_preference_options(options: Mapping[str, Any]) -> PreferenceOptions:
    """Read options from plain data.

    Raises:
        ValueError: an option is unknown or invalid.
    """
    return from_dict(PreferenceOptions, dict(options), "options")


PREFER = Preferences()
