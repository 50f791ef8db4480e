"""Texts that no one would write, in each kind of tokenizer: all code points, floods, one huge line.

Of each: ids are of the vocabulary, places lie in the text and in order, a batch is encoded as its
texts are alone, decoding ends; and where a kind promises it, bytes in are bytes out.
"""

import functools
import resource
import time

import numpy as np
import pytest
from tokenizer_cases import EVERY, LOSSLESS, learned, story
from trials import Trials

from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.spec import BYT5, CANINE, ELMO, TokenizerSpec
from unmask.tokenizers.vocabulary import ByteLevel, CodePointsWithSubwords, WordBytesWithWords

MORE = {
    "byt5": TokenizerSpec(ByteLevel(n_unused_ids=0), BYT5),
    "code points with subwords": TokenizerSpec(CodePointsWithSubwords(300), CANINE),
    "bytes of words": TokenizerSpec(WordBytesWithWords(50), ELMO),
}
KINDS = (*EVERY, *MORE)
RESTORED = {*LOSSLESS, "byt5"}
"""Kinds that promise bytes out as they came in. Of code points, six are special tokens."""
BLOCK = 4096
BLOCKS = range(0, 0x110000, BLOCK)
QUICK_BLOCKS = (0x0, 0x1000, 0x3000, 0xD000, 0xF000, 0x1F000, 0xE0000, 0x10F000)
"""Latin to Arabic, Georgian and Ethiopic, kana and CJK, half of it surrogates, compatibility forms,
emoji, tags, and the end of all."""
STRANGE = {
    "nothing": "",
    "a space": " ",
    "white space of all kinds": " \t\n\r\v\f\x1c\x1d\x1e\x1f\x85\xa0"
    "\u1680\u2000\u2007\u200a\u2028\u2029\u202f\u205f\u3000" * 9,
    "only spaces": " " * 1000,
    "only line ends": "\n" * 1000,
    "CRLF": "the\r\nking\r\n\r\n" * 50,
    "lone CR": "the\rking\r\r" * 50,
    "NUL": "\0the\0\0king\0" * 50,
    "BOM": "\ufeffthe \ufeffking\ufeff",
    "the BOM of the other order": "\ufffethe king",
    "U+2028": "the\u2028king\u2029" * 20,
    "replacement characters": "\ufffd" * 500,
    "noncharacters": "\uffff\ufdd0\U0001ffff\U0010ffff" * 50,
    "a flood of combining marks": "e" + "\u0301" * 3000,
    "only combining marks": "\u0301\u0489\u20dd" * 500,
    "Zalgo": "".join(c + "\u0316\u0343\u0336" * 20 for c in "the king"),
    "marks from right to left": "the \u202eking\u202c \u2067sea\u2069 \u200f\u200e\u061c" * 20,
    "overrides that never end": "\u202e" * 500 + "king",
    "Arabic": "السَّلامُ عَلَيْكُم " * 40,
    "Hebrew": "שָׁלוֹם" * 40,
    "joiners": "\u200d" * 500,
    "joined nothing": "a\u200db\u200cc\u2060d\ufeffe\u00ad" * 50,
    "emoji": "👨‍👩‍👧‍👦🏳️‍🌈👍🏽🇩🇪🏴󠁧󠁢󠁥󠁮󠁧󠁿1️⃣" * 30,
    "a family without end": "👩\u200d" * 500,
    "flags without partners": "🇦" * 501,
    "variation selectors": "\ufe0f\ufe0e\U000e0100" * 200,
    "tags": "".join(chr(0xE0000 + i) for i in range(128)) * 5,
    "Hangul in parts": "\u1112\u1161\u11ab" * 200,
    "Hangul in excess": "\u1100" * 300 + "\u1161" * 300,
    "letters that grow": "ŉǰΐΰևẖẗﬃİ" * 60,
    "one letter that becomes 18": "\ufdfa" * 200,
    "signs of mathematics": "𝕿𝖍𝖊 𝓀𝒾𝓃𝑔 𝟙𝟚" * 40,
    "private characters": "\ue000\uf8ff\U000f0000\U0010fffd" * 60,
    "escapes": "\x1b[31m\x1b]8;;x\x07\x9b2J" * 40,
    "marks of pieces": "▁▁the▁ ##king</w>Ġ_" * 40,
    "special tokens": "[MASK]</s><unk><pad><|endoftext|>" * 9,
    "one long word": "a" * 4000,
    "one long word of all letters": "abcdefghijklmnopqrstuvwxyz" * 150,
    "digits": "0123456789" * 500,
    "signs": "!?.,;:-'\"()[]{}" * 300,
    "quotes of all kinds": "'‘’‚“”„«»`´′″" * 60,
}


