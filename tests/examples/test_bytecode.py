"""Sources and bytecode: what Python compiles alike is right, whatever it is called."""

import random

import pytest
from bytecode import LONGEST, compiled, draw, function, listing, right, source

rng = random.Random(0)
PAIRS = list(dict.fromkeys(pair for _ in range(80) if (pair := draw(rng)) is not None))


def test_token_sequences_decode_to_python_source() -> None:
    output = (
        "def f ( a ) { while a < 3 { a += 1 ; } if a { return 0 ; } else { b = a ; } return b ; }"
    )
    assert source(output).splitlines() == [
        "def f ( a ) :",
        "    while a < 3 :",
        "        a += 1 ",
        "    if a :",
        "        return 0 ",
        "    else :",
        "        b = a ",
        "    return b ",
    ]


def test_pairs_are_correct_and_unambiguous() -> None:
    assert len(PAIRS) > 50
    questions = [question for question, _ in PAIRS]
    for i, (question, answer) in enumerate(PAIRS):
        assert len(question.split()) <= LONGEST[0]
        assert len(answer.split()) <= LONGEST[1]
        assert right(question, answer)
        assert not right(questions[i - 1], answer) or questions[i - 1] == question


def test_variables_are_lettered_in_order() -> None:
    for seed in range(50):
        names = compiled(function(random.Random(seed))).co_varnames
        assert list(names) == list("abcdefghij"[: len(names)])


@pytest.mark.parametrize(
    ("answer", "same"),
    [
        ("def f ( a , b ) { c = a + 6 ; return c * b ; }", True),
        ("def g ( x , y ) { z = x + 2 * 3 ; return z * y ; }", True),
        ("def f ( b , a ) { c = b + 6 ; return c * a ; }", True),
        ("def f ( a , b ) { c = a + 7 ; return c * b ; }", False),
        ("def f ( a , b ) { c = a + 6 ; return b * c ; }", False),
        ("def f ( a , b , d ) { c = a + 6 ; return c * b ; }", False),
        ("def f ( a , b ) { return ( a + 6 ) * b ; }", False),
    ],
)
def test_equal_bytecode_is_correct_whatever_the_names(answer: str, same: bool) -> None:
    question = listing(compiled("def f ( a , b ) { c = a + 6 ; return c * b ; }"))
    assert right(question, answer) is same


@pytest.mark.parametrize(
    "answer",
    [
        "", "}", "{ } } ;", "return 1 ;", "a = 1 ;", "def f ( a ) {", "<unk>", "\0",
        "def f ( a ) { return a ; } f ( 1 ) ;",
        "def f ( a ) { return " + "( " * 120 + "a ; }",
        "def f ( a ) { return " + "- " * 120 + "a ; }",
        "def f ( a ) { return " + "9 ** " * 60 + "9 ; }",
        "def f ( a ) { return a ; }" + " ;" * 500,
    ],
)  # fmt: skip
def test_malformed_function_is_wrong(answer: str) -> None:
    assert not right("arguments:1 LOAD_FAST:a RETURN_VALUE:x", answer)


def test_generated_code_is_never_executed() -> None:
    """Not even what stands around a function, where Python would run it on import."""
    for answer in ("def f ( a = 1 // 0 ) { return a ; }", "@ quit\ndef f ( a ) { return a ; }"):
        assert not right("arguments:0 RETURN_VALUE", answer)
