"""Recurrent networks: LSTMs and GRUs.

Without layers, the network is an embedding table, as learned by word2vec.
"""

from collections import deque
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import Batch
from unmask.model.architecture import (
    NO_LAYER_RECORDS,
    NO_VIRTUAL_TOKENS,
    NOT_ONE_STACK,
    Ability,
    AttentionPattern,
    StackArchitecture,
    require_support,
)
from unmask.model.backbones.recurrent_layers import (
    GRULayer,
    LSTMLayer,
    RecurrentState,
    RowLayout,
    VariationalDropout,
    run_both,
)
from unmask.model.initialize import Initializer, UniformInit
from unmask.model.layers.attention.query_stream import QueryStream
from unmask.model.layers.embeddings.adaptive import AdaptiveEmbedding
from unmask.model.layers.embeddings.character_cnn import CharacterCNNModule
from unmask.model.layers.feed_forward import Dropout
from unmask.model.layers.layer_pass import identity
from unmask.model.requested_states import requested_states
from unmask.model.text_layout import TextLayout
from unmask.objectives.features import Recurrence, RecurrenceMemory, TwoStream
from unmask.objectives.reach import Reach

MIN_ROLLBACK = 8
"""Number of tokens that can always be removed from a cache again."""


@dataclass(frozen=True, kw_only=True)
class RecurrentArchitecture(StackArchitecture):
    """A stack of LSTMs (Hochreiter and Schmidhuber 1997, doi:10.1162/neco.1997.9.8.1735), or GRUs.

    `d_ff` is the number of cells of a layer, of both directions together; the last layer has
    `d_model`, unless outputs are projected (`projection`).
    """

    d_ff: int
    cell: Literal["lstm", "gru"] = "lstm"
    direction: Literal["forward", "together", "apart", "twice"] = "forward"
    """"forward": one direction. "together": both directions, each with half of the size, and each
    layer reads the outputs of both. "apart": two independent stacks, one for each direction (Peters
    et al. 2018, arXiv:1802.05365, section 3.1); "twice": two forward stacks, each with half of the
    hidden size and of the token embeddings (Logeswaran and Lee 2018, arXiv:1803.02893, section 3: f
    and g)."""
    projection: bool = False
    """The outputs of the cells are projected to `d_model` (Sak et al. 2014, arXiv:1402.1128)."""
    residual: bool = False
    """Layers above the first have residual connections (Peters et al. 2018, section 3.4)."""
    cell_clip: float | None = None
    """Absolute value to which cell states and projections are clipped (released code of ELMo)."""
    variational_dropout: bool = False
    """One dropout mask per text is used at all of its tokens (Gal and Ghahramani 2016,
    arXiv:1512.05287)."""
    input_dropout: float = 0.0
    """Dropout probability of token embeddings. `dropout` applies between layers, `final_dropout`
    after the last."""
    embedding_dropout: float = 0.0
    """The probability that a token type is dropped (Gal and Ghahramani 2016, section 4)."""
    weight_dropout: float = 0.0
    """Dropout probability of the recurrent weights (Merity et al. 2018, arXiv:1708.02182, section
    2)."""
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
        """Fields that have no effect on this network, or only on heads."""
        of_layers = (
            "d_ff", "causal", "cell", "direction", "projection", "residual", "cell_clip", "dropout",
            "weight_dropout", "final_dropout",
        )  # fmt: skip
        return ("norm", "biases", *(of_layers if self.n_layers == 0 else ()))

    @property
    def has_direction_ends(self) -> bool:
        """Whether each half of the hidden states is that of one direction."""
        return self.bidirectional

    @property
    def bidirectional(self) -> bool:
        """Whether there is a forward and a backward direction."""
        return self.direction in ("together", "apart")

    @property
    def n_directions(self) -> int:
        """The number of directions, or of forward stacks."""
        return 1 if self.direction == "forward" else 2

    @property
    def reaches(self) -> tuple[Reach, ...]:
        """What each layer reads for a token: a state that has read all before it, or both ways."""
        after = None if self.bidirectional else 0
        return (Reach(by="state", after=after),) * self.n_layers

    def layer_sizes(self, i: int) -> tuple[int, int, int]:
        """Return the sizes of input, cells and output of one direction of layer i."""
        d_output = self.d_model if self.projection or i == self.n_layers - 1 else self.d_ff
        below = self.d_embed if i == 0 else self.layer_sizes(i - 1)[2] * self.n_directions
        halved = self.direction == "twice" or (i > 0 and self.direction == "apart")
        d_input = below // 2 if halved else below
        cells = self.d_ff if self.projection else d_output
        return d_input, cells // self.n_directions, d_output // self.n_directions

    def build(self) -> "Recurrent":
        """Build the network."""
        return Recurrent(self)

    def build_layer(self, i: int) -> LSTMLayer | GRULayer:
        """Build one direction of layer i."""
        d_input, cells, d_output = self.layer_sizes(i)
        if self.cell == "gru":
            return GRULayer(d_input, d_output, self.weight_dropout)
        return LSTMLayer(
            d_input,
            cells,
            d_output,
            projection=self.projection,
            cell_clip=self.cell_clip,
            weight_dropout=self.weight_dropout,
        )

    @property
    def output_widths(self) -> tuple[int, ...]:
        """Sizes of the input of the first layer and of the output of each layer."""
        twice = 2 if self.direction == "apart" and self.n_layers else 1
        outputs = (self.layer_sizes(i)[2] * self.n_directions for i in range(self.n_layers))
        return (self.d_embed * twice, *outputs)

    def activations(self, length: int) -> int:
        """Estimate the activations per token kept for the backward pass.

        A layer with c cells and inputs of size i keeps 13 c + 4 i in each direction, the workspace
        of oneDNN's LSTM, and its output. With a projection it is the same in bfloat16 (six numbers
        of a cell in float32 and one in bfloat16), and less in float32.
        """
        kept = 0
        for d_input, cells, d_output in map(self.layer_sizes, range(self.n_layers)):
            kept += self.n_directions * (13 * cells + 4 * d_input + d_output)
        return max(kept, self.d_embed)  # a table of vectors has no layers

    def flops(self, length: int) -> float:
        """Count the forward matrix-product FLOPs per token, without embedding and head."""
        weights = 0
        for d_input, cells, d_output in map(self.layer_sizes, range(self.n_layers)):
            gates = LSTMLayer.n_gates if self.cell == "lstm" else GRULayer.n_gates
            weights += self.n_directions * (
                gates * cells * (d_input + d_output) + cells * d_output * self.projection
            )
        return 2.0 * weights


