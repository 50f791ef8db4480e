"""Unknown tokens: what a vocabulary does not hold teaches nothing, and nothing is read of it."""

import logging
from collections.abc import Generator, Iterable, Sequence
from itertools import chain

import numpy as np
from jaxtyping import Int

from unmask.text.documents import Document
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import SpecialTokenIds

_log = logging.getLogger(__name__)
WARNED_UNKNOWN_SHARE, MAX_UNKNOWN_SHARE = 0.01, 0.5
"""Shares of unknown tokens above which a job says so, and above which it is refused."""
UNKNOWN_TEXTS = "%d texts are unknown tokens by more than half: the vocabulary does not hold them"
_SAMPLE_CHARACTERS = 100_000


def count_unknown(
    texts: Sequence[Int[np.ndarray, "_"]], special_ids: SpecialTokenIds
) -> Int[np.ndarray, "n 2"]:
    """Return the numbers of unknown and of all tokens of encoded texts [n 2]."""
    counts = [(int((ids == special_ids.unknown).sum()), len(ids)) for ids in texts]
    return np.array(counts, np.int64).reshape(-1, 2)


def warn_unknown_texts(texts: Sequence[Int[np.ndarray, "_"]], special_ids: SpecialTokenIds) -> None:
    """Warn of encoded texts of which more than half is unknown."""
    unknown, total = count_unknown(texts, special_ids).T
    if n := int((unknown > MAX_UNKNOWN_SHARE * total).sum()):
        _log.warning(UNKNOWN_TEXTS, n, extra={"is_count": True})


def check_known(
    tokenizer: Tokenizer, texts: Sequence[str], name: str, max_share: float = MAX_UNKNOWN_SHARE
) -> list[str]:
    """Return a warning if more than 1 % of the tokens of texts are unknown, else nothing.

    Args:
        tokenizer: the model's.
        texts: the texts, or a sample.
        name: name of the texts, for messages.
        max_share: the share above which they are refused.

    Raises:
        ValueError: more of their tokens are unknown.
    """
    encoded = tokenizer.encode_prefix_batch(texts, 1000)
    unknown, total = count_unknown(encoded, tokenizer.special_ids).sum(0).tolist()
    if unknown <= WARNED_UNKNOWN_SHARE * total:
        return []
    share = f"{unknown / total:.0%} of {total:,} tokens of {name} are unknown to the tokenizer"
    if unknown > max_share * total:
        raise ValueError(
            f"{share}, at most {max_share:.0%} may be: its vocabulary lacks their characters, "
            "or their words are too long for WordPiece; use a tokenizer of this language, or bytes"
        )
    return [share]


def pass_known(
    tokenizer: Tokenizer, documents: Iterable[Document], name: str
) -> Generator[Document]:
    """Pass documents on; those with the first 100,000 characters are checked by `check_known`."""
    sample: list[str] = []
    n_left = _SAMPLE_CHARACTERS
    for document in chain(documents, [None]):
        if n_left > 0 and document is not None:
            sample.append(document.text)
            n_left -= len(document.text)
        if sample and (n_left <= 0 or document is None):
            for line in check_known(tokenizer, sample, f"the beginning of {name}"):
                _log.warning(line)
            sample.clear()
        if document is not None:
            yield document
