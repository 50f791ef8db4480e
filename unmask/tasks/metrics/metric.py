"""METRICS: the metrics for model selection, by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

MetricKind = Literal["classes", "numbers", "tags", "label sets", "answers", "texts", "tasks"]
MEAN_METRIC = "mean"
"""The metric of a task mixture: the mean over its tasks."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric for the selection of the best model of a run."""

    applies_to: MetricKind
    """Its usual subject; accuracy also applies to choices, macro F1 to label sets."""
    higher_is_better: bool = True
    """Whether more is better."""
    ranges_to_100: bool = False
    """Whether a perfect score is 100; of most others it is 1, of CIDEr 10."""


METRICS: Mapping[str, Metric] = {
    "accuracy": Metric(applies_to="classes"),
    "macro_f1": Metric(applies_to="classes"),
    "f1": Metric(applies_to="classes"),
    "matthews": Metric(applies_to="classes"),
    "pearson": Metric(applies_to="numbers"),
    "spearman": Metric(applies_to="numbers"),
    "mean_squared_error": Metric(applies_to="numbers", higher_is_better=False),
    "entity_f1": Metric(applies_to="tags"),
    "token_accuracy": Metric(applies_to="tags"),
    "calibration_error": Metric(applies_to="classes", higher_is_better=False),
    "brier": Metric(applies_to="classes", higher_is_better=False),
    "micro_f1": Metric(applies_to="label sets"),
    "subset_accuracy": Metric(applies_to="label sets"),
    "ranking_precision": Metric(applies_to="label sets"),
    "mean_average_precision": Metric(applies_to="label sets"),
    "exact_match": Metric(applies_to="answers"),
    "answer_f1": Metric(applies_to="answers"),
    "normalized_match": Metric(applies_to="answers"),
    "loss": Metric(applies_to="texts", higher_is_better=False),
    "bleu": Metric(applies_to="texts", ranges_to_100=True),
    "chrf": Metric(applies_to="texts", ranges_to_100=True),
    "rouge1": Metric(applies_to="texts"),
    "rouge2": Metric(applies_to="texts"),
    "rougeL": Metric(applies_to="texts"),
    "bleu1": Metric(applies_to="texts", ranges_to_100=True),
    "bleu2": Metric(applies_to="texts", ranges_to_100=True),
    "bleu3": Metric(applies_to="texts", ranges_to_100=True),
    "bleu4": Metric(applies_to="texts", ranges_to_100=True),
    "cider": Metric(applies_to="texts"),
    "cider_d": Metric(applies_to="texts"),
    "meteor": Metric(applies_to="texts"),
    MEAN_METRIC: Metric(applies_to="tasks"),
}
