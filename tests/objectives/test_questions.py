from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vocabularies import BERT, long_text, text, texts

from unmask.batch import IGNORE_INDEX, SENTENCE_START
from unmask.objectives import published
from unmask.objectives.corrupt import MaskInPlace
from unmask.objectives.objective import Objective
from unmask.objectives.select import TokenMasking
from unmask.objectives.sentence_pairs.pairs import SentencePairObjective
from unmask.objectives.sentence_pairs.tasks import NextSentencePrediction, SentenceOrderPrediction

SEEDS = st.integers(0, 2**32 - 1)
EVERY_SENTENCE = NextSentencePrediction(random_probability=0.5, short_probability=0.0)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def pair_of(tokens, special, seed, question=EVERY_SENTENCE):
    """Make a pair; give A, B, the label and the segments."""
    show_all = Objective(
        TokenMasking(1e-9), MaskInPlace(mask_probability=0.0, random_token_probability=0.0)
    )
    e = SentencePairObjective(show_all, question)(tokens, special, rng(seed))
    inside = e.inputs[len(special.prefix) : len(e.inputs) - len(special.suffix)]
    cut = len(special.prefix) + int(np.argmax(e.segments)) if e.segments.any() else None
    if cut is None:
        return inside.tolist(), [], e
    end_of_a = int(np.argmax(e.segments)) - len(special.separator)
    return (
        e.inputs[len(special.prefix) : end_of_a].tolist(),
        e.inputs[int(np.argmax(e.segments)) : len(e.inputs) - len(special.suffix)].tolist(),
        e,
    )


THREE = text(range(10, 22), sentences=[0, 3, 8])
OTHER = text(range(30, 50), sentences=[0, 5, 9, 16])


def test_half_of_the_pairs_are_consecutive():
    tokens, labels = replace(THREE, other_text=OTHER), []
    for seed in range(1000):
        a, b, e = pair_of(tokens, BERT, seed)
        labels.append(e.label)
        if e.label == 0:
            assert len(a) in (3, 8)
            assert a + b == list(range(10, 22))
        else:
            assert len(a) + len(b) <= 12
            assert a == list(range(a[0], a[0] + len(a)))
            assert b == list(range(b[0], b[0] + len(b)))
            assert a[-1] < 18
            assert b[0] >= 30
    assert abs(np.mean(labels) - 0.5) < 5 * np.sqrt(0.25 / 1000)


def test_segments_cover_each_text_with_its_separator():
    a, b, e = pair_of(THREE, BERT, 1)
    assert e.segments.tolist() == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert e.inputs[len(a) + 1] == e.inputs[-1] == 3


def test_random_second_text_starts_at_any_sentence():
    tokens = replace(text(range(10, 50), sentences=[0, 2]), other_text=OTHER)
    starts = {b[0] for seed in range(300) for a, b, e in [pair_of(tokens, BERT, seed)] if e.label}
    assert starts == {30, 35, 39, 46}


@pytest.mark.thorough
def test_lengths_and_ends_do_not_reveal_the_label():
    draw, n, rows = rng(5), 80, []
    for _ in range(300):  # pieces of documents, cut in the middle of sentences
        starts = np.flatnonzero(draw.random(n) < 0.15)
        rows.append(text(draw.integers(10, 59, n).tolist(), sentences=starts.tolist()))
    found = {0: [], 1: []}
    for seed in range(3000):
        one, other = (rows[i] for i in rng(seed).choice(300, 2, replace=False))
        a, b, label = EVERY_SENTENCE(replace(one, other_text=other), rng(seed))
        if label != IGNORE_INDEX:
            found[label].append(
                (len(a), len(a) + len(b) == n, b.boundaries[0] & SENTENCE_START > 0)
            )
    followed, elsewhere = (np.array(found[label], float) for label in (0, 1))
    assert abs(len(followed) / (len(followed) + len(elsewhere)) - 0.5) < 0.05
    assert followed[:, 1].all()
    assert elsewhere[:, 1].mean() > 0.95  # but of rows whose sentences are all too long or short
    assert followed[:, 2].all()
    assert elsewhere[:, 2].mean() > 0.99  # but of rows in which no sentence begins
    assert abs(followed[:, 0].mean() - elsewhere[:, 0].mean()) < 0.05 * n


