"""Texts that begin alike, in one row: each distinct prefix is computed once.

Each column holds a token of a prefix tree, in depth-first order. A token sees itself and those
before it in its text, that is its ancestors: column j is visible to column i iff j <= i < end[j],
where end[j] is the first column after those of the texts that go on from j. Positions are depths.
Bidirectional texts have no such rows, since each of their tokens sees the whole text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Bool, Int

from unmask.batch import IGNORE_INDEX, Example, ExampleRows, Feature

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class PrefixTree(Feature):
    """Which columns belong to the texts that go on from a column."""

    column_fields: ClassVar[Mapping[str, float]] = {"ends": 0}
    ends: Int[Any, "*b t"]
    """The first column that does not see a column, although it comes after it."""

    @classmethod
    def collate(cls, rows: ExampleRows) -> "PrefixTree":
        """Return the columns of each row; texts without a tree are one prefix."""
        ends = np.zeros((len(rows.groups), rows.width), np.int64)
        for row, group in zip(ends, rows.groups, strict=True):
            first = 0
            for example in group:
                n, own = len(example.inputs), example.feature(cls)
                row[first : first + n] = first + (n if own is None else own.ends)
                first += n
        return cls(ends)

    def to_mask(self) -> "Bool[Tensor, 'b 1 t t']":
        """Return which columns each column sees; padding sees itself."""
        import torch

        column = torch.arange(self.ends.shape[-1], device=self.ends.device)
        q, k = column[:, None], column[None, :]
        seen = (k <= q) & (q < self.ends[:, None, :])
        return (seen | (k == q))[:, None]


@dataclass(kw_only=True)
class PrefixRow:
    """The texts of a row, and the columns of their distinct prefixes."""

    texts: list[int] = field(default_factory=list[int])
    """Indices of the texts."""
    columns: list[Int[np.ndarray, "_"]] = field(default_factory=list[Any])
    """The column of each token of each text."""
    token_ids: list[int] = field(default_factory=list[int])
    depths: list[int] = field(default_factory=list[int])
    ends: list[int] = field(default_factory=list[int])

    def add(self, index: int, token_ids: Sequence[int], n_shared: int) -> None:
        """Add text `index`, whose first `n_shared` tokens are those of the last text added."""
        first, n_new = len(self.token_ids), len(token_ids) - n_shared
        own = np.arange(first, first + n_new)
        shared = self.columns[-1][:n_shared] if n_shared else own[:0]
        self.texts.append(index)
        self.columns.append(np.concatenate((shared, own)))
        self.token_ids += token_ids[n_shared:]
        self.depths += range(n_shared, len(token_ids))
        self.ends += [first + n_new] * n_new
        for column in shared.tolist():
            self.ends[column] = first + n_new

    def to_example(self) -> Example:
        """Return the row as an example without targets; of a single text, a plain one."""
        n = len(self.token_ids)
        plain = len(self.texts) == 1
        return Example(
            inputs=np.array(self.token_ids, np.int64),
            targets=np.full(n, IGNORE_INDEX, np.int64),
            rank=np.arange(n),
            position_ids=None if plain else np.array(self.depths, np.int64),
            features=() if plain else (PrefixTree(np.array(self.ends, np.int64)),),
        )


def share_prefixes(texts: Sequence[Sequence[int]], max_tokens: int, width: int) -> list[PrefixRow]:
    """Lay texts in rows, so that what several have in common at their beginning is there once.

    A text joins the row of the one before it, in lexicographic order, where this takes less than
    a row of its own: its shared tokens are saved, and each of the others may attend to, or is
    masked from, all tokens of the row.

    Args:
        texts: token ids; the order of the rows is not theirs.
        max_tokens: tokens of a row with several texts.
        width: of the network. A token takes the time of some `width` pairs of a query and a key:
            24 width^2 operations of a layer beside 4 width, of which a core does a sixth as many
            in the same time.
    """
    rows: list[PrefixRow] = []
    before: Sequence[int] = ()
    for i in sorted(range(len(texts)), key=lambda i: tuple(texts[i])):
        text = texts[i]
        n_shared = _n_shared(before, text)
        n_new = len(text) - n_shared
        held = len(rows[-1].token_ids) if rows else 0
        saves = n_shared * width > n_new * held
        if not saves or held + n_new > max_tokens:
            rows.append(PrefixRow())
            n_shared = 0
        rows[-1].add(i, text, n_shared)
        before = text
    return rows


def _n_shared(a: Sequence[int], b: Sequence[int]) -> int:
    """Count the tokens that two texts have in common at their beginning."""
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )
