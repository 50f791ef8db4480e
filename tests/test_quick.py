"""What is quick, and that types are checked with and without arrays."""

import pytest
import torch
from beartype.roar import BeartypeCallHintParamViolation
from jaxtyping import Float, TypeCheckError, jaxtyped
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
    def plain(a: int) -> int:
        return a

    assert product(torch.ones(2), torch.ones(2)).shape == (2,)
    with pytest.raises(TypeCheckError):
        product(torch.ones(2), torch.ones(1))
    with pytest.raises(BeartypeCallHintParamViolation):
        plain("a")  # pyright: ignore[reportArgumentType]
