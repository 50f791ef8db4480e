"""The documents of a recipe, as they are or cleaned, and what they were made from."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.config import to_dict
from unmask.text.cleaning.rules import Cleaning
from unmask.text.documents import Document, list_files
from unmask.text.mixtures import source_places
from unmask.training.config import Recipe
from unmask.training.data.sources import open_documents

DOCUMENT_OPTIONS = (
    "tokenizer",
    "vocab_size",
    "character_coverage",
    "document_separator",
    "text_column",
    "encoding_errors",
)
"""Fields of a recipe that determine the tokenized documents."""


@dataclass(frozen=True)
class CorpusDocuments:
    """Documents that can be opened again and again."""

    open: Callable[[], Iterator[Document]]
    """Opens them anew."""
    made_from: Mapping[str, Any]
    """Files, options and cleaning, as plain data: it differs when the documents do."""


def recipe_corpus(recipe: Recipe) -> CorpusDocuments:
    """Return the documents of a recipe as they are."""
    return CorpusDocuments(lambda: open_documents(recipe), provenance(recipe))


def provenance(recipe: Recipe, cleaning: Cleaning | None = None) -> dict[str, Any]:
    """Return what the documents of a recipe are made from."""
    sampling = (
        {} if recipe.sampling_exponent == 1 else {"sampling_exponent": recipe.sampling_exponent}
    )
    weights = {"source_weights": dict(recipe.source_weights)} if recipe.source_weights else {}
    objective = {"objective": recipe.objective} if isinstance(recipe.objective, str) else {}
    cleaned = {} if cleaning is None or cleaning.is_empty else {"cleaning": _describe(cleaning)}
    paths = source_places(recipe.data)
    return {name: getattr(recipe, name) for name in ("model", *DOCUMENT_OPTIONS)} | {
        "data": recipe.data,
        "files": [_file(path) for path in list_files(paths)],
        **sampling,
        **weights,
        **objective,
        **cleaned,
    }


def _describe(cleaning: Cleaning) -> dict[str, Any]:
    words = to_dict(cleaning)
    if cleaning.decontamination is not None:
        words["evaluation_files"] = [_file(Path(f)) for f in cleaning.decontamination.files]
    return words


def _file(path: Path) -> list[str | int]:
    return [str(path), path.stat().st_size, path.stat().st_mtime_ns]
