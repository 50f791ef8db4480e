"""Attention maps of sentences at the level of words, head by head."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.analysis.attention.record import attention_maps
from unmask.analysis.words import SPECIAL, WordPieces, merge_to_words, word_batches
from unmask.heads.model import Model
from unmask.model.recording import recordable_stacks
from unmask.tokenizers.encode import Tokenizer

BATCH_TOKENS = 1024
"""Tokens that go through the model at once; every head has a map of each row."""


@dataclass(frozen=True, order=True)
class HeadName:
    """Where a head is; both are counted from 1, as in Clark et al. 2019."""

    layer: int
    head: int

    def __str__(self) -> str:
        return f"{self.layer}-{self.head}"


@dataclass(frozen=True)
class SentenceMaps:
    """The maps of all heads of a stack for one sentence."""

    index: int
    """Which of the sentences."""
    pieces: WordPieces
    tokens: Float[Tensor, "k t t"]
    """Heads in the order of `head_names`."""
    groups: Float[Tensor, "k g g"]
    """Merged to words; special tokens are groups of their own."""

    @property
    def words(self) -> Float[Tensor, "k w w"]:
        """From words to words; rows sum to less than 1 by what special tokens get."""
        is_word = torch.from_numpy(self.pieces.word_of_group != SPECIAL)
        return self.groups[:, is_word][:, :, is_word]


def head_names(model: Model) -> list[HeadName]:
    """Return the heads of the stack that reads texts, the first layer first.

    Raises:
        ValueError: the network does not consist of Transformer blocks.
    """
    return [
        HeadName(layer + 1, head + 1)
        for layer, n_heads in enumerate(_heads_by_layer(model))
        for head in range(n_heads)
    ]


def _heads_by_layer(model: Model) -> list[int]:
    """Return the number of heads of each layer; some layers may have fewer than others."""
    stack = recordable_stacks(model.backbone)[_encoder_index(model)].a
    heads = [stack.layer_heads(i) for i in range(stack.n_layers)]
    return [stack.n_heads if some is None else len(some) for some in heads]


def _encoder_index(model: Model) -> int:
    """Return which of the recorded stacks reads texts."""
    stacks, wanted = model.backbone.stacks, model.backbone.encoder_stack
    return next(i for i, one in enumerate(stacks) if one is wanted)


def sentence_maps(
    model: Model, tokenizer: Tokenizer, sentences: Sequence[WordPieces]
) -> Iterator[SentenceMaps]:
    """Yield the maps of each sentence, on the CPU, those of like length together.

    Of an encoder-decoder they are the encoder's.

    Raises:
        ValueError: the network does not consist of Transformer blocks.
    """
    for rows, batch in word_batches(model, tokenizer, sentences, BATCH_TOKENS):
        stack_maps = attention_maps(model, batch)[_encoder_index(model)]
        layers = [maps.float().cpu() for maps in stack_maps.self_attention]
        every_head = torch.cat(layers, 1)  # [b k t t]
        for row, index in enumerate(rows):
            pieces = sentences[index]
            n = len(pieces.token_ids)
            tokens = every_head[row, :, :n, :n]
            yield SentenceMaps(index, pieces, tokens, merge_to_words(tokens, pieces))
