"""CIDEr and CIDEr-D equal their formulas over dense vectors, and have their properties."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.tasks.metrics.captioning.cider import (
    DocumentFrequencies,
    cider_d_scores,
    cider_scores,
    document_frequencies,
)

LABELS = [
    ["a dog runs on grass", "the dog is running"],
    ["two cats sleep", "cats sleeping on a bed"],
    ["a man rides a bike", "a man on a bike"],
]
SAID = ["a dog is running on grass", "two cats on grass", "a a a man man"]

texts = st.lists(st.sampled_from("abcd"), min_size=0, max_size=8).map(" ".join)
full = st.lists(st.sampled_from("abcd"), min_size=1, max_size=8).map(" ".join)
rows = st.lists(st.tuples(st.lists(full, min_size=1, max_size=3), texts), min_size=1, max_size=4)


def grams(text: str, n: int) -> list[str]:
    words = text.split()
    return [" ".join(words[i : i + n]) for i in range(len(words) - n + 1)]


def by_formula(
    labels: Sequence[Sequence[str]],
    said: Sequence[str],
    similarity: Callable[[np.ndarray, np.ndarray, int], float],
) -> list[float]:
    """Equations 1 to 3 of the paper, with a vector over the whole vocabulary for each text."""
    scores = np.zeros(len(said))
    for n in range(1, 5):
        everything = [text for one in labels for text in one] + list(said)
        vocabulary = sorted({g for text in everything for g in grams(text, n)})
        df = [sum(any(g in grams(t, n) for t in one) for one in labels) for g in vocabulary]
        idf = np.log(len(labels) / np.maximum(df, 1.0))
        for i, (references, text) in enumerate(zip(labels, said, strict=True)):
            c = np.array([grams(text, n).count(g) for g in vocabulary]) * idf
            for reference in references:
                s = np.array([grams(reference, n).count(g) for g in vocabulary]) * idf
                difference = len(text.split()) - len(reference.split())
                norm = np.linalg.norm(c) * np.linalg.norm(s)
                if norm:
                    value = similarity(c, s, difference) / norm
                    scores[i] += 10 * value / 4 / len(references)
    return scores.tolist()


@settings(max_examples=60)
@given(rows)
def test_cider_equals_its_formula(drawn) -> None:
    labels, said = [references for references, _ in drawn], [text for _, text in drawn]
    expected = by_formula(labels, said, lambda c, s, _: float(c @ s))
    assert cider_scores(labels, said).tolist() == pytest.approx(expected, abs=1e-12)


@settings(max_examples=60)
@given(rows, st.sampled_from([2.0, 6.0]))
def test_cider_d_equals_its_formula(drawn, sigma) -> None:
    labels, said = [references for references, _ in drawn], [text for _, text in drawn]
    expected = by_formula(
        labels,
        said,
        lambda c, s, d: float(np.minimum(c, s) @ s * np.exp(-(d**2) / (2 * sigma**2))),
    )
    found = cider_d_scores(labels, said, sigma=sigma)
    assert found.tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("scores", [cider_scores, cider_d_scores])
def test_the_reference_itself_has_ten(scores) -> None:
    single = [one[:1] for one in LABELS]
    said = [one[0] for one in LABELS]
    # "two cats sleep" has no n-gram of four words
    assert scores(single, said).tolist() == pytest.approx([10, 7.5, 10])
    assert scores(LABELS[:1], SAID[:1]).tolist() == [0]  # no n-gram is rare among one image's
    assert scores(LABELS, ["", ".", "x"]).tolist() == [0, 0, 0]
    assert scores([], []).tolist() == []


def test_repeated_words_do_not_pay_in_cider_d() -> None:
    labels = [["bike"], ["dog"]]
    said = ["bike bike bike", "dog"]
    assert cider_scores(labels, said).tolist() == pytest.approx([2.5, 2.5])
    expected = 2.5 / 3 * np.exp(-4 / 72)
    assert cider_d_scores(labels, said).tolist() == pytest.approx([expected, 2.5])


def test_frequencies_can_be_given() -> None:
    known = document_frequencies(LABELS)
    assert (known.n_images, known.counts["a", "man"], known.counts["a",]) == (3, 1, 3)
    whole = cider_d_scores(LABELS, SAID)
    alone = [
        cider_d_scores([one], [text], known)[0] for one, text in zip(LABELS, SAID, strict=True)
    ]
    assert whole.tolist() == pytest.approx(alone)
    unseen = DocumentFrequencies(counts={}, n_images=1000)
    assert unseen.weight(("dog",)) == pytest.approx(np.log(1000))


def test_stems_match_other_forms() -> None:
    labels, said = [["dogs running"], ["a cat"]], ["dog run", "a cat"]
    assert cider_scores(labels, said)[0] == 0
    stems = document_frequencies(labels, stem=True)
    assert cider_scores(labels, said, stems)[0] == pytest.approx(5)  # of 1 and of 2 words
    assert stems.counts["dog", "run"] == 1


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"sigma must be above 0, got 0"):
        cider_d_scores(LABELS, SAID, sigma=0.0)
    for scores in (cider_scores, cider_d_scores):
        with pytest.raises(ValueError, match="references for 3 texts, but 1 texts"):
            scores(LABELS, SAID[:1])
