"""What a page calls tasks, metrics and ways of tuning."""

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import PurePath
from typing import Any

from unmask.reports.formatting import format_expression, humanize_name
from unmask.reports.report_data import ReportData
from unmask.tasks.kind_names import TASK_KIND_NAMES
from unmask.tasks.task_kind import TaskWording
from unmask.training.log import finite_number

PERCENT_METRICS = (
    "accuracy",
    "f1",
    "exact_match",
    "precision",
    "recall",
)  # metrics read as percent
METRIC_NAMES = {
    "bleu": "BLEU", "chrf": "chrF", "rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L",
    "bleu1": "BLEU-1", "bleu2": "BLEU-2", "bleu3": "BLEU-3", "bleu4": "BLEU-4",
    "cider": "CIDEr", "cider_d": "CIDEr-D", "meteor": "METEOR",
    "answer_f1": "F1 of words", "matthews": "Matthews correlation",
    "pearson": "Pearson correlation", "spearman": "Spearman correlation",
    "accuracy_low": "accuracy, 95 % interval from", "accuracy_high": "accuracy, 95 % interval to",
    "win_rate_low": "win rate, 95 % interval from", "win_rate_high": "win rate, 95 % interval to",
    "kl": "KL divergence", "distinct_2": "distinct bigrams", "clipped": "clipped, share",
    "longer_chosen": "the longer response is the better one",
    "longer_preferred": "it prefers the longer response",
    "length_correlation": "correlation of reward and length",
    "cut": "cut off, share", "sign_test_p": "sign test, p",
}  # fmt: skip
FULL_FINETUNING = "everything"


_DEFAULT_WORDING = TaskWording(
    purpose="", majority_answer="most frequent answer", answered_unit="rows", decision_unit="rows"
)


def task_wording(record: ReportData) -> TaskWording:
    """Return the words for the task of a run; general ones for a kind that is not known here."""
    if record.task_kind not in TASK_KIND_NAMES:
        return _DEFAULT_WORDING
    from unmask.tasks.all_kinds import TASK_KINDS  # needs torch, which other reports do not

    return TASK_KINDS[record.task_kind].wording


SPLIT_NAMES = {"dev": "held out"}
"""How a split is named to a person, where otherwise than in files."""


def task_name(record: ReportData) -> str:
    """Return the name that a task was given; empty if that is only its kind."""
    if not record.is_finetuning:
        return "" if record.results is None else record.results.task
    name = str(record.record_section("recipe").get("task_name", ""))
    return "" if name == record.task_kind else name


def describe_data(record: ReportData) -> str:
    """Describe the data of a run: numbers of rows and names of files."""
    parts: list[str] = []
    for split in ("train", "dev", "test"):
        part = record.record_section("data").get(split)
        rows = finite_number(part.get("rows")) if isinstance(part, Mapping) else None
        path = record.record_section("recipe").get(split)
        if rows:
            source = f"of {PurePath(str(path)).name}" if path else "set aside"
            lead = f"{SPLIT_NAMES.get(split, split)}: {rows:,.0f}" if parts else f"{rows:,.0f} rows"
            parts.append(f"{lead} {source}")
    return "; ".join(parts)


def is_percent_metric(metric: str) -> bool:
    """Return whether a metric is shown in percent."""
    return any(share in metric.lower().replace(" ", "_") for share in PERCENT_METRICS)


def metric_name(metric: str) -> str:
    """Write the name of a metric as a text does."""
    return METRIC_NAMES.get(metric) or re.sub(r"\bf1\b", "F1", humanize_name(metric))


def score_label(task: str, split: str, metric: str) -> str:
    """Name a score: "SST-2 accuracy, held out", of dev; "SST-2 accuracy, test"."""
    name = f"{task} {metric_name(metric)}".strip()
    return f"{capitalize_first(name)}, {SPLIT_NAMES.get(split, split)}"


def capitalize_first(text: str) -> str:
    """Begin a text with a capital, and leave the rest as it is."""
    return text[:1].upper() + text[1:]


def describe_tuning(method: Any) -> str:
    """Describe a tuning method: its name and the settings that differ from the defaults."""
    from unmask.finetuning.methods.method import METHODS  # needs torch, which other reports do not

    kind = str(method.get("kind", "")) if isinstance(method, Mapping) else ""
    known = {cls.__name__: cls for cls in METHODS.values()}.get(kind)
    if known is None:
        return format_expression(method)
    usual = {
        f.name: format_expression(f.default) for f in fields(known) if f.default is not MISSING
    }
    odd = {k: v for k, v in method.items() if k == "kind" or format_expression(v) != usual.get(k)}
    return (
        FULL_FINETUNING
        if odd == {"kind": "FullFinetuning"}
        else format_expression(odd).removesuffix("()")
    )
