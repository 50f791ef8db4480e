"""Pairs of words are read, found and scored; words that a space lacks are counted apart."""

from math import comb
from pathlib import Path

import numpy as np
import pytest
from two_spaces import gaussian, named

from unmask.word_vectors.alignment.dictionary import (
    identical_pairs,
    known_pairs,
    numeral_pairs,
    read_dictionary,
    score_dictionary,
)
from unmask.word_vectors.alignment.retrieval import CSLS, CosineRetrieval


def written(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("of\tvon\nto\tzu\n", [("of", "von"), ("to", "zu")]),
        ("of von\nto  zu", [("of", "von"), ("to", "zu")]),
        ("\ufeffof von\r\n\r\nto zu\r\n", [("of", "von"), ("to", "zu")]),
        ("New York\tNueva York\n", [("New York", "Nueva York")]),
        ("a b\na c\na b\n", [("a", "b"), ("a", "c")]),
        ("a\u00a0b\tc\n", [("a\u00a0b", "c")]),
        (" a\tb \n", [("a", "b")]),
    ],
)
def test_dictionary_is_read(text: str, pairs: list[tuple[str, str]], tmp_path: Path) -> None:
    assert read_dictionary(written(tmp_path / "d.tsv", text)) == tuple(pairs)


def test_dictionary_is_lower_cased_on_request(tmp_path: Path) -> None:
    path = written(tmp_path / "d.tsv", "Of\tVon\nof\tvon\n")
    assert read_dictionary(path, lowercase=True) == (("of", "von"),)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("of von\nto\n", r"d.txt:2: a line must be a word.*; got 1 words: 'to'"),
        ("of von\nto zu an\n", r"d.txt:2: .*got 3 words: 'to zu an'"),
        ("of\tvon\tab\n", r"d.txt:1: .*got 3 words"),
        ("of\t\n", r"d.txt:1: .*got 1 words"),
        ("\tvon\n", r"d.txt:1: .*got 1 words"),
        ("", "d.txt: no pair of words in it"),
        ("\n \n\n", "d.txt: no pair of words in it"),
        ("of von\na\0b c\n", r"d.txt:2: a NUL"),
        ("a b\n" + "x" * 70_000, r"d.txt:2: a line of more than 65,536 characters"),
    ],
)
def test_malformed_dictionary_is_refused_with_its_line(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=why):
        read_dictionary(written(tmp_path / "d.txt", text))


def test_invalid_bytes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "d.txt").write_bytes(b"a b\nc \xff\n")
    with pytest.raises(ValueError, match=r"d.txt:2: invalid UTF-8"):
        read_dictionary(tmp_path / "d.txt")


SOURCE = named(np.eye(5), words=["the", "1984", "a", "٣", "42"])
TARGET = named(np.eye(6)[:, :5], words=["42", "der", "1984", "a", "12a", "٣"])


def test_numerals_and_identical_words_are_found() -> None:
    assert numeral_pairs(SOURCE, TARGET).tolist() == [[1, 2], [4, 0]]
    assert identical_pairs(SOURCE, TARGET).tolist() == [[1, 2], [2, 3], [3, 5], [4, 0]]
    assert identical_pairs(SOURCE, TARGET, ["42", "a", "no", "a"]).tolist() == [[4, 0], [2, 3]]


def test_empty_intersection_is_refused() -> None:
    other = named(np.eye(2), words=["x", "y"])
    with pytest.raises(ValueError, match="no numeral"):
        numeral_pairs(SOURCE, other)
    with pytest.raises(ValueError, match="no word in common: the first are 'the', '1984', 'a' and"):
        identical_pairs(SOURCE, other)
    with pytest.raises(ValueError, match="of those that were given, the spaces have no word"):
        identical_pairs(SOURCE, TARGET, ["b"])


def test_known_pairs_keep_their_order() -> None:
    kept, rows = known_pairs((("a", "a"), ("b", "a"), ("a", "der"), ("the", "die")), SOURCE, TARGET)
    assert kept == (("a", "a"), ("a", "der"))
    assert rows.tolist() == [[2, 3], [2, 1]]


