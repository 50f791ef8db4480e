"""Sequence-level distillation: the outputs of a teacher become the targets of a student.

Kim and Rush 2016, arXiv:1606.07947.
"""

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from unmask.config import check_number_fields
from unmask.finetuning.formulations.build import formulate
from unmask.finetuning.results.predict import select_columns
from unmask.generation.settings import BeamSearch
from unmask.jobs.augment.table import TrainingTable
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.tasks.metrics.generation import nearest_by_bleu
from unmask.tasks.task import Task, TaskExample
from unmask.text.formats.records import format_names

if TYPE_CHECKING:
    from unmask.finetuning.formulations.text_to_text.text_to_text import TextToTextFormulation

_ROWS_AT_ONCE = 256
"""Rows between two lines of progress."""


@dataclass(frozen=True, kw_only=True)
class TeacherOutputs:
    """The best hypothesis of beam search in place of each target (section 3.2).

    With `interpolate`, of all hypotheses of the beam the one nearest to the reference by smoothed
    sentence BLEU, of ties the more probable one (section 3.3, equation for the K-best list).
    """

    beams: int = 5
    """Beam size (section 4.2: 5, and 35 with `interpolate`)."""
    interpolate: bool = False
    """Whether the hypothesis nearest to the reference is taken."""
    length_penalty: float = 1.0
    """Exponent of the length by which a hypothesis's log-probability is divided."""

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        check_number_fields(self)
        self.search()

    def search(self) -> BeamSearch:
        """Return the beam search, which keeps all hypotheses.

        Raises:
            ValueError: a number is out of range.
        """
        return BeamSearch(beams=self.beams, n_best=self.beams, length_penalty=self.length_penalty)

    def new_rows(self, source: TrainingTable) -> Iterator[dict[str, Any]]:
        """Yield the rows with the teacher's outputs; rows for which it writes nothing are left out.

        Raises:
            ImportError: `interpolate` needs sacrebleu.
            ValueError: the model generates no texts of a task, or the table does not fit it.
        """
        if self.interpolate and importlib.util.find_spec("sacrebleu") is None:
            raise ImportError("interpolate needs sacrebleu: pip install 'unmask[text-metrics]'")
        task = _task_of(source)
        pipeline = source.pipeline
        formulation = cast(
            "TextToTextFormulation", formulate(task, pipeline.preset, pipeline.tokenizer)
        )
        items = self._read(source, task)
        for first in range(0, len(items), _ROWS_AT_ONCE):
            some = items[first : first + _ROWS_AT_ONCE]
            inputs = formulation.build_inputs([replace(item, label=None) for item in some])
            candidates = formulation.candidates(pipeline.model, inputs, self.search())
            for i, (item, texts) in enumerate(zip(some, candidates, strict=True), first):
                target = self._target(item, [text for text in texts if text.strip()])
                if target is not None:
                    yield source.row(i) | {task.columns.label: target}
            source.show_progress(first + len(some))

    def _target(self, item: TaskExample, texts: Sequence[str]) -> str | None:
        if not texts:
            return None
        if not self.interpolate:
            return texts[0]
        assert isinstance(item.label, tuple)
        return nearest_by_bleu(texts, item.label)

    def _read(self, source: TrainingTable, task: Task) -> list[TaskExample]:
        """Read the sources and, to interpolate, the references."""
        table, kind = source.table, TASK_KINDS[task.task_kind]
        if self.interpolate:
            table.check_column(task.columns.label)
        items = kind.reader.read_examples(
            table,
            task.columns,
            source.encoding_errors,
            has_labels=self.interpolate,
            options=task.options,
        )
        if self.interpolate:
            kind.check_examples(items, (), task.columns.label)
        return items


def _task_of(source: TrainingTable) -> Task:
    """Return the teacher's task, with the columns of the table.

    Raises:
        ValueError: it has none, or one whose outputs are no free texts.
    """
    task, name = source.pipeline.task, source.pipeline.preset.name
    if task is None or task.task_kind != "generate":
        found = "none" if task is None else task.task_kind
        raise ValueError(
            f"outputs: {name} must be fine-tuned with task = generate, got {found}; "
            "finetune --teacher learns from models of other tasks"
        )
    if task.options.get("task_templates"):
        raise ValueError(
            f"outputs: {name} was fine-tuned on a mixture of tasks "
            f"({format_names(list(task.options['task_templates']))}); give one of them: "
            "unmask.load(...).mixture_task(NAME)"
        )
    task = select_columns(task, source.table, source.text)
    columns = TASK_KINDS[task.task_kind].reader.find_text_columns(source.table, task.columns)
    return replace(task, columns=replace(columns, label=source.label or columns.label))
