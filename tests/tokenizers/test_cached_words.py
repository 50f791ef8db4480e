"""A corpus is encoded as its texts are: same ids, same boundaries, for every kind of tokenizer."""

import string
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_cases import EVERY, SHARED, TEXTS, learned, refusal, story

from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.load import load_tokenizer
from unmask.tokenizers.splitting import cached_words, word_table

BY_WORDS = {"wordpiece", "cased", "bytebpe", "roberta", "lowercase-bytes", "bpe", "unigram"}
"""Kinds that split at spaces: most texts are encoded word by word."""
_ODD_WORDS = [
    "king", "King,", "(the", "don't", "12", "3.14", "a", "I.", "\u201cYes,\u201d", "\u2014", "-",
    "'s", "caf\u00e9", "cafe\u0301", "\u00b4", "\u0384", "\u037e", "\u0301x", "\u03c3\u03c2",
    "\u03a3", "\u043c\u0438\u0440,", "\ufb01n", "\u00bd", "x\n", "\nx", "x\ty", "x\u00a0y",
    "\u200bx", "x\u200b", "\u4e2d\u6587", "\u0e44\u0e17\u0e22", "[MASK]", "</s>", "<unk>", "##a",
    "\u2581", "_", "\x00", "\u0130", "\U0001f600", "%", "$5", "...", "?!", "Mr.", "e.g.", "", " ",
    "well-known", "(a)b", "x-", "-x", "a.b.c", "1,000.5", "a/b", "\u0391.\u03a3", "\u0391\u03a3.",
    "we'll,", "'tis", "('ll)", "a\u0301-b", "e-\u0301", "fifteen-letters", "x@y.zz", "#tag", "n't",
    "incomprehensibilities-incomprehensibilities,", "a_b,_c", "R&D,", "q?)", "-\u4e2d-", "(\x00)",
]  # fmt: skip
PROSE = st.lists(st.one_of(st.sampled_from(_ODD_WORDS), st.text(max_size=5)), max_size=30).map(
    " ".join
)
MANY = st.lists(st.one_of(PROSE, TEXTS), min_size=1, max_size=6)


def check_same(tokenizer: Tokenizer, texts: Sequence[str], times: int = 2) -> None:
    """Compare with what the tokenizer gives, when words are unknown and when they are known."""
    expected = refusal(lambda: tokenizer.encode_batch(texts))
    encoder = tokenizer.corpus_encoder()
    if expected is not None:
        assert refusal(lambda: encoder.encode_batch(texts)) is not None
        return
    whole = tokenizer.encode_batch(texts)
    for _ in range(times):
        found = encoder.encode_batch(texts)
        assert found.lengths.tolist() == [len(t) for t in whole]
        assert found.ids.tolist() == np.concatenate([t.ids for t in whole]).tolist()
        assert found.boundaries.tolist() == np.concatenate([t.boundaries for t in whole]).tolist()


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", EVERY)
@given(texts=MANY)
@settings(max_examples=60, deadline=None)
def test_corpus_has_the_tokens_of_its_texts(name: str, texts: list[str]) -> None:
    check_same(learned(name), texts)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", EVERY)
@given(texts=st.lists(PROSE, min_size=1, max_size=4))
@settings(max_examples=25, deadline=None)
def test_small_memory_gives_the_same(name: str, texts: list[str]) -> None:
    """Words are forgotten again and again, and encoded in groups of few."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_table, "MAX_WORDS", 3)
        patch.setattr(word_table, "_MAX_WORD_CHARACTERS", 4)
        patch.setattr(word_table, "_SLOT_BITS", 3)
        patch.setattr(word_table, "_MAX_PROBES", 2)
        patch.setattr(cached_words, "_JOINED_CHARACTERS", 7)
        patch.setattr(cached_words, "_MEAN_WORD_CHARACTERS", 10**6)
        patch.setattr(cached_words, "_BLOCK_CHARACTERS", 20)
        check_same(learned(name), [*texts, *texts[::-1]])


@pytest.mark.parametrize("name", sorted(BY_WORDS))
def test_words_of_prose_are_encoded_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = learned(name)
    encoder = tokenizer.corpus_encoder()
    encoder.encode_batch([story()])
    read, inner = list[str](), vars(encoder)["_locate"]

    def note(texts: Sequence[str]) -> list[cached_words.Located]:
        read.extend(texts)
        return inner(texts)

    monkeypatch.setattr(encoder, "_locate", note)
    encoder.encode_batch([f"{story()} unheard", story()])
    assert sum(map(len, read)) < 40


@pytest.mark.parametrize("name", ["wordpiece", "cased", "bytebpe"])
def test_words_are_known_whatever_punctuation_is_around(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, read = learned(name).corpus_encoder(), list[str]()
    encoder.encode_batch(["the unheard king of the sea, (of) kings-of; of."])
    inner = vars(encoder)["_locate"]
    monkeypatch.setattr(encoder, "_locate", lambda texts: read.extend(texts) or inner(texts))
    encoder.encode_batch(["the unheard, unheard; king-of, kings (of the sea"])
    assert not any("unheard" in text or "king" in text for text in read)


def test_long_texts_are_encoded_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_words, "_BLOCK_CHARACTERS", 200)
    for name in ("wordpiece", "bytebpe"):
        check_same(learned(name), [story() * 3, "caf\u00e9 " + story()], times=1)


def test_text_without_spaces_is_left_to_the_tokenizer() -> None:
    text = string.ascii_letters * 3000
    check_same(learned("bytebpe"), [text, story(), text + " and more"], times=1)
    check_same(learned("wordpiece"), ["\u4e2d\u6587" * 500, "the old king"])


@pytest.mark.parametrize(
    "name", ["bert-base-cased", "bert-base-uncased", "gpt2", "openai-gpt", "t5-base"]
)
def test_published_tokenizers(name: str) -> None:
    folder: Path = SHARED / "tokenizers" / name
    if not folder.is_dir():
        pytest.skip(f"needs {folder.name} of ../shared")
    tokenizer = load_tokenizer(folder)
    check_same(tokenizer, [story(), " ".join(_ODD_WORDS), *_ODD_WORDS, " ".join(_ODD_WORDS[::-1])])
