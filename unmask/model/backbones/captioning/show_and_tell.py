"""Show and Tell: an LSTM whose first input is a picture (Vinyals et al. 2015, arXiv:1411.4555)."""

from dataclasses import dataclass, replace
from typing import cast

from jaxtyping import Float
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.model.architecture import NO_LAYER_RECORDS, NO_MEMORY, NO_VIRTUAL_TOKENS, Ability
from unmask.model.backbones.encoder_decoder import TwoStackArchitecture
from unmask.model.backbones.recurrent import Recurrent, RecurrentArchitecture, RecurrentCache
from unmask.model.backbones.recurrent_layers import LSTMLayer, RecurrentState
from unmask.model.backbones.transformer import Transformer
from unmask.model.backbones.vision_transformer import VisionArchitecture, VisionTransformer
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding
from unmask.model.text_layout import TextLayout
from unmask.objectives.inputs.pictures import Pictures


@dataclass(frozen=True, kw_only=True)
class ShowAndTellArchitecture(TwoStackArchitecture):
    """A network of pictures and an LSTM that writes about its vector, as a value (section 3)."""

    encoder: VisionArchitecture
    decoder: RecurrentArchitecture

    def __post_init__(self) -> None:
        """Check that the decoder is forward."""
        if not self.decoder.causal or self.decoder.adaptive_input is not None:
            raise ValueError("decoder must be a forward LSTM or GRU without adaptive_input")

    @property
    def max_positions(self) -> None:
        """None: texts have any length."""
        return

    def build(self) -> "ShowAndTell":
        """Build the network."""
        return ShowAndTell(self)

    def with_vocab_size(self, vocab_size: int) -> "ShowAndTellArchitecture":
        """Return a copy with another number of token embeddings."""
        return replace(self, decoder=self.decoder.with_vocab_size(vocab_size))


class PictureRecurrent(Recurrent):
    """A forward recurrent network that reads a vector before the first token."""

    def read(
        self, batch: Batch, first: Float[Tensor, "b 1 e"], cache: RecurrentCache | None
    ) -> Float[Tensor, "b t d"]:
        """Read `first`, then the tokens (equations 10 to 12).

        Raises:
            ValueError: texts of a cache begin with padding.
        """
        states = self._states_after(first)
        if cache is None:
            x = self.token_embeddings(batch)
            return self._run_layers(x, _rows_of(x), states)[-1]
        if batch.visibility.document is not None:
            raise ValueError("captions are decoded together only if they begin equally long")
        cache.start(states)
        return self(batch, cache)

    def _states_after(self, first: Float[Tensor, "b 1 e"]) -> list[RecurrentState]:
        states = [cast(LSTMLayer, layer).initial_state(first) for layer in self.layers]
        self._run_layers(self.input_dropout(first), _rows_of(first), states)
        return states


def _rows_of(x: Float[Tensor, "b t e"]) -> TextLayout:
    return TextLayout(None, None, x.shape[:2])


class ShowAndTell(nn.Module):
    """Pictures and token ids -> hidden states of the LSTM [b t d]."""

    def __init__(self, a: ShowAndTellArchitecture) -> None:
        super().__init__()
        self.a = a
        decoder = PictureRecurrent(a.decoder)
        self.tokens = decoder.tokens
        self.encoder = VisionTransformer(a.encoder)
        self.decoder = decoder
        self.projection = nn.Linear(a.encoder.d_model, a.decoder.d_embed)
        """To the size of word embeddings: picture and words are in one space (section 3.1)."""

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

    def encode(self, batch: Batch) -> Float[Tensor, "b 1 e"]:
        """Return the vector of each picture: that of the class token, projected (equation 10)."""
        return self.projection(self.encoder(self.source_of(batch))[:, :1])

    def layer_states(self, batch: Batch, layer: int) -> Float[Tensor, "b s d"]:
        """Return the input of an encoder layer, or, for the number of layers, the output."""
        return self.encoder.layer_states(self.source_of(batch), layer)

    def forward(
        self,
        batch: Batch,
        cache: RecurrentCache | None = None,
        encoder_hidden_states: Float[Tensor, "b 1 e"] | None = None,
    ) -> Float[Tensor, "b t d"]:
        """Run the decoder over the batch; `encoder_hidden_states` is the result of `encode`."""
        if cache is not None and cache.states is not None:
            return self.decoder(batch, cache)
        first = self.encode(batch) if encoder_hidden_states is None else encoder_hidden_states
        return self.decoder.read(batch, first, cache)
