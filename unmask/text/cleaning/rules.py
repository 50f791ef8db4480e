"""The rules of cleaning by their names, and all that a corpus is cleaned by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unmask.config import parse_variant
from unmask.text.cleaning.c4 import C4Rules
from unmask.text.cleaning.duplicates import DEDUPLICATIONS, ExactDuplicates, NearDuplicates
from unmask.text.cleaning.evaluation_texts import Decontamination
from unmask.text.cleaning.gopher import GopherQuality, GopherRepetition
from unmask.text.cleaning.language import LanguageFilter
from unmask.text.cleaning.rule import CleaningRule
from unmask.text.cleaning.unicode import UnicodeRepair

NamedRule = UnicodeRepair | C4Rules | GopherQuality | GopherRepetition | LanguageFilter
RULES: Mapping[str, type[NamedRule]] = {
    "unicode": UnicodeRepair,
    "c4": C4Rules,
    "gopher": GopherQuality,
    "repetition": GopherRepetition,
    "language": LanguageFilter,
}
"""Rules by their names."""


@dataclass(frozen=True, kw_only=True)
class Cleaning:
    """How a corpus is cleaned: rules in order, evaluation texts, duplicates."""

    rules: tuple[NamedRule, ...] = ()
    """Rules, applied in order."""
    decontamination: Decontamination | None = None
    """Evaluation texts, removed after the rules."""
    deduplications: tuple[ExactDuplicates | NearDuplicates, ...] = ()
    """Duplicates, removed last: documents before paragraphs."""

    @property
    def all_rules(self) -> tuple[CleaningRule, ...]:
        """All that is applied to a document alone."""
        return self.rules if self.decontamination is None else (*self.rules, self.decontamination)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is cleaned."""
        return not self.all_rules and not self.deduplications


def parse_cleaning(
    rules: Sequence[str], deduplications: Sequence[str], evaluation_files: Sequence[str]
) -> Cleaning:
    """Parse the words of options: "gopher:min_words=20", "near:unit=paragraph".

    Raises:
        ValueError: there is no such rule or kind, or it has no such field.
        ImportError: what a rule needs is not installed.
    """
    kinds = [parse_variant(DEDUPLICATIONS, one, "deduplicate") for one in deduplications]
    return Cleaning(
        rules=tuple(parse_variant(RULES, one, "clean") for one in rules),
        decontamination=Decontamination(tuple(evaluation_files)) if evaluation_files else None,
        deduplications=tuple(sorted(kinds, key=lambda one: one.unit)),  # "document" first
    )
