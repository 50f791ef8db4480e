from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vocabularies import BERT, GPT, long_text, text, texts

from unmask.objectives.select import (
    AllTokens,
    NGramMasking,
    RandomSpanMasking,
    ScheduledRate,
    SpanMasking,
    SuffixMasking,
    TokenMasking,
    TokenSpanMasking,
    WholeWordMasking,
)
from unmask.objectives.text_units import maskable_tokens

SEEDS = st.integers(0, 2**32 - 1)
RATES = st.floats(0.01, 1.0)


def runs(hidden: np.ndarray) -> int:
    return int((np.diff(np.concatenate(([0], hidden.astype(int)))) == 1).sum())


@pytest.mark.parametrize(
    ("length", "expected"), [(3, 1), (10, 2), (30, 4), (50, 8), (128, 19), (512, 77)]
)
def test_number_of_masked_tokens_counts_special_tokens_as_published(length, expected):
    # max(1, int(round(len(tokens) * 0.15))), [CLS] and [SEP] counted; 1.5, 4.5, 7.5 go to the even
    ids = np.concatenate(([2], np.full(length - 2, 20), [3]))
    free = maskable_tokens(ids, BERT)
    hidden = TokenMasking(0.15)(text(ids), free, np.random.default_rng(0))
    assert hidden.sum() == expected
    assert not hidden[[0, -1]].any()


@given(texts(least=1), SEEDS, RATES)
def test_token_masking_hits_rate_on_maskable_tokens_only(tokens, seed, rate):
    free = np.random.default_rng(seed).random(len(tokens)) < 0.8
    free[0] = True
    hidden = TokenMasking(rate)(tokens, free, np.random.default_rng(seed))
    assert not (hidden & ~free).any()
    assert hidden.sum() == min(max(1, round(rate * len(tokens))), free.sum())


def test_every_token_is_equally_likely_to_be_masked():
    tokens, rng = text(range(10, 30)), np.random.default_rng(0)
    counts = sum(
        TokenMasking(0.15)(tokens, np.ones(20, bool), rng).astype(int) for _ in range(4000)
    )
    expected = 4000 * 3 / 20
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)


@given(texts(least=1), SEEDS, RATES, st.sampled_from([(1.0,), (0.8, 0.1, 0.1), (0.0, 0.0, 1.0)]))
def test_span_masking_hits_rate_on_maskable_tokens_only(tokens, seed, rate, shares):
    free = np.random.default_rng(seed).random(len(tokens)) < 0.8
    free[0] = True
    hidden = TokenSpanMasking(rate, shares)(tokens, free, np.random.default_rng(seed))
    assert not (hidden & ~free).any()
    assert hidden.sum() == min(max(1, round(rate * len(tokens))), free.sum())


def test_span_lengths_follow_their_weights():
    n, free = 200_000, np.ones(200_000, bool)
    hidden = TokenSpanMasking(0.005, (0.8, 0.1, 0.1))(
        text(np.full(n, 20)), free, np.random.default_rng(0)
    )
    assert hidden.sum() == 1000
    edges = np.flatnonzero(np.diff(np.concatenate(([0], hidden.astype(int), [0]))))
    seen = Counter(np.diff(edges.reshape(-1, 2)).ravel().tolist())
    runs_seen = sum(seen.values())
    assert runs_seen > 700  # of about 1000 / 1.3: they lie anywhere, not one after another
    for tokens, share in ((1, 0.8), (2, 0.1), (3, 0.1)):  # few are side by side by chance
        expected = runs_seen * share
        assert abs(seen[tokens] - expected) < 4 * np.sqrt(expected)


@given(st.integers(1, 300), RATES, RATES, st.floats(0, 1))
def test_scheduled_rate_is_linear_and_bounds_the_length(n, first, rate, share):
    falling = ScheduledRate(first, TokenSpanMasking(rate))
    then = falling.at_progress(share)
    assert then.rate == pytest.approx((1 - share) * first + share * rate)
    for bound, found in zip(
        falling.folded_lengths(np.arange(n)), then.folded_lengths(np.arange(n)), strict=True
    ):
        assert (bound >= found).all()


@given(texts(least=1), SEEDS)
def test_scheduled_rate_defaults_to_its_final_rate(tokens, seed):
    free, last = np.ones(len(tokens), bool), TokenMasking(0.1)
    hidden = ScheduledRate(0.9, last)(tokens, free, np.random.default_rng(seed))
    assert (hidden == last(tokens, free, np.random.default_rng(seed))).all()