class RecurrentCache:
    """States after the last tokens of some texts, so that each token is computed once."""

    def __init__(self, max_rollback: int = 0) -> None:
        self._states: deque[list[RecurrentState]] = deque(
            maxlen=max(max_rollback, MIN_ROLLBACK) + 1
        )
        self.length = 0
        """Tokens so far."""
        self.prefix_length = 0

    @property
    def can_shift(self) -> bool:
        """Whether its columns can be shifted: never, there are none."""
        return False

    @property
    def states(self) -> list[RecurrentState] | None:
        """The states of all layers after the last token; None before the first token."""
        return self._states[-1] if self._states else None

    def append(self, states: list[RecurrentState]) -> None:
        """Remember the states after one more token."""
        self._states.append(states)
        self.length += 1

    def start(self, states: list[RecurrentState]) -> None:
        """Begin from states that no token has made."""
        self._states.append(states)

    def set_prefix_length(self, n: int) -> None:
        """Refuse virtual tokens before the text.

        Raises:
            ValueError: there are some.
        """
        if n:
            raise ValueError("a recurrent network does not support virtual tokens before its text")

    def select_rows(self, rows: Tensor) -> None:
        """Keep only these rows of the batch, in this order."""
        for i, states in enumerate(self._states):
            self._states[i] = [tuple(x[rows] for x in state) for state in states]

    def crop(self, length: int) -> None:
        """Drop all tokens after the first `length`.

        Raises:
            ValueError: the state after them is dropped already.
        """
        n_removed = max(self.length - length, 0)
        if n_removed and n_removed >= len(self._states):
            raise ValueError(
                f"{n_removed} tokens cannot be removed: the state before them is already dropped; "
                "increase max_rollback"
            )
        for _ in range(n_removed):
            self._states.pop()
        self.length -= n_removed


