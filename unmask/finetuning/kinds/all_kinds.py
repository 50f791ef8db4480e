"""TASK_KINDS: the explicit dict of all kinds of tasks."""

from collections.abc import Mapping
from typing import Any

from unmask.config import from_dict, to_dict
from unmask.finetuning.formulations.formulation import TaskFormulation
from unmask.finetuning.kinds.answer import ANSWER
from unmask.finetuning.kinds.choose import CHOOSE
from unmask.finetuning.kinds.classify import CLASSIFY, PAIRS
from unmask.finetuning.kinds.cloze import CLOZE
from unmask.finetuning.kinds.generate import GENERATE
from unmask.finetuning.kinds.multilabel import MULTILABEL
from unmask.finetuning.kinds.regress import REGRESS
from unmask.finetuning.kinds.tag import TAG
from unmask.finetuning.kinds.task_kind import TaskKind
from unmask.heads.model import HeadSpec
from unmask.tasks.task import Task, TaskKindName
from unmask.tokenizers.encode import Tokenizer
from unmask.zoo.preset import Published

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
}


def heads_for_task(task: Task, preset: Published) -> dict[str, HeadSpec]:
    """Return the heads that a card's model needs for a task.

    Raises:
        ValueError: this kind of model cannot do this task.
    """
    return TASK_KINDS[task.task_kind].heads(task, preset)


def formulate(task: Task, preset: Published, tokenizer: Tokenizer) -> TaskFormulation:
    """Choose how a model is asked.

    Raises:
        ValueError: the length leaves no room for text, two labels are the same words to the
            tokenizer, or the model reads in another vocabulary than it speaks, and shall label.
    """
    if task.task_kind != "generate":
        tokenizer.check_single_vocabulary(f"task = {task.task_kind}")
    return TASK_KINDS[task.task_kind].formulate(task, preset, tokenizer)


def resolve_metric(task: Task, requested: str | None) -> str:
    """Return the metric that is asked for, or the customary one.

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
    """Complete the options of a task by their defaults, as plain data.

    Raises:
        ValueError: one is unknown, or not what it should be.
    """
    known = TASK_KINDS[task_kind].options
    plain = to_dict(from_dict(known, dict(options), "options"))
    return {name: value for name, value in plain.items() if name != "kind"}
