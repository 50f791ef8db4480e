"""What differs between the layers of a stack."""

from collections.abc import Sequence
from typing import TypeVar

ValueT = TypeVar("ValueT")


def select_cyclic(values: tuple[ValueT, ...], indices: Sequence[int]) -> tuple[ValueT, ...]:
    """Return the values of some layers, where values are repeated cyclically; the shortest cycle.

    >>> select_cyclic((None, 64), (0, 2, 4)), select_cyclic((1, 2, 3), (0, 1, 2, 4))
    ((None,), (1, 2, 3, 2))
    """
    found = tuple(values[i % len(values)] for i in indices) if values else ()
    fits = (n for n in range(1, len(found)) if all(x == found[i % n] for i, x in enumerate(found)))
    return found[: next(fits, len(found))]
