"""A training run: model, optimizer, data and progress, as the loop moves them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.heads.prediction import Prediction, Term
from unmask.objectives.features import Recurrence, RecurrenceMemory
from unmask.training.config import Recipe
from unmask.training.device.distributed import World
from unmask.training.device.recomputation import LayerRecomputation
from unmask.training.interrupt import StopRequest as StopRequest
from unmask.training.interrupt import stop_after_step as stop_after_step
from unmask.training.optimizers.master_weights import MasterWeights
from unmask.training.optimizers.state import Optimizer
from unmask.training.step_report import LossSums, RecentSteps

if TYPE_CHECKING:  # its modules of torch take a second to load
    from unmask.training.device.sharding import ShardedModel

MicroBatches = Sequence[Batch]
"""What goes through the model in one step, some texts at a time."""
BatchStream = Callable[[Any], Iterator[tuple[MicroBatches, Any]]]
"""From a place in the data (None: its beginning): for each step, the micro-batches of this process
and the place after it. A place is plain data, since it is written as JSON."""


@runtime_checkable
class CountsTargets(Protocol):
    """A model that counts its targets before the forward pass."""

    def count_targets(self, batch: Batch) -> Mapping[str, int]:
        """Count the targets of each loss term."""
        ...


@runtime_checkable
class TrainingForward(CountsTargets, Protocol):
    """What answers in place of a model in training; see `unmask.adapters.consistency`."""

    def __call__(self, batch: Batch) -> Prediction:
        """Compute the predictions of a batch, for as many targets as were counted."""
        ...


@dataclass(frozen=True, kw_only=True)
class RunProgress:
    """How far a run is."""

    step: int = 0
    n_tokens: int = 0
    cursor: Any = None
    """The place in the data of the next step."""
    n_skipped: int = 0
    n_skipped_in_a_row: int = 0
    """Skipped steps since the last one that was not."""
    sums_since_log: LossSums = field(default_factory=LossSums)
    """Of the steps since the last logged one."""
    recent: RecentSteps = field(default_factory=RecentSteps)
    """By which a spike is known, if the recipe skips them."""


@dataclass
class TrainingRun:
    """Everything that changes while training, and what it is made by."""

    recipe: Recipe
    model: nn.Module
    """The model that computes: with `sharded`, a copy of that which is saved."""
    forward: Callable[[Batch], Prediction]
    """The model, or what answers in its place, compiled if the recipe says so."""
    target_counter: CountsTargets
    """The same, uncompiled."""
    weights: MasterWeights
    optimizer: Optimizer
    batches: BatchStream
    world: World
    sharded: "ShardedModel | None" = None
    """The copy that is divided among the processes."""
    recomputation: LayerRecomputation | None = None
    """Layers that keep only their inputs."""
    progress: RunProgress = field(default_factory=RunProgress)
    is_updating: bool = False
    """In the middle of changing weights: what there is now is no step's result."""
    memories: "MicroBatchMemories" = field(init=False)
    """Of the streams that this process reads."""

    def __post_init__(self) -> None:
        self.memories = MicroBatchMemories(self.recipe.memory_length)


class MicroBatchMemories:
    """Memory of each micro-batch, for the same micro-batch of the next step."""

    def __init__(self, memory_length: int) -> None:
        self.memory_length = memory_length
        """Places of each; 0: there are none."""
        self._memory_of: dict[int, RecurrenceMemory] = {}

    def attach(self, micro_index: int, batch: Batch) -> Batch:
        """Attach the memory of the preceding rows to micro-batch i."""
        recurrence = batch.feature(Recurrence)
        if not self.memory_length or recurrence is None or recurrence.continues is None:
            return batch
        known = self._memory_of.get(micro_index)
        states = known.hidden_states if known is not None else []
        if not recurrence.continues or (states and len(states[0]) != len(batch.inputs)):
            known = None
        self._memory_of[micro_index] = known or RecurrenceMemory(self.memory_length)
        return batch.with_feature(replace(recurrence, memory=self._memory_of[micro_index]))

    def reset(self) -> None:
        """Begin anew."""
        self._memory_of = {}

    def tensors(self) -> dict[str, Tensor]:
        """Return all that is remembered, by micro-batch and layer."""
        return {
            f"{i}.{layer}": states
            for i, memory in self._memory_of.items()
            for layer, states in enumerate(memory.hidden_states)
        }

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Remember what `tensors` returned."""
        self.reset()
        for name, states in sorted(tensors.items(), key=lambda item: _parse_memory_name(item[0])):
            i, _ = _parse_memory_name(name)
            self._memory_of.setdefault(
                i, RecurrenceMemory(self.memory_length)
            ).hidden_states.append(states)


def _parse_memory_name(name: str) -> tuple[int, int]:
    i, layer = name.split(".")
    return int(i), int(layer)


def sum_terms(term_lists: Iterable[Mapping[str, Term]]) -> dict[str, Tensor]:
    """Sum the loss terms of several batches on the device."""
    sums: dict[str, Tensor] = {}
    for terms in term_lists:
        for name, term in terms.items():
            values = {f"total.{name}": term.total}
            if term.n_correct is not None:
                values[f"correct.{name}"] = term.n_correct
            for key, value in values.items():
                value = value.detach().double()
                sums[key] = sums[key] + value if key in sums else value
    return sums


def sum_target_counts(
    term_lists: Iterable[Mapping[str, Term]], names: Iterable[str]
) -> dict[str, int]:
    """Sum the numbers of targets of several batches; of `names` also where there are none."""
    counts = dict.fromkeys(names, 0)
    for terms in term_lists:
        for name, term in terms.items():
            counts[name] = counts.get(name, 0) + term.count
    return counts


def loss_sums(
    values: Mapping[str, float], counts: Mapping[str, int], term_lists: Iterable[Mapping[str, Term]]
) -> LossSums:
    """Return the sums of batches from those of `sum_terms`, as numbers, and their targets."""
    correct = {name: f"correct.{name}" for name in counts}
    return LossSums(
        {name: values.get(f"total.{name}", 0.0) for name in counts},
        counts,
        {name: int(values[key]) for name, key in correct.items() if key in values},
        {name: t.weight for terms in term_lists for name, t in terms.items() if t.weight != 1},
    )


def read_scalars(tensors: Mapping[str, Tensor]) -> dict[str, float]:
    """Copy scalars from the device in one transfer."""
    if not tensors:
        return {}
    values: list[float] = torch.stack([t.detach().double() for t in tensors.values()]).tolist()
    return dict(zip(tensors, values, strict=True))
