"""Pieces of texts that are corrupted by an objective without training, in batches by length."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from unmask.batch import Batch, Example, Tokens
from unmask.batching.collate import example_length, group_by_length, pad_examples
from unmask.objectives.objective import AnyObjective
from unmask.shards.translation_pairs import special_ids_of_source
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import SpecialTokenIds


@dataclass(frozen=True)
class Piece:
    """A piece of a document, and its number among all pieces."""

    index: int
    document: int
    text: Tokens = field(repr=False)
    source: str | None = None
    """Source of its document, which may be a language."""


def corrupt_piece(
    pieces: Sequence[Piece],
    piece_index: int,
    objective: AnyObjective,
    tokenizer: Tokenizer,
    seed: int,
) -> Example:
    """Corrupt a piece with a random generator of its own."""
    piece, text = pieces[piece_index], pieces[piece_index].text
    rng = np.random.default_rng([seed, piece.index])
    if objective.needs_second_text:
        others = [p.text for p in pieces if p.document != piece.document]
        other = others[int(rng.integers(len(others)))] if others else None
        text = replace(text, other_text=other)
    special = _special_ids_for_source(tokenizer, piece.source)
    return special.with_text_languages(objective(text, special, rng))


def _special_ids_for_source(tokenizer: Tokenizer, source: str | None) -> SpecialTokenIds:
    """Return the special tokens around a text, that of its language included where it is known."""
    special = tokenizer.special_ids
    has_language = special.languages and not (
        special.needs_languages or special.language_embeddings
    )
    return special if source is None or has_language else special_ids_of_source(special, source)


def sorted_batches(
    examples: Sequence[Example], tokenizer: Tokenizer, batch_tokens: int
) -> Iterator[Batch]:
    """Yield batches of examples of similar length, of so many tokens at most."""
    for rows in group_by_length([example_length(e) for e in examples], batch_tokens):
        yield pad_examples([examples[i] for i in rows], tokenizer.special_ids)
