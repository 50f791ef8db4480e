"""Symbolic integration: learn which function has a given derivative.

    python examples/integration.py make | train | verify | all

Lample and Charton 2019, "Deep Learning for Symbolic Mathematics", arXiv:1912.01412: a random
function is differentiated, which is easy ("backward generation", section 4.1), and a Transformer
learns derivative -> function, both in prefix notation. An answer counts if its derivative is the
question: numbers at a few points refuse most wrong ones at once, and sympy decides the others.

Here functions are small (at most five operators; the paper: 15), a whole number is one word (the
paper: its digits), and all is made by a few rules of algebra below, which is faster than
by sympy; the tests hold them against it. The constant of integration is left out.
"""

import cmath
import math
import random
import re
import signal
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, TypeAlias, TypeVar

import sympy
from inverse import Pair, Problem, main

Tree: TypeAlias = Any
"""A number (int or Fraction), "x" or "e", or (kind, parts...): +, *, ^, names of functions."""
X, E = "x", "e"
HALF = Fraction(1, 2)
SIZES = 1, 2, 3, 4, 5
"""Numbers of operators, each drawn as often as it says: of few there are few functions."""
LONGEST = 40, 24
LARGEST = 99
UNARY = {"sqrt": 4, "square": 4, "cube": 2, "log": 4, "exp": 4, "sin": 4, "cos": 4, "tan": 4}
BINARY = {"add": 10, "sub": 3, "mul": 10, "div": 5}
"""How often each is drawn: the released code's defaults, without inverse and hyperbolic ones."""
Value = TypeVar("Value")


# Algebra: every tree is made by these, and so has like terms and like factors together.


def kind_of(tree: Tree) -> str:
    """Return the kind of a tree; of x and e their names."""
    return tree[0] if isinstance(tree, str | tuple) else "number"


def parts(tree: Tree, kind: str) -> tuple[Tree, ...]:
    """List the terms of a sum (+) or the factors of a product (*); of others, the tree itself."""
    return tree[1:] if kind_of(tree) == kind else (tree,)


def join(kind: str, found: Sequence[Tree], empty: int) -> Tree:
    """Make a sum or product of parts that have nothing in common, in a fixed order."""
    if len(found) < 2:
        return found[0] if found else empty
    return (kind, *sorted(found, key=lambda one: (kind_of(one) != "number", words(one))))


def split(tree: Tree) -> tuple[Any, Any]:
    """Part the number of a product from the rest."""
    if kind_of(tree) == "number":
        return tree, 1
    first, *rest = parts(tree, "*")
    return (first, join("*", rest, 1)) if kind_of(first) == "number" else (1, tree)


def add(*terms: Tree) -> Tree:
    """Sum trees: like terms are counted."""
    numbers: dict[Tree, Any] = {}
    for term in terms:
        for part in parts(term, "+"):
            number, rest = split(part)
            numbers[rest] = numbers.get(rest, 0) + number
    return join("+", [multiply(n, rest) for rest, n in numbers.items() if n], 0)


def multiply(*factors: Tree) -> Tree:
    """Multiply trees: exponents of like bases are summed, and a number goes into a lone sum."""
    number, exponents = 1, dict[Tree, Tree]()
    for factor in factors:
        for part in parts(factor, "*"):
            if kind_of(part) == "number":
                number *= part
            else:
                base, exponent = part[1:] if kind_of(part) == "^" else (part, 1)
                exponents[base] = add(exponents.get(base, 0), exponent)
    if not number:
        return 0
    made = [power(base, exponent) for base, exponent in exponents.items()]
    if any(kind_of(one) in ("number", "*") for one in made):
        return multiply(number, *made)
    if len(made) == 1 and kind_of(made[0]) == "+":
        return made[0] if number == 1 else add(*(multiply(number, term) for term in made[0][1:]))
    return join("*", [*([] if number == 1 else [number]), *made], 1)


def power(base: Tree, exponent: Tree) -> Tree:
    """Raise a tree to a power, of which only whole ones go into products and powers.

    Raises:
        ValueError: it is a root of a negative number.
        ZeroDivisionError: it is a negative power of 0.
    """
    if exponent in (0, 1) or base == 1:
        return 1 if exponent == 0 else base
    number, rest = split(exponent)
    plain = kind_of(rest) == "number"
    whole = plain and number.denominator == 1
    if kind_of(base) == "number":
        return _of_number(base, number) if plain else ("^", base, exponent)
    if whole and kind_of(base) == "^":
        return power(base[1], multiply(base[2], number))
    if whole and kind_of(base) == "*":
        return multiply(*(power(factor, number) for factor in base[1:]))
    if base == E and kind_of(rest) == "log":
        return power(rest[1], number)
    return "^", base, exponent


def _of_number(base: Any, exponent: Any) -> Tree:
    if exponent.denominator == 1:
        found = Fraction(base) ** int(exponent)
        return int(found) if found.denominator == 1 else found
    if base <= 0:
        raise ValueError(f"a root of {base}")
    root = Fraction(math.isqrt(base.numerator), math.isqrt(base.denominator))
    exact = exponent.denominator == 2 and root * root == base
    return root**exponent.numerator if exact else ("^", base, exponent)


