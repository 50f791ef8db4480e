"""Text <-> Unicode code points, with nothing learned and no table (CANINE).

Clark et al. 2022, arXiv:2103.06874, section 3.1, "Preprocessing".
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Int

from unmask.tokens.vocabulary import Frame, Special, names, sentinels

SIZE = 0x110000
"""Code points of Unicode, 0 to U+10FFFF."""
SPECIAL: Mapping[str, int] = {
    "[PAD]": 0x0000,
    "[CLS]": 0xE000,
    "[SEP]": 0xE001,
    "[BOS]": 0xE002,
    "[MASK]": 0xE003,
}
"""The ids of special tokens by their names, all but padding in the private use area, where Unicode
will never have a character (released code, `special_codepoints.py`)."""
REPLACEMENT = 0xFFFD
"""What is read in the place of a special token's code point in a text."""


def special(frame: Frame) -> Special:
    """Give a frame's tokens by id.

    Raises:
        ValueError: one of its names is not in `SPECIAL`.
    """
    for name in (*names(frame), *sentinels(frame)):
        if name not in SPECIAL:
            raise ValueError(
                f"code points have no special token {name!r} (they have {', '.join(SPECIAL)})"
            )

    def one(name: str | None) -> int | None:
        return None if name is None else SPECIAL[name]

    return Special(
        size=SIZE,
        pad=SPECIAL[frame.pad],
        start=SPECIAL[frame.start],
        end=one(frame.end),
        mask=one(frame.mask),
        unknown=one(frame.unknown),
        before=tuple(SPECIAL[name] for name in frame.before),
        between=tuple(SPECIAL[name] for name in frame.between),
        after=tuple(SPECIAL[name] for name in frame.after),
        ids=frozenset(SPECIAL.values()),
    )


def encode(text: str) -> Int[np.ndarray, "t"]:
    """Give the code point of each character; those of special tokens become U+FFFD."""
    ids = np.frombuffer(text.encode("utf-32-le"), "<u4").astype(np.int64)
    ids[_taken(ids)] = REPLACEMENT
    return ids


def decode(ids: Sequence[int], *, skip_special: bool) -> str:
    """Turn code points into text; those that are no character of a text are nothing."""
    named = {} if skip_special else NAMES
    return "".join(
        named.get(i, "") if i in NAMES else chr(i) for i in ids if i < SIZE and not _surrogate(i)
    )


NAMES: Mapping[int, str] = {i: name for name, i in SPECIAL.items()}


def _taken(ids: Int[np.ndarray, "t"]) -> Bool[np.ndarray, "t"]:
    return np.isin(ids, list(SPECIAL.values()))


def _surrogate(i: int) -> bool:
    return 0xD800 <= i < 0xE000
