"""Bag of words: a linear classifier of words and pairs of words, which a model should beat."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.finetuning.results.task_metrics import compute_metrics
from unmask.tasks.task import Task, TaskExample

MAX_TEXTS = 50_000
MAX_CHARACTERS = 100_000_000
"""Training texts, and characters of all, above which it is left out: it would take minutes."""
MAX_WEIGHTS = 20_000_000
"""Words are the most frequent ones, up to so many weights."""
_WORD = re.compile(r"\w+|[^\w\s]")
_INVERSE_PENALTY = 30.0
"""C of LIBLINEAR (Fan et al. 2008): the penalty is half of the squared weights, divided by it."""
_STEPS = 60


class BagOfWords:
    """Logistic regression on words and pairs of adjacent words, lowercased.

    Wang and Manning 2012, "Baselines and bigrams", for how hard such classifiers are to beat. The
    weights of words are tf-idf with sublinear counts, in rows of length 1 (Manning, Raghavan and
    Schütze 2008, section 6.4).
    """

    def __init__(self, texts: Sequence[str], labels: Sequence[int], n_labels: int) -> None:
        """Learn from texts with the indices of their labels."""
        counts = [_terms(text) for text in texts]
        frequency = Counter(term for one in counts for term in one)
        most = max(MAX_WEIGHTS // n_labels, 1)
        kept = sorted(frequency, key=lambda term: (-frequency[term], term))[:most]
        self._index = {term: i for i, term in enumerate(kept)}
        n = len(texts)
        self._rarity = [math.log((1 + n) / (1 + frequency[term])) + 1 for term in kept]
        features = self._features(counts)
        targets = torch.tensor(labels)
        self._weights = torch.zeros(len(kept) + 1, n_labels)  # the last row is the bias
        self._fit(features, targets)

    def predict(self, texts: Sequence[str]) -> list[int]:
        """Return the index of the most probable label of each text."""
        scores = torch.sparse.mm(self._features([*map(_terms, texts)]), self._weights)
        return scores.argmax(1).tolist()

    def _features(self, counts: Sequence[Counter[str]]) -> Float[Tensor, "n features"]:
        """Return a sparse matrix with rows of length 1, and ones in the last column."""
        rows, columns, values = list[int](), list[int](), list[float]()
        for i, one in enumerate(counts):
            found = [(self._index[term], n) for term, n in one.items() if term in self._index]
            weights = [(1 + math.log(n)) * self._rarity[at] for at, n in found]
            length = math.sqrt(sum(weight**2 for weight in weights)) or 1.0
            rows += [i] * (len(found) + 1)
            columns += [*(at for at, _ in found), len(self._index)]
            values += [*(weight / length for weight in weights), 1.0]
        size = (len(counts), len(self._index) + 1)
        places = torch.tensor([rows, columns])
        return torch.sparse_coo_tensor(
            places, torch.tensor(values), size, check_invariants=True
        ).coalesce()

    def _fit(self, features: Float[Tensor, "n features"], targets: Int[Tensor, "n"]) -> None:
        """Minimize the penalized mean cross-entropy by L-BFGS."""
        n, turned = len(targets), features.t().coalesce()
        truth = torch.nn.functional.one_hot(targets, self._weights.shape[1]).float()
        penalty = torch.full((len(self._weights), 1), 1 / (_INVERSE_PENALTY * n))
        penalty[-1] = 0
        optimizer = torch.optim.LBFGS(
            [self._weights], max_iter=_STEPS, line_search_fn="strong_wolfe"
        )

        def loss_of() -> Tensor:
            log_shares = torch.sparse.mm(features, self._weights).log_softmax(1)
            slope = torch.sparse.mm(turned, (log_shares.exp() - truth) / n)
            self._weights.grad = slope + penalty * self._weights
            loss = -(log_shares * truth).sum() / n
            return loss + (penalty * self._weights**2).sum() / 2

        with torch.no_grad():
            optimizer.step(loss_of)  # type: ignore[arg-type]


def _terms(text: str) -> Counter[str]:
    """Count words, signs and adjacent pairs of these."""
    words = _WORD.findall(text.lower())
    return Counter(words) + Counter(f"{first} {second}" for first, second in pairwise(words))


def bag_of_words_score(
    task: Task, train: Sequence[TaskExample], dev: Sequence[TaskExample]
) -> float | None:
    """Return the score of a bag of words, trained on the same examples.

    None: the task is not one label for a text, or there are too many texts.
    """
    n_characters = sum(len(item.texts[0]) for item in train if item.texts)
    if task.task_kind != "classify" or len(train) > MAX_TEXTS or n_characters > MAX_CHARACTERS:
        return None
    index = {label: i for i, label in enumerate(task.labels)}
    model = BagOfWords(
        [item.texts[0] for item in train], [index[str(item.label)] for item in train], len(index)
    )
    predictions = [task.labels[i] for i in model.predict([item.texts[0] for item in dev])]
    return compute_metrics(task, dev, predictions).get(task.metric)
