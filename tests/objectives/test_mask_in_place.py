"""Masking in place: BERT's 80/10/10 rule, whole spans, shifted targets."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vocabularies import BERT, GPT, LLAMA, T5, WORDS, long_text, text, texts

from unmask.batch import IGNORE_INDEX
from unmask.objectives.corrupt import (
    AutoregressiveMasking,
    CausalLM,
    MaskedNextToken,
    MaskInPlace,
    PermutationLM,
    concatenate,
)
from unmask.objectives.denoising.replace_spans import ReplaceSpans
from unmask.objectives.features import PredictionOrder, ShiftedTargets
from unmask.objectives.objective import Objective
from unmask.objectives.select import (
    AllTokens,
    RandomSpanMasking,
    SuffixMasking,
    TokenMasking,
    WholeWordMasking,
)
from unmask.objectives.text_units import maskable_tokens, number_words

SEEDS = st.integers(0, 2**32 - 1)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def hidden_at(n: int, *where: int) -> np.ndarray:
    return np.isin(np.arange(n), where)


def test_masked_tokens_follow_80_10_10():
    tokens = long_text(40_000)
    e = MaskInPlace()(tokens, np.ones(40_000, bool), BERT, rng())
    masked, kept = e.inputs == BERT.mask, e.inputs == tokens.ids
    # A random token is the right one in 1 case of 94, the ordinary tokens.
    for share, expected in ((masked, 0.8), (kept, 0.1 + 0.1 / 94)):
        assert abs(share.mean() - expected) < 5 * np.sqrt(expected / 40_000)


def test_tokens_of_a_span_are_corrupted_alike():
    tokens = text(np.full(40_000, 20))
    hidden = np.arange(40_000) % 10 < 4  # spans of four
    e = MaskInPlace(whole_spans=True)(tokens, hidden, BERT, rng())
    masked = (e.inputs == BERT.mask).reshape(-1, 10)[:, :4]
    assert (masked.all(1) | ~masked.any(1)).all()
    assert 0.77 < masked.all(1).mean() < 0.83
    kept = (e.inputs == 20).reshape(-1, 10)[:, :4].all(1)
    assert 0.08 < kept.mean() < 0.12


def test_shifted_targets_mask_the_same_tokens():
    tokens, hidden = text(range(10, 30)), hidden_at(22, 1, 5, 6, 20)
    framed = concatenate(BERT.prefix, tokens, BERT.suffix)
    place = MaskInPlace()(framed, hidden, BERT, rng(3))
    before = MaskedNextToken()(framed, hidden, BERT, rng(3))
    assert before.inputs.tolist() == place.inputs.tolist()
    assert np.flatnonzero(before.targets != IGNORE_INDEX).tolist() == [0, 4, 5, 19]
    assert before.targets[[0, 4, 5, 19]].tolist() == [10, 14, 15, 29]
    assert before.rank is None
    assert before.has(ShiftedTargets)
    assert not place.has(ShiftedTargets)


def test_first_maskable_token_has_a_token_before_it():
    for special, first in ((BERT, 2), (replace(GPT, mask=4), 99)):
        framed = MaskedNextToken().add_special_tokens(text([10, 11]), special)
        assert framed.ids.tolist() == [first, 10, 11, *special.suffix]
        size = MaskedNextToken().max_example_length(np.array([2]), TokenMasking(), special)
        assert size.tolist() == [len(framed)]
    with pytest.raises(
        ValueError, match=r"mask_probability \+ random_token_probability must be at most 1"
    ):
        MaskedNextToken(mask_probability=0.8, random_token_probability=0.3)


def test_random_tokens_are_any_non_special():
    tokens = long_text(100_000)
    e = MaskInPlace(mask_probability=0.0, random_token_probability=1.0)(
        tokens, np.ones(100_000, bool), BERT, rng()
    )
    counts = np.bincount(e.inputs, minlength=100)
    special = np.isin(np.arange(100), list(BERT.all_ids))
    assert not counts[special].any()
    expected = 100_000 / 94
    assert np.abs(counts[~special] - expected).max() < 5 * np.sqrt(expected)


def test_special_tokens_are_never_corrupted():
    tokens = text([2, 20, 21, 3])
    e = MaskInPlace(mask_probability=1.0, random_token_probability=0.0)(
        tokens, np.ones(4, bool), BERT, rng()
    )
    assert e.inputs.tolist() == [2, 4, 4, 3]
    assert e.targets.tolist() == [IGNORE_INDEX, 20, 21, IGNORE_INDEX]


def test_unselected_tokens_are_unchanged_and_no_targets():
    tokens = text(range(10, 40))
    hidden = hidden_at(30, 3, 4, 20)
    e = MaskInPlace()(tokens, hidden, BERT, rng())
    assert (e.inputs == tokens.ids)[~hidden].all()
    assert ((e.targets == IGNORE_INDEX) == ~hidden).all()


def test_masking_needs_a_mask_token():
    with pytest.raises(ValueError, match="needs a mask token"):
        MaskInPlace()(text([10]), np.ones(1, bool), GPT, rng())


@pytest.mark.parametrize(
    ("mask", "random"), [(1.1, 0.0), (-0.1, 0.0), (0.8, 0.3), (0.0, float("nan"))]
)
def test_probabilities_must_be_shares(mask, random):
    with pytest.raises(ValueError, match=r"must be (between 0 and 1|at most 1)"):
        MaskInPlace(mask, random)
    MaskInPlace(0.7, 0.3)


def test_t5_paper_example_is_reproduced():
    # Figure 2: Thank you <X> me to your party <Y> week. -> <X> for inviting <Y> last <Z>
    thank_you_for_inviting_me_to_your_party_last_week = text(range(10, 20))
    e = ReplaceSpans()(
        thank_you_for_inviting_me_to_your_party_last_week, hidden_at(10, 2, 3, 8), T5, rng()
    )
    x, y, z = T5.sentinels[:3]
    assert e.source.tolist() == [10, 11, x, 14, 15, 16, 17, y, 19, 1]
    assert e.targets.tolist() == [x, 12, 13, y, 18, z, 1]
    assert e.inputs.tolist() == [0, x, 12, 13, y, 18, z]
    assert e.rank.tolist() == list(range(7))


def test_text_ending_in_a_span_has_no_closing_sentinel():
    e = ReplaceSpans()(text(range(10, 14)), hidden_at(4, 1, 3), T5, rng())
    x, y = T5.sentinels[:2]
    assert e.source.tolist() == [10, x, 12, y, 1]
    assert e.targets.tolist() == [x, 11, y, 13, 1]


def test_text_starting_with_a_span_starts_with_its_sentinel():
    e = ReplaceSpans()(text(range(10, 14)), hidden_at(4, 0, 2), T5, rng())
    x, y, z = T5.sentinels[:3]
    assert e.source.tolist() == [x, 11, y, 13, 1]
    assert e.targets.tolist() == [x, 10, y, 12, z, 1]


def test_surplus_spans_beyond_sentinels_stay_visible():
    few = replace(T5, sentinels=T5.sentinels[:2])
    tokens, hidden = text(range(10, 20)), hidden_at(10, 1, 3, 5, 7)
    seen = set()
    for seed in range(60):
        e = ReplaceSpans()(tokens, hidden, few, rng(seed))
        assert e.targets[[0, 2]].tolist() == list(few.sentinels)
        assert len(e.targets) == 5
        seen.add((int(e.targets[1]), int(e.targets[3])))
    assert seen == {(a, b) for a in (11, 13, 15, 17) for b in (11, 13, 15, 17) if a < b}


def test_no_span_gives_no_decoder_targets():
    e = ReplaceSpans()(text([10]), np.zeros(1, bool), T5, rng())
    assert e.source.tolist() == [10, 1]
    assert e.inputs.tolist() == [0]
    assert e.targets.tolist() == [IGNORE_INDEX]


def test_causal_lm_targets_are_the_next_tokens():
    with pytest.raises(ValueError, match="needs sentinel tokens"):
        ReplaceSpans()(text([10, 11]), hidden_at(2, 1), BERT, rng())


def test_prefix_tokens_attend_to_each_other():
    e = CausalLM()(text([10, 11, 12]), np.ones(3, bool), GPT, rng())
    assert e.inputs.tolist() == [99, 10, 11]
    assert e.targets.tolist() == [10, 11, 12]
    assert e.rank.tolist() == [0, 1, 2]


def test_causal_text_has_its_special_tokens():
    e = CausalLM()(text(range(10, 15)), hidden_at(5, 3, 4), GPT, rng())
    assert e.inputs.tolist() == [99, 10, 11, 12, 13]
    assert e.targets.tolist() == [IGNORE_INDEX, IGNORE_INDEX, IGNORE_INDEX, 13, 14]
    assert e.rank.tolist() == [0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("special", "inputs", "targets"),
    [
        (GPT, [99, 10, 11], [10, 11, 12]),
        (LLAMA, [0, 10, 11], [10, 11, 12]),  # <s> is read first anyway, not twice
        (T5, [0, 10, 11, 12], [10, 11, 12, 1]),
        (BERT, [2, 10, 11, 12], [10, 11, 12, 3]),
    ],
)
def test_targets_are_never_visible(special, inputs, targets):
    e = Objective(AllTokens(), CausalLM())(text([10, 11, 12]), special, rng())
    assert e.inputs.tolist() == inputs
    assert e.targets.tolist() == targets


@given(texts(least=1), SEEDS)
def test_autoregressive_masking_masks_whole_words_in_random_order(tokens, seed):
    hidden = rng(seed).random(len(tokens)) < 0.5
    e = CausalLM()(tokens, hidden, GPT, rng(seed))
    for i in np.flatnonzero(e.targets != IGNORE_INDEX):
        assert (e.rank[i + 1 :] > e.rank[i]).all()  # input j holds token j - 1


@given(texts(least=1), SEEDS)
def test_nine_of_ten_words_are_masked_in_random_order(tokens, seed):
    framed = AutoregressiveMasking().add_special_tokens(tokens, BERT)
    free = maskable_tokens(framed.ids, BERT)
    hidden = WholeWordMasking(0.5)(framed, free, rng(seed))
    e = AutoregressiveMasking()(framed, hidden, BERT, rng(seed))
    assert ((e.targets != IGNORE_INDEX) == hidden).all()
    assert (e.targets[hidden] == framed.ids[hidden]).all()
    masked = e.inputs == BERT.mask
    assert (e.inputs[~masked] == framed.ids[~masked]).all()
    assert not masked[~hidden].any()
    word, _ = number_words(framed, free)
    for w in np.unique(word[hidden]):
        assert len(set(masked[word == w].tolist())) == 1
    assert sorted(e.feature(PredictionOrder).order[hidden].tolist()) == list(
        range(int(hidden.sum()))
    )
    assert not e.feature(PredictionOrder).order[~hidden].any()


def test_no_example_exceeds_its_predicted_length():
    tokens = long_text(40_000)
    e = AutoregressiveMasking()(tokens, np.ones(40_000, bool), BERT, rng())
    assert abs((e.inputs == BERT.mask).mean() - 0.9) < 0.01
    assert abs(np.corrcoef(e.feature(PredictionOrder).order, np.arange(40_000))[0, 1]) < 0.02
    assert (
        AutoregressiveMasking(mask_probability=0.0)(
            tokens, np.ones(40_000, bool), BERT, rng()
        ).inputs
        == tokens.ids
    ).all()
    with pytest.raises(ValueError, match="needs a mask token"):
        AutoregressiveMasking()(tokens, np.ones(40_000, bool), GPT, rng())
    with pytest.raises(ValueError, match="mask_probability must be between 0 and 1"):
        AutoregressiveMasking(mask_probability=1.1)


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    "choose",
    [TokenMasking(), WholeWordMasking(), RandomSpanMasking(), SuffixMasking(), AllTokens()],
)
@pytest.mark.parametrize(
    ("conceal", "special"),
    [
        (MaskInPlace(), BERT),
        (AutoregressiveMasking(), BERT),
        (ReplaceSpans(), T5),
        (CausalLM(), T5),
        (CausalLM(), LLAMA),
    ],
)
@given(tokens=texts(), seed=SEEDS, rate=st.floats(0.01, 1), mean=st.floats(1, 6))
def test_texts_join_whatever_their_integer_type(choose, conceal, special, tokens, seed, rate, mean):
    if isinstance(choose, RandomSpanMasking):
        choose = RandomSpanMasking(rate, mean)
    elif isinstance(choose, TokenMasking | WholeWordMasking):
        choose = type(choose)(rate)
    e = Objective(choose, conceal)(tokens, special, rng(seed))
    longest = max(len(e.inputs), 0 if e.source is None else len(e.source))
    assert longest <= conceal.max_example_length(np.array([len(tokens)]), choose, special)[0]
    assert e.inputs.dtype == e.targets.dtype == np.int64
    assert (
        len(e.inputs)
        == len(e.targets)
        >= (2 if isinstance(conceal, MaskInPlace | AutoregressiveMasking) else 1)
    )


def test_test_words_are_not_special_tokens():
    stored = replace(text([10, 11]), ids=np.array([10, 11], np.int32))
    joined = concatenate((2,), stored, (3,))
    assert joined.ids.dtype == np.int64
    assert joined.ids.tolist() == [2, 10, 11, 3]
    assert joined.boundaries.tolist() == [0, 7, 1, 0]


def test_targets_rank_from_one_and_visible_tokens_zero():
    assert not set(range(10, WORDS)) & (BERT.all_ids | T5.all_ids | GPT.all_ids | LLAMA.all_ids)


@pytest.mark.parametrize("random", [False, True])
def test_what_is_asked_ranks_from_one_on_and_what_is_seen_has_rank_zero(random):
    hidden = np.array([True, False, True, True, False, True])
    e = PermutationLM(random_order=random)(text(range(20, 26)), hidden, BERT, rng())
    assert not e.rank[~hidden].any()
    assert sorted(e.rank[hidden].tolist()) == [1, 2, 3, 4]
    assert (e.targets != IGNORE_INDEX).tolist() == hidden.tolist()
