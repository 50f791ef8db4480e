"""Scores of some tokens of the vocabulary."""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Int

from unmask.batch import ExampleRows, Feature


@dataclass(frozen=True)
class Candidates(Feature):
    """The tokens of which each target is one, and which alone are scored."""

    ids: Int[Any, "k"]

    @classmethod
    def collate(cls, rows: ExampleRows) -> Feature | None:
        """Return them.

        Raises:
            ValueError: examples have different ones.
        """
        found = [e.feature(cls) for e in rows.examples]
        if len({None if own is None else own.ids.tobytes() for own in found}) > 1:
            raise ValueError("examples with different candidate_ids do not fit one batch")
        return found[0]
