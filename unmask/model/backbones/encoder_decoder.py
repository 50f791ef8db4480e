"""An encoder and a decoder: what all pairs have, and those that share their token embeddings."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from jaxtyping import Float
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.model.architecture import (
    NO_MEMORY,
    NOT_ONE_STACK,
    Ability,
    Backbone,
    StackArchitecture,
)
from unmask.model.backbones.transformer import Architecture, SourceEncodedTransformer, Transformer
from unmask.model.cache import Cache
from unmask.model.positions.relative_bias import RelativePositionBiasModule
from unmask.tokenizers.spec import SpecialTokenIds

PairT = TypeVar("PairT", bound="TwoStackArchitecture")


@dataclass(frozen=True, kw_only=True)
class TwoStackArchitecture:
    """An encoder and a decoder that reads what it made, as a value."""

    encoder: StackArchitecture
    decoder: StackArchitecture

    @property
    def vocab_size(self) -> int:
        """Size of the decoder's vocabulary."""
        return self.decoder.vocab_size

    @property
    def d_model(self) -> int:
        """Size of the decoder's hidden states."""
        return self.decoder.d_model

    @property
    def ignored_fields(self) -> tuple[str, ...]:
        """Fields that have no effect: none."""
        return ()

    @property
    def is_encoder_decoder(self) -> bool:
        """True."""
        return True

    @property
    def is_decoder_only(self) -> bool:
        """False: it has two stacks."""
        return False

    @property
    def encoder_stack(self) -> StackArchitecture:
        """The stack that reads sources: the encoder."""
        return self.encoder

    @property
    def decoder_stack(self) -> StackArchitecture:
        """The stack whose hidden states the heads read: the decoder."""
        return self.decoder

    @property
    def picture_stack(self) -> StackArchitecture | None:
        """The encoder where it reads pictures, or None."""
        return self.encoder.picture_stack

    @property
    def picture_description(self) -> str:
        """The decoder attends to what the encoder made of it."""
        return "each token attends to all patches of the picture, too"

    @property
    def stacks(self) -> Mapping[str, StackArchitecture]:
        """Both stacks by the field that holds them."""
        return {"encoder": self.encoder, "decoder": self.decoder}

    @property
    @abstractmethod
    def max_positions(self) -> int | None:
        """The length of the longest text. None: there is none."""

    @abstractmethod
    def build(self) -> Backbone:
        """Build the network; its weights are not initialized."""

    @abstractmethod
    def with_vocab_size(self: PairT, vocab_size: int) -> PairT:
        """Return a copy with another number of token embeddings."""

    def with_vocabulary(self: PairT, special_ids: SpecialTokenIds) -> PairT:
        """Return a copy for the tokens of a vocabulary."""
        return self.with_vocab_size(special_ids.vocab_size)

    def with_stacks(self: PairT, stacks: Mapping[str, Any]) -> PairT:
        """Return the architecture with other stacks, named as in `stacks`."""
        return replace(self, **stacks)

    def with_dropout(self: PairT, rate: float) -> PairT:
        """Return a copy with another dropout in both stacks.

        Raises:
            ValueError: the rate is not from 0 to below 1.
        """
        return replace(
            self, encoder=self.encoder.with_dropout(rate), decoder=self.decoder.with_dropout(rate)
        )

    def activations(self, length: int) -> int:
        """Estimate the activations per token kept for the backward pass, by both stacks."""
        return self.encoder.activations(length) + self.decoder.activations(length)


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderArchitecture(TwoStackArchitecture):
    """An encoder and a decoder that share the token embeddings."""

    encoder: Architecture
    decoder: Architecture
    tie_encoder_decoder: bool = False
    """Whether both stacks share layers, norms and positions; cross-attention is the decoder's own
    (Raffel et al. 2020, section 3.2.2)."""
    source_encoder: Architecture | None = None
    """An additional encoder with a vocabulary of its own for sources: its outputs replace the token
    embeddings of `encoder` (Lewis et al. 2020, arXiv:1910.13461, section 3.4)."""

    def __post_init__(self) -> None:
        """Check that tied stacks have equal sizes, and that the source encoder fits."""
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

    def _tieable_decoders(self) -> list[Architecture]:
        """Return the decoders that may be tied to the encoder."""
        alike = replace(self.encoder, causal=True, cross_attention=True)
        return [alike, replace(alike, position=alike.position.with_causal(True))]

    @property
    def vocab_size(self) -> int:
        """Size of the shared vocabulary."""
        return self.encoder.vocab_size

    @property
    def max_positions(self) -> int | None:
        """The length of the longest text. None: there is none."""
        both = (self.encoder.max_positions, self.decoder.max_positions)
        return min((n for n in both if n is not None), default=None)

    def build(self) -> "EncoderDecoder":
        """Build the network."""
        return EncoderDecoder(self)

    def with_vocab_size(self, vocab_size: int) -> "EncoderDecoderArchitecture":
        """Return a copy with another number of token embeddings, which both stacks share."""
        return replace(
            self,
            encoder=self.encoder.with_vocab_size(vocab_size),
            decoder=self.decoder.with_vocab_size(vocab_size),
        )

    def activations(self, length: int) -> int:
        """Estimate the activations per token kept for the backward pass, by all stacks."""
        source = self.source_encoder
        return super().activations(length) + (0 if source is None else source.activations(length))

    def with_dropout(self, rate: float) -> "EncoderDecoderArchitecture":
        """Return a copy with another dropout in all stacks.

        Raises:
            ValueError: the rate is not from 0 to below 1.
        """
        changed, source = super().with_dropout(rate), self.source_encoder
        return (
            changed
            if source is None
            else replace(changed, source_encoder=source.with_dropout(rate))
        )


