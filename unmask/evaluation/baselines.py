"""Unigram and bigram baselines on held-out targets, which a model should beat."""

from collections.abc import Iterable, Iterator

import numpy as np
from jaxtyping import Int, Integer

from unmask.batch import IGNORE_INDEX, Batch
from unmask.objectives.features import ShiftedTargets
from unmask.shards.read import TokenShards

MAX_COUNTED_TOKENS = 20_000_000
"""Training tokens that are counted, at most. Their pairs take 8 bytes each (vocabularies of up to
65,536: 4), and all there are of different ones, for a short time, 40: under a gigabyte."""
TOKENS_PER_CHUNK = 2**21
"""Tokens that are read and counted at the same time; of a longer text, the pair at the border is
not."""


class BigramBaseline:
    """For each token the one that follows it most often in the training text.

    Of equally frequent ones, that of the lowest id.
    """

    token_counts: Int[np.ndarray, "v"]
    """How often each token occurs."""
    most_frequent_token: int
    """The most frequent token."""
    most_frequent_next: Int[np.ndarray, "v"]
    """The most frequent next token of each; `most_frequent_token` where none ever followed."""

    def __init__(self, pieces: Iterable[Int[np.ndarray, "_"]], vocab_size: int) -> None:
        """Count pieces of text; pairs do not cross their borders.

        Raises:
            ValueError: there is not one token.
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
        # Ascending: of what is written to one place, the last stays.
        order = np.lexsort((vocab_size - second, times))
        self.most_frequent_next[first[order]] = second[order]

    def accuracy(self, batches: Iterable[Batch]) -> dict[str, float]:
        """Compute the share of targets that each baseline predicts.

        "unigram" predicts the most frequent token of all, "bigram" the one most frequent after the
        true token before, which a masked model may not see; where there is none, as "unigram". Not
        for encoder-decoders.
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
    """Join pieces, short ones many at a time; yield the ids, and which are followed by another."""
    held: list[np.ndarray] = []
    n = 0
    for piece in pieces:
        held.append(piece)
        n += len(piece)
        if n >= TOKENS_PER_CHUNK:
            yield _concatenate(held)
            held, n = [], 0
    if n:
        yield _concatenate(held)


def _concatenate(pieces: list[np.ndarray]) -> tuple[Int[np.ndarray, "t"], Int[np.ndarray, "_"]]:
    ids = np.concatenate(pieces).astype(np.int64, copy=False)
    followed = np.ones(len(ids), np.bool_)
    followed[np.cumsum([len(piece) for piece in pieces]) - 1] = False
    return ids, np.flatnonzero(followed)


def _count_pairs(
    pairs: Integer[np.ndarray, "_"], vocab_size: int
) -> tuple[Integer[np.ndarray, "n"], Integer[np.ndarray, "n"], Int[np.ndarray, "n"]]:
    """Return each pair's first and second token and how often it occurs; `pairs` is sorted."""
    pairs.sort()
    begins = np.flatnonzero(np.append(len(pairs) > 0, pairs[1:] != pairs[:-1]))
    times = np.diff(begins, append=len(pairs))
    first, second = np.divmod(pairs[begins], vocab_size)
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
    at = column + shift[row, column]  # where the target is read
    inside = at < tokens.shape[1]
    if batch.position_ids is not None:  # what follows the last of a text is of another
        inside &= batch.position_ids.numpy()[row, at.clip(max=tokens.shape[1] - 1)] > 0
    tokens[row[inside], at[inside]] = targets[row[inside], column[inside]]
    at = np.arange(tokens.shape[1]) + shift - 1
    return np.where(at < 0, -1, np.take_along_axis(tokens, at.clip(min=0), 1))


def count_bigrams(shards: TokenShards, spans: Int[np.ndarray, "n 2"]) -> BigramBaseline:
    """Count the bigrams of the training spans; of a larger text, of its first tokens."""
    return BigramBaseline(_read_pieces(shards, spans), shards.tokenizer.vocab_size)


def _read_pieces(
    shards: TokenShards, spans: Int[np.ndarray, "n 2"]
) -> Iterator[Int[np.ndarray, "_"]]:
    """Yield the ids of each span, reading ahead: documents may be many and short."""
    base, ids, left = 0, np.zeros(0, np.int64), MAX_COUNTED_TOKENS
    for start, end in spans.tolist():
        end = min(end, start + left)
        for at in range(start, end, TOKENS_PER_CHUNK):
            stop = min(end, at + TOKENS_PER_CHUNK)
            if at < base or stop > base + len(ids):
                base, ids = (
                    at,
                    shards.read_tokens(at, min(at + TOKENS_PER_CHUNK, shards.n_tokens)).ids,
                )
            yield ids[at - base : stop - base]
        left -= end - start
