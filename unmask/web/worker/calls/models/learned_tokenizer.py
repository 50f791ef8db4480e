"""A tokenizer of a preset's kind, learned from the beginning of files, once for each of them."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

from unmask.jobs.catalogue.hide import TOKENIZER_SAMPLE_CHARACTERS
from unmask.text.documents import list_files, read_documents
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.spec import TokenizerSpec
from unmask.training.config import Recipe
from unmask.training.data.sources import resolve_tokenizer_spec
from unmask.zoo.preset import Published

KEPT_TOKENIZERS = 8


def tokenizer_from(
    files: Sequence[str], vocab_size: int | None, text_column: str | None = None
) -> Callable[[Published], Tokenizer]:
    """Return what learns a preset's tokenizer from files.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file cannot be read, or has no text.
    """
    stamps = tuple((str(path), path.stat().st_mtime_ns) for path in list_files([*files]))

    def learn(preset: Published) -> Tokenizer:
        spec = resolve_tokenizer_spec(Recipe(model=preset.name, vocab_size=vocab_size), preset)
        return _learned(spec, stamps, text_column)

    return learn


@lru_cache(maxsize=KEPT_TOKENIZERS)
def _learned(
    spec: TokenizerSpec, stamps: tuple[tuple[str, int], ...], text_column: str | None
) -> Tokenizer:
    texts, left = list[str](), TOKENIZER_SAMPLE_CHARACTERS
    files = [Path(name) for name, _ in stamps]
    for document in read_documents(files, text_column=text_column, encoding_errors="replace"):
        texts.append(document.text[:left])
        left -= len(texts[-1])
        if left <= 0:
            break
    return train_tokenizer(spec, texts)
