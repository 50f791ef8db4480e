"""Tiny vocabularies and texts for the tests of hiding: ids that are not words are special."""

import numpy as np
from hypothesis import strategies as st

from unmask.batch import PARAGRAPH_START, SENTENCE_START, WORD_START, Tokens
from unmask.tokenizers.spec import SpecialTokenIds

WORDS = 90
"""Ids from 10 up to this are ordinary in every vocabulary here."""

BERT = SpecialTokenIds(
    vocab_size=100,
    pad=0,
    unknown=1,
    start=2,
    end=3,
    mask=4,
    prefix=(2,),
    separator=(3,),
    suffix=(3,),
    all_ids=frozenset({0, 1, 2, 3, 4, 97}),
)
T5 = SpecialTokenIds(
    vocab_size=100, pad=0, start=0, end=1, unknown=2, separator=(1,), suffix=(1,),
    sentinels=tuple(range(99, 91, -1)), all_ids=frozenset({0, 1, 2, *range(92, 100)}),
)  # fmt: skip
GPT = SpecialTokenIds(vocab_size=100, pad=99, start=99, end=99, unknown=99, all_ids=frozenset({99}))
XLNET = SpecialTokenIds(
    vocab_size=100, pad=0, unknown=1, start=2, end=3, mask=4, separator=(5,), suffix=(5, 6),
    all_ids=frozenset(range(7)),
)  # fmt: skip
LLAMA = SpecialTokenIds(
    vocab_size=100, pad=1, start=0, end=1, unknown=2, prefix=(0,), all_ids=frozenset({0, 1, 2})
)  # fmt: skip


def text(ids: object, words: object = None, sentences: object = None) -> Tokens:
    """Make a text; by default words begin everywhere and a sentence at the start."""
    array = np.array(ids, np.int64).reshape(-1)
    marks = np.zeros(len(array), np.int64)
    marks[list(range(len(array))) if words is None else words] |= WORD_START
    if len(array):
        marks[[0] if sentences is None else sentences] |= SENTENCE_START
        marks[0] |= PARAGRAPH_START
    return Tokens(array, marks)


@st.composite
def texts(draw: st.DrawFn, least: int = 0, most: int = 70) -> Tokens:
    """Draw a text with words of one to three tokens and short sentences."""
    ids = draw(st.lists(st.integers(10, WORDS - 1), min_size=least, max_size=most))
    marks = draw(st.lists(st.sampled_from([0, 1, 1, 1, 3]), min_size=len(ids), max_size=len(ids)))
    return Tokens(np.array(ids, np.int64), np.array(marks, np.int64))


def long_text(n: int, seed: int = 0) -> Tokens:
    """Make a text of random words of one to three tokens, in sentences of about twelve."""
    rng = np.random.default_rng(seed)
    marks = (rng.random(n) < 0.6) * WORD_START
    marks[rng.random(n) < 1 / 12] = WORD_START | SENTENCE_START
    return Tokens(rng.integers(10, WORDS, n), marks.astype(np.int64))
