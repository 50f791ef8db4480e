"""What a run has reached: a few figures with names, from the ends of its logs and its results.

The rules are those of a run's report (`unmask.reports.summary`).
"""

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unmask.config import from_dict
from unmask.files import read_json
from unmask.reports.finetuning_scores import format_mean, format_score, scores_by_split
from unmask.reports.formatting import format_number, format_percent, humanize_name
from unmask.reports.report_data import (
    BaselineFigures,
    FinetuningResults,
    ReportData,
    log_series,
    read_baselines,
)
from unmask.reports.summary import LeadFigure, lead_accuracy, lead_loss
from unmask.reports.task_wording import (
    capitalize_first,
    is_percent_metric,
    metric_name,
    score_label,
)
from unmask.training.log import finite_number
from unmask.web.runs.scan import BASELINES_FILE, MEASURES_FILE, RESULTS_FILE

LEAD_MEASURES = ("judge", "reward", "win_rate", "accuracy", "margin", "kl", "loss")
"""Of `unmask prefer`, in the order in which they matter; the first two that there are lead."""
_SHARES = ("accuracy", "win_rate")
_MEASURE_NAMES = {"kl": "KL divergence", "judge": "Judge's score"}
MAX_FIGURES = 4


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure that a run has reached."""

    name: str
    """As a person reads it: "Masked accuracy, held out"."""
    value: float
    text: str
    """The value as it is shown: "38.2 %"."""


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What is known of a run, for its figures."""

    record: Mapping[str, Any]
    """Of unmask.json."""
    log_lines: Sequence[Mapping[str, Any]] = ()
    """The last of its log."""
    folder: Path
    files: frozenset[str] = field(default_factory=frozenset[str])
    """Files that it has."""

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.folder.name


def run_figures(facts: RunFacts) -> tuple[Figure, ...]:
    """Return what a run of pretraining, fine-tuning or preference optimization has reached.

    Raises:
        ValueError: a file of results is damaged.
    """
    kind = facts.record.get("kind")
    data = as_report_data(facts)
    if kind == "finetune":
        return _finetuning_figures(facts, data)
    if kind == "prefer":
        return _preference_figures(facts, data)
    accuracy, loss = lead_accuracy(data), lead_loss(data)
    figures = [] if accuracy is None else [_as_figure(accuracy), *_baselines(data, accuracy.column)]
    return (*figures, *(() if loss is None else (_as_figure(loss),)))


def _baselines(data: ReportData, column: str) -> list[Figure]:
    """Return what counting tokens reaches, the better first: what a model should beat."""
    scores = sorted(data.baselines.get(column, {}).items(), key=lambda item: -item[1])
    return [
        Figure(name=f"{name} baseline", value=value, text=format_percent(value))
        for name, value in scores
    ]


def as_report_data(facts: RunFacts) -> ReportData:
    """Return the facts as a report has them, with the ends of the logs for the whole."""
    lines = facts.log_lines
    evaluations = [line for line in lines if isinstance(line.get("evaluation"), Mapping)]
    nothing = log_series(())
    return ReportData(
        name=facts.name,
        modified_timestamp=0.0,
        run_record=facts.record,
        training_log=log_series(line for line in lines if "evaluation" not in line),
        evaluation_log=log_series(
            {"step": line.get("step"), **line["evaluation"]} for line in evaluations
        ),
        timing_log=nothing,
        resumed_steps=(),
        total_seconds=None,
        samples=(),
        baselines=_read_baselines(facts),
        results=None,
        notes=(),
    )


def score_figures(task: str, results: FinetuningResults) -> tuple[Figure, ...]:
    """Return the mean score of each arm on the last split that has scores, the leading arm first.

    The most frequent answer's score is the last.
    """
    splits = scores_by_split(results)
    if not splits:
        return ()
    split, groups = splits[-1]
    name = score_label(task, split, results.metric)
    figures = [
        Figure(
            name=name if n == 0 else group.name,
            value=statistics.fmean(group.values),
            text=format_mean(results.metric, group.values),
        )
        for n, group in enumerate(groups)
    ]
    if split == "dev" and (words := finite_number(results.bag_of_words)) is not None:
        text = format_score(results.metric, words)
        figures.append(Figure(name="bag of words", value=words, text=text))
    if chance := finite_number(results.chance):  # of 0, a constant answer has no such score
        text = format_score(results.metric, chance)
        figures.append(Figure(name="most frequent answer", value=chance, text=text))
    return tuple(figures[:MAX_FIGURES])


