"""Where a text is cut in two: at a sentence, if there is one."""

import numpy as np
from jaxtyping import Int

from unmask.batch import SENTENCE, Tokens
from unmask.hiding.choose import sentence_starts


def draw_cut(text: Tokens, least: int, rng: np.random.Generator) -> int:
    """Draw where to cut a text, `least` tokens or more from its ends.

    At the beginning of a sentence, or where there is none, anywhere in its middle half.
    """
    n = len(text)
    starts = sentence_starts(text)
    starts = starts[(starts >= least) & (starts <= n - least)]
    if len(starts):
        return int(rng.choice(starts))
    least = max(least, n // 4)
    return int(rng.integers(least, n - least, endpoint=True))


def until(text: Tokens, target: int) -> Tokens:
    """Keep the first sentences, until they have `target` tokens or more; all, if they have not."""
    ends = np.append(sentence_starts(text)[1:], len(text))
    enough = ends[ends >= target]
    return text[: int(enough[0])] if len(enough) else text[:]


def beginnings(text: Tokens) -> Int[np.ndarray, "n"]:
    """Return where sentences begin; only where there is none, the beginning of the text."""
    starts = sentence_starts(text)
    return starts if text.marks[0] & SENTENCE or len(starts) == 1 else starts[1:]
