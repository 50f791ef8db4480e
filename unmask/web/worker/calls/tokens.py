"""`tokenize`: a text as the tokenizer of a model reads it, or one learned from files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unmask.config import from_dict
from unmask.jobs.catalogue.hide import sample_tokenizer
from unmask.objectives.explain import visible_piece
from unmask.shards.fertility import text_fertility
from unmask.tokenizers.encode import Tokenizer
from unmask.web.worker.calls.models.learned_tokenizer import tokenizer_from
from unmask.web.worker.open_models import open_models
from unmask.zoo.catalogue import get_preset, is_preset_name

MAX_CHARACTERS = 20_000


@dataclass(frozen=True, kw_only=True)
class _TokenizeArguments:
    text: str
    model: str
    """A model, for its tokenizer; a preset, for one of its kind, learned from the bundled text or
    from `files`."""
    files: Sequence[str] = ()
    """Files from which a tokenizer of the preset's kind is learned."""
    vocab_size: int | None = None
    """Its size. None: that of the preset."""
    text_column: str | None = None
    """Column of the text, of files that are tables."""

    def __post_init__(self) -> None:
        if len(self.text) > MAX_CHARACTERS:
            raise ValueError(
                f"text has {len(self.text):,} characters; at most {MAX_CHARACTERS:,} are shown"
            )


def tokenize(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return tokens {"piece", "id", "start", "end"} (characters), and tokens per word.

    "unknown" are the parts of the text that the vocabulary lacks.
    """
    given = from_dict(_TokenizeArguments, arguments)
    tokenizer = _tokenizer(given).input_tokenizer
    ids = tokenizer.encode(given.text).ids.tolist()
    pieces = [visible_piece(piece) for piece in tokenizer.pieces(ids)]
    rows = zip(pieces, ids, tokenizer.offsets(given.text), strict=True)
    return {
        "unknown": unknown_parts(tokenizer, given.text),
        "tokens": [
            {"piece": piece, "id": i, "start": start, "end": end} for piece, i, (start, end) in rows
        ],
        "tokens_per_word": text_fertility(tokenizer, [given.text]) if given.text.split() else None,
        "words": len(given.text.split()),
        "vocab_size": tokenizer.vocab_size,
        "algorithm": tokenizer.algorithm,
    }


def unknown_parts(tokenizer: Tokenizer, text: str) -> list[str]:
    """Return the parts of a text that the vocabulary lacks, each once, as they come."""
    unknown = tokenizer.special_ids.unknown
    if unknown is None:
        return []
    ids, offsets = tokenizer.encode(text).ids.tolist(), tokenizer.offsets(text)
    parts = (text[a:b] for i, (a, b) in zip(ids, offsets, strict=True) if i == unknown)
    return [*dict.fromkeys(parts)]


def _tokenizer(given: _TokenizeArguments) -> Tokenizer:
    if not is_preset_name(given.model):
        if given.files:
            raise ValueError(f"files: {given.model} has a tokenizer; name a model of the catalogue")
        return open_models().pipeline(given.model).tokenizer
    if not given.files and given.vocab_size is None:
        return sample_tokenizer(get_preset(given.model))
    if not given.files:
        raise ValueError("vocab_size is of a tokenizer that is learned: name files")
    return tokenizer_from(given.files, given.vocab_size, given.text_column)(get_preset(given.model))
