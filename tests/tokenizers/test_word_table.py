"""Words are found by their bytes, and those that were used last are remembered."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.tokenizers.splitting import word_table
from unmask.tokenizers.splitting.word_table import WordTable, WordTokens, word_keys


class Counting:
    """Encodes a word as its characters, and notes the words."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.table = WordTable([self])

    def __call__(self, words: Sequence[str]) -> WordTokens:
        self.words += words
        codes = np.array([*map(ord, "".join(words))], np.uint32)
        return WordTokens(np.array([len(word) for word in words]), codes, codes)

    def look_up(self, words: Sequence[str]) -> str:
        """Return the words as they are found."""
        text = "".join(words).encode()
        sizes = np.array([len(word.encode()) for word in words])
        keys, is_other = word_keys(
            text, np.cumsum(sizes) - sizes, sizes, np.zeros(len(sizes), bool)
        )
        keys.low[is_other] = keys.high[is_other] = 0
        numbers = self.table.look_up_keys(keys, lambda some: [words[i] for i in some])
        others = np.flatnonzero(is_other)
        numbers[others] = self.table.look_up([words[i] for i in others])
        return "".join(map(chr, self.table.tokens(numbers).ids.tolist()))


WORDS = st.lists(st.text(alphabet="ab\0\u00e9\u4e2d", min_size=1, max_size=20), min_size=1)


@given(st.lists(WORDS, max_size=5), st.integers(0, 4))
def test_words_are_found_whatever_the_table_holds(chunks: list[list[str]], bits: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_table, "_SLOT_BITS", bits)
        patch.setattr(word_table, "_MAX_PROBES", 3)
        patch.setattr(word_table, "MAX_WORDS", 8)
        counting = Counting()
        for words in chunks:
            counting.table.forget()
            assert counting.look_up(words) == "".join(words)


def test_known_words_are_not_encoded_again() -> None:
    counting = Counting()
    for _ in range(3):
        counting.look_up(["king", "the", "king", "a word of many bytes"])
    assert sorted(counting.words) == ["a word of many bytes", "king", "the"]


def test_those_not_used_for_longest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_table, "MAX_WORDS", 4)
    counting = Counting()
    for words in (["old", "older"], ["king"], ["queen", "king"], ["sea"]):
        counting.table.forget()
        counting.look_up(words)
    counting.table.forget()
    counting.words.clear()
    counting.look_up(["sea", "queen"])
    assert not counting.words
    counting.look_up(["old"])
    assert counting.words == ["old"]


def test_words_without_a_space_before_them_have_keys_of_their_own() -> None:
    words = ["-", "-", "fifteen letters", "fifteen letters", "sixteen letters!", "sixteen letters!"]
    sizes = np.array([*map(len, words)])
    is_attached = np.array([False, True] * 3)
    keys, is_other = word_keys(
        "".join(words).encode(), np.cumsum(sizes) - sizes, sizes, is_attached
    )
    assert is_other.tolist() == [False] * 5 + [True]
    assert len(set(zip(keys.low.tolist(), keys.high.tolist(), strict=True))) == len(words)
