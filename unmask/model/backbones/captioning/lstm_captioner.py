"""What captioners with an LSTM share: a network of pictures, and one that writes about them."""

from dataclasses import dataclass, replace
from typing import TypeVar

from jaxtyping import Float
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.model.architecture import (
    NO_LAYER_RECORDS,
    NO_MEMORY,
    NO_VIRTUAL_TOKENS,
    NOT_ONE_STACK,
    Ability,
)
from unmask.model.backbones.encoder_decoder import TwoStackArchitecture
from unmask.model.backbones.recurrent import Recurrent, RecurrentArchitecture, RecurrentCache
from unmask.model.backbones.transformer import Transformer
from unmask.model.backbones.vision_transformer import VisionArchitecture, VisionTransformer
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding
from unmask.objectives.inputs.pictures import Pictures

CaptionerT = TypeVar("CaptionerT", bound="LSTMCaptionerArchitecture")


@dataclass(frozen=True, kw_only=True)
class LSTMCaptionerArchitecture(TwoStackArchitecture):
    """A network of pictures and an LSTM, as a value."""

    encoder: VisionArchitecture
    decoder: RecurrentArchitecture

    @property
    def max_positions(self) -> None:
        """None: texts have any length."""
        return

    def with_vocab_size(self: CaptionerT, vocab_size: int) -> CaptionerT:
        """Return a copy with another number of token embeddings."""
        return replace(self, decoder=self.decoder.with_vocab_size(vocab_size))


class LSTMCaptioner(nn.Module):
    """A picture's hidden states, and the LSTM that reads them before its tokens."""

    def __init__(self, a: LSTMCaptionerArchitecture, decoder: Recurrent) -> None:
        super().__init__()
        self.a = a
        self.tokens = decoder.tokens
        self.encoder = VisionTransformer(a.encoder)
        self.decoder = decoder

    @property
    def width(self) -> int:
        """Size of the hidden states."""
        return self.a.d_model

    @property
    def embedding_table(self) -> TokenEmbedding:
        """The token embeddings."""
        return self.decoder.embedding_table

    @property
    def supports_last_only(self) -> bool:
        """It does not support `selected_column`."""
        return False

    @property
    def encoder_stack(self) -> Transformer:
        """The network that reads pictures."""
        return self.encoder

    @property
    def decoder_stack(self) -> Recurrent:
        """The network whose hidden states the heads read."""
        return self.decoder

    @property
    def stacks(self) -> tuple[Transformer | Recurrent, ...]:
        """Both networks."""
        return (self.encoder, self.decoder)

    @property
    def n_token_layers(self) -> int:
        """All layers of the encoder have a hidden state for each patch."""
        return self.encoder.n_token_layers

    def unsupported_reason(self, ability: Ability) -> str | None:
        """Return why an ability is not supported: it has an LSTM, and two stacks."""
        reasons = {
            "memory": NO_MEMORY,
            "layer_records": NO_LAYER_RECORDS,
            "virtual_tokens": NO_VIRTUAL_TOKENS,
            **NOT_ONE_STACK,
        }
        return reasons.get(ability)

    def pad_for_network(self, batch: Batch) -> Batch:
        """Return the batch as it is: no text depends on the padding after it."""
        return batch

    def new_cache(self, max_rollback: int = 0) -> RecurrentCache:
        """Make an empty cache, of which the last `max_rollback` tokens may be removed again."""
        return self.decoder.new_cache(max_rollback)

    def flops(self, length: int) -> float:
        """Count the forward FLOPs per token, the mean over a text and its picture."""
        columns = self.a.encoder.position.max_positions
        pictures = self.encoder.flops(columns) * columns
        return (pictures + self.decoder.flops(length) * length) / (columns + length)

    def source_of(self, batch: Batch) -> Batch:
        """Return the pictures of a batch as a batch of their own.

        Raises:
            ValueError: there are none.
        """
        pictures = batch.feature(Pictures)
        if batch.source is None or pictures is None:
            raise ValueError("this network describes pictures, and the batch has none")
        return Batch(inputs=batch.source, features=(pictures,))

    def layer_states(self, batch: Batch, layer: int) -> Float[Tensor, "b s d"]:
        """Return the input of an encoder layer, or, for the number of layers, the output."""
        return self.encoder.layer_states(self.source_of(batch), layer)