def apply(name: str, inside: Tree) -> Tree:
    """Apply a function to a tree.

    Raises:
        ValueError: it is the logarithm of a number that has none.
    """
    exponents = {"exp": (E, inside), "sqrt": (inside, HALF)}
    exponents |= {"square": (inside, 2), "cube": (inside, 3)}
    if name in exponents:
        return power(*exponents[name])
    number = kind_of(inside) == "number"
    if name == "log" and number and inside <= 0:
        raise ValueError(f"log {inside}")
    if name == "log" and inside in (1, E):
        return 0 if inside == 1 else 1
    if name == "log" and kind_of(inside) == "^" and inside[1] == E:
        return inside[2]
    if name != "log" and inside == 0:
        return 1 if name == "cos" else 0
    return name, inside


def derivative(tree: Tree) -> Tree:
    """Differentiate by x."""
    if not isinstance(tree, tuple):
        return 1 if tree == X else 0
    kind, *inside = tree
    if kind == "+":
        return add(*map(derivative, inside))
    if kind == "*":
        each = enumerate(inside)
        return add(*(multiply(*inside[:i], derivative(f), *inside[i + 1 :]) for i, f in each))
    if kind == "^" and inside[0] == E:
        return multiply(tree, derivative(inside[1]))
    (argument, *exponent) = inside
    if kind == "^":
        less = add(exponent[0], -1)
        return multiply(exponent[0], power(argument, less), derivative(argument))
    outer: Mapping[str, Callable[[], Tree]] = {
        "log": lambda: power(argument, -1),
        "sin": lambda: apply("cos", argument),
        "cos": lambda: multiply(-1, apply("sin", argument)),
        "tan": lambda: add(1, power(tree, 2)),
    }
    return multiply(outer[kind](), derivative(argument))


@lru_cache(maxsize=100_000)
def words(tree: Tree) -> tuple[str, ...]:
    """Write a tree in prefix notation."""
    if kind_of(tree) == "number":
        whole = tree.denominator == 1
        return (str(tree),) if whole else ("div", str(tree.numerator), str(tree.denominator))
    if isinstance(tree, str):
        return (tree,)
    kind, first, *more = tree
    if kind in "+*":
        rest = words(more[0] if len(more) == 1 else (kind, *more))
        return ("add" if kind == "+" else "mul", *words(first), *rest)
    if kind != "^":
        return kind, *words(first)
    if first == E:
        return "exp", *words(more[0])
    return ("sqrt", *words(first)) if more[0] == HALF else ("pow", *words(first), *words(more[0]))


# Random functions, and pairs of them.


@cache
def ways(positions: int, operators: int) -> int:
    """Count the trees with so many operators that can stand at so many empty places.

    Appendix C.2: a place holds a leaf, a unary operator with one place below it, or a binary one
    with two.
    """
    if positions == 0 or operators == 0:
        return operators == 0
    fewer = operators - 1
    return ways(positions - 1, operators) + ways(positions, fewer) + ways(positions + 1, fewer)


def expression(rng: random.Random, operators: int) -> list[str]:
    """Draw an expression in prefix notation, of a tree of any shape alike.

    Places are filled from left to right, each by the share of trees that have this there, which is
    the distribution of appendix C.3.
    """
    drawn: list[str] = []
    positions = 1
    while positions:
        fewer = operators - 1
        leaf = ways(positions - 1, operators)
        unary, binary = (ways(n, fewer) if operators else 0 for n in (positions, positions + 1))
        (kind,) = rng.choices((0, 1, 2), (leaf, unary, binary))
        if kind == 0:
            drawn.append(X if rng.random() < 0.75 else str(rng.randint(1, 5)))
        else:
            among = UNARY if kind == 1 else BINARY
            drawn += rng.choices(list(among), list(among.values()))
        positions, operators = positions - 1 + kind, operators - (kind > 0)
    return drawn


def algebra(word: str, *inside: Tree) -> Tree:
    """Make the tree of a word of an expression, and of those below it."""
    if not inside:
        return X if word == X else int(word)
    if word in UNARY:
        return apply(word, *inside)
    first, second = inside
    if word in ("add", "sub"):
        return add(first, second if word == "add" else multiply(-1, second))
    return multiply(first, second if word == "mul" else power(second, -1))


def draw(rng: random.Random) -> Pair | None:
    """Draw a function without the constant that its derivative does not tell; differentiate it."""
    try:
        drawn = read(expression(rng, rng.choices(SIZES, SIZES)[0]), algebra)
    except (ValueError, ZeroDivisionError):
        return None
    answer = join("+", [t for t in parts(drawn, "+") if derivative(t) != 0], 0)
    pair = words(derivative(answer)), words(answer)
    small = all(len(side) <= most for side, most in zip(pair, LONGEST, strict=True))
    if not small or answer == 0 or any(_large(word) for side in pair for word in side):
        return None
    return " ".join(pair[0]), " ".join(pair[1])


