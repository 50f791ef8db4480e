"""Features that objectives give to examples, and that models or their explanation read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int

from unmask.batch import IGNORE_INDEX, Batch, ExampleRows, Feature

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ShiftedTargets(Feature):
    """The target at i is the token that is read, if at all, at i + 1. Models do not read it."""

    column_fields: ClassVar[Mapping[str, int]] = {"is_shifted": 0}
    is_shifted: Bool[Any, "b t"] | None = None
    """In a batch, which positions have such a target."""

    @classmethod
    def collate(cls, rows: ExampleRows) -> Feature:
        """Mark all positions of each example that has it."""
        marks = rows.fill(lambda e: np.full(len(e.inputs), int(e.has(cls))), 0)
        return cls(marks.astype(bool))


@dataclass(frozen=True)
class TwoStream(Feature):
    """Targets are predicted without their own token.

    By a stream of queries that cannot see it (XLNet), or by two networks of which one has read the
    tokens before it and one those after it (ELMo).
    """

    @classmethod
    def collate(cls, rows: ExampleRows) -> Feature:
        """Return it, if all examples have it.

        Raises:
            ValueError: some have it and others do not.
        """
        if not all(example.has(cls) for example in rows.examples):
            raise ValueError(
                "examples that see their own token and two-stream ones do not fit one batch"
            )
        return cls()


@dataclass(frozen=True)
class PredictionOrder(Feature):
    """The order in which the targets of a text are predicted, each given those before it.

    Clark et al. 2022, arXiv:2103.06874, section 3.2.1.
    """

    column_fields: ClassVar[Mapping[str, int]] = {"order": 0}
    order: Int[Any, "*b t"]
    """From 0; without meaning where there is no target."""


@dataclass(frozen=True)
class WeightedTargets(Feature):
    """The loss of each target has a weight, and the mean is over tokens, with a target or not.

    Nie et al. 2025, arXiv:2502.09992, equation 3.
    """

    column_fields: ClassVar[Mapping[str, float]] = {"weight": 1.0}
    weight: Float[Any, "*b t"]
    """Without meaning where there is no target."""
    n_tokens: int
    """The tokens that the sum of weighted losses is divided by."""

    @classmethod
    def collate(cls, rows: ExampleRows) -> Feature:
        """Lay out the weights; targets of other examples weigh 1, and count themselves."""
        found = [(e, e.feature(cls)) for e in rows.examples]
        n = sum(
            int((e.targets != IGNORE_INDEX).sum()) if own is None else own.n_tokens
            for e, own in found
        )
        weights = {id(e): np.ones(len(e.inputs)) if own is None else own.weight for e, own in found}
        return cls(rows.fill(lambda e: weights[id(e)], 1.0), n)


@dataclass(frozen=True)
class SubwordTargets(Feature):
    """Targets that span several tokens (CANINE-S, ELMo). Not an input of models."""

    position_of: Int[np.ndarray, "t"]
    """For each token, the position of the target that spans it, or IGNORE_INDEX."""

    @classmethod
    def collate(cls, rows: ExampleRows) -> None:
        """Return nothing."""
        return


@dataclass(frozen=True)
class RandomTokens(Feature):
    """Random tokens in a source, in the place of others. Not an input of models."""

    columns: Int[np.ndarray, "r"]

    @classmethod
    def collate(cls, rows: ExampleRows) -> None:
        """Return nothing."""
        return


class RecurrenceMemory:
    """Hidden states of the segments before each row, to which every layer attends as well.

    Dai et al. 2019, arXiv:1901.02860, section 3.2: no gradient passes into them. A network that
    reads a batch with a memory adds the hidden states of the batch, for the next one, whose rows
    continue these.
    """

    def __init__(self, max_length: int) -> None:
        if max_length < 1:
            raise ValueError(f"a memory must have at least 1 place, got {max_length}")
        self.max_length = max_length
        """Maximum number of positions in the memory, the latest ones."""
        self.hidden_states: "list[Float[torch.Tensor, 'b m d']]" = []
        """What entered each layer."""

    def __len__(self) -> int:
        return self.hidden_states[0].shape[1] if self.hidden_states else 0

    def update(
        self, layer_index: int, x: "Float[torch.Tensor, 'b t d']", reuse_len: int | None = None
    ) -> "Float[torch.Tensor, 'b m d'] | None":
        """Return the memory of a layer, and add x to it, or its first `reuse_len` columns.

        Raises:
            ValueError: the memory has another number of rows.
        """
        import torch

        behind = self.hidden_states[layer_index] if layer_index < len(self.hidden_states) else None
        if behind is not None and len(behind) != len(x):
            raise ValueError(
                f"the memory is of {len(behind)} rows, but {len(x)} are to go on with it"
            )
        new = x.detach()[:, :reuse_len]
        new = new if behind is None else torch.cat((behind.to(new.dtype), new), 1)
        new = new[:, -self.max_length :]
        self.hidden_states[layer_index : layer_index + 1] = [new]
        return behind


@dataclass(frozen=True, kw_only=True)
class Recurrence(Feature):
    """Rows are pieces of streams, which are read with a memory of what stood before them.

    Dai et al. 2019, arXiv:1901.02860; LSTMs; Yang et al. 2019, arXiv:1906.08237, section 2.5.
    """

    memory: RecurrenceMemory | None = None
    """The memory of the rows, which reading changes. None: nothing stood before them."""
    reuse_len: int | None = None
    """The first columns, which see none of the others and alone enter the memory; the next piece
    continues them. None: all columns."""
    continues: bool | None = None
    """Whether rows continue those of the batch before. None: they are texts of their own."""
    reversed_rows: Bool[Any, "b"] | None = None
    """Rows whose columns are in reverse token order, so that the memory follows them. None: no
    rows."""

    @classmethod
    def collate(cls, rows: ExampleRows) -> Feature | None:
        """Return it if all examples have the same `reuse_len`."""
        found = [e.feature(cls) for e in rows.examples]
        lengths = {None if own is None else own.reuse_len for own in found}
        return cls(reuse_len=lengths.pop()) if len(lengths) == 1 else None

    def check(self, batch: Batch) -> None:
        """Check that `reversed_rows` has the rows of the batch.

        Raises:
            ValueError: it does not.
        """
        rows = self.reversed_rows
        if rows is not None and len(rows) != len(batch.inputs):
            raise ValueError(f"reversed_rows has {len(rows)} rows, inputs {len(batch.inputs)}")
