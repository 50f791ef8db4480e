"""The top of the page: what was run, what came out, and the figures to remember."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from unmask.reports.charts.line_chart import half_window, smooth
from unmask.reports.finetuning_scores import format_gain, format_mean, format_score, scores_by_split
from unmask.reports.formatting import (
    NARROW_SPACE,
    format_expression,
    format_in_words,
    format_number,
    format_percent,
    format_seconds,
    humanize_name,
    truncate_text,
)
from unmask.reports.markup import EMPTY_HTML, Html, HtmlContent, join_html, share_bar, tag
from unmask.reports.report_data import LogSeries, ReportData
from unmask.reports.task_wording import (
    FULL_FINETUNING,
    SPLIT_NAMES,
    describe_data,
    describe_tuning,
    metric_name,
    score_label,
    task_name,
    task_wording,
)
from unmask.training.log import finite_number

REPORT_TITLES = {
    "pretrain": "Pretraining report",
    "finetune": "Fine-tuning report",
    "prefer": "Report of preference optimization",
}
TERMS_OF_CHOICES = frozenset({"contrast", "neighbor", "sentences_found"})
"""Terms that choose within a batch: the exponential of their loss is no perplexity."""
MAX_BYLINE_CHARACTERS, MAX_LARGE_TITLE = (
    240,
    40,
)  # characters: of a setting; of a title that is set smaller


@dataclass(frozen=True)
class LeadFigure:
    """A figure to remember: its name in the log, its value, and how both are written."""

    column: str
    value: float
    label: str
    text: str


def draw_summary(record: ReportData) -> Html:
    """Show title, main results, what was run, and the figures to remember: scores at once."""
    lead = tag("p", _lead_sentences(record), class_="standfirst")
    below = (join_html(lead, _byline(record)), _headlines(record))
    return tag(
        "div",
        tag("p", REPORT_TITLES.get(str(record.run_record.get("kind")), "Report"), class_="kicker"),
        tag(
            "h1",
            run_title(record),
            class_="long" if len(run_title(record)) > MAX_LARGE_TITLE else None,
        ),
        *(below if record.results is None else below[::-1]),
        class_="opening",
    )


def run_title(record: ReportData) -> str:
    """Return the title of a run."""
    kind = record.run_record.get("kind")
    if kind == "finetune":
        name, does = task_name(record), task_wording(record).purpose
        on = f" on {name}" if name else f" to {does}" if does else ""
        return f"{record.preset_name}, fine-tuned{on}"
    if record.is_preference_run:
        return f"{record.preset_name}, trained on preferences"
    done = "in pretraining" if record.run_record.get("finished") is False else "pretrained"
    return f"{record.preset_name}, {done}" if kind == "pretrain" else record.preset_name


def _lead_sentences(record: ReportData) -> str:
    """Summarize the main results in a few sentences."""
    scored = record.is_finetuning and record.results is not None
    sentences = [_run_sentence(record), "" if scored else _accuracy_sentence(record)]
    sentences += [format_gain(record.results)] if record.results else []
    return " ".join(sentence for sentence in sentences if sentence) or "Nothing is logged yet."


def _run_sentence(record: ReportData) -> str:
    if not len(record.training_log.steps):
        return ""
    done = int(record.training_log.steps[-1])
    planned = finite_number(record.record_section("recipe").get("steps"))
    of = f" of {planned:,.0f}" if planned and planned > done else ""
    tokens = record.training_log.last("tokens")
    read = f" on {format_in_words(tokens)} tokens" if tokens else ""
    time = f" in {format_seconds(record.total_seconds)}" if record.total_seconds else ""
    lead = "Not finished: trained" if record.run_record.get("finished") is False else "Trained"
    return f"{lead} for {done:,}{of} {'step' if done == 1 else 'steps'}{read}{time}."


def _accuracy_sentence(record: ReportData) -> str:
    lead = _lead_accuracy(record)
    if lead is None:
        return ""
    name, value, held_out = lead
    best = max(record.baselines.get(name, {}).items(), key=lambda item: item[1], default=None)
    beside = f"; a {best[0]} baseline reaches {format_percent(best[1])}" if best else ""
    text = "held-out data" if held_out else "its training data"
    return f"{humanize_name(name).capitalize()} on {text} is {format_percent(value)}{beside}."


def _byline(record: ReportData) -> Html:
    recipe = record.record_section("recipe")
    parameters = finite_number(record.run_record.get("parameters"))
    date = record.modified
    rows = (
        ("Parameters", format_in_words(parameters) if parameters else ""),
        ("Tuned", _describe_tuned_parameters(record)),
        ("Objective", format_expression(recipe.get("objective", ""))),
        ("Method", format_expression(recipe.get("method", ""))),
        (
            "Data",
            describe_data(record)
            if record.is_finetuning
            else format_expression(recipe.get("data", recipe.get("train", ""))),
        ),
        ("Folder", record.name),
        ("Date", f"{date.day} {date:%B %Y}"),
    )
    entries = [
        tag("div", tag("dt", name), tag("dd", truncate_text(text, MAX_BYLINE_CHARACTERS)))
        for name, text in rows
        if text not in ("", "none")
    ]
    return tag("dl", *entries, class_="byline")


def _describe_tuned_parameters(record: ReportData) -> str:
    """Describe what was fine-tuned, with the number of parameters once it is finished."""
    method = record.record_section("recipe").get("tune")
    if record.run_record.get("kind") != "finetune" or method is None:
        return ""
    tuned = finite_number(record.record_section("best").get("n_trainable_parameters"))
    by = describe_tuning(method)
    return f"{format_in_words(tuned)} numbers, by {by}" if tuned and by != FULL_FINETUNING else by


def _headlines(record: ReportData) -> Html:
    made = (_headline_task, _headline_accuracy, _headline_loss, _headline_time)
    if record.is_finetuning and record.results:
        made = (_headline_task, _headline_figures, _headline_time)
    if "win_rate" in record.evaluation_log:  # losses of methods that write are no measure
        made = (_headline_win_rate, _headline_reward, _headline_time)
    found = [headline for make in made if (headline := make(record)) != EMPTY_HTML]
    return tag("div", *found, class_="headlines") if found else EMPTY_HTML


def _headline(label: str, value: str, *detail: HtmlContent) -> Html:
    # "97.8 ± 0.4 %": spread and unit are set smaller than the number itself.
    at = min((i for i in (value.find(" "), value.find(NARROW_SPACE)) if i > 0), default=len(value))
    big = tag("p", value[:at], tag("small", value[at:]), class_="big")
    return tag("div", tag("p", label, class_="label"), big, *detail, class_="headline")


def _headline_task(record: ReportData) -> Html:
    results = record.results
    if results is None or not (found := scores_by_split(results)):
        return EMPTY_HTML
    split, groups = found[-1]
    rows = [
        (g.name, statistics.fmean(g.values), format_mean(results.metric, g.values)) for g in groups
    ]
    if split == "dev" and (words := finite_number(results.bag_of_words)) is not None:
        rows.append(("bag of words", words, format_score(results.metric, words)))
    if (chance := finite_number(results.chance)) is not None:
        rows.append(
            (
                f"always the {task_wording(record).majority_answer}",
                chance,
                format_score(results.metric, chance),
            )
        )
    name = score_label(task_name(record), split, results.metric)
    return _headline(name, rows[0][2], _comparison_bars(rows))


def _headline_figures(record: ReportData) -> Html:
    """List the other figures of the best run, of the same split."""
    results = record.results
    if results is None or not (found := scores_by_split(results)):
        return EMPTY_HTML
    split, (first, *_) = found[-1]
    best = record.record_section("best")
    figures = best.get(split)
    if not isinstance(figures, Mapping):
        return EMPTY_HTML
    known = [(metric, finite_number(value)) for metric, value in figures.items()]
    # The loss of a regression is its squared error, which has a row of its own.
    same = {results.metric, *(("loss",) if "mean_squared_error" in figures else ())}
    rows = [(metric_name(m), format_score(m, v)) for m, v in known if m not in same]
    if (
        split != "dev"
        and (value := finite_number(best.get("dev", {}).get(results.metric))) is not None
    ):
        rows.append((score_label("", "dev", results.metric), format_score(results.metric, value)))
    whose = f"The best run, seed {best.get('seed')}" if len(first.values) > 1 else "Other figures"
    drawn = [tag("li", tag("span", name), tag("b", text)) for name, text in rows]
    label = tag("p", f"{whose}, {SPLIT_NAMES.get(split, split)}", class_="label")
    return tag("div", label, tag("ul", *drawn, class_="figures-too"), class_="headline")


def lead_accuracy(record: ReportData) -> LeadFigure | None:
    """Return the accuracy to lead with, if there is one: on held-out text if possible."""
    lead = _lead_accuracy(record)
    if lead is None:
        return None
    name, value, held_out = lead
    label = f"{humanize_name(name).capitalize()}, {'held out' if held_out else 'in training'}"
    return LeadFigure(name, value, label, format_percent(value))


def lead_loss(record: ReportData) -> LeadFigure | None:
    """Return the loss to lead with, if there is one: on held-out text if possible."""
    source, column, value = _lead_loss(record)
    if value is None:
        return None
    where = "held out" if source is record.evaluation_log else "in training"
    unit = f"{NARROW_SPACE}nats" * _has_likelihood(record)
    label = f"{humanize_name(column).capitalize()}, {where}"
    return LeadFigure(column, value, label, format_number(value) + unit)


def _headline_accuracy(record: ReportData) -> Html:
    lead = lead_accuracy(record)
    if lead is None:
        return EMPTY_HTML
    others = sorted(record.baselines.get(lead.column, {}).items(), key=lambda item: -item[1])
    rows = [
        (record.preset_name, lead.value, lead.text),
        *((n, v, format_percent(v)) for n, v in others),
    ]
    return _headline(lead.label, lead.text, _comparison_bars(rows))


def _headline_loss(record: ReportData) -> Html:
    lead = lead_loss(record)
    if lead is None:
        return EMPTY_HTML
    source, column, _ = _lead_loss(record)
    # A sum over several questions (masked + next sentence) has no perplexity, nor have labels.
    tuned = record.is_finetuning or record.is_preference_run
    parts = record.training_log.suffixes_after("parts.")
    terms = parts if column == "loss" else [column.removesuffix("_loss")]
    single = len(terms) < 2 and not TERMS_OF_CHOICES.intersection(terms)
    single = single and _has_likelihood(record)
    remarks = (
        [f"Perplexity {format_number(math.exp(lead.value))}."]
        if single and not tuned and lead.value < 50
        else []
    )
    logged = np.isfinite(source.columns[column])
    if logged.sum() > 1:
        first, step = source.columns[column][logged][0], source.steps[logged][0]
        remarks.append(f"At step {step:,.0f} it was {format_number(float(first))}.")
    return _headline(lead.label, lead.text, tag("p", " ".join(remarks)))


def _lead_loss(record: ReportData) -> tuple[LogSeries, str, float | None]:
    """Return the loss to lead with: its log, its column, and its value."""
    held_out = record.evaluation_columns("loss")
    if held_out and (last := record.evaluation_log.last(held_out[0])) is not None:
        return record.evaluation_log, held_out[0], last
    return record.training_log, "loss", _smoothed_last(record, "loss")


def _has_likelihood(record: ReportData) -> bool:
    """Return whether the losses are in nats; some of preferences are squares, or advantages."""
    return not (record.is_word_vector_run or record.predicts_numbers or record.is_preference_run)


def _headline_win_rate(record: ReportData) -> Html:
    value = record.evaluation_log.last("win_rate")
    if value is None:
        return EMPTY_HTML
    bounds = [record.evaluation_log.last(f"win_rate_{end}") for end in ("low", "high")]
    shown = [format_percent(bound) for bound in bounds if bound is not None]
    interval = f" 95 % interval: {' to '.join(shown)}." if len(shown) == 2 else ""
    remark = tag("p", f"Over the responses before the first step; ties count half.{interval}")
    return _headline("Win rate, held out", format_percent(value), remark)


def _headline_reward(record: ReportData) -> Html:
    log = record.evaluation_log
    value = log.last("reward")
    if value is None:
        return EMPTY_HTML
    logged = log.columns["reward"][np.isfinite(log.columns["reward"])]
    remarks = [f"Before the first step it was {format_number(float(logged[0]))}."]
    if (kl := log.last("kl")) is not None:
        remarks.append(f"KL divergence {format_number(kl)} nats.")
    return _headline("Reward, held out", format_number(value), tag("p", " ".join(remarks)))


def _headline_time(record: ReportData) -> Html:
    if not record.total_seconds:
        return EMPTY_HTML
    speed = record.timing_log.median("tokens_per_second")
    device = record.record_section("environment").get("device")
    remarks = [f"{format_in_words(speed)} tokens a second"] if speed else []
    remarks += [f"on {device}"] if device else []
    return _headline("Time", format_seconds(record.total_seconds), tag("p", " ".join(remarks)))


def _comparison_bars(rows: Sequence[tuple[str, float, str]]) -> Html:
    """Draw the first row's number above those to compare it with; alone it needs no bar."""
    top = max(value for _, value, _ in rows)
    if len(rows) < 2 or top <= 0:
        return EMPTY_HTML
    drawn = [
        tag("li", tag("span", name), tag("b", text), share_bar(value / top))
        for name, value, text in rows
    ]
    return tag("ul", *drawn, class_="bars")


def _lead_accuracy(record: ReportData) -> tuple[str, float, bool] | None:
    """Return the accuracy to lead with: its name, its value, and whether on held-out text."""
    for column in sorted(
        record.evaluation_columns("accuracy"), key=lambda c: c not in record.baselines
    ):
        if (value := record.evaluation_log.last(column)) is not None:
            return column, value, True
    for part in record.training_log.suffixes_after("accuracy."):
        if (value := _smoothed_last(record, f"accuracy.{part}")) is not None:
            return f"{part}_accuracy", value, False
    return None


def _smoothed_last(record: ReportData, column: str) -> float | None:
    if column not in record.training_log:
        return None
    values = record.training_log.columns[column]
    line = smooth(values, half_window(len(values)))
    return float(line[np.isfinite(line)][-1])
