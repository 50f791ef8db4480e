"""Layers of LSTM and GRU cells."""

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from unmask.model.requested_states import has_hooks

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


class _ProjectedLSTM(torch.autograd.Function):
    """LSTM cells whose outputs are projected (Sak et al. 2014, arXiv:1402.1128, section 2).

    Several layers of the same sizes take each step together. The backward is written out: autograd
    would record some fifteen operations a step, and multiply once a step for the gradient of each
    weight, which here is one product for all steps. Cells and gates are in float32 at least.
    """

    @staticmethod
    def forward(
        ctx: Any,
        gate_inputs: Float[Tensor, "k t b g"],
        h: Float[Tensor, "k b d"],
        c: Float[Tensor, "k b n"],
        recurrent: Float[Tensor, "k g d"],
        projection: Float[Tensor, "k d n"],
        clip: float | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        (k, t, b, width), n = gate_inputs.shape, c.shape[-1]
        limit = torch.inf if clip is None else clip
        exact = torch.promote_types(gate_inputs.dtype, torch.float32)
        gates = gate_inputs.new_empty((k, t, b, width), dtype=exact)
        cells = gate_inputs.new_empty((k, t + 1, b, n), dtype=exact)
        squashed = gate_inputs.new_empty((k, t, b, n), dtype=exact)
        hidden = gate_inputs.new_empty(k, t, b, n)
        outputs = gate_inputs.new_empty(k, t + 1, b, h.shape[-1])
        cells[:, 0], outputs[:, 0] = c, h
        recalls, projects = recurrent.mT, projection.mT
        for i in range(t):
            gate = gates[:, i]
            gate.copy_(torch.baddbmm(gate_inputs[:, i], outputs[:, i], recalls))
            input_, forget, new, out = gate.split(n, -1)
            gate[..., : 2 * n].sigmoid_()
            new.tanh_()
            out.sigmoid_()
            cell = torch.mul(forget, cells[:, i], out=cells[:, i + 1]).addcmul_(input_, new)
            cell.clamp_(-limit, limit)
            hidden[:, i] = out * torch.tanh(cell, out=squashed[:, i])
            outputs[:, i + 1] = torch.bmm(hidden[:, i], projects).clamp_(-limit, limit)
        ctx.save_for_backward(gates, cells, squashed, hidden, outputs, recurrent, projection)
        ctx.limit = limit
        last = outputs[:, -1].clone(), cells[:, -1].to(c.dtype, copy=True)
        return outputs[:, 1:].clone(), *last

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor | None, ...]:
        gates, cells, squashed, hidden, outputs, recurrent, projection = ctx.saved_tensors
        t, n = squashed.shape[1], squashed.shape[-1]
        input_, forget, new, out = gates.split(n, -1)
        # what the gradients of a step are multiplied with, for all steps at once
        of_output, of_cell = squashed * out * (1 - out), out * (1 - squashed.square())
        of_gates = gates.new_empty(*squashed.shape[:3], 3, n)
        torch.mul(new * input_, 1 - input_, out=of_gates[..., 0, :])
        torch.mul(cells[:, :-1] * forget, 1 - forget, out=of_gates[..., 1, :])
        torch.mul(input_, 1 - new.square(), out=of_gates[..., 2, :])
        is_free, cell_is_free = (x[:, 1:].abs() < ctx.limit for x in (outputs, cells))
        d_outputs, d_h, d_c = grads[0], grads[1], grads[2].to(gates.dtype)
        d_gates, d_projected = hidden.new_empty(gates.shape), torch.empty_like(d_outputs)
        for i in reversed(range(t)):
            d_projected[:, i] = (d_h + d_outputs[:, i]) * is_free[:, i]
            d_hidden = torch.bmm(d_projected[:, i], projection).to(gates.dtype)
            d_c = d_c.addcmul(d_hidden, of_cell[:, i]).mul_(cell_is_free[:, i])
            d_gate = d_gates[:, i]
            d_gate[..., : 3 * n].unflatten(-1, (3, n)).copy_(d_c[..., None, :] * of_gates[:, i])
            d_gate[..., 3 * n :] = d_hidden * of_output[:, i]
            d_c *= forget[:, i]
            d_h = torch.bmm(d_gate, recurrent)
        read = outputs[:, :-1].flatten(1, 2)
        d_recurrent = torch.bmm(d_gates.flatten(1, 2).mT, read)
        d_projection = torch.bmm(d_projected.flatten(1, 2).mT, hidden.flatten(1, 2))
        return d_gates, d_h, d_c.to(grads[2].dtype), d_recurrent, d_projection, None


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
        if self.has_own_backward:
            return run_side_by_side([self], [x], [state])[0]
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

    @property
    def has_own_backward(self) -> bool:
        """Whether its steps are one operation: it projects by a map that nothing watches."""
        return (
            type(self.projects) is nn.Linear
            and not has_hooks(self.projects)
            and not torch.compiler.is_compiling()
        )

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


def run_side_by_side(
    layers: Sequence[LSTMLayer],
    inputs: Sequence[Float[Tensor, "b t _"]],
    states: Sequence[RecurrentState],
) -> list[tuple[Float[Tensor, "b t d"], RecurrentState]]:
    """Run layers that have their own backward and do not read each other, a step of all at once.

    Their sizes are the same; of each, the outputs at all tokens and the last state are returned.
    """
    projects = [layer.projects.weight for layer in layers if layer.projects is not None]
    recalls = [F.dropout(la.recalls.weight, la.weight_dropout, la.training) for la in layers]
    h, c = (torch.stack(some) for some in zip(*states, strict=True))
    by_time = [x.transpose(0, 1).contiguous() for x in inputs]
    gate_inputs = torch.stack([la.reads(x) for la, x in zip(layers, by_time, strict=True)])
    found = _ProjectedLSTM.apply(
        gate_inputs, h, c, torch.stack(recalls), torch.stack(projects), layers[0].clip
    )
    outputs, h, c = cast("tuple[Tensor, Tensor, Tensor]", found)
    return [(y.transpose(0, 1), (h[i], c[i])) for i, y in enumerate(outputs)]


class GRULayer(nn.Module):
    """One layer in one direction; gates are ordered as in torch: reset, update, new.

    Cho et al. 2014, arXiv:1406.1078. The reset gate applies to the projection of the last state, as
    in torch and in the released code of skip-thoughts (`gru_layer`), and not to the state itself.
    """

    n_gates: ClassVar[int] = 3
    has_own_backward: ClassVar[bool] = False

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


def run_both(
    layers: Sequence[LSTMLayer | GRULayer], inputs: Sequence[Float[Tensor, "n l _"]]
) -> list[tuple[Float[Tensor, "n l d"], RecurrentState]]:
    """Run the layers of both directions from their first states: together, where that is faster."""
    states = [layer.initial_state(x) for layer, x in zip(layers, inputs, strict=True)]
    if all(layer.has_own_backward and not has_hooks(layer) for layer in layers):
        return run_side_by_side(cast("Sequence[LSTMLayer]", layers), inputs, states)
    return [layer(x, state) for layer, x, state in zip(layers, inputs, states, strict=True)]