class Recurrent(nn.Module):
    """Token ids [b t] -> hidden states [b t d]."""

    def __init__(self, a: RecurrentArchitecture, tokens: CharacterCNNModule | None = None) -> None:
        super().__init__()
        self.a = a
        self.tokens = a.build_embedding_table() if tokens is None else tokens
        self.layers = nn.ModuleList(a.build_layer(i) for i in range(a.n_layers))
        back = a.n_layers if a.n_directions == 2 else 0
        self.backward_layers = nn.ModuleList(a.build_layer(i) for i in range(back))
        drop = VariationalDropout if a.variational_dropout else Dropout
        self.input_dropout = drop(a.input_dropout)
        self.dropout, self.final_dropout = drop(a.dropout), drop(a.final_dropout)

    @property
    def width(self) -> int:
        """Size of the hidden states."""
        return self.a.d_model

    @property
    def embedding_table(self) -> nn.Embedding | AdaptiveEmbedding | CharacterCNNModule:
        """The token embeddings, which a head may be tied to."""
        return self.tokens

    @property
    def supports_last_only(self) -> bool:
        """It does not support `selected_column`: a state depends on all before it."""
        return False

    @property
    def encoder_stack(self) -> "Recurrent":
        """The network that reads texts: itself."""
        return self

    @property
    def decoder_stack(self) -> "Recurrent":
        """The network whose hidden states the heads read: itself."""
        return self

    @property
    def stacks(self) -> "tuple[Recurrent, ...]":
        """All networks of one stack: itself."""
        return (self,)

    @property
    def n_token_layers(self) -> int:
        """All of its layers have a hidden state for each token."""
        return len(self.layers)

    def unsupported_reason(self, ability: Ability) -> str | None:
        """Return why an ability is not supported: a memory, if it is bidirectional."""
        if ability == "memory" and not self.a.causal:
            return "only a forward recurrent network can continue from a state"
        reasons: dict[Ability, str] = {
            "layer_records": NO_LAYER_RECORDS,
            "virtual_tokens": NO_VIRTUAL_TOKENS,
            **NOT_ONE_STACK,
        }
        if ability in reasons:
            return reasons[ability]
        widths = self.a.output_widths
        if ability == "layer_mixing" and set(widths) != {self.a.d_model}:
            return f"layers of different widths cannot be mixed, got {widths}"
        return None

    def encode(self, batch: Batch) -> Float[Tensor, "b t _"]:
        """Run the network over the inputs of the batch."""
        return self(batch)

    def layer_states(self, batch: Batch, layer: int) -> Float[Tensor, "b t _"]:
        """Return the input of a layer or, for the number of layers, the output of the last."""
        if layer == len(self.layers):  # hooks may replace it: see `unmask.adapters.scalar_mix`
            return self(batch)
        return self.layer_outputs(batch)[layer]

    def pad_for_network(self, batch: Batch) -> Batch:
        """Return the batch as it is: no text depends on the padding after it."""
        return batch

    def new_cache(self, max_rollback: int = 0) -> RecurrentCache:
        """Make an empty cache, of which the last `max_rollback` tokens may be removed again."""
        return RecurrentCache(max_rollback)

    def flops(self, length: int) -> float:
        """Count the forward FLOPs per token in texts of `length` tokens, without heads."""
        return self.a.flops(length)

    def token_embeddings(self, batch: Batch) -> Float[Tensor, "b t e"]:
        """Return the token embeddings, after dropout."""
        x = self.tokens(batch.inputs)
        if self.training and self.a.embedding_dropout:
            mask = F.dropout(x.new_ones(self.a.vocab_size, 1), self.a.embedding_dropout)
            x = x * mask[batch.inputs]
        return self.input_dropout(x)

    def forward(
        self,
        batch: Batch,
        cache: RecurrentCache | None = None,
        query_stream: QueryStream | None = None,
    ) -> Float[Tensor, "b t _"]:
        """Run the stack over a batch; with a cache, over tokens that follow earlier ones.

        Raises:
            ValueError: a query stream is given; or a cache or memory of a bidirectional network.
        """
        if query_stream is not None:
            raise ValueError("a recurrent network does not support a query stream")
        if cache is not None:
            return self._decode_with_cache(batch, cache)
        recurrence = batch.feature(Recurrence)
        if recurrence is not None and recurrence.memory is not None:
            return self._continue_from_memory(batch, recurrence.memory, recurrence.reuse_len)
        layers = self.layer_outputs(batch)
        return torch.cat(layers, -1) if requested_states(batch).all_layers else layers[-1]

    def layer_outputs(self, batch: Batch) -> list[Float[Tensor, "b t _"]]:
        """Return the input of the first layer and the outputs of all layers.

        With `TwoStream` the outputs at each position do not depend on its token: each
        direction's are shifted by one.

        Raises:
            ValueError: the batch has `TwoStream`, and the directions are not "apart".
        """
        x, texts = self.lay_out(batch)
        outputs = self._run_layers(x, texts)
        two_stream = batch.has(TwoStream)
        return [texts.to_batch(self._shift_by_one(y) if two_stream else y) for y in outputs]

    def lay_out(self, batch: Batch) -> tuple[Float[Tensor, "n l e"], RowLayout]:
        """Return the token embeddings of each text in a row of its own, and the texts' layout."""
        ahead = self.a.n_directions == 1 and batch.visibility.document is None
        texts = (
            TextLayout(None, None, batch.inputs.shape) if ahead else TextLayout.from_batch(batch)
        )
        return texts.to_texts(self.token_embeddings(batch)), texts

    def _shift_by_one(self, x: Float[Tensor, "n l d"]) -> Float[Tensor, "n l d"]:
        """Shift the outputs of both directions by one position, away from their own token."""
        if self.a.direction != "apart":
            raise ValueError("outputs without their own token need direction = 'apart'")
        forward, backward = x.chunk(2, -1)
        forward = F.pad(forward[:, :-1], (0, 0, 1, 0))
        return torch.cat((forward, F.pad(backward[:, 1:], (0, 0, 0, 1))), -1)

    def _run_layers(
        self,
        x: Float[Tensor, "n l e"],
        layout: RowLayout,
        states: list[RecurrentState] | None = None,
    ) -> list[Tensor]:
        """Return the input of the first layer and the outputs of all, of one text per row."""
        apart, twice = self.a.direction == "apart", self.a.direction == "twice"
        outputs = [torch.cat((x, x), -1) if apart and self.a.n_layers else x]
        for i, layer in enumerate(self.layers):
            below = outputs[-1] if i else x
            forward = below
            if twice or (apart and i):
                forward, below = below.chunk(2, -1)
            state = cast(LSTMLayer, layer).initial_state(x) if states is None else states[i]
            if self.a.n_directions == 2:
                reverse = identity if twice else layout.reverse_texts
                both = [cast(LSTMLayer, layer), cast(LSTMLayer, self.backward_layers[i])]
                (y, _), (back_y, _) = run_both(both, [forward, reverse(below)])
                y = torch.cat((y, reverse(back_y)), -1)
            else:
                y, state = layer(forward, state)
            if states is not None:
                states[i] = state
            if self.a.residual and i:
                y = y + outputs[-1]
            last = i == self.a.n_layers - 1
            outputs.append(self.final_dropout(y) if last else self.dropout(y))
        return outputs

    def _continue_from_memory(
        self, batch: Batch, memory: RecurrenceMemory, reuse_len: int | None
    ) -> Float[Tensor, "b t _"]:
        """Continue from the states in a memory, and store the new ones.

        The stored states are those after the last token, or after the first `reuse_len` tokens:
        for each layer the output and, for LSTMs, the cell state, [b 1 d] each.
        """
        require_support(self, "memory")
        x = self.token_embeddings(batch)
        flat_states = [y[:, 0].to(x.dtype) for y in memory.hidden_states]
        states: list[RecurrentState] = [
            cast(LSTMLayer, layer).initial_state(x) for layer in self.layers
        ]
        if flat_states:
            n = len(states[0])
            states = [tuple(flat_states[i : i + n]) for i in range(0, len(flat_states), n)]
        n = x.shape[1] if reuse_len is None else reuse_len
        layers = self._run_layers(x[:, :n], TextLayout(None, None, x[:, :n].shape[:2]), states)
        memory.hidden_states = [y.detach()[:, None] for state in states for y in state]
        if n < x.shape[1]:
            remaining_layers = self._run_layers(
                x[:, n:], TextLayout(None, None, x[:, n:].shape[:2]), states
            )
            layers = [torch.cat(both, 1) for both in zip(layers, remaining_layers, strict=True)]
        return torch.cat(layers, -1) if requested_states(batch).all_layers else layers[-1]

    def _decode_with_cache(self, batch: Batch, cache: RecurrentCache) -> Float[Tensor, "b t _"]:
        """Continue from a cache, token by token; padding before a text is skipped."""
        require_support(self, "memory")
        x = self.token_embeddings(batch)
        document = batch.visibility.document
        is_padding = None if document is None else document[:, -x.shape[1] :] < 0
        states = cache.states or [cast(LSTMLayer, layer).initial_state(x) for layer in self.layers]
        outputs: list[Tensor] = []
        for t in range(x.shape[1]):
            states = list(states)
            layout = TextLayout(None, None, x[:, t : t + 1].shape[:2])
            layers = self._run_layers(x[:, t : t + 1], layout, states)
            outputs.append(
                torch.cat(layers, -1) if requested_states(batch).all_layers else layers[-1]
            )
            if is_padding is not None:
                is_token = ~is_padding[:, t, None]
                states = [tuple(y * is_token for y in state) for state in states]
            cache.append(states)
        return torch.cat(outputs, 1)
