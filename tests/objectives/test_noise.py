"""Noises by their properties: what is gone, what is moved, and what never is."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vocabularies import BERT, GPT, long_text, text, texts

from unmask.batch import IGNORE_INDEX, SENTENCE_START, WORD_START, Tokens
from unmask.config import from_dict, to_dict
from unmask.objectives.denoising.denoise import DenoisingObjective
from unmask.objectives.denoising.noise import (
    DocumentRotation,
    Noise,
    SentencePermutation,
    TextInfilling,
    TokenDeletion,
    TokenMaskingNoise,
    TokenPermutation,
)
from unmask.objectives.mixtures import ObjectiveMixture
from unmask.objectives.published import BART
from unmask.objectives.select import (
    RandomSpanMasking,
    SuffixMasking,
    TokenMasking,
    WholeWordMasking,
)
from unmask.objectives.text_units import sentence_starts
from unmask.tokenizers.spec import SpecialTokenIds

SEEDS = st.integers(0, 2**32 - 1)
BIG = SpecialTokenIds(
    vocab_size=200_010,
    pad=1,
    start=2,
    end=2,
    unknown=3,
    mask=4,
    prefix=(0,),
    separator=(2, 2),
    suffix=(2,),
    all_ids=frozenset(range(5)),
)
NOISES = [
    TokenMaskingNoise(),
    TokenMaskingNoise(RandomSpanMasking(0.3, 3.0), random_token_probability=0.5),
    TokenMaskingNoise(TokenMasking(1.0)),
    TokenDeletion(),
    TokenDeletion(WholeWordMasking(0.5)),
    TokenDeletion(TokenMasking(1.0)),
    TextInfilling(),
    TextInfilling(unit="tokens"),
    TextInfilling(rate=1.0, mean_span_length=1.0, random_token_probability=0.3),
    SentencePermutation(),
    SentencePermutation(0.5),
    DocumentRotation(),
    DocumentRotation(0.5),
    TokenPermutation(),
]
each = pytest.mark.parametrize("noise", NOISES, ids=str)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def distinct(n: int, seed: int = 0) -> Tokens:
    """A text of which no token comes twice, so that it is seen what became of each."""
    return replace(long_text(n, seed), ids=np.arange(5, n + 5))


def with_special(tokens: Tokens, seed: int) -> Tokens:
    """Put tokens of the frame into a text, as where documents follow each other."""
    where = rng(seed).integers(0, len(tokens) + 1, 3)
    return Tokens(np.insert(tokens.ids, where, BERT.end), np.insert(tokens.boundaries, where, 0))


def subsequence(part: list[int], whole: list[int]) -> bool:
    left = iter(whole)
    return all(token in left for token in part)


# ---- of every noise


@pytest.mark.sample(4)
@each
@given(tokens=texts(), seed=SEEDS)
def test_noise_never_lengthens_text_and_keeps_special_tokens(noise: Noise, tokens, seed):
    tokens = with_special(tokens, seed)
    noisy = noise(tokens, BERT, rng(seed))
    assert len(noisy) <= len(tokens)
    assert len(noisy.ids) == len(noisy.boundaries)
    assert (noisy.ids == BERT.end).sum() == (tokens.ids == BERT.end).sum()
    assert not np.isin(noisy.ids, sorted(BERT.all_ids - {BERT.end, BERT.mask})).any()


@pytest.mark.sample(4)
@each
@given(tokens=texts(), seed=SEEDS)
def test_same_seed_gives_same_noise_and_keeps_the_text(noise: Noise, tokens, seed):
    before = tokens.ids.copy(), tokens.boundaries.copy()
    a, b = (noise(tokens, BERT, rng(seed)) for _ in "ab")
    assert np.array_equal(a.ids, b.ids)
    assert np.array_equal(a.boundaries, b.boundaries)
    assert np.array_equal(before, (tokens.ids, tokens.boundaries))


@pytest.mark.sample(4)
@each
@given(tokens=texts(), seed=SEEDS)
def test_whole_text_is_the_target_under_any_noise(noise: Noise, tokens, seed):
    e = DenoisingObjective((noise, noise))(tokens, BIG, rng(seed))
    if not len(tokens):
        assert (e.targets == IGNORE_INDEX).all()
        return
    assert e.targets.tolist() == [0, *tokens.ids, 2]
    assert e.inputs.tolist() == [2, 0, *tokens.ids]
    assert e.source[0] == 0
    assert e.source[-1] == 2


@pytest.mark.parametrize("noise", [TokenMaskingNoise(), TextInfilling()], ids=str)
def test_masking_noises_need_a_mask_token(noise):
    with pytest.raises(ValueError, match="needs a mask token"):
        DenoisingObjective((noise,))(text([10, 11]), GPT, rng())


# ---- masking and deletion


@given(tokens=texts(least=1), seed=SEEDS)
def test_masking_keeps_other_tokens_in_place(tokens, seed):
    noisy = TokenMaskingNoise(TokenMasking(0.3))(tokens, BERT, rng(seed))
    masked = noisy.ids == BERT.mask
    assert masked.sum() == max(1, round(0.3 * len(tokens)))
    assert (noisy.ids == tokens.ids)[~masked].all()
    assert np.array_equal(noisy.boundaries, tokens.boundaries)


def test_share_of_masks_is_replaced_by_random_tokens():
    tokens = distinct(10_000)
    noisy = TokenMaskingNoise(TokenMasking(0.5), random_token_probability=0.2)(tokens, BIG, rng())
    assert abs((noisy.ids == 4).mean() - 0.4) < 0.01
    assert abs(((noisy.ids != 4) & (noisy.ids != tokens.ids)).mean() - 0.1) < 0.01


@given(seed=SEEDS, n=st.integers(2, 80))
def test_deletion_keeps_the_order(seed, n):
    tokens = distinct(n, seed)
    noisy = TokenDeletion(TokenMasking(0.4))(tokens, BIG, rng(seed))
    assert len(noisy) == n - max(1, round(0.4 * n))
    assert (np.diff(noisy.ids) > 0).all()
    assert np.isin(noisy.ids, tokens.ids).all()


def test_boundaries_of_deleted_tokens_move_to_the_next():
    tokens = text([10, 11, 12, 13, 14], words=[0, 2, 4], sentences=[0, 2, 4])

    class Some(TokenMasking):
        def __call__(self, text, free, rng):
            return np.array([False, False, True, False, True])

    noisy = TokenDeletion(Some())(tokens, BIG, rng())
    assert noisy.ids.tolist() == [10, 11, 13]
    assert sentence_starts(noisy).tolist() == [0, 2]
    assert [bool(m & WORD_START) for m in noisy.boundaries] == [True, False, True]


# ---- infilling


def spans(noisy: Tokens, n: int) -> tuple[list[int], int]:
    """The lengths of the spans that stand alone between shown tokens; and all hidden tokens.

    Of a text of `distinct` tokens: what is missing between two shown ones is in the masks there.
    """
    lengths, hidden = [], 0
    shown, masks = 4, 0
    for token in [*noisy.ids.tolist(), n + 5]:
        if token == BIG.mask:
            masks += 1
            continue
        gone = token - shown - 1
        hidden += gone
        if masks == 1:
            lengths.append(gone)
        assert masks or not gone
        shown, masks = token, 0
    return lengths, hidden


def test_span_lengths_are_poisson_and_cover_the_rate():
    n = 100_000
    noisy = TextInfilling(rate=0.3, mean_span_length=3.0, unit="tokens")(distinct(n), BIG, rng(1))
    lengths, hidden = spans(noisy, n)
    assert hidden == math.ceil(0.3 * n)
    assert len(lengths) > 7000  # of 10,000, those with no other beside them
    law = np.array([math.exp(-3) * 3**k / math.factorial(k) for k in range(9)])
    law = np.append(law, 1 - law.sum())
    seen = np.bincount(np.minimum(lengths, 9), minlength=10)
    expected = law * len(lengths)
    assert ((seen - expected) ** 2 / expected).sum() < 27.9  # chi-square, 9 degrees, p = 0.001
    masks = int((noisy.ids == BIG.mask).sum())
    assert abs(masks - hidden / 3) < 4 * math.sqrt(hidden / 3 / 3)


def test_word_spans_cover_the_rate_in_whole_words():
    tokens = distinct(100_000)
    noisy = TextInfilling()(tokens, BIG, rng(1))
    starts = (tokens.boundaries & WORD_START) > 0
    starts[0] = True
    word = np.cumsum(starts) - 1
    gone = ~np.isin(tokens.ids, noisy.ids)
    each = np.bincount(word, gone) / np.bincount(word)
    assert set(np.unique(each)) == {0.0, 1.0}
    assert each.sum() == math.ceil(0.3 * len(each))


@given(seed=SEEDS, n=st.integers(1, 80), rate=st.sampled_from([0.1, 0.3, 0.7, 1.0]))
def test_infilling_keeps_the_order_of_visible_tokens(seed, n, rate):
    noisy = TextInfilling(rate, unit="tokens")(distinct(n, seed), BIG, rng(seed))
    _, hidden = spans(noisy, n)
    assert hidden == math.ceil(rate * n)
    shown = noisy.ids[noisy.ids != BIG.mask]
    assert (np.diff(shown) > 0).all()


def test_spans_and_empty_insertions_occur_anywhere():
    first, last, inserted = 0, 0, 0
    for seed in range(400):
        noisy = TextInfilling(unit="tokens")(distinct(40), BIG, rng(seed))
        first += noisy.ids[0] == BIG.mask
        last += noisy.ids[-1] == BIG.mask
        masked = np.flatnonzero(noisy.ids == BIG.mask)
        between = [i for i in masked if 0 < i < len(noisy) - 1]
        inserted += sum(noisy.ids[i + 1] - noisy.ids[i - 1] == 1 for i in between)
    assert 20 < first < 120
    assert 20 < last < 120
    assert inserted > 20


def test_mask_inherits_the_boundary_of_its_span():
    tokens = replace(
        distinct(30),
        boundaries=np.where(np.arange(30) % 10, WORD_START, WORD_START | SENTENCE_START),
    )
    for seed in range(20):
        noisy = TextInfilling(rate=0.2)(tokens, BIG, rng(seed))
        starts = noisy.ids[sentence_starts(noisy)].tolist()
        gone = [i for i in (5, 15, 25) if i not in noisy.ids]
        assert [i for i in starts if i != BIG.mask] == [i for i in (5, 15, 25) if i not in gone]
        assert starts.count(BIG.mask) >= min(len(gone), 1)


# ---- order


def sentences(tokens: Tokens) -> list[tuple[int, ...]]:
    starts = [*sentence_starts(tokens).tolist(), len(tokens)]
    return [tuple(tokens.ids[a:b].tolist()) for a, b in pairwise(starts)]


@given(seed=SEEDS, n=st.integers(1, 80))
def test_permutation_keeps_sentences_intact(seed, n):
    tokens = distinct(n, seed)
    noisy = SentencePermutation()(tokens, BIG, rng(seed))
    assert sorted(noisy.ids.tolist()) == tokens.ids.tolist()
    moved = [tuple(noisy.ids[i : i + len(s)]) for s in sentences(tokens)
             for i in np.flatnonzero(noisy.ids == s[0])]  # fmt: skip
    assert moved == sentences(tokens)


def test_sentence_permutations_are_uniform():
    tokens = text([10, 11, 12, 13], sentences=[0, 1, 3])
    orders = [tuple(SentencePermutation()(tokens, BIG, rng(s)).ids.tolist()) for s in range(1200)]
    counts = {order: orders.count(order) for order in set(orders)}
    assert len(counts) == 6
    assert all(150 < n < 250 for n in counts.values())


def test_share_of_the_sentences_is_permuted():
    tokens = replace(distinct(100), boundaries=np.full(100, WORD_START | SENTENCE_START))
    moved = [
        int((SentencePermutation(0.2)(tokens, BIG, rng(s)).ids != tokens.ids).sum())
        for s in range(50)
    ]
    assert max(moved) <= 20
    assert 18 < np.mean(moved) <= 20  # of a permutation one token stays on average


@given(seed=SEEDS, n=st.integers(1, 80))
def test_rotation_keeps_cyclic_order(seed, n):
    tokens = distinct(n, seed)
    noisy = DocumentRotation()(tokens, BIG, rng(seed)).ids
    assert sorted(noisy.tolist()) == tokens.ids.tolist()
    assert int((np.diff(noisy) < 0).sum()) == int(noisy[0] != 5)
    assert (np.diff(noisy) % n == 1 % n).all()


def test_rotation_start_is_uniform_or_skipped():
    tokens = distinct(5)
    firsts = [int(DocumentRotation()(tokens, BIG, rng(s)).ids[0]) for s in range(1000)]
    assert all(150 < firsts.count(i) < 250 for i in range(5, 10))
    rare = [int(DocumentRotation(0.1)(tokens, BIG, rng(s)).ids[0]) for s in range(1000)]
    assert 870 < rare.count(5) < 960  # nine of ten, and a fifth of the others


# ---- together


@given(tokens=texts(least=1), seed=SEEDS)
def test_noises_compose(tokens, seed):
    noises = (TokenDeletion(), DocumentRotation(), TextInfilling())
    generator, noisy = rng(seed), tokens
    for noise in noises:
        noisy = noise(noisy, BIG, generator)
    e = DenoisingObjective(noises)(tokens, BIG, rng(seed))
    assert e.source.tolist() == [0, *noisy.ids, 2]


def test_bart_masks_30_percent_of_words_in_permuted_sentences():
    tokens = distinct(500)
    e = BART(tokens, BIG, rng())
    shown = e.source[(e.source != BIG.mask)][1:-1]
    starts = (tokens.boundaries & WORD_START) > 0
    starts[0] = True
    words = tokens.ids[starts]
    assert np.isin(words, shown).sum() == len(words) - math.ceil(0.3 * len(words))
    assert (np.diff(shown) < 0).sum() > 10  # about 40 sentences


def test_fully_deleted_text_leaves_the_start_token():
    e = DenoisingObjective((TokenDeletion(TokenMasking(1.0)),))(text([10, 11]), GPT, rng())
    assert e.source.tolist() == [GPT.start]
    assert e.targets.tolist() == [10, 11]


@pytest.mark.parametrize(
    "objective",
    [
        BART,
        DenoisingObjective(tuple(NOISES)),
        DenoisingObjective(()),
        ObjectiveMixture(((1.0, BART), (2.0, BART))),
    ],
)
def test_composition_round_trips_as_plain_data(objective):
    assert from_dict(type(objective), to_dict(objective)) == objective


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TextInfilling(rate=0.0), "rate must be above 0 and at most 1, got 0.0"),
        (
            lambda: TextInfilling(mean_span_length=0.5),
            "mean_span_length must be from 1 to a million words, got 0.5",
        ),
        (
            lambda: TextInfilling(mean_span_length=float("nan")),
            "mean_span_length must be from 1 to a million words",
        ),
        (
            lambda: TokenMaskingNoise(random_token_probability=2.0),
            "random_token_probability must be between 0 and 1, got 2.0",
        ),
        (lambda: SentencePermutation(-0.1), "fraction must be between 0 and 1, got -0.1"),
        (lambda: DocumentRotation(1.1), "probability must be between 0 and 1, got 1.1"),
    ],
)
def test_invalid_noises_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_mixture_has_one_kind_of_network():
    from unmask.objectives.published import CAUSAL_LM as LANGUAGE_MODEL
    from unmask.objectives.published import T5 as SPAN_CORRUPTION

    ObjectiveMixture(((1.0, BART), (1.0, SPAN_CORRUPTION)))
    with pytest.raises(ValueError, match=r"encoder-decoder \(ReplaceSpans, "):
        ObjectiveMixture(((1.0, BART), (1.0, LANGUAGE_MODEL)))


def test_suffix_masking_is_refused_as_noise():
    with pytest.raises(ValueError, match="SuffixMasking"):
        from_dict(TokenDeletion, {"select": to_dict(SuffixMasking()) | {"kind": "SuffixMasking"}})