def test_scheduled_rate_must_start_at_a_share():
    with pytest.raises(ValueError, match=r"rate must be above 0 and at most 1, got 1\.5$"):
        ScheduledRate(1.5, TokenMasking(0.1))


@pytest.mark.parametrize("shares", [(), (0.0, 0.0), (1.5, -0.5), (float("inf"),)])
def test_span_lengths_need_a_positive_weight(shares):
    with pytest.raises(ValueError, match="length_weights must be at least 0, and one above it"):
        TokenSpanMasking(0.15, shares)


@pytest.mark.parametrize("choose", [WholeWordMasking, NGramMasking])
@given(texts(least=1), SEEDS, RATES)
def test_words_are_masked_whole_within_the_rate(choose, tokens, seed, rate):
    free = np.random.default_rng(seed).random(len(tokens)) < 0.9
    hidden = choose(rate)(tokens, free, np.random.default_rng(seed))
    assert not (hidden & ~free).any()
    assert hidden.sum() <= max(1, round(rate * len(tokens)))
    continues = (tokens.boundaries[1:] & 1) == 0
    together = continues & free[1:] & free[:-1]
    assert (hidden[1:] == hidden[:-1])[together].all()


def test_n_gram_lengths_follow_one_over_n():
    n, rng, seen = 200_000, np.random.default_rng(0), Counter()
    tokens = text(np.full(n, 20), words=range(0, n, 2))  # words of two tokens
    hidden = NGramMasking(0.005, max_ngram=3)(tokens, np.ones(n, bool), rng)
    assert hidden.sum() == 1000
    edges = np.flatnonzero(np.diff(np.concatenate(([0], hidden.astype(int), [0]))))
    seen = Counter((np.diff(edges.reshape(-1, 2)) // 2).ravel().tolist())
    runs_seen = sum(seen.values())
    for words in (1, 2, 3):  # few are side by side by chance
        expected = runs_seen * (1 / words) / (1 + 1 / 2 + 1 / 3)
        assert abs(seen[words] - expected) < 4 * np.sqrt(expected)


def test_word_span_lengths_are_geometric():
    n, rng = 400_000, np.random.default_rng(0)
    tokens = text(np.full(n, 20), words=range(0, n, 2))  # words of two tokens
    hidden = SpanMasking(0.01)(tokens, np.ones(n, bool), rng)
    assert hidden.sum() == 4000
    edges = np.flatnonzero(np.diff(np.concatenate(([0], hidden.astype(int), [0]))))
    lengths = (np.diff(edges.reshape(-1, 2)) // 2).ravel()
    lengths = lengths[lengths <= 10]  # few are side by side by chance
    law = 0.2 * 0.8 ** np.arange(10)
    law /= law.sum()
    assert 3.79 < (law * np.arange(1, 11)).sum() < 3.81  # 3.8 words on average, says the paper
    for words in range(1, 11):
        expected = len(lengths) * law[words - 1]
        assert abs((lengths == words).sum() - expected) < 4 * np.sqrt(expected) + 0.03 * expected


@given(texts(least=1), SEEDS, RATES)
def test_word_spans_are_whole_within_the_rate(tokens, seed, rate):
    free = np.random.default_rng(seed).random(len(tokens)) < 0.9
    hidden = SpanMasking(rate)(tokens, free, np.random.default_rng(seed))
    assert not (hidden & ~free).any()
    assert hidden.sum() <= max(1, np.ceil(rate * len(tokens)))
    continues = (tokens.boundaries[1:] & 1) == 0
    together = continues & free[1:] & free[:-1]
    assert (hidden[1:] == hidden[:-1])[together].all()


def test_overlong_word_span_is_shortened():
    tokens = text(range(10, 20), words=[0, 2, 4, 6, 8])
    for seed in range(40):
        hidden = NGramMasking(0.5, max_ngram=3)(
            tokens, np.ones(10, bool), np.random.default_rng(seed)
        )
        assert hidden.sum() == 4  # five tokens are allowed, and words are of two


@given(SEEDS)
def test_word_exceeding_the_budget_is_skipped(seed):
    tokens = text(range(10, 30), words=[0, 4, 8, 12, 16, 17, 18, 19])  # four of four, four of one
    hidden = WholeWordMasking(0.15)(tokens, np.ones(20, bool), np.random.default_rng(seed))
    assert hidden.sum() == 3
    assert not hidden[:16].any()


def test_text_of_one_long_word_is_not_masked():
    tokens = text(range(10, 15), words=[0])
    assert not WholeWordMasking(0.15)(tokens, np.ones(5, bool), np.random.default_rng(0)).any()


def test_special_tokens_end_words():
    ids = np.array([2, 20, 21, 3, 22, 23, 3])  # [CLS] ab [SEP] cd [SEP], the row begins in a word
    tokens, free = text(ids, words=[]), maskable_tokens(ids, BERT)
    seen = {tuple(WholeWordMasking(0.3)(tokens, free, np.random.default_rng(s))) for s in range(30)}
    a, b = [False, True, True, False, False, False, False], [False] * 4 + [True, True, False]
    assert seen == {tuple(a), tuple(b)}


@given(texts(least=2), SEEDS, RATES, st.floats(1, 10))
def test_span_count_and_lengths_are_those_published(tokens, seed, rate, mean):
    n = len(tokens)
    hidden = RandomSpanMasking(rate, mean)(tokens, np.ones(n, bool), np.random.default_rng(seed))
    n_hidden = min(max(round(n * rate), 1), n - 1)
    assert hidden.sum() == n_hidden
    assert runs(hidden) == min(max(round(n_hidden / mean), 1), n_hidden, n - n_hidden)
    assert not hidden[0]
    assert hidden[-1]


def test_all_arrangements_of_spans_are_equally_likely():
    rng, counts = np.random.default_rng(0), Counter()
    for _ in range(9000):
        counts[tuple(RandomSpanMasking(0.5, 2.0)(text(range(10, 18)), np.ones(8, bool), rng))] += 1
    assert len(counts) == 9  # four hidden tokens in two spans, three ways; four shown, likewise
    assert max(abs(c - 1000) for c in counts.values()) < 5 * np.sqrt(1000)


def test_spans_need_two_maskable_tokens():
    with pytest.raises(ValueError, match="at least two tokens"):
        RandomSpanMasking()(text([10, 11]), np.array([True, False]), np.random.default_rng(0))


def test_suffix_lengths_are_uniform():
    rng = np.random.default_rng(0)
    shown = [
        int((~SuffixMasking()(text(range(10, 15)), np.ones(5, bool), rng)).sum())
        for _ in range(4000)
    ]
    counts = np.bincount(shown, minlength=6)
    assert counts[[0, 5]].tolist() == [0, 0]
    assert np.abs(counts[1:5] - 1000).max() < 5 * np.sqrt(1000)


@given(texts(least=2), SEEDS)
def test_suffix_extends_to_the_end(tokens, seed):
    hidden = SuffixMasking()(tokens, np.ones(len(tokens), bool), np.random.default_rng(seed))
    assert hidden[-1]
    assert (np.diff(hidden.astype(int)) >= 0).all()


def test_all_tokens_are_selected():
    free = np.array([False, True, False])
    assert AllTokens()(text([2, 20, 3]), free, np.random.default_rng(0)).all()


@pytest.mark.parametrize(
    "choose",
    [
        TokenMasking(),
        WholeWordMasking(),
        NGramMasking(),
        SpanMasking(),
        RandomSpanMasking(),
        SuffixMasking(),
        AllTokens(),
    ],
)
def test_same_seed_selects_the_same_tokens(choose):
    tokens, free = long_text(300), np.ones(300, bool)
    a, b = (choose(tokens, free, np.random.default_rng(7)) for _ in "ab")
    assert (a == b).all()


def test_unknown_pieces_may_be_masked_but_no_other_special_tokens():
    assert maskable_tokens(np.arange(5), BERT).tolist() == [False, True, False, False, False]
    assert not maskable_tokens(np.array([99]), GPT)[0]  # unknown, but also what ends a text


def test_id_outside_the_vocabulary_is_named():
    for wrong in (100, -1):
        with pytest.raises(ValueError, match=rf"token id {wrong} is not in the vocabulary of 100"):
            maskable_tokens(np.array([20, wrong]), BERT)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5, float("nan")])
@pytest.mark.parametrize(
    "choose", [TokenMasking, WholeWordMasking, NGramMasking, SpanMasking, RandomSpanMasking]
)
def test_rates_must_be_shares(choose, rate):
    with pytest.raises(ValueError, match="rate must be above 0 and at most 1"):
        choose(rate)


@pytest.mark.parametrize("mean", [0.0, 0.5, float("nan"), float("inf")])
def test_mean_span_length_must_be_at_least_one(mean):
    with pytest.raises(ValueError, match="mean_span_length must be a span of at least 1 token"):
        RandomSpanMasking(0.15, mean)
