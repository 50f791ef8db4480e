"""The language of a document, by a detector that is installed."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from unmask.text.cleaning.rule import Cleaned, removed_document
from unmask.text.formats.decompress import require_module

_MAX_CHARACTERS = 2**12
"""Characters by which a document is judged: from its beginning."""


@dataclass(frozen=True)
class LanguageFilter:
    """Removal of documents in other languages.

    By py3langid: naive Bayes on byte n-grams for 97 languages (Lui and Baldwin 2012, "langid.py",
    ACL system demonstrations). Short texts are often judged wrongly.

    Raises:
        ImportError: py3langid is not installed.
    """

    codes: tuple[str, ...]
    """Languages that stay, as ISO 639-1 codes: de, or de+nl."""
    min_probability: int | float = 0.0
    """Probability of these languages together that a document must have, 0 to 1. 0: the most
    probable language must be one of them."""

    def __post_init__(self) -> None:
        require_module("py3langid", "the rule language", extra="clean")
        if not self.codes:
            raise ValueError("codes: name one language or more, such as de or de+nl")
        if unknown := set(self.codes) - set(_known_languages()):
            known = ", ".join(_known_languages())
            raise ValueError(f"codes: {', '.join(sorted(unknown))}: not one of {known}")
        if not 0 <= self.min_probability <= 1:
            raise ValueError(f"min_probability must be 0 to 1, got {self.min_probability}")

    def clean(self, text: str) -> Cleaned:
        """Remove the document, or nothing."""
        ranked = _detector().rank(text[:_MAX_CHARACTERS])
        best = str(ranked[0][0])
        if not self.min_probability:
            is_kept = best in self.codes
        else:
            is_kept = sum(float(p) for c, p in ranked if c in self.codes) >= self.min_probability
        return Cleaned(text) if is_kept else removed_document(f"language: {best}", text)


@cache
def _detector() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@cache
def _known_languages() -> tuple[str, ...]:
    return tuple(sorted(_detector().nb_classes))
