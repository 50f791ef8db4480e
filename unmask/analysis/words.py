"""Pieces and words: which tokens of a text are of which word, and what follows for its words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.batch import Batch
from unmask.batching.collate import group_by_length
from unmask.finetuning.formulations.token_classification_head import pieces_by_word
from unmask.generation.text_batches import batch_of_texts, max_read_length
from unmask.heads.model import Model
from unmask.tokenizers.encode import Tokenizer

SPECIAL = -1
"""Word of a special token."""


@dataclass(frozen=True)
class WordPieces:
    """A sentence of words as a model reads it."""

    words: tuple[str, ...]
    token_ids: Int[np.ndarray, "t"]
    """With the special tokens around a text."""
    word_of_token: Int[np.ndarray, "t"]
    """Index of the word of each token; `SPECIAL` for special tokens."""

    @property
    def group_of_token(self) -> Int[np.ndarray, "t"]:
        """Index of the group of each token, from the left: a word, or one special token."""
        is_start = np.ones(len(self.word_of_token), bool)
        is_start[1:] = (self.word_of_token[1:] != self.word_of_token[:-1]) | (
            self.word_of_token[1:] == SPECIAL
        )
        return np.cumsum(is_start) - 1

    @property
    def word_of_group(self) -> Int[np.ndarray, "g"]:
        """Index of the word of each group; `SPECIAL` for special tokens."""
        groups = self.group_of_token
        return self.word_of_token[np.unique(groups, return_index=True)[1]]

    def labels(self, tokenizer: Tokenizer) -> list[str]:
        """Return the text of each group: a word, or the name of a special token."""
        groups = self.group_of_token
        first = np.unique(groups, return_index=True)[1]
        names = tokenizer.pieces(self.token_ids[first].tolist())
        words = self.word_of_group.tolist()
        return [
            name if word == SPECIAL else self.words[word]
            for name, word in zip(names, words, strict=True)
        ]


def split_words(
    tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], max_tokens: int | None
) -> list[WordPieces | None]:
    """Encode sentences of words, joined by spaces, with special tokens around them.

    A word without tokens is read as an unknown token, as in token classification. None: a sentence
    has more than `max_tokens`; what is left of a tree whose end is cut is no tree.

    Raises:
        ValueError: the tokenizer reads texts backward.
    """
    tokenizer.check_reads_forward("words of a sentence")
    special = tokenizer.special_ids
    clean = [tuple(" ".join(word.split()) for word in words) for words in sentences]
    encoded = tokenizer.encode_ids_batch([" ".join(words) for words in clean])
    found: list[WordPieces | None] = []
    for words, ids in zip(clean, encoded, strict=True):
        pieces = pieces_by_word(tokenizer, words, ids)
        owners = [i for i, own in enumerate(pieces) for _ in own]
        token_ids = [*special.prefix, *(t for own in pieces for t in own), *special.suffix]
        word_of_token = [SPECIAL] * len(special.prefix) + owners + [SPECIAL] * len(special.suffix)
        fits = max_tokens is None or len(token_ids) <= max_tokens
        found.append(
            WordPieces(words, np.array(token_ids), np.array(word_of_token)) if fits else None
        )
    return found


def read_words(
    model: Model, tokenizer: Tokenizer, sentences: Sequence[Sequence[str]]
) -> list[WordPieces | None]:
    """Encode sentences for the stack of a model that reads texts; see `split_words`."""
    most = max_read_length(model, model.backbone.encoder_stack)
    return split_words(tokenizer.input_tokenizer, sentences, most)


def word_batches(
    model: Model, tokenizer: Tokenizer, sentences: Sequence[WordPieces], batch_tokens: int
) -> Iterator[tuple[list[int], Batch]]:
    """Yield the indices of sentences that go through the model together, and their batch."""
    for rows in group_by_length([len(one.token_ids) for one in sentences], batch_tokens):
        inputs = [sentences[i].token_ids for i in rows]
        yield rows, batch_of_texts(model, tokenizer.special_ids, inputs)


def merge_to_words(
    maps: Float[Tensor, "*n t s"], queries: WordPieces, keys: WordPieces | None = None
) -> Float[Tensor, "*n g k"]:
    """Merge attention maps of tokens to those of words and special tokens.

    The attention to a word is the sum over its tokens, that from a word the mean over its tokens
    (Clark et al. 2019, arXiv:1906.04341, section 4.1), so that rows still sum to 1.

    Args:
        maps: attention weights of a text without padding.
        queries: the text of the rows.
        keys: the text of the columns, of a cross-attention. None: that of the rows.
    """
    from_groups = _membership(queries, maps)
    to_groups = from_groups if keys is None else _membership(keys, maps)
    means = from_groups / from_groups.sum(0)
    return means.mT @ maps @ to_groups


def _membership(pieces: WordPieces, like: Tensor) -> Float[Tensor, "t g"]:
    groups = torch.from_numpy(pieces.group_of_token).to(like.device)
    return torch.nn.functional.one_hot(groups).to(like.dtype)
