"""Bytes that mark where words begin, and the words of a loss."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.tokenizers.characters.byte_pipelines import word_byte_pipeline
from unmask.tokenizers.characters.byte_tokenizers import WordByteTokenizer
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.load import load_tokenizer
from unmask.tokenizers.output_vocabularies.words import (
    FIRST_CONTINUATION_ID,
    N_SPECIAL_IDS,
    VOCAB_SIZE,
    WordVocabulary,
    read_word_vocabulary,
    save_word_vocabulary,
    starts_word,
)
from unmask.tokenizers.spec import ELMO, TokenizerSpec
from unmask.tokenizers.vocabulary import WordBytesWithWords

LEARNED = train_tokenizer(
    TokenizerSpec(WordBytesWithWords(11), ELMO), ["the cat, the dog; the cat's étés", "the été"]
)
KNOWN = LEARNED.special_ids.output_vocabulary
BARE = Tokenizer(word_byte_pipeline(ELMO, split_punctuation=False), ELMO)


def words(tokenizer: Tokenizer, text: str) -> list[str]:
    ids = tokenizer.encode(text).ids
    starts = np.flatnonzero(starts_word(ids))
    return [tokenizer.decode(part) for part in np.split(ids, starts[1:])] if len(ids) else []


def test_ids_are_bytes_after_the_special_tokens() -> None:
    ids = LEARNED.encode("a é").ids
    assert ids.tolist() == [N_SPECIAL_IDS + 97, N_SPECIAL_IDS + 0xC3, FIRST_CONTINUATION_ID + 0xA9]
    assert (LEARNED.vocab_size, BARE.vocab_size) == (VOCAB_SIZE, VOCAB_SIZE)
    assert LEARNED.pieces([*ids, 1, FIRST_CONTINUATION_ID + 98]) == [
        "a",
        "\\xc3",
        "##\\xa9",
        "<S>",
        "##b",
    ]


SEPARATORS = "\x1c\x1d\x1e\x1f"
"""White space to Python, but not to Unicode."""


@given(st.text(st.characters(exclude_characters=SEPARATORS, exclude_categories=["Cs"])))
def test_any_text_round_trips_with_single_spaces(text: str) -> None:
    assert BARE.decode(BARE.encode(text).ids) == " ".join(text.split())
    parted = LEARNED.decode(LEARNED.encode(text).ids)
    assert "".join(parted.split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The cat's, (U.S. too)", ["The", "cat's", ",", "(", *"U.S.", "too", ")"]),
        ("1,000 e-mails--3.5%!", ["1", ",", "000", "e", "-", "mails", *"--3.5%!"]),
        ("end—of “so” a/b", ["end", "—", "of", "“", "so", "”", "a", "/", "b"]),
        ("<S> [x]", ["<", "S", ">", "[", "x", "]"]),
    ],
)  # fmt: skip
def test_punctuation_is_a_word_except_within_one(text: str, expected: list[str]) -> None:
    assert words(LEARNED, text) == expected
    assert words(BARE, text) == text.split()


def test_loss_vocabulary_is_found_at_word_starts() -> None:
    words = ("the", ",", ";", "cat", "cat's", "dog", "été", "étés")
    assert KNOWN.vocabulary == ("<S>", "</S>", "<UNK>", *words)
    text = LEARNED.encode("the étés' cats")
    cut = KNOWN.tokenize(text.ids)
    assert KNOWN.pieces(cut.tokens.ids.tolist()) == ["the", "étés", "<UNK>", "<UNK>"]
    assert cut.starts.tolist() == [0, 3, 9, 10]
    torn = np.array(
        [FIRST_CONTINUATION_ID + 116, *LEARNED.encode("the").ids, 2, FIRST_CONTINUATION_ID + 97]
    )
    cut = KNOWN.tokenize(torn)  # what continues a word from before, and follows an end, is in none
    assert (KNOWN.pieces(cut.tokens.ids.tolist()), cut.starts.tolist()) == (["the"], [1])
    assert (
        KNOWN.pieces(KNOWN.tokenize(BARE.encode("<UNK> <S>").ids).tokens.ids.tolist())
        == ["<UNK>"] * 2
    )


def test_saved_and_pickled_tokenizer_keeps_the_words(tmp_path: Path) -> None:
    LEARNED.save(tmp_path)
    for again in (load_tokenizer(tmp_path), pickle.loads(pickle.dumps(LEARNED))):
        assert isinstance(again, WordByteTokenizer)
        assert again.special_ids.output_vocabulary.vocabulary == KNOWN.vocabulary
        assert again.encode("the étés").ids.tolist() == LEARNED.encode("the étés").ids.tolist()
    BARE.save(tmp_path / "bare")
    bare = load_tokenizer(tmp_path / "bare")
    assert bare.special_ids.output_vocabulary is None
    assert words(bare, "a,b c") == ["a,b", "c"]
    save_word_vocabulary(KNOWN, tmp_path / "bare")
    assert read_word_vocabulary(tmp_path / "bare").vocabulary == KNOWN.vocabulary


def test_damaged_list_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    for text, output in (
        (b"a\nb\n", "must begin with <S>, </S>, <UNK>, got a, b"),
        (b"<S>\n</S>\n<UNK>\nx\nx\n", "'x' is repeated"),
        (b"<S>\n\xff\n", "is not UTF-8"),
    ):
        path.write_bytes(text)
        with pytest.raises(ValueError, match=output):
            read_word_vocabulary(tmp_path)
    with pytest.raises(ValueError, match="no text"):
        train_tokenizer(TokenizerSpec(WordBytesWithWords(9), ELMO), [" "])
    with pytest.raises(ValueError, match="too small"):
        train_tokenizer(TokenizerSpec(WordBytesWithWords(3), ELMO), ["a"])
    assert WordVocabulary(("<S>", "</S>", "<UNK>")).special_ids.vocab_size == 3
