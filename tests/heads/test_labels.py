"""Heads of labels: their losses equal torch's; options are normalized within their item."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from unmask.batch import IGNORE_INDEX, Batch, Example
from unmask.batching.collate import pack_examples, pad_examples
from unmask.heads.classification.choice_groups import ChoiceGroup, ChoiceGroups
from unmask.heads.classification.label_losses import (
    BinaryCrossEntropy,
    ChoiceCrossEntropy,
    CrossEntropy,
    group_log_softmax,
)
from unmask.heads.classification.sequence_classification import (
    SequenceClassification,
    pool_hidden_states,
    sum_parts,
)
from unmask.model.backbones.recurrent import RecurrentArchitecture
from unmask.tokenizers.spec import SpecialTokenIds

SPECIAL = SpecialTokenIds(vocab_size=99, pad=0, start=1, end=2)


def example(n: int = 3, **more) -> Example:
    return Example(inputs=np.full(n, 5), targets=np.full(n, IGNORE_INDEX), **more)


def batch(labels, group=None) -> Batch:
    return Batch(
        inputs=torch.zeros(len(labels), 2, dtype=torch.int64),
        labels=torch.tensor(labels),
        features=() if group is None else (ChoiceGroups(torch.tensor(group)),),
    )


@settings(max_examples=50)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=8), st.integers(0, 10**6))
def test_choice_probabilities_are_softmax_within_groups(sizes, seed) -> None:
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    scores = torch.tensor(rng.normal(0, 30, len(group)), dtype=torch.float32, requires_grad=True)
    logs, best = group_log_softmax(scores, torch.tensor(group))
    for g in range(len(sizes)):
        mine = np.flatnonzero(group == g)
        assert torch.allclose(logs[mine], scores[mine].log_softmax(0), atol=1e-4)
        assert best[mine].sum() == 1
        assert best[mine].long().argmax() == scores[mine].argmax()
    right = torch.tensor([np.flatnonzero(group == g)[0] for g in range(len(sizes))])
    (slope,) = torch.autograd.grad(-logs[right].sum(), scores)
    apart = [
        F.cross_entropy(scores[np.flatnonzero(group == g)][None], torch.tensor([0]))
        for g in range(len(sizes))
    ]
    (expected,) = torch.autograd.grad(torch.stack(apart).sum(), scores)
    assert torch.allclose(slope, expected, atol=1e-5)


def test_choice_loss_counts_groups_with_known_answer() -> None:
    output = torch.tensor([[2.0], [1.0], [0.0], [5.0], [1.0], [1.0]])
    is_target = batch([1, 0, 0, 0, IGNORE_INDEX, IGNORE_INDEX], [0, 0, 1, 1, 2, 2])
    term = ChoiceCrossEntropy().term(output, is_target)
    assert (ChoiceCrossEntropy().count_targets(is_target), term.count, int(term.n_correct)) == (
        1,
        1,
        1,
    )
    assert term.total.item() == pytest.approx(np.log1p(np.exp(-1.0)))
    is_target = batch([0, 1, 1, 0, 0, 1], [0, 0, 1, 1, 2, 2])
    term = ChoiceCrossEntropy().term(output, is_target)
    assert (term.count, int(term.n_correct)) == (3, 0)  # of the last two, alike, none is right


def test_multilabel_loss_equals_torch() -> None:
    torch.manual_seed(0)
    output, truth = torch.randn(4, 3), (torch.rand(4, 3) > 0.5).float()
    term = BinaryCrossEntropy().term(output, batch(truth.tolist()))
    assert term.count == 12
    assert term.loss.item() == pytest.approx(
        F.binary_cross_entropy_with_logits(output, truth).item(), rel=1e-6
    )
    truth[1] = IGNORE_INDEX
    known = torch.tensor([0, 2, 3])
    term = BinaryCrossEntropy().term(output, batch(truth.tolist()))
    assert term.loss.item() == pytest.approx(
        F.binary_cross_entropy_with_logits(output[known], truth[known]).item(), rel=1e-6
    )


def test_label_weights_apply_in_training_only() -> None:
    torch.manual_seed(0)
    weights = (0.5, 1.0, 3.0)
    output, truth = torch.randn(5, 3), torch.tensor([0, 2, 1, IGNORE_INDEX, 2])
    labeled = batch(truth.tolist())
    plain = F.cross_entropy(output, truth, reduction="sum")
    learned = CrossEntropy(label_weights=weights).term(output, labeled, training=True)
    expected = F.cross_entropy(output, truth, torch.tensor(weights), reduction="sum")
    assert learned.total.item() == pytest.approx(expected.item(), rel=1e-6)
    assert learned.count == 4
    assert CrossEntropy(label_weights=weights).term(output, labeled).total.item() == pytest.approx(
        plain.item()
    )
    words = CrossEntropy(label_weights=weights).term(
        output[None].expand(2, -1, -1), batch([truth.tolist()] * 2), training=True
    )
    assert words.total.item() == pytest.approx(2 * expected.item(), rel=1e-6)


def test_last_tokens_of_both_parts_are_summed() -> None:
    made = pad_examples(
        [example(3, part_ids=np.array([0, 0, 1])), example(2, part_ids=np.array([0, 1]))], SPECIAL
    )
    hidden = torch.arange(6.0).reshape(2, 3, 1)  # of the second row the last is padding
    assert sum_parts(hidden, made).tolist() == [[1 + 2], [3 + 4]]
    with pytest.raises(ValueError, match="give pairs to `predict`"):
        sum_parts(hidden, pad_examples([example()], SPECIAL))


def test_concat_pooling_joins_three_vectors() -> None:
    hidden = torch.tensor(
        [[[1.0, -5.0], [4.0, -2.0], [9.0, 9.0]], [[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]]]
    )
    made = pad_examples([example(2), example(3)], SPECIAL)
    assert pool_hidden_states(hidden, made, "max").tolist() == [[4.0, -2.0], [2.0, 2.0]]
    assert pool_hidden_states(hidden, made, "concat").tolist() == [
        [4.0, -2.0, 4.0, -2.0, 2.5, -3.5], [2.0, 2.0, 2.0, 2.0, 1.0, 1.0],
    ]  # fmt: skip


def test_attention_pooling_ignores_padding() -> None:
    torch.manual_seed(0)
    a = RecurrentArchitecture(vocab_size=9, d_model=4, n_layers=0, d_ff=1)
    head = SequenceClassification(pooling="attention", dense_layer=False, dropout=0.0).build(
        a, torch.nn.Embedding(9, 4)
    )
    hidden, made = torch.randn(2, 3, 4), pad_examples([example(2), example(3)], SPECIAL)
    logits = head.logits(hidden, made)
    other = hidden.clone()
    other[0, 2] = 99.0
    torch.testing.assert_close(head.logits(other, made), logits)
    keys = torch.tanh(head.attend.map(hidden[1]))
    weights = (keys @ head.attend.context.weight[0]).softmax(0)
    torch.testing.assert_close(logits[1], head.out(weights @ hidden[1]))


def test_rows_know_their_group_and_multilabels_are_stacked() -> None:
    made = pad_examples(
        [
            example(features=(ChoiceGroup(7),)),
            example(4, features=(ChoiceGroup(3),)),
            example(features=(ChoiceGroup(7),)),
            example(),
        ],
        SPECIAL,
    )
    assert ChoiceGroups.numbers_of(made).tolist() == [0, 1, 0, 2]
    assert not pad_examples([example()], SPECIAL).has(ChoiceGroups)
    assert ChoiceGroups.numbers_of(made.to("cpu")).tolist() == [0, 1, 0, 2]
    several = [example(label=np.array([1, 0], np.float32)), example(5)]
    assert pad_examples(several, SPECIAL).labels.tolist() == [[1, 0], [IGNORE_INDEX, IGNORE_INDEX]]


def test_incompatible_rows_are_refused() -> None:
    held = example(label=np.array([1, 0], np.float32))
    with pytest.raises(ValueError, match="must all have one label, or as many that may hold"):
        pad_examples([held, example(label=1)], SPECIAL)
    with pytest.raises(ValueError, match="must all have one label, or as many that may hold"):
        pad_examples([held, example(label=np.array([1], np.float32))], SPECIAL)
    with pytest.raises(ValueError, match="choice_group cannot be packed"):
        pack_examples(
            [example(features=(ChoiceGroup(1),)), example(features=(ChoiceGroup(1),))], SPECIAL, 20
        )
    with pytest.raises(ValueError, match="cannot be packed"):
        pack_examples([held, held], SPECIAL, 20)
