"""Ranks of retrieval equal averages over all orders of ties, and their known values."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from unmask.tasks.metrics import retrieval as module
from unmask.tasks.metrics.retrieval import retrieval_scores


def score(scores, images, **options):
    return retrieval_scores(
        np.array(scores, np.float64), np.array(images), np.random.default_rng(0), **options
    )


def test_known_ranks() -> None:
    # captions 0 and 1 are of image 0, caption 2 of image 1, 3 of image 2
    found = score([[0.9, 0.1, 0.5, 0.6], [0.2, 0.8, 0.7, 0.1], [0.3, 0.4, 0.6, 0.2]], [0, 0, 1, 2])
    there, back = found.image_to_caption, found.caption_to_image
    assert (there.n_queries, there.n_candidates, there.n_tied) == (3, 4, 0)
    assert (back.n_queries, back.n_candidates, back.n_tied) == (4, 3, 0)
    # ranks 1, 2, 4 and 1, 3, 1, 2
    assert there.recall_at[1].value == pytest.approx(1 / 3)
    assert there.recall_at[5].value == 1
    assert there.median_rank.value == 2
    assert there.mean_reciprocal_rank.value == pytest.approx((1 + 1 / 2 + 1 / 4) / 3)
    assert back.recall_at[1].value == pytest.approx(2 / 4)
    assert back.median_rank.value == 1.5
    assert back.mean_reciprocal_rank.value == pytest.approx((1 + 1 / 3 + 1 + 1 / 2) / 4)
    metrics = found.to_metrics()
    assert metrics["image_to_caption_recall_at_1"] == pytest.approx(1 / 3)
    assert metrics["caption_to_image_median_rank"] == 1.5
    assert len(metrics) == 10


@settings(max_examples=80)
@given(
    st.integers(1, 4).flatmap(
        lambda n: st.tuples(
            st.lists(st.integers(0, 2), min_size=n, max_size=n),
            st.lists(st.booleans(), min_size=n, max_size=n).filter(any),
        )
    )
)
def test_ties_are_averaged_over_all_orders(drawn) -> None:
    scores, correct = np.array(drawn[0], np.float64), np.array(drawn[1])
    found = module._rank(scores[None], correct[None], (1, 2, 5))
    ranks = []
    for order in itertools.permutations(range(len(scores))):
        ranked = sorted(order, key=lambda i: -scores[i])  # stable: ties stay in this order
        ranks.append(1 + min(ranked.index(i) for i in np.flatnonzero(correct)))
    assert_allclose(found.rank, [np.mean(ranks)])
    assert_allclose(found.reciprocal_rank, [np.mean([1 / rank for rank in ranks])])
    within = [np.mean([rank <= k for rank in ranks]) for k in (1, 2, 5)]
    assert_allclose(found.is_within, [within], atol=1e-12)


def test_constant_scores_are_chance() -> None:
    found = score(np.zeros((20, 100)), np.repeat(np.arange(20), 5), ranks=(1, 10))
    back = found.caption_to_image
    assert back.recall_at[1].value == pytest.approx(1 / 20)
    assert back.recall_at[10].value == pytest.approx(1 / 2)
    assert back.median_rank.value == pytest.approx(10.5)
    assert (back.n_tied, found.image_to_caption.n_tied) == (100, 20)
    # of 100 captions, the first of 5 is expected at 101/6
    assert found.image_to_caption.median_rank.value == pytest.approx(101 / 6)
    assert found.image_to_caption.recall_at[1].value == pytest.approx(5 / 100)
    assert back.recall_at[1].low == pytest.approx(1 / 20)


def test_intervals_are_over_images() -> None:
    """Five equal captions of an image are no more certain than one."""
    rng = np.random.default_rng(3)
    one = rng.normal(size=(40, 40)) + 2 * np.eye(40)
    single = score(one, np.arange(40)).caption_to_image
    five = score(np.repeat(one, 5, 1), np.repeat(np.arange(40), 5)).caption_to_image
    assert single.recall_at == five.recall_at
    assert single.median_rank == five.median_rank
    hits = single.recall_at[1]
    error = (hits.value * (1 - hits.value) / 40) ** 0.5
    assert hits.low == pytest.approx(hits.value - 1.96 * error, abs=0.04)
    assert hits.high == pytest.approx(hits.value + 1.96 * error, abs=0.04)
    assert single.median_rank.low <= single.median_rank.value <= single.median_rank.high


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6).filter(any), st.data())
def test_weighted_median_is_that_of_repeated_values(counts, data) -> None:
    values = np.sort(
        data.draw(st.lists(st.integers(1, 9), min_size=len(counts), max_size=len(counts)))
    ).astype(np.float64)
    found = module._weighted_median(values, np.array(counts))
    assert found == np.median(np.repeat(values, counts))


@pytest.mark.parametrize(
    ("scores", "images", "message"),
    [
        ([[1.0, 2.0]], [0], r"got \[1, 2\] and \[1\]"),
        ([1.0], [0], r"got \[1\] and \[1\]"),
        ([[1.0, 2.0]], [0, 1], "image_of_caption must be from 0 to 0, got 0 to 1"),
        ([[1.0, 2.0], [1.0, 2.0]], [1, 1], "each image must have a caption, but 0 has none"),
    ],
)
def test_what_does_not_fit_is_an_error(scores, images, message) -> None:
    with pytest.raises(ValueError, match=message):
        score(scores, images)


def test_scores_must_be_finite_and_ranks_positive() -> None:
    with pytest.raises(FloatingPointError, match="not finite"):
        score([[np.nan]], [0])
    with pytest.raises(ValueError, match=r"ranks must be at least 1, got \[0\]"):
        score([[1.0]], [0], ranks=(0,))
