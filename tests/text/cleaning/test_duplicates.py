"""Duplicates: exact and near, by the probability that the paper's bands have."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.text.cleaning import duplicates
from unmask.text.cleaning.duplicates import (
    NO_KEY,
    ExactDuplicates,
    NearDuplicates,
    find_repeated,
)
from unmask.text.cleaning.word_hashes import hash_normalized_words


def all_firsts(keys: np.ndarray) -> list[int]:
    repeated = find_repeated(keys.shape[1], lambda i: keys[:, i])
    return repeated.first_of(np.arange(len(keys))).tolist()


def firsts(how: ExactDuplicates | NearDuplicates, units: list[str]) -> list[int]:
    keys = how.keys(units)
    assert keys.shape == (len(units), how.n_keys)
    return all_firsts(keys)


def words(n: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [f"w{rng.randrange(10**6)}" for _ in range(n)]


def test_exact_duplicates_ignore_white_space_and_composition() -> None:
    units = ["a café", "b", "a  cafe\u0301 ", "A café", "", "b"]
    assert firsts(ExactDuplicates(), units) == [0, 1, 0, 3, 4, 1]


def test_short_paragraphs_are_no_duplicates() -> None:
    long = " ".join(words(10, 0))
    for kind in (ExactDuplicates, NearDuplicates):
        assert firsts(kind(unit="paragraph"), ["Yes.", long, "Yes.", long]) == [0, 1, 2, 1]
        assert firsts(kind(unit="paragraph", min_words=1), ["Yes.", "No.", "Yes."]) == [0, 1, 0]


def test_near_duplicates_ignore_case_and_punctuation() -> None:
    text = " ".join(words(40, 0))
    assert firsts(NearDuplicates(), [text, text.upper().replace(" ", ", ") + "!"]) == [0, 0]


def test_texts_without_words_are_no_duplicates() -> None:
    assert firsts(NearDuplicates(), ["", "!!!", "?", ""]) == [0, 1, 2, 3]
    assert firsts(NearDuplicates(), []) == []


def test_scripts_without_spaces_have_words() -> None:
    text = "".join(chr(0x4E00 + i * 7) for i in range(60))
    assert firsts(NearDuplicates(), [text, text[:-1] + "的", text[::-1]]) == [0, 0, 2]
    _, counts = hash_normalized_words(["東京 tower", "สวัสดี", "हिन्दी में"])
    assert counts.tolist() == [3, 6, 2]


def edited(base: list[str], n_changed: int, seed: int) -> str:
    """Replace the last words: of n 5-grams as many are lost as words are replaced."""
    return " ".join(base[: len(base) - n_changed] + words(n_changed, seed))


@pytest.mark.parametrize(
    ("similarity", "least", "most"), [(0.95, 0.98, 1.0), (0.75, 0.65, 0.88), (0.5, 0.01, 0.14)]
)
def test_near_duplicates_are_found_with_the_probability_of_the_bands(
    similarity: float, least: float, most: float
) -> None:
    """1 - (1 - s^8)^14 of pairs with a Jaccard similarity s of their 5-grams."""
    n, n_pairs = 204, 300
    shared = round(2 * 200 * similarity / (1 + similarity))  # of 200 5-grams
    units: list[str] = []
    for pair in range(n_pairs):
        base = words(n, 2 * pair)
        units += [" ".join(base), edited(base, 200 - shared, 2 * pair + 1)]
    found = firsts(NearDuplicates(), units)
    paired = [found[2 * i + 1] == 2 * i for i in range(n_pairs)]
    assert least <= sum(paired) / n_pairs <= most
    assert all(found[2 * i] == 2 * i for i in range(n_pairs))  # and unlike texts are none


def test_duplicates_of_duplicates_are_one_group() -> None:
    base = words(300, 0)
    units = [
        " ".join(base[:260]), "else " + " ".join(words(50, 9)),
        " ".join(base[20:280]), " ".join(base[40:]),
    ]  # fmt: skip
    assert firsts(NearDuplicates(bands=100, rows=4), units) == [0, 1, 0, 0]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=30))
def test_groups_are_those_of_a_plain_search(rows: list[tuple[int, int]]) -> None:
    keys = np.array(rows, np.uint64).reshape(-1, 2)
    expected = list(range(len(rows)))
    for _ in rows:  # until nothing changes
        for a in range(len(rows)):
            for b in range(len(rows)):
                if any(x == y != NO_KEY for x, y in zip(rows[a], rows[b], strict=True)):
                    expected[a] = expected[b] = min(expected[a], expected[b])
    keys *= np.uint64(2**61)  # in ranges of their own
    for most in (2**20, 2):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(duplicates, "_PARTITION_UNITS", most)
            assert all_firsts(keys) == expected


@given(st.lists(st.text(max_size=40), max_size=8))
def test_keys_of_a_unit_do_not_depend_on_its_neighbors(units: list[str]) -> None:
    for how in (NearDuplicates(bands=3, rows=2), ExactDuplicates(min_words=2)):
        alone = [how.keys([unit])[0].tolist() for unit in units]
        assert how.keys(units).tolist() == alone


def test_keys_stay_what_they_were() -> None:
    """Saved keys of an interrupted job are compared with new ones."""
    keys = NearDuplicates(bands=2, rows=2).keys(["The quick brown fox jumps over the lazy dog."])
    assert keys.tolist() == [[8252718869313958754, 7476527564279727293]]