@functools.cache
def tokenizer(kind: str) -> Tokenizer:
    """Learn one of the kinds from the story."""
    return learned(kind) if kind in EVERY else train_tokenizer(MORE[kind], [story()])


def check(kind: str, text: str) -> None:
    """Check all that is promised of a text."""
    one = tokenizer(kind)
    tokens, places = one.encode(text), one.offset_array(text)
    assert len(tokens.ids) == len(tokens.boundaries) == len(places)
    assert ((tokens.ids >= 0) & (tokens.ids < one.vocab_size)).all()
    assert ((places >= 0) & (places <= len(text))).all()
    assert (places[:, 0] <= places[:, 1]).all()
    batch = one.encode_batch(["the king", text, ""])
    np.testing.assert_array_equal(batch[1].ids, tokens.ids)
    np.testing.assert_array_equal(batch[1].boundaries, tokens.boundaries)
    np.testing.assert_array_equal(one.encode_ids_batch([text, "a"])[0], tokens.ids)
    decoded = one.decode(tokens.ids)
    if kind in RESTORED:
        # SentencePiece writes a space as U+2581, so that one that is typed is read as a space.
        expected = text.replace("\u2581", " ") if kind == "pieces" else text
        assert decoded.encode() == expected.encode()
    assert one.decode(one.encode(decoded).ids) is not None
    one.pieces(tokens.ids[:100])


def block(start: int) -> str:
    """Return each code point of a block, but for surrogates, which are no text."""
    return "".join(chr(c) for c in range(start, start + BLOCK) if not 0xD800 <= c < 0xE000)


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", KINDS)
def test_strange_texts_are_encoded_and_decoded(kind: str, trials: Trials) -> None:
    for name, text in STRANGE.items():
        try:
            check(kind, text)
        except Exception as error:
            pytest.fail(f"{name}: {error!r:.500}")
        trials.count("text torture")


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", KINDS)
def test_code_points_of_some_blocks_are_encoded_and_decoded(kind: str, trials: Trials) -> None:
    for start in QUICK_BLOCKS:
        check(kind, block(start))
        trials.count("text torture")


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_every_code_point_is_encoded_and_decoded(kind: str, trials: Trials) -> None:
    for start in BLOCKS:
        check(kind, block(start))
        trials.count("text torture")


@pytest.mark.trials("text torture")
@pytest.mark.parametrize("text", ["\ud800", "a\udfff", "\udc80 b", "\ud83d\ude00", "\udce9" * 50])
@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", KINDS)
def test_lone_surrogates_are_refused_in_one_line(kind: str, text: str) -> None:
    for call in (tokenizer(kind).encode, tokenizer(kind).offsets):
        with pytest.raises(ValueError, match="surrogate") as error:
            call(text)
        assert "\n" not in str(error.value)


HUGE = {
    "a line of a hundred megabytes": ("the old king, ", 10**8, 240),
    "ten million empty lines": ("\n", 10**7, 60),
    "a word of a megabyte": ("a", 10**6, 60),
    "a word of a megabyte of letters": ("abcdefghij", 10**6, 60),
}
"""Texts, what is repeated, to how many characters, and how many seconds they may take."""


@pytest.mark.thorough
@pytest.mark.parametrize("name", HUGE)
@pytest.mark.parametrize("kind", ["bytebpe", "wordpiece", "unigram", "bytes", "code points"])
def test_huge_text_is_encoded_in_bounded_time_and_memory(
    kind: str, name: str, trials: Trials
) -> None:
    what, n, seconds = HUGE[name]
    text, one = what * (n // len(what)), tokenizer(kind)
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    ids = one.encode_ids_batch([text])[0]
    took = time.process_time() - began
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"{kind}, {name}: {len(ids):,} ids, {took:.1f} s, {grown:,.0f} MB")
    assert ((ids >= 0) & (ids < one.vocab_size)).all()
    assert took < seconds
    assert grown < 4000
    trials.count("text torture")
