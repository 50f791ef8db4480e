"""Text that keeps counts: learn to write words of which as many are of each kind as asked for.

    python examples/counts.py make | train | verify | all

To count the words of a text, its letters, and with which letters its words begin is easy; to write
a text of given counts is hard. A Transformer learns counts -> text from real text, and an answer
counts if its own counts are the question: there are many right ones, and most are in no file. After
Ficler and Goldberg 2017, "Controlling Linguistic Style Aspects in Neural Language Generation",
arXiv:1707.02633, whose texts have given lengths and styles.

The text: what stands between punctuation in the bundled novels, in lower case, 3 to 10 words that
are all among the 2,000 most frequent ones. Put another path into TEXT for another text.
"""

import lzma
import random
import re
from collections import Counter
from functools import cache

from inverse import Pair, Problem, main

from unmask.bundled.demo import bundled_path

TEXT = bundled_path("novels")
WORDS = 2000
SHORTEST, LONGEST = 3, 10


@cache
def pieces() -> tuple[str, ...]:
    """Read the text, and cut it into pieces, each once."""
    with lzma.open(TEXT, "rt", encoding="utf-8") as file:
        text = file.read().lower().replace("’", "'").replace("\n", " ")
    found = [piece.split() for piece in re.findall(r"[a-z' ]+", text)]
    frequent = {word for word, _ in Counter(w for piece in found for w in piece).most_common(WORDS)}
    kept = (p for p in found if SHORTEST <= len(p) <= LONGEST and frequent.issuperset(p))
    return tuple(dict.fromkeys(" ".join(piece) for piece in kept))


def count(text: str) -> str:
    """Count words, their letters, and the words that begin with each letter: "words=2 ... t=2"."""
    words = text.split()
    first = Counter(word[0] for word in words)
    table = {"words": len(words), "letters": sum(c.isalpha() for c in text)}
    return " ".join(f"{name}={n}" for name, n in [*table.items(), *sorted(first.items())])


def draw(rng: random.Random) -> Pair:
    """Draw a piece of text, and count."""
    text = rng.choice(pieces())
    return count(text), text


def right(question: str, answer: str) -> bool:
    """Say whether the answer has the counts that are asked for."""
    return count(answer) == question


PROBLEM = Problem(
    name="counts", draw=draw, right=right, pairs=100_000, longest=(LONGEST + 2, LONGEST + 5),
    epochs=8, dropout=0.1, metric="answer_f1",
)  # fmt: skip

if __name__ == "__main__":
    main(PROBLEM, str(__doc__))
