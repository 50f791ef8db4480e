"""Texts and small learned tokenizers for the tests of tokens."""

import functools
import random
from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st

from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.spec import (
    BERT,
    CANINE,
    CLIP,
    GPT2,
    LLAMA,
    ROBERTA,
    T5,
    WORD_LEVEL,
    TokenizerSpec,
)
from unmask.tokenizers.vocabulary import (
    BPE,
    ByteBPE,
    ByteLevel,
    CharacterLevel,
    CodePoints,
    LowercaseByteBPE,
    SentencePieceBPE,
    Unigram,
    WordLevel,
    WordPiece,
)

SHARED = Path(__file__).parents[3] / "shared" / "data"
"""Published vocabularies, where this checkout has them beside it."""

SPECS = {
    "wordpiece": TokenizerSpec(WordPiece(400), BERT),
    "cased": TokenizerSpec(WordPiece(400, lowercase=False), BERT),
    "bytebpe": TokenizerSpec(ByteBPE(500), GPT2),
    "roberta": TokenizerSpec(ByteBPE(500), ROBERTA),
    "lowercase-bytes": TokenizerSpec(LowercaseByteBPE(700), CLIP),
    "bpe": TokenizerSpec(BPE(vocab_size=400), BERT),
    "apart": TokenizerSpec(BPE(vocab_size=400, end_of_word="_", separate_end_of_word=True), BERT),
    "pieces": TokenizerSpec(SentencePieceBPE(500), LLAMA),
    "unigram": TokenizerSpec(Unigram(300), T5),
    "bytes": TokenizerSpec(ByteLevel(), T5),
    "characters": TokenizerSpec(CharacterLevel(60), T5),
    "words": TokenizerSpec(WordLevel(50), WORD_LEVEL),
    "signs": TokenizerSpec(
        WordLevel(50, min_count=2, lowercase=True, split_punctuation=True), WORD_LEVEL
    ),
}
EVERY = SPECS | {"code points": TokenizerSpec(CodePoints(), CANINE)}
"""With the kind of which nothing is learned, and which is no pipeline."""
LOSSLESS = ("bytebpe", "roberta", "pieces", "bytes")


def refusal(call: Callable[[], object]) -> str | None:
    """Say with which words a call is refused, if it is."""
    try:
        call()
    except ValueError as error:
        return str(error)
    return None


_ODD = [
    "", " ", "  ", "\n", "\n\n", "\t", "\r\n", "\x00", "\x1c", "\x85", "\xa0", "\u200b", "\u2028",
    "e\u0301", "\u0301", "é", "ﬁ", "½", "İ", "ß", "ς", "ǅ", "中文", "日本語。", "한국어", "ไทย",
    "##a", "a</w>", "_", "[MASK]", "[UNK]", "</s>", "<unk>", "<pad>", "<extra_id_0>",
    "<|endoftext|>", "the", "The old king.", "don't", "3.14", "Mr. Fox said: no!", "U.S.",
]  # fmt: skip
TEXTS = st.one_of(
    st.text(max_size=40),
    st.lists(st.sampled_from(_ODD), max_size=12).map("".join),
    st.lists(st.sampled_from(_ODD), max_size=8).map(" ".join),
)
"""Any text at all: what users type, what scrapers bring, what attackers try."""


@functools.cache
def story(n: int = 300, seed: int = 0) -> str:
    """Tell something that is long enough to learn a small vocabulary from."""
    draw = random.Random(seed)
    who = ["the old king", "a young fox", "her brother", "Mr. Grey", "my friend", "a stranger"]
    did = ["saw", "followed", "feared", "loved", "forgot", "wanted", "discovered", "remembered"]
    what = ["the gate", "a silver ring", "the long road", "his shadow", "12 quiet houses"]

    def sentence() -> str:
        output = f"{draw.choice(who)} {draw.choice(did)} {draw.choice(what)}"
        return output[0].upper() + output[1:] + draw.choice(".!?")

    return "\n".join(" ".join(sentence() for _ in range(draw.randint(2, 5))) for _ in range(n // 4))


@functools.cache
def learned(name: str) -> Tokenizer:
    """Learn one of `EVERY` from the story."""
    return train_tokenizer(EVERY[name], [story()])
