"""How good answers are: the customary figures of each kind of task, in NumPy.

What is here is of classes, numbers and tags; figures of other answers are in `measures`.

Every figure is a number, whatever the answers: where a definition divides by zero the docstring
says what stands there instead. Numbers that are not finite are an error, not a score.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

What = Literal["classes", "numbers", "tags", "label sets", "answers", "texts", "tasks"]
MEAN = "mean"
"""The metric of several tasks that are learned together: the mean of theirs."""
Tags = Sequence[Sequence[str]]
"""The tag of each word of each sentence."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A figure by which the best model of a run may be chosen."""

    of: What
    """What it is mostly of; there is an accuracy of choices too, and a macro F1 of label sets."""
    higher: bool = True
    """Whether more is better."""


METRICS: Mapping[str, Metric] = {
    "accuracy": Metric(of="classes"),
    "macro_f1": Metric(of="classes"),
    "f1": Metric(of="classes"),
    "matthews": Metric(of="classes"),
    "pearson": Metric(of="numbers"),
    "spearman": Metric(of="numbers"),
    "mean_squared_error": Metric(of="numbers", higher=False),
    "entity_f1": Metric(of="tags"),
    "token_accuracy": Metric(of="tags"),
    "calibration_error": Metric(of="classes", higher=False),
    "brier": Metric(of="classes", higher=False),
    "micro_f1": Metric(of="label sets"),
    "subset_accuracy": Metric(of="label sets"),
    "ranking_precision": Metric(of="label sets"),
    "mean_average_precision": Metric(of="label sets"),
    "exact_match": Metric(of="answers"),
    "answer_f1": Metric(of="answers"),
    "bleu": Metric(of="texts"),
    "chrf": Metric(of="texts"),
    "rouge1": Metric(of="texts"),
    "rouge2": Metric(of="texts"),
    "rougeL": Metric(of="texts"),
    MEAN: Metric(of="tasks"),
}


def accuracy(truth: Int[np.ndarray, "n"], said: Int[np.ndarray, "n"]) -> float:
    """Compute the share of right answers; 0 of nothing."""
    return float((truth == said).mean()) if len(truth) else 0.0


def f1(truth: Int[np.ndarray, "n"], said: Int[np.ndarray, "n"], positive: int = 1) -> float:
    """Compute the harmonic mean of precision and recall of a class; 0 where it never occurs."""
    right = int(((truth == positive) & (said == positive)).sum())
    asked = int((truth == positive).sum()) + int((said == positive).sum())
    return 2 * right / asked if asked else 0.0


def macro_f1(truth: Int[np.ndarray, "n"], said: Int[np.ndarray, "n"]) -> float:
    """Compute the mean F1 of the classes that occur, in the truth or the answers; 0 of nothing."""
    classes = np.union1d(truth, said)
    return float(np.mean([f1(truth, said, int(c)) for c in classes])) if len(classes) else 0.0


def matthews(truth: Int[np.ndarray, "n"], said: Int[np.ndarray, "n"]) -> float:
    """Compute the correlation of two labelings; 0 where all is one class on either side.

    For any number of classes: Gorodkin 2004, doi:10.1016/j.compbiolchem.2004.09.006, equation 8;
    for two it is Matthews'.
    """
    n = len(truth)
    classes = np.union1d(truth, said)
    true = np.array([int((truth == c).sum()) for c in classes], dtype=object)  # whole numbers,
    told = np.array([int((said == c).sum()) for c in classes], dtype=object)  # exact at any size
    right = int((truth == said).sum())
    spread_true, spread_told = n * n - int((true**2).sum()), n * n - int((told**2).sum())
    if spread_true == 0 or spread_told == 0:
        return 0.0
    return float((n * right - int((true * told).sum())) / (spread_true * spread_told) ** 0.5)


def pearson(truth: Float[np.ndarray, "n"], said: Float[np.ndarray, "n"]) -> float:
    """Compute the linear correlation; 0 where either side does not vary.

    Raises:
        FloatingPointError: a number is not finite.
    """
    x, y = _centered(truth), _centered(said)
    if x is None or y is None:
        return 0.0
    return float(np.clip(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)), -1, 1))


def spearman(truth: Float[np.ndarray, "n"], said: Float[np.ndarray, "n"]) -> float:
    """Compute the correlation of ranks, equal numbers sharing theirs; 0 where a side is constant.

    Raises:
        FloatingPointError: a number is not finite.
    """
    return pearson(_ranks(truth), _ranks(said))


def mean_squared_error(truth: Float[np.ndarray, "n"], said: Float[np.ndarray, "n"]) -> float:
    """Compute the mean squared difference; 0 of nothing.

    Raises:
        FloatingPointError: a number is not finite.
    """
    check_finite(truth, said)
    return float(np.mean((truth - said) ** 2)) if len(truth) else 0.0


def token_accuracy(truth: Tags, said: Tags) -> float:
    """Compute the share of words whose tag is right; 0 of nothing."""
    n = sum(len(tags) for tags in truth)
    right = sum(a == b for t, s in zip(truth, said, strict=True) for a, b in zip(t, s, strict=True))
    return right / n if n else 0.0


