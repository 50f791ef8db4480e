"""Which rows of several sources an epoch holds: those of small ones again, of large ones some."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int


@dataclass(frozen=True, kw_only=True, eq=False)
class SourceSampling:
    """The source of each row, and how many rows of each source an epoch takes.

    The rows of a source are read in rounds, each a permutation of all of them. An epoch continues
    where the last one ended, so that no row is repeated before all rows of its source have been
    read.
    """

    source_of_row: Int[np.ndarray, "n"]
    rows_per_epoch: tuple[int, ...]
    spread_evenly: bool = False
    """The rows of each source are at equal distances but for chance, so that not only an epoch has
    the wanted shares, but each part of it."""

    def __post_init__(self) -> None:
        if (np.bincount(self.source_of_row, minlength=len(self.rows_per_epoch)) < 1).any() or min(
            self.rows_per_epoch
        ) < 1:
            raise ValueError("each source must have a row, and an epoch must take one of each")

    @cached_property
    def _rows_by_source(self) -> list[Int[np.ndarray, "k"]]:
        """The rows of each source."""
        ends = np.cumsum(np.bincount(self.source_of_row))
        return np.split(np.argsort(self.source_of_row, kind="stable"), ends[:-1])

    def epoch_rows(
        self, epoch: int, generator: Callable[..., np.random.Generator]
    ) -> Int[np.ndarray, "k"]:
        """List an epoch's readings, source by source: round * n + row for each.

        Args:
            epoch: from 0.
            generator: gives one for a source and a round, always the same.
        """
        n, found = len(self.source_of_row), list[np.ndarray]()
        for source, (rows, take) in enumerate(
            zip(self._rows_by_source, self.rows_per_epoch, strict=True)
        ):
            begin, end = epoch * take, (epoch + 1) * take
            for turn in range(begin // len(rows), -(-end // len(rows))):
                before = turn * len(rows)
                order = generator(source, turn).permutation(rows)
                found.append(turn * n + order[max(begin - before, 0) : end - before])
        return np.concatenate(found)

    def order(self, draw: np.random.Generator) -> Int[np.ndarray, "k"]:
        """Draw the order of an epoch's readings, which are given source by source."""
        if not self.spread_evenly:
            return draw.permutation(sum(self.rows_per_epoch))
        return spread_evenly(self.rows_per_epoch, draw)


def spread_evenly(counts: Sequence[int], draw: np.random.Generator) -> Int[np.ndarray, "k"]:
    """Draw an order of items, given group by group, in which those of a group are evenly spread.

    Item i of n is drawn from the i-th of n equal parts of the order.
    """
    parts = [(np.arange(n) + draw.random(n)) / max(n, 1) for n in counts]
    return np.argsort(np.concatenate(parts), kind="stable")


def rows_per_source(
    n_tokens: Sequence[int], n_rows: Sequence[int], shares: Sequence[float]
) -> tuple[int, ...]:
    """Return how many rows of each source have its share of the tokens; at least one.

    All together have about as many tokens as there are.

    Args:
        n_tokens: of each source.
        n_rows: of each source, 1 or more.
        shares: of each source, wanted.
    """
    total = sum(n_tokens)
    return tuple(
        max(1, round(share * total / (t / n)))
        for t, n, share in zip(n_tokens, n_rows, shares, strict=True)
    )
