"""Memory of training by part, from the network's shapes, before a weight exists.

What is counted is what this library's own training keeps: in bfloat16 the weights twice (the
model's, and float32 masters), one float32 buffer of gradients, the optimizer's state, activations
until their backward, and what a step needs for a moment.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import nn

from unmask.heads.language.linear_cross_entropy import ROWS_PER_CHUNK
from unmask.heads.model import Model
from unmask.model.architecture import StackArchitecture
from unmask.model.backbones.block_architecture import BlockArchitecture
from unmask.model.layers.attention.attention import EAGER_MAX_KEYS
from unmask.planning.hardware import ITEM_BYTES
from unmask.planning.rows import RowShape
from unmask.training.device.gathered_layers import separate_layers
from unmask.training.optimizers import config as optimizers
from unmask.training.optimizers.build import hidden_matrix_names

Strategy = Literal["single", "ddp", "fsdp"]
"""What devices share: nothing, the batch, or the batch and all training state (ZeRO stage 3,
Rajbhandari et al. 2020, arXiv:1910.02054)."""

FLOAT32_BYTES = 4
KEPT_SHARE = 0.35
"""Of what a micro-batch allocates on a CPU, what glibc comes to keep beside it and beside what it
had kept before the first step (`RUN_PROCESS_BYTES`): with both, eight of twelve presets are within
10 % (docs/planning.md). Before glibc 2.38 the place of an aligned block is not used
again for one of the same size (sourceware.org, bug 14581)."""
_SOFTMAX_SHARE = 0.4
"""Of the 2.5 numbers per score that `activations` counts (the softmax, its dropout mask at half a
number, and its dropped-out form), the one that is kept without dropout."""


@dataclass(frozen=True, kw_only=True)
class TrainingMemory:
    """Bytes on one device, by part."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    """Kept from the forward to the backward of a micro-batch."""
    workspace: int
    """Needed for a moment: logits and their gradient, gradients of a layer's activations, weights
    that other devices hold."""
    process: int = 0
    """Of the program itself, where the device's memory is the machine's."""
    teachers: int = 0
    """Weights of the teachers of distillation."""
    allocator: int = 0
    """Freed, but kept by the C library: batches differ in shape from step to step, and what one
    left does not fit the next."""

    @property
    def total(self) -> int:
        """All parts together."""
        return (
            self.weights
            + self.gradients
            + self.optimizer
            + self.activations
            + self.workspace
            + self.process
            + self.teachers
            + self.allocator
        )

    @property
    def working(self) -> int:
        """Of a micro-batch: what is allocated in it and freed after it."""
        return self.activations + self.workspace

    def with_working(self, n_bytes: int, kept_share: int | float) -> "TrainingMemory":
        """Return it with the measured bytes of a micro-batch in place of the counted ones.

        `kept_share`: what the allocator keeps beside, as a share of these.
        """
        workspace = min(self.workspace, n_bytes)
        return replace(
            self,
            activations=n_bytes - workspace,
            workspace=workspace,
            allocator=round(kept_share * n_bytes),
        )


@dataclass(frozen=True, kw_only=True)
class MemorySettings:
    """What memory depends on beside network and recipe."""

    precision: str
    """float32, bfloat16 or float16."""
    strategy: Strategy = "single"
    n_devices: int = 1
    checkpoint_activations: bool = False
    """Only what enters a layer is kept, and all else is computed again in the backward (Chen et al.
    2016, arXiv:1604.06174)."""
    on_cpu: bool = False
    process_bytes: int = 0


def weight_bytes_per_parameter(precision: str) -> int:
    """Return the bytes of one weight in training: float32, and its copy of 16 bits."""
    return FLOAT32_BYTES + (0 if precision == "float32" else ITEM_BYTES[precision])


def state_bytes(n_parameters: int, precision: str, optimizer_numbers: int) -> int:
    """Return the bytes of weights, gradients and optimizer state on one device."""
    per_parameter = weight_bytes_per_parameter(precision) + FLOAT32_BYTES
    return per_parameter * n_parameters + FLOAT32_BYTES * optimizer_numbers


def optimizer_numbers(config: optimizers.OptimizerConfig, model: Model) -> int:
    """Count the float32 numbers that an optimizer remembers of a model's trained parameters."""
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    return _STATE_NUMBERS[type(config)](config, model, trained)


def _two_moments(_: Any, __: Model, trained: Mapping[str, nn.Parameter]) -> int:
    return 2 * _count(trained)


def _of_muon(_: optimizers.Muon, model: Model, trained: Mapping[str, nn.Parameter]) -> int:
    matrices = hidden_matrix_names(model)
    return sum((1 if name in matrices else 2) * p.numel() for name, p in trained.items())


def _of_adafactor(_: optimizers.Adafactor, __: Model, trained: Mapping[str, nn.Parameter]) -> int:
    return sum(
        p.numel() if p.ndim <= 1 else p.numel() // p.shape[-1] + p.numel() // p.shape[-2]
        for p in trained.values()
    )


def _of_sgd(config: optimizers.SGD, _: Model, trained: Mapping[str, nn.Parameter]) -> int:
    copies = (config.momentum > 0) + (config.averaging_patience is not None)
    return copies * _count(trained)


_STATE_NUMBERS: Mapping[type, Callable[[Any, Model, Mapping[str, nn.Parameter]], int]] = {
    optimizers.AdamW: _two_moments,
    optimizers.LAMB: _two_moments,
    optimizers.Muon: _of_muon,
    optimizers.Adafactor: _of_adafactor,
    optimizers.SGD: _of_sgd,
}


