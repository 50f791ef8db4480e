"""Regular expressions of a stranger: those whose search may take years are refused."""

import re
from functools import lru_cache

_MAX_REPEATS = 3
"""In one pattern: a search tries up to n^k ways, k repeats at the places of a name of n letters."""
_TOKEN = re.compile(
    r"""
      \\. | \[\^?\]?(?:\\.|[^]\\])*\]                         # a character, or one of several
    | \((?:\?(?:[:=!>]|<[=!]|P?<\w+>|[a-zA-Z-]+[:)])?)?  # a group begins, or flags are set
    | (?:[*+?]|\{[\d,]+\})[?+]? | [)|]
    """,
    re.DOTALL | re.VERBOSE,
)
_REPEATS = ("*", "+", "{")


@lru_cache(1024)
def name_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of the names of modules, which may begin anywhere in them.

    Raises:
        ValueError: it is none, or has repeats within repeats, choices within repeats, or more than
            `_MAX_REPEATS` repeats.
    """
    if not _is_fast(pattern):
        raise ValueError(
            f"{pattern[:80]!r} could take years: repeats must not be in repeats, and there may be "
            f"at most {_MAX_REPEATS} of them"
        )
    try:
        return re.compile(rf"(.*\.)?({pattern})$")
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{pattern[:80]!r} is not a pattern of names: {error}") from None


def _is_fast(pattern: str) -> bool:
    n, groups = 0, [False]  # whether what is in a group can match in several ways
    for found in _TOKEN.finditer(pattern):
        token = found[0]
        if token.startswith("("):
            groups += [] if token.endswith(")") else [False]
        elif token == "|":
            groups[-1] = True
        elif token == ")" and len(groups) > 1:
            varies = groups.pop()
            if varies and pattern.startswith(_REPEATS, found.end()):
                return False
            groups[-1] |= varies
        elif token.startswith((*_REPEATS, "?")):
            n += not token.startswith("?")
            groups[-1] = True
    return n <= _MAX_REPEATS
