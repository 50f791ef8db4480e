"""The tokenizers in a model's folder."""

from pathlib import Path

from unmask.checkpoints import elmo
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.load import load_tokenizer

SOURCE_TOKENIZER_FOLDER = "source"
"""Subfolder with the tokenizer of sources, if they have a separate vocabulary."""


def load_model_tokenizer(folder: Path, n_embeddings: int) -> Tokenizer | None:
    """Return the tokenizer of a model with `n_embeddings` token vectors, if its folder has one."""
    try:
        tokenizer = load_tokenizer(folder)
    except FileNotFoundError:
        if elmo.find_weights(folder) is None:
            return None
        tokenizer = elmo.elmo_tokenizer()
    check_tokenizer_size(tokenizer, n_embeddings, folder)
    return tokenizer


def load_source_tokenizer(folder: Path, n_embeddings: int) -> Tokenizer:
    """Load the tokenizer of sources, which is required."""
    tokenizer = load_model_tokenizer(folder, n_embeddings)
    if tokenizer is None:
        raise ValueError(f"{folder}: has no tokenizer for sources")
    return tokenizer


def check_tokenizer_size(tokenizer: Tokenizer, n_embeddings: int, location: Path | str) -> None:
    """Reject a tokenizer with more ids than the model has embeddings.

    Raises:
        ValueError: so it is.
    """
    check_vocabulary_size(tokenizer.vocab_size, n_embeddings, location)


def check_vocabulary_size(vocab_size: int, n_embeddings: int, location: Path | str) -> None:
    """Reject a vocabulary with more ids than the model has embeddings.

    Raises:
        ValueError: so it is.
    """
    if vocab_size > n_embeddings:
        raise ValueError(
            f"{location}: the tokenizer has {vocab_size:,} ids, "
            f"but the model only {n_embeddings:,} token vectors"
        )
