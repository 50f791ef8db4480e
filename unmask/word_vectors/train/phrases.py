"""Phrase detection: word pairs that cooccur more often than by chance become one word.

Mikolov et al. 2013, arXiv:1310.4546, section 4; each pass joins two words, which may be phrases of
the previous pass.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from unmask.files import atomic_path, check_file_record, file_record, read_json_object
from unmask.tokenizers.encode import Tokenizer
from unmask.word_vectors.formats.npy import npy_appender, open_npy, write_npy
from unmask.word_vectors.train.cooccurrences import (
    CooccurrenceMatrix,
    CooccurrenceWindow,
    count_cooccurrences,
)
from unmask.word_vectors.train.corpus import (
    IDS_FILE,
    SENTENCES_FILE,
    Corpus,
    Lexicon,
    build_lexicon,
    corpus_from_folder,
    count_ids,
    load_kernels,
    non_word_ids,
)

_PAIRS_FILE, _RECORD_FILE = "pairs.npy", "phrases.json"
_BIGRAM_WINDOW = CooccurrenceWindow(
    window=1, distance_weighting="flat", symmetric=False, break_at_unknown=True
)


@dataclass(frozen=True, kw_only=True)
class PhraseDetection:
    """Settings of phrase detection.

    Raises:
        ValueError: there is no pass, or a number is out of range.
    """

    discount: float = 5.0
    """Is taken from the count of a pair, so that rare words do not make phrases (equation 6)."""
    thresholds: tuple[float, ...] = (200.0, 100.0)
    """Of the score of each pass; they should fall (section 4). The score is that of equation 6
    times all words, as in the released code."""
    min_count: int = 5
    """A word that is seen less often is in no phrase."""
    delimiter: str = "_"
    """Separator between the words of a phrase."""

    def __post_init__(self) -> None:
        if not self.thresholds:
            raise ValueError("phrases need a threshold for each pass, got none")
        if not all(threshold > 0 for threshold in self.thresholds):
            raise ValueError(f"thresholds must be above 0, got {self.thresholds}")
        if self.discount < 0:
            raise ValueError(f"discount must be at least 0, got {self.discount}")
        if not self.delimiter or any(c.isspace() for c in self.delimiter):
            raise ValueError(
                "delimiter must be a text without white space, '_' for instance, got "
                f"{self.delimiter!r}"
            )


def detect_phrases(
    corpus: Corpus,
    words: Sequence[str],
    excluded_ids: Iterable[int],
    detection: PhraseDetection,
    folder: Path,
    *,
    memory: int = 2**30,
    chunk: int = 2**20,
) -> tuple[Corpus, list[str]]:
    """Join phrases in several passes; return the corpus with phrase ids, and the words of all ids.

    Finished passes are kept in the folder and reused; an interrupted pass is resumed.

    Args:
        corpus: the token ids.
        words: the word of each id.
        excluded_ids: ids that are in no phrase: special tokens, the unknown word.
        detection: settings of phrase detection.
        folder: folder of the passes' files: `pass-1`, `pass-2`, ...
        memory: approximate number of bytes for pair counts.
        chunk: approximate number of tokens in a chunk.

    Raises:
        ValueError: the numbers of words and ids differ, or the folder has phrases of other
            settings.
    """
    found, barred = list(words), list(excluded_ids)
    for number, threshold in enumerate(detection.thresholds, 1):
        into = folder / f"pass-{number}"
        into.mkdir(parents=True, exist_ok=True)
        counts = np.zeros(len(found), np.int64)
        seen = count_ids(corpus)
        counts[: len(seen)] = seen
        known = build_lexicon(found, counts, barred, detection.min_count)
        pairs = count_cooccurrences(corpus, known, _BIGRAM_WINDOW, into / "counts", memory=memory)
        keys = phrases_above(pairs, known, detection.discount, threshold)
        said = {"discount": detection.discount, "threshold": threshold, "first": len(found)}
        corpus = _write_phrases(corpus, keys, said, into / "joined", chunk)
        found += [detection.delimiter.join((found[a], found[b])) for a, b in keys.tolist()]
    return corpus, found


def detect_tokenizer_phrases(
    corpus: Corpus, tokenizer: Tokenizer, detection: PhraseDetection, folder: Path
) -> tuple[Corpus, Tokenizer]:
    """Join phrases of a tokenizer's words, and add them to a tokenizer, which does not encode them.

    Args:
        corpus: the token ids.
        tokenizer: of the ids.
        detection: settings of phrase detection.
        folder: see `detect_phrases`.

    Raises:
        ValueError: see `detect_phrases`; or a phrase is already a word of the tokenizer, or its
            vocabulary is not one of words.
    """
    words = tokenizer.pieces(range(tokenizer.vocab_size))
    corpus, found = detect_phrases(corpus, words, non_word_ids(tokenizer, words), detection, folder)
    new, known = found[len(words) :], set(words)
    if (twice := next((word for word in new if word in known), None)) is not None:
        raise ValueError(
            f"the phrase {twice!r} is a word already; join with another sign than "
            f"{detection.delimiter!r}"
        )
    return corpus, tokenizer.with_words(new, allow_phrases=True)


def phrases_above(
    pairs: CooccurrenceMatrix, words: Lexicon, discount: float, threshold: float
) -> Int[np.ndarray, "n 2"]:
    """Return the pairs of ids whose score exceeds a threshold, in ascending order.

    Args:
        pairs: counts of a word (the column) directly before another (the row).
        words: the counted words.
        discount: see `PhraseDetection`.
        threshold: threshold of the score.
    """
    score = phrase_scores(pairs, words, discount)
    id_of = np.empty(len(words), np.int64)
    known = np.flatnonzero(words.row_of >= 0)
    id_of[words.row_of[known]] = known
    good = score > threshold
    found = np.stack((id_of[pairs.columns[good]], id_of[pairs.row_indices[good]]), 1)
    return found[np.lexsort((found[:, 1], found[:, 0]))]


def phrase_scores(
    pairs: CooccurrenceMatrix, words: Lexicon, discount: float
) -> Float[np.ndarray, "k"]:
    """Score all pairs: (count - discount) * number of words / (count of first * of second)."""
    counts = words.counts.astype(np.float64)
    together = pairs.values.astype(np.float64) - discount
    return together / counts[pairs.row_indices] / counts[pairs.columns] * words.n_words


def _write_phrases(
    corpus: Corpus,
    pairs: Int[np.ndarray, "n 2"],
    record: dict[str, float],
    folder: Path,
    chunk: int,
) -> Corpus:
    """Write the ids with phrases as one id each, or open existing files."""
    if folder.exists():
        found = read_json_object(folder / _RECORD_FILE)
        for name, file in found.pop("files", {}).items():
            check_file_record(
                folder / name, file, "remove the folder of phrases, and join them again"
            )
        if found != record or not np.array_equal(open_npy(folder / _PAIRS_FILE, 2), pairs):
            raise ValueError(
                f"{folder} has phrases that were joined otherwise; name another folder, or remove "
                "this one"
            )
        return corpus_from_folder(folder)
    keys = pairs.astype(np.uint64)
    keys = (keys[:, 0] << np.uint64(32)) | keys[:, 1]
    names = int(record["first"]) + np.arange(len(pairs))
    with atomic_path(folder) as beside:
        beside.mkdir()
        place = 0
        with (
            npy_appender(beside / IDS_FILE, np.uint32) as add_ids,
            npy_appender(beside / SENTENCES_FILE, np.int64, 2) as add_sentences,
        ):
            for piece in corpus.iter_chunks(chunk):
                spans = piece.sentences
                out = np.empty(int((spans[:, 1] - spans[:, 0]).sum()), np.uint32)
                bounds = np.empty(len(spans) + 1, np.int64)
                n = load_kernels("words").join_phrases(
                    piece.part.ids, spans, keys, names, out, bounds
                )
                add_ids(out[:n])
                add_sentences(np.stack((bounds[:-1], bounds[1:]), 1) + place)
                place += n
        write_npy(beside / _PAIRS_FILE, pairs)
        files = {
            name: file_record(beside / name) for name in (IDS_FILE, SENTENCES_FILE, _PAIRS_FILE)
        }
        (beside / _RECORD_FILE).write_text(json.dumps(record | {"files": files}), encoding="utf-8")
    return corpus_from_folder(folder)
