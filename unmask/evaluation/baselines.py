"""Unigram and bigram baselines on held-out targets, which a model should beat."""

from collections.abc import Iterable, Iterator

import numpy as np
from jaxtyping import Int, Integer

from unmask.batch import IGNORE_INDEX, Batch
from unmask.objectives.features import ShiftedTargets
from unmask.shards.read import TokenShards

MAX_COUNTED_TOKENS = 20_000_000
"""Maximum number of training tokens counted. Pairs take 8 bytes each (4 for vocabularies up to
65,536), distinct ones temporarily 40: under a gigabyte."""
TOKENS_PER_CHUNK = 2**21
"""Tokens per chunk; pairs across chunks are not counted."""


class BigramBaseline:
    """The most frequent next token of each token in the training text.

    Ties go to the lowest id.
    """

    token_counts: Int[np.ndarray, "v"]
    """Count of each token."""
    most_frequent_token: int
    """The most frequent token."""
    most_frequent_next: Int[np.ndarray, "v"]
    """The most frequent next token of each; `most_frequent_token` if there is none."""

    def __init__(self, pieces: Iterable[Int[np.ndarray, "_"]], vocab_size: int) -> None:
        """Count the tokens and pairs of pieces of text; pairs do not cross pieces.

        Raises:
            ValueError: there is no token.
        """
        self.token_counts = np.zeros(vocab_size, np.int64)
        narrow = np.dtype(np.uint32 if vocab_size**2 <= 2**32 else np.int64)
        pairs = [np.zeros(0, narrow)]
        for ids, followed in _join_pieces(pieces):
            self.token_counts += np.bincount(ids, minlength=vocab_size)
            pairs.append((ids[followed] * vocab_size + ids[followed + 1]).astype(narrow))
        if not self.token_counts.any():
            raise ValueError("there is no text to count")
        self.most_frequent_token = int(self.token_counts.argmax())
        self.most_frequent_next = np.full(vocab_size, self.most_frequent_token, np.int64)
        first, second, times = _count_pairs(np.concatenate(pairs), vocab_size)
        # Ascending: the last write to an index wins.
        order = np.lexsort((vocab_size - second, times))
        self.most_frequent_next[first[order]] = second[order]

    def accuracy(self, batches: Iterable[Batch]) -> dict[str, float]:
        """Compute the share of targets that each baseline predicts.

        "unigram" predicts the most frequent token, "bigram" the most frequent one after the true
        previous token, which a masked model may not see; if there is none, as "unigram". Not for
        encoder-decoders.
        """
        n_targets = unigram = bigram = 0
        for batch in batches:
            if batch.targets is None:
                continue
            targets = batch.targets.numpy()
            is_target = targets != IGNORE_INDEX
            labels, before = targets[is_target], _previous_tokens(batch)[is_target]
            following = self.most_frequent_next[before]
            prediction = np.where(before >= 0, following, self.most_frequent_token)
            n_targets += len(labels)
            unigram += int((labels == self.most_frequent_token).sum())
            bigram += int((labels == prediction).sum())
        return {"unigram": unigram / max(n_targets, 1), "bigram": bigram / max(n_targets, 1)}


def _join_pieces(
    pieces: Iterable[Int[np.ndarray, "_"]],
) -> Iterator[tuple[Int[np.ndarray, "t"], Int[np.ndarray, "_"]]]:
    """Concatenate short pieces; yield ids and a mask of those with a next token."""
    pending: list[np.ndarray] = []
    n = 0
    for piece in pieces:
        pending.append(piece)
        n += len(piece)
        if n >= TOKENS_PER_CHUNK:
            yield _concatenate(pending)
            pending, n = [], 0
    if n:
        yield _concatenate(pending)


def _concatenate(pieces: list[np.ndarray]) -> tuple[Int[np.ndarray, "t"], Int[np.ndarray, "_"]]:
    ids = np.concatenate(pieces).astype(np.int64, copy=False)
    followed = np.ones(len(ids), np.bool_)
    followed[np.cumsum([len(piece) for piece in pieces]) - 1] = False
    return ids, np.flatnonzero(followed)


def _count_pairs(
    pairs: Integer[np.ndarray, "_"], vocab_size: int
) -> tuple[Integer[np.ndarray, "n"], Integer[np.ndarray, "n"], Int[np.ndarray, "n"]]:
    """Return the first and second token and the count of each pair; `pairs` is sorted."""
    pairs.sort()
    starts = np.flatnonzero(np.append(len(pairs) > 0, pairs[1:] != pairs[:-1]))
    times = np.diff(starts, append=len(pairs))
    first, second = np.divmod(pairs[starts], vocab_size)
    return first, second, times


def _previous_tokens(batch: Batch) -> Int[np.ndarray, "b t"]:
    """Return the true token before each position; -1 where there is none."""
    assert batch.targets is not None
    tokens, targets = batch.inputs.numpy().copy(), batch.targets.numpy()
    shifted = batch.feature(ShiftedTargets)
    shift = (
        np.zeros_like(targets)
        if shifted is None or shifted.is_shifted is None
        else shifted.is_shifted.numpy().astype(np.int64)
    )
    row, column = np.nonzero(targets != IGNORE_INDEX)
    source_column = column + shift[row, column]  # column of the target
    inside = source_column < tokens.shape[1]
    if batch.position_ids is not None:  # the token after the last one is of another text
        inside &= batch.position_ids.numpy()[row, source_column.clip(max=tokens.shape[1] - 1)] > 0
    tokens[row[inside], source_column[inside]] = targets[row[inside], column[inside]]
    source_column = np.arange(tokens.shape[1]) + shift - 1
    return np.where(source_column < 0, -1, np.take_along_axis(tokens, source_column.clip(min=0), 1))


def count_bigrams(shards: TokenShards, spans: Int[np.ndarray, "n 2"]) -> BigramBaseline:
    """Count the bigrams of the training spans, up to `MAX_COUNTED_TOKENS`."""
    return BigramBaseline(_read_pieces(shards, spans), shards.tokenizer.vocab_size)


def _read_pieces(
    shards: TokenShards, spans: Int[np.ndarray, "n 2"]
) -> Iterator[Int[np.ndarray, "_"]]:
    """Yield the ids of each span, with buffered reading: documents may be many and short."""
    base, ids, remaining = 0, np.zeros(0, np.int64), MAX_COUNTED_TOKENS
    for start, end in spans.tolist():
        end = min(end, start + remaining)
        for at in range(start, end, TOKENS_PER_CHUNK):
            stop = min(end, at + TOKENS_PER_CHUNK)
            if at < base or stop > base + len(ids):
                base, ids = (
                    at,
                    shards.read_tokens(at, min(at + TOKENS_PER_CHUNK, shards.n_tokens)).ids,
                )
            yield ids[at - base : stop - base]
        remaining -= end - start
