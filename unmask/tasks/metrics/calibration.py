"""Calibration of probabilities: expected calibration error, and the Brier score, in NumPy."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

DEFAULT_N_BINS = 15
"""As in the tables of Guo et al. 2017."""
N_HUNDREDTHS = 101
"""Cells of `ProbabilityCounts`; the last holds 1 alone."""
_PROBABILITY_TOLERANCE = 1e-3  # of a row's sum: probabilities in bfloat16 miss 1


@dataclass(frozen=True, kw_only=True)
class CalibrationBin:
    """Predictions of similar confidence."""

    low: float
    """Lower bound of confidence, exclusive."""
    high: float
    """Upper bound, inclusive."""
    confidence: float
    """Mean confidence; 0 if the bin is empty."""
    accuracy: float
    """Accuracy; 0 if the bin is empty."""
    count: int


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Calibration of predicted probabilities."""

    ece: float
    """Expected calibration error: the mean over predictions of the difference between confidence
    and accuracy of their bin; 0 without predictions."""
    brier: float
    """The Brier score, from 0 to 2; see `brier_score`."""
    bins: tuple[CalibrationBin, ...] = ()
    """Bins of a reliability diagram."""


@dataclass(frozen=True, kw_only=True)
class ProbabilityCounts:
    """How many predictions between two labels gave the second label each probability.

    All operating points follow: recall, precision and accuracy at any threshold of 1 / 100.
    """

    label: str
    """The second label."""
    positives: tuple[int, ...]
    """Items with this label whose probability of it is in [i, i + 1) hundredths."""
    negatives: tuple[int, ...]
    """Items with the other label."""

    def __post_init__(self) -> None:
        """Check that there is a number for each hundredth.

        Raises:
            ValueError: there is not.
        """
        if {len(self.positives), len(self.negatives)} != {N_HUNDREDTHS}:
            got = f"{len(self.positives)} and {len(self.negatives)}"
            raise ValueError(f"positives and negatives must be {N_HUNDREDTHS} numbers, got {got}")


def count_probabilities(
    label: str, is_label: Bool[np.ndarray, "n"], probabilities: Float[np.ndarray, "n"]
) -> ProbabilityCounts:
    """Count the probabilities of a label, of items that have it and of others."""
    cells = np.floor(np.clip(probabilities, 0, 1) * (N_HUNDREDTHS - 1) + 1e-9).astype(np.int64)
    positives, negatives = (
        np.bincount(cells[which], minlength=N_HUNDREDTHS) for which in (is_label, ~is_label)
    )
    return ProbabilityCounts(
        label=label, positives=tuple(positives.tolist()), negatives=tuple(negatives.tolist())
    )


def calibration(
    labels: Int[np.ndarray, "n"],
    probabilities: Float[np.ndarray, "n labels"],
    n_bins: int = DEFAULT_N_BINS,
) -> Calibration:
    """Compute the calibration of the most likely labels, in bins of equal width.

    Guo et al. 2017, arXiv:1706.04599, section 2, equation 3. Ties go to the first label.

    Args:
        labels: correct labels.
        probabilities: predicted probability of each label.
        n_bins: number of bins.

    Raises:
        ValueError: these are no probabilities.
    """
    probabilities = _check_probabilities(labels, probabilities)
    predictions, confidence = probabilities.argmax(1), probabilities.max(1, initial=0.0)
    edges = np.arange(n_bins + 1) / n_bins
    bin_ids = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, n_bins - 1)
    counts = np.bincount(bin_ids, minlength=n_bins)
    total = np.maximum(counts, 1)
    confidences = np.bincount(bin_ids, weights=confidence, minlength=n_bins) / total
    accuracies = np.bincount(bin_ids, weights=predictions == labels, minlength=n_bins) / total
    error = float((counts * np.abs(confidences - accuracies)).sum() / max(len(labels), 1))
    bins = tuple(
        CalibrationBin(
            low=float(edges[i]),
            high=float(edges[i + 1]),
            confidence=float(confidences[i]),
            accuracy=float(accuracies[i]),
            count=int(counts[i]),
        )
        for i in range(n_bins)
    )
    return Calibration(ece=error, brier=_brier(labels, probabilities), bins=bins)


def brier_score(
    labels: Int[np.ndarray, "n"], probabilities: Float[np.ndarray, "n labels"]
) -> float:
    """Compute the Brier score: the squared error summed over labels; 0 without predictions.

    Brier 1950, doi:10.1175/1520-0493(1950)078<0001:VOFEIT>2.0.CO;2, equation 2: from 0 to 2. For
    two labels it is twice the common binary score, which uses one of them.

    Raises:
        ValueError: these are no probabilities.
    """
    return _brier(labels, _check_probabilities(labels, probabilities))


def calibration_metrics(
    labels: Int[np.ndarray, "n"], probabilities: Float[np.ndarray, "n labels"]
) -> dict[str, float]:
    """Compute all calibration metrics.

    Raises:
        ValueError: these are no probabilities.
    """
    result = calibration(labels, probabilities)
    return {"calibration_error": result.ece, "brier": result.brier}


def _brier(labels: Int[np.ndarray, "n"], probabilities: Float[np.ndarray, "n labels"]) -> float:
    one_hot = np.arange(probabilities.shape[1]) == labels[:, None]
    return float(((probabilities - one_hot) ** 2).sum(1).mean()) if len(labels) else 0.0


def _check_probabilities(
    labels: Int[np.ndarray, "n"], probabilities: Float[np.ndarray, "n labels"]
) -> Float[np.ndarray, "n labels"]:
    p = probabilities.astype(np.float64)
    sums = p.sum(1)
    # not (a <= b): NaN fails too
    if len(p) and not (p.min() >= 0 and np.abs(sums - 1).max() <= _PROBABILITY_TOLERANCE):
        raise ValueError(
            f"probabilities must be at least 0 and a row's sum 1, got a minimum {p.min():.4g} and "
            f"sums from {sums.min():.4g} to {sums.max():.4g}"
        )
    if len(labels) and not (labels.min() >= 0 and labels.max() < p.shape[1]):
        raise ValueError(
            f"labels must be from 0 to {p.shape[1] - 1}, got {labels.min()} to {labels.max()}"
        )
    return p / sums[:, None]