def _count(parameters: Mapping[str, nn.Parameter]) -> int:
    return sum(p.numel() for p in parameters.values())


def training_memory(
    model: Model,
    optimizer: optimizers.OptimizerConfig,
    shape: RowShape,
    micro_batch_tokens: int,
    settings: MemorySettings,
    teachers: Collection[Model] = (),
) -> TrainingMemory:
    """Estimate the memory of training on one device.

    Args:
        model: the network, perhaps on the meta device.
        optimizer: which, with its settings.
        shape: of rows.
        micro_batch_tokens: positions of the stack that reads texts, in one forward.
        settings: precision, strategy, devices.
        teachers: models that it learns from, each whole on every device.
    """
    parameters = dict(model.named_parameters())
    n_trained = sum(p.numel() for p in parameters.values() if p.requires_grad)
    parts = settings.n_devices if settings.strategy == "fsdp" else 1
    activations, layer = _activation_numbers(model, shape, micro_batch_tokens, settings)
    item = ITEM_BYTES[settings.precision]
    workspace = item * max(layer, _logit_numbers(model, shape, micro_batch_tokens))
    per_weight = weight_bytes_per_parameter(settings.precision)
    if parts > 1:
        workspace += _gathered_bytes(model, item)
        per_weight = FLOAT32_BYTES  # those of the type that it computes in are gathered
    return TrainingMemory(
        weights=per_weight * _count(parameters) // parts,
        gradients=FLOAT32_BYTES * n_trained // parts,
        optimizer=FLOAT32_BYTES * optimizer_numbers(optimizer, model) // parts,
        activations=item * activations,
        workspace=workspace,
        allocator=round(KEPT_SHARE * (item * activations + workspace)) if settings.on_cpu else 0,
        process=settings.process_bytes,
        teachers=sum(w.nbytes for one in teachers for w in one.parameters()),
    )


def _activation_numbers(
    model: Model, shape: RowShape, tokens: int, settings: MemorySettings
) -> tuple[int, int]:
    """Count what all stacks keep, and the gradients that exist at once in a layer's backward.

    These are of the inner width f of the feed-forward layer and of its output: f + d, of the
    9 d + 2 f that the layer keeps, about a third.
    """
    kept, widest = 0, 0
    for a, ratio in _read_stacks(model, shape):
        own, length = int(tokens * ratio), max(1, math.ceil(shape.length * ratio))
        per_token = _numbers_per_token(a, length, settings)
        if settings.checkpoint_activations:
            per_token = a.n_layers * a.d_model + per_token // a.n_layers
        kept += own * per_token
        widest = max(widest, own * a.activations(0) // a.n_layers // 3)
    for network in model.networks:
        if (pictures := network.a.picture_stack) is not None:
            n_patches = pictures.max_positions or 0
            of_stacks = (a.annotation_activations(n_patches) for a in network.a.stacks.values())
            kept += tokens * sum(of_stacks)
    return kept, widest


def _read_stacks(model: Model, shape: RowShape) -> Iterator[tuple[StackArchitecture, float]]:
    """Yield all stacks, each with the tokens that it computes by positions."""
    share = model.read_share(shape.target_fraction)
    for network in model.networks:
        for a in network.a.stacks.values():
            ratio = shape.decoder_ratio if a.attends_to_encoder else shape.encoder_ratio
            if a.reads_pictures:  # also beside texts of another length
                ratio = (a.max_positions or shape.length) / shape.length
            yield a, share * ratio
    for spec in model.head_specs.values():
        if (own := spec.own_stack(model.decoder_architecture)) is not None:
            yield own, float(shape.encoder_ratio)


def _numbers_per_token(a: StackArchitecture, length: int, settings: MemorySettings) -> int:
    """Count what a stack keeps of one token, the scores of attention only if they are kept."""
    linear = a.activations(0)
    scores = a.activations(length) - linear
    if not isinstance(a, BlockArchitecture):
        return linear
    drops = a.attention_dropout > 0
    eager = a.position.adds_bias
    if settings.on_cpu:
        eager = eager or drops or (settings.precision == "bfloat16" and length <= EAGER_MAX_KEYS)
    if not eager:
        return linear
    return linear + (scores if drops else int(_SOFTMAX_SHARE * scores))


def _logit_numbers(model: Model, shape: RowShape, tokens: int) -> int:
    """Count logits that exist at once, and the gradient of the output matrix.

    Cross-entropy is computed `ROWS_PER_CHUNK` rows at a time, the next ones before the last are
    gone.
    """
    a = model.architecture
    rows = max((p.shape[0] for p in model.parameters() if p.ndim == 2), default=0)
    vocab, width = min(a.vocab_size, rows), a.d_model  # code points have no table of their own
    targets = math.ceil(tokens * shape.tokens_per_position * shape.target_fraction)
    return vocab * (min(targets, 2 * ROWS_PER_CHUNK) + width)


def _gathered_bytes(model: Model, item_bytes: int) -> int:
    """Count the bytes of weights that a process gathers, and of their gradients before the sum.

    What is in no separate layer is gathered for the whole pass, with its gradient; of the layers
    two are there at once, one in use and the next one on its way.
    """
    layers = [sum(p.numel() for p in one.parameters()) for one in separate_layers(model)]
    rest = sum(p.numel() for p in model.parameters()) - sum(layers)
    units = 2 * max(layers, default=0) + rest
    return item_bytes * units + (item_bytes + FLOAT32_BYTES) * max([rest, *layers])
