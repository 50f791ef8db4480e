"""FinetuneJob: data, initial model and resolved configuration before the first step."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from unmask.batch import Example
from unmask.batching.source_sampling import SourceSampling
from unmask.compression.distillation.forward import DistillationForward
from unmask.compression.distillation.store import open_store
from unmask.finetuning.config import PRETRAINED, RANDOM_INITIALIZATION, FinetuneConfig
from unmask.finetuning.data.batch_stream import count_epoch_steps
from unmask.finetuning.data.read_data import FinetuneData
from unmask.finetuning.formulations.formulation import (
    LABEL_HEAD,
    LimitsDevEvaluation,
    TaskFormulation,
    TaskInput,
)
from unmask.finetuning.initial_model.load import InitialModel
from unmask.finetuning.initial_model.regression_scale import normalize_head
from unmask.finetuning.methods.frozen_states import StateStore
from unmask.finetuning.methods.method import apply_method, training_forward
from unmask.finetuning.options import derived as derived_options
from unmask.heads.model import Model
from unmask.output import OutputStream, print_line
from unmask.planning.rows import RowShape, shape_of_examples
from unmask.planning.run_cost import RunCost
from unmask.tasks.task import Task, TaskExample
from unmask.training.device.distributed import World
from unmask.training.run import BatchStream, TrainingForward

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class FinetuneJob:
    """The state that all runs of a job share."""

    config: FinetuneConfig
    data: FinetuneData
    initial_model: InitialModel
    formulation: TaskFormulation
    """Formulation of the task, with standardized regression targets."""
    train_examples: Sequence[Example]
    """Examples of the training file."""
    teachers: Sequence[Model] = ()
    """Teachers of distillation, with the formulation's regression targets."""
    source_sampling: SourceSampling | None = None
    """Sampling of the parts of a mixture."""
    dev_inputs: Sequence[TaskInput]
    test_inputs: Sequence[TaskInput]
    folder: Path
    keeps_folder: bool = True
    """Whether the folder is kept."""
    peak_flops: float = 0.0
    """FLOP/s of matrix products on this machine. 0: not measured."""
    cost: RunCost = field(default_factory=RunCost)
    """Cost of the runs of this process, planned and measured."""
    state_store: StateStore = field(default_factory=StateStore)
    """States of frozen layers, for all runs in which these are the same."""
    n_trainable_parameters: int = 0
    """Number of trained parameters."""
    n_parameters: int = 0
    """Number of parameters of the model, with added modules."""
    world: World
    run_record: Mapping[str, Any]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    terminal: OutputStream | None

    @property
    def task(self) -> Task:
        """The task."""
        return self.formulation.task

    @property
    def total_steps(self) -> int:
        """Number of steps of a run."""
        return derived_options.count_steps(self.config, self.steps_per_epoch)

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps of an epoch."""
        t = self.config
        return count_epoch_steps(
            self.train_examples, t.batch_size, t.batch_tokens, self.source_sampling
        )

    @cached_property
    def shape(self) -> RowShape:
        """Shape of a training example on the average, in tokens."""
        return shape_of_examples(self.train_examples)

    @property
    def runs(self) -> list[tuple[str, int]]:
        """Arm and seed of each run, the arm under study first."""
        t = self.config
        arms = [RANDOM_INITIALIZATION]
        if self.initial_model.is_pretrained and t.initialize == "pretrained":
            arms = [PRETRAINED, RANDOM_INITIALIZATION] if t.baseline else [PRETRAINED]
        return [(arm, s) for arm in arms for s in range(t.seed, t.seed + t.seeds)]

    @property
    def dev_subset(self) -> tuple[Sequence[TaskExample], Sequence[TaskInput]]:
        """The dev items that are scored in training, evenly spaced, and their inputs.

        Each task of a mixture has equally many, or all of its items.
        """
        items = self.data.dev
        if (
            not isinstance(self.formulation, LimitsDevEvaluation)
            or len(items) <= self.formulation.max_dev_items
        ):
            return items, self.dev_inputs
        parts: dict[str, list[int]] = {}
        for i, item in enumerate(items):
            parts.setdefault(item.component, []).append(i)
        most = max(self.formulation.max_dev_items // len(parts), 1)
        chosen = {
            part[i * len(part) // min(most, len(part))]
            for part in parts.values()
            for i in range(min(most, len(part)))
        }
        return [items[i] for i in sorted(chosen)], [
            q for q in self.dev_inputs if q.item_index in chosen
        ]

    @property
    def summary(self) -> str:
        """A line on data and configuration, in terms of the options."""
        t = self.config
        return (
            f"rows {len(self.data.train):,}, epochs {t.epochs:g}, batch size "
            f"{derived_options.describe_batch_size(t)}, steps {self.total_steps:,}, learning rate "
            f"{t.learning_rate:.3g}, max length {t.max_length}, trainable parameters "
            f"{self.n_trainable_parameters:,} of {self.n_parameters:,}"
        )

    def build_model(self, arm: str, seed: int) -> Model:
        """Build the model of one run, ready for its first step.

        Raises:
            ValueError: the model lacks the parameters that the method trains.
        """
        trained = arm != RANDOM_INITIALIZATION
        model = self.initial_model.build_model(seed, use_pretrained=trained)
        if trained and f"heads.{LABEL_HEAD}.out.weight" in self.initial_model.pretrained_weights:
            normalize_head(model, self.formulation)
        apply_method(self.config.tune, model, seed, self.initial_model.tokenizer)
        return model

    def training_forward(
        self, model: Model, seed: int, batches: BatchStream | None = None
    ) -> TrainingForward | None:
        """Return what computes the training loss of a run; None: its model.

        With the batches of the run, its store of the teachers' predictions is opened.

        Raises:
            ValueError: the model and its teachers have nothing in common that could be compared, or
                the store is of another run.
        """
        own = training_forward(self.config.tune, model)
        if self.config.distillation is None:
            return own
        if own is not None:
            raise ValueError("tune = adamix has a loss of its own: leave the teacher out")
        given, tokenizer = self.config.distillation, self.initial_model.tokenizer
        forward = DistillationForward(model, self.teachers, given, seed)
        if batches is not None:
            forward.use_store(
                open_store(given, self.teachers, tokenizer, seed, lambda: next(batches(None))[0])
            )
        return forward

    def run_folder(self, arm: str, seed: int) -> Path:
        """Return the folder of one run: the job's own if there is only one run."""
        if len(self.runs) == 1:
            return self.folder
        return self.folder / f"{'random-' if arm == RANDOM_INITIALIZATION else ''}seed-{seed}"

    def print_progress(self, text: str) -> None:
        """Show a line of progress."""
        if self.terminal is not None:
            print_line(text, self.terminal)

    def warn(self, text: str) -> None:
        """Print a warning, also if progress is not shown."""
        _log.warning("%s", text)
