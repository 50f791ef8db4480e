"""Architecture: one page on which every published Transformer differs from the next."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeVar

from unmask.model.backbones.evolved_parts import (
    EvolvedDecoderConvolutions,
    EvolvedEncoderConvolutions,
    LayerType,
)
from unmask.model.initialize import Initializer, NormalInit
from unmask.model.layers.embeddings.adaptive import AdaptiveInput
from unmask.model.layers.feed_forward import Activation, LayerNorm, Norm
from unmask.model.positions.disentangled import DisentangledAttention
from unmask.model.positions.learned import LearnedPositions
from unmask.model.positions.relative_bias import (
    RelativePositionBias,
)
from unmask.model.positions.scheme import PositionScheme
from unmask.model.positions.sinusoidal import Sinusoidal
from unmask.model.positions.transformer_xl import TransformerXLPositions
from unmask.model.variants import AttentionVariant, LayerVariants, SequentialSublayers, Sublayers

AttentionPattern = Literal["bidirectional", "forward", "prefix"]
"""Which tokens a token attends to: all, those before it, or what ranks allow (a prefix)."""
NormSlot = Literal["into", "inside", "inside_feed_forward", "out", "after"]
PRE_NORM: frozenset[NormSlot] = frozenset({"into"})
POST_NORM: frozenset[NormSlot] = frozenset({"after"})
OUTPUT_NORM: frozenset[NormSlot] = frozenset({"out"})
SANDWICH_NORM: frozenset[NormSlot] = frozenset({"into", "out"})
SUB_LN: frozenset[NormSlot] = frozenset({"into", "inside"})
FEED_FORWARD_INNER_SLOTS: frozenset[NormSlot] = frozenset({"inside", "inside_feed_forward"})
"""Slots of a feed-forward layer."""
BiasLocation = Literal["read", "write", "feed_forward"]
ALL_BIASES: frozenset[BiasLocation] = frozenset({"read", "write", "feed_forward"})
NO_BIASES: frozenset[BiasLocation] = frozenset()
MAX_LAYERS = 1_024
"""The deepest published stack has 1,000 layers (Wang et al. 2022, arXiv:2203.00555), and each layer
costs time to build, even without weights."""
MAX_SIZE = 2**24
"""The largest hidden size, vocabulary, length or number of heads."""


StackT = TypeVar("StackT", bound="StackArchitecture")


@dataclass(frozen=True, kw_only=True)
class StackArchitecture:
    """What every stack of layers has, of whatever kind, and what heads read of it."""

    vocab_size: int
    d_model: int
    n_layers: int
    embedding_size: int | None = None
    """Of token embeddings, which a linear map then projects to d_model (Lan et al. 2020, section
    3.1). None: d_model."""
    adaptive_input: AdaptiveInput | None = None
    """Token embeddings are the smaller, the rarer the token is. None: all have one size."""
    norm: Norm = LayerNorm()
    biases: frozenset[BiasLocation] = ALL_BIASES
    """Linear maps that have one: "read" are the projections of queries, keys and values, "write" is
    the output projection of attention, "feed_forward" both maps of the feed-forward layer."""
    causal: bool = False
    dropout: float = 0.1
    final_dropout: float = 0.0
    """Of the output of the last layer or norm."""
    initializer: Initializer = NormalInit()

    positive_fields: ClassVar[tuple[str, ...]] = ("vocab_size", "d_model", "n_layers")
    """Fields that must be at least 1."""
    size_fields: ClassVar[tuple[str, ...]] = ("vocab_size", "d_model", "embedding_size")
    """Fields that must be plausible sizes; None where a size is optional."""
    outer_rates: ClassVar[tuple[str, ...]] = ("dropout",)
    """Dropout rates that `with_dropout` changes."""
    inner_rates: ClassVar[tuple[str, ...]] = ("final_dropout",)
    """Dropout rates that it changes where they are nonzero."""

    def __post_init__(self) -> None:
        for name in self.positive_fields:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("n_layers", *self.size_fields):
            most = MAX_LAYERS if name == "n_layers" else MAX_SIZE
            if (size := getattr(self, name)) is not None and size > most:
                raise ValueError(f"{name} must be at most {most:,}, got {size:,}")
        for name in (*self.outer_rates, *self.inner_rates):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be from 0 to below 1, got {getattr(self, name)}")
        if self.adaptive_input is not None and self.embedding_size is not None:
            raise ValueError("adaptive_input has projections of its own: leave embedding_size out")

    @property
    def ignored_fields(self) -> tuple[str, ...]:
        """Fields that have no effect on this network, whatever they hold."""
        return ()

    @property
    def d_embed(self) -> int:
        """Size of token embeddings before the first layer."""
        return self.embedding_size or self.d_model

    @property
    def uses_segments(self) -> bool:
        """Whether the network has segment embeddings, absolute or relative."""
        return False

    @property
    def segment_count(self) -> int:
        """The number of segments that have embeddings."""
        return 0

    @property
    def has_global_tokens(self) -> bool:
        """Whether the network reads `GlobalTokens`."""
        return False

    @property
    def max_positions(self) -> int | None:
        """The length of the longest text. None: there is none."""
        return None

    @property
    def attends_to_encoder(self) -> bool:
        """Whether it is the decoder of two stacks."""
        return False

    def with_segments(self: StackT, n: int) -> StackT:
        """Return the same with n segments, if it has segments, and fewer."""
        return self

    def with_dropout(self: StackT, rate: float) -> StackT:
        """Return the same with another dropout, and other rates where nonzero.

        Raises:
            ValueError: the rate is not from 0 to below 1.
        """
        if not 0 <= rate < 1:
            raise ValueError(f"dropout must be from 0 to below 1, got {rate}")
        inner = [name for name in self.inner_rates if getattr(self, name)]
        return replace(self, **dict.fromkeys((*self.outer_rates, *inner), rate))

    @abstractmethod
    def with_attention_pattern(
        self, pattern: AttentionPattern, *, generates: bool = False
    ) -> "StackArchitecture":
        """Return the same network with another attention pattern.

        Args:
            pattern: see `AttentionPattern`.
            generates: what follows a text is generated token by token, whatever the pattern within
                the text is.

        Raises:
            ValueError: the network does not support it.
        """

    @abstractmethod
    def flops(self, length: int) -> float:
        """Count the forward's matrix-product FLOPs per token, without embedding and head."""

    @abstractmethod
    def activations(self, length: int) -> int:
        """Estimate how many numbers per token are kept until the backward."""


