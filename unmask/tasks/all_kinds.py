"""TASK_KINDS: all kinds of tasks by name."""

from collections.abc import Mapping
from typing import Any

from unmask.config import from_dict, to_dict
from unmask.tasks.kind_names import TaskKindName
from unmask.tasks.kinds.answer import ANSWER
from unmask.tasks.kinds.choose import CHOOSE
from unmask.tasks.kinds.classify import CLASSIFY, PAIRS
from unmask.tasks.kinds.cloze import CLOZE
from unmask.tasks.kinds.generate import GENERATE
from unmask.tasks.kinds.instruct import INSTRUCT
from unmask.tasks.kinds.multilabel import MULTILABEL
from unmask.tasks.kinds.pictures import PICTURES
from unmask.tasks.kinds.prefer import PREFER
from unmask.tasks.kinds.regress import REGRESS
from unmask.tasks.kinds.tag import TAG
from unmask.tasks.task import Task
from unmask.tasks.task_kind import MixtureKind, TaskKind

TASK_KINDS: Mapping[TaskKindName, TaskKind] = {
    "classify": CLASSIFY,
    "pairs": PAIRS,
    "regress": REGRESS,
    "tag": TAG,
    "answer": ANSWER,
    "generate": GENERATE,
    "cloze": CLOZE,
    "choose": CHOOSE,
    "multilabel": MULTILABEL,
    "pictures": PICTURES,
    "instruct": INSTRUCT,
    "prefer": PREFER,
}

MIXTURE_KINDS: Mapping[TaskKindName, MixtureKind] = {"generate": GENERATE, "instruct": INSTRUCT}
"""The kinds of which a mixture of tasks can be learned."""


def resolve_metric(task: Task, requested: str | None) -> str:
    """Return the requested metric, or the task's default.

    Raises:
        ValueError: there is no such metric for this task.
    """
    fitting = TASK_KINDS[task.task_kind].metric_names(task)
    if requested is None:
        return fitting[0]
    if requested not in fitting:
        with_labels = f" with {len(task.labels)} labels" if task.labels else ""
        raise ValueError(
            f"metric must be one of {', '.join(fitting)} for this {task.task_kind} "
            f"task{with_labels}, "
            f"got {requested!r}"
        )
    return requested


def resolve_options(task_kind: TaskKindName, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a task with defaults filled in, as plain data.

    Raises:
        ValueError: an option is unknown or invalid.
    """
    options_type = TASK_KINDS[task_kind].options
    plain = to_dict(from_dict(options_type, dict(options), "options"))
    return {name: value for name, value in plain.items() if name != "kind"}


def reads_choices(task: Task) -> bool:
    """Return whether each row has answer choices, each encoded together with the row's texts."""
    return TASK_KINDS[task.task_kind].formulation == "multiple_choice"


def reads_conversations(task: Task) -> bool:
    """Return whether each row is a conversation, whatever its columns."""
    return TASK_KINDS[task.task_kind].formulation in ("instructions", "rewards")


def has_two_texts(task: Task) -> bool:
    """Return whether each row has two texts, whose order could be swapped."""
    two = len(task.columns.texts) == 2
    return two and not reads_choices(task) and not reads_conversations(task)


def reads_two_texts(task: Task) -> bool:
    """Return whether an input has two texts: a pair, or a text and a choice."""
    return has_two_texts(task) or reads_choices(task)
