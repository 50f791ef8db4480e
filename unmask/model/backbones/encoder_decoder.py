"""An encoder and a decoder that share their token embeddings."""

from jaxtyping import Float
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.model.architecture import EncoderDecoderArchitecture
from unmask.model.backbones.transformer import SourceEncodedTransformer, Transformer
from unmask.model.cache import Cache
from unmask.model.positions.relative_bias import RelativePositionBiasModule


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


class EncoderDecoder(nn.Module):
    """Source and token ids -> hidden states of the decoder [b t d].

    The two stacks share the token embeddings, unless there is a source encoder.
    """

    def __init__(self, a: EncoderDecoderArchitecture) -> None:
        super().__init__()
        self.a = a
        self.tokens = nn.Embedding(a.vocab_size, a.encoder.d_embed)
        self.encoder = (
            Transformer(a.encoder, self.tokens)
            if a.source_encoder is None
            else SourceEncodedTransformer(a.encoder, self.tokens, a.source_encoder)
        )
        self.decoder = Transformer(a.decoder, self.tokens)
        if a.tie_encoder_decoder:
            _tie_encoder_decoder(self.encoder, self.decoder)

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

    def pad_for_network(self, batch: Batch) -> Batch:
        """Return the batch as it is: no text depends on the padding behind it."""
        return batch

    def new_cache(self, max_rollback: int = 0) -> Cache:
        """Make an empty cache for the decoder, of which `max_rollback` tokens may be taken back."""
        return self.decoder.new_cache(max_rollback)

    def flops(self, length: int) -> float:
        """Count the forward's FLOPs per token in texts of `length` tokens, without heads.

        The mean of the two stacks.
        """
        return (self.encoder.flops(length) + self.decoder.flops(length)) / 2

    def encode(self, batch: Batch) -> Float[Tensor, "b s d"]:
        """Run the encoder over the source of the batch."""
        if batch.source is None:
            raise ValueError("an encoder-decoder needs a batch with a source")
        return self.encoder(Batch(inputs=batch.source, visibility=batch.source_visibility))

    def forward(
        self, batch: Batch, cache: Cache | None = None, encoder_hidden_states: Tensor | None = None
    ) -> Float[Tensor, "b t d"]:
        """Run the decoder over the batch.

        `encoder_hidden_states` is the result of `encode`, where the caller has it already.
        """
        if encoder_hidden_states is None and (cache is None or cache.length == 0):
            encoder_hidden_states = self.encode(batch)
        return self.decoder(batch, cache, encoder_hidden_states, batch.source_visibility)
