"""Instructions: conversations whose responses are learned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

from unmask.config import from_dict
from unmask.conversations.messages import Conversation, Message, read_conversation, read_prompt
from unmask.conversations.template import CONTINUATION
from unmask.tasks.kinds.generate import GENERATE, check_metric_library
from unmask.tasks.metrics.generation import normalized_match
from unmask.tasks.metrics.metric import MEAN_METRIC
from unmask.tasks.readers import columns as column_values
from unmask.tasks.readers.tables import Table
from unmask.tasks.readers.task_reader import TaskReader, refuse_choices
from unmask.tasks.task import Label, Task, TaskColumns, TaskExample
from unmask.tasks.task_kind import FormulationName, TaskWording
from unmask.text.formats.records import check_text, describe_value, format_names
from unmask.text.lines import EncodingErrors

LOSS_METRIC, MATCH_METRIC = "loss", "normalized_match"
PROMPT_COLUMNS = ("messages", "conversations", "instruction", "prompt")
"""Of which a file has one; see `unmask.conversations.messages`."""
RESPONSE_COLUMNS = ("output", "response", "completion")
LAST_TURN = "last turn"
"""In place of the label column where the response is the last turn of a list."""


@dataclass(frozen=True, kw_only=True)
class InstructionOptions:
    """The chat template, and the length of responses that are generated."""

    chat_template: str | None = None
    """Chat template: a Jinja text, the path of a file with one, or "none": turns are joined as they
    are. None: the model's own, or, of a model without one, headings of Alpaca's kind."""
    template_tokens: Mapping[str, str] | None = None
    """Special tokens that the template may name, {"eos_token": "</s>"}. None: the model's."""
    packing: Literal["bucket", "pack"] = "bucket"
    """Layout of training batches. bucket: a conversation a row, similar lengths together; pack:
    several in a row of the maximum length, hidden from each other."""
    max_response_length: int = 128
    """Maximum length of a generated response in tokens, end included."""
    max_dev_items: int = 200
    """Number of dev items, evenly spaced, scored during training; all are scored at the end."""
    task_metrics: Mapping[str, str] = field(default_factory=dict[str, str])
    """Metric of each task of a mixture, by name; set by the mixture's file."""

    def __post_init__(self) -> None:
        for name in ("max_response_length", "max_dev_items"):
            if getattr(self, name) < 1:
                raise ValueError(f"options.{name} must be at least 1, got {getattr(self, name)}")


def read_template_option(source: str) -> str:
    """Return a template that is given as text, as the path of a file, or as none.

    none: turns are joined as they are.

    Raises:
        FileNotFoundError: it looks like a path, and there is no such file.
        ValueError: the file is not UTF-8.
    """
    if source == "none":
        return CONTINUATION
    if "{" in source or "\n" in source:
        return source
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(f"options.chat_template: {source}: no such file")
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"options.chat_template: {source}: is not UTF-8") from None