def test_single_sentence_has_no_pair_label():
    tokens = replace(text(range(10, 20)), other_text=OTHER)
    for seed in range(50):
        a, b, e = pair_of(tokens, BERT, seed)
        assert (a, b, e.label) == (list(range(10, 20)), [], IGNORE_INDEX)


def test_pairs_are_split_at_sentence_boundaries():
    tokens = long_text(200)
    starts = set(np.flatnonzero(tokens.boundaries & SENTENCE_START).tolist())
    for seed in range(30):
        a, _, e = pair_of(tokens, BERT, seed)
        assert e.label == 0
        assert len(a) in starts


def test_half_of_the_pairs_are_swapped():
    tokens, question = long_text(60), SentenceOrderPrediction(short_probability=0.0)
    tokens.boundaries[:] = 0
    tokens.boundaries[::10] = SENTENCE_START
    swapped, cuts = 0, set()
    for seed in range(400):
        a, b, label = question(tokens, rng(seed))
        first, second = (b, a) if label else (a, b)
        assert np.array_equal(np.concatenate((first.ids, second.ids)), tokens.ids)
        swapped += label
        cuts.add(len(first))
    assert 160 < swapped < 240
    assert cuts == {10, 20, 30, 40, 50}
    assert not SentencePairObjective(
        published.MASKED_LM, question
    ).needs_second_text  # nothing comes from elsewhere


def test_single_sentence_pairs_are_consecutive_or_random():
    tokens, other = long_text(60), long_text(60, seed=9)
    for one in (tokens, other):
        one.boundaries[:] = 0
        one.boundaries[::10] = SENTENCE_START
    question, followed = NextSentencePrediction(single_sentences=True), 0
    for seed in range(300):
        a, b, label = question(replace(tokens, other_text=other), rng(seed))
        assert len(a) <= 10
        assert len(b) <= 10
        if label == 0:
            together = np.concatenate((a.ids, b.ids))
            where = [
                i for i in range(61) if np.array_equal(tokens.ids[i : i + len(together)], together)
            ]
            assert where
            assert where[0] % 10 == 0
            followed += 1
        else:
            assert any(np.array_equal(other.ids[i : i + len(b)], b.ids) for i in range(0, 60, 10))
    assert 110 < followed < 190


@pytest.mark.parametrize("n", [0, 1])
def test_single_token_text_has_no_order_label(n):
    assert (
        SentencePairObjective(published.MASKED_LM, SentenceOrderPrediction())(
            long_text(n), BERT, rng()
        ).label
        == IGNORE_INDEX
    )


@pytest.mark.thorough
def test_one_row_in_ten_is_shorter():
    tokens = replace(text(range(10, 90), sentences=range(0, 80, 4)), other_text=OTHER)
    always = [
        len(pair_of(tokens, BERT, s, NextSentencePrediction(0.0, 1.0))[2].inputs) - 3
        for s in range(400)
    ]
    # the first sentences that have a length from 2 to 80 together, of four tokens each; where that
    # is one sentence, the row
    assert min(always) == 8
    assert abs(np.mean(always) - (3 * 80 + 16 * sum(range(2, 21))) / 79) < 6
    default = [
        len(pair_of(tokens, BERT, s, NextSentencePrediction(0.0))[2].inputs) - 3
        for s in range(2000)
    ]
    share = np.mean(np.array(default) < 80)
    assert abs(share - 0.1 * 72 / 79) < 5 * np.sqrt(0.1 / 2000)


def test_without_other_text_pairs_are_consecutive_or_unlabelled():
    labels = {pair_of(THREE, BERT, seed)[2].label for seed in range(20)}
    assert labels == {0}
    a, b, e = pair_of(text(range(10, 20)), BERT, 0)
    assert (a, b, e.label) == (list(range(10, 20)), [], IGNORE_INDEX)
    assert not e.segments.any()
    assert e.inputs.tolist() == [2, *range(10, 20), 3]


@given(texts(least=1), texts(), SEEDS, st.floats(0, 1), st.floats(0, 1))
def test_pair_never_exceeds_its_row(tokens, other, seed, random, short):
    objective = SentencePairObjective(published.MASKED_LM, NextSentencePrediction(random, short))
    e = objective(replace(tokens, other_text=other), BERT, rng(seed))
    assert len(e.inputs) <= objective.max_example_length(np.array([len(tokens)]), BERT)[0]
    assert e.label in (0, 1, IGNORE_INDEX)
    assert (e.label == IGNORE_INDEX) == (not e.segments.any())
    assert (e.inputs[1:-1] != 2).all()