def source_encoder_of(architecture: object) -> Architecture | None:
    """Return the source encoder of an encoder-decoder, where there is one."""
    both = isinstance(architecture, EncoderDecoderArchitecture)
    return architecture.source_encoder if both else None


def _tie_encoder_decoder(encoder: Transformer, decoder: Transformer) -> None:
    """Let a decoder share the modules of an encoder, except cross-attention."""
    own, shared = decoder.position, encoder.position
    if isinstance(own, RelativePositionBiasModule) and isinstance(
        shared, RelativePositionBiasModule
    ):
        own.table = shared.table  # distances may be in other buckets
    else:
        decoder.position = shared
    for part in ("embed_norm", "widen", "final_norm", "segments", "convolution", "mix"):
        setattr(decoder, part, getattr(encoder, part))
    for own_layer, layer in zip(decoder.layers, encoder.layers, strict=True):
        for part in ("attention", "attention_norm", "feed_forward", "feed_forward_norm"):
            setattr(own_layer, part, getattr(layer, part))


class TwoStackNetwork(nn.Module):
    """An encoder's hidden states of a source, and the decoder that attends to them [b t d]."""

    def __init__(
        self, a: TwoStackArchitecture, tokens: nn.Embedding, encoder: Transformer, own: Architecture
    ) -> None:
        super().__init__()
        self.a = a
        self.tokens = tokens
        self.encoder = encoder
        self.decoder = Transformer(own, tokens)

    @property
    def width(self) -> int:
        """Size of the hidden states."""
        return self.a.d_model

    @property
    def embedding_table(self) -> nn.Embedding:
        """The token embeddings, which a head may be tied to."""
        return self.tokens

    @property
    def supports_last_only(self) -> bool:
        """It does not support `selected_column`."""
        return False

    @property
    def encoder_stack(self) -> Transformer:
        """The network that reads sources: the encoder."""
        return self.encoder

    @property
    def decoder_stack(self) -> Transformer:
        """The network whose hidden states the heads read: the decoder."""
        return self.decoder

    @property
    def stacks(self) -> tuple[Transformer, ...]:
        """All networks of one stack: encoder, source encoder if there is one, and decoder."""
        return (*self.encoder.stacks, *self.decoder.stacks)

    @property
    def n_token_layers(self) -> int:
        """All layers of the encoder have a hidden state for each token."""
        return self.encoder.n_token_layers

    def unsupported_reason(self, ability: Ability) -> str | None:
        """Return why an ability is not supported: what is of one stack alone."""
        reasons = {
            "memory": NO_MEMORY,
            **NOT_ONE_STACK,
        }
        return reasons.get(ability)

    def pad_for_network(self, batch: Batch) -> Batch:
        """Return the batch as it is: no text depends on the padding after it."""
        return batch

    def new_cache(self, max_rollback: int = 0) -> Cache:
        """Make an empty cache for the decoder; up to `max_rollback` tokens can be removed again."""
        return self.decoder.new_cache(max_rollback)

    def flops(self, length: int) -> float:
        """Count the forward FLOPs per token in texts of `length` tokens, without heads.

        The mean of the two stacks.
        """
        return (self.encoder.flops(length) + self.decoder.flops(length)) / 2

    def source_of(self, batch: Batch) -> Batch:
        """Return the source of a batch as a batch of its own.

        Raises:
            ValueError: there is none.
        """
        if batch.source is None:
            raise ValueError("an encoder-decoder needs a batch with a source")
        return Batch(inputs=batch.source, visibility=batch.source_visibility)

    def encode(self, batch: Batch) -> Float[Tensor, "b s d"]:
        """Run the encoder over the source of the batch."""
        return self.encoder(self.source_of(batch))

    def layer_states(self, batch: Batch, layer: int) -> Float[Tensor, "b s d"]:
        """Return the input of an encoder layer, or, for the number of layers, the output."""
        return self.encoder.layer_states(self.source_of(batch), layer)

    def forward(
        self, batch: Batch, cache: Cache | None = None, encoder_hidden_states: Tensor | None = None
    ) -> Float[Tensor, "b t d"]:
        """Run the decoder over the batch.

        `encoder_hidden_states` is the result of `encode`, if it was computed before.
        """
        if encoder_hidden_states is None and (cache is None or cache.length == 0):
            encoder_hidden_states = self.encode(batch)
        return self.decoder(batch, cache, encoder_hidden_states, batch.source_visibility)


class EncoderDecoder(TwoStackNetwork):
    """Source and token ids -> hidden states of the decoder [b t d].

    The two stacks share the token embeddings, unless there is a source encoder.
    """

    def __init__(self, a: EncoderDecoderArchitecture) -> None:
        tokens = nn.Embedding(a.vocab_size, a.encoder.d_embed)
        encoder = (
            Transformer(a.encoder, tokens)
            if a.source_encoder is None
            else SourceEncodedTransformer(a.encoder, tokens, a.source_encoder)
        )
        super().__init__(a, tokens, encoder, a.decoder)
        if a.tie_encoder_decoder:
            _tie_encoder_decoder(self.encoder, self.decoder)
