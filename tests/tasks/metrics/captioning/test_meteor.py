"""METEOR equals its formula and NLTK's; matches have the fewest crossings of all."""

import itertools
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.translate.meteor_score import single_meteor_score

from unmask.tasks.metrics.captioning.meteor import (
    MeteorCounts,
    align_words,
    meteor,
    meteor_counts,
    meteor_scores,
)

NO_SYNONYMS = types.SimpleNamespace(synsets=lambda word: [])


def test_formula() -> None:
    # five of six words match in two chunks: P = 5/6, R = 5/7
    found = meteor_counts(
        ["the", "cat", "then", "sat", "on", "the", "mat"], ["the", "cat", "sat", "on", "the", "rug"]
    )
    assert found == MeteorCounts(n_matches=5, n_chunks=2, n_words=6, n_reference_words=7)
    p, r = 5 / 6, 5 / 7
    assert found.score == pytest.approx(10 * p * r / (r + 9 * p) * (1 - 0.5 * (2 / 5) ** 3))
    assert meteor_scores([["x y"]], ["y x"]).tolist() == [0.5]  # as many chunks as matches
    assert meteor_scores([["x y"]], ["X y."]).tolist() == [1 - 0.5 / 8]


def test_stems_match_only_what_exact_matches_leave() -> None:
    assert align_words(["dogs", "dog"], ["dog", "runs"]) == {(0, 1)}
    assert align_words(["runs", "dogs", "dog"], ["dog", "running", "dogs"]) == {
        (0, 2), (1, 0), (2, 1),
    }  # fmt: skip


def test_repeated_word_joins_the_longer_chunk() -> None:
    # "a" may be the first or the second one of the reference
    assert align_words(["a", "man", "and", "a", "dog"], ["a", "dog"]) == {(0, 3), (1, 4)}
    assert align_words(["a", "man"], ["a", "dog", "beside", "a", "man"]) == {(3, 0), (4, 1)}


def test_best_reference_counts_and_a_corpus_is_of_sums() -> None:
    labels, said = [["x", "a b c"], ["d e"]], ["a b c", "d f"]
    assert meteor_scores(labels, said)[0] == pytest.approx(1 - 0.5 / 27)
    total = MeteorCounts(n_matches=4, n_chunks=2, n_words=5, n_reference_words=5)
    assert meteor(labels, said) == total.score == pytest.approx(0.8 * (1 - 0.5 / 8))
    assert meteor([], []) == 0
    assert meteor([["a"]], [""]) == 0


words = st.lists(st.sampled_from(["a", "b", "c", "runs", "running"]), max_size=6)


@settings(max_examples=150)
@given(words, words)
def test_alignment_is_the_best_of_all(reference, text) -> None:
    found = align_words(reference, text)
    assert len({i for i, _ in found}) == len({j for _, j in found}) == len(found)
    exact = {(i, j) for i, j in found if text[i] == reference[j]}
    ways = list(alignments(reference, text))
    most = max(map(len, ways))
    costs = [cost(way) for way in ways if len(way) == most]
    assert len(exact) == most
    assert cost(exact)[0] == min(costs)[0]
    if len(exact) == len(found):  # a later stage may join or part chunks
        assert cost(found) == min(costs)


def alignments(reference, text):
    """Give every set of exact matches."""

    def extend(i, free):
        if i == len(text):
            yield ()
            return
        yield from extend(i + 1, free)
        for j in free:
            if reference[j] == text[i]:
                yield from (((i, j), *rest) for rest in extend(i + 1, free - {j}))

    yield from extend(0, frozenset(range(len(reference))))


def cost(links) -> tuple[int, int]:
    crossings = sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for a, b in itertools.combinations(links, 2))
    return crossings, sum((i - 1, j - 1) not in links for i, j in links)


@settings(max_examples=60)
@given(st.permutations(["dog", "runs", "on", "green", "grass", "now"]), st.integers(0, 6))
def test_score_equals_that_of_nltk(order, n) -> None:
    """If no word recurs; otherwise NLTK's matches may cross where ours do not."""
    reference, text = order[:n], ["dogs", "running", "on", "grass", "here"]
    theirs = single_meteor_score(reference, text, wordnet=NO_SYNONYMS)
    assert meteor_counts(reference, text).score == pytest.approx(theirs)
