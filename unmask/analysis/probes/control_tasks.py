"""Control tasks: what a probe learns by itself. Hewitt and Liang 2019, arXiv:1909.03368."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int


@dataclass(frozen=True)
class ControlTask:
    """A random label for each word type, the same wherever the word stands (section 2.1).

    The label of a type is drawn from the distribution, with a generator seeded by `seed` and the
    type: types that only the test sentences have need no table.

    Example:
        >>> import numpy as np
        >>> task = ControlTask(np.array([0.5, 0.5]), seed=1)
        >>> labels = task.labels(["the", "cat", "the"])
        >>> bool(labels[0] == labels[2])
        True
    """

    distribution: Float[np.ndarray, "k"]
    """Probability of each label."""
    seed: int = 0

    @classmethod
    def of_labels(cls, labels: Int[np.ndarray, "n"], n_labels: int, seed: int = 0) -> "ControlTask":
        """Return the control task of a task: labels have its empirical distribution.

        Args:
            labels: labels of the training words, from 0.
            n_labels: number of labels.
            seed: seed of all draws.
        """
        return cls(np.bincount(labels, minlength=n_labels) / len(labels), seed)

    def labels(self, words: Sequence[str]) -> Int[np.ndarray, "n"]:
        """Return the label of each word."""
        of_type = {word: self._draw(word) for word in set(words)}
        return np.array([of_type[word] for word in words], np.int64)

    def _draw(self, word: str) -> int:
        # Not hash(), which differs between processes.
        digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        rng = np.random.default_rng((self.seed, int.from_bytes(digest, "little")))
        return int(rng.choice(len(self.distribution), p=self.distribution))


def selectivity(accuracy: float, control_accuracy: float) -> float:
    """Return by how much a task's accuracy exceeds that of its control task."""
    return accuracy - control_accuracy
