"""What tasks of conversations have beside others: items without an input, and packed rows."""

from collections.abc import Sequence
from typing import Any, cast

from unmask.finetuning.formulations.conversations.instructions import InstructionFormulation
from unmask.finetuning.formulations.conversations.rewards import RewardFormulation
from unmask.finetuning.formulations.formulation import TaskFormulation
from unmask.tasks.all_kinds import reads_conversations
from unmask.tasks.task import TaskExample


def fitting_items(
    formulation: TaskFormulation, items: Sequence[TaskExample]
) -> tuple[Sequence[TaskExample], list[str]]:
    """Return the items that have an input, and a phrase for each reason that others have none.

    Conversations that are too long have none; of other tasks all items have one.
    """
    if not reads_conversations(formulation.task):
        return items, []
    return cast("InstructionFormulation | RewardFormulation", formulation).fitting_items(items)


def score_metrics(
    formulation: TaskFormulation, items: Sequence[TaskExample], scores: Sequence[Any]
) -> dict[str, float]:
    """Return metrics of scores, not of predictions: of rewards; other tasks have none."""
    if formulation.task.task_kind != "prefer":
        return {}
    return cast("RewardFormulation", formulation).score_metrics(items, scores)


def row_length(formulation: TaskFormulation) -> int | None:
    """Return the length of rows in which several conversations lie; None: each has its own row."""
    if formulation.task.task_kind != "instruct":
        return None
    return cast("InstructionFormulation", formulation).row_length
