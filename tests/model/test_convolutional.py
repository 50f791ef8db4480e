"""Filters: what each token reads, and that neither padding nor a neighbor in the row is read."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from unmask.batch import Batch, Visibility
from unmask.model.backbones.convolutional import Convolutional, ConvolutionalArchitecture
from unmask.model.requested_states import RequestedStates

V, T = 30, 9
SMALL = ConvolutionalArchitecture(vocab_size=V, d_model=9, n_layers=1, filter_widths=(2, 3, 5))


def build(a: ConvolutionalArchitecture) -> Convolutional:
    torch.manual_seed(0)
    network = Convolutional(a).eval()
    for p in network.parameters():
        nn.init.normal_(p, std=0.5)
    return network


def some(rows: int = 2) -> Batch:
    torch.manual_seed(1)
    return Batch(inputs=torch.randint(0, V, (rows, T)))


@torch.no_grad()
def test_filter_equals_sum_over_neighborhood() -> None:
    network, batch = build(SMALL), some()
    x = network.tokens(batch.inputs)
    output = network(batch)
    for i, width in enumerate(SMALL.filter_widths):
        conv = network.layers[0].filters[i]
        for t in range(T):
            expected = conv.bias.clone().expand(2, -1)
            for j in range(width):
                at = t + j - (width - 1) // 2
                if 0 <= at < T:
                    expected = expected + x[:, at] @ conv.weight[:, :, j].T
            torch.testing.assert_close(output[:, t, 3 * i : 3 * i + 3], expected.relu())


@pytest.mark.parametrize("layers", [1, 2])
def test_receptive_field_grows_by_the_widest_filter_per_layer(layers: int) -> None:
    network = build(replace(SMALL, n_layers=layers, activation="tanh"))
    seen: list[torch.Tensor] = []

    def keep(module: nn.Module, inputs: object, output: torch.Tensor) -> torch.Tensor:
        seen.append(output.detach().requires_grad_(True))
        return seen[0]

    network.tokens.register_forward_hook(keep)
    result = network(some(1))
    rows = [torch.autograd.grad(result[0, i].sum(), seen[0], retain_graph=True) for i in range(T)]
    read = torch.stack([grad[0][0] for grad in rows]).abs().sum(-1) > 0
    position = torch.arange(T)
    assert torch.equal(read, (position[:, None] - position).abs() <= 2 * layers)


@torch.no_grad()
def test_packing_and_padding_change_nothing() -> None:
    network = build(replace(SMALL, n_layers=3, residual=True))
    ids = some(1).inputs
    document = torch.tensor([[0, 0, 0, 0, 1, 1, 1, -1, -1]])
    packed = network(Batch(inputs=ids, visibility=Visibility(document=document)))
    torch.testing.assert_close(packed[:, :4], network(Batch(inputs=ids[:, :4])))
    torch.testing.assert_close(packed[:, 4:7], network(Batch(inputs=ids[:, 4:7])))


@torch.no_grad()
def test_parallel_filters_equal_separate_ones() -> None:
    network, batch = build(replace(SMALL, n_layers=2)), some()
    each = network.layer_outputs(batch)
    assert len(each) == 3
    torch.testing.assert_close(
        network(batch.with_feature(RequestedStates(all_layers=True))), torch.cat(each, -1)
    )


@pytest.mark.parametrize(
    ("changes", "output"),
    [
        ({"causal": True}, "causal = True is not supported by a convolutional network"),
        ({"filter_widths": ()}, "filter_widths must be one or more numbers above 0"),
        ({"filter_widths": (3, 4)}, "d_model 9 is not a multiple of 2 filter widths"),
    ],
)
def test_invalid_architectures_are_refused(changes: dict, output: str) -> None:
    with pytest.raises(ValueError, match=output):
        replace(SMALL, **changes)
