"""The heads and the formulation of a task, for any model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from unmask.finetuning.formulations.classification_head import (
    classification_heads,
    formulate_classification,
)
from unmask.finetuning.formulations.cloze.blank_filling import cloze_heads, formulate_cloze
from unmask.finetuning.formulations.conversations.instructions import (
    formulate_instructions,
    instruction_heads,
)
from unmask.finetuning.formulations.conversations.rewards import formulate_rewards, reward_heads
from unmask.finetuning.formulations.formulation import TaskFormulation
from unmask.finetuning.formulations.multilabel_head import formulate_multilabel, multilabel_heads
from unmask.finetuning.formulations.multiple_choice_head import (
    formulate_multiple_choice,
    multiple_choice_heads,
)
from unmask.finetuning.formulations.picture_classification import (
    formulate_pictures,
    picture_heads,
)
from unmask.finetuning.formulations.span_head import formulate_span, span_heads
from unmask.finetuning.formulations.text_to_text.formulate import (
    formulate_generation,
    generation_heads,
)
from unmask.finetuning.formulations.text_to_text.word_labels import with_number_labels
from unmask.finetuning.formulations.token_classification_head import (
    formulate_tagging,
    tagging_heads,
)
from unmask.heads.spec import HeadSpec
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.tasks.task import Task, TaskExample
from unmask.tasks.task_kind import CompletesTask, FormulationName
from unmask.tokenizers.encode import Tokenizer
from unmask.zoo.preset import Published


@dataclass(frozen=True)
class _Builder:
    heads: Callable[[Task, Published], dict[str, HeadSpec]]
    formulate: Callable[[Task, Published, Tokenizer], TaskFormulation]
    allows_two_vocabularies: bool = False
    """Whether the model's input and output vocabularies may differ."""


_BUILDERS: Mapping[FormulationName, _Builder] = {
    "text_classification": _Builder(classification_heads, formulate_classification),
    "multilabel_classification": _Builder(multilabel_heads, formulate_multilabel),
    "token_classification": _Builder(tagging_heads, formulate_tagging),
    "span_extraction": _Builder(span_heads, formulate_span),
    "text_to_text": _Builder(generation_heads, formulate_generation, allows_two_vocabularies=True),
    "cloze": _Builder(cloze_heads, formulate_cloze),
    "multiple_choice": _Builder(multiple_choice_heads, formulate_multiple_choice),
    "picture_classification": _Builder(picture_heads, formulate_pictures),
    "instructions": _Builder(instruction_heads, formulate_instructions),
    "rewards": _Builder(reward_heads, formulate_rewards),
}


def _builder(task: Task) -> _Builder:
    return _BUILDERS[TASK_KINDS[task.task_kind].formulation]


def heads_for_task(task: Task, preset: Published) -> dict[str, HeadSpec]:
    """Return the heads that a preset's model needs for a task.

    Raises:
        ValueError: the model does not support the task.
    """
    return _builder(task).heads(task, preset)


def formulate(task: Task, preset: Published, tokenizer: Tokenizer) -> TaskFormulation:
    """Return the formulation of a task for a model.

    Raises:
        ValueError: the maximum length leaves no room for text, two labels have the same tokens, or
            the model has different input and output vocabularies and the task has labels.
    """
    if not _builder(task).allows_two_vocabularies:
        tokenizer.check_single_vocabulary(f"task = {task.task_kind}")
    return _builder(task).formulate(task, preset, tokenizer)


def complete_task(task: Task, preset: Published, examples: Sequence[TaskExample]) -> Task:
    """Return the task, completed from the model and the training examples.

    Raises:
        ImportError: the metric's library is not installed.
        ValueError: the task's name or options do not fit, or all numbers are the same.
    """
    kind = TASK_KINDS[task.task_kind]
    if isinstance(kind, CompletesTask):
        task = kind.complete_task(task, examples)
    return with_number_labels(task, preset, examples)
