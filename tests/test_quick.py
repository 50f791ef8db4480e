"""What is quick, and that types are checked with and without arrays."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import checked_types
import numpy as np
import pytest
import torch
from beartype import beartype
from beartype.roar import BeartypeCallHintParamViolation, BeartypeCallHintReturnViolation
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Float, Int, Shaped, TypeCheckError, jaxtyped
from numpy import ndarray as Array
from quick_cases import named, spread
from torch import Tensor


def test_quick_word_matches_whole_ids_or_parts_between_dashes() -> None:
    cases = ["0-t5", "1-t5", "0-t5 v1.1", "bert", "bert-base"]
    assert named(cases, ("t5",)) == {"0-t5", "1-t5"}
    assert named(cases, ("bert", "1-t5")) == {"bert", "1-t5"}
    assert not named(cases, ("gpt2",))


def test_sample_is_spread_over_all_cases() -> None:
    cases = [str(i) for i in range(10)]
    assert spread(cases, 3) == {"0", "3", "6"}
    assert spread(cases, 10) == spread(cases, 99) == set(cases)


def test_shapes_and_other_types_are_checked() -> None:
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
    with pytest.raises(TypeCheckError):
        product(torch.ones(2), torch.ones(1))
    assert doubled(torch.ones(2)).shape == doubled(torch.ones(1)).repeat(2).shape
    with pytest.raises(TypeCheckError):
        doubled(torch.ones(2), 1)
    assert len(list(rows(torch.ones(3, 2)))) == 3
    assert Pair(torch.ones(2), torch.ones(2, 2)).others == ()
    with pytest.raises(TypeCheckError):
        Pair(torch.ones(2), torch.ones(3, 2))
    with pytest.raises(BeartypeCallHintParamViolation):
        plain("a")  # pyright: ignore[reportArgumentType]


@jaxtyped(typechecker=beartype)
def power(base: int, *, exponent: int = 2) -> int:
    return base**exponent if exponent >= 0 else "none"  # pyright: ignore[reportReturnType]


@jaxtyped(typechecker=beartype)
def pair_with(n: int, other: Any) -> Any:
    return n, other


@jaxtyped(typechecker=beartype)
def same(value: Any) -> Any:
    return value


def test_module_functions_are_checked_at_first_and_later_calls() -> None:
    for _ in range(2):
        with pytest.raises(BeartypeCallHintParamViolation):
            power("a")  # pyright: ignore[reportArgumentType]
        with pytest.raises(BeartypeCallHintParamViolation):
            pair_with("a", 1)  # pyright: ignore[reportArgumentType]
        with pytest.raises(BeartypeCallHintReturnViolation):
            power(3, exponent=-1)
        assert (power(3), power(base=3, exponent=3)) == (9, 27)
        assert (pair_with(1, "a"), same("a"), same(value=1)) == ((1, "a"), "a", 1)
    assert power.__name__ == power.__wrapped__.__name__ == "power"


def test_unresolvable_quoted_type_is_any() -> None:
    @jaxtyped(typechecker=beartype)
    def first(items: "list[Nowhere]", others: list["Nowhere"]) -> int:
        return items[0] + others[0]

    assert first([1], [2]) == 3


def test_nested_function_is_checked_at_each_definition() -> None:
    def adder(n: int) -> Callable[[int], int]:
        @jaxtyped(typechecker=beartype)
        def add(a: int, *, twice: bool = False) -> int:
            return a + n * (1 + twice)

        return add

    one, two = adder(1), adder(2)
    assert [one(1), two(1), adder(3)(1), two(1, twice=True)] == [2, 3, 4, 5]
    for add in (one, two):
        with pytest.raises(BeartypeCallHintParamViolation):
            add("a")  # pyright: ignore[reportArgumentType]


def test_shape_symbols_bind_across_arguments() -> None:
    @jaxtyped(typechecker=beartype)
    def agree(a: Int[Array, "n 2"], b: Float[Tensor, "n _"], c: Shaped[Tensor, "n n"]) -> None: ...

    a, b, c = np.zeros((3, 2), np.int64), torch.ones(3, 5), torch.ones(3, 3, dtype=torch.int8)
    agree(a, b, c)
    for wrong in (
        (a[:, :1], b, c),  # a fixed size
        (a[0], b, c),  # the number of dimensions
        (a, b[1:], c),  # a size that another has
        (a, b, c[:, :2]),  # the same within one
        (a / 1, b, c),  # the type of its numbers
        (a, b.long(), c),
        (torch.tensor(a), b, c),  # the type of array
    ):
        with pytest.raises(TypeCheckError):
            agree(*wrong)


def test_first_calls_of_each_test_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    @jaxtyped(typechecker=beartype)
    def sums(a: Float[Tensor, "n"]) -> float:
        return a.sum().item()

    monkeypatch.setattr(checked_types._Checked, "calls", 2)
    for _ in range(2):
        checked_types.begin_test()
        for _ in range(2):
            with pytest.raises(TypeCheckError):
                sums(torch.ones(2, 2))
        assert sums(torch.ones(2, 2)) == 4


EXAMPLES: list[int] = []


@given(st.integers())
@settings(max_examples=40, database=None)
def test_property_draws_examples(n: int) -> None:
    EXAMPLES.append(n)


def test_property_has_fewer_examples_without_slow_tests(request) -> None:
    if EXAMPLES:  # the test before this one ran in the same process
        quick = "not slow" in request.config.option.markexpr
        assert len(EXAMPLES) == (25 if quick else 40)


def test_quick_suite_draws_the_same_examples_each_run(request) -> None:
    quick = "not slow" in request.config.option.markexpr
    output = test_property_draws_examples._hypothesis_internal_use_settings
    assert output.derandomize == settings.default.derandomize == quick
