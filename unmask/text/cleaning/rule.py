"""What a rule of cleaning is: a text in, and out the text that is left and what was removed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class Removal:
    """A line or a document that a rule removed or changed."""

    reason: str
    """The rule, and which of its conditions: "c4: fewer than 3 sentences"."""
    text: str
    """What was removed; of a change, what was there before."""
    is_document: bool = False
    """Whether nothing of the document is left."""
    is_change: bool = False
    """Whether it was changed, not removed."""


@dataclass(frozen=True)
class Cleaned:
    """A document after a rule."""

    text: str
    """What is left: paragraphs, one a line; "" if nothing is."""
    removals: tuple[Removal, ...] = ()


@runtime_checkable
class CleaningRule(Protocol):
    """A rule. The same text always gives the same result."""

    def clean(self, text: str) -> Cleaned:
        """Apply the rule to a document: paragraphs, one a line."""
        ...


def removed_document(reason: str, text: str, *earlier: Removal) -> Cleaned:
    """Return a document of which nothing is left."""
    return Cleaned("", (*earlier, Removal(reason, text, is_document=True)))


def clean_lines(text: str, find_reason: Callable[[str], str | None]) -> Cleaned:
    """Remove the lines for which `find_reason` gives one."""
    kept: list[str] = []
    removals: list[Removal] = []
    for line in text.split("\n"):
        reason = find_reason(line)
        if reason is None:
            kept.append(line)
        else:
            removals.append(Removal(reason, line))
    return Cleaned("\n".join(kept), tuple(removals))


def apply_rules(rules: Sequence[CleaningRule], text: str) -> Cleaned:
    """Apply rules in order, until nothing is left."""
    removals: list[Removal] = []
    for rule in rules:
        if not text:
            break
        cleaned = rule.clean(text)
        text = cleaned.text
        removals += cleaned.removals
    return Cleaned(text, tuple(removals))
