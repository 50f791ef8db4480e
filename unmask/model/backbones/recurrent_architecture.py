"""RecurrentArchitecture: a stack of LSTM or GRU layers, as a value, and its layers."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.model.architecture import AttentionPattern, StackArchitecture
from unmask.model.initialize import Initializer, UniformInit

RecurrentState = tuple[Float[Tensor, "b _"], ...]
"""The output of a layer, and of an LSTM its cell state, after the last token."""


@dataclass(frozen=True, kw_only=True)
class RecurrentArchitecture(StackArchitecture):
    """A stack of LSTMs (Hochreiter and Schmidhuber 1997, doi:10.1162/neco.1997.9.8.1735), or GRUs.

    `d_ff` is the number of cells of a layer, of both directions together; the last layer has
    `d_model`, unless outputs are projected (`projection`).
    """

    d_ff: int
    cell: Literal["lstm", "gru"] = "lstm"
    direction: Literal["forward", "together", "apart", "twice"] = "forward"
    """"forward"; or both directions, each with half of the size: "together", each layer has the
    outputs of both as input, or "apart", two independent stacks (Peters et al. 2018,
    arXiv:1802.05365, section 3.1); or "twice" forward, by two stacks, each of which has half of the
    token embeddings, too (Logeswaran and Lee 2018, arXiv:1803.02893, section 3: f and g)."""
    projection: bool = False
    """The outputs of the cells are projected to `d_model` (Sak et al. 2014, arXiv:1402.1128)."""
    residual: bool = False
    """Layers above the first have residual connections (Peters et al. 2018, section 3.4)."""
    cell_clip: float | None = None
    """Cell states and projections are clipped to this (released code of ELMo)."""
    variational_dropout: bool = False
    """One dropout mask per text is used at all of its tokens (Gal and Ghahramani 2016,
    arXiv:1512.05287)."""
    input_dropout: float = 0.0
    """Of token embeddings. `dropout` is between layers, `final_dropout` after the last."""
    embedding_dropout: float = 0.0
    """The probability that a token type is dropped (Gal and Ghahramani 2016, section 4)."""
    weight_dropout: float = 0.0
    """Of the recurrent weights (Merity et al. 2018, arXiv:1708.02182, section 2)."""
    initializer: Initializer = UniformInit()

    positive_fields: ClassVar[tuple[str, ...]] = ("vocab_size", "d_model", "d_ff")
    size_fields: ClassVar[tuple[str, ...]] = (*StackArchitecture.size_fields, "d_ff")
    inner_rates: ClassVar[tuple[str, ...]] = (
        "final_dropout", "input_dropout", "weight_dropout", "embedding_dropout",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_layers < 0:
            raise ValueError(f"n_layers must be at least 0, got {self.n_layers}")
        if self.causal != (self.direction == "forward" and self.n_layers > 0):
            raise ValueError(
                f"causal = {self.causal} does not go with direction = {self.direction!r}"
            )
        self._check_widths()

    def _check_widths(self) -> None:
        """Check that sizes can be halved, and what a GRU or an embedding table supports."""
        if self.n_directions == 2 and (self.d_model % 2 or self.d_ff % 2):
            raise ValueError(
                f"with two directions d_model and d_ff must be even, got {self.d_model} and "
                f"{self.d_ff}"
            )
        if self.direction == "twice" and self.d_embed % 2:
            raise ValueError(
                f"each stack has half of the token embeddings: their size must be even, got "
                f"{self.d_embed}"
            )
        if self.cell == "gru" and (self.projection or self.cell_clip is not None):
            raise ValueError("a GRU has neither projection nor cell_clip")
        if self.n_layers == 0 and self.d_embed != self.d_model:
            raise ValueError(f"without layers d_model must be embedding_size, {self.d_embed}")

    def with_attention_pattern(
        self, pattern: AttentionPattern, *, generates: bool = False
    ) -> "RecurrentArchitecture":
        """Return the same network, forward or bidirectional.

        Raises:
            ValueError: the pattern is "prefix", which recurrence does not support; or there are no
                layers.
        """
        if self.n_layers == 0:
            raise ValueError(
                "without layers there is no attention pattern: each token is encoded by itself"
            )
        if pattern == "prefix":
            raise ValueError("an LSTM or GRU does not support a bidirectional prefix ('prefix')")
        if pattern == "forward":
            return replace(self, direction="forward", causal=True)
        return self if self.bidirectional else replace(self, direction="together", causal=False)

    @property
    def ignored_fields(self) -> tuple[str, ...]:
        """Fields that have no effect on this network: also those that heads alone read."""
        of_layers = (
            "d_ff", "causal", "cell", "direction", "projection", "residual", "cell_clip", "dropout",
            "weight_dropout", "final_dropout",
        )  # fmt: skip
        return ("norm", "biases", *(of_layers if self.n_layers == 0 else ()))

    @property
    def bidirectional(self) -> bool:
        """Whether there is a forward and a backward direction."""
        return self.direction in ("together", "apart")

    @property
    def n_directions(self) -> int:
        """The number of directions, or of forward stacks."""
        return 1 if self.direction == "forward" else 2

    def layer_sizes(self, i: int) -> tuple[int, int, int]:
        """Return the sizes of input, cells and output of one direction of layer i."""
        d_output = self.d_model if self.projection or i == self.n_layers - 1 else self.d_ff
        below = self.d_embed if i == 0 else self.layer_sizes(i - 1)[2] * self.n_directions
        halved = self.direction == "twice" or (i > 0 and self.direction == "apart")
        d_input = below // 2 if halved else below
        cells = self.d_ff if self.projection else d_output
        return d_input, cells // self.n_directions, d_output // self.n_directions

    def build_layer(self, i: int) -> "LSTMLayer | GRULayer":
        """Build one direction of layer i."""
        if self.cell == "lstm":
            return LSTMLayer(self, i)
        d_input, _, d_output = self.layer_sizes(i)
        return GRULayer(d_input, d_output, self.weight_dropout)

    @property
    def output_widths(self) -> tuple[int, ...]:
        """Sizes of the input of the first layer and of the output of each layer."""
        twice = 2 if self.direction == "apart" and self.n_layers else 1
        outputs = (self.layer_sizes(i)[2] * self.n_directions for i in range(self.n_layers))
        return (self.d_embed * twice, *outputs)

    def activations(self, length: int) -> int:
        """Estimate how many numbers per token are kept until the backward, as of a Transformer."""
        of_layers = self.n_layers * (9 * self.d_model + 2 * self.d_ff + 5 * length // 2)
        return max(of_layers, self.d_embed)  # a table of vectors has no layers

    def flops(self, length: int) -> float:
        """Count the forward's matrix-product FLOPs per token, without embedding and head."""
        weights = 0
        for d_input, cells, d_output in map(self.layer_sizes, range(self.n_layers)):
            gates = LSTMLayer.n_gates if self.cell == "lstm" else GRULayer.n_gates
            weights += self.n_directions * (
                gates * cells * (d_input + d_output) + cells * d_output * self.projection
            )
        return 2.0 * weights


@runtime_checkable
class RowLayout(Protocol):
    """Where texts are in a batch whose texts were put in rows of their own."""

    def reverse_texts(self, x: Float[Tensor, "n l d"]) -> Float[Tensor, "n l d"]:
        """Reverse each text, without the padding behind it."""
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

    def __init__(self, a: RecurrentArchitecture, i: int) -> None:
        super().__init__()
        d_input, cells, d_output = a.layer_sizes(i)
        self.reads = nn.Linear(d_input, 4 * cells)
        self.recalls = nn.Linear(d_output, 4 * cells, bias=False)
        self.projects = nn.Linear(cells, d_output, bias=False) if a.projection else None
        self.clip, self.weight_dropout = a.cell_clip, a.weight_dropout

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
            outputs, h, c = torch.lstm(x, (h, c), weights, True, 1, 0.0, self.training, False, True)
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
        outputs, h = torch.gru(x, state[0][None], weights, True, 1, 0.0, self.training, False, True)
        return outputs, (h[0],)