@dataclass(frozen=True)
class ConversationReader:
    """Reads rows of conversations; see `unmask.conversations.messages` for their formats."""

    word_per_line: bool = False

    def find_columns(
        self, table: Table, texts: Sequence[str], label: str | None, choices: Sequence[str]
    ) -> TaskColumns:
        """Find the format by its columns; named columns are a prompt and its response."""
        refuse_choices(choices, "instruct")
        if len(texts) == 1 and texts[0] in PROMPT_COLUMNS[:2] and label in (None, LAST_TURN):
            table.check_column(texts[0])
            return TaskColumns(texts=tuple(texts), label=LAST_TURN)
        if texts:
            column_values.check_columns(table, texts, label, range(1, 10), "instruct")
            label = label or column_values.find_column(
                table, RESPONSE_COLUMNS, "response", excluded=texts, option="label"
            )
            return TaskColumns(texts=tuple(texts), label=label)
        found = [name for name in PROMPT_COLUMNS if name in table.columns]
        if not found:
            raise ValueError(
                f"{table.path}: which column holds the prompt? None is called "
                f"{format_names(PROMPT_COLUMNS)}; {table.column_hint('text')}"
            )
        if found[0] in PROMPT_COLUMNS[:2]:
            return TaskColumns(texts=(found[0],), label=LAST_TURN)
        given = [name for name in ("input", "context") if name in table.columns]
        response = label or column_values.find_column(
            table, RESPONSE_COLUMNS, "response", excluded=found, option="label"
        )
        return TaskColumns(texts=(found[0], *given[:1]), label=response)

    def find_text_columns(self, table: Table, columns: TaskColumns) -> TaskColumns:
        """Find the columns of a file to be answered."""
        if columns.texts and all(map(table.has_column, columns.texts)):
            return columns
        found = [name for name in PROMPT_COLUMNS if name in table.columns]
        if not found:
            raise ValueError(
                f"{table.path}: which column holds the prompt? None is called "
                f"{format_names(PROMPT_COLUMNS)}"
            )
        return replace(columns, texts=(found[0],))

    def read_examples(
        self,
        table: Table,
        columns: TaskColumns,
        encoding_errors: EncodingErrors,
        *,
        has_labels: bool,
        options: Mapping[str, Any],
    ) -> list[TaskExample]:
        """Read conversations, with their last response if it is known."""
        examples: list[TaskExample] = []
        for i, (_, fields) in enumerate(table.rows):
            location = table.location(i)
            row = _plain_row(table, fields, location, encoding_errors)
            if columns.texts[0] not in PROMPT_COLUMNS:
                row = _as_instruction(row, columns, has_labels=has_labels)
            elif columns.label not in (LAST_TURN, *RESPONSE_COLUMNS) and has_labels:
                row = {**row, "response": row.get(columns.label)}
            examples.append(_example(row, location, has_labels=has_labels))
        return examples

    def parse_input(self, task: Task, text: Any, location: str) -> TaskExample:
        """Parse a turn of the user, or a list of messages that ends with one.

        Raises:
            ValueError: it is neither.
        """
        row = {"prompt": text} if isinstance(text, str) else {"messages": text}
        return _example(row, location, has_labels=False)

    def format_input(self, example: TaskExample) -> Any:
        """Return a text of the user, or a list of messages."""
        if len(example.turns) == 1:
            return example.texts[0]
        return [m.to_dict() for m in example.turns]

    def parse_line(self, task: Task, line: str) -> Any:
        """Return a line as it is: a turn of the user."""
        return line


def _plain_row(
    table: Table, fields: Sequence[object], location: str, encoding_errors: EncodingErrors
) -> dict[str, Any]:
    row = dict(zip(table.columns, fields, strict=True))
    return {
        name: check_text(value, location, name, encoding_errors)
        if isinstance(value, str)
        else value
        for name, value in row.items()
    }


def _as_instruction(
    row: Mapping[str, Any], columns: TaskColumns, *, has_labels: bool
) -> dict[str, Any]:
    """Return a row of named columns as a prompt and a response."""
    parts = [row.get(name) for name in columns.texts]
    written = [str(part) for part in parts if part is not None and str(part).strip()]
    answer = {"response": row.get(columns.label)} if has_labels else {}
    return {"prompt": "\n\n".join(written), **answer}


def _example(row: Mapping[str, Any], location: str, *, has_labels: bool) -> TaskExample:
    if has_labels:
        messages = read_conversation(row, location).messages
        if messages[-1].role != "assistant":
            raise ValueError(f"{location}: the last turn must be of the assistant")
        learned = [i for i, m in enumerate(messages, 1) if m.role == "assistant" and m.is_learned]
        messages = messages[: learned[-1]] if learned else messages
        turns, label = messages, (messages[-1].content,)
    else:
        turns, label = _read_prompt(row, location), None
    prompt = turns[:-1] if has_labels else turns
    return TaskExample(
        texts=tuple(m.content for m in prompt), label=label, location=location, turns=turns
    )


