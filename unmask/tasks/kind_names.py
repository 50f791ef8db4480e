"""Names of the kinds of tasks, without heavy imports."""

from typing import Literal, get_args

TaskKindName = Literal[
    "classify", "pairs", "regress", "tag", "answer", "generate", "cloze", "choose", "multilabel",
    "pictures", "instruct", "prefer",
]  # fmt: skip
TASK_KIND_NAMES: tuple[TaskKindName, ...] = get_args(TaskKindName)
