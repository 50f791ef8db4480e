"""The rules of cleaning by their names, and all that a corpus is cleaned by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unmask.config import from_dict, parse_variant, to_dict
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

    def to_words(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "rules": [{"name": _name(RULES, one), **to_dict(one)} for one in self.rules],
            "decontamination": None
            if self.decontamination is None
            else to_dict(self.decontamination),
            "deduplications": [
                {"name": _name(DEDUPLICATIONS, one), **to_dict(one)} for one in self.deduplications
            ],
        }


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


def cleaning_from_words(words: Mapping[str, Any]) -> Cleaning:
    """Return what `to_words` was called of."""
    decontamination = words["decontamination"]
    return Cleaning(
        rules=tuple(_from_words(RULES, one) for one in words["rules"]),
        decontamination=None
        if decontamination is None
        else from_dict(Decontamination, decontamination, "decontamination"),
        deduplications=tuple(_from_words(DEDUPLICATIONS, one) for one in words["deduplications"]),
    )


def _name(kinds: Mapping[str, type[Any]], one: Any) -> str:
    return next(name for name, kind in kinds.items() if kind is type(one))


def _from_words(kinds: Mapping[str, type[Any]], words: Mapping[str, Any]) -> Any:
    fields = {key: value for key, value in words.items() if key != "name"}
    return from_dict(kinds[words["name"]], fields, words["name"])
