"""TASK_KINDS: the explicit dict of all kinds of tasks."""

from collections.abc import Mapping
from typing import Any

from unmask.config import from_dict, to_dict
from unmask.finetuning.ask import Ask
from unmask.finetuning.kinds.answer import ANSWER
from unmask.finetuning.kinds.choose import CHOOSE
from unmask.finetuning.kinds.classify import CLASSIFY, PAIRS
from unmask.finetuning.kinds.cloze import CLOZE
from unmask.finetuning.kinds.generate import GENERATE
from unmask.finetuning.kinds.kind import TaskKind
from unmask.finetuning.kinds.multilabel import MULTILABEL
from unmask.finetuning.kinds.regress import REGRESS
from unmask.finetuning.kinds.tag import TAG
from unmask.heads.model import HeadSpec
from unmask.published.card import Published
from unmask.tasks.task import Kind, Task
from unmask.tokens.tokenizer import Tokenizer

TASK_KINDS: Mapping[Kind, TaskKind] = {
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


def heads_for(task: Task, card: Published) -> dict[str, HeadSpec]:
    """Return the heads that a card's model needs for a task.

    Raises:
        ValueError: this kind of model cannot do this task.
    """
    return TASK_KINDS[task.does].heads(task, card)


def ask(task: Task, card: Published, tokenizer: Tokenizer) -> Ask:
    """Choose how a model is asked.

    Raises:
        ValueError: the length leaves no room for text, two labels are the same words to the
            tokenizer, or the model reads in another vocabulary than it speaks, and shall label.
    """
    if task.does != "generate":
        tokenizer.check_reads(f"task = {task.does}")
    return TASK_KINDS[task.does].ask(task, card, tokenizer)


def choose_metric(task: Task, asked: str | None) -> str:
    """Return the metric that is asked for, or the customary one.

    Raises:
        ValueError: there is no such metric for this task.
    """
    fitting = TASK_KINDS[task.does].metrics(task)
    if asked is None:
        return fitting[0]
    if asked not in fitting:
        with_labels = f" with {len(task.labels)} labels" if task.labels else ""
        raise ValueError(
            f"metric must be one of {', '.join(fitting)} for this {task.does} task{with_labels}, "
            f"got {asked!r}"
        )
    return asked


def options(kind: Kind, given: Mapping[str, Any]) -> dict[str, Any]:
    """Complete the options of a task by their defaults, as plain data.

    Raises:
        ValueError: one is unknown, or not what it should be.
    """
    known = TASK_KINDS[kind].options
    plain = to_dict(from_dict(known, dict(given), "options"))
    return {name: value for name, value in plain.items() if name != "kind"}
