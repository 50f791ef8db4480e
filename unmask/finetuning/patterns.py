"""Patterns: texts with words around them and a blank among these."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from unmask.text.records import listed

BLANK = "[MASK]"
"""What marks the blank in a pattern, for every model."""
_PLACE = re.compile(r"(\{[^{}]*\}|\[MASK\])")


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """What is read: texts, with words around them and a blank among these."""

    parts: tuple[str | int, ...]
    """Words as they are written, and which text stands where. The blank is not among them."""
    blank: int
    """Before which of the parts the blank is; their number: at the end."""

    @staticmethod
    def of(text: str, columns: Sequence[str]) -> "Pattern":
        """Read "{text} It was [MASK]."; a text is named by its column or by its number, from 0.

        Raises:
            ValueError: there is not just one blank, or not each text just once.
        """
        parts: list[str | int] = []
        blanks: list[int] = []
        for part in _PLACE.split(text):
            if part == BLANK:
                blanks.append(len(parts))
            elif _PLACE.fullmatch(part):
                parts.append(_which(part, text, columns))
            elif part:
                parts.append(part)
        if len(blanks) != 1:
            raise ValueError(f"pattern must have one blank, {BLANK}, got {text!r}")
        if sorted(p for p in parts if isinstance(p, int)) != list(range(len(columns))):
            named = " and ".join(f"{{{name}}}" for name in columns)
            raise ValueError(f"pattern must have {named} once, got {text!r}")
        return Pattern(parts=tuple(parts), blank=blanks[0])

    def spaced(self, i: int) -> bool:
        """Say whether a space is before a part, or before the blank if that is there."""
        before = self.parts[i - 1] if i else ""
        return isinstance(before, str) and before.endswith(" ")


def _which(part: str, text: str, columns: Sequence[str]) -> int:
    name = part[1:-1].strip()
    if name in columns:
        return columns.index(name)
    if name.isdecimal() and int(name) < len(columns):
        return int(name)
    raise ValueError(
        f"pattern: {part} is no column of text; there are {listed(columns)}, got {text!r}"
    )