def metric_words(results: Any) -> dict[str, dict[str, Any]]:
    """Return how each metric of results.json is written: {metric: {"name", "is_percent"}}."""
    fields = results if isinstance(results, dict) else {}
    arms = fields["arms"] if isinstance(fields.get("arms"), list) else []
    others = [arm.get("metrics") for arm in arms if isinstance(arm, dict)]
    found = [
        fields.get("metric"),
        *(name for one in others if isinstance(one, dict) for name in one),
    ]
    return {
        name: {"name": _heading(metric_name(name)), "is_percent": is_percent_metric(name)}
        for name in found
        if isinstance(name, str)
    }


def _heading(name: str) -> str:
    """Return a name as a heading; one with capitals within, as chrF, is as it is."""
    return name if re.search("[A-Z]", name.split()[0]) else capitalize_first(name)


def measure_figures(measures: Mapping[str, Any], before: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Return the measures of preference optimization that lead, each with what it was before."""
    known = {name: finite_number(measures.get(name)) for name in LEAD_MEASURES}
    figures: list[Figure] = []
    for name, value in known.items():
        if value is None or len(figures) == 2:
            continue
        write = format_percent if name in _SHARES else format_number
        was = finite_number(before.get(name))
        text = write(value) if was is None else f"{write(was)} → {write(value)}"
        shown = _MEASURE_NAMES.get(name) or capitalize_first(humanize_name(name))
        figures.append(Figure(name=shown, value=value, text=text))
    return tuple(figures)


def _finetuning_figures(facts: RunFacts, data: ReportData) -> tuple[Figure, ...]:
    recipe = data.record_section("recipe")
    named = str(recipe.get("task_name") or "")
    task = "" if named == recipe.get("task") else named
    if RESULTS_FILE in facts.files:
        return score_figures(task, _read_scores(facts.folder / RESULTS_FILE))
    metric = str(data.record_section("task").get("metric") or recipe.get("metric") or "")
    column = metric if metric in data.evaluation_log else next(iter(_finite(data)), "")
    value = data.evaluation_log.last(column)
    if value is None:
        lead = lead_loss(data)
        return () if lead is None else (_as_figure(lead),)
    name = score_label(task, "dev", column)
    return (Figure(name=name, value=value, text=format_score(column, value)),)


def _finite(data: ReportData) -> list[str]:
    return [name for name in data.evaluation_log.columns if name in data.evaluation_log]


def _preference_figures(facts: RunFacts, data: ReportData) -> tuple[Figure, ...]:
    if MEASURES_FILE in facts.files:
        path = facts.folder / MEASURES_FILE
        found = read_json(path)
        tables: dict[str, Any] = found if isinstance(found, dict) else {}
        before, after = tables.get("before"), tables.get("after")
        if not isinstance(before, dict) or not isinstance(after, dict):
            raise ValueError(f"{path.name}: must have measures before and after")
        return measure_figures(after, before)
    log = data.evaluation_log
    return measure_figures({name: log.last(name) for name in log.columns}, {})


def _read_scores(path: Path) -> FinetuningResults:
    """Read the scores of results.json, and nothing of its lists of errors.

    Raises:
        ValueError: it is damaged; the file is named.
    """
    found = read_json(path)
    fields = found if isinstance(found, dict) else {}
    plain = {
        name: fields.get(name) for name in ("task", "metric", "arms", "chance", "bag_of_words")
    }
    arms = plain["arms"] if isinstance(plain["arms"], list) else []
    plain["arms"] = [
        {key: value for key, value in arm.items() if key != "kind"}
        for arm in arms
        if isinstance(arm, dict)
    ]
    return from_dict(FinetuningResults, plain, path.name)


def _read_baselines(facts: RunFacts) -> BaselineFigures:
    """Return the baselines, whose columns lead in a report."""
    return read_baselines(facts.folder / BASELINES_FILE) if BASELINES_FILE in facts.files else {}


def _as_figure(lead: LeadFigure) -> Figure:
    return Figure(name=lead.label, value=lead.value, text=lead.text)
