"""Architectures: networks as values, and the Backbone protocol of what they build.

`StackArchitecture` has the fields of every stack of layers; the fields in which published
Transformers differ are in `unmask.model.backbones.block_architecture`.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol, TypeVar, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.model.cache import DecodingCache
from unmask.model.initialize import Initializer, NormalInit
from unmask.model.layers.embeddings.adaptive import AdaptiveEmbedding, AdaptiveInput
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding
from unmask.model.layers.feed_forward import LayerNorm, Norm
from unmask.objectives.reach import FULL_REACH, Reach
from unmask.tokenizers.spec import SpecialTokenIds

AttentionPattern = Literal["bidirectional", "forward", "prefix"]
"""The tokens that a token attends to: all, the earlier ones, or those its rank permits (prefix)."""
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


Ability = Literal[
    "memory", "virtual_tokens", "layer_mixing", "layer_records", "prefix_tree", "known_states"
]
"""An optional capability of a network: a memory of earlier segments, virtual tokens before a text,
a weighted mean of the outputs of its layers, records of what its layers compute, rows in which
several texts share their prefix (`unmask.batching.prefix_tree`), or going on from what its first
layers computed before."""


NO_VIRTUAL_TOKENS = "a network without attention does not support virtual tokens before its texts"
UNMIXABLE_LAYERS = (
    "CANINE's layers have different positions, and those of filters different widths: they cannot "
    "be mixed"
)
NO_LAYER_RECORDS = (
    "hidden states and attention of the layers can be recorded of Transformer blocks only"
)
NO_MEMORY = "only a model of one stack supports a memory of earlier segments"
NOT_ONE_STACK: Mapping[Ability, str] = {
    "known_states": "only one stack of Transformer blocks, each of which reads the block before "
    "alone, goes on from what its first layers computed",
    "prefix_tree": "texts share a prefix in a row of one stack of Transformer blocks alone, "
    "without windows or convolutions, and with positions that depend on a token's place in its "
    "text alone",
}
"""Why networks that are not one stack of Transformer blocks lack abilities of it."""


NetworkT = TypeVar("NetworkT", bound="BackboneArchitecture")
StackT = TypeVar("StackT", bound="StackArchitecture")


@runtime_checkable
class BackboneArchitecture(Protocol):
    """A network as a value: one stack of layers, or an encoder and a decoder."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary."""
        ...

    @property
    def d_model(self) -> int:
        """Size of the hidden states that heads read."""
        ...

    @property
    def max_positions(self) -> int | None:
        """The length of the longest text. None: there is none."""
        ...

    @property
    def ignored_fields(self) -> tuple[str, ...]:
        """Fields that have no effect on this network, whatever their values."""
        ...

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether it has an encoder, which reads a source, and a decoder."""
        ...

    @property
    def is_decoder_only(self) -> bool:
        """Whether it is one causal stack."""
        ...

    @property
    def encoder_stack(self) -> "StackArchitecture":
        """The stack that reads texts: the only one, or the encoder."""
        ...

    @property
    def decoder_stack(self) -> "StackArchitecture":
        """The stack whose hidden states the heads read: the only one, or the decoder."""
        ...

    @property
    def picture_stack(self) -> "StackArchitecture | None":
        """The stack that reads pictures; None: there is none."""
        ...

    @property
    def picture_description(self) -> str:
        """How a picture is seen where texts are written about it, in words."""
        ...

    @property
    def stacks(self) -> "Mapping[str, StackArchitecture]":
        """The stacks by their field names; a single stack is {"": itself}."""
        ...

    def build(self) -> "Backbone":
        """Build the network; its weights are not initialized."""
        ...

    def with_stacks(self: NetworkT, stacks: Mapping[str, Any]) -> NetworkT:
        """Return the architecture with other stacks, named as in `stacks`."""
        ...

    def with_vocab_size(self: NetworkT, vocab_size: int) -> NetworkT:
        """Return a copy with another number of token embeddings."""
        ...

    def with_vocabulary(self: NetworkT, special_ids: SpecialTokenIds) -> NetworkT:
        """Return a copy for the tokens of a vocabulary."""
        ...

    def with_dropout(self: NetworkT, rate: float) -> NetworkT:
        """Return a copy with another dropout, and other rates where nonzero.

        Raises:
            ValueError: the rate is not from 0 to below 1.
        """
        ...

    def activations(self, length: int) -> int:
        """Estimate the activations per token kept for the backward pass."""
        ...


@runtime_checkable
class Backbone(Protocol):
    """A network: a batch of token ids -> hidden states [b t d]."""

    @property
    def a(self) -> BackboneArchitecture:
        """The architecture that it was built from."""
        ...

    @property
    def width(self) -> int:
        """Size of the hidden states."""
        ...

    @property
    def embedding_table(self) -> TokenEmbedding:
        """The token embeddings, which a head may be tied to."""
        ...

    @property
    def supports_last_only(self) -> bool:
        """Whether it supports `RequestedStates.selected_column`."""
        ...

    @property
    def encoder_stack(self) -> "Backbone":
        """The network that reads texts: itself, or the encoder."""
        ...

    @property
    def decoder_stack(self) -> "Backbone":
        """The network whose hidden states the heads read: itself, or the decoder."""
        ...

    @property
    def stacks(self) -> "Sequence[Backbone]":
        """The single stacks: itself, or the networks that it consists of."""
        ...

    @property
    def n_token_layers(self) -> int:
        """The number of layers with a hidden state for each token; see `layer_states`."""
        ...

    def unsupported_reason(self, ability: Ability) -> str | None:
        """Return why an ability is not supported. None: it is supported."""
        ...

    def pad_for_network(self, batch: Batch) -> Batch:
        """Pad the batch so that no text's hidden states depend on the length of another."""
        ...

    def new_cache(self, max_rollback: int = 0) -> DecodingCache:
        """Make an empty cache from which up to `max_rollback` tokens can be removed again.

        Raises:
            ValueError: the network is bidirectional.
        """
        ...

    def flops(self, length: int) -> float:
        """Count the forward FLOPs per token in texts of `length` tokens, without heads."""
        ...

    def encode(self, batch: Batch) -> Float[Tensor, "b s d"]:
        """Run the stack that reads texts: over the inputs, or over the source of an encoder."""
        ...

    def layer_states(self, batch: Batch, layer: int) -> Float[Tensor, "b s _"]:
        """Return the input of a layer of the encoder stack, or the stack's output.

        Layer `n_token_layers` means the output, after the final norm.
        """
        ...

    def __call__(self, batch: Batch, *args: Any, **kwargs: Any) -> Float[Tensor, "b t _"]:
        """Run the network; with a cache (second argument), only over the tokens after it."""
        ...