@dataclass(frozen=True, kw_only=True)
class Architecture(StackArchitecture):
    """One stack of Transformer blocks, as a value."""

    n_heads: int
    d_ff: int
    n_kv_heads: int | None = None
    """Key and value heads, each shared by as many query heads: grouped-query attention (Ainslie et
    al. 2023, arXiv:2305.13245); 1: multi-query attention (Shazeer 2019, arXiv:1911.02150). None:
    n_heads."""
    head_dim: int | None = None
    """None: d_model / n_heads. T5's larger sizes differ."""
    attention_window: tuple[int | None, ...] = ()
    """How many columns away a token attends, by layer, repeated cyclically; None, or nothing: any
    distance."""
    attention: AttentionVariant = AttentionVariant()
    sublayers: Sublayers = SequentialSublayers()
    layers: LayerVariants = LayerVariants()
    scale_embedding: bool = False
    """Token embeddings are multiplied by the square root of their size (Vaswani et al. 2017,
    section 3.4)."""
    n_segments: int = 0
    position: PositionScheme = LearnedPositions(512)
    norm_placement: frozenset[NormSlot] = POST_NORM
    """Where norms are around a sublayer f: after(x + out(f(into(x)))); or inside of it, before the
    map by which it writes (Wang et al. 2022, arXiv:2210.06423, section 2.2), of both sublayers or
    of the feed-forward alone."""
    embedding_norm: bool = False
    final_norm: bool = False
    activation: Activation = "gelu"
    gated_feed_forward: bool = False
    """SwiGLU = gated silu, GeGLU = gated gelu."""
    cross_attention: bool = False
    """A third sublayer attends to the encoder."""
    attention_dropout: float = 0.1
    activation_dropout: float = 0.0
    """Inside the feed-forward layer, after its activation (T5)."""
    layer_dropout: float = 0.0
    """The probability that a whole layer is left out in training: LayerDrop (Fan et al. 2020,
    arXiv:1909.11556, section 3.2); nothing is scaled up for it."""
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
        self._check_layer_types()

    def _check_layer_types(self) -> None:
        """Check layers of other types against the fields that they need or do not support."""
        kinds = [part for part in self.layers.types if part is not None]
        if not kinds:
            return
        others = {
            "shared_sublayers": self.layers.shared_sublayers,
            "ngram_encoding": self.layers.ngram_encoding,
            "global_tokens": self.attention.global_tokens,
            type(self.sublayers).__name__: self.sublayers != SequentialSublayers(),
            "n_kv_heads": self.n_kv_heads,
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
        if not isinstance(self.position, LearnedPositions | Sinusoidal):
            raise ValueError(
                "EvolvedDecoderConvolutions have a head_dim of their own: position must be added "
                "to token embeddings (LearnedPositions, Sinusoidal), got "
                f"{type(self.position).__name__}"
            )

    def with_attention_pattern(
        self, pattern: AttentionPattern, *, generates: bool = False
    ) -> "Architecture":
        """Return the same network with another attention pattern.

        Args:
            pattern: see `AttentionPattern`.
            generates: what follows a text is generated token by token, whatever the pattern within
                the text is.

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
        position = self.position
        if isinstance(position, RelativePositionBias):
            position = replace(position, causal=pattern == "forward")
        return replace(self, causal=pattern == "forward" or generates, position=position)

    @property
    def uses_segments(self) -> bool:
        """Whether the network has segment embeddings, absolute or relative."""
        return self.n_segments > 0 or (
            isinstance(self.position, TransformerXLPositions) and self.position.relative_segments
        )

    @property
    def n_key_value_heads(self) -> int:
        """Key and value heads: one for each group of query heads."""
        return self.n_heads if self.n_kv_heads is None else self.n_kv_heads

    @property
    def d_head(self) -> int:
        """Size of one head."""
        return self.head_dim or self.d_model // self.n_heads

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

    def with_segments(self, n: int) -> "Architecture":
        """Return the same with n segments, if it has segments, and fewer."""
        return replace(self, n_segments=n) if 0 < self.n_segments < n else self

    def activations(self, length: int) -> int:
        """Estimate how many numbers per token are kept until the backward.

        Korthikanti et al. 2023, arXiv:2205.05198, section 4.1, equation 2, counted in numbers
        instead of bytes: of a layer 17 d for its maps and 2.5 h t for its scores, where the
        feed-forward layer is 4 d wide; for any width f of it, 9 d + 2 f.
        """
        own = 9 * self.d_model + 2 * self.d_ff * (2 if self.gated_feed_forward else 1)
        scores = 5 * self.n_heads * length // 2
        return self.n_layers * (own + scores) * (2 if self.cross_attention else 1)

    def flops(self, length: int) -> float:
        """Count the forward's matrix-product FLOPs per token, without embedding and head.

        Texts have `length` tokens. Two per weight and token, and 4 t h e for attention scores and
        weighted sums (Kaplan et al. 2020, table 1). What a position scheme computes once for all
        texts is left out.
        """
        gates = self.n_heads * (self.attention.gate is not None)
        attention = (
            self.d_model * (2 * (self.n_heads + self.n_key_value_heads) + gates) * self.d_head
        )
        forward = (3 if self.gated_feed_forward else 2) * self.d_model * self.d_ff
        per_key = 4 * self.n_heads * self.d_head * (0.5 if self.causal else 1)
        kinds = [self.layer_type(i) for i in range(self.n_layers)]
        attends = [part is None or part.has_attention for part in kinds]
        windows = [self.window_and_dilation(i)[0] for i, does in enumerate(attends) if does]
        scores = per_key * sum(length if w is None else min(length, 2 * w + 1) for w in windows)
        matrices = attention * (1 + self.cross_attention) * sum(attends) + forward * kinds.count(
            None
        )
        matrices += sum(part.n_weights(self) for part in kinds if part is not None)
        projection = 0 if self.embedding_size is None else self.embedding_size * self.d_model
        crossed = per_key * length * sum(attends) * self.cross_attention
        position, ngrams = self.position, self.layers.ngram_encoding
        if isinstance(position, DisentangledAttention | TransformerXLPositions):
            scores += self.n_layers * position.flops(self, length)
        kernel = 0 if ngrams is None else self.d_model**2 * ngrams.kernel_size // ngrams.groups
        return float(2 * (matrices + projection + kernel) + scores + crossed)


def check_max_positions(position: PositionScheme) -> None:
    """Check that a table of positions is of a plausible size.

    Raises:
        ValueError: it is not.
    """
    limit = vars(position).get("max_positions")
    if limit is not None and not 1 <= limit <= MAX_SIZE:
        raise ValueError(f"position.max_positions must be from 1 to {MAX_SIZE:,}, got {limit:,}")


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderArchitecture:
    """Two stacks that share the token embeddings: what encoder-decoders differ in."""

    encoder: Architecture
    decoder: Architecture
    tie_encoder_decoder: bool = False
    """Both stacks share their layers, norms and positions; cross-attention is the decoder's own
    (Raffel et al. 2020, section 3.2.2)."""
    source_encoder: Architecture | None = None
    """An additional encoder with a vocabulary of its own for sources: its outputs replace the token
    embeddings of `encoder` (Lewis et al. 2020, arXiv:1910.13461, section 3.4)."""

    def __post_init__(self) -> None:
        """Check that tied stacks are alike, and that the source encoder fits."""
        if (a := self.source_encoder) is not None and (
            a.causal or a.d_model != self.encoder.d_embed
        ):
            raise ValueError(
                "source_encoder must have causal = False and d_model = "
                f"{self.encoder.d_embed}, the encoder's embedding size, got causal = {a.causal}, "
                f"d_model = {a.d_model}"
            )
        if self.tie_encoder_decoder and self.decoder not in self._tieable_decoders():
            raise ValueError(
                "tie_encoder_decoder: decoder must equal encoder except that causal and "
                "cross_attention are true and relative positions are causal"
            )

    def _tieable_decoders(self) -> list["Architecture"]:
        """Return the decoders that may be tied to the encoder."""
        alike = replace(self.encoder, causal=True, cross_attention=True)
        if not isinstance(alike.position, RelativePositionBias):
            return [alike]
        return [alike, replace(alike, position=replace(alike.position, causal=True))]

    @property
    def vocab_size(self) -> int:
        """Size of the shared vocabulary."""
        return self.encoder.vocab_size

    @property
    def d_model(self) -> int:
        """Size of the decoder's hidden states."""
        return self.decoder.d_model

    def with_dropout(self, rate: float) -> "EncoderDecoderArchitecture":
        """Return the same with another dropout in all stacks.

        Raises:
            ValueError: the rate is not from 0 to below 1.
        """
        return replace(
            self,
            encoder=self.encoder.with_dropout(rate),
            decoder=self.decoder.with_dropout(rate),
            source_encoder=None
            if self.source_encoder is None
            else self.source_encoder.with_dropout(rate),
        )


def source_encoder_of(architecture: object) -> Architecture | None:
    """Return the source encoder of an encoder-decoder, where there is one."""
    both = isinstance(architecture, EncoderDecoderArchitecture)
    return architecture.source_encoder if both else None
