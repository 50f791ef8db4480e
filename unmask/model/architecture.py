"""Architecture: one page on which every published Transformer differs from the next."""

from dataclasses import dataclass, fields, replace
from typing import ClassVar, Literal

from unmask.model.adaptive import Adaptive
from unmask.model.convolution import Convolution
from unmask.model.evolved import AttendedConvolutions, GatedConvolutions, LayerKind
from unmask.model.initialize import Initialize, Normal
from unmask.model.parts import Activation, LayerNorm, Norm
from unmask.model.positions import (
    BucketBias,
    Disentangled,
    Learned,
    LearnedAndBucketBias,
    Position,
    Relative,
    Rotary,
    Sinusoidal,
)

Sees = Literal["both_ways", "forward", "in_part"]
"""What the tokens of a text see of it: all, those before them, or what their ranks allow."""
Slot = Literal["into", "inside", "inside_feed_forward", "out", "after"]
Sublayer = Literal["attention", "feed_forward"]
PRE: frozenset[Slot] = frozenset({"into"})
POST: frozenset[Slot] = frozenset({"after"})
OUT: frozenset[Slot] = frozenset({"out"})
SANDWICH: frozenset[Slot] = frozenset({"into", "out"})
SUB: frozenset[Slot] = frozenset({"into", "inside"})
INSIDE: frozenset[Slot] = frozenset({"inside", "inside_feed_forward"})
"""Those of a feed-forward."""
Biased = Literal["read", "write", "feed_forward"]
BIASED: frozenset[Biased] = frozenset({"read", "write", "feed_forward"})
UNBIASED: frozenset[Biased] = frozenset()
MOST_LAYERS = 1_024
"""No stack is deeper: the deepest published one has 1,000 layers (Wang et al. 2022,
arXiv:2203.00555), and each layer costs time to be built, even without weights."""
MOST = 2**24
"""No width, vocabulary, length or count of heads is larger."""
RATES = (
    "dropout", "attention_dropout", "feed_forward_dropout", "final_dropout", "layer_dropout",
)  # fmt: skip
_LONG = (Learned, LearnedAndBucketBias, Disentangled, Sinusoidal, Rotary, Relative)


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
    head_width: int | None = None
    """None: d_model / n_heads. T5's larger sizes differ."""
    embed_width: int | None = None
    """Of token vectors, which a linear map then widens (Lan et al. 2020, section 3.1). None:
    d_model."""
    adaptive: Adaptive | None = None
    """Token vectors are the narrower, the rarer the token is. None: all have one width."""
    kinds: tuple[LayerKind | None, ...] = ()
    """What the first layer is, the second and so on, from the start again; None, or nothing:
    attention and a feed-forward."""
    shared: frozenset[Sublayer] = frozenset()
    """Sublayers, with their norms, that are the same in all layers (Lan et al. 2020, section
    3.1)."""
    window: tuple[int | None, ...] = ()
    """How many columns away a token sees, in the first layer, the second and so on, from the start
    again; None, or nothing: any."""
    dilation: tuple[int, ...] = ()
    """Of a layer's window, by layers likewise: a token sees every so many columns only, and so many
    times as far (Beltagy et al. 2020, section 3.1, "Dilated Sliding Window"). Nothing: 1."""
    global_attention: bool = False
    """Tokens that the batch calls wide are bound by no window; they read by projections of their
    own (Beltagy et al. 2020, section 3.1)."""
    tokens_scaled: bool = False
    """Token vectors are multiplied by the square root of their width (Vaswani et al. 2017, section
    3.4)."""
    n_segments: int = 0
    position: Position = Learned(512)
    norm: Norm = LayerNorm()
    norm_at: frozenset[Slot] = POST
    """Where norms stand around a sublayer f: after(x + out(f(into(x)))); or inside of it, before
    the map by which it writes (Wang et al. 2022, arXiv:2210.06423, section 2.2), of both sublayers
    or of the feed-forward alone."""
    norm_embedding: bool = False
    norm_final: bool = False
    query_key_norm: Literal["head", "all"] | None = None
    """Queries and keys are normed, each head or all heads together (Dehghani et al. 2023,
    arXiv:2302.05442, section 2)."""
    attention_gate: Activation | None = None
    """What attention finds is multiplied by this of a linear map of what it reads (Charpentier and
    Samuel 2024, arXiv:2410.24159, section 3)."""
    mixed: bool = False
    """Before each sublayer, and after the last, stands a learned sum of the token vectors and of
    what left each sublayer so far (Pagliardini et al. 2024, arXiv:2402.02622, section 3, after each
    sublayer and not each block alone)."""
    parallel: Literal["own_norms", "one_norm"] | None = None
    """Attention and feed-forward read the same vector, each past a norm of its own or both past one
    (Wang and Komatsuzaki 2021, GPT-J). None: the feed-forward reads what attention has added."""
    convolution: Convolution | None = None
    """Beside the first layer (He et al. 2021, section 5.3)."""
    activation: Activation = "gelu"
    gated: bool = False
    """SwiGLU = gated silu, GeGLU = gated gelu."""
    bias: frozenset[Biased] = BIASED
    """Linear maps that have one: those by which attention reads (queries, keys, values), the one by
    which it writes, those of the feed-forward."""
    scale: float | None = None
    """Of the attention scores. None: 1 / sqrt(e); T5: 1."""
    score_cap: float | None = None
    """Attention scores s become cap tanh(s / cap) (Bello et al. 2017, arXiv:1611.09940)."""
    causal: bool = False
    cross: bool = False
    """A third sublayer reads the encoder."""
    dropout: float = 0.1
    attention_dropout: float = 0.1
    feed_forward_dropout: float = 0.0
    """Inside the feed-forward layer, after its activation (T5)."""
    final_dropout: float = 0.0
    """Of what leaves the last norm (T5)."""
    layer_dropout: float = 0.0
    """How often a whole layer is left out in training: LayerDrop (Fan et al. 2020,
    arXiv:1909.11556, section 3.2); nothing is scaled up for it."""
    initialize: Initialize = Normal()

    counted: ClassVar[tuple[str, ...]] = ("vocab_size", "d_model", "n_layers", "n_heads", "d_ff")
    """Of which there is at least one."""
    no: ClassVar[tuple[str, ...]] = ()
    """Fields that a network of another kind does not have."""

    def __post_init__(self) -> None:
        self._check_sizes()
        self._check_rates()
        if any(d < 1 for d in self.dilation):
            raise ValueError(f"dilation must be at least 1 in each layer, got {self.dilation}")
        if self.head_width is None and self.d_model % self.n_heads:
            raise ValueError(f"d_model {self.d_model} is not a multiple of n_heads {self.n_heads}")
        if self.groups < 1 or self.n_heads % self.groups:
            raise ValueError(
                f"n_heads {self.n_heads} is not a multiple of n_kv_heads {self.n_kv_heads}"
            )
        if self.adaptive is not None and self.embed_width is not None:
            raise ValueError("adaptive token vectors have maps of their own: leave embed_width out")
        if self.mixed and self.parallel is not None:
            raise ValueError("sublayers side by side (parallel) have nothing between to be mixed")
        self._check_kinds()
        if self.score_cap is not None and self.score_cap <= 0:
            raise ValueError(f"score_cap must be above 0, got {self.score_cap}")

    @property
    def unread(self) -> tuple[str, ...]:
        """Fields that say nothing of this network, whatever they hold."""
        return self.no

    def _check_sizes(self) -> None:
        """Refuse sizes of nothing, and those that nobody can mean."""
        for name in self.counted:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        optional = ("n_kv_heads", "head_width", "embed_width", "n_segments")
        for name in (*optional, "vocab_size", "d_model", "n_layers", "n_heads", "d_ff"):
            most = MOST_LAYERS if name == "n_layers" else MOST
            if (size := getattr(self, name)) is not None and size > most:
                raise ValueError(f"{name} must be at most {most:,}, got {size:,}")
        places = self.position
        if isinstance(places, _LONG) and not 1 <= places.length <= MOST:
            raise ValueError(f"position.length must be from 1 to {MOST:,}, got {places.length:,}")

    def _check_rates(self) -> None:
        """Refuse rates that are no probabilities below 1."""
        for name in RATES:
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be from 0 to below 1, got {getattr(self, name)}")

    def _check_kinds(self) -> None:
        """Refuse layers of other kinds where they lack what they need, or what they do not have."""
        kinds = [part for part in self.kinds if part is not None]
        if not kinds:
            return
        others = ("shared", "global_attention", "mixed", "parallel", "convolution", "n_kv_heads")
        defaults = {f.name: f.default for f in fields(Architecture)}
        for name in others:
            if getattr(self, name) != defaults[name]:
                raise ValueError(f"layers of their own kinds cannot be with {name}")
        for part in kinds:
            if isinstance(part, GatedConvolutions) and self.causal:
                raise ValueError("GatedConvolutions read what follows: causal must be false")
            if isinstance(part, AttendedConvolutions):
                self._check_attended(part)

    def _check_attended(self, part: AttendedConvolutions) -> None:
        if not (self.causal and self.cross):
            raise ValueError("AttendedConvolutions are a decoder's: causal and cross must be true")
        if (
            self.d_model % max(part.heads, self.n_heads)
            or self.n_heads * self.d_head != self.d_model
        ):
            raise ValueError(
                f"AttendedConvolutions need heads that are d_model {self.d_model} wide together: "
                f"{self.n_heads} of {self.d_head}, and {part.heads}, are not"
            )
        if not isinstance(self.position, Learned | Sinusoidal):
            raise ValueError(
                "AttendedConvolutions have heads of a width of their own: position must be added "
                f"to token vectors (Learned, Sinusoidal), got {type(self.position).__name__}"
            )

    def reading(self, sees: Sees, *, writes: bool = False) -> "Architecture":
        """Return the same network for tokens that see all of a text, those before them, or a part.

        Args:
            sees: see `Sees`.
            writes: what follows a text is said token by token, whatever is seen of the text.

        Raises:
            ValueError: it cannot read so.
        """
        if sees != "both_ways" and any(isinstance(k, GatedConvolutions) for k in self.kinds):
            raise ValueError("GatedConvolutions read what follows: a text is seen as a whole only")
        position = self.position
        if isinstance(position, BucketBias):
            position = replace(position, causal=sees == "forward")
        return replace(self, causal=sees == "forward" or writes, position=position)

    @property
    def tells_segments(self) -> bool:
        """Whether the network is told which of two texts a token is of."""
        return self.n_segments > 0 or (
            isinstance(self.position, Relative) and self.position.segments
        )

    @property
    def groups(self) -> int:
        """Heads of keys and values: of one group of queries each."""
        return self.n_heads if self.n_kv_heads is None else self.n_kv_heads

    @property
    def d_head(self) -> int:
        """Width of one head."""
        return self.head_width or self.d_model // self.n_heads

    @property
    def d_embed(self) -> int:
        """Width of token vectors before the first block."""
        return self.embed_width or self.d_model

    def kind(self, i: int) -> LayerKind | None:
        """Return what layer i is; None: attention and a feed-forward."""
        return self.kinds[i % len(self.kinds)] if self.kinds else None

    def reach(self, i: int) -> tuple[int | None, int]:
        """Return the window of layer i and its dilation."""
        window = self.window[i % len(self.window)] if self.window else None
        return window, self.dilation[i % len(self.dilation)] if self.dilation else 1

    def dropping(self, rate: float) -> "Architecture":
        """Return the same with another dropout; inside the layers and at the end where it has any.

        Raises:
            ValueError: the rate is not from 0 to below 1.
        """
        if not 0 <= rate < 1:
            raise ValueError(f"dropout must be from 0 to below 1, got {rate}")
        some = ("feed_forward_dropout", "final_dropout")
        inner = {name: rate for name in some if getattr(self, name)}
        return replace(self, dropout=rate, attention_dropout=rate, **inner)

    def flops(self, length: int) -> float:
        """Count the forward's matrix-product FLOPs a token, embedding and head apart.

        The token is read in texts of `length` tokens. Two a weight and token, and 4 t h e for
        scores and mixing (Kaplan et al. 2020, table 1). What a position scheme computes once for
        all texts is left out.
        """
        gates = self.n_heads * (self.attention_gate is not None)
        attention = self.d_model * (2 * (self.n_heads + self.groups) + gates) * self.d_head
        forward = (3 if self.gated else 2) * self.d_model * self.d_ff
        each = 4 * self.n_heads * self.d_head * (0.5 if self.causal else 1)
        kinds = [self.kind(i) for i in range(self.n_layers)]
        attends = [part is None or part.attends for part in kinds]
        reach = [self.reach(i)[0] for i, does in enumerate(attends) if does]
        seen = each * sum(length if w is None else min(length, 2 * w + 1) for w in reach)
        matrices = attention * (1 + self.cross) * sum(attends) + forward * kinds.count(None)
        matrices += sum(part.weights(self) for part in kinds if part is not None)
        widen = 0 if self.embed_width is None else self.embed_width * self.d_model
        crossed = each * length * sum(attends) * self.cross
        position, beside = self.position, self.convolution
        if isinstance(position, Disentangled | Relative):
            seen += self.n_layers * position.flops(self, length)
        near_by = 0 if beside is None else self.d_model**2 * beside.width // beside.groups
        return float(2 * (matrices + widen + near_by) + seen + crossed)


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderArchitecture:
    """Two stacks that share the table of tokens: what encoder-decoders differ in."""

    encoder: Architecture
    decoder: Architecture
    shared: bool = False
    """The layers of both are the same, with their norms and what they know of places; the decoder
    has besides what reads the encoder (Raffel et al. 2020, section 3.2.2)."""
    source: Architecture | None = None
    """An encoder with a vocabulary of its own, that of sources: its vectors go into `encoder` in
    place of those of tokens (Lewis et al. 2020, arXiv:1910.13461, section 3.4)."""

    def __post_init__(self) -> None:
        """Refuse stacks that share layers and are not alike, and vectors that do not fit."""
        if (a := self.source) is not None and (a.causal or a.d_model != self.encoder.d_embed):
            raise ValueError(
                f"source: must read in both directions and be {self.encoder.d_embed} wide as the "
                f"encoder's vectors of tokens are, got causal = {a.causal}, d_model = {a.d_model}"
            )
        if self.shared and self.decoder not in self._sharing():
            raise ValueError(
                "shared: decoder must be as encoder but for causal and cross, which are true, and "
                "for distances that only look back"
            )

    def _sharing(self) -> list["Architecture"]:
        """Return the decoders that may share the encoder's layers."""
        alike = replace(self.encoder, causal=True, cross=True)
        if not isinstance(alike.position, BucketBias):
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

    def dropping(self, rate: float) -> "EncoderDecoderArchitecture":
        """Return the same with another dropout in all stacks.

        Raises:
            ValueError: the rate is not from 0 to below 1.
        """
        return replace(
            self,
            encoder=self.encoder.dropping(rate),
            decoder=self.decoder.dropping(rate),
            source=None if self.source is None else self.source.dropping(rate),
        )


def source_of(architecture: object) -> Architecture | None:
    """Return the encoder of sources that have a vocabulary of their own, where there is one."""
    both = isinstance(architecture, EncoderDecoderArchitecture)
    return architecture.source if both else None
