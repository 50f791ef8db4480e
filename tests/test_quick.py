"""What is quick, and that types are checked with and without arrays."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
import torch
from beartype.roar import BeartypeCallHintParamViolation, BeartypeCallHintReturnViolation
from jaxtyping import Float, jaxtyped
from quick_cases import named
from torch import Tensor


def test_a_word_is_a_whole_id_or_stands_between_dashes() -> None:
    cases = ["0-t5", "1-t5", "0-t5 v1.1", "bert", "bert-base"]
    assert named(cases, ("t5",)) == {"0-t5", "1-t5"}
    assert named(cases, ("bert", "1-t5")) == {"bert", "1-t5"}
    assert not named(cases, ("gpt2",))


def test_shapes_and_other_types_are_checked() -> None:
    from beartype import beartype

    @jaxtyped(typechecker=beartype)
    def product(a: Float[Tensor, "n"], b: Float[Tensor, "n"]) -> Tensor:
        return a * b

    @jaxtyped(typechecker=beartype)
    def doubled(a: Float[Tensor, "n"], wrong: int = 0) -> Float[Tensor, "n"]:
        return torch.cat([a, a]) if wrong else 2 * a

    @jaxtyped(typechecker=beartype)
    @dataclass(frozen=True)
    class Pair:
        a: Float[Tensor, "n"]
        b: Float[Tensor, "n 2"]
        others: tuple[int, ...] = field(default_factory=tuple)

    @jaxtyped(typechecker=beartype)
    def rows(a: Float[Tensor, "n d"]) -> Iterator[Float[Tensor, "d"]]:
        yield from (doubled(row) for row in a)

    @jaxtyped(typechecker=beartype)
    def plain(a: int) -> int:
        return a

    assert product(torch.ones(2), torch.ones(2)).shape == (2,)
    with pytest.raises(BeartypeCallHintParamViolation):
        product(torch.ones(2), torch.ones(1))
    assert doubled(torch.ones(2)).shape == doubled(torch.ones(1)).repeat(2).shape
    with pytest.raises(BeartypeCallHintReturnViolation):
        doubled(torch.ones(2), 1)
    assert len(list(rows(torch.ones(3, 2)))) == 3
    assert Pair(torch.ones(2), torch.ones(2, 2)).others == ()
    with pytest.raises(BeartypeCallHintParamViolation):
        Pair(torch.ones(2), torch.ones(3, 2))
    with pytest.raises(BeartypeCallHintParamViolation):
        plain("a")  # pyright: ignore[reportArgumentType]