def _large(word: str) -> bool:
    return word.lstrip("-").isdecimal() and abs(int(word)) > LARGEST


# Verification.

ARITY = dict.fromkeys((*UNARY, "square", "cube"), 1) | dict.fromkeys((*BINARY, "pow"), 2)
WHOLE = re.compile(r"-?[0-9]{1,4}")
POINTS = 0.31 + 0.17j, 0.83 - 0.29j, 1.27 + 0.41j, 1.91 - 0.13j, 2.43 + 0.37j, 0.57 + 0j
"""Where numbers are compared: off the negative axis, where logarithms and roots jump."""
SECONDS = 10


def read(output: Sequence[str], meaning: Callable[..., Value]) -> Value:
    """Read prefix notation from its end; `meaning` is given a word and what stands below it.

    Raises:
        ValueError: it is no expression.
    """
    values: list[Value] = []
    for word in reversed(output):
        if word not in ARITY and word not in (X, E) and not WHOLE.fullmatch(word):
            raise ValueError(f"not a word of an expression: {word!r}")
        n = ARITY.get(word, 0)
        if len(values) < n:
            raise ValueError(f"{word} lacks an argument")
        values.append(meaning(word, *(values.pop() for _ in range(n))))
    if len(values) != 1:
        raise ValueError(f"{len(values)} expressions, not one")
    return values[0]


def value(output: Sequence[str], x: complex) -> complex:
    """Compute an expression.

    Raises:
        ValueError: it is none, or is not defined there.
        ArithmeticError: as ValueError; or numbers in it are too large to be handled.
    """

    def raised(base: complex, exponent: complex) -> complex:
        if abs(exponent) > 50:  # sympy, which comes next, would write out such powers of numbers
            raise OverflowError(f"an exponent of {exponent}")
        return base**exponent

    binary: dict[str, Callable[[complex, complex], complex]] = {
        "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
        "div": lambda a, b: a / b, "pow": raised,
    }  # fmt: skip

    def meaning(word: str, *inside: complex) -> complex:
        if not inside:
            found = {X: x, E: cmath.e}.get(word)
            found = complex(int(word)) if found is None else found
        elif len(inside) == 2:
            found = binary[word](*inside)
        elif word in ("square", "cube"):
            found = inside[0] ** (2 if word == "square" else 3)
        else:
            found = getattr(cmath, word)(inside[0])
        if not abs(found) < 1e30:
            raise OverflowError(f"{found}")
        return found

    return read(output, meaning)


def formula(output: Sequence[str]) -> sympy.Expr:
    """Read an expression into sympy."""

    def meaning(word: str, *inside: Any) -> Any:
        if not inside:
            return {X: sympy.Symbol("x"), E: sympy.E}.get(word) or sympy.Integer(int(word))
        binary: dict[str, Callable[[Any, Any], Any]] = {
            "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
            "div": lambda a, b: a / b, "pow": lambda a, b: a**b,
        }  # fmt: skip
        if len(inside) == 2:
            return binary[word](*inside)
        if word in ("square", "cube"):
            return inside[0] ** (2 if word == "square" else 3)
        return getattr(sympy, word)(*inside)

    return read(output, meaning)


def differs(question: Sequence[str], answer: Sequence[str], step: float = 1e-5) -> bool:
    """Say whether the answer's slope is another number than the question somewhere.

    Also if both are defined at fewer than three of the points.
    """
    compared = 0
    for x in POINTS:
        try:
            expected = value(question, x)
            slope = (value(answer, x + step) - value(answer, x - step)) / (2 * step)
        except (ValueError, ArithmeticError):
            continue
        if abs(slope - expected) > 1e-4 * max(1, abs(expected)):
            return True
        compared += 1
    return compared < 3


class OutOfTimeError(BaseException):
    """Of no kind that sympy would catch."""


@contextmanager
def limited(seconds: float) -> Generator[None, None, None]:
    """Stop what takes longer; where there are no such alarms (Windows), nothing is stopped."""
    alarms = hasattr(signal, "SIGALRM") and threading.current_thread() is threading.main_thread()

    def stop(*_: object) -> None:
        raise OutOfTimeError

    if not alarms:
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def right(question: str, answer: str) -> bool | None:
    """Say whether the derivative of the answer is the question.

    None: numbers agree at all points, but sympy does not find that the difference is zero.
    """
    asked, output = question.split(), answer.split()
    try:
        read(output, lambda word, *inside: 0)
    except ValueError:
        return False
    if len(output) > 2 * LONGEST[1] or differs(asked, output):
        return False
    try:
        with limited(SECONDS):
            difference = sympy.diff(formula(output), sympy.Symbol("x")) - formula(asked)
            return True if sympy.simplify(difference) == 0 else None
    except OutOfTimeError:
        return None


PROBLEM = Problem(
    name="integration", draw=draw, right=right, pairs=200_000, longest=LONGEST, epochs=1
)

if __name__ == "__main__":
    main(PROBLEM, str(__doc__))
