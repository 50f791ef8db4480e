"""Types of token embeddings."""

from collections.abc import Mapping
from typing import cast

from torch import nn

from unmask.model.layers.embeddings.adaptive import AdaptiveEmbedding
from unmask.model.layers.embeddings.character_cnn import CharacterCNNModule
from unmask.model.layers.embeddings.character_hash import CharacterHashEmbedding
from unmask.model.layers.embeddings.patches import PatchDecoderEmbedding, PatchEmbedding

TokenEmbedding = (
    nn.Embedding
    | CharacterHashEmbedding
    | AdaptiveEmbedding
    | CharacterCNNModule
    | PatchEmbedding
    | PatchDecoderEmbedding
)
"""Any module that maps tokens to embeddings."""


_WITHOUT_TABLE: Mapping[type[nn.Module], str] = {
    AdaptiveEmbedding: "adaptive_input is supported by next-token heads only",
    CharacterCNNModule: "ELMo has no token embeddings: use its own head, BidirectionalLM",
    PatchEmbedding: "a network of patches has no token embeddings: use PatchReconstruction",
    PatchDecoderEmbedding: "a decoder of patches reads hidden states and has no token embeddings",
    CharacterHashEmbedding: "CANINE's characters have no token embeddings: use its own heads, "
    "SubwordPrediction or AutoregressiveCharacters",
}
"""Why an output layer cannot be tied to them."""


def require_embedding_table(embedding_table: TokenEmbedding) -> nn.Embedding:
    """Return the table of token embeddings, to which an output layer can be tied.

    Raises:
        ValueError: there is no such table: embeddings are hashed, adaptive or made of characters.
    """
    if (reason := _WITHOUT_TABLE.get(type(embedding_table))) is not None:
        raise ValueError(reason)
    return cast(nn.Embedding, embedding_table)
