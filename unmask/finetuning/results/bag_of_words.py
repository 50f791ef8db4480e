"""Bag of words: a linear classifier of words and pairs of words, which a model should beat."""

from collections.abc import Sequence
from typing import Any

from unmask.finetuning.results.task_metrics import compute_metrics
from unmask.tasks.task import Task, TaskExample

MAX_TEXTS = 50_000
MAX_CHARACTERS = 100_000_000
"""Training texts, and characters of all, above which it is left out: it would take minutes."""
MAX_WEIGHTS = 20_000_000
"""Words are the most frequent ones, up to so many weights."""


def bag_of_words(n_labels: int) -> Any:
    """Return an untrained classifier of scikit-learn: logistic regression on words and pairs.

    Wang and Manning 2012, "Baselines and bigrams", for how hard such classifiers are to beat. The
    weights of words are tf-idf with sublinear counts, in rows of length 1 (Manning, Raghavan and
    Schütze 2008, section 6.4); the penalty is half of the squared weights, divided by 30.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    words = TfidfVectorizer(
        token_pattern=r"\w+|[^\w\s]",
        ngram_range=(1, 2),
        sublinear_tf=True,
        max_features=max(MAX_WEIGHTS // n_labels, 1),
    )
    return make_pipeline(words, LogisticRegression(C=30.0, max_iter=1000))


def bag_of_words_score(
    task: Task, train: Sequence[TaskExample], dev: Sequence[TaskExample]
) -> float | None:
    """Return the score of a bag of words, trained on the same examples.

    None: the task is not one label for a text, all have the same label, or there are too many.
    """
    n_characters = sum(len(item.texts[0]) for item in train if item.texts)
    if task.task_kind != "classify" or len(train) > MAX_TEXTS or n_characters > MAX_CHARACTERS:
        return None
    labels = [str(item.label) for item in train]
    if len(set(labels)) < 2:
        return None
    model = bag_of_words(len(task.labels)).fit([item.texts[0] for item in train], labels)
    predictions = [str(label) for label in model.predict([item.texts[0] for item in dev])]
    return compute_metrics(task, dev, predictions).get(task.metric)
