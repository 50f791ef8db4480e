"""BlockArchitecture: the fields in which published Transformers differ, on one page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from unmask.model.architecture import (
    MAX_SIZE,
    POST_NORM,
    AttentionPattern,
    NormSlot,
    StackArchitecture,
)
from unmask.model.backbones.evolved.parts import (
    EvolvedDecoderConvolutions,
    EvolvedEncoderConvolutions,
    LayerType,
)
from unmask.model.layers.feed_forward import Activation
from unmask.model.layers.per_layer import LayerWidths, select_cyclic
from unmask.model.positions.learned import LearnedPositions
from unmask.model.positions.scheme import PositionScheme
from unmask.model.variants import AttentionVariant, LayerVariants, SequentialSublayers, Sublayers
from unmask.objectives.reach import FULL_REACH, Reach


@dataclass(frozen=True, kw_only=True)
class BlockArchitecture(StackArchitecture):
    """The hyperparameters of Transformer blocks; `Architecture` builds a stack of them."""

    n_heads: int
    d_ff: int
    n_kv_heads: int | None = None
    """Key and value heads, each shared by as many query heads: grouped-query attention (Ainslie et
    al. 2023, arXiv:2305.13245); 1: multi-query attention (Shazeer 2019, arXiv:1911.02150). None:
    n_heads."""
    head_dim: int | None = None
    """None: d_model / n_heads. T5's larger sizes differ."""
    attention_window: tuple[int | None, ...] = ()
    """Attention window of each layer, in columns on either side, repeated cyclically. None or
    empty: no limit."""
    attention: AttentionVariant = AttentionVariant()
    sublayers: Sublayers = SequentialSublayers()
    layers: LayerVariants = LayerVariants()
    scale_embedding: bool = False
    """Token embeddings are multiplied by the square root of their size (Vaswani et al. 2017,
    section 3.4)."""
    n_segments: int = 0
    position: PositionScheme = LearnedPositions(512)
    norm_placement: frozenset[NormSlot] = POST_NORM
    """Positions of norms around a sublayer f: after(x + out(f(into(x)))); or inside it, before its
    output map (Wang et al. 2022, arXiv:2210.06423, section 2.2), in both sublayers or only in the
    feed-forward."""
    embedding_norm: bool = False
    final_norm: bool = False
    activation: Activation = "gelu"
    gated_feed_forward: bool = False
    """SwiGLU = gated silu, GeGLU = gated gelu."""
    cross_attention: bool = False
    """Whether a third sublayer attends to the encoder."""
    attention_dropout: float = 0.1
    activation_dropout: float = 0.0
    """Dropout probability inside the feed-forward layer, after its activation (T5)."""
    layer_dropout: float = 0.0
    """Probability that a whole layer is skipped in training: LayerDrop (Fan et al. 2020,
    arXiv:1909.11556, section 3.2). The remaining layers are not scaled up."""
    positive_fields: ClassVar[tuple[str, ...]] = (
        *StackArchitecture.positive_fields, "n_heads", "d_ff",
    )  # fmt: skip
    size_fields: ClassVar[tuple[str, ...]] = (
        *StackArchitecture.size_fields, "n_kv_heads", "head_dim", "n_segments", "n_heads", "d_ff",
    )  # fmt: skip
    outer_rates: ClassVar[tuple[str, ...]] = ("dropout", "attention_dropout")
    inner_rates: ClassVar[tuple[str, ...]] = ("activation_dropout", "final_dropout")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_max_positions(self.position)
        if not 0 <= self.layer_dropout < 1:
            raise ValueError(f"layer_dropout must be from 0 to below 1, got {self.layer_dropout}")
        if self.head_dim is None and self.d_model % self.n_heads:
            raise ValueError(f"d_model {self.d_model} is not a multiple of n_heads {self.n_heads}")
        if self.n_key_value_heads < 1 or self.n_heads % self.n_key_value_heads:
            raise ValueError(
                f"n_heads {self.n_heads} is not a multiple of n_kv_heads {self.n_kv_heads}"
            )
        if self.layers.widths is not None:
            group_size = self.n_heads // self.n_key_value_heads
            self.layers.widths.check(self.n_layers, self.n_heads, group_size)
        self._check_layer_types()

    def _check_layer_types(self) -> None:
        """Check that the other fields fit the layer types."""
        kinds = [part for part in self.layers.types if part is not None]
        if not kinds:
            return
        others = {
            "shared_sublayers": self.layers.shared_sublayers,
            "ngram_encoding": self.layers.ngram_encoding,
            "global_tokens": self.attention.global_tokens,
            type(self.sublayers).__name__: self.sublayers != SequentialSublayers(),
            "n_kv_heads": self.n_kv_heads,
            "widths": self.layers.widths,
        }
        for name, value in others.items():
            if value:
                raise ValueError(f"layers.types cannot be combined with {name}")
        for part in kinds:
            if isinstance(part, EvolvedEncoderConvolutions) and self.causal:
                raise ValueError(
                    "EvolvedEncoderConvolutions are bidirectional: causal must be false"
                )
            if isinstance(part, EvolvedDecoderConvolutions):
                self._check_evolved_decoder_layer(part)

    def _check_evolved_decoder_layer(self, part: EvolvedDecoderConvolutions) -> None:
        if not (self.causal and self.cross_attention):
            raise ValueError(
                "EvolvedDecoderConvolutions belong to a decoder: causal and cross_attention must "
                "be true"
            )
        if (
            self.d_model % max(part.n_heads, self.n_heads)
            or self.n_heads * self.d_head != self.d_model
        ):
            raise ValueError(
                "EvolvedDecoderConvolutions need heads whose sizes sum to "
                f"d_model {self.d_model}: {self.n_heads} of {self.d_head}, and {part.n_heads}, "
                "do not"
            )
        if not self.position.only_in_embeddings:
            raise ValueError(
                "EvolvedDecoderConvolutions have a head_dim of their own: position must be added "
                "to token embeddings (LearnedPositions, Sinusoidal), got "
                f"{type(self.position).__name__}"
            )

    def with_attention_pattern(self, pattern: AttentionPattern, *, generates: bool = False) -> Self:
        """Return the same network with another attention pattern.

        Args:
            pattern: see `AttentionPattern`.
            generates: whether the network also generates text after a prompt, token by token,
                whatever the pattern within the prompt is.

        Raises:
            ValueError: the network does not support it.
        """
        if pattern != "bidirectional" and any(
            isinstance(k, EvolvedEncoderConvolutions) for k in self.layers.types
        ):
            raise ValueError(
                "EvolvedEncoderConvolutions are bidirectional: the attention pattern must be "
                "'bidirectional'"
            )
        forward = pattern == "forward"
        position = self.position.with_causal(forward)
        return replace(self, causal=forward or generates, position=position)

    def with_layers(self, indices: Sequence[int]) -> Self:
        """Return a copy with some layers only; what differs between layers stays with its layer.

        Raises:
            ValueError: layers share their weights, or the first one cannot be removed.
        """
        dilation = select_cyclic(self.attention.dilation, indices)
        return replace(
            self,
            n_layers=len(indices),
            attention_window=select_cyclic(self.attention_window, indices),
            attention=replace(self.attention, dilation=dilation),
            layers=self.layers.with_layers(indices),
            position=self.position.with_layers(indices),
        )

    @property
    def uses_segments(self) -> bool:
        """Whether the network has segment embeddings, absolute or relative."""
        return self.n_segments > 0 or self.position.has_relative_segments

    @property
    def n_key_value_heads(self) -> int:
        """Key and value heads: one for each group of query heads."""
        return self.n_heads if self.n_kv_heads is None else self.n_kv_heads

    @property
    def d_head(self) -> int:
        """Size of one head."""
        return self.head_dim or self.d_model // self.n_heads

    def without_heads(self, removed: Mapping[int, Sequence[int]]) -> Self:
        """Return a copy without some attention heads of some layers.

        Raises:
            ValueError: there are no such layers or heads, or none would be left.
        """
        for i, heads in removed.items():
            if not 0 <= i < self.n_layers or not {*heads} <= {*range(self.n_heads)}:
                raise ValueError(
                    f"layer {i} has no heads {list(heads)}: there are {self.n_layers} layers of "
                    f"{self.n_heads} heads, counted from 0"
                )
        kept = tuple(
            tuple(head for head in range(self.n_heads) if head not in removed.get(i, ()))
            for i in range(self.n_layers)
        )
        widths = replace(self.layers.widths or LayerWidths(), heads=kept)
        return replace(self, layers=replace(self.layers, widths=widths))

    def layer_heads(self, i: int, *, cross: bool = False) -> tuple[int, ...] | None:
        """Return the indices of the heads of layer i; None: all."""
        widths = self.layers.widths
        heads = () if widths is None else widths.cross_heads if cross else widths.heads
        return heads[i] if heads else None

    def at_layer(self, i: int, *, cross: bool = False) -> Self:
        """Return the architecture of the blocks of layer i, or of its attention to the encoder."""
        widths, heads = self.layers.widths, self.layer_heads(i, cross=cross)
        if widths is None:
            return self
        n, groups = self.n_heads if heads is None else len(heads), self.n_kv_heads
        return replace(
            self,
            n_heads=n,
            n_kv_heads=None if groups is None else max(n * groups // self.n_heads, 1),
            head_dim=self.d_head,
            d_ff=widths.d_ff[i] if widths.d_ff else self.d_ff,
            layers=self.layers.undivided(),
        )

    def layer_type(self, i: int) -> LayerType | None:
        """Return the type of layer i; None: attention and a feed-forward layer."""
        types = self.layers.types
        return types[i % len(types)] if types else None

    def window_and_dilation(self, i: int) -> tuple[int | None, int]:
        """Return the window of layer i and its dilation."""
        window = (
            self.attention_window[i % len(self.attention_window)] if self.attention_window else None
        )
        dilation = self.attention.dilation
        return window, dilation[i % len(dilation)] if dilation else 1

    @property
    def reaches(self) -> tuple[Reach, ...]:
        """What each layer reads for a token: its window, or its convolutions."""
        return tuple(map(self._layer_reach, range(self.n_layers)))

    def _layer_reach(self, i: int) -> Reach:
        """Return what layer i reads; attention beside convolutions reads as far as alone."""
        kind = self.layer_type(i)
        if kind is not None and not kind.has_attention:
            return Reach(by="filters", before=kind.reach, after=kind.reach)
        window, step = self.window_and_dilation(i)
        if window is None:
            return FULL_REACH
        return Reach(before=window * step, after=window * step, step=step)

    @property
    def segment_count(self) -> int:
        """The number of segments that have embeddings."""
        return self.n_segments

    @property
    def has_global_tokens(self) -> bool:
        """Whether the network reads `GlobalTokens`."""
        return self.attention.global_tokens

    @property
    def max_positions(self) -> int | None:
        """The length of the longest text. None: there is none."""
        return getattr(self.position, "max_positions", None)

    @property
    def attends_to_encoder(self) -> bool:
        """Whether it is the decoder of two stacks."""
        return self.cross_attention

    def with_segments(self, n: int) -> Self:
        """Return a copy with n segments, if it has segments but fewer than n."""
        return replace(self, n_segments=n) if 0 < self.n_segments < n else self

    def activations(self, length: int) -> int:
        """Estimate the activations per token kept for the backward pass.

        Korthikanti et al. 2023, arXiv:2205.05198, section 4.1, equation 2, counted in numbers
        instead of bytes. A layer keeps 17 d for its maps and 2.5 h t for its attention scores if
        the feed-forward layer is 4 d wide; for a width f, the former is 9 d + 2 f. Cross-attention
        adds one attention sublayer with its norm: 6.5 d and its scores.
        """
        total = 0
        for i in range(self.n_layers):
            a, cross = self.at_layer(i), self.at_layer(i, cross=True)
            kept = 3 if a.activation == "quick_gelu" else 2  # the sigmoid beside its product
            own = 9 * a.d_model + kept * a.d_ff * (2 if a.gated_feed_forward else 1)
            scores, crossed = (5 * part.n_heads * length // 2 for part in (a, cross))
            total += own + scores + (13 * a.d_model // 2 + crossed) * a.cross_attention
        return total

    def flops(self, length: int) -> float:
        """Count the forward matrix-product FLOPs per token, without embedding and head.

        Texts have `length` tokens. Two per weight and token, and 4 t h e for attention scores and
        weighted sums (Kaplan et al. 2020, table 1). What a position scheme computes once for all
        texts is left out.
        """
        ngrams = self.layers.ngram_encoding
        projection = 0 if self.embedding_size is None else self.embedding_size * self.d_model
        kernel = 0 if ngrams is None else self.d_model**2 * ngrams.kernel_size // ngrams.groups
        layers = sum(self._layer_flops(i, length) for i in range(self.n_layers))
        return float(2 * (projection + kernel) + layers)

    def _layer_flops(self, i: int, length: int) -> float:
        """Count the FLOPs of layer i per token."""
        kind, window, a = self.layer_type(i), self.window_and_dilation(i)[0], self.at_layer(i)
        matrices, scores = 0, a.position.flops(a, length)
        if kind is None or kind.has_attention:
            seen = length if window is None else min(length, 2 * window + 1)
            matrices, scores = a.attention_weights, scores + a.flops_per_key * seen
            if self.cross_attention:
                cross = self.at_layer(i, cross=True)
                matrices += cross.attention_weights
                scores += cross.flops_per_key * length
        if kind is None:
            matrices += (3 if a.gated_feed_forward else 2) * a.d_model * a.d_ff
        else:
            matrices += kind.n_weights(self)
        return 2 * matrices + scores

    @property
    def attention_weights(self) -> int:
        """The number of weights of one attention sublayer's matrices."""
        gates = self.n_heads * (self.attention.gate is not None)
        return self.d_model * (2 * (self.n_heads + self.n_key_value_heads) + gates) * self.d_head

    @property
    def flops_per_key(self) -> float:
        """FLOPs of the scores and the weighted sum, per query and key."""
        return 4.0 * self.n_heads * self.d_head * (0.5 if self.causal else 1)


def check_max_positions(position: PositionScheme) -> None:
    """Check that a table of position embeddings has at most `MAX_SIZE` rows.

    Raises:
        ValueError: it is not.
    """
    limit = vars(position).get("max_positions")
    if limit is not None and not 1 <= limit <= MAX_SIZE:
        raise ValueError(f"position.max_positions must be from 1 to {MAX_SIZE:,}, got {limit:,}")