@dataclass(frozen=True)
class Found:
    """How many of the entities said are right, and of the true ones found; 0 of nothing."""

    precision: float
    recall: float
    f1: float


def entity_scores(truth: Tags, said: Tags) -> Found:
    """Score entities as CoNLL's `conlleval` does: right are those whose borders and type are."""
    right = n_true = n_said = 0
    for t, s in zip(truth, said, strict=True):
        true, told = set(entities(t)), set(entities(s))
        right += len(true & told)
        n_true += len(true)
        n_said += len(told)
    return Found(
        precision=right / n_said if n_said else 0.0,
        recall=right / n_true if n_true else 0.0,
        f1=2 * right / (n_true + n_said) if n_true + n_said else 0.0,
    )


def entities(tags: Sequence[str]) -> list[tuple[int, int, str]]:
    """List the entities of a sentence: first word, one past the last, type.

    A tag is "O" or a part (B, I, E or S, or what other schemes call these), a hyphen and a type;
    without a type that is "". As in `conlleval` (Tjong Kim Sang and De Meulder 2003,
    aclanthology.org/W03-0419, section 2.4) any sequence has a reading: an I without a beginning
    begins an entity, and so does one whose type is not that of the word before. So all of `SCHEMES`
    are read right.
    """
    found: list[tuple[int, int, str]] = []
    begin, before, kind = 0, "O", ""
    for i, tag in enumerate([*tags, "O"]):
        part, _, now = tag.partition("-")
        part = PARTS.get(part, part)
        inside = before != "O"
        ends = inside and (part in "OBS" or before in "ES" or now != kind)
        if ends:
            found.append((begin, i, kind))
        if part != "O" and (ends or not inside):
            begin = i
        before, kind = part, now
    return found


SCHEMES: Mapping[str, str] = {
    "BIO": "BI", "IOB1": "BI", "BIOES": "BIES", "BILOU": "BILU", "BMES": "BMES", "BMEWO": "BMEW",
}  # fmt: skip
"""How each scheme calls the first word of an entity, those within, the last, and one that is alone;
a scheme with two letters has no names of their own for the latter two."""

PARTS: Mapping[str, str] = {"L": "E", "U": "S", "M": "I", "W": "S"}
"""BIOES's letters for those that other schemes have in their place."""


def marks_entities(labels: Sequence[str]) -> bool:
    """Say whether tags mark entities: all are "O" or, of one scheme, a part with a type.

    Not so if all are "O". Parts without any type (B, I, O) mark entities of one kind, as seqeval
    reads them.
    """
    found = [label.partition("-") for label in labels if label != "O"]
    letters = {part for part, _, _ in found}
    if not any(letters <= set(scheme) for scheme in SCHEMES.values()):
        return False
    if any(hyphen for _, hyphen, _ in found):
        return all(kind for _, _, kind in found)
    return ("B" in letters and len(letters) > 1) or (bool(letters) and "O" in labels)


def of_classes(
    truth: Int[np.ndarray, "n"], said: Int[np.ndarray, "n"], n_labels: int
) -> dict[str, float]:
    """Compute all figures of a classification; of two classes the last is what F1 looks for."""
    scores = {
        "accuracy": accuracy(truth, said),
        "macro_f1": macro_f1(truth, said),
        "matthews": matthews(truth, said),
    }
    return scores | ({"f1": f1(truth, said)} if n_labels == 2 else {})


def of_numbers(truth: Float[np.ndarray, "n"], said: Float[np.ndarray, "n"]) -> dict[str, float]:
    """Compute all figures of a regression.

    Raises:
        FloatingPointError: a number is not finite.
    """
    named: Mapping[str, Callable[[np.ndarray, np.ndarray], float]] = {
        "pearson": pearson,
        "spearman": spearman,
        "mean_squared_error": mean_squared_error,
    }
    return {name: score(truth, said) for name, score in named.items()}


def of_tags(truth: Tags, said: Tags, labels: Sequence[str]) -> dict[str, float]:
    """Compute all figures of a tagging; those of entities only where the labels mark some."""
    scores = {"token_accuracy": token_accuracy(truth, said)}
    if marks_entities(labels):
        found = entity_scores(truth, said)
        scores |= {
            "entity_f1": found.f1,
            "entity_precision": found.precision,
            "entity_recall": found.recall,
        }
    return scores


def check_finite(*arrays: np.ndarray) -> None:
    """Refuse numbers that are none.

    Raises:
        FloatingPointError: one is not finite.
    """
    if not all(np.isfinite(a).all() for a in arrays):
        raise FloatingPointError("a number to be scored is not finite: the model has diverged")


def _centered(x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"] | None:
    """Subtract the mean, scaled so that no square overflows; None where nothing varies."""
    check_finite(x)
    if len(x) < 2:
        return None
    x = x.astype(np.float64)
    low, high = float(x.min()), float(x.max())
    half = high / 2 - low / 2
    if half == 0:
        return None
    x = (x / 2 - (high / 4 + low / 4)) / half
    return x - x.mean()


def _ranks(x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    check_finite(x)
    _, place, counts = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[place.reshape(-1)].astype(np.float64)
