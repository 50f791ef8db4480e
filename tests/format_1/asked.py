"""Questions to a saved run, by the public API alone, whose answers are compared."""

from collections.abc import Mapping
from typing import Any

import numpy as np

import unmask

TEXTS = ["The old king saw the gate at night.", "Her brother feared the sea."]
BLANK = "The old [MASK] saw the gate."
HELD_OUT = "text/held-out.txt"


def _some(x: Any) -> dict[str, Any]:
    """Say an array in short: its shape, sixteen of its numbers, and the root of all squares."""
    x = np.asarray(x, dtype=np.float64)
    flat = x.ravel()
    chosen = flat[np.linspace(0, flat.size - 1, min(16, flat.size)).astype(int)]
    return {
        "shape": [*x.shape],
        "numbers": [float(f"{v:.9g}") for v in chosen],
        "norm": float(f"{np.sqrt((flat**2).sum()):.9g}"),
    }


def answers(run: str, *, tags: bool = False) -> dict[str, Any]:
    """Say what a run's model says to all that it can be asked; one that tags reads words."""
    opened = unmask.load(run)
    asked = [text.rstrip(".").split() for text in TEXTS] if tags else TEXTS
    found: dict[str, Any] = {}
    for name, ask in {
        "embed": lambda: [_some(x) for x in opened.embed(TEXTS)],
        "logits": lambda: [_some(x) for x in opened.logits(TEXTS)],
        "fill": lambda: [
            [[one.text, plain(one.probability)] for one in blank]
            for blank in opened.fill(BLANK).blanks
        ],
        "generate": lambda: opened.generate("The old", max_new_tokens=5),
        "predict": lambda: [plain(one) for one in opened.predict(asked)],
        "evaluate": lambda: plain(opened.evaluate(HELD_OUT).loss),
        "neighbors": lambda: [
            [one.word, plain(one.score)]
            for one in unmask.load_word_vectors(run).neighbors(["king"], 5)[0]
        ],
    }.items():
        try:
            found[name] = ask()
        except (ValueError, FileNotFoundError):  # it cannot be asked this
            continue
    return found


def plain(answer: Any) -> Any:
    """Write an answer as plain data, numbers to seven places."""
    if isinstance(answer, Mapping):
        return {key: plain(value) for key, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [plain(value) for value in answer]
    return float(f"{answer:.7g}") if isinstance(answer, float | np.floating) else answer
