"""Translation pairs: each line and its translation are a document, and a row of their own."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Int

from unmask.shards.read import TokenShards
from unmask.text.mixtures import pair_languages
from unmask.tokenizers.spec import SpecialTokenIds


def special_ids_of_source(special_ids: SpecialTokenIds, source: str) -> SpecialTokenIds:
    """Return the special tokens of texts of a source, which is called by its language or two.

    Raises:
        ValueError: the vocabulary has languages, and not this one.
    """
    pair = pair_languages(source)
    if special_ids.languages:
        special_ids = special_ids.with_languages(*(pair or (source,)))
    return special_ids if pair is None else replace(special_ids, is_parallel=True)


@dataclass(frozen=True)
class TranslationPairRows:
    """The rows of translation pairs."""

    is_pair_source: Bool[np.ndarray, "sources"]
    row_spans: Int[np.ndarray, "n 2"]
    n_long: int
    """Pairs that are longer than a row, and in none."""


def translation_pair_rows(
    shards: TokenShards,
    document_spans: Int[np.ndarray, "n 2"],
    starts: Int[np.ndarray, "n"],
    row_length: int,
) -> TranslationPairRows | None:
    """Make each translation pair a row; those that do not fit are left out, as in released code.

    Args:
        shards: what the documents are in.
        document_spans: of the documents.
        starts: where each of them starts in what rows are read from.
        row_length: tokens.

    Returns:
        None: no source has translation pairs.
    """
    sources = shards.sources_of_documents
    if sources is None or not len(document_spans):
        return None
    is_pair = np.array([pair_languages(name) is not None for name in sources[0]], bool)
    if not is_pair.any():
        return None
    own = is_pair[sources[1][shards.document_of(document_spans[:, 0])]]
    sizes = document_spans[:, 1] - document_spans[:, 0]
    pairs = np.stack((starts, starts + sizes), 1)
    fits = sizes <= row_length
    return TranslationPairRows(is_pair, pairs[own & fits], int((own & ~fits).sum()))


def check_pairs_fit(
    shards: TokenShards, source_of_row: Int[np.ndarray, "n"], row_length: int
) -> None:
    """Check that no source lost all of its translation pairs.

    Raises:
        ValueError: one did.
    """
    assert shards.sources_of_documents is not None
    left = set(source_of_row.tolist())
    for i, name in enumerate(shards.sources_of_documents[0]):
        if i not in left:
            raise ValueError(
                f"{name}: none of its translation pairs has at most {row_length} tokens; "
                "take a greater sequence_length"
            )
