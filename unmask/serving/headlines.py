"""The top of the page: what was run, what came out, and the figures to remember."""

import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from unmask.serving.markup import EMPTY, Content, Html, bar, join, tag
from unmask.serving.plot import half_window, smooth
from unmask.serving.record import Record, number
from unmask.serving.scores import gain, mean, score, splits
from unmask.serving.tasks import (
    EVERYTHING,
    data,
    first_large,
    metric_name,
    task_name,
    tuned_by,
    words,
)
from unmask.serving.words import NARROW, cut, duration, expression, percent, plain, readable, spoken

KINDS = {"pretrain": "Pretraining report", "finetune": "Fine-tuning report"}
MOST_SETTING, LONG = 240, 40  # characters: of a setting; of a title that is set smaller


def draw_opening(record: Record) -> Html:
    """Show title, main results, what was run, and the figures to remember: scores at once."""
    said = tag("p", _standfirst(record), class_="standfirst")
    below = (join(said, _byline(record)), _headlines(record))
    return tag(
        "div",
        tag("p", KINDS.get(str(record.facts.get("kind")), "Report"), class_="kicker"),
        tag("h1", title(record), class_="long" if len(title(record)) > LONG else None),
        *(below if record.results is None else below[::-1]),
        class_="opening",
    )


def title(record: Record) -> str:
    """Say what was run."""
    kind = record.facts.get("kind")
    if kind == "finetune":
        name, does = task_name(record), words(record).does
        on = f" on {name}" if name else f" to {does}" if does else ""
        return f"{record.card}, fine-tuned{on}"
    done = "in pretraining" if record.facts.get("finished") is False else "pretrained"
    return f"{record.card}, {done}" if kind == "pretrain" else record.card


def _standfirst(record: Record) -> str:
    """Say the main results in a few sentences."""
    scored = record.finetuned and record.results is not None
    said = [_said_of_run(record), "" if scored else _said_of_accuracy(record)]
    said += [gain(record.results)] if record.results else []
    return " ".join(sentence for sentence in said if sentence) or "Nothing is logged yet."


def _said_of_run(record: Record) -> str:
    if not len(record.training.steps):
        return ""
    done = int(record.training.steps[-1])
    planned = number(record.part("recipe").get("steps"))
    of = f" of {planned:,.0f}" if planned and planned > done else ""
    tokens = record.training.last("tokens")
    read = f" on {spoken(tokens)} tokens" if tokens else ""
    time = f" in {duration(record.seconds)}" if record.seconds else ""
    lead = "Not finished: trained" if record.facts.get("finished") is False else "Trained"
    return f"{lead} for {done:,}{of} {'step' if done == 1 else 'steps'}{read}{time}."


def _said_of_accuracy(record: Record) -> str:
    lead = _lead(record)
    if lead is None:
        return ""
    name, value, held_out = lead
    best = max(record.baselines.get(name, {}).items(), key=lambda item: item[1], default=None)
    beside = f"; a {best[0]} baseline reaches {percent(best[1])}" if best else ""
    text = "held-out text" if held_out else "its training text"
    return f"{readable(name).capitalize()} on {text} is {percent(value)}{beside}."


def _byline(record: Record) -> Html:
    recipe = record.part("recipe")
    parameters = number(record.facts.get("parameters"))
    date = record.written
    rows = (
        ("Parameters", spoken(parameters) if parameters else ""),
        ("Tuned", _tuned(record)),
        ("Objective", expression(recipe.get("objective", ""))),
        ("Data", data(record) if record.finetuned else expression(recipe.get("data", ""))),
        ("Folder", record.name),
        ("Date", f"{date.day} {date:%B %Y}"),
    )
    said = [
        tag("div", tag("dt", name), tag("dd", cut(text, MOST_SETTING)))
        for name, text in rows
        if text not in ("", "none")
    ]
    return tag("dl", *said, class_="byline")


def _tuned(record: Record) -> str:
    """Say what fine-tuning tuned, and how many numbers that are, once it is finished."""
    method = record.part("recipe").get("tune")
    if record.facts.get("kind") != "finetune" or method is None:
        return ""
    tuned = number(record.part("best").get("tuned"))
    by = tuned_by(method)
    return f"{spoken(tuned)} numbers, by {by}" if tuned and by != EVERYTHING else by


def _headlines(record: Record) -> Html:
    made = (_headline_task, _headline_accuracy, _headline_loss, _headline_time)
    if record.finetuned and record.results:
        made = (_headline_task, _headline_figures, _headline_time)
    found = [headline for make in made if (headline := make(record)) != EMPTY]
    return tag("div", *found, class_="headlines") if found else EMPTY


def _headline(label: str, value: str, *detail: Content) -> Html:
    # "97.8 ± 0.4 %": spread and unit are set smaller than the number itself.
    at = min((i for i in (value.find(" "), value.find(NARROW)) if i > 0), default=len(value))
    big = tag("p", value[:at], tag("small", value[at:]), class_="big")
    return tag("div", tag("p", label, class_="label"), big, *detail, class_="headline")


