"""Calibration of probabilities: a reliability diagram and its metrics."""

from collections.abc import Sequence

from unmask.reports.formatting import NARROW_SPACE, format_number, format_percent
from unmask.reports.markup import EMPTY_HTML, Html, html_table, tag
from unmask.reports.report_data import FinetuningResults
from unmask.tasks.metrics.calibration import CalibrationBin


def draw_reliability_diagram(results: FinetuningResults, decision_unit: str) -> Html:
    """Draw confidence against accuracy (Guo et al. 2017, arXiv:1706.04599, figure 1)."""
    found = results.calibration
    bins = () if found is None else tuple(one for one in found.bins if one.count)
    if found is None or not bins:
        return EMPTY_HTML
    total = sum(one.count for one in bins)
    sure = sum(one.confidence * one.count for one in bins) / total
    right = sum(one.accuracy * one.count for one in bins) / total
    figures = (
        ("Expected calibration error", format_percent(found.ece)),
        ("Brier score", format_number(found.brier)),
        ("Mean confidence", format_percent(sure)),
        ("Right", format_percent(right)),
    )
    numbers = [tag("div", tag("dt", name), tag("dd", value)) for name, value in figures]
    remark = (
        f"Of {total:,} {decision_unit}, on the held-out examples. Blue is what is right, the "
        "hatching how far confidence is from that. Below: how many answers have which "
        "confidence. The calibration error is the mean distance over answers; the Brier score, "
        "from 0 to 2, is the squared error of all probabilities."
    )
    return tag(
        "figure",
        _chart(
            bins, f"confidence {format_percent(sure)} on average, {format_percent(right)} right"
        ),
        tag("div", tag("dl", *numbers), tag("p", remark, class_="remark")),
        _bin_table(bins),
        class_="reliability",
    )


def _chart(bins: Sequence[CalibrationBin], text_alternative: str) -> Html:
    drawn: list[Html] = []
    for one in bins:
        place = f"left:{one.low:.2%};width:{one.high - one.low:.2%}"
        low, high = sorted((one.accuracy, one.confidence))
        drawn.append(tag("i", style=f"{place};height:{one.accuracy:.2%}"))
        drawn.append(tag("u", style=f"{place};bottom:{low:.2%};height:{high - low:.2%}"))
    line = tag(
        "svg", tag("path", d="M0 100L100 0"), viewBox="0 0 100 100", preserveAspectRatio="none",
        aria_hidden="true",
    )  # fmt: skip
    ticks = [
        tag("span", text, style=f"bottom:{share:.0%}", aria_hidden="true")
        for text, share in _Y_LABELS
    ]
    most = max(one.count for one in bins)
    counts = [
        tag(
            "i",
            style=f"left:{one.low:.2%};width:{one.high - one.low:.2%};"
            f"height:{one.count / most:.2%}",
        )
        for one in bins
    ]
    below = [tag("span", text, style=f"left:{at:.0%}") for text, at in _X_LABELS]
    return tag(
        "div",
        tag(
            "div",
            *drawn,
            line,
            *ticks,
            class_="square",
            role="img",
            aria_label=f"Reliability diagram: {text_alternative}",
        ),
        tag("div", *counts, class_="counts", aria_hidden="true"),
        tag("div", *below, class_="scale", aria_hidden="true"),
        class_="chart",
    )


_X_LABELS = (("0", 0.0), ("confidence", 0.5), (f"100{NARROW_SPACE}%", 1.0))
_Y_LABELS = (("0", 0.0), ("right", 0.5), (f"100{NARROW_SPACE}%", 1.0))


def _bin_table(bins: Sequence[CalibrationBin]) -> Html:
    rows = [
        [
            f"{format_percent(one.low)} to {format_percent(one.high)}",
            f"{one.count:,}",
            format_percent(one.confidence),
            format_percent(one.accuracy),
        ]
        for one in bins
    ]
    shown = html_table(
        ["confidence", "answers", "its mean", "right"], rows, "Calibration", show_title=False
    )
    return tag("details", tag("summary", "The numbers"), shown)