@dataclass(frozen=True, kw_only=True)
class StackArchitecture:
    """The fields that stacks of all kinds share, and the properties that heads use."""

    vocab_size: int
    d_model: int
    n_layers: int
    embedding_size: int | None = None
    """Size of token embeddings, which a linear map projects to d_model (Lan et al. 2020, section
    3.1). None: d_model."""
    adaptive_input: AdaptiveInput | None = None
    """Adaptive input embeddings: rarer tokens have smaller ones. None: one size for all."""
    norm: Norm = LayerNorm()
    biases: frozenset[BiasLocation] = ALL_BIASES
    """Linear maps with a bias. "read": the projections of queries, keys and values; "write": the
    output projection of attention; "feed_forward": both maps of the feed-forward layer."""
    causal: bool = False
    dropout: float = 0.1
    final_dropout: float = 0.0
    """Dropout probability of the output of the last layer or norm."""
    initializer: Initializer = NormalInit()

    positive_fields: ClassVar[tuple[str, ...]] = ("vocab_size", "d_model", "n_layers")
    """Fields that must be at least 1."""
    size_fields: ClassVar[tuple[str, ...]] = ("vocab_size", "d_model", "embedding_size")
    """Fields that must be at most `MAX_SIZE`, or None where a size is optional."""
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
        """Fields that have no effect on this network, whatever their values."""
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
        """Whether it has cross-attention to an encoder."""
        return False

    @property
    def encoder_stack(self: StackT) -> StackT:
        """The stack that reads texts: itself."""
        return self

    @property
    def decoder_stack(self: StackT) -> StackT:
        """The stack whose hidden states the heads read: itself."""
        return self

    @property
    def stacks(self) -> "Mapping[str, StackArchitecture]":
        """The stacks by their field names: {"": itself}."""
        return {"": self}

    @property
    def is_encoder_decoder(self) -> bool:
        """False: it is one stack."""
        return False

    @property
    def is_decoder_only(self) -> bool:
        """Whether it is one causal stack."""
        return self.causal

    @property
    def has_summary(self) -> bool:
        """Whether the network has a vector for a whole text, as CANINE does."""
        return False

    @property
    def returns_attention(self) -> bool:
        """Whether it gives its attention to a picture where all layers are requested."""
        return False

    @property
    def reads_pictures(self) -> bool:
        """Whether its inputs are patches of pictures."""
        return False

    @property
    def picture_stack(self) -> "StackArchitecture | None":
        """The stack that reads pictures: itself, or None."""
        return self if self.reads_pictures else None

    @property
    def reaches(self) -> tuple[Reach, ...]:
        """What each layer reads for a token, in the order of the layers: without a limit."""
        return (FULL_REACH,) * self.n_layers

    @property
    def picture_description(self) -> str:
        """It writes no texts about pictures."""
        return ""

    @property
    def hides_patches(self) -> bool:
        """Whether it has a vector in the place of hidden patches."""
        return False

    @property
    def has_language_embeddings(self) -> bool:
        """Whether the language of each token has an embedding (XLM)."""
        return False

    @property
    def has_distillation_token(self) -> bool:
        """Whether a second special token learns from a teacher (DeiT)."""
        return False

    @property
    def has_direction_ends(self) -> bool:
        """Whether each half of a hidden state comes from one direction."""
        return False

    def with_stacks(self: StackT, stacks: Mapping[str, Any]) -> StackT:
        """Return the architecture with other stacks, named as in `stacks`."""
        return stacks[""]

    def with_vocab_size(self: StackT, vocab_size: int) -> StackT:
        """Return a copy with another number of token embeddings."""
        return replace(self, vocab_size=vocab_size)

    def with_vocabulary(self: StackT, special_ids: SpecialTokenIds) -> StackT:
        """Return a copy for the tokens of a vocabulary."""
        return self.with_vocab_size(special_ids.vocab_size)

    def with_layers(self: StackT, indices: Sequence[int]) -> StackT:
        """Return a copy with some layers only; what differs between layers stays with its layer."""
        return replace(self, n_layers=len(indices))

    def without_heads(self: StackT, removed: Mapping[int, Sequence[int]]) -> StackT:
        """Return a copy without some attention heads of some layers.

        Raises:
            ValueError: there are none.
        """
        raise ValueError(f"{type(self).__name__} has no attention heads that can be removed")

    def with_segments(self: StackT, n: int) -> StackT:
        """Return a copy with n segments, if it has segments but fewer than n."""
        return self

    def with_languages(self: StackT, n: int) -> StackT:
        """Return a copy with embeddings of n languages, if it has language embeddings."""
        return self

    def with_dropout(self: StackT, rate: float) -> StackT:
        """Return a copy with another dropout, and other rates where nonzero.

        Raises:
            ValueError: the rate is not from 0 to below 1.
        """
        if not 0 <= rate < 1:
            raise ValueError(f"dropout must be from 0 to below 1, got {rate}")
        inner = [name for name in self.inner_rates if getattr(self, name)]
        return replace(self, **dict.fromkeys((*self.outer_rates, *inner), rate))

    @abstractmethod
    def build(self) -> Backbone:
        """Build the network; its weights are not initialized."""

    def build_embedding_table(self) -> nn.Embedding | AdaptiveEmbedding:
        """Build the token embeddings."""
        if self.adaptive_input is not None:
            return self.adaptive_input.build(self.vocab_size, self)
        return nn.Embedding(self.vocab_size, self.d_embed)

    @abstractmethod
    def with_attention_pattern(
        self: StackT, pattern: AttentionPattern, *, generates: bool = False
    ) -> StackT:
        """Return the same network with another attention pattern.

        Args:
            pattern: see `AttentionPattern`.
            generates: whether the network also generates text after a prompt, token by token,
                whatever the pattern within the prompt is.

        Raises:
            ValueError: the network does not support it.
        """

    @abstractmethod
    def flops(self, length: int) -> float:
        """Count the forward matrix-product FLOPs per token, without embedding and head."""

    @abstractmethod
    def activations(self, length: int) -> int:
        """Estimate the activations per token kept for the backward pass."""

    def annotation_activations(self, n_annotations: int) -> int:
        """Estimate what is kept per token of each vector of an encoder; fused attention: none."""
        return 0


def require_support(backbone: Backbone, ability: Ability) -> None:
    """Check that a network supports an ability.

    Raises:
        ValueError: it does not.
    """
    if (reason := backbone.unsupported_reason(ability)) is not None:
        raise ValueError(reason)
