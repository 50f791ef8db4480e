"""Pairs of a masked text and an unmasked crop of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vocabularies import BERT, text, texts

from unmask.batch import IGNORE_INDEX, SENTENCE_START
from unmask.objectives import published
from unmask.objectives.corrupt import MaskInPlace
from unmask.objectives.objective import Objective
from unmask.objectives.select import TokenMasking
from unmask.objectives.sentence_pairs.pairs import (
    AdjacentSentences,
    CropContrastiveObjective,
    SplitTextObjective,
)
from unmask.objectives.sentence_pairs.tasks import NextTextDiscrimination

SEEDS = st.integers(0, 2**32 - 1)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@given(texts(least=0), SEEDS, st.floats(0.05, 1.0))
def test_masked_text_is_followed_by_an_unmasked_crop(tokens, seed, keep):
    objective = CropContrastiveObjective(published.MASKED_LM, keep)
    e = objective(tokens, BERT, rng(seed))
    assert len(e.inputs) == objective.max_example_length(np.array([len(tokens)]), BERT)[0]
    crop = e.inputs[e.part_ids == 1]
    assert (e.targets[e.part_ids == 1] == IGNORE_INDEX).all()
    assert (crop[0], crop[-1]) == (BERT.prefix[0], BERT.suffix[0])
    n = len(crop) - 2
    assert n == int(np.ceil(keep * len(tokens)))
    assert any((tokens.ids[i : i + n] == crop[1:-1]).all() for i in range(len(tokens) - n + 1))
    whole = np.where(e.targets == IGNORE_INDEX, e.inputs, e.targets)[e.part_ids == 0]
    assert (whole[1:-1] == tokens.ids).all()


APART = SplitTextObjective(
    Objective(TokenMasking(1e-9), MaskInPlace(mask_probability=0.0, random_token_probability=0.0))
)


def parts_of(tokens, seed=0, objective=APART):
    """Cut a text; give what is read of each part."""
    e = objective(tokens, BERT, rng(seed))
    return e.inputs[e.part_ids == 0].tolist(), e.inputs[e.part_ids == 1].tolist()


def test_each_part_has_special_tokens_and_nothing_is_lost():
    tokens = text(range(10, 30), sentences=[0, 2, 7, 12, 18])
    cuts = []
    for seed in range(600):
        a, b = parts_of(tokens, seed)
        assert (a[0], a[-1], b[0], b[-1]) == (2, 3, 2, 3)
        assert a[1:-1] + b[1:-1] == list(range(10, 30))
        cuts.append(len(a) - 2)
    # at the beginning of a sentence that leaves four tokens on both sides, each as often
    assert set(cuts) == {7, 12}
    assert abs(cuts.count(7) - 300) < 5 * np.sqrt(150)


def test_unsplittable_text_is_cut_in_its_middle_half():
    cuts = [len(parts_of(text(range(10, 50)), seed)[0]) - 2 for seed in range(500)]
    assert set(cuts) == set(range(10, 31))
    assert abs(np.mean(cuts) - 20) < 5 * np.sqrt(21**2 / 12 / 500)


@pytest.mark.parametrize("n", range(1, 12))
def test_too_short_text_stays_one_part(n):
    a, b = parts_of(text(range(10, 10 + n)))
    assert bool(b) == (n >= 8)
    assert a[0] == 2
    assert (len(a) - 2 >= 4 and len(b) - 2 >= 4) or not b


@given(texts(), SEEDS, st.integers(1, 9))
def test_parts_never_exceed_their_row(tokens, seed, shortest):
    objective = SplitTextObjective(published.MASKED_LM, NextTextDiscrimination(shortest))
    e = objective(tokens, BERT, rng(seed))
    assert (
        len(e.part_ids)
        == len(e.inputs)
        <= objective.max_example_length(np.array([len(tokens)]), BERT)[0]
    )
    assert e.segments is None
    assert e.label is None
    assert (np.diff(e.part_ids) >= 0).all()
    special = e.inputs[e.targets == IGNORE_INDEX]
    assert ((special == 2).sum(), (special == 3).sum()) == (e.part_ids.max() + 1,) * 2


@given(texts(least=1), SEEDS, st.integers(1, 9), st.booleans())
def test_sentences_are_separate_and_words_predicted_from_previous(tokens, seed, shortest, said):
    objective = AdjacentSentences(reconstruct=said, min_mean_tokens=shortest)
    e = objective(tokens, BERT, rng(seed))
    n = e.part_ids.max() + 1
    starts = [0, *(i for i in np.flatnonzero(tokens.boundaries & SENTENCE_START) if i), len(tokens)]
    assert n == min(len(starts) - 1, -(-len(tokens) // shortest))
    for i in range(n):
        read, targets = e.inputs[e.part_ids == i].tolist(), e.targets[e.part_ids == i].tolist()
        assert read == [2, *tokens.ids[starts[i] : starts[i + 1]], 3]
        assert targets == (
            [*read[1:], IGNORE_INDEX] if said and n > 1 else [IGNORE_INDEX] * len(read)
        )
    assert len(e.inputs) <= objective.max_example_length(np.array([len(tokens)]), BERT)[0]
    assert (e.rank, e.label, e.segments) == (None, None, None)


def test_minimum_sentence_length_is_validated():
    with pytest.raises(ValueError, match="min_mean_tokens must be at least 1, got 0"):
        AdjacentSentences(min_mean_tokens=0)
