"""Calibration: a few texts on which a model's activations and gradients are measured."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from unmask.batch import Batch
from unmask.batching.pieces import Piece, corrupt_piece, sorted_batches
from unmask.checkpoints.huggingface.read import LoadedModel, max_text_tokens
from unmask.text.documents import Document
from unmask.text.mixtures import read_documents_by_source
from unmask.tokenizers.encode import Tokenizer
from unmask.word_vectors.train.trainer import WORD_VECTOR_METHODS

BATCH_TOKENS = 4096
"""Tokens that go through the model at once."""


def check_calibration_size(n: int) -> None:
    """Check the number of calibration texts.

    Raises:
        ValueError: it is below 1.
    """
    if n < 1:
        raise ValueError(f"calibration_texts must be at least 1, got {n}")


def calibration_batches(
    loaded_model: LoadedModel, data: str | Path | Sequence[str | Path], n: int, *, seed: int = 0
) -> list[Batch]:
    """Return the first pieces of texts in the form of the model's own pretraining objective.

    Args:
        loaded_model: with a tokenizer and a head for its preset's objective.
        data: files, folders or patterns of text.
        n: number of pieces, each of as many tokens as rows of its pretraining, at most.
        seed: random seed of the objective.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: it cannot be read or holds no text, or the model has no head for the objective,
            or no tokenizer.
    """
    preset, tokenizer = loaded_model.preset, loaded_model.tokenizer
    check_calibration_size(n)
    if tokenizer is None:
        raise ValueError(f"{preset.name} has no tokenizer, which reading text needs")
    tokenizer.check_single_vocabulary("the objective of pretraining")
    objective = preset.objective
    if isinstance(objective, WORD_VECTOR_METHODS):
        raise ValueError("word vectors have no calibration texts: they read no text in order")
    specs = loaded_model.model.head_specs.values()
    terms = {spec.objective_term for spec in specs}
    if not terms & set(objective.loss_terms):
        raise ValueError(
            f"this model has no head for {' or '.join(objective.loss_terms)} "
            f"(it has {', '.join(sorted(terms)) or 'none'})"
        )
    longest = max_text_tokens(preset)
    length = min(preset.sequence_length, longest or preset.sequence_length)
    sources = [data] if isinstance(data, str | Path) else data
    documents = read_documents_by_source([str(one) for one in sources])
    limit = objective.max_text_length(length, tokenizer.special_ids)
    pieces = list(islice(_split(documents, tokenizer, limit), n))
    if not pieces:
        raise ValueError(f"{data}: holds no text to calibrate on")
    examples = [corrupt_piece(pieces, i, objective, tokenizer, seed) for i in range(len(pieces))]
    return list(sorted_batches(examples, tokenizer, BATCH_TOKENS))


def _split(documents: Iterable[Document], tokenizer: Tokenizer, max_length: int) -> Iterator[Piece]:
    """Yield consecutive pieces of documents."""
    number = 0
    for index, document in enumerate(documents):
        tokens = tokenizer.encode(document.text)
        for start in range(0, len(tokens), max_length):
            yield Piece(number, index, tokens[start : start + max_length], document.source)
            number += 1
