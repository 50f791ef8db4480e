"""The rules of C4, by which a dump of the web became readable text."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from unmask.text.cleaning.rule import Cleaned, clean_lines, removed_document
from unmask.text.lines import read_lines
from unmask.text.sentences import sentence_spans

_FINAL_MARKS = (*'.!?"”', *"。！？।؟۔։።")
_ELLIPSES = ("...", "…")
_CITATION = re.compile(r"\[\d*\]|\[edit\]|\[citation needed\]", re.IGNORECASE)
_POLICIES = (
    "terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies",
    "use cookies",
)  # fmt: skip
_MAX_WORD_LENGTH = 1000
_MAX_LINE = 2**10


@dataclass(frozen=True)
class C4Rules:
    """Lines that are sentences, of pages that are text: no menus, code, placeholders, policies.

    Raffel et al. 2020, arXiv:1910.10683, section 2.2, with the released code for what the paper
    leaves open (the marks of policies, words of more than 1,000 characters).

    Deviates: the final marks of other scripts count as well; three sentences that were there before
    are `--deduplicate` here; and the language is the rule `language`.
    """

    min_sentences: int = 3
    """Sentences that a document must have."""
    min_words: int = 5
    """Words that a line must have."""
    final_mark: bool = True
    """Whether a line must end in a mark that ends sentences. False: as FineWeb has it (Penedo et
    al. 2024, arXiv:2406.17557, section 3.5)."""
    bad_words: str | None = None
    """File of words, one a line: documents with one of them are removed."""

    def __post_init__(self) -> None:
        if self.min_sentences < 0 or self.min_words < 0:
            raise ValueError("min_sentences and min_words must not be negative")
        if self.bad_words is not None and not Path(self.bad_words).is_file():
            raise ValueError(f"bad_words: {self.bad_words}: no such file")

    def clean(self, text: str) -> Cleaned:
        """Remove lines, or the document."""
        lowered = text.lower()
        if "lorem ipsum" in lowered:
            return removed_document("c4: lorem ipsum", text)
        if "{" in text:
            return removed_document("c4: a curly bracket", text)
        if self._bad_word_pattern is not None and self._bad_word_pattern.search(lowered):
            return removed_document("c4: a bad word", text)
        before = text
        if "[" in text:
            text = _CITATION.sub("", text)
        cleaned = clean_lines(text, self._line_reason)
        text, removals = cleaned.text, cleaned.removals
        if not _has_sentences(text, self.min_sentences):
            reason = f"c4: fewer than {self.min_sentences} sentences"
            return removed_document(reason, before)
        return Cleaned(text, removals)

    def _line_reason(self, line: str) -> str | None:
        line = line.rstrip()
        if self.final_mark and (not line.endswith(_FINAL_MARKS) or line.endswith(_ELLIPSES)):
            return "c4: no final mark"
        words = line.split()
        if len(words) < self.min_words:
            return f"c4: fewer than {self.min_words} words"
        if len(line) > _MAX_WORD_LENGTH and max(map(len, words)) > _MAX_WORD_LENGTH:
            return f"c4: a word of more than {_MAX_WORD_LENGTH:,} characters"
        lowered = line.lower()
        if "javascript" in lowered:
            return "c4: JavaScript"
        if any(policy in lowered for policy in _POLICIES):
            return "c4: a policy"
        return None

    @cached_property
    def _bad_word_pattern(self) -> re.Pattern[str] | None:
        if self.bad_words is None:
            return None
        lines = (line for _, line, _ in read_lines(Path(self.bad_words), _MAX_LINE))
        words = sorted({line.strip().lower() for line in lines} - {""})
        if not words:
            raise ValueError(f"bad_words: {self.bad_words}: no word in it")
        return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)")


def _has_sentences(text: str, minimum: int) -> bool:
    """Return whether there are so many sentences, looking at no more lines than are needed."""
    n = 0
    for line in text.split("\n") if text else ():
        n += len(sentence_spans(line))
        if n >= minimum:
            break
    return bool(text) and n >= minimum
