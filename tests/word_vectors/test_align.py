"""Maps between spaces: equal to references, found from few pairs, and not claimed for noise."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import orthogonal_procrustes
from two_spaces import clustered, copied, gaussian, named

from unmask.word_vectors.alignment.align import (
    DEFAULT_PREPARATION,
    STOCHASTIC_SELF_LEARNING,
    LeastSquaresMap,
    MeanCentering,
    OrthogonalProcrustes,
    ProcrustesRefinement,
    SelfLearning,
    UnitNormalization,
    alignment_rounds,
    apply_map,
    prepare_vectors,
)
from unmask.word_vectors.alignment.dictionary import (
    identical_pairs,
    numeral_pairs,
    score_dictionary,
)
from unmask.word_vectors.alignment.retrieval import CSLS, CosineRetrieval
from unmask.word_vectors.keyed_vectors import KeyedVectors


def align(source, target, seeds, *, preparation=DEFAULT_PREPARATION, **settings):
    """Prepare both spaces and map the source; give both, and the rounds that led there."""
    source, target = prepare_vectors(source, preparation), prepare_vectors(target, preparation)
    done = list(alignment_rounds(source, target, seeds, **settings))
    return apply_map(source, done[-1].map_weights), target, done


def test_preprocessing_gives_unit_length_and_zero_mean() -> None:
    space = gaussian(50, 7, seed=1)
    unit = prepare_vectors(space, (UnitNormalization(),)).vectors
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(
        prepare_vectors(space, (MeanCentering(),)).vectors.mean(0), 0, atol=1e-6
    )
    by_hand = space.vectors.astype(float)
    by_hand /= np.linalg.norm(by_hand, axis=1, keepdims=True)
    by_hand -= by_hand.mean(0)
    by_hand /= np.linalg.norm(by_hand, axis=1, keepdims=True)
    np.testing.assert_allclose(
        prepare_vectors(space, DEFAULT_PREPARATION).vectors, by_hand, atol=1e-6
    )
    np.testing.assert_array_equal(prepare_vectors(space, ()).vectors, space.vectors)


def test_zero_vectors_stay_zero() -> None:
    space = named(np.array([[3.0, 4.0], [0.0, 0.0], [1e30, 1e30], [1e-30, 0.0]]))
    unit = prepare_vectors(space, (UnitNormalization(),)).vectors
    np.testing.assert_allclose(unit, [[0.6, 0.8], [0, 0], [0.5**0.5, 0.5**0.5], [1, 0]], rtol=1e-6)


@settings(max_examples=30)
@given(p=st.integers(1, 40), d=st.integers(1, 12), seed=st.integers(0, 2**31))
def test_procrustes_equals_scipy(p: int, d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, z = (rng.normal(size=(p, d)).astype(np.float32) for _ in "xz")
    ours = OrthogonalProcrustes().fit(x, z)
    theirs, _ = orthogonal_procrustes(x.astype(float), z.astype(float))
    np.testing.assert_allclose(ours @ ours.T, np.eye(d), atol=1e-9)
    # Fewer pairs than dimensions leave the rest of the rotation open: what is fitted is equal.
    np.testing.assert_allclose(
        np.linalg.norm(x @ ours - z), np.linalg.norm(x @ theirs - z), rtol=1e-6, atol=1e-6
    )
    if p > 2 * d:
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


@settings(max_examples=30)
@given(p=st.integers(1, 40), d=st.integers(1, 12), e=st.integers(1, 12), seed=st.integers(0, 2**31))
def test_least_squares_equals_numpy(p: int, d: int, e: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=(p, d)), rng.normal(size=(p, e))
    ours = LeastSquaresMap().fit(x.astype(np.float32), z.astype(np.float32))
    theirs = np.linalg.pinv(x.astype(np.float32).astype(float)) @ z.astype(np.float32)
    np.testing.assert_allclose(ours, theirs, atol=1e-5 * max(1, np.abs(theirs).max()))
    np.testing.assert_array_equal(
        ours,
        np.linalg.lstsq(
            x.astype(np.float32).astype(float), z.astype(np.float32).astype(float), rcond=None
        )[0],
    )


def test_procrustes_of_different_widths_is_refused() -> None:
    with pytest.raises(ValueError, match=r"one width: got 5 \(source\) and 3 \(target\)"):
        OrthogonalProcrustes().fit(np.ones((4, 5), np.float32), np.ones((4, 3), np.float32))


def test_least_squares_maps_between_widths() -> None:
    source = gaussian(60, 8, seed=2)
    target = named(source.vectors[:, :3] * 2)
    found, to, _ = align(
        source, target, identical_pairs(source, target), preparation=(), fit=LeastSquaresMap()
    )
    np.testing.assert_allclose(found.vectors, to.vectors, atol=1e-5)


def test_rotated_copy_is_found_exactly_from_as_many_pairs_as_dimensions() -> None:
    source, target, pairs = copied(gaussian(200, 10, seed=3), noise=0.0)
    found, to, done = align(source, target, pairs[:12])
    np.testing.assert_allclose(found.vectors[pairs[:, 0]], to.vectors[pairs[:, 1]], atol=1e-5)
    assert [(r.index, r.n_pairs) for r in done] == [(0, 12)]


def p_at_1(found: KeyedVectors, to: KeyedVectors, pairs: np.ndarray) -> float:
    words = tuple((found.words[one], to.words[other]) for one, other in pairs.tolist())
    return score_dictionary(found, to, words).precision_at_1


BOTH = SelfLearning(retrieval=CSLS(), bidirectional=True)
QUICK = replace(STOCHASTIC_SELF_LEARNING, patience=2)


@pytest.mark.parametrize("learn", [SelfLearning(), BOTH, QUICK], ids=["2017", "csls", "2018"])
def test_noisy_copy_is_found_from_25_seeds(learn: SelfLearning) -> None:
    source, target, pairs = copied(clustered(400, 60, seed=4), noise=0.5)
    once, to, _ = align(source, target, pairs[:25])
    found, to, done = align(source, target, pairs[:25], self_learning=learn)
    assert p_at_1(once, to, pairs[25:]) < 0.6
    assert p_at_1(found, to, pairs[25:]) > 0.99
    similar = [r.mean_cosine for r in done]
    assert similar[-1] > similar[0] + 0.1
    assert done[0].n_pairs == 25


@pytest.mark.parametrize("learn", [SelfLearning(), BOTH, QUICK], ids=["2017", "csls", "2018"])
def test_noisy_copy_is_found_from_numerals_alone(learn: SelfLearning) -> None:
    source, target, pairs = copied(clustered(400, 40, seed=5, n_numerals=30), noise=0.3)
    seeds = numeral_pairs(source, target)
    assert len(seeds) == 30
    once, to, _ = align(source, target, seeds)
    found, to, _ = align(source, target, seeds, self_learning=learn)
    assert p_at_1(once, to, pairs[30:]) < 0.5
    # Fewer pairs than numbers leave a part of the first map open, which is another on each machine.
    assert p_at_1(found, to, pairs[30:]) > 0.8


def test_refinement_completes_a_noisy_copy() -> None:
    source, target, pairs = copied(clustered(400, 60, seed=6), noise=0.5)
    once, to, _ = align(source, target, pairs[:25])
    found, to, done = align(source, target, pairs[:25], refinement=ProcrustesRefinement(5))
    assert [r.index for r in done] == list(range(6))
    assert p_at_1(once, to, pairs[25:]) < 0.7
    assert p_at_1(found, to, pairs[25:]) > 0.99


@pytest.mark.thorough
@pytest.mark.parametrize("seeds", [25, 100])
def test_unrelated_spaces_are_not_claimed_to_align(seeds: int) -> None:
    source = clustered(400, 30, seed=7)
    target = named(clustered(400, 30, seed=8).vectors, "z")
    pairs = np.stack([np.arange(400)] * 2, 1)
    words = tuple((source.words[i], target.words[i]) for i in range(seeds, 400))
    for learn in (None, SelfLearning(), BOTH, QUICK):
        found, to, _ = align(
            source, target, pairs[:seeds], self_learning=learn, refinement=ProcrustesRefinement(1)
        )
        for retrieval in (CosineRetrieval(), CSLS()):
            scored = score_dictionary(found, to, words, retrieval)
            assert not scored.above_chance
            assert scored.precision_at_1 < 0.03


def test_self_learning_and_refinement_can_be_chained() -> None:
    source, target, pairs = copied(clustered(300, 20, seed=9), noise=0.1)
    s, t = prepare_vectors(source), prepare_vectors(target)
    done = list(
        alignment_rounds(
            s, t, pairs[:40], self_learning=SelfLearning(), refinement=ProcrustesRefinement(2)
        )
    )
    assert [r.index for r in done] == list(range(len(done)))
    assert len(done) > 4
    again = list(
        alignment_rounds(
            s, t, pairs[:40], self_learning=SelfLearning(), refinement=ProcrustesRefinement(2)
        )
    )
    np.testing.assert_array_equal(done[-1].map_weights, again[-1].map_weights)


def test_dropout_depends_on_the_seed() -> None:
    source, target, pairs = copied(clustered(200, 20, seed=10), noise=0.1)
    learn = SelfLearning(keep_probability=0.2, patience=2, bidirectional=True)

    def second(seed: int) -> np.ndarray:
        run = alignment_rounds(
            prepare_vectors(source),
            prepare_vectors(target),
            pairs[:30],
            self_learning=learn,
            seed=seed,
        )
        next(run)
        return next(run).map_weights

    np.testing.assert_array_equal(second(3), second(3))
    assert np.abs(second(3) - second(4)).max() > 1e-3


def test_self_learning_keeps_increasingly_many_pairs() -> None:
    source, target, pairs = copied(clustered(200, 20, seed=11), noise=0.1)
    learn = SelfLearning(keep_probability=0.25, patience=2, bidirectional=True)
    keeps = [r.keep_probability for r in align(source, target, pairs[:30], self_learning=learn)[2]]
    assert sorted(set(keeps)) == [0.25, 0.5, 1.0]
    assert keeps == sorted(keeps)


def test_only_most_frequent_words_take_part() -> None:
    source, target, pairs = copied(clustered(300, 20, seed=12), noise=0.0, permuted=False)
    learn = SelfLearning(vocabulary_cutoff=50)
    done = align(source, target, pairs[:30], self_learning=learn)[2]
    assert {r.n_pairs for r in done[1:]} == {50}


def test_impossible_inputs_are_refused() -> None:
    source, target, pairs = copied(gaussian(30, 4, seed=13), noise=0.0)
    with pytest.raises(ValueError, match="pairs of words, and there is none"):
        align(source, target, pairs[:0])
    few = source.most_frequent(5), target.most_frequent(5)
    with pytest.raises(ValueError, match="k = 10 neighbors, but there are only 5 source words"):
        align(*few, np.array([[0, 0]]), refinement=ProcrustesRefinement(1))
    for wrong, why in (
        ({"keep_probability": 0.0}, "keep_probability must be above 0"),
        ({"keep_probability": 1.5}, "keep_probability must be above 0"),
        ({"keep_growth": 1.0}, "keep_growth must be above 1"),
        ({"patience": 0}, "patience must be 1"),
        ({"threshold": 0.0}, "threshold must be above 0"),
        ({"vocabulary_cutoff": 0}, "must be 1 or more, got 0"),
    ):
        with pytest.raises(ValueError, match=why):
            SelfLearning(**wrong)
    with pytest.raises(ValueError, match="0 times or more, got -1"):
        ProcrustesRefinement(-1)
    with pytest.raises(ValueError, match="must be 1 or more, got -3"):
        ProcrustesRefinement(1, vocabulary_cutoff=-3)
    learn = SelfLearning(keep_probability=1e-9, patience=50)
    with pytest.raises(ValueError, match="too small to leave out pairs"):
        align(source, target, pairs[:5], self_learning=learn)


def test_map_of_wrong_width_is_refused() -> None:
    space = gaussian(30, 4, seed=13)
    with pytest.raises(ValueError, match="from 3 dimensions, of 4"):
        apply_map(space, np.eye(3))
    with pytest.raises(ValueError, match="too large for float32"):
        apply_map(space, np.eye(4) * 1e39)
