"""Parts of an architecture in which published Transformers differ, each from what most have."""

import math
from dataclasses import dataclass
from typing import Literal

from unmask.model.backbones.evolved_parts import LayerType
from unmask.model.layers.convolution import NgramInputEncoding
from unmask.model.layers.feed_forward import Activation

Sublayer = Literal["attention", "feed_forward"]


@dataclass(frozen=True, kw_only=True)
class AttentionVariant:
    """How attention differs from Vaswani et al. 2017, section 3.2."""

    scale: float | None = None
    """Of the scores. None: 1 / sqrt(e); T5: 1."""
    logit_softcapping: float | None = None
    """Scores s become cap tanh(s / cap) (Bello et al. 2017, arXiv:1611.09940)."""
    query_key_norm: Literal["head", "all"] | None = None
    """Queries and keys are normalized, each head or all heads together (Dehghani et al. 2023,
    arXiv:2302.05442, section 2)."""
    gate: Activation | None = None
    """The output is multiplied by this activation of a linear map of the input (Charpentier and
    Samuel 2024, arXiv:2410.24159, section 3)."""
    dilation: tuple[int, ...] = ()
    """Of a layer's window, by layer, repeated cyclically: a token attends to every n-th column
    only, and n times as far (Beltagy et al. 2020, section 3.1, "Dilated Sliding Window"). Nothing:
    1."""
    global_tokens: bool = False
    """The `GlobalTokens` of a batch are bound by no window; they attend by projections of their own
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
    """Both follow one norm; otherwise behind a norm each."""


@dataclass(frozen=True)
class DepthWeightedSublayers:
    """The input of each sublayer, and the last output, is a learned sum.

    Of the token embeddings and the outputs of all sublayers so far (Pagliardini et al. 2024,
    arXiv:2402.02622, section 3, after each sublayer and not each block alone).
    """


Sublayers = SequentialSublayers | ParallelSublayers | DepthWeightedSublayers
"""How sublayers are connected."""


@dataclass(frozen=True, kw_only=True)
class LayerVariants:
    """How layers differ from each other."""

    types: tuple[LayerType | None, ...] = ()
    """The type of each layer, repeated cyclically; None, or nothing: attention and a feed-forward
    layer."""
    shared_sublayers: frozenset[Sublayer] = frozenset()
    """Sublayers, with their norms, that are the same in all layers (Lan et al. 2020, section
    3.1)."""
    ngram_encoding: NgramInputEncoding | None = None
    """Parallel to the first layer (He et al. 2021, section 5.3)."""
