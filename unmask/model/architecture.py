"""Architecture: one page on which every published Transformer differs from the next."""

from dataclasses import dataclass, fields, replace
from typing import ClassVar, Literal

from unmask.model.backbones.evolved_parts import (
    EvolvedDecoderConvolutions,
    EvolvedEncoderConvolutions,
    LayerType,
)
from unmask.model.initialize import Initializer, NormalInit
from unmask.model.layers.convolution import NgramInputEncoding
from unmask.model.layers.embeddings.adaptive import AdaptiveInput
from unmask.model.layers.feed_forward import Activation, LayerNorm, Norm
from unmask.model.positions.scheme import (
    DisentangledAttention,
    LearnedPositions,
    LearnedPositionsAndRelativeBias,
    PositionScheme,
    RelativePositionBias,
    Rotary,
    Sinusoidal,
    TransformerXLPositions,
)

AttentionPattern = Literal["both_ways", "forward", "in_part"]
"""What the tokens of a text see of it: all, those before them, or what their ranks allow."""
NormSlot = Literal["into", "inside", "inside_feed_forward", "out", "after"]
Sublayer = Literal["attention", "feed_forward"]
PRE_NORM: frozenset[NormSlot] = frozenset({"into"})
POST_NORM: frozenset[NormSlot] = frozenset({"after"})
OUTPUT_NORM: frozenset[NormSlot] = frozenset({"out"})
SANDWICH_NORM: frozenset[NormSlot] = frozenset({"into", "out"})
SUB_LN: frozenset[NormSlot] = frozenset({"into", "inside"})
FEED_FORWARD_INNER_SLOTS: frozenset[NormSlot] = frozenset({"inside", "inside_feed_forward"})
"""Those of a feed-forward."""
BiasLocation = Literal["read", "write", "feed_forward"]
ALL_BIASES: frozenset[BiasLocation] = frozenset({"read", "write", "feed_forward"})
NO_BIASES: frozenset[BiasLocation] = frozenset()
MAX_LAYERS = 1_024
"""No stack is deeper: the deepest published one has 1,000 layers (Wang et al. 2022,
arXiv:2203.00555), and each layer costs time to be built, even without weights."""
MAX_SIZE = 2**24
"""No width, vocabulary, length or count of heads is larger."""
DROPOUT_RATES = (
    "dropout", "attention_dropout", "activation_dropout", "final_dropout", "layer_dropout",
)  # fmt: skip
_SCHEMES_WITH_MAX_POSITIONS = (LearnedPositions, LearnedPositionsAndRelativeBias, DisentangledAttention, Sinusoidal, Rotary, TransformerXLPositions)


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One stack of Transformer blocks, as a value."""

    vocab_size: int
    d_model: int
    n_layers: int
    n_heads: int
    d_ff: int
    n_kv_heads: int | None = None
    """Heads of keys and values, each read by as many heads of queries (Ainslie et al. 2023,
    arXiv:2305.13245); 1: Shazeer 2019, arXiv:1911.02150. None: n_heads."""
    head_dim: int | None = None
    """None: d_model / n_heads. T5's larger sizes differ."""
    embedding_size: int | None = None
    """Of token vectors, which a linear map then widens (Lan et al. 2020, section 3.1). None:
    d_model."""
    adaptive_input: AdaptiveInput | None = None
    """Token vectors are the narrower, the rarer the token is. None: all have one width."""
    layer_types: tuple[LayerType | None, ...] = ()
    """What the first layer is, the second and so on, from the start again; None, or nothing:
    attention and a feed-forward."""
    shared_sublayers: frozenset[Sublayer] = frozenset()
    """Sublayers, with their norms, that are the same in all layers (Lan et al. 2020, section
    3.1)."""
    attention_window: tuple[int | None, ...] = ()
    """How many columns away a token sees, in the first layer, the second and so on, from the start
    again; None, or nothing: any."""
    attention_dilation: tuple[int, ...] = ()
    """Of a layer's window, by layers likewise: a token sees every so many columns only, and so many
    times as far (Beltagy et al. 2020, section 3.1, "Dilated Sliding Window"). Nothing: 1."""
    global_attention: bool = False
    """Tokens that the batch calls wide are bound by no window; they read by projections of their
    own (Beltagy et al. 2020, section 3.1)."""
    scale_embedding: bool = False
    """Token vectors are multiplied by the square root of their width (Vaswani et al. 2017, section
    3.4)."""
    n_segments: int = 0
    position: PositionScheme = LearnedPositions(512)
    norm: Norm = LayerNorm()
    norm_placement: frozenset[NormSlot] = POST_NORM
    """Where norms stand around a sublayer f: after(x + out(f(into(x)))); or inside of it, before
    the map by which it writes (Wang et al. 2022, arXiv:2210.06423, section 2.2), of both sublayers
    or of the feed-forward alone."""
    embedding_norm: bool = False
    final_norm: bool = False
    query_key_norm: Literal["head", "all"] | None = None
    """Queries and keys are normed, each head or all heads together (Dehghani et al. 2023,
    arXiv:2302.05442, section 2)."""
    attention_gate: Activation | None = None
    """What attention finds is multiplied by this of a linear map of what it reads (Charpentier and
    Samuel 2024, arXiv:2410.24159, section 3)."""
    depth_weighted_average: bool = False
    """Before each sublayer, and after the last, stands a learned sum of the token vectors and of
    what left each sublayer so far (Pagliardini et al. 2024, arXiv:2402.02622, section 3, after each
    sublayer and not each block alone)."""
    parallel_sublayers: Literal["own_norms", "one_norm"] | None = None
    """Attention and feed-forward read the same vector, each past a norm of its own or both past one
    (Wang and Komatsuzaki 2021, GPT-J). None: the feed-forward reads what attention has added."""
    ngram_input_encoding: NgramInputEncoding | None = None
    """Beside the first layer (He et al. 2021, section 5.3)."""
    activation: Activation = "gelu"
    gated_feed_forward: bool = False
    """SwiGLU = gated silu, GeGLU = gated gelu."""
    biases: frozenset[BiasLocation] = ALL_BIASES
    """Linear maps that have one: those by which attention reads (queries, keys, values), the one by
    which it writes, those of the feed-forward."""
    attention_scale: float | None = None
    """Of the attention scores. None: 1 / sqrt(e); T5: 1."""
    attention_logit_softcapping: float | None = None
    """Attention scores s become cap tanh(s / cap) (Bello et al. 2017, arXiv:1611.09940)."""
    causal: bool = False
    cross_attention: bool = False
    """A third sublayer reads the encoder."""
    dropout: float = 0.1
    attention_dropout: float = 0.1
    activation_dropout: float = 0.0
    """Inside the feed-forward layer, after its activation (T5)."""
    final_dropout: float = 0.0
    """Of what leaves the last norm (T5)."""
    layer_dropout: float = 0.0
    """How often a whole layer is left out in training: LayerDrop (Fan et al. 2020,
    arXiv:1909.11556, section 3.2); nothing is scaled up for it."""
    initializer: Initializer = NormalInit()

    positive_fields: ClassVar[tuple[str, ...]] = ("vocab_size", "d_model", "n_layers", "n_heads", "d_ff")
    """Of which there is at least one."""
    unsupported_fields: ClassVar[tuple[str, ...]] = ()
    """Fields that a network of another kind does not have."""

    def __post_init__(self) -> None:
        self._check_sizes()
        self._check_rates()
        if any(d < 1 for d in self.attention_dilation):
            raise ValueError(f"attention_dilation must be at least 1 in each layer, got {self.attention_dilation}")
        if self.head_dim is None and self.d_model % self.n_heads:
            raise ValueError(f"d_model {self.d_model} is not a multiple of n_heads {self.n_heads}")
        if self.n_key_value_heads < 1 or self.n_heads % self.n_key_value_heads:
            raise ValueError(
                f"n_heads {self.n_heads} is not a multiple of n_kv_heads {self.n_kv_heads}"
            )
        if self.adaptive_input is not None and self.embedding_size is not None:
            raise ValueError("adaptive token vectors have maps of their own: leave embed_width out")
        if self.depth_weighted_average and self.parallel_sublayers is not None:
            raise ValueError("sublayers side by side (parallel) have nothing between to be mixed")
        self._check_layer_types()
        if self.attention_logit_softcapping is not None and self.attention_logit_softcapping <= 0:
            raise ValueError(f"attention_logit_softcapping must be above 0, got {self.attention_logit_softcapping}")

    @property
    def ignored_fields(self) -> tuple[str, ...]:
        """Fields that say nothing of this network, whatever they hold."""
        return self.unsupported_fields

    def _check_sizes(self) -> None:
        """Refuse sizes of nothing, and those that nobody can mean."""
        for name in self.positive_fields:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        optional = ("n_kv_heads", "head_dim", "embedding_size", "n_segments")
        for name in (*optional, "vocab_size", "d_model", "n_layers", "n_heads", "d_ff"):
            most = MAX_LAYERS if name == "n_layers" else MAX_SIZE
            if (size := getattr(self, name)) is not None and size > most:
                raise ValueError(f"{name} must be at most {most:,}, got {size:,}")
        places = self.position
        if isinstance(places, _SCHEMES_WITH_MAX_POSITIONS) and not 1 <= places.max_positions <= MAX_SIZE:
            raise ValueError(f"position.length must be from 1 to {MAX_SIZE:,}, got {places.max_positions:,}")

    def _check_rates(self) -> None:
        """Refuse rates that are no probabilities below 1."""
        for name in DROPOUT_RATES:
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be from 0 to below 1, got {getattr(self, name)}")

    def _check_layer_types(self) -> None:
        """Refuse layers of other kinds where they lack what they need, or what they do not have."""
        kinds = [part for part in self.layer_types if part is not None]
        if not kinds:
            return
        others = ("shared_sublayers", "global_attention", "depth_weighted_average", "parallel_sublayers", "ngram_input_encoding", "n_kv_heads")
        defaults = {f.name: f.default for f in fields(Architecture)}
        for name in others:
            if getattr(self, name) != defaults[name]:
                raise ValueError(f"layers of their own kinds cannot be with {name}")
        for part in kinds:
            if isinstance(part, EvolvedEncoderConvolutions) and self.causal:
                raise ValueError("EvolvedEncoderConvolutions read what follows: causal must be false")
            if isinstance(part, EvolvedDecoderConvolutions):
                self._check_evolved_decoder_layer(part)

    def _check_evolved_decoder_layer(self, part: EvolvedDecoderConvolutions) -> None:
        if not (self.causal and self.cross_attention):
            raise ValueError("EvolvedDecoderConvolutions are a decoder's: causal and cross_attention must be true")
        if (
            self.d_model % max(part.n_heads, self.n_heads)
            or self.n_heads * self.d_head != self.d_model
        ):
            raise ValueError(
                f"EvolvedDecoderConvolutions need heads that are d_model {self.d_model} wide together: "
                f"{self.n_heads} of {self.d_head}, and {part.n_heads}, are not"
            )
        if not isinstance(self.position, LearnedPositions | Sinusoidal):
            raise ValueError(
                "EvolvedDecoderConvolutions have heads of a width of their own: position must be added "
                f"to token vectors (Learned, Sinusoidal), got {type(self.position).__name__}"
            )

    def with_attention_pattern(self, pattern: AttentionPattern, *, generates: bool = False) -> "Architecture":
        """Return the same network for tokens that see all of a text, those before them, or a part.

        Args:
            pattern: see `Sees`.
            generates: what follows a text is said token by token, whatever is seen of the text.

        Raises:
            ValueError: it cannot read so.
        """
        if pattern != "both_ways" and any(isinstance(k, EvolvedEncoderConvolutions) for k in self.layer_types):
            raise ValueError("EvolvedEncoderConvolutions read what follows: a text is seen as a whole only")
        position = self.position
        if isinstance(position, RelativePositionBias):
            position = replace(position, causal=pattern == "forward")
        return replace(self, causal=pattern == "forward" or generates, position=position)

    @property
    def uses_segments(self) -> bool:
        """Whether the network is told which of two texts a token is of."""
        return self.n_segments > 0 or (
            isinstance(self.position, TransformerXLPositions) and self.position.relative_segments
        )

    @property
    def n_key_value_heads(self) -> int:
        """Heads of keys and values: of one group of queries each."""
        return self.n_heads if self.n_kv_heads is None else self.n_kv_heads

    @property
    def d_head(self) -> int:
        """Width of one head."""
        return self.head_dim or self.d_model // self.n_heads

    @property
    def d_embed(self) -> int:
        """Width of token vectors before the first block."""
        return self.embedding_size or self.d_model

    def layer_type(self, i: int) -> LayerType | None:
        """Return what layer i is; None: attention and a feed-forward."""
        return self.layer_types[i % len(self.layer_types)] if self.layer_types else None

    def window_and_dilation(self, i: int) -> tuple[int | None, int]:
        """Return the window of layer i and its dilation."""
        window = self.attention_window[i % len(self.attention_window)] if self.attention_window else None
        return window, self.attention_dilation[i % len(self.attention_dilation)] if self.attention_dilation else 1

    def with_dropout(self, rate: float) -> "Architecture":
        """Return the same with another dropout; inside the layers and at the end where it has any.

        Raises:
            ValueError: the rate is not from 0 to below 1.
        """
        if not 0 <= rate < 1:
            raise ValueError(f"dropout must be from 0 to below 1, got {rate}")
        some = ("activation_dropout", "final_dropout")
        inner = {name: rate for name in some if getattr(self, name)}
        return replace(self, dropout=rate, attention_dropout=rate, **inner)

    def flops(self, length: int) -> float:
        """Count the forward's matrix-product FLOPs a token, embedding and head apart.

        The token is read in texts of `length` tokens. Two a weight and token, and 4 t h e for
        scores and mixing (Kaplan et al. 2020, table 1). What a position scheme computes once for
        all texts is left out.
        """
        gates = self.n_heads * (self.attention_gate is not None)
        attention = self.d_model * (2 * (self.n_heads + self.n_key_value_heads) + gates) * self.d_head
        forward = (3 if self.gated_feed_forward else 2) * self.d_model * self.d_ff
        each = 4 * self.n_heads * self.d_head * (0.5 if self.causal else 1)
        kinds = [self.layer_type(i) for i in range(self.n_layers)]
        attends = [part is None or part.has_attention for part in kinds]
        reach = [self.window_and_dilation(i)[0] for i, does in enumerate(attends) if does]
        seen = each * sum(length if w is None else min(length, 2 * w + 1) for w in reach)
        matrices = attention * (1 + self.cross_attention) * sum(attends) + forward * kinds.count(None)
        matrices += sum(part.n_weights(self) for part in kinds if part is not None)
        widen = 0 if self.embedding_size is None else self.embedding_size * self.d_model
        crossed = each * length * sum(attends) * self.cross_attention
        position, beside = self.position, self.ngram_input_encoding
        if isinstance(position, DisentangledAttention | TransformerXLPositions):
            seen += self.n_layers * position.flops(self, length)
        near_by = 0 if beside is None else self.d_model**2 * beside.kernel_size // beside.groups
        return float(2 * (matrices + widen + near_by) + seen + crossed)


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderArchitecture:
    """Two stacks that share the table of tokens: what encoder-decoders differ in."""

    encoder: Architecture
    decoder: Architecture
    tie_encoder_decoder: bool = False
    """The layers of both are the same, with their norms and what they know of places; the decoder
    has besides what reads the encoder (Raffel et al. 2020, section 3.2.2)."""
    source_encoder: Architecture | None = None
    """An encoder with a vocabulary of its own, that of sources: its vectors go into `encoder` in
    place of those of tokens (Lewis et al. 2020, arXiv:1910.13461, section 3.4)."""

    def __post_init__(self) -> None:
        """Refuse stacks that share layers and are not alike, and vectors that do not fit."""
        if (a := self.source_encoder) is not None and (a.causal or a.d_model != self.encoder.d_embed):
            raise ValueError(
                f"source_encoder: must read in both directions and be {self.encoder.d_embed} wide as the "
                f"encoder's vectors of tokens are, got causal = {a.causal}, d_model = {a.d_model}"
            )
        if self.tie_encoder_decoder and self.decoder not in self._tieable_decoders():
            raise ValueError(
                "shared: decoder must be as encoder but for causal and cross, which are true, and "
                "for distances that only look back"
            )

    def _tieable_decoders(self) -> list["Architecture"]:
        """Return the decoders that may share the encoder's layers."""
        alike = replace(self.encoder, causal=True, cross_attention=True)
        if not isinstance(alike.position, RelativePositionBias):
            return [alike]
        return [alike, replace(alike, position=replace(alike.position, causal=True))]

    @property
    def vocab_size(self) -> int:
        """Rows of the shared table."""
        return self.encoder.vocab_size

    @property
    def d_model(self) -> int:
        """Width of the decoder's hidden states."""
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
            source_encoder=None if self.source_encoder is None else self.source_encoder.with_dropout(rate),
        )


def source_encoder_of(architecture: object) -> Architecture | None:
    """Return the encoder of sources that have a vocabulary of their own, where there is one."""
    both = isinstance(architecture, EncoderDecoderArchitecture)
    return architecture.source_encoder if both else None