def _headline_task(record: Record) -> Html:
    results = record.results
    if results is None or not (found := splits(results)):
        return EMPTY
    split, groups = found[-1]
    rows = [(g.name, statistics.fmean(g.values), mean(results.metric, g.values)) for g in groups]
    if (chance := number(results.chance)) is not None:
        rows.append((f"always the {words(record).usual}", chance, score(results.metric, chance)))
    name = " ".join(filter(None, (task_name(record), split, metric_name(results.metric))))
    return _headline(first_large(name), rows[0][2], _bars(rows))


def _headline_figures(record: Record) -> Html:
    """List the other figures of the best run, of the same split."""
    results = record.results
    if results is None or not (found := splits(results)):
        return EMPTY
    split, (first, *_) = found[-1]
    best = record.part("best")
    figures = best.get(split)
    if not isinstance(figures, Mapping):
        return EMPTY
    known = [(metric, number(value)) for metric, value in figures.items()]
    # The loss of a regression is its squared error, which stands there by its name.
    same = {results.metric, *(("loss",) if "mean_squared_error" in figures else ())}
    rows = [(metric_name(m), score(m, v)) for m, v in known if m not in same]
    if split != "dev" and (value := number(best.get("dev", {}).get(results.metric))) is not None:
        rows.append((f"dev {metric_name(results.metric)}", score(results.metric, value)))
    whose = f"The best run, seed {best.get('seed')}" if len(first.values) > 1 else "Other figures"
    drawn = [tag("li", tag("span", name), tag("b", text)) for name, text in rows]
    label = tag("p", f"{whose}, {split}", class_="label")
    return tag("div", label, tag("ul", *drawn, class_="figures-too"), class_="headline")


def _headline_accuracy(record: Record) -> Html:
    lead = _lead(record)
    if lead is None:
        return EMPTY
    name, value, held_out = lead
    others = sorted(record.baselines.get(name, {}).items(), key=lambda item: -item[1])
    rows = [(record.card, value, percent(value)), *((n, v, percent(v)) for n, v in others)]
    label = f"{readable(name).capitalize()}, {'held out' if held_out else 'in training'}"
    return _headline(label, percent(value), _bars(rows))


def _headline_loss(record: Record) -> Html:
    held_out = record.measured("loss")
    source, column = record.training, "loss"
    value = _smoothed_last(record, column)
    if held_out and (last := record.evaluation.last(held_out[0])) is not None:
        source, column, value = record.evaluation, held_out[0], last
    if value is None:
        return EMPTY
    where = "held out" if source is record.evaluation else "in training"
    # A sum over several questions (masked + next sentence) has no perplexity, nor have labels.
    tuned = record.facts.get("kind") == "finetune"
    single = column != "loss" or len(record.training.parts("parts.")) < 2
    likelihood = not record.of_vectors
    single = single and likelihood
    said = [f"Perplexity {plain(math.exp(value))}."] if single and not tuned and value < 50 else []
    logged = np.isfinite(source.columns[column])
    if logged.sum() > 1:
        first, step = source.columns[column][logged][0], source.steps[logged][0]
        said.append(f"At step {step:,.0f} it was {plain(float(first))}.")
    label = f"{readable(column).capitalize()}, {where}"
    return _headline(label, plain(value) + f"{NARROW}nats" * likelihood, tag("p", " ".join(said)))


def _headline_time(record: Record) -> Html:
    if not record.seconds:
        return EMPTY
    speed = record.timing.median("tokens_per_second")
    device = record.part("environment").get("device")
    said = [f"{spoken(speed)} tokens a second"] if speed else []
    said += [f"on {device}"] if device else []
    return _headline("Time", duration(record.seconds), tag("p", " ".join(said)))


def _bars(rows: Sequence[tuple[str, float, str]]) -> Html:
    """Draw the first row's number above those to compare it with; alone it needs no bar."""
    top = max(value for _, value, _ in rows)
    if len(rows) < 2 or top <= 0:
        return EMPTY
    drawn = [
        tag("li", tag("span", name), tag("b", text), bar(value / top)) for name, value, text in rows
    ]
    return tag("ul", *drawn, class_="bars")


def _lead(record: Record) -> tuple[str, float, bool] | None:
    """Return the accuracy to lead with: its name, its value, and whether on held-out text."""
    for column in sorted(record.measured("accuracy"), key=lambda c: c not in record.baselines):
        if (value := record.evaluation.last(column)) is not None:
            return column, value, True
    for part in record.training.parts("accuracy."):
        if (value := _smoothed_last(record, f"accuracy.{part}")) is not None:
            return f"{part}_accuracy", value, False
    return None


def _smoothed_last(record: Record, column: str) -> float | None:
    if column not in record.training:
        return None
    values = record.training.columns[column]
    line = smooth(values, half_window(len(values)))
    return float(line[np.isfinite(line)][-1])
