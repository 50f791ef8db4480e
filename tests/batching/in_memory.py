"""Texts in memory, in a module of their own: worker processes import it, and nothing heavier."""

import numpy as np

from unmask.batch import Tokens


class InMemory:
    """Ids and boundaries that follow from the place alone."""

    def __init__(self, n: int) -> None:
        rng = np.random.default_rng(5)
        self.ids = rng.integers(10, 90, n)
        self.boundaries = np.where(rng.random(n) < 0.1, 3, rng.random(n) < 0.7).astype(np.int64)

    def read_tokens(self, start: int, end: int) -> Tokens:
        return Tokens(self.ids[start:end], self.boundaries[start:end])


class Damaged(InMemory):
    """A shard with a hole."""

    def read_tokens(self, start: int, end: int) -> Tokens:
        if end > len(self.ids) // 2:
            raise ValueError("00003.tokens: its checksum is not the one recorded")
        return super().read_tokens(start, end)


class Buggy(InMemory):
    """A mistake of ours."""

    def read_tokens(self, start: int, end: int) -> Tokens:
        return super().read_tokens(start, end // 0)
