"""BLEU-1 to 4 equal those of sacrebleu without smoothing, and the known ones of Flickr8k."""

import lzma
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU

from unmask.tasks.metrics.captioning.bleu import caption_bleu

FLICKR8K = Path(__file__).parents[4].parent / "shared/data/flickr8k_images/captions.tsv.xz"

texts = st.lists(st.sampled_from("abc"), min_size=1, max_size=9).map(" ".join)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.lists(texts, min_size=3, max_size=3), texts), min_size=1, max_size=4))
def test_bleu_equals_sacrebleu(rows) -> None:
    labels, predictions = [references for references, _ in rows], [text for _, text in rows]
    streams = [[references[i] for references in labels] for i in range(3)]
    found = caption_bleu(labels, predictions)
    for n in range(1, 5):
        theirs = BLEU(smooth_method="none", tokenize="none", max_ngram_order=n)
        score = theirs.corpus_score(predictions, streams).score
        assert found[n - 1] == pytest.approx(score, abs=1e-9)  # they add logarithms in turn


def test_numbers_of_references_may_differ() -> None:
    found = caption_bleu([["a b c d"], ["a b", "c d e f"]], ["A b c d .", "c d e f"])
    assert found == pytest.approx((100, 100, 100, 100))


def test_closest_reference_has_a_part_in_the_length() -> None:
    # 3 words: 2 and 4 are equally close, and the shorter one counts
    assert caption_bleu([["a b", "a b c d"]], ["a b c"])[0] == pytest.approx(100)
    # 2 words for 4: exp(1 - 4/2)
    assert caption_bleu([["a b c d"]], ["a b"])[0] == pytest.approx(36.787944117144235)


def test_without_matches_bleu_is_zero() -> None:
    assert caption_bleu([["a b"]], ["b a"]) == pytest.approx((100, 0, 0, 0))
    assert caption_bleu([["a"]], [""]) == (0, 0, 0, 0)
    assert caption_bleu([], []) == (0, 0, 0, 0)


def test_caption_without_references_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"text 1 must have a list of references, got \[\]"):
        caption_bleu([["a"], []], ["a", "b"])


@pytest.mark.skipif(not FLICKR8K.exists(), reason="needs ../shared")
def test_known_scores_of_flickr8k() -> None:
    """Of people, and of a constant, on the test split; stated to a decimal."""
    with lzma.open(FLICKR8K, "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    captions = dict[str, list[str]]()
    for image, split, _, caption in rows[1:]:
        if split == "test":
            captions.setdefault(image, []).append(caption)
    labels = list(captions.values())
    assert {len(one) for one in labels} == {5}
    assert len(labels) == 1000
    constant = caption_bleu(labels, ["a man in a blue shirt is standing on a"] * 1000)
    assert constant == pytest.approx((52.6, 29.6, 14.6, 8.1), abs=0.05)
    people = caption_bleu([one[1:] for one in labels], [one[0] for one in labels])
    assert people == pytest.approx((63.6, 44.6, 30.5, 20.9), abs=0.05)
