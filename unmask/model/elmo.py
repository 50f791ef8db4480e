"""ELMo: words read by their characters, and two language models over them, one in each direction.

Peters et al. 2018, arXiv:1802.05365, section 3. Tokens are bytes that say where words begin
(`unmask.tokens.spelled`); the LSTMs read words, and each byte gets the hidden state of its word.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unmask.batch import Batch, Visibility
from unmask.model.architecture import Sees
from unmask.model.initialize import CharacterLstm, Initialize
from unmask.model.recurrent import Recurrent, RecurrentArchitecture
from unmask.model.spelling import BEGIN_TEXT, FILL, Speller, Spelling
from unmask.model.texts import Texts, documents
from unmask.tokens.spelled import INSIDE, N_SPECIAL, SIZE

USUAL = 5
"""Bytes of a word, where something is counted by the token."""


@dataclass(frozen=True, kw_only=True)
class ElmoArchitecture(RecurrentArchitecture):
    """The two stacks of LSTMs, and what makes the vectors of words."""

    vocab_size: int = SIZE
    spelling: Spelling = Spelling()
    reads: Literal["forward", "together", "apart"] = "apart"
    projected: bool = True
    residual: bool = True
    initialize: Initialize = CharacterLstm()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vocab_size != SIZE:
            raise ValueError(f"vocab_size must be {SIZE}, got {self.vocab_size}")
        if self.reads != "apart":
            raise ValueError(f"reads must be 'apart', got {self.reads!r}")
        if self.adaptive is not None:
            raise ValueError(f"words have no table of vectors, got adaptive = {self.adaptive}")
        if 2 * self.d_embed != self.d_model:
            raise ValueError(
                f"embed_width must be half of d_model {self.d_model}, which is that of both "
                f"directions, got {self.d_embed}"
            )

    def reading(self, sees: Sees, *, writes: bool = False) -> "ElmoArchitecture":
        """Return itself for words that are read in both directions.

        Raises:
            ValueError: they are to be read otherwise.
        """
        if sees != "both_ways" or writes:
            raise ValueError("ELMo's words are read from both ends, by two readers apart")
        return self

    def flops(self, length: int) -> float:
        """Count the forward's matrix-product FLOPs a byte, head apart; a word is of five."""
        word = super().flops(length) + self.spelling.flops(USUAL + 2, self.d_embed)
        return word / USUAL


@dataclass(frozen=True)
class Words:
    """Where the words of a batch stand, so that each text can be read by itself, word by word."""

    of: Int[Tensor, "k"]
    """The number of the word that each token of the flattened batch is of; in padding, any."""
    real: Bool[Tensor, "b t"]
    """Tokens that are not padding."""
    first: Int[Tensor, "m"]
    """The place of each word's first token."""
    lengths: Int[Tensor, "m"]
    """Tokens of each word."""
    texts: Texts
    """The words of all texts, one after the other in one row."""

    @classmethod
    def of_batch(cls, batch: Batch) -> "Words":
        """Find the words of a batch; a text that begins inside of a word begins one."""
        document = documents(batch)
        if document is None:
            document = torch.zeros_like(batch.inputs)
        fresh = torch.ones_like(document, dtype=torch.bool)
        fresh[:, 1:] = document[:, 1:] != document[:, :-1]
        real = document >= 0
        begins = ((batch.inputs < INSIDE) | fresh) & real
        first = begins.flatten().nonzero().squeeze(1)
        ends = torch.cat((first[1:], first.new_tensor([begins.numel()])))
        seen = real.flatten().cumsum(0)
        of_text = fresh.flatten().cumsum(0)[first][None]
        texts = Texts.of(Batch(inputs=of_text, visibility=Visibility(document=of_text)))
        of = begins.flatten().cumsum(0) - 1
        return cls(of, real, first, seen[ends - 1] - seen[first] + 1, texts)

    def spelled(self, ids: Int[Tensor, "b t"], speller: Speller) -> Int[Tensor, "m c"]:
        """Give the characters of each word, as many as a speller reads."""
        n = min(int(self.lengths.max()), speller.spec.longest)
        column = torch.arange(n, device=ids.device)
        place = (self.first[:, None] + column).clamp(max=ids.numel() - 1)
        found = ids.flatten()[place]
        marks = torch.where(found == 0, FILL, BEGIN_TEXT - 1 + found)
        characters = torch.where(found < N_SPECIAL, marks, (found - N_SPECIAL) % 256)
        return speller.whole(characters, self.lengths)

    def apart(self, x: Float[Tensor, "m d"]) -> Float[Tensor, "n l d"]:
        """Lay the words of each text in a row of its own."""
        return self.texts.apart(x[None])

    def turned(self, x: Float[Tensor, "n l d"]) -> Float[Tensor, "n l d"]:
        """Turn each text round, what is behind its end apart."""
        return self.texts.turned(x)

    def together(self, x: Float[Tensor, "n l d"]) -> Float[Tensor, "b t d"]:
        """Give each token what is of its word; padding is zeros."""
        words = self.texts.together(x)[0]
        return words[self.of.clamp(min=0)].unflatten(0, self.real.shape) * self.real[..., None]


class Elmo(Recurrent):
    """Ids of bytes [b t] -> hidden states [b t d], those of a word at all of its bytes."""

    def __init__(self, a: ElmoArchitecture) -> None:
        super().__init__(a, a.spelling.build(a.d_embed))

    def laid(self, batch: Batch) -> tuple[Float[Tensor, "n l e"], Words]:
        """Return the vectors of each text's words in a row of their own, and where they stand."""
        speller, words = self.tokens, Words.of_batch(batch)
        assert isinstance(speller, Speller)
        x = self.input_dropout(speller(words.spelled(batch.inputs, speller)))
        return words.apart(x), words
