"""A small language for tests: documents of sentences of a grammar.

So there is something to learn.
"""

import random

WHO = ["the old king", "a young fox", "her brother", "the sea", "my friend", "a stranger"]
DID = ["saw", "followed", "feared", "loved", "forgot", "wanted"]
WHAT = ["the gate", "a silver ring", "the long road", "his own shadow", "the quiet house"]
WHEN = ["at night", "in the spring", "after the war", "without a word", "once again"]


def corpus(documents: int = 30, seed: int = 0) -> str:
    """Give documents of two paragraphs of some sentences each, parted by blank lines."""
    draw = random.Random(seed)

    def sentence() -> str:
        words = f"{draw.choice(WHO)} {draw.choice(DID)} {draw.choice(WHAT)} {draw.choice(WHEN)}."
        return words[0].upper() + words[1:]

    def paragraph() -> str:
        return " ".join(sentence() for _ in range(draw.randint(3, 7)))

    return "\n\n".join(f"{paragraph()}\n{paragraph()}" for _ in range(documents)) + "\n"
