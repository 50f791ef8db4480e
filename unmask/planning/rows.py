"""Shapes of training rows: what an objective makes of texts, counted on some of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from unmask.batch import IGNORE_INDEX, Batch, Example, Tokens
from unmask.bundled.demo import bundled_path
from unmask.objectives.inputs.pictures import Pictures
from unmask.objectives.published import ObjectiveSpec
from unmask.shards.read import TokenShards
from unmask.shards.write import write_shards
from unmask.text.documents import Document, read_documents
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.spec import TokenizerSpec
from unmask.training.config import Recipe
from unmask.training.data.sources import resolve_tokenizer_spec
from unmask.training.loop import count_tokens
from unmask.zoo.preset import Published

SAMPLE_CHARACTERS = 100_000
"""Of the bundled text, of which rows are counted."""
SAMPLE_ROWS = 32
SAMPLE_VOCAB_SIZE = 1000
"""What is counted are positions, not ids: a small vocabulary is learned at once."""


@dataclass(frozen=True, kw_only=True)
class RowShape:
    """A training row on the average."""

    length: int
    """Positions of a row: tokens of the only stack, or of the longer side of two."""
    encoder_ratio: int | float = 1.0
    """Tokens of the stack that reads texts, by positions."""
    decoder_ratio: int | float = 0.0
    """Tokens of a decoder beside an encoder, by positions; 0 where there is one stack."""
    target_fraction: int | float
    """Target positions by tokens, those of a decoder included."""

    @property
    def tokens_per_position(self) -> float:
        """Tokens that are read, of both stacks, by positions."""
        return float(self.encoder_ratio + self.decoder_ratio)


def row_shape(length: int, encoder: int, decoder: int, targets: int, positions: int) -> RowShape:
    """Return the shape of rows whose tokens and targets were counted."""
    tokens = encoder + decoder
    return RowShape(
        length=length,
        encoder_ratio=encoder / positions if positions else 1.0,
        decoder_ratio=decoder / positions if positions else 0.0,
        target_fraction=targets / tokens if tokens else 1.0,
    )


def sample_tokenizer(preset: Published, vocab_size: int | None = None) -> Tokenizer:
    """Train a small tokenizer of a preset's kind on some of the bundled text.

    `vocab_size`: that of the run, which is not exceeded.
    """
    size = min(vocab_size or SAMPLE_VOCAB_SIZE, SAMPLE_VOCAB_SIZE)
    spec = resolve_tokenizer_spec(Recipe(model=preset.name, vocab_size=size), preset)
    return trained_tokenizer(spec)


@lru_cache(maxsize=16)
def trained_tokenizer(spec: TokenizerSpec) -> Tokenizer:
    """Train a tokenizer once for all plans of a process."""
    return train_tokenizer(spec, list(_sample_texts()))


def sample_row_shape(tokenizer: Tokenizer, objective: ObjectiveSpec, length: int) -> RowShape:
    """Count positions and targets of rows of the bundled text, under an objective."""
    return shape_of_examples(sample_examples(tokenizer, objective, length), length)


def shape_of_examples(examples: Sequence[Example], length: int | None = None) -> RowShape:
    """Count positions and targets of examples; without a `length` it is their mean."""
    one_stack = all(e.source is None for e in examples)
    inputs = sum(len(e.inputs) for e in examples)
    sources = [0 if e.source is None else len(e.source) for e in examples]
    longer = [max(len(e.inputs), n) for e, n in zip(examples, sources, strict=True)]
    return row_shape(
        length or max(round(sum(longer) / max(len(longer), 1)), 1),
        encoder=inputs if one_stack else sum(sources),
        decoder=0 if one_stack else inputs,
        targets=sum(map(_count_targets, examples)),
        positions=sum(longer),
    )


def shape_of_batches(batches: Sequence[Batch], length: int) -> RowShape:
    """Count positions and targets of batches, whose rows have at most `length` tokens.

    Positions of captions are those of the texts, as in `batch_tokens`.
    """
    paired = [b for b in batches if b.source is not None]
    inputs = sum(b.inputs.numel() for b in batches)
    sources = sum(b.source.numel() for b in paired if b.source is not None)
    if any(b.has(Pictures) for b in batches):
        rows = sum(len(b.inputs) for b in batches)
        length = max(round(inputs / rows), 1)
    shape = row_shape(
        length,
        encoder=sources if paired else inputs,
        decoder=inputs if paired else 0,
        targets=0,
        positions=sum(map(count_positions, batches)),
    )
    tokens = sum(map(count_tokens, batches))  # without padding
    n_targets = sum(map(_count_target_positions, batches))
    return replace(shape, target_fraction=n_targets / tokens if tokens else 1.0)


def count_positions(batch: Batch) -> int:
    """Count the columns of a batch as `batch_tokens` does: of the longer side, or of captions."""
    if batch.source is None or batch.has(Pictures):
        return batch.inputs.numel()
    return max(batch.inputs.numel(), batch.source.numel())


def _count_target_positions(batch: Batch) -> int:
    if batch.target_positions is not None:
        return batch.target_positions.numel()
    return 0 if batch.targets is None else batch.targets.numel()


def sample_examples(tokenizer: Tokenizer, objective: ObjectiveSpec, length: int) -> list[Example]:
    """Apply an objective to `SAMPLE_ROWS` rows of the bundled text, of at most `length` tokens."""
    special = tokenizer.special_ids
    rows = _rows(tokenizer, objective.max_text_length(length, special))
    others = rows[1:] + rows[:1] if objective.needs_second_text else [None] * len(rows)
    return [
        objective(replace(row, other_text=other), special, np.random.default_rng(i))
        for i, (row, other) in enumerate(zip(rows, others, strict=True))
    ]


def sample_shards(tokenizer: Tokenizer, folder: Path) -> TokenShards:
    """Tokenize some of the bundled text into a folder.

    Where a tokenizer has language tokens, the text is of the first language.
    """
    languages = tokenizer.special_ids.languages
    source = languages[0][0] if languages else None
    return write_shards((replace(d, source=source) for d in _sample_documents()), tokenizer, folder)


def _count_targets(example: Example) -> int:
    return int(np.count_nonzero(example.targets != IGNORE_INDEX))


def _sample_documents() -> Iterator[Document]:
    left = SAMPLE_CHARACTERS
    for document in read_documents(bundled_path("novels")):
        if left <= 0:
            return
        yield replace(document, text=document.text[:left])
        left -= len(document.text)


def _sample_texts() -> Iterator[str]:
    return (document.text for document in _sample_documents())


def _rows(tokenizer: Tokenizer, length: int) -> list[Tokens]:
    """Cut the text into rows; it is repeated until there are two."""
    tokens = tokenizer.encode("\n".join(_sample_texts()))
    repeats = -(-2 * length // max(len(tokens), 1))
    ids, boundaries = (np.tile(part, repeats) for part in (tokens.ids, tokens.boundaries))
    starts = range(0, min(SAMPLE_ROWS * length, len(ids) - length + 1), length)
    return [Tokens(ids[i:][:length], boundaries[i:][:length]) for i in starts]
