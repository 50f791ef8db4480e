"""Pairs of source and target: inputs, attention masks, and masked target tokens."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.batch import IGNORE_INDEX
from unmask.objectives.corrupt import MaskInPlace
from unmask.objectives.unified_lm.masked_target import MaskedTarget
from unmask.tokenizers.spec import SpecialTokenIds

SPECIAL = SpecialTokenIds(
    vocab_size=50,
    pad=0,
    unknown=1,
    start=2,
    end=3,
    mask=4,
    prefix=(2,),
    separator=(3,),
    suffix=(3,),
    all_ids=frozenset({0, 1, 2, 3, 4}),
)
HIDES = MaskedTarget(rate=0.7, segment_ids=(4, 5))
SOURCE, TARGET = [2, 11, 12, 13, 3], [21, 22, 23, 3]


def test_source_and_target_equal_hand_computation() -> None:
    e = HIDES.unmasked_example(SOURCE, TARGET)
    assert e.inputs.tolist() == [2, 11, 12, 13, 3, 21, 22, 23, 3]
    assert e.targets.tolist() == [IGNORE_INDEX] * 5 + TARGET
    assert e.rank is not None
    assert e.segments is not None
    assert e.rank.tolist() == [0, 0, 0, 0, 0, 1, 2, 3, 4]
    assert e.segments.tolist() == [4, 4, 4, 4, 4, 5, 5, 5, 5]
    alone = HIDES.unmasked_example(SOURCE, ())
    assert alone.inputs.tolist() == SOURCE
    assert alone.targets.tolist() == [IGNORE_INDEX] * 5
    assert HIDES.mask_target(alone, SPECIAL, np.random.default_rng(0)) == alone


# of n tokens and the end, max(1, round(0.7 n)) are hidden
@pytest.mark.parametrize(("n", "hidden"), [(0, 1), (1, 1), (2, 1), (3, 2), (4, 3), (10, 7)])
def test_expected_number_of_target_tokens_is_masked(n: int, hidden: int) -> None:
    shown = HIDES.unmasked_example(SOURCE, [*range(20, 20 + n), 3])
    e = HIDES.mask_target(shown, SPECIAL, np.random.default_rng(1))
    assert int((e.targets != IGNORE_INDEX).sum()) == hidden


@given(st.integers(0, 9), st.integers(1, 12), st.integers(0, 99), st.floats(0, 1))
def test_source_is_unchanged_and_other_targets_visible(n, m, seed, rate) -> None:
    source, target = [2, *range(10, 10 + n), 3], [*range(30, 30 + m - 1), 3]
    shown = MaskedTarget(rate).unmasked_example(source, target)
    e = MaskedTarget(rate).mask_target(shown, SPECIAL, np.random.default_rng(seed))
    is_target = e.targets != IGNORE_INDEX
    assert not is_target[: len(source)].any()
    assert (e.targets[is_target] == shown.inputs[is_target]).all()
    assert (e.inputs[~is_target] == shown.inputs[~is_target]).all()
    assert shown.inputs.tolist() == [*source, *target]
    assert e.rank is shown.rank


def test_tokens_and_end_are_masked_equally_mostly_by_mask_tokens() -> None:
    shown, rng = HIDES.unmasked_example(SOURCE, TARGET), np.random.default_rng(0)
    some = [HIDES.mask_target(shown, SPECIAL, rng) for _ in range(6000)]
    is_target = np.stack([e.targets != IGNORE_INDEX for e in some])
    inputs = np.stack([e.inputs for e in some])
    assert is_target[:, 5:].mean(0) == pytest.approx([2 / 4] * 4, abs=0.03)  # round(0.7 * 3) of 4
    assert (inputs == SPECIAL.mask)[is_target].mean() == pytest.approx(0.8, abs=0.02)
    same = (inputs == shown.inputs)[is_target].mean()
    assert same == pytest.approx(0.1 + 0.1 * 0.75 / 45, abs=0.02)  # kept, or drawn by chance
    drawn = inputs[is_target & (inputs != SPECIAL.mask) & (inputs != shown.inputs)]
    assert set(drawn.tolist()) == set(range(5, 50))


def test_invalid_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"rate must be between 0 and 1, got 1\.5"):
        MaskedTarget(1.5)
    no_mask = SpecialTokenIds(vocab_size=50, pad=0, start=2, end=3)
    with pytest.raises(ValueError, match="needs a mask token"):
        HIDES.mask_target(HIDES.unmasked_example(SOURCE, TARGET), no_mask, np.random.default_rng(0))


def test_replacements_may_be_special_tokens() -> None:
    ids, hidden = np.array([2, 11, 3]), np.array([False, True, True])
    put = MaskInPlace(mask_probability=1.0, random_token_probability=0.0).mask_tokens(
        ids, hidden, SPECIAL, np.random.default_rng(0)
    )
    assert put.tolist() == [2, 4, 4]
    assert ids.tolist() == [2, 11, 3]
