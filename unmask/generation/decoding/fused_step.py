"""A decoder's layers for one more token of each text, without a module call between two products.

At the sizes that a processor generates with, a step is the time to read the weights once and that
of a few hundred small operations. So weights are laid out once for a whole generation
(`PackedLinear`), maps of the same input are one product, and norms and attention are called as
functions. Caches, masks and positions are those of the modules.
"""

from collections.abc import Callable, Collection
from itertools import chain
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unmask.adapters.attach import weights_in_effect
from unmask.batch import Batch
from unmask.generation.decoding.fused_block import FusedBlock
from unmask.generation.decoding.packed_linear import (
    PACKED_LINEARS,
    DecodingPrecision,
    LinearPacker,
)
from unmask.heads.language.language_modeling import LanguageModelingHead
from unmask.heads.model import Model
from unmask.model.backbones.transformer import Block, Transformer
from unmask.model.cache import DecodingCache
from unmask.model.layers.attention.attention import Attention
from unmask.model.layers.feed_forward import Dropout, FeedForward, OffsetRMSNorm, QueryKeyNorm
from unmask.model.layers.layer_pass import LayerInputs
from unmask.model.layers.quantized_inputs import ProjectionInput
from unmask.model.layers.sublayer_connection import SublayerConnection
from unmask.model.positions.learned import LearnedPositionsModule
from unmask.model.positions.module import PositionLayer, PositionModule, SelectedHeads
from unmask.model.positions.relative_bias import RelativePositionBiasModule
from unmask.model.positions.rotary import (
    LayerwiseRotaryLayer,
    LayerwiseRotaryModule,
    RotaryLayer,
    RotaryModule,
)
from unmask.model.positions.sinusoidal import SinusoidalModule
from unmask.model.requested_states import has_hooks

COVERED_MODULES: frozenset[type[nn.Module]] = frozenset(
    {
        nn.Embedding, nn.Identity, nn.LayerNorm, nn.Linear, nn.ModuleList, nn.RMSNorm,
        Attention, Block, Dropout, FeedForward, LanguageModelingHead, LayerwiseRotaryLayer,
        LayerwiseRotaryModule, LearnedPositionsModule, OffsetRMSNorm, PositionLayer, PositionModule,
        ProjectionInput, QueryKeyNorm, RelativePositionBiasModule, RotaryLayer, RotaryModule,
        SelectedHeads, SinusoidalModule, SublayerConnection, Transformer,
    }
)  # fmt: skip
"""The modules that a fused step computes, or calls. A decoder with any other has none."""


MIN_STEPS = 8
"""Steps below which laying out the weights, which takes as long as reading them a few times, does
not pay."""

MAX_COPIED_WEIGHTS = 2**28
"""Weights above which float32 ones, 1 GiB, are not copied for the sake of speed."""


def fused_step(
    model: Model, n_steps: int, precision: DecodingPrecision = "float32"
) -> "FusedStep | None":
    """Return what reads single tokens of a model in place of its modules.

    None: they do, since it is not covered (`FusedStep.covers`), or too large, or there are few
    steps.

    Args:
        model: the model.
        n_steps: tokens that will be read one after another.
        precision: type of the weights in products.

    Raises:
        ValueError: another precision than float32 is asked for, but the processor does not
            multiply in it, or the model's steps are those of its modules.
    """
    if precision == "float32":
        pays = n_steps >= MIN_STEPS and model.parameter_count() <= MAX_COPIED_WEIGHTS
        return FusedStep(model, precision) if pays and FusedStep.covers(model) else None
    if not PACKED_LINEARS[precision].is_supported():
        raise ValueError(f'precision "{precision}": this processor does not multiply in it')
    if not FusedStep.covers(model):
        raise ValueError(
            f'precision "{precision}" is for models in float32 on the CPU whose layers are plain '
            "Transformer blocks, with no adapter but LoRA or (IA)3: leave it out"
        )
    return FusedStep(model, precision)


class FusedStep:
    """One more token of each text: hidden states of embeddings, and logits of these."""

    def __init__(self, model: Model, precision: DecodingPrecision) -> None:
        """Take the weights; `covers` says whether it can."""
        self.stack: Any = model.backbone.decoder_stack
        self.head = model.language_head
        in_effect = weights_in_effect(model)
        assert in_effect is not None
        with torch.no_grad():
            merged = in_effect.merged_weights()
        replaced = {model.get_parameter(name): w for name, w in merged.items()}
        packer = LinearPacker(precision, replaced)
        self._blocks = [FusedBlock(block, packer) for block in self.stack.layers]
        self._output = packer.pack_weights([self.head.weight], [self.head.bias])

    @property
    def supports_branches(self) -> bool:
        """Whether no layer forgets columns, whose order is not that of texts in branches."""
        a = self.stack.a
        return all(a.window_and_dilation(i) == (None, 1) for i in range(a.n_layers))

    @staticmethod
    def covers(model: Model) -> bool:
        """Return whether all that a step computes is known here: no hooks, no other modules.

        Its weights must be float32, on the CPU. An adapter that can be merged is read as merged.
        """
        stack: Any = model.backbone.decoder_stack
        in_effect = weights_in_effect(model)
        if (
            type(model) is not Model
            or type(stack) is not Transformer
            or in_effect is None
            or model.appended_mask_generation is not None
            or model.device.type != "cpu"
        ):
            return False
        modules = [*stack.modules(), *model.language_head.modules()]
        weights = chain.from_iterable(part.parameters(recurse=False) for part in modules)
        return all(_is_covered(one, in_effect.hooks) for one in modules) and {
            w.dtype for w in weights
        } == {torch.float32}

    def next_token_logits(self, batch: Batch, cache: DecodingCache) -> Float[Tensor, "b 1 v"]:
        """Read one token of each text after what is in the cache; return the logits after it."""
        x = self.embed(batch, cache.length)
        inputs_of = self.stack.layer_inputs(x, batch, cache, None, batch.source_visibility)
        return self.logits(x, lambda i: inputs_of(i, x))

    def embed(self, batch: Batch, n_past: int) -> Float[Tensor, "b t d"]:
        """Return the inputs of the first layer."""
        return self.stack.widen(self.stack.embed(batch, n_past))

    def logits(
        self, x: Float[Tensor, "b t d"], inputs_of: Callable[[int], LayerInputs]
    ) -> Float[Tensor, "b t v"]:
        """Apply the layers and the head to embedded tokens."""
        b, t, _ = x.shape
        x = x.flatten(0, 1)
        for i, block in enumerate(self._blocks):
            x = block(x, b, inputs_of(i))
        hidden = self.head.transform_hidden(self.stack.final_norm.forward(x))
        return self.head.softcapped(self._output(hidden).float()).view(b, t, -1)


def _is_covered(module: nn.Module, but_for: Collection[int]) -> bool:
    return type(module) in COVERED_MODULES and not has_hooks(module, but_for)
