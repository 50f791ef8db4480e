"""`tokenize`: a text as the tokenizer of a model reads it, or one learned from files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from unmask.config import from_dict
from unmask.inference.export import is_preset_name
from unmask.jobs.catalogue.hide import TOKENIZER_SAMPLE_CHARACTERS, sample_tokenizer
from unmask.objectives.explain import visible_piece
from unmask.shards.fertility import text_fertility
from unmask.text.documents import list_files, read_documents
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.training.config import Recipe
from unmask.training.data.sources import resolve_tokenizer_spec
from unmask.web.worker.open_models import open_models
from unmask.zoo.catalogue import get_preset

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

    def __post_init__(self) -> None:
        if len(self.text) > MAX_CHARACTERS:
            raise ValueError(
                f"text has {len(self.text):,} characters; at most {MAX_CHARACTERS:,} are shown"
            )


def tokenize(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return tokens {"piece", "id", "start", "end"} (characters), and tokens per word."""
    given = from_dict(_TokenizeArguments, arguments)
    tokenizer = _tokenizer(given).input_tokenizer
    ids = tokenizer.encode(given.text).ids.tolist()
    pieces = [visible_piece(piece) for piece in tokenizer.pieces(ids)]
    rows = zip(pieces, ids, tokenizer.offsets(given.text), strict=True)
    return {
        "tokens": [
            {"piece": piece, "id": i, "start": start, "end": end} for piece, i, (start, end) in rows
        ],
        "tokens_per_word": text_fertility(tokenizer, [given.text]) if given.text.split() else None,
        "words": len(given.text.split()),
        "vocab_size": tokenizer.vocab_size,
        "algorithm": tokenizer.algorithm,
    }


def _tokenizer(given: _TokenizeArguments) -> Tokenizer:
    if not is_preset_name(given.model):
        if given.files:
            raise ValueError(f"files: {given.model} has a tokenizer; name a model of the catalogue")
        return open_models().pipeline(given.model).tokenizer
    if not given.files and given.vocab_size is None:
        return sample_tokenizer(get_preset(given.model))
    if not given.files:
        raise ValueError("vocab_size is of a tokenizer that is learned: name files")
    stamps = tuple((str(path), path.stat().st_mtime_ns) for path in list_files([*given.files]))
    return _learned(given.model, given.vocab_size, stamps)


@lru_cache(maxsize=8)
def _learned(model: str, vocab_size: int | None, stamps: tuple[tuple[str, int], ...]) -> Tokenizer:
    """Learn a tokenizer from the first `TOKENIZER_SAMPLE_CHARACTERS` of files."""
    preset = get_preset(model)
    spec = resolve_tokenizer_spec(Recipe(model=preset.name, vocab_size=vocab_size), preset)
    return train_tokenizer(spec, _first_texts([Path(name) for name, _ in stamps]))


def _first_texts(files: Sequence[Path]) -> list[str]:
    texts, left = list[str](), TOKENIZER_SAMPLE_CHARACTERS
    for document in read_documents(files, encoding_errors="replace"):
        texts.append(document.text[:left])
        left -= len(texts[-1])
        if left <= 0:
            break
    return texts