@pytest.mark.parametrize(
    ("pairs", "why"),
    [
        ((), "the dictionary is empty"),
        ((("a", "b"), ("b", "c")), "2 pairs have none.*of 1 the source word is, of 0 the target"),
        ((("der", "the"),), "the other way round, 1 are: are source and target swapped"),
        ((("The", "Der"),), "in lower case, 1 are"),
    ],
)
def test_dictionary_of_unknown_words_is_refused(pairs, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        known_pairs(pairs, SOURCE, TARGET)


def test_scores_count_several_targets_and_unknown_words_separately() -> None:
    source = named(np.eye(4), words=["a", "b", "c", "d"])
    target = named(
        [[1, 0, 0, 0.1], [0, 1, 0, 0], [0.1, 0.9, 0, 0], [0, 0.2, 1, 0], [0, 0, 0.5, 0.5]]
        @ np.eye(4),
        words=["A", "B", "B2", "C", "D"],
    )
    found = score_dictionary(
        source,
        target,
        (
            ("a", "A"), ("a", "nobody"),  # first
            ("b", "B2"), ("b", "C"),  # second and third
            ("c", "nobody"),  # known, its target is not
            ("x", "A"), ("y", "nobody"),  # unknown
            ("d", "B"),  # last or so
        ),
        CosineRetrieval(),
        seeds=np.array([[0, 0], [2, 2]]),
    )  # fmt: skip
    assert (found.n_evaluated, found.n_source_unknown, found.n_target_unknown) == (3, 2, 1)
    assert found.coverage == 0.5
    assert found.n_seed_words == 1
    assert found.precision_at_1 == pytest.approx(1 / 3)
    assert found.precision_at_5 == 1
    assert found.mean_reciprocal_rank == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)


def test_identity_mapping_scores_perfectly_and_above_chance() -> None:
    space = gaussian(300, 20, seed=1)
    found = score_dictionary(space, space, tuple((w, w) for w in space.words))
    assert (found.precision_at_1, found.precision_at_5, found.mean_reciprocal_rank) == (1, 1, 1)
    assert found.chance_precision == pytest.approx(1 / 300)
    assert found.above_chance


def test_very_few_pairs_are_never_above_chance() -> None:
    space = gaussian(300, 20, seed=1)
    same = tuple((word, word) for word in space.words)
    above = {n: score_dictionary(space, space, same[:n]).above_chance for n in (1, 2, 3, 9)}
    assert above == {1: False, 2: False, 3: False, 9: True}


def test_constant_prediction_is_not_above_chance() -> None:
    source = named(np.ones((200, 3)))
    target = named(np.vstack([np.ones(3), np.random.default_rng(1).normal(size=(199, 3))]))
    words = tuple((w, source.words[0 if i % 2 else i]) for i, w in enumerate(source.words))
    found = score_dictionary(source, target, words, CosineRetrieval())
    assert found.precision_at_1 == pytest.approx(found.chance_precision) == pytest.approx(101 / 200)
    assert not found.above_chance


def test_chance_p_value_equals_binomial_tail() -> None:
    rng = np.random.default_rng(3)
    source = gaussian(40, 6, seed=4)
    target = named(source.vectors + 0.7 * rng.normal(size=(40, 6)))
    found = score_dictionary(source, target, tuple((w, w) for w in source.words))
    hits, p = round(found.precision_at_1 * 40), found.chance_precision
    assert 3 < hits < 37
    tail = sum(comb(40, k) * p**k * (1 - p) ** (40 - k) for k in range(hits, 41))
    assert found.chance_p_value == pytest.approx(tail, rel=1e-9)


def test_too_few_scored_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="dictionary is empty"):
        score_dictionary(SOURCE, TARGET, ())
    with pytest.raises(ValueError, match="k = 10 neighbors"):
        score_dictionary(
            SOURCE, named(np.eye(6)[:, :5], words=list("a12345")), (("a", "a"),), CSLS()
        )