def _read_prompt(row: Mapping[str, Any], location: str) -> tuple[Message, ...]:
    """Read what is to be answered; a response at the end of a list is left out."""
    listed = row.get("messages") or row.get("conversations")
    if listed is None:
        return read_prompt(row, location)
    system = {key: row.get(key) for key in ("system", "system_prompt")}
    messages = read_conversation({"messages": listed, **system}, location).messages
    while messages and messages[-1].role == "assistant":
        messages = messages[:-1]
    if not messages:
        raise ValueError(f"{location}: has no turn to be answered, got {describe_value(listed)}")
    return messages


WORDING = TaskWording(
    purpose="answer instructions",
    majority_answer="most frequent response",
    order_note="Those with the least likely responses come first.",
)


@dataclass(frozen=True)
class Instructions:
    """Responses to instructions, in conversations of one or several turns."""

    reader: TaskReader = ConversationReader()
    splits_long_texts: bool = False
    options: type = InstructionOptions
    is_single_label: bool = False
    formulation: FormulationName = "instructions"
    wording: TaskWording = WORDING
    predicts_number: bool = False

    def find_labels(self, examples: Sequence[TaskExample], location: object) -> tuple[str, ...]:
        """Return none: responses are free text.

        Raises:
            ValueError: no row has a response.
        """
        if not any(_conversation(item).has_response for item in examples):
            raise ValueError(f"{location}: no row has a response to learn")
        return ()

    def check_examples(
        self, examples: Sequence[TaskExample], labels: Sequence[str], column: str
    ) -> None:
        """Accept all: rows without a response are left out and counted."""

    def mixture_names(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the tasks of a mixture."""
        return tuple(options.get("task_metrics") or ())

    def mixture_member(self, task: Task, name: str) -> Task:
        """Return a task of a mixture, with its own metric unless nothing is generated."""
        metric = task.options["task_metrics"][name]
        options = dict(task.options) | {"task_metrics": {}}
        return replace(
            task, options=options, metric=LOSS_METRIC if task.metric == LOSS_METRIC else metric
        )

    def mixture_metrics(self, member: Task, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """Return the task's own alone: a mixture may have dozens of tasks."""
        return {name: value for name, value in metrics.items() if name == member.metric}

    def metric_names(self, task: Task) -> tuple[str, ...]:
        """Loss, for which nothing is generated; or what generated responses are scored by."""
        if self.mixture_names(task.options):
            return (LOSS_METRIC, MEAN_METRIC)
        return (LOSS_METRIC, MATCH_METRIC, *GENERATE.metric_names(_as_generation(task)))

    def complete_task(self, task: Task, examples: Sequence[TaskExample]) -> Task:
        """Refuse metrics whose library is not installed.

        Raises:
            ImportError: it is not.
        """
        if task.metric != LOSS_METRIC:
            for metric in (task.metric, *task.options.get("task_metrics", {}).values()):
                check_metric_library(metric)
        return task

    def compute_metrics(
        self, task: Task, labels: Sequence[Label], predictions: Sequence[Label]
    ) -> dict[str, float]:
        """Compare generated responses with those of the data; nothing if none are generated."""
        if task.metric == LOSS_METRIC:
            return {}
        references = [cast("tuple[str, ...]", label) for label in labels]
        match = normalized_match(references, [str(text) for text in predictions])
        own = GENERATE.compute_metrics(_as_generation(task), labels, predictions)
        return {MATCH_METRIC: match, **own}

    def majority_baseline(self, task: Task, examples: Sequence[TaskExample]) -> Label:
        """Return the most frequent response, of ties the first."""
        return GENERATE.majority_baseline(_as_generation(task), examples)


def _conversation(item: TaskExample) -> Conversation:
    return Conversation(messages=item.turns, location=item.location)


def _as_generation(task: Task) -> Task:
    """Return the task as one of generation, whose metrics it shares."""
    return replace(task, task_kind="generate", options={})


def parse_instruction_options(options: Mapping[str, Any]) -> InstructionOptions:
    """Read options from plain data.

    Raises:
        ValueError: an option is unknown or invalid.
    """
    return from_dict(InstructionOptions, dict(options), "options")


INSTRUCT = Instructions()
