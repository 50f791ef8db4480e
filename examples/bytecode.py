"""Decompilation: learn which Python function has a given bytecode.

    python examples/bytecode.py make | train | verify | all      # --easy: learn to compile instead

A random function is compiled by Python itself, which is easy, and a Transformer learns bytecode ->
source; for native code, Katz et al. 2019, "Towards Neural Decompilation", arXiv:1905.08325. An
answer counts if it compiles to the question, whatever its variables are called: constants that
the compiler folds, or an `else` that it does not need, make several sources of one bytecode.

What a model says is compiled, never run. The text is at most twice as long as any that is learned,
and whatever the compiler raises makes it wrong. Bytecode differs with the version of Python: make,
train and verify with the same one.
"""

import ast
import dis
import random
import warnings
from collections.abc import Iterator
from types import CodeType

from inverse import Pair, Problem, main

LETTERS = "abcdefghij"
FUNCTIONS = {"abs": 1, "min": 2, "max": 2}
"""That are called, and of how many arguments."""
OPERATORS = "+", "-", "*", "//", "%"
COMPARISONS = "<", "<=", ">", ">=", "==", "!="
LONGEST = 64, 80
UNSAID = {"RESUME", "EXTENDED_ARG", "CACHE", "PRECALL"}
"""Instructions of which others tell all."""


# Sources are words: { and } stand around an indented block, and ; ends a line.


def source(words: str) -> str:
    """Write words as Python."""
    text, indent = "", 0
    for word in words.split():
        if word == "}":
            indent -= 1
        elif text.endswith("\n"):
            text += "    " * indent
        indent += word == "{"
        text += {"{": ":\n", ";": "\n", "}": ""}.get(word, word + " ")
    return text


def function(rng: random.Random) -> str:
    """Draw a function in words; each new variable has the next letter."""
    names = list(LETTERS[: rng.randint(1, 3)])
    head = ["def f (", " , ".join(names), ") {"]
    body = [word for _ in range(rng.randint(0, 2)) for word in _statement(rng, names, 1)]
    return " ".join([*head, *body, "return", *_expression(rng, names, 2), ";", "}"])


def _statement(rng: random.Random, names: list[str], depth: int) -> Iterator[str]:
    kind = rng.choice(
        ("assign", "assign", "change", "if", "else", "while") if depth else ("assign",)
    )
    if kind == "assign":
        value = list(_expression(rng, names, 2))
        name = rng.choice([*names, LETTERS[len(names)]])
        names += [name] if name not in names else []
        yield from (name, "=", *value, ";")
    elif kind == "change":
        yield from (
            rng.choice(names),
            rng.choice(("+=", "-=", "*=")),
            *_expression(rng, names, 1),
            ";",
        )
    else:
        yield "while" if kind == "while" else "if"
        yield from (*_expression(rng, names, 1), rng.choice(COMPARISONS))
        yield from (*_expression(rng, names, 0), "{", *_block(rng, names), "}")
        if kind == "else":
            yield from ("else", "{", *_block(rng, names), "}")


def _block(rng: random.Random, names: list[str]) -> Iterator[str]:
    if rng.random() < 0.25:
        yield from ("return", *_expression(rng, names, 1), ";")
    else:
        yield from _statement(rng, names, 0)


def _expression(rng: random.Random, names: list[str], depth: int) -> Iterator[str]:
    kind = rng.choice(
        ("leaf", "leaf", "binary", "binary", "call", "negative") if depth else ("leaf",)
    )
    if kind == "leaf":
        yield rng.choice(names) if rng.random() < 0.7 else str(rng.randint(0, 9))
    elif kind == "negative":
        yield from ("-", rng.choice(names))
    elif kind == "call":
        name = rng.choice(list(FUNCTIONS))
        yield from (name, "(", *_expression(rng, names, depth - 1))
        for _ in range(FUNCTIONS[name] - 1):
            yield from (",", *_expression(rng, names, depth - 1))
        yield ")"
    else:
        for i in range(2):
            inside = list(_expression(rng, names, depth - 1))
            yield from inside if len(inside) == 1 else ("(", *inside, ")")
            if i == 0:
                yield rng.choice(OPERATORS)


# The easy direction, and verification.


def compiled(words: str) -> CodeType:
    """Compile a function, which is not run.

    Raises:
        ValueError: the words are no function, or no compiler would take them.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that an answer calls a number, for instance
            tree = ast.parse(source(words))
            if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef):
                raise ValueError("not one function")
            module = compile(tree, "<answer>", "exec", dont_inherit=True)
    except (SyntaxError, RecursionError, MemoryError, OverflowError) as error:
        raise ValueError(f"not compiled: {error}") from None
    return next(code for code in module.co_consts if isinstance(code, CodeType))


def listing(code: CodeType) -> str:
    """Write bytecode, an instruction a word; variables have letters by their numbers."""
    n = code.co_nlocals
    code = code.replace(co_varnames=tuple(f"v{i}" if i >= 10 else LETTERS[i] for i in range(n)))
    found = [one for one in dis.get_instructions(code) if one.opname not in UNSAID]
    jumps = {*dis.hasjrel, *dis.hasjabs}
    targets = sorted({int(one.argval) for one in found if one.opcode in jumps})
    labels = {offset: f"L{i}" for i, offset in enumerate(targets)}
    output = [f"arguments:{code.co_argcount}"]
    for one in found:
        if one.offset in labels:
            output.append(labels[one.offset])
        if one.opcode in jumps:
            output.append(f"{one.opname}:{labels[int(one.argval)]}")
        elif one.arg is None:
            output.append(one.opname)
        else:
            output.append(f"{one.opname}:{one.argrepr.replace(' ', '') or one.arg}")
    return " ".join(output)


def draw(rng: random.Random) -> Pair | None:
    """Draw a function and compile it."""
    answer = function(rng)
    question = listing(compiled(answer))
    sides = (question, answer)
    long = any(len(side.split()) > most for side, most in zip(sides, LONGEST, strict=True))
    return None if long else sides


def right(question: str, answer: str) -> bool:
    """Say whether the answer compiles to the question."""
    if len(answer.split()) > 2 * LONGEST[1]:
        return False
    try:
        return listing(compiled(answer)) == question
    except ValueError:
        return False


PROBLEM = Problem(name="bytecode", draw=draw, right=right, pairs=80_000, longest=LONGEST, epochs=1)

if __name__ == "__main__":
    main(PROBLEM, str(__doc__))
