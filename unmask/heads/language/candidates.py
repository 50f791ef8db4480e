"""Restriction of the output vocabulary to some tokens."""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Int

from unmask.batch import ExampleRows, Feature


@dataclass(frozen=True)
class Candidates(Feature):
    """The only tokens that are scored; every target is one of them."""

    ids: Int[Any, "k"]

    @classmethod
    def collate(cls, rows: ExampleRows) -> Feature | None:
        """Return the candidates of all examples.

        Raises:
            ValueError: they differ between examples.
        """
        features = [e.feature(cls) for e in rows.examples]
        if len({None if own is None else own.ids.tobytes() for own in features}) > 1:
            raise ValueError("examples with different candidate_ids do not fit one batch")
        return features[0]
