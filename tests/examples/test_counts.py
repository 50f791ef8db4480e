"""Counts of real text, and texts that have them."""

import random

import pytest
from counts import LONGEST, SHORTEST, count, draw, pieces, right


def test_counts_of_a_text() -> None:
    assert count("the cat's tail") == "words=3 letters=11 c=1 t=2"
    assert count("") == "words=0 letters=0"


@pytest.mark.thorough
def test_pieces_are_short_and_unique() -> None:
    found = pieces()
    assert len(found) > 30_000
    assert len(set(found)) == len(found)
    assert all(SHORTEST <= len(piece.split()) <= LONGEST for piece in found)
    assert len({word for piece in found for word in piece.split()}) <= 2000


def test_generated_pairs_are_correct() -> None:
    rng = random.Random(0)
    assert all(right(*draw(rng)) for _ in range(100))


@pytest.mark.parametrize(
    ("text", "as_asked"),
    [
        ("she ran to me", True),
        ("to me she ran", True),
        ("she met tom rat", False),
        ("she ran to me there", False),
        ("", False),
        ("<unk> <unk>", False),
    ],
)
def test_text_is_correct_if_its_counts_match(text: str, as_asked: bool) -> None:
    assert right("words=4 letters=10 m=1 r=1 s=1 t=1", text) is as_asked
