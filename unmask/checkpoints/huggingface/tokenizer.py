"""The tokenizers in a model's folder."""

from pathlib import Path

from unmask.checkpoints import elmo
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.load import load_tokenizer

SOURCE_TOKENIZER_FOLDER = "source"
"""The folder in a model's with the tokenizer of sources that have a vocabulary of their own."""


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
    """Read the tokenizer of sources, without which the model reads nothing."""
    found = load_model_tokenizer(folder, n_embeddings)
    if found is None:
        raise ValueError(f"{folder}: has no tokenizer, with which the model would read sources")
    return found


def check_tokenizer_size(tokenizer: Tokenizer, n_embeddings: int, location: Path | str) -> None:
    """Refuse a tokenizer that knows more ids than the model has vectors.

    Raises:
        ValueError: so it is.
    """
    if tokenizer.vocab_size > n_embeddings:
        raise ValueError(
            f"{location}: the tokenizer has {tokenizer.vocab_size:,} ids, "
            f"but the model only {n_embeddings:,} token vectors"
        )
