"""Show, Attend and Tell: an LSTM that looks at a picture again for each word.

Xu et al. 2015, arXiv:1502.03044, with soft attention (section 4.2). a_i are the annotation vectors
of a picture, y_t its caption's tokens and h_t the states of the LSTM:

    alpha_t = softmax_i f_att(a_i, h_t-1)                        (equations 4 and 5)
    z_t = beta_t sum_i alpha_ti a_i,  beta_t = sigmoid(f_beta(h_t-1))      (section 4.2.1)
    h_t, c_t = LSTM([E y_t-1, z_t], h_t-1, c_t-1)                (equations 1 to 3)
    h_0 = f_init,h(mean of a_i),  c_0 = f_init,c(mean of a_i)    (section 3.1.2)
    p(y_t) = softmax(L_o (E y_t-1 + L_h h_t + L_z z_t))          (equation 7)
"""

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import Batch
from unmask.model.backbones.captioning.lstm_captioner import (
    LSTMCaptioner,
    LSTMCaptionerArchitecture,
)
from unmask.model.backbones.recurrent import Recurrent, RecurrentArchitecture, RecurrentCache
from unmask.model.backbones.recurrent_layers import LSTMLayer, RecurrentState
from unmask.model.requested_states import requested_states


@dataclass(frozen=True, kw_only=True)
class AttendingLSTMArchitecture(RecurrentArchitecture):
    """One LSTM of `d_ff` cells with attention to annotation vectors, as a value.

    Its output, which the matrix L_o maps to the vocabulary, has the size of token embeddings.
    """

    n_layers: int = 1
    causal: bool = True
    d_annotation: int
    """Size of annotation vectors."""
    d_attention: int
    """Inner size of f_att."""

    positive_fields: ClassVar[tuple[str, ...]] = (
        *RecurrentArchitecture.positive_fields, "d_annotation", "d_attention",
    )  # fmt: skip
    size_fields: ClassVar[tuple[str, ...]] = (
        *RecurrentArchitecture.size_fields, "d_annotation", "d_attention",
    )  # fmt: skip

    def __post_init__(self) -> None:
        """Check that it is one plain LSTM."""
        super().__post_init__()
        plain = {"n_layers": 1, "cell": "lstm", "direction": "forward", "projection": False}
        plain |= {"embedding_size": None, "adaptive_input": None, "cell_clip": None}
        for name, only in plain.items():
            if (value := getattr(self, name)) != only:
                raise ValueError(f"an LSTM with attention has {name} = {only!r}, got {value!r}")

    @property
    def attends_to_encoder(self) -> bool:
        """True."""
        return True

    @property
    def returns_attention(self) -> bool:
        """True."""
        return True

    def layer_sizes(self, i: int) -> tuple[int, int, int]:
        """Return the sizes of input, cells and output: it reads a token and what it looks at."""
        return self.d_embed + self.d_annotation, self.d_ff, self.d_ff

    def build(self) -> "AttendingLSTM":
        """Build the network."""
        return AttendingLSTM(self)

    def flops(self, length: int) -> float:
        """Count the forward FLOPs per token, without attention, whose keys are not its own."""
        output = (self.d_ff + self.d_annotation) * self.d_embed + self.d_ff * self.d_attention
        return super().flops(length) + 2 * output

    def attention_flops(self, n_annotations: int, length: int) -> float:
        """Count the FLOPs of attention per token, those of the keys of a picture included."""
        own = self.d_attention + self.d_annotation
        return 2 * n_annotations * (own + self.d_annotation * self.d_attention / length)

    def annotation_activations(self, n_annotations: int) -> int:
        """Estimate what is kept per token of each vector: the hidden layer of f_att."""
        return n_annotations * self.d_attention


@dataclass(frozen=True, kw_only=True)
class ShowAttendAndTellArchitecture(LSTMCaptionerArchitecture):
    """A network of pictures and an LSTM that attends to its patches, as a value (section 3.1)."""

    decoder: AttendingLSTMArchitecture

    def __post_init__(self) -> None:
        """Check that annotations have one size."""
        if self.decoder.d_annotation != self.encoder.d_model:
            raise ValueError(
                f"decoder.d_annotation must be encoder.d_model = {self.encoder.d_model}, got "
                f"{self.decoder.d_annotation}"
            )

    def build(self) -> "ShowAttendAndTell":
        """Build the network."""
        return ShowAttendAndTell(self)


@dataclass(frozen=True)
class Annotations:
    """The vectors of pictures, and what attention computes of them once."""

    vectors: Float[Tensor, "b s a"]
    keys: Float[Tensor, "b s k"]

    def rows(self, rows: Tensor) -> "Annotations":
        """Return those of some rows."""
        return Annotations(self.vectors[rows], self.keys[rows])


class AnnotatedCache(RecurrentCache):
    """States after the last tokens of some captions, and the annotations of their pictures."""

    annotations: Annotations | None = None

    def select_rows(self, rows: Tensor) -> None:
        """Keep only these rows of the batch, in this order."""
        super().select_rows(rows)
        if self.annotations is not None:
            self.annotations = self.annotations.rows(rows)


class SoftAttention(nn.Module):
    """f_att: a perceptron of one hidden layer with tanh (released code; its last bias cancels)."""

    def __init__(self, a: AttendingLSTMArchitecture) -> None:
        super().__init__()
        self.keys = nn.Linear(a.d_annotation, a.d_attention)
        self.queries = nn.Linear(a.d_ff, a.d_attention, bias=False)
        self.score = nn.Linear(a.d_attention, 1, bias=False)

    def forward(
        self, h: Float[Tensor, "b d"], keys: Float[Tensor, "b s k"]
    ) -> Float[Tensor, "b s"]:
        """Return the weight of each annotation vector."""
        scores = self.score(torch.tanh(keys + self.queries(h)[:, None]))
        return scores[..., 0].softmax(-1)


