"""Layers of LSTM and GRU cells."""

import warnings
from typing import ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

RecurrentState = tuple[Float[Tensor, "b _"], ...]
"""The output of a layer after the last token and, for LSTMs, the cell state."""

# A layer's matrices are parameters of their own; cuDNN copies them into one at each call.
warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")


@runtime_checkable
class RowLayout(Protocol):
    """The positions of texts in a batch, each of which is processed in a row of its own."""

    def reverse_texts(self, x: Float[Tensor, "n l d"]) -> Float[Tensor, "n l d"]:
        """Reverse each text, without the padding after it."""
        ...

    def to_batch(self, x: Float[Tensor, "n l d"]) -> Float[Tensor, "b t d"]:
        """Put texts back in the batch's rows; padding is zeros."""
        ...


class VariationalDropout(nn.Module):
    """Dropout with one mask per text, used at all of its tokens."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        """Drop in training, do nothing otherwise."""
        if not self.training or self.rate == 0:
            return x
        return x * F.dropout(x.new_ones(len(x), 1, x.shape[-1]), self.rate)


class LSTMLayer(nn.Module):
    """One layer in one direction; gates are ordered as in torch: input, forget, new, output."""

    n_gates: ClassVar[int] = 4

    def __init__(
        self,
        d_input: int,
        cells: int,
        d_output: int,
        *,
        projection: bool,
        cell_clip: float | None = None,
        weight_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.reads = nn.Linear(d_input, 4 * cells)
        self.recalls = nn.Linear(d_output, 4 * cells, bias=False)
        self.projects = nn.Linear(cells, d_output, bias=False) if projection else None
        self.clip, self.weight_dropout = cell_clip, weight_dropout

    def initial_state(self, x: Float[Tensor, "b t _"]) -> RecurrentState:
        """Return the state before any token."""
        d_output, cells = self.recalls.in_features, self.reads.out_features // 4
        return x.new_zeros(len(x), d_output), x.new_zeros(len(x), cells)

    def forward(
        self, x: Float[Tensor, "b t _"], state: RecurrentState
    ) -> tuple[Float[Tensor, "b t _"], RecurrentState]:
        """Continue from a state; return the outputs at all tokens, and the last state."""
        recalls = F.dropout(self.recalls.weight, self.weight_dropout, self.training)
        if self.projects is None and self.clip is None:
            h, c = (x[None] for x in state)
            none = torch.zeros_like(self.reads.bias)
            weights = [self.reads.weight, recalls, self.reads.bias, none]
            gradients = torch.is_grad_enabled()  # cuDNN keeps what they need if it trains
            outputs, h, c = torch.lstm(x, (h, c), weights, True, 1, 0.0, gradients, False, True)
            return outputs, (h[0], c[0])
        steps: list[Tensor] = []
        for gates in self.reads(x).unbind(1):
            state = self.step(gates, state, recalls)
            steps.append(state[0])
        return torch.stack(steps, 1), state

    def step(
        self, gate_inputs: Float[Tensor, "b g"], state: RecurrentState, recurrent_weight: Tensor
    ) -> RecurrentState:
        """Advance by one token, given the gates' inputs."""
        h, c = state
        input_, forget, new, out = F.linear(h, recurrent_weight).add_(gate_inputs).chunk(4, -1)
        c = torch.sigmoid(forget) * c + torch.sigmoid(input_) * torch.tanh(new)
        c = c if self.clip is None else c.clamp(-self.clip, self.clip)
        h = torch.sigmoid(out) * torch.tanh(c)
        if self.projects is not None:
            h = self.projects(h)
            h = h if self.clip is None else h.clamp(-self.clip, self.clip)
        return h, c


class GRULayer(nn.Module):
    """One layer in one direction; gates are ordered as in torch: reset, update, new.

    Cho et al. 2014, arXiv:1406.1078. The reset gate applies to the projection of the last state, as
    in torch and in the released code of skip-thoughts (`gru_layer`), and not to the state itself.
    """

    n_gates: ClassVar[int] = 3

    def __init__(self, d_input: int, d_output: int, weight_dropout: float = 0.0) -> None:
        super().__init__()
        self.reads = nn.Linear(d_input, self.n_gates * d_output)
        self.recalls = nn.Linear(d_output, self.n_gates * d_output, bias=False)
        self.weight_dropout = weight_dropout

    def initial_state(self, x: Float[Tensor, "b t _"]) -> RecurrentState:
        """Return the state before any token."""
        return (x.new_zeros(len(x), self.recalls.in_features),)

    def forward(
        self, x: Float[Tensor, "b t _"], state: RecurrentState
    ) -> tuple[Float[Tensor, "b t _"], RecurrentState]:
        """Continue from a state; return the outputs at all tokens, and the last state."""
        recalls = F.dropout(self.recalls.weight, self.weight_dropout, self.training)
        none = torch.zeros_like(self.reads.bias)
        weights = [self.reads.weight, recalls, self.reads.bias, none]
        gradients = torch.is_grad_enabled()
        outputs, h = torch.gru(x, state[0][None], weights, True, 1, 0.0, gradients, False, True)
        return outputs, (h[0],)
