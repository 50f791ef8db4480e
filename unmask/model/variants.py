"""Parts of an architecture in which some published Transformers differ from most others."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from unmask.model.backbones.evolved.parts import LayerType
from unmask.model.layers.convolution import NgramInputEncoding
from unmask.model.layers.feed_forward import Activation
from unmask.model.layers.per_layer import FactorizedMap, LayerWidths, select_cyclic

Sublayer = Literal["attention", "feed_forward"]


@dataclass(frozen=True, kw_only=True)
class AttentionVariant:
    """Differences of attention from Vaswani et al. 2017, section 3.2."""

    scale: float | None = None
    """Factor of the scores. None: 1 / sqrt(e); T5: 1."""
    logit_softcapping: float | None = None
    """Cap of the scores s, which become cap tanh(s / cap) (Bello et al. 2017, arXiv:1611.09940)."""
    query_key_norm: Literal["head", "all"] | None = None
    """Norm of queries and keys, of each head or of all heads together (Dehghani et al. 2023,
    arXiv:2302.05442, section 2)."""
    gate: Activation | None = None
    """Activation of a gate: the output is multiplied by it, applied to a linear map of the input
    (Charpentier and Samuel 2024, arXiv:2410.24159, section 3)."""
    dilation: tuple[int, ...] = ()
    """Dilation of each layer's window, repeated cyclically: with n, a token attends to every n-th
    column, n times as far (Beltagy et al. 2020, section 3.1, "Dilated Sliding Window"). Empty:
    1."""
    global_tokens: bool = False
    """Whether the `GlobalTokens` of a batch attend beyond the window, with separate projections
    (Beltagy et al. 2020, section 3.1)."""

    def __post_init__(self) -> None:
        if any(d < 1 for d in self.dilation):
            raise ValueError(f"dilation must be at least 1 in each layer, got {self.dilation}")
        cap = self.logit_softcapping
        if cap is not None and not 0 < cap < math.inf:
            raise ValueError(f"logit_softcapping must be a number above 0, got {cap}")


@dataclass(frozen=True)
class SequentialSublayers:
    """The feed-forward layer follows attention (Vaswani et al. 2017)."""


@dataclass(frozen=True)
class ParallelSublayers:
    """Attention and feed-forward have the same input (Wang and Komatsuzaki 2021, GPT-J)."""

    shared_norm: bool = False
    """Whether both share one norm; otherwise each has its own."""


@dataclass(frozen=True)
class DepthWeightedSublayers:
    """The input of each sublayer, and the last output, is a learned weighted sum.

    The terms are the token embeddings and the outputs of all earlier sublayers (Pagliardini et al.
    2024, arXiv:2402.02622, section 3; here after each sublayer, not only after each block).
    """


Sublayers = SequentialSublayers | ParallelSublayers | DepthWeightedSublayers
"""The connection of sublayers."""


@dataclass(frozen=True, kw_only=True)
class LayerVariants:
    """Differences between the layers of a stack."""

    types: tuple[LayerType | None, ...] = ()
    """Type of each layer, repeated cyclically. None or empty: attention and a feed-forward
    layer."""
    shared_sublayers: frozenset[Sublayer] = frozenset()
    """Sublayers that all layers share, with their norms (Lan et al. 2020, section 3.1)."""
    ngram_encoding: NgramInputEncoding | None = None
    """Convolution parallel to the first layer (He et al. 2021, section 5.3)."""
    widths: LayerWidths | None = None
    """Heads and feed-forward widths of each layer. None: those of the stack."""
    factorized: tuple[FactorizedMap, ...] = ()
    """Linear maps that are stored as two factors; "tokens": the table of tokens."""

    def with_layers(self, indices: Sequence[int]) -> "LayerVariants":
        """Return the differences between some of the layers.

        Raises:
            ValueError: layers share their weights, or the first one cannot be removed.
        """
        if self.shared_sublayers:
            raise ValueError(
                f"layers share their weights ({', '.join(sorted(self.shared_sublayers))}), so that "
                "fewer layers would not be fewer weights"
            )
        if self.ngram_encoding is not None and 0 not in indices:
            raise ValueError("ngram_encoding belongs to layer 0, which must stay")
        return replace(
            self,
            types=select_cyclic(self.types, indices),
            widths=None if self.widths is None else self.widths.with_layers(indices),
            factorized=tuple(
                part.in_layer(new)
                for new, old in enumerate(indices)
                for part in self.factorized
                if part.layer_index == old
            )
            + tuple(part for part in self.factorized if part.is_table),
        )

    def undivided(self) -> "LayerVariants":
        """Return the same of layers of one width, with whole linear maps."""
        return replace(self, widths=None, factorized=())