@dataclass(frozen=True)
class Looks:
    """Hidden states of tokens, and the attention with which they were made."""

    hidden: Float[Tensor, "b t d"]
    weights: Float[Tensor, "b t s"]
    states: list[list[RecurrentState]]
    """The state after each token."""


class AttendingLSTM(Recurrent):
    """Annotation vectors and token ids -> E y_t-1 + L_h h_t + L_z z_t [b t d]."""

    def __init__(self, a: AttendingLSTMArchitecture) -> None:
        super().__init__(a)
        self.attention = SoftAttention(a)
        self.gate = nn.Linear(a.d_ff, 1)
        self.first_h = nn.Linear(a.d_annotation, a.d_ff)
        self.first_c = nn.Linear(a.d_annotation, a.d_ff)
        self.from_hidden = nn.Linear(a.d_ff, a.d_model, bias=False)
        self.from_context = nn.Linear(a.d_annotation, a.d_model, bias=False)

    def annotate(self, vectors: Float[Tensor, "b s a"]) -> Annotations:
        """Return annotation vectors with the keys of attention."""
        return Annotations(vectors, self.attention.keys(vectors))

    def first_state(self, vectors: Float[Tensor, "b s a"]) -> RecurrentState:
        """Return h_0 and c_0; the perceptrons have one layer and tanh (released code)."""
        mean = vectors.mean(1)
        return torch.tanh(self.first_h(mean)), torch.tanh(self.first_c(mean))

    def read(self, batch: Batch, seen: Annotations, state: RecurrentState) -> Looks:
        """Read tokens after a state."""
        x, layer = self.token_embeddings(batch), cast(LSTMLayer, self.layers[0])
        recalls = F.dropout(layer.recalls.weight, layer.weight_dropout, self.training)
        of_token, of_context = layer.reads.weight.split((x.shape[-1], seen.vectors.shape[-1]), 1)
        gates = F.linear(x, of_token, layer.reads.bias)
        hidden: list[Tensor] = []
        contexts: list[Tensor] = []
        weights: list[Tensor] = []
        states: list[list[RecurrentState]] = []
        for gate_inputs in gates.unbind(1):
            h = state[0]
            weights.append(self.attention(h, seen.keys))
            looked = (weights[-1][:, None] @ seen.vectors)[:, 0]
            contexts.append(torch.sigmoid(self.gate(h)) * looked)
            state = layer.step(gate_inputs + F.linear(contexts[-1], of_context), state, recalls)
            hidden.append(state[0])
            states.append([state])
        h, z = (self.dropout(torch.stack(some, 1)) for some in (hidden, contexts))
        out = self.final_dropout(x + self.from_hidden(h) + self.from_context(z))
        return Looks(out, torch.stack(weights, 1), states)

    def new_cache(self, max_rollback: int = 0) -> AnnotatedCache:
        """Make an empty cache, of which the last `max_rollback` tokens may be removed again."""
        return AnnotatedCache(max_rollback)


class ShowAttendAndTell(LSTMCaptioner):
    """Pictures and token ids -> what equation 7 maps to the vocabulary [b t d]."""

    def __init__(self, a: ShowAttendAndTellArchitecture) -> None:
        decoder = AttendingLSTM(a.decoder)
        super().__init__(a, decoder)
        self.decoder = decoder
        self.n_special, self.n_patches = a.encoder.position.n_special, a.encoder.n_patches

    def flops(self, length: int) -> float:
        """Count the forward FLOPs per token, the mean of both stacks, with attention."""
        a = cast(AttendingLSTMArchitecture, self.decoder.a)
        return super().flops(length) + a.attention_flops(self.n_patches, length) / 2

    def encode(self, batch: Batch) -> Float[Tensor, "b s a"]:
        """Return the annotation vectors of each picture: those of its patches (section 3.1.1)."""
        return self.encoder(self.source_of(batch))[:, self.n_special :]

    def patch_attention(self, batch: Batch) -> Float[Tensor, "b t s"]:
        """Return the attention to the patches with which each token's successor is predicted."""
        vectors = self.encode(batch)
        state = self.decoder.first_state(vectors)
        return self.decoder.read(batch, self.decoder.annotate(vectors), state).weights

    def forward(
        self,
        batch: Batch,
        cache: AnnotatedCache | None = None,
        encoder_hidden_states: Float[Tensor, "b s a"] | None = None,
    ) -> Float[Tensor, "b t _"]:
        """Run the decoder over the batch; `encoder_hidden_states` is the result of `encode`.

        Where all layers are requested, the attention to each patch comes before the output.

        Raises:
            ValueError: texts of a cache begin with padding.
        """
        if cache is not None and cache.states is not None and cache.annotations is not None:
            seen, state = cache.annotations, cache.states[0]
        else:
            given = encoder_hidden_states
            seen = self.decoder.annotate(self.encode(batch) if given is None else given)
            state = self.decoder.first_state(seen.vectors)
            if cache is not None:
                if batch.visibility.document is not None:
                    raise ValueError(
                        "captions are decoded together only if they begin equally long"
                    )
                cache.annotations = seen
                cache.start([state])
        looks = self.decoder.read(batch, seen, state)
        if cache is not None:
            for states in looks.states:
                cache.append(states)
        if requested_states(batch).all_layers:
            return torch.cat((looks.weights, looks.hidden), -1)
        return looks.hidden
