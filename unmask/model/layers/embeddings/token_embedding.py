"""Types of token embeddings."""

from torch import nn

from unmask.model.layers.embeddings.adaptive import AdaptiveEmbedding
from unmask.model.layers.embeddings.character_cnn import CharacterCNNModule
from unmask.model.layers.embeddings.character_hash import CharacterHashEmbedding

TokenEmbedding = nn.Embedding | CharacterHashEmbedding | AdaptiveEmbedding | CharacterCNNModule
"""Any module that maps tokens to embeddings."""


def require_embedding_table(embedding_table: TokenEmbedding) -> nn.Embedding:
    """Return the table of token embeddings, to which an output layer can be tied.

    Raises:
        ValueError: there is no such table: embeddings are hashed, adaptive or made of characters.
    """
    if isinstance(embedding_table, AdaptiveEmbedding):
        raise ValueError("adaptive_input is supported by next-token heads only")
    if isinstance(embedding_table, CharacterCNNModule):
        raise ValueError("ELMo has no token embeddings: use its own head, BidirectionalLM")
    if not isinstance(embedding_table, nn.Embedding):
        raise ValueError(
            "CANINE's characters have no token embeddings: use its own heads, SubwordPrediction or "
            "AutoregressiveCharacters"
        )
    return embedding_table
