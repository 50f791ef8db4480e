"""The algebra is sympy's, and answers are verified: right ones in any form, and no wrong ones."""

import contextlib
import random
import time
from collections import Counter
from itertools import pairwise

import pytest
import sympy
from integration import (
    ARITY,
    POINTS,
    algebra,
    differs,
    draw,
    expression,
    formula,
    limited,
    read,
    right,
    value,
    ways,
    words,
)

X = sympy.Symbol("x")
rng = random.Random(0)
PAIRS = list(dict.fromkeys(pair for _ in range(60) if (pair := draw(rng)) is not None))


@pytest.mark.parametrize("pair", PAIRS[:25])
def test_derivatives_equal_sympy(pair: tuple[str, str]) -> None:
    question, answer = (formula(side.split()) for side in pair)
    assert sympy.simplify(sympy.diff(answer, X) - question) == 0


@pytest.mark.parametrize("seed", range(40))
def test_simplification_keeps_the_value(seed: int) -> None:
    drawn = expression(random.Random(seed), 5)
    try:
        simple = words(read(drawn, algebra))
    except (ValueError, ZeroDivisionError):
        return
    compared = 0
    for x in POINTS:
        with contextlib.suppress(ArithmeticError, ValueError):
            expected = value(drawn, x)
            assert abs(value(simple, x) - expected) <= 1e-6 * max(1, abs(expected))
            compared += 1
    assert compared


def test_pairs_are_small_and_without_constant_terms() -> None:
    assert len(PAIRS) > 30
    for question, answer in PAIRS:
        assert len(question.split()) <= 40
        assert len(answer.split()) <= 24
        assert all(term.has(X) for term in sympy.Add.make_args(formula(answer.split())))


def test_prefix_notation_equals_sympy() -> None:
    output = "add mul -3 pow x 2 mul div 1 2 exp sin x"
    assert formula(output.split()) == -3 * X**2 + sympy.exp(sympy.sin(X)) / 2
    assert formula(["mul", "e", "sqrt", "log", "x"]) == sympy.E * sympy.sqrt(sympy.log(X))


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("mul 2 x", "pow x 2"),
        ("mul 2 x", "add 7 mul x x"),
        ("pow x -1", "log mul 5 x"),
        ("mul 2 mul sin x cos x", "pow sin x 2"),
        ("mul 2 mul sin x cos x", "mul -1 pow cos x 2"),
        ("add 1 pow tan x 2", "div sin x cos x"),
        ("mul div 1 2 pow x div -1 2", "sqrt x"),
    ],
)
def test_any_form_of_a_correct_answer_counts(question: str, answer: str) -> None:
    assert right(question, answer) is True


@pytest.mark.parametrize(
    "answer",
    [
        "", "x", "pow x", "pow x 2 3", "pow x 3", "mul pow x 2", "1", "y", "<unk>", "pow x 2.0",
        "add pow x 2 div 1 0", "add pow x 2 div x 99", "import os", "add pow x 2 log 0",
        "pow 9 pow 9 pow 9 9", "pow 2 mul -1 pow 9 pow 9 9", " ".join(["sqrt"] * 200 + ["x"]),
    ],
)  # fmt: skip
def test_malformed_answer_is_refused_quickly(answer: str) -> None:
    started = time.perf_counter()
    assert right("mul 2 x", answer) is False
    assert time.perf_counter() - started < 5


def test_answers_to_other_questions_differ_numerically() -> None:
    for (question, _), (_, other) in pairwise(PAIRS):
        assert differs(question.split(), other.split())


def test_slow_verification_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("integration.SECONDS", 0.05)
    monkeypatch.setattr(sympy, "simplify", lambda _: time.sleep(5))
    assert right("mul 2 x", "pow x 2") is None
    with limited(10):
        pass


def test_tree_shapes_are_equally_likely() -> None:
    assert [ways(1, n) for n in range(4)] == [1, 2, 6, 22]
    generator = random.Random(0)
    drawn = [expression(generator, 2) for _ in range(6000)]
    shapes = Counter("".join(str(ARITY.get(word, 0)) for word in one) for one in drawn)
    assert len(shapes) == 6
    assert all(850 < n < 1150 for n in shapes.values())
