"""LSTMs equal torch's own, in both directions, through padding, memories and caches."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from unmask.batch import Batch, Visibility
from unmask.model.architecture import NO_BIASES
from unmask.model.backbones.recurrent import Recurrent, RecurrentArchitecture
from unmask.model.backbones.recurrent_layers import LSTMLayer, run_side_by_side
from unmask.model.initialize import UniformInit
from unmask.model.layers.feed_forward import RMSNorm
from unmask.model.requested_states import RequestedStates
from unmask.objectives.features import Recurrence, RecurrenceMemory, TwoStream

V, T = 30, 7
SMALL = RecurrentArchitecture(vocab_size=V, d_model=8, n_layers=2, d_ff=12, causal=True)
TOGETHER = replace(SMALL, direction="together", causal=False)
APART = replace(
    SMALL, d_model=16, embedding_size=8, d_ff=24, direction="apart", projection=True, residual=True,
    cell_clip=0.3, causal=False,
)  # fmt: skip
GRU = replace(SMALL, cell="gru")
TWICE = replace(GRU, d_model=16, embedding_size=12, d_ff=24, direction="twice", causal=False)
LENGTHS = (T, 4, 1)


def build(a: RecurrentArchitecture) -> Recurrent:
    torch.manual_seed(0)
    network = Recurrent(a).eval()
    for p in network.parameters():
        nn.init.normal_(p, std=0.5)
    return network


def theirs(ours: Recurrent, layers: nn.ModuleList, i: int) -> nn.LSTM:
    read, cells, output = ours.a.layer_sizes(i)
    both = ours.a.direction == "together"
    narrow = output if ours.a.projection else 0
    lstm = nn.LSTM(read, cells, batch_first=True, bidirectional=both, proj_size=narrow)
    ways = [("", layers[i])] + ([("_reverse", ours.backward_layers[i])] if both else [])
    with torch.no_grad():
        for suffix, layer in ways:
            getattr(lstm, f"weight_ih_l0{suffix}").copy_(layer.reads.weight)
            getattr(lstm, f"weight_hh_l0{suffix}").copy_(layer.recalls.weight)
            getattr(lstm, f"bias_ih_l0{suffix}").copy_(layer.reads.bias)
            getattr(lstm, f"bias_hh_l0{suffix}").zero_()
            if narrow:
                getattr(lstm, f"weight_hr_l0{suffix}").copy_(layer.projects.weight)
    return lstm


def some(causal: bool = True, padded: bool = False) -> Batch:
    torch.manual_seed(1)
    ids = torch.randint(0, V, (len(LENGTHS), T))
    if not padded:
        return Batch(inputs=ids, visibility=Visibility(causal=causal))
    document = torch.tensor([[0] * n + [-1] * (T - n) for n in LENGTHS])
    last = torch.tensor(LENGTHS) - 1
    return Batch(
        inputs=ids,
        visibility=Visibility(document=document, causal=causal),
        last_token_positions=last,
    )


@torch.no_grad()
def test_lstm_stack_equals_torch() -> None:
    network, batch = build(SMALL), some()
    x = network.tokens(batch.inputs)
    for i in range(2):
        x, _ = theirs(network, network.layers, i)(x)
    torch.testing.assert_close(network(batch), x)


@torch.no_grad()
def test_bidirectional_lstm_equals_torch_on_padded_texts() -> None:
    network, batch = build(TOGETHER), some(causal=False, padded=True)
    x = network.tokens(batch.inputs)
    for i in range(2):
        packed = pack_padded_sequence(x, torch.tensor(LENGTHS), batch_first=True)
        x, _ = pad_packed_sequence(theirs(network, network.layers, i)(packed)[0], batch_first=True)
    torch.testing.assert_close(network(batch), x)


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")
def test_independent_forward_and_backward_stacks_equal_torch() -> None:
    free = replace(APART, cell_clip=None, residual=False)
    network, batch = build(free), some(causal=False)
    forth = back = network.tokens(batch.inputs)
    back = back.flip(1)
    for i in range(2):
        forth, _ = theirs(network, network.layers, i)(forth)
        back, _ = theirs(network, network.backward_layers, i)(back)
    torch.testing.assert_close(network(batch), torch.cat((forth, back.flip(1)), -1))


@torch.no_grad()
def test_packing_and_padding_change_nothing() -> None:
    for a in (SMALL, TOGETHER, APART):
        network = build(a)
        ids = some().inputs[:1]
        documents = torch.tensor([[0, 0, 0, 1, 1, -1, -1]])
        packed = network(Batch(inputs=ids, visibility=Visibility(document=documents)))
        first = network(Batch(inputs=ids[:, :3], visibility=Visibility(causal=a.causal)))
        second = network(Batch(inputs=ids[:, 3:5], visibility=Visibility(causal=a.causal)))
        torch.testing.assert_close(packed[:, :3], first)
        torch.testing.assert_close(packed[:, 3:5], second)


def test_weights_are_dropped_once_for_all_steps() -> None:
    layer = LSTMLayer(5, 6, 4, projection=True, weight_dropout=0.5).train()
    x = torch.randn(3, T, 5)
    torch.manual_seed(4)
    found, _ = layer(x, layer.initial_state(x))
    torch.manual_seed(4)
    recalls = nn.functional.dropout(layer.recalls.weight, 0.5)
    state = layer.initial_state(x)
    for i, gates in enumerate(layer.reads(x).unbind(1)):
        state = layer.step(gates, state, recalls)
        torch.testing.assert_close(found[:, i], state[0])


@pytest.mark.parametrize("clip", [None, 0.3])
@pytest.mark.parametrize("n", [1, 2])
def test_gradients_of_steps_taken_together_equal_those_of_autograd(
    n: int, clip: float | None
) -> None:
    torch.manual_seed(2)
    layers = [LSTMLayer(5, 6, 4, projection=True, cell_clip=clip).double() for _ in range(n)]
    inputs = [torch.randn(3, T, 5).double().requires_grad_() for _ in layers]
    states = [tuple(torch.randn(3, d).double().requires_grad_() for d in (4, 6)) for _ in layers]
    for p in (p for layer in layers for p in layer.parameters()):
        nn.init.normal_(p)
    leaves = [*inputs, *(x for some in states for x in some)]
    leaves += [p for layer in layers for p in layer.parameters()]

    def by_steps(layer: LSTMLayer, x: Tensor, state: tuple[Tensor, ...]) -> tuple:
        outputs: list[Tensor] = []
        for gates in layer.reads(x).unbind(1):
            state = layer.step(gates, state, layer.recalls.weight)
            outputs.append(state[0])
        return torch.stack(outputs, 1), state

    def gradients(found: list[tuple]) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        flat = [x for y, state in found for x in (y, *state)]
        torch.manual_seed(3)
        loss = sum((torch.randn(x.shape) * x).sum() for x in flat)
        return flat, torch.autograd.grad(loss, leaves)

    together, ours = gradients(run_side_by_side(layers, inputs, states))
    alone, theirs_ = gradients([by_steps(*one) for one in zip(layers, inputs, states, strict=True)])
    for a, b in zip([*together, *ours], [*alone, *theirs_], strict=True):
        torch.testing.assert_close(a, b)
    if clip is not None:
        at_limit = [float((x.abs() == clip).double().mean()) for x in together]
        assert all(0.05 < share < 0.95 for share in at_limit)


def test_watched_maps_are_called_step_by_step() -> None:
    torch.manual_seed(2)
    layer, x = LSTMLayer(5, 6, 4, projection=True), torch.randn(3, T, 5)
    assert layer.has_own_backward
    expected, _ = layer(x, layer.initial_state(x))
    seen: list[int] = []
    assert layer.projects is not None
    layer.projects.register_forward_hook(lambda *_: seen.append(1))
    assert not layer.has_own_backward
    torch.testing.assert_close(layer(x, layer.initial_state(x))[0], expected)
    assert len(seen) == T


@torch.no_grad()
def test_cells_and_projections_are_clipped() -> None:
    network = build(replace(APART, residual=False))
    output = network(some(causal=False))
    assert output.abs().max() == pytest.approx(0.3)
    assert (
        build(replace(APART, cell_clip=None, residual=False))(some(causal=False)).abs().max() > 0.3
    )


@torch.no_grad()
def test_shifted_outputs_of_each_direction_exclude_the_token() -> None:
    network, batch = build(APART), some(causal=False, padded=True)
    seen, unseen = network(batch), network(batch.with_feature(TwoStream()))
    for row, n in enumerate(LENGTHS):
        torch.testing.assert_close(unseen[row, 1:n, :8], seen[row, : n - 1, :8])
        torch.testing.assert_close(unseen[row, : n - 1, 8:], seen[row, 1:n, 8:])
        assert not unseen[row, 0, :8].any()
    with pytest.raises(ValueError, match="need direction"):
        build(TOGETHER)(some(causal=False).with_feature(TwoStream()))


@torch.no_grad()
def test_concurrent_layers_equal_sequential_ones() -> None:
    network, batch = build(APART), some(causal=False)
    each = network.layer_outputs(batch)
    assert [y.shape[-1] for y in each] == [16, 16, 16]
    torch.testing.assert_close(
        network(batch.with_feature(RequestedStates(all_layers=True))), torch.cat(each, -1)
    )


@torch.no_grad()
@pytest.mark.parametrize("kept", [None, 2])
def test_segments_with_memory_equal_whole_text(kept: int | None) -> None:
    network, batch = build(SMALL), some()
    memory, output, at = RecurrenceMemory(1), [], 0
    whole = network(batch)
    for end in (3, 4, T):
        piece = replace(
            batch, inputs=batch.inputs[:, at:end], features=(Recurrence(memory=memory),)
        )
        if kept is not None and end == 3:
            network(
                piece.with_feature(Recurrence(memory=memory, reuse_len=kept))
            )  # what comes after is read, and not remembered
            piece = replace(piece, inputs=batch.inputs[:, kept:end])
            at = kept
        output.append(network(piece))
        at = end
    started = whole if kept is None else whole[:, kept:]
    torch.testing.assert_close(torch.cat(output, 1), started)


def test_no_gradient_flows_into_the_memory() -> None:
    network, batch = build(SMALL), some()
    memory = RecurrenceMemory(1)
    network(batch.with_feature(Recurrence(memory=memory)))
    assert len(memory.hidden_states) == 4
    assert not any(x.requires_grad for x in memory.hidden_states)


def test_only_forward_networks_continue_from_memory() -> None:
    for a in (TOGETHER, APART):
        with pytest.raises(ValueError, match="only a forward recurrent network"):
            build(a)(some(causal=False).with_feature(Recurrence(memory=RecurrenceMemory(1))))


@torch.no_grad()
def test_cache_can_be_rewound_as_far_as_states_are_kept() -> None:
    network, batch = build(SMALL), some()
    cache = network.new_cache()
    network(replace(batch, inputs=batch.inputs[:, :4]), cache)
    cache.crop(2)
    output = network(replace(batch, inputs=batch.inputs[:, 2:]), cache)
    torch.testing.assert_close(output, network(batch)[:, 2:])
    many = network.new_cache()
    network(replace(batch, inputs=batch.inputs.repeat(1, 3)), many)
    with pytest.raises(ValueError, match="cannot be removed"):
        many.crop(2)


def test_variational_dropout_is_constant_over_a_text() -> None:
    network = build(
        replace(SMALL, n_layers=0, variational_dropout=True, input_dropout=0.5, causal=False)
    )
    network.a = replace(network.a, embedding_size=8)
    network.train()
    with torch.no_grad():
        network.tokens.weight.fill_(1.0)
        output = network(some(causal=False))
    assert set(output.unique().tolist()) == {0.0, 2.0}
    assert (output == output[:, :1]).all()
    assert (output[0, 0] != output[1, 0]).any()


def test_embedding_dropout_drops_word_types_and_weights_drop_per_pass() -> None:
    network = build(replace(SMALL, embedding_dropout=0.5)).train()
    ids = torch.tensor([[3, 4, 3, 4, 3, 4]])
    x = network.token_embeddings(Batch(inputs=ids))
    assert torch.equal(x[:, 0], x[:, 2])
    assert torch.equal(x[:, 1], x[:, 5])
    drops = build(replace(SMALL, weight_dropout=0.5)).train()
    batch = some()
    torch.manual_seed(0)
    first = drops(batch)
    torch.manual_seed(0)
    assert torch.equal(first, drops(batch))
    assert not torch.equal(first, drops(batch))


@torch.no_grad()
def test_gru_equals_torch_at_once_and_token_by_token() -> None:
    network, batch = build(GRU), some()
    x = network.tokens(batch.inputs)
    for i, layer in enumerate(network.layers):
        read, _, output = GRU.layer_sizes(i)
        gru = nn.GRU(read, output, batch_first=True)
        gru.weight_ih_l0.copy_(layer.reads.weight)
        gru.weight_hh_l0.copy_(layer.recalls.weight)
        gru.bias_ih_l0.copy_(layer.reads.bias)
        gru.bias_hh_l0.zero_()
        x, _ = gru(x)
    torch.testing.assert_close(network(batch), x)
    memory, found = RecurrenceMemory(1), []
    for ids in batch.inputs.split(3, 1):
        found.append(network(replace(batch, inputs=ids).with_feature(Recurrence(memory=memory))))
    torch.testing.assert_close(torch.cat(found, 1), x)
    assert len(memory.hidden_states) == 2
    weights = sum(p.numel() for n, p in network.layers.named_parameters() if "bias" not in n)
    assert GRU.flops(T) == 2 * weights


@torch.no_grad()
def test_two_causal_stacks_of_half_width_are_independent() -> None:
    network, batch = build(TWICE), some(causal=False, padded=True)
    half = replace(GRU, d_model=8, embedding_size=6, d_ff=12)
    for n, layers in enumerate((network.layers, network.backward_layers)):
        alone = build(half)
        alone.tokens.weight.copy_(network.tokens.weight.chunk(2, -1)[n])
        alone.layers.load_state_dict(layers.state_dict())
        output = alone(replace(batch, visibility=replace(batch.visibility, causal=True)))
        torch.testing.assert_close(network(batch).chunk(2, -1)[n], output)


@torch.no_grad()
def test_recurrent_matrices_start_orthogonal_per_gate() -> None:
    network = Recurrent(replace(GRU, initializer=UniformInit(0.1, orthogonal=True)))
    torch.manual_seed(0)
    for name, module in network.named_modules():
        network.a.initializer(name, module, network.a)
    for layer in network.layers:
        for gate in layer.recalls.weight.chunk(3):
            torch.testing.assert_close(gate @ gate.T, torch.eye(len(gate)))
        assert float(layer.reads.weight.abs().max()) <= 0.1
        assert not layer.reads.bias.any()


def test_zero_layers_are_an_embedding_table() -> None:
    network = build(RecurrentArchitecture(vocab_size=V, d_model=8, n_layers=0, d_ff=1))
    batch = some(causal=False, padded=True)
    torch.testing.assert_close(network(batch)[0], network.tokens(batch.inputs)[0])


@pytest.mark.parametrize(
    ("changes", "output"),
    [
        ({"causal": False}, "causal = False does not go with direction = 'forward'"),
        ({"direction": "together"}, "causal = True does not go with direction = 'together'"),
        ({"n_layers": -1}, "n_layers must be at least 0, got -1"),
        ({"d_model": 0}, "d_model must be at least 1, got 0"),
        ({"weight_dropout": 1.0}, "weight_dropout must be from 0 to below 1, got 1.0"),
        ({"cell": "gru", "cell_clip": 3.0}, "a GRU has neither projection nor cell_clip"),
        (
            {"direction": "twice", "causal": False, "embedding_size": 9},
            "each stack has half of the token embeddings: their size must be even, got 9",
        ),
    ],
)
def test_impossible_architectures_are_refused(changes: dict, output: str) -> None:
    with pytest.raises(ValueError, match=output):
        replace(SMALL, **changes)


@pytest.mark.parametrize(
    "changed",
    [{"norm": RMSNorm()}, {"biases": NO_BIASES}],
    ids=lambda changed: next(iter(changed)),
)
def test_ignored_fields_change_nothing(changed: dict[str, object]) -> None:
    assert changed.keys() <= set(SMALL.ignored_fields)
    output = list[Tensor]()
    for a in (SMALL, replace(SMALL, **changed)):
        torch.manual_seed(0)
        output.append(Recurrent(a).train()(some()))
    assert torch.equal(*output)
