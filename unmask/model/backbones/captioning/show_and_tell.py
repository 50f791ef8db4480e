"""Show and Tell: an LSTM whose first input is a picture (Vinyals et al. 2015, arXiv:1411.4555)."""

from dataclasses import dataclass
from typing import cast

from jaxtyping import Float
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.model.backbones.captioning.lstm_captioner import (
    LSTMCaptioner,
    LSTMCaptionerArchitecture,
)
from unmask.model.backbones.recurrent import Recurrent, RecurrentCache
from unmask.model.backbones.recurrent_layers import LSTMLayer, RecurrentState
from unmask.model.text_layout import TextLayout


@dataclass(frozen=True, kw_only=True)
class ShowAndTellArchitecture(LSTMCaptionerArchitecture):
    """A network of pictures and an LSTM that writes about its vector, as a value (section 3)."""

    def __post_init__(self) -> None:
        """Check that the decoder is forward."""
        if not self.decoder.causal or self.decoder.adaptive_input is not None:
            raise ValueError("decoder must be a forward LSTM or GRU without adaptive_input")

    @property
    def picture_description(self) -> str:
        """It is the first input of the decoder, once."""
        return "the state has first read a vector of the picture"

    def build(self) -> "ShowAndTell":
        """Build the network."""
        return ShowAndTell(self)


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


class ShowAndTell(LSTMCaptioner):
    """Pictures and token ids -> hidden states of the LSTM [b t d]."""

    def __init__(self, a: ShowAndTellArchitecture) -> None:
        decoder = PictureRecurrent(a.decoder)
        super().__init__(a, decoder)
        self.decoder = decoder
        self.projection = nn.Linear(a.encoder.d_model, a.decoder.d_embed)
        """To the size of word embeddings: picture and words are in one space (section 3.1)."""

    def encode(self, batch: Batch) -> Float[Tensor, "b 1 e"]:
        """Return the vector of each picture: that of the class token, projected (equation 10)."""
        return self.projection(self.encoder(self.source_of(batch))[:, :1])

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
