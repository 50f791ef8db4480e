"""Repair of text that was decoded or escaped wrongly on its way (mojibake, entities, controls)."""

import re
import unicodedata
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from unmask.text.cleaning.rule import Cleaned, Removal
from unmask.text.formats.decompress import require_module

if TYPE_CHECKING:
    from ftfy import TextFixerConfig

_NEEDS_NOTHING = re.compile(r"[\t -%'-~]*")
"""ASCII without control characters and without "&", which may begin an entity."""
_SPACES = re.compile(r"[^\S\n]+")


@dataclass(frozen=True)
class UnicodeRepair:
    """Repair of mojibake, HTML entities, control characters; composed characters (NFC).

    By ftfy (Speer 2019, doi:10.5281/zenodo.2591652), line by line. Curly quotes, ligatures and wide
    characters are somebody's choice and stay. Runs of white space become one space.

    Raises:
        ImportError: ftfy is not installed.
    """

    def __post_init__(self) -> None:
        require_module("ftfy", "the rule unicode", extra="clean")

    def clean(self, text: str) -> Cleaned:
        """Repair each line that needs it; lines of which nothing is left are removed."""
        kept: list[str] = []
        removals: list[Removal] = []
        for line in text.split("\n"):
            repaired = line if _NEEDS_NOTHING.fullmatch(line) else _repair(line)
            repaired = _SPACES.sub(" ", repaired).strip()
            if repaired != line and _visible(repaired) != _visible(line):
                removals.append(Removal("unicode: repaired", line, is_change=True))
            if repaired:
                kept.append(repaired)
        return Cleaned("\n".join(kept), tuple(removals))


def _visible(line: str) -> str:
    """Return a line as it looks: composing characters and joining spaces is no repair."""
    return " ".join(unicodedata.normalize("NFC", line).split())


def _repair(line: str) -> str:
    import ftfy

    return ftfy.fix_text(line, _ftfy_config()).replace("\n", " ")


@cache
def _ftfy_config() -> "TextFixerConfig":
    from ftfy import TextFixerConfig

    return TextFixerConfig(
        uncurl_quotes=False, fix_latin_ligatures=False, fix_character_width=False, explain=False
    )
