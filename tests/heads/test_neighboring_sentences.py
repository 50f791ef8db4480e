"""Heads that predict the neighboring sentences (skip-thoughts): formulas and dependencies."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from unmask.batch import IGNORE_INDEX, Batch, Visibility
from unmask.heads.classification.sequence_classification import (
    SequenceClassification,
    pool_hidden_states,
)
from unmask.heads.model import Model
from unmask.heads.pretraining.sentence_reconstruction import (
    QuickThoughts,
    SentenceLayout,
    SkipThoughts,
)
from unmask.model.backbones.recurrent import RecurrentArchitecture

PARTS = torch.tensor(
    [
        [0, 0, 0, 1, 1, 2, 2, 2, 2, -1],  # three sentences
        [0, 0, 0, 2, 2, 2, 2, 3, 3, 3],  # a text of one, and one of two
        [0, 0, 0, 0, 0, -1, -1, -1, -1, -1],  # one
    ]
)
PLACES = [(0, 0, 3), (0, 3, 5), (0, 5, 9), (1, 0, 3), (1, 3, 7), (1, 7, 10), (2, 0, 5)]
"""Row, first and last column (exclusive) of each sentence."""
FOLLOWED = [(0, 1), (1, 2), (4, 5)]
V, D = 20, 6
GRU = RecurrentArchitecture(
    vocab_size=V, d_model=D, embedding_size=4, n_layers=1, d_ff=D, cell="gru", causal=True
)


def batch() -> Batch:
    torch.manual_seed(0)
    ids = torch.randint(0, V, PARTS.shape)
    targets = torch.full_like(ids, IGNORE_INDEX)
    for row, a, b in PLACES[:3] + PLACES[4:6]:
        targets[row, a : b - 1] = ids[row, a + 1 : b]
    return Batch(
        inputs=ids, targets=targets, part_ids=PARTS, visibility=Visibility(document=PARTS),
        last_token_positions=torch.tensor([8, 9, 4]),
    )  # fmt: skip


def model(spec: SkipThoughts | QuickThoughts, **changes) -> Model:
    made = Model(replace(GRU, **changes), {"beside": spec}).eval()
    torch.manual_seed(1)
    for p in made.parameters():
        torch.nn.init.normal_(p, std=0.5)
    return made


@pytest.mark.parametrize("how", ["last", "mean", "first"])
def test_quick_thoughts_loss_equals_formula(how: str) -> None:
    head = model(QuickThoughts(pooling=how)).heads["beside"]
    hidden = torch.randn((*PARTS.shape, D), generator=torch.Generator().manual_seed(0))
    own = [hidden[row, a:b].double().numpy() for row, a, b in PLACES]
    at = {"last": -1, "first": 0}
    vectors = np.stack([x.mean(0) if how == "mean" else x[at[how]] for x in own])
    scores = vectors[:, : D // 2] @ vectors[:, D // 2 :].T
    beside = {0: [1], 1: [0, 2], 2: [1], 4: [5], 5: [4]}
    lost, right = 0.0, 0
    for i, expected in beside.items():
        others = [j for j in range(len(PLACES)) if j != i]
        total = math.log(sum(math.exp(scores[i, j]) for j in others))
        lost += sum(total - scores[i, j] for j in expected) / len(expected)
        right += max(others, key=lambda j, i=i: scores[i, j]) in expected
    prediction = head(hidden, batch(), return_logits=True)
    term = prediction.terms["sentences_found"]
    assert float(term.total) == pytest.approx(lost, rel=1e-5)
    assert (term.count, int(term.n_correct)) == (5, right)
    assert head.count_targets(batch()) == {"sentences_found": 5}
    found = prediction.logits["sentences_found"]
    assert torch.isinf(found.diagonal()).all()
    np.testing.assert_allclose(found.numpy()[0, 1:], scores[0, 1:], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_skip_thoughts_loss_equals_formula() -> None:
    made, given = model(SkipThoughts()), batch()
    head = made.heads["beside"]
    hidden = made.hidden_states(given)

    def lost(decoder, row: int, a: int, b: int, beside: torch.Tensor) -> tuple[float, int]:
        h, total = torch.zeros(D), 0.0
        for i in range(a, b - 1):
            x = torch.cat((made.backbone.tokens.weight[given.inputs[row, i]], beside))
            gates, back = decoder.reads(x).chunk(3), decoder.recalls(h).chunk(3)
            reset, update = (torch.sigmoid(gates[k] + back[k]) for k in (0, 1))
            h = (1 - update) * torch.tanh(gates[2] + reset * back[2]) + update * h
            total -= float(head.out(h).log_softmax(-1)[given.inputs[row, i + 1]])
        return total, b - 1 - a

    sums = {"following": [0.0, 0], "preceding": [0.0, 0]}
    for i, j in FOLLOWED:
        for name, decoder, output, knows in (
            ("following", head.following, j, i),
            ("preceding", head.preceding, i, j),
        ):
            row, _, b = PLACES[knows]
            found = lost(decoder, *PLACES[output], hidden[row, b - 1])
            sums[name] = [x + y for x, y in zip(sums[name], found, strict=True)]
    terms = made(given).terms
    assert head.count_targets(given) == {name: n for name, (_, n) in sums.items()}
    for name, (total, n) in sums.items():
        assert float(terms[name].total) == pytest.approx(total, rel=1e-5)
        assert terms[name].count == n


@torch.no_grad()
def test_decoder_sees_words_before_and_neighboring_sentence_only() -> None:
    made, given = model(SkipThoughts()), batch()
    before = made(given, return_logits=True).logits
    order = {"following": [(j, i) for i, j in FOLLOWED], "preceding": FOLLOWED}
    for row, column in np.ndindex(*PARTS.shape):
        ids = given.inputs.clone()
        ids[row, column] = (ids[row, column] + 1) % V
        after = made(replace(given, inputs=ids), return_logits=True).logits
        for name, pairs in order.items():
            moved = (after[name] != before[name]).any(1).tolist()
            expected = list[bool]()
            for output, knows in sorted(pairs):
                own, (other, a, b) = PLACES[output], PLACES[knows]
                result = row == other and a <= column < b
                expected += [
                    result or (row == own[0] and own[1] <= column <= i)
                    for i in range(own[1], own[2] - 1)
                ]
            assert moved == expected


@pytest.mark.parametrize("spec", [SkipThoughts(), QuickThoughts()], ids=str)
def test_single_sentence_texts_have_no_targets(spec: SkipThoughts | QuickThoughts) -> None:
    made, given = model(spec), batch()
    one = replace(given, part_ids=torch.zeros_like(PARTS), visibility=Visibility())
    assert set(made.count_targets(one).values()) == {0}
    loss = made(one).loss
    assert float(loss.detach()) == 0.0
    loss.backward()
    assert all(p.grad is None or not p.grad.any() for p in made.parameters())
    whole = replace(given, part_ids=None, visibility=Visibility())
    assert made.count_targets(whole) == {}
    assert made(whole).terms == {}


@pytest.mark.parametrize("pool_by", ["last", "ends", "mean", "first"])
@torch.no_grad()
def test_sentence_vector_equals_that_of_the_text_alone(pool_by: str) -> None:
    made, given = model(SkipThoughts(pooling=pool_by), direction="together", causal=False), batch()
    sentences = SentenceLayout.from_batch(given)
    assert sentences is not None
    found = sentences.sentence_embeddings(made.hidden_states(given), pool_by)
    for vector, (row, a, b) in zip(found, PLACES, strict=True):
        alone = Batch(inputs=given.inputs[row, a:b][None])
        hidden = made.hidden_states(alone)
        torch.testing.assert_close(vector, pool_hidden_states(hidden, alone, pool_by)[0])
        if pool_by == "ends":
            both = torch.cat((hidden[0, -1, : D // 2], hidden[0, 0, D // 2 :]))
            torch.testing.assert_close(vector, both)


@pytest.mark.parametrize(
    "spec",
    [
        SkipThoughts(pooling="ends"),
        QuickThoughts(pooling="ends"),
        SequenceClassification(pooling="ends"),
    ],
    ids=str,
)
def test_ends_pooling_needs_a_bidirectional_network(spec) -> None:
    with pytest.raises(ValueError, match="pooling 'ends' needs a bidirectional recurrent network"):
        model(spec)
    with pytest.raises(ValueError, match="'ends' needs pooled_layers"):
        model(
            SequenceClassification(pooling="ends", pooled_layers="all"),
            direction="together",
            causal=False,
        )


def test_odd_width_is_refused() -> None:
    with pytest.raises(ValueError, match="sentences_found: halves d_model, got 5"):
        model(QuickThoughts(), d_model=5, d_ff=5)
