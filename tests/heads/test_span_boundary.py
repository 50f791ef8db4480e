"""Span boundary objective: tokens of a masked span from its two neighbors."""

import pytest
import torch
from torch.nn import functional as F

from unmask.batch import IGNORE_INDEX, Batch
from unmask.heads.model import Model
from unmask.heads.pretraining.span_boundary import SpanBoundaryObjective, span_of_position
from unmask.model.backbones.transformer import Architecture

V = 40
A = Architecture(vocab_size=V, d_model=16, n_layers=1, n_heads=2, d_ff=16)


def test_spans_of_positions_know_their_boundaries() -> None:
    before, after, position = span_of_position(torch.tensor([2, 3, 4, 7, 11, 12]))
    assert before.tolist() == [1, 1, 1, 6, 10, 10]
    assert after.tolist() == [5, 5, 5, 8, 13, 13]
    assert position.tolist() == [0, 1, 2, 0, 0, 1]
    assert [x.tolist() for x in span_of_position(torch.tensor([], dtype=torch.int64))] == [
        [],
        [],
        [],
    ]


def test_span_boundary_loss_equals_paper() -> None:
    m = (
        Model(A, {"boundary": SpanBoundaryObjective(position_embedding_size=6, max_span_length=3)})
        .initialize(1)
        .eval()
    )
    torch.manual_seed(0)
    inputs = torch.randint(5, V, (2, 9))
    targets = torch.full((2, 9), IGNORE_INDEX)
    targets[0, 2:6] = torch.randint(5, V, (4,))  # four tokens: the last is too far in
    targets[1, 1], targets[1, 7] = 8, 9
    is_target = (targets.flatten() != IGNORE_INDEX).nonzero()[:, 0]
    batch = Batch(inputs=inputs, targets=targets, target_positions=is_target)
    term = m(batch).terms["boundary"]
    head, hidden = m.heads["boundary"], m.hidden_states(batch).double()
    weights = {n: p.detach().double() for n, p in head.named_parameters()}
    table = m.backbone.tokens.weight.detach().double()

    def layer(x, name):
        x = F.gelu(F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"]))
        norm = (weights[f"{name}_norm.weight"], weights[f"{name}_norm.bias"])
        return F.layer_norm(x, (16,), *norm, eps=1e-12)

    lost, n = 0.0, 0
    for row, (start, end) in ((0, (2, 6)), (1, (1, 2)), (1, (7, 8))):
        for i in range(start, min(end, start + 3)):
            position = weights["places.weight"][i - start]
            x = torch.cat((hidden[row, start - 1], hidden[row, end], position))
            scores = table @ layer(layer(x, "first"), "second") + weights["bias"]
            lost -= scores.log_softmax(-1)[targets[row, i]].item()
            n += 1
    assert term.total.item() == pytest.approx(lost, rel=1e-5)
    assert term.count == n == 5
    assert m.count_targets(batch) == {"boundary": 5}
