"""The tagger over words: what it reads, what it counts, and that its labels know of each other."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import nn

from unmask.batch import IGNORE_INDEX, Batch
from unmask.config import from_dict, to_dict
from unmask.heads.model import Model
from unmask.heads.tagging.bilstm_crf import BiLSTMCRF
from unmask.heads.tagging.crf import BOUNDARY
from unmask.model.backbones.transformer import Architecture

TINY = Architecture(
    vocab_size=23, d_model=8, n_layers=1, n_heads=2, d_ff=16, dropout=0.0, attention_dropout=0.0
)
SPEC = BiLSTMCRF(n_labels=3, hidden_size=5, dropout=0.0)
BOTH = pytest.mark.parametrize("crf", [True, False])
X = IGNORE_INDEX
LABELS = torch.tensor([[X, 0, X, 2, 1, X], [X, 1, X, X, X, X], [X] * 6])
ROWS = torch.arange(18).reshape(3, 6)


def head_of(seed=0, **changes):
    torch.manual_seed(seed)
    head = replace(SPEC, **changes).build(TINY, nn.Embedding(1, 1))
    for p in head.parameters():
        nn.init.normal_(p, std=0.5)
    return head


def batch_of(labels=LABELS, inputs=ROWS):
    return Batch(inputs=inputs, labels=labels)


@BOTH
def test_scores_do_not_depend_on_positions_of_words(crf) -> None:
    head, batch = head_of(crf=crf), batch_of()
    hidden = torch.randn(3, 6, 8)
    logits = head.logits(hidden, batch)
    is_target = LABELS != IGNORE_INDEX
    other = torch.where(is_target[..., None], hidden, torch.randn(3, 6, 8))
    assert torch.equal(head.logits(other, batch), logits)
    words = Batch(inputs=ROWS[:1, :3], labels=LABELS[:1][is_target[:1]][None])
    alone = head.logits(hidden[:1][is_target[:1]][None], words)
    assert torch.allclose(alone[0], logits[0][is_target[0]], atol=1e-6)


@BOTH
def test_rows_are_independent(crf) -> None:
    head, batch = head_of(crf=crf), batch_of()
    hidden = torch.randn(3, 6, 8)
    whole = head(hidden, batch, return_logits=True)
    total = 0.0
    for i in range(3):
        one = head(
            hidden[i : i + 1], batch_of(LABELS[i : i + 1], ROWS[i : i + 1]), return_logits=True
        )
        total += float(one.terms["token_label"].total.detach())
        for name, logits in one.logits.items():
            assert torch.allclose(logits[0], whole.logits[name][i], atol=1e-6)
    assert float(whole.terms["token_label"].total.detach()) == pytest.approx(total, rel=1e-5)


@BOTH
def test_loss_is_sequence_likelihood_counted_by_word(crf) -> None:
    head, batch, hidden = head_of(crf=crf), batch_of(), torch.randn(3, 6, 8)
    prediction = head(hidden, batch, return_logits=True)
    term = prediction.terms["token_label"]
    assert head.count_targets(batch) == {"token_label": 4}
    assert term.count == 4
    assert head.count_targets(batch_of(None)) == {}
    logs = prediction.logits["token_label"]
    is_target = LABELS != IGNORE_INDEX
    by_word = -logs[is_target].gather(1, LABELS[is_target][:, None]).sum()
    if crf:  # what all labels say together is not the sum of what each says
        assert not torch.allclose(term.total, by_word, atol=1e-3)
    else:
        assert torch.allclose(term.total, by_word, atol=1e-5)
    # of one word alone there is nothing else to know
    one = head(hidden[1:2], batch_of(LABELS[1:2], ROWS[1:2]), return_logits=True)
    logits = one.logits["token_label"][0, 1, 1]
    assert torch.allclose(one.terms["token_label"].total, -logits, atol=1e-5)


@BOTH
def test_logits_are_marginals_at_words_only(crf) -> None:
    prediction = head_of(crf=crf)(torch.randn(3, 6, 8), batch_of(), return_logits=True)
    logits, path = prediction.logits["token_label"], prediction.logits["token_label_path"]
    is_target = LABELS != IGNORE_INDEX
    assert torch.allclose(logits[is_target].exp().sum(-1), torch.ones(4))
    assert not logits[~is_target].any()
    assert ((path != IGNORE_INDEX) == is_target).all()


@BOTH
def test_viterbi_path_is_decoded_and_counted(crf) -> None:
    head, hidden, batch = head_of(crf=crf), torch.randn(3, 6, 8), batch_of()
    prediction = head(hidden, batch, return_logits=True)
    path = prediction.logits["token_label_path"]
    rows = head.decode(hidden, batch)
    assert [len(row) for row in rows] == [3, 1, 0]
    assert rows == [path[i][LABELS[i] != IGNORE_INDEX].tolist() for i in range(3)]
    right = int((path == LABELS)[LABELS != IGNORE_INDEX].sum())
    assert int(prediction.terms["token_label"].n_correct) == right
    unknown = batch_of(torch.where(LABELS == IGNORE_INDEX, IGNORE_INDEX, 0))
    assert head.decode(hidden, unknown) == rows  # labels only mark the places


def test_forbidden_transitions_are_never_decoded() -> None:
    head = head_of(forbidden_transitions=((BOUNDARY, 2), (0, 2), (2, 2)))
    labels = torch.zeros(50, 6, dtype=torch.long)
    rows = head.decode(3 * torch.randn(50, 6, 8), batch_of(labels, labels))
    assert all(row[0] != 2 for row in rows)
    assert all(pair not in {(0, 2), (2, 2)} for row in rows for pair in pairwise(row))
    assert any(2 in row for row in rows)


@pytest.mark.trials("numbers")
@BOTH
def test_no_targets_give_zero_loss_and_gradients(crf) -> None:
    model = Model(TINY, {"token_label": replace(SPEC, crf=crf)}).initialize()
    batch = batch_of(torch.full((3, 6), IGNORE_INDEX))
    prediction = model(batch)
    assert model.count_targets(batch) == {"token_label": 0}
    assert float(prediction.loss.detach()) == 0
    prediction.loss.backward()
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())


def test_without_word_marks_there_is_no_loss_and_logits_are_refused() -> None:
    model = Model(TINY, {"token_label": SPEC}).initialize()
    batch = batch_of(None)
    assert not model(batch).terms
    with pytest.raises(ValueError, match=r"batch.labels is None: it must mark"):
        model(batch, return_logits=True)


@BOTH
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_parameter_has_a_finite_gradient(crf, layers, dtype) -> None:
    spec = replace(SPEC, crf=crf, n_layers=layers, dropout=0.5)
    model = Model(TINY, {"token_label": spec}).initialize(3).to(dtype)
    term = model(batch_of()).terms["token_label"]
    assert term.total.dtype == torch.float32
    term.loss.backward()
    lacking = [n for n, p in model.named_parameters() if p.grad is None]
    assert [n for n in lacking if n.startswith("heads")] == []
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_initialization_depends_on_the_seed() -> None:
    def weights(seed):
        model = Model(TINY, {"token_label": replace(SPEC, n_layers=2)}).initialize(seed)
        return {name: x for name, x in model.own_weights().items() if name.startswith("heads.")}

    one, same, other = weights(1), weights(1), weights(2)
    assert all(torch.equal(one[name], same[name]) for name in one)
    matrices = [name for name in one if ".weight" in name]
    assert len(matrices) == 9
    assert not any(torch.equal(one[name], other[name]) for name in matrices)
    gate = math.sqrt(6 / (5 + 8))
    largest = float(one["heads.token_label.lstm.weight_ih_l0"].abs().max())
    assert 0.8 * gate < largest <= gate
    assert one["heads.token_label.lstm.bias_ih_l0"].tolist() == [0.0] * 5 + [1.0] * 5 + [0.0] * 10
    assert not one["heads.token_label.lstm.bias_hh_l0"].any()
    assert not one["heads.token_label.crf.transitions"].any()


def test_spec_round_trips_as_plain_data() -> None:
    spec = replace(SPEC, forbidden_transitions=((BOUNDARY, 2), (0, 2)))
    assert from_dict(BiLSTMCRF, to_dict(spec)) == spec


@pytest.mark.thorough
@pytest.mark.parametrize(("crf", "bits"), [(True, 1), (False, 6)])
def test_crf_learns_dependent_labels_jointly(crf, bits) -> None:
    """Words are uninformative; labels are 010101 or 101010: one bit a sentence, or six apart."""
    torch.manual_seed(0)
    head = replace(SPEC, n_labels=2, crf=crf).build(TINY, nn.Embedding(1, 1))
    hidden = torch.ones(2, 6, 8)
    labels = (torch.arange(6) + torch.tensor([[0], [1]])) % 2
    batch = batch_of(labels, labels)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.1)
    for _ in range(100):
        loss = head(hidden, batch).terms["token_label"].total
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) / 2 == pytest.approx(bits * math.log(2), rel=0.05)
    (first, second) = head.decode(hidden, batch)
    assert first == second
    assert (first in labels.tolist()) == crf or not crf


@pytest.mark.thorough
def test_lstm_learns_labels_from_both_neighbors() -> None:
    """A word's label is how many of its two neighbors are ones: no word knows its own."""
    torch.manual_seed(0)
    head = replace(SPEC, hidden_size=16).build(TINY, nn.Embedding(1, 1))
    head.initialize_parameters()
    bits = torch.randint(0, 2, (64, 7))
    around = nn.functional.pad(bits, (1, 1))
    labels = around[:, :-2] + around[:, 2:]
    hidden = torch.zeros(64, 7, 8)
    hidden[..., 0] = 2.0 * bits - 1
    batch = batch_of(labels, bits)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.03)
    for _ in range(60):
        term = head(hidden, batch).terms["token_label"]
        optimizer.zero_grad()
        term.loss.backward()
        optimizer.step()
    assert float(term.n_correct) / term.count > 0.95
