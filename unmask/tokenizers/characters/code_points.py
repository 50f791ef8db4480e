"""Text <-> Unicode code points, without training or a table (CANINE).

Clark et al. 2022, arXiv:2103.06874, section 3.1, "Preprocessing".
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Int

from unmask.tokenizers.spec import (
    SpecialTokenIds,
    SpecialTokens,
    sentinel_names,
    special_token_names,
)

N_CODE_POINTS = 0x110000
"""Code points of Unicode, 0 to U+10FFFF."""
SPECIAL_CODE_POINTS: Mapping[str, int] = {
    "[PAD]": 0x0000,
    "[CLS]": 0xE000,
    "[SEP]": 0xE001,
    "[BOS]": 0xE002,
    "[MASK]": 0xE003,
}
"""Ids of special tokens by name, all but padding in the private use area, to which Unicode assigns
no characters (released code, `special_codepoints.py`)."""
REPLACEMENT_CODE_POINT = 0xFFFD
"""Replacement of special tokens' code points in a text."""


def special_code_points(special_tokens: SpecialTokens) -> SpecialTokenIds:
    """Return the ids of special tokens.

    Raises:
        ValueError: a name is not in `SPECIAL_CODE_POINTS`.
    """
    for name in (*special_token_names(special_tokens), *sentinel_names(special_tokens)):
        if name not in SPECIAL_CODE_POINTS:
            raise ValueError(
                f"code points have no special token {name!r} (they have "
                f"{', '.join(SPECIAL_CODE_POINTS)})"
            )

    def one(name: str | None) -> int | None:
        return None if name is None else SPECIAL_CODE_POINTS[name]

    return SpecialTokenIds(
        vocab_size=N_CODE_POINTS,
        pad=SPECIAL_CODE_POINTS[special_tokens.pad],
        start=SPECIAL_CODE_POINTS[special_tokens.start],
        end=one(special_tokens.end),
        mask=one(special_tokens.mask),
        unknown=one(special_tokens.unknown),
        prefix=tuple(SPECIAL_CODE_POINTS[name] for name in special_tokens.prefix),
        separator=tuple(SPECIAL_CODE_POINTS[name] for name in special_tokens.separator),
        suffix=tuple(SPECIAL_CODE_POINTS[name] for name in special_tokens.suffix),
        all_ids=frozenset(SPECIAL_CODE_POINTS.values()),
    )


def encode_code_points(text: str) -> Int[np.ndarray, "t"]:
    """Return the code point of each character; those of special tokens become U+FFFD."""
    ids = np.frombuffer(text.encode("utf-32-le"), "<u4").astype(np.int64)
    ids[_is_special(ids)] = REPLACEMENT_CODE_POINT
    return ids


def decode_code_points(ids: Sequence[int], *, skip_special_tokens: bool) -> str:
    """Decode code points to text; those that are no character are skipped."""
    special_names = {} if skip_special_tokens else SPECIAL_NAMES
    return "".join(
        special_names.get(i, "") if i in SPECIAL_NAMES else chr(i)
        for i in ids
        if i < N_CODE_POINTS and not _is_surrogate(i)
    )


SPECIAL_NAMES: Mapping[int, str] = {i: name for name, i in SPECIAL_CODE_POINTS.items()}


def _is_special(ids: Int[np.ndarray, "t"]) -> Bool[np.ndarray, "t"]:
    return np.isin(ids, list(SPECIAL_CODE_POINTS.values()))


def _is_surrogate(i: int) -> bool:
    return 0xD800 <= i < 0xE000
