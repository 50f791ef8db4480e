"""METRICS: the metrics by which the best model of a run may be chosen, by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

MetricKind = Literal["classes", "numbers", "tags", "label sets", "answers", "texts", "tasks"]
MEAN = "mean"
"""The metric of several tasks that are learned together: the mean of theirs."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric by which the best model of a run may be chosen."""

    of: MetricKind
    """What it is mostly of; there is an accuracy of choices too, and a macro F1 of label sets."""
    higher_is_better: bool = True
    """Whether more is better."""


METRICS: Mapping[str, Metric] = {
    "accuracy": Metric(of="classes"),
    "macro_f1": Metric(of="classes"),
    "f1": Metric(of="classes"),
    "matthews": Metric(of="classes"),
    "pearson": Metric(of="numbers"),
    "spearman": Metric(of="numbers"),
    "mean_squared_error": Metric(of="numbers", higher_is_better=False),
    "entity_f1": Metric(of="tags"),
    "token_accuracy": Metric(of="tags"),
    "calibration_error": Metric(of="classes", higher_is_better=False),
    "brier": Metric(of="classes", higher_is_better=False),
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
