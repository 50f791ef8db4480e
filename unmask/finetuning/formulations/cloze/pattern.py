"""Cloze patterns: texts with words around them and a blank."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from unmask.text.formats.records import format_names

BLANK_MARKER = "[MASK]"
"""Marker of the blank in a pattern, for every model."""
_PLACEHOLDER = re.compile(r"(\{[^{}]*\}|\[MASK\])")


@dataclass(frozen=True, kw_only=True)
class ClozePattern:
    """A cloze pattern: texts with words around them and a blank."""

    parts: tuple[str | int, ...]
    """Literal words, and indices of texts, in order. The blank is not included."""
    blank_index: int
    """Index of the part after the blank; the number of parts if the blank is at the end."""

    @staticmethod
    def parse(pattern: str, columns: Sequence[str]) -> "ClozePattern":
        """Parse "{text} It was [MASK]."; a text is named by its column or its number, from 0.

        Raises:
            ValueError: there is not exactly one blank, or not each text exactly once.
        """
        parts: list[str | int] = []
        blanks: list[int] = []
        for part in _PLACEHOLDER.split(pattern):
            if part == BLANK_MARKER:
                blanks.append(len(parts))
            elif _PLACEHOLDER.fullmatch(part):
                parts.append(_text_index(part, pattern, columns))
            elif part:
                parts.append(part)
        if len(blanks) != 1:
            raise ValueError(f"pattern must have one blank, {BLANK_MARKER}, got {pattern!r}")
        if sorted(p for p in parts if isinstance(p, int)) != list(range(len(columns))):
            placeholders = " and ".join(f"{{{name}}}" for name in columns)
            raise ValueError(f"pattern must have {placeholders} once, got {pattern!r}")
        return ClozePattern(parts=tuple(parts), blank_index=blanks[0])

    def has_space_before(self, part_index: int) -> bool:
        """Return whether a part, or the blank before it, follows a space."""
        before = self.parts[part_index - 1] if part_index else ""
        return isinstance(before, str) and before.endswith(" ")


def _text_index(placeholder: str, pattern: str, columns: Sequence[str]) -> int:
    name = placeholder[1:-1].strip()
    if name in columns:
        return columns.index(name)
    if name.isdecimal() and int(name) < len(columns):
        return int(name)
    raise ValueError(
        f"pattern: {placeholder} is no column of text; there are {format_names(columns)}, got "
        f"{pattern!r}"
    )
