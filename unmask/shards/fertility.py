"""Tokens per word of each source, the fertility of a tokenizer."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from unmask.batch import WORD_START
from unmask.shards.manifest import SourceSegment, shard_path
from unmask.shards.read import TokenShards
from unmask.tokenizers.encode import Tokenizer

_TOKENS_AT_ONCE = 2**20


def tokens_per_word(shards: TokenShards) -> dict[str, float]:
    """Return the tokens per word of each source, by name; one that has no name is "".

    Rust et al. 2021, arXiv:2012.15613. Words are those that masking of whole words takes: what is
    between white space, and where the tokenizer splits there, each punctuation mark by itself.
    """
    numbers, tokens, words = dict[str, int](), Counter[int](), Counter[int]()
    for index, shard in enumerate(shards.manifest.shards):
        whole = SourceSegment("", shard.n_documents, shard.n_tokens)
        parts = shard.source_segments or (whole,)
        sources = np.array([numbers.setdefault(part.source, len(numbers)) for part in parts])
        ends = np.cumsum([part.n_tokens for part in parts])
        path = shard_path(shards.folder, index, "marks")
        for at in range(0, shard.n_tokens, _TOKENS_AT_ONCE):  # read: pages that are mapped add up
            marks = np.fromfile(path, np.uint8, _TOKENS_AT_ONCE, offset=at)
            of = sources[np.searchsorted(ends, np.arange(at, at + len(marks)), "right")]
            tokens.update(dict(enumerate(np.bincount(of).tolist())))
            words.update(dict(enumerate(np.bincount(of[(marks & WORD_START) > 0]).tolist())))
    return {name: tokens[i] / words[i] for name, i in numbers.items() if words[i]}


def text_fertility(tokenizer: Tokenizer, texts: Sequence[str]) -> float:
    """Return the tokens per word of texts, special tokens left out.

    Words are what is between white space, so that tokenizers of all kinds can be compared; scripts
    without spaces have none.

    Raises:
        ValueError: no text has a word.
    """
    words = sum(len(text.split()) for text in texts)
    if not words:
        raise ValueError(f"tokens per word: none of {len(texts):,} texts has a word")
    return sum(len(ids) for ids in tokenizer.encode_ids_batch(texts)) / words
