"""ELMo: words encoded by their characters, and a language model over them in each direction.

Peters et al. 2018, arXiv:1802.05365, section 3. Tokens are bytes that mark where words begin
(`unmask.tokenizers.output_vocabularies.words`); the LSTMs run over words, and each byte gets the
hidden state of its word.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unmask.batch import Batch, Visibility
from unmask.model.architecture import AttentionPattern
from unmask.model.backbones.recurrent import Recurrent, RecurrentArchitecture
from unmask.model.initialize import ElmoInit, Initializer
from unmask.model.layers.embeddings.character_cnn import (
    BEGIN_TEXT_CHARACTER,
    PAD_CHARACTER,
    CharacterCNN,
    CharacterCNNModule,
)
from unmask.model.text_layout import TextLayout, document_ids
from unmask.tokenizers.output_vocabularies.words import (
    FIRST_CONTINUATION_ID,
    N_SPECIAL_IDS,
    VOCAB_SIZE,
)

BYTES_PER_WORD = 5
"""Assumed bytes per word, for FLOPs per token."""


@dataclass(frozen=True, kw_only=True)
class ElmoArchitecture(RecurrentArchitecture):
    """The two stacks of LSTMs, and the character CNN of words."""

    vocab_size: int = VOCAB_SIZE
    character_cnn: CharacterCNN = CharacterCNN()
    direction: Literal["forward", "together", "apart"] = "apart"
    projection: bool = True
    residual: bool = True
    initializer: Initializer = ElmoInit()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vocab_size != VOCAB_SIZE:
            raise ValueError(f"vocab_size must be {VOCAB_SIZE}, got {self.vocab_size}")
        if self.direction != "apart":
            raise ValueError(f"direction must be 'apart', got {self.direction!r}")
        if self.adaptive_input is not None:
            raise ValueError(f"adaptive_input is not supported by ELMo, got {self.adaptive_input}")
        if 2 * self.d_embed != self.d_model:
            raise ValueError(
                f"embedding_size must be half of d_model {self.d_model}, which is that of both "
                f"directions, got {self.d_embed}"
            )

    def build(self) -> "Elmo":
        """Build the network."""
        return Elmo(self)

    def with_attention_pattern(
        self, pattern: AttentionPattern, *, generates: bool = False
    ) -> "ElmoArchitecture":
        """Return itself if the pattern is bidirectional.

        Raises:
            ValueError: it is not.
        """
        if pattern != "bidirectional" or generates:
            raise ValueError("ELMo is bidirectional: the attention pattern must be 'bidirectional'")
        return self

    def flops(self, length: int) -> float:
        """Count the forward matrix-product FLOPs per byte, without head; a word has five."""
        word = super().flops(length) + self.character_cnn.flops(BYTES_PER_WORD + 2, self.d_embed)
        return word / BYTES_PER_WORD


@dataclass(frozen=True)
class WordLayout:
    """The positions of words in a batch, so that each text can be encoded separately, by words."""

    word_of_token: Int[Tensor, "k"]
    """The index of the word of each token of the flattened batch; in padding, any."""
    is_token: Bool[Tensor, "b t"]
    """Tokens that are not padding."""
    first_token: Int[Tensor, "m"]
    """The index of each word's first token in the flattened batch."""
    lengths: Int[Tensor, "m"]
    """Tokens of each word."""
    text_layout: TextLayout
    """The layout of the words of all texts, one after the other in one row."""

    @classmethod
    def from_batch(cls, batch: Batch) -> "WordLayout":
        """Find the words of a batch; the start of a text always starts a word."""
        document = document_ids(batch)
        if document is None:
            document = torch.zeros_like(batch.inputs)
        fresh = torch.ones_like(document, dtype=torch.bool)
        fresh[:, 1:] = document[:, 1:] != document[:, :-1]
        real = document >= 0
        begins = ((batch.inputs < FIRST_CONTINUATION_ID) | fresh) & real
        first = begins.flatten().nonzero().squeeze(1)
        ends = torch.cat((first[1:], first.new_tensor([begins.numel()])))
        n_real = real.flatten().cumsum(0)
        of_text = fresh.flatten().cumsum(0)[first][None]
        texts = TextLayout.from_batch(
            Batch(inputs=of_text, visibility=Visibility(document=of_text))
        )
        of = begins.flatten().cumsum(0) - 1
        return cls(of, real, first, n_real[ends - 1] - n_real[first] + 1, texts)

    def character_ids(
        self, ids: Int[Tensor, "b t"], character_cnn: CharacterCNNModule
    ) -> Int[Tensor, "m c"]:
        """Return the characters of each word, as many as the character CNN uses."""
        n = min(int(self.lengths.max()), character_cnn.spec.max_characters)
        column = torch.arange(n, device=ids.device)
        token_index = (self.first_token[:, None] + column).clamp(max=ids.numel() - 1)
        token_ids = ids.flatten()[token_index]
        marks = torch.where(token_ids == 0, PAD_CHARACTER, BEGIN_TEXT_CHARACTER - 1 + token_ids)
        characters = torch.where(
            token_ids < N_SPECIAL_IDS, marks, (token_ids - N_SPECIAL_IDS) % 256
        )
        return character_cnn.frame_words(characters, self.lengths)

    def to_texts(self, x: Float[Tensor, "m d"]) -> Float[Tensor, "n l d"]:
        """Put the words of each text in a row of its own."""
        return self.text_layout.to_texts(x[None])

    def reverse_texts(self, x: Float[Tensor, "n l d"]) -> Float[Tensor, "n l d"]:
        """Reverse each text, without the padding after it."""
        return self.text_layout.reverse_texts(x)

    def to_batch(self, x: Float[Tensor, "n l d"]) -> Float[Tensor, "b t d"]:
        """Give each token the vector of its word; padding is zeros."""
        words = self.text_layout.to_batch(x)[0]
        return (
            words[self.word_of_token.clamp(min=0)].unflatten(0, self.is_token.shape)
            * self.is_token[..., None]
        )


class Elmo(Recurrent):
    """Ids of bytes [b t] -> hidden states [b t d], those of a word at all of its bytes."""

    def __init__(self, a: ElmoArchitecture) -> None:
        super().__init__(a, a.character_cnn.build(a.d_embed))

    def lay_out(self, batch: Batch) -> tuple[Float[Tensor, "n l e"], WordLayout]:
        """Return the vectors of each text's words in a row of their own, and the layout."""
        character_cnn, words = self.tokens, WordLayout.from_batch(batch)
        assert isinstance(character_cnn, CharacterCNNModule)
        x = self.input_dropout(character_cnn(words.character_ids(batch.inputs, character_cnn)))
        return words.to_texts(x), words
