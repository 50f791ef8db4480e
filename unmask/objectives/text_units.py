"""Where a text is cut in two: at a sentence, if there is one."""

import numpy as np
from jaxtyping import Int

from unmask.batch import SENTENCE_START, Tokens
from unmask.objectives.select import sentence_starts


def draw_split_point(text: Tokens, min_tokens: int, rng: np.random.Generator) -> int:
    """Draw where to cut a text, `min_tokens` tokens or more from its ends.

    At the beginning of a sentence, or where there is none, anywhere in its middle half.
    """
    n = len(text)
    starts = sentence_starts(text)
    starts = starts[(starts >= min_tokens) & (starts <= n - min_tokens)]
    if len(starts):
        return int(rng.choice(starts))
    min_tokens = max(min_tokens, n // 4)
    return int(rng.integers(min_tokens, n - min_tokens, endpoint=True))


def first_sentences(text: Tokens, min_tokens: int) -> Tokens:
    """Keep the first sentences, until they have `min_tokens` tokens or more, or all."""
    ends = np.append(sentence_starts(text)[1:], len(text))
    enough = ends[ends >= min_tokens]
    return text[: int(enough[0])] if len(enough) else text[:]


def sentence_beginnings(text: Tokens) -> Int[np.ndarray, "n"]:
    """Return where sentences begin; only where there is none, the beginning of the text."""
    starts = sentence_starts(text)
    return starts if text.boundaries[0] & SENTENCE_START or len(starts) == 1 else starts[1:]
