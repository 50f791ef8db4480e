"""What simple tables reach on the held-out places: a model that does not beat them knows little."""

from collections.abc import Iterable, Iterator

import numpy as np
from jaxtyping import Int, Integer

from unmask.batch import IGNORE, Batch
from unmask.tokens.shards import Shards

MOST = 20_000_000
"""Training tokens that are counted, at most. Their pairs take 8 bytes each (vocabularies of up to
65,536: 4), and all there are of different ones, for a short time, 40: under a gigabyte."""
AT_ONCE = 2**21
"""Tokens that are read and counted at the same time; of a longer text, the pair at the border is
not."""


class Bigrams:
    """For each token the one that follows it most often in the training text.

    Of equally frequent ones, that of the lowest id.
    """

    counts: Int[np.ndarray, "v"]
    """How often each token occurs."""
    top: int
    """The most frequent token."""
    after: Int[np.ndarray, "v"]
    """What follows each token most often; `top` where nothing ever did."""

    def __init__(self, pieces: Iterable[Int[np.ndarray, "_"]], vocab_size: int) -> None:
        """Count pieces of text; pairs do not cross their borders.

        Raises:
            ValueError: there is not one token.
        """
        self.counts = np.zeros(vocab_size, np.int64)
        narrow = np.dtype(np.uint32 if vocab_size**2 <= 2**32 else np.int64)
        pairs = [np.zeros(0, narrow)]
        for ids, followed in _joined(pieces):
            self.counts += np.bincount(ids, minlength=vocab_size)
            pairs.append((ids[followed] * vocab_size + ids[followed + 1]).astype(narrow))
        if not self.counts.any():
            raise ValueError("there is no text to count")
        self.top = int(self.counts.argmax())
        self.after = np.full(vocab_size, self.top, np.int64)
        first, second, times = _counted(np.concatenate(pairs), vocab_size)
        # Ascending: of what is written to one place, the last stays.
        order = np.lexsort((vocab_size - second, times))
        self.after[first[order]] = second[order]

    def accuracy(self, batches: Iterable[Batch]) -> dict[str, float]:
        """Say how often two tables name the token that is asked for.

        "unigram" says the most frequent token of all, "bigram" the one most frequent after the true
        token before, which a masked model may not see; where there is none, as "unigram". Not for
        encoder-decoders.
        """
        asked = unigram = bigram = 0
        for batch in batches:
            if batch.targets is None:
                continue
            targets = batch.targets.numpy()
            where = targets != IGNORE
            wanted, before = targets[where], _before(batch)[where]
            guess = np.where(before >= 0, self.after[before], self.top)
            asked += len(wanted)
            unigram += int((wanted == self.top).sum())
            bigram += int((wanted == guess).sum())
        return {"unigram": unigram / max(asked, 1), "bigram": bigram / max(asked, 1)}


def _joined(
    pieces: Iterable[Int[np.ndarray, "_"]],
) -> Iterator[tuple[Int[np.ndarray, "t"], Int[np.ndarray, "_"]]]:
    """Join pieces, short ones many at a time; give the ids, and which are followed by another."""
    held: list[np.ndarray] = []
    n = 0
    for piece in pieces:
        held.append(piece)
        n += len(piece)
        if n >= AT_ONCE:
            yield _join(held)
            held, n = [], 0
    if n:
        yield _join(held)


def _join(held: list[np.ndarray]) -> tuple[Int[np.ndarray, "t"], Int[np.ndarray, "_"]]:
    ids = np.concatenate(held).astype(np.int64, copy=False)
    followed = np.ones(len(ids), np.bool_)
    followed[np.cumsum([len(piece) for piece in held]) - 1] = False
    return ids, np.flatnonzero(followed)


def _counted(
    pairs: Integer[np.ndarray, "_"], vocab_size: int
) -> tuple[Integer[np.ndarray, "n"], Integer[np.ndarray, "n"], Int[np.ndarray, "n"]]:
    """Return each pair's first and second token and how often it occurs; `pairs` is sorted."""
    pairs.sort()
    begins = np.flatnonzero(np.append(len(pairs) > 0, pairs[1:] != pairs[:-1]))
    times = np.diff(begins, append=len(pairs))
    first, second = np.divmod(pairs[begins], vocab_size)
    return first, second, times


def _before(batch: Batch) -> Int[np.ndarray, "b t"]:
    """Return the true token before each place; -1 where there is none."""
    assert batch.targets is not None
    truth, targets = batch.inputs.numpy().copy(), batch.targets.numpy()
    late = np.zeros_like(targets) if batch.ahead is None else batch.ahead.numpy().astype(np.int64)
    row, place = np.nonzero(targets != IGNORE)
    at = place + late[row, place]  # where the answer is read
    there = at < truth.shape[1]
    if batch.place is not None:  # what follows the last of a text is of another
        there &= batch.place.numpy()[row, at.clip(max=truth.shape[1] - 1)] > 0
    truth[row[there], at[there]] = targets[row[there], place[there]]
    at = np.arange(truth.shape[1]) + late - 1
    return np.where(at < 0, -1, np.take_along_axis(truth, at.clip(min=0), 1))


def bigrams(shards: Shards, spans: Int[np.ndarray, "n 2"]) -> Bigrams:
    """Count the bigrams of the training spans; of a larger text, of its first tokens."""
    return Bigrams(_pieces(shards, spans), shards.tokenizer.size)


def _pieces(shards: Shards, spans: Int[np.ndarray, "n 2"]) -> Iterator[Int[np.ndarray, "_"]]:
    """Give the ids of each span, reading ahead: documents may be many and short."""
    base, ids, left = 0, np.zeros(0, np.int64), MOST
    for start, end in spans.tolist():
        end = min(end, start + left)
        for at in range(start, end, AT_ONCE):
            stop = min(end, at + AT_ONCE)
            if at < base or stop > base + len(ids):
                base, ids = at, shards.text(at, min(at + AT_ONCE, shards.n_tokens)).ids
            yield ids[at - base : stop - base]
        left -= end - start
