"""Accuracies with their intervals, as text and as marks on a scale from 0 to 100 percent."""

from collections.abc import Mapping, Sequence

from unmask.analysis.behavior.accuracy import GroupAccuracy
from unmask.reports.markup import Html, tag


def format_accuracy_interval(accuracy: GroupAccuracy) -> str:
    """Return accuracy and 95 % interval in points: 61.2 (59.5 to 62.8)."""
    return f"{points(accuracy.accuracy)} ({points(accuracy.low)} to {points(accuracy.high)})"


def points(fraction: float) -> str:
    """Return a fraction in percentage points with one decimal."""
    return f"{100 * fraction:.1f}"


def draw_accuracies(accuracies: Mapping[str, GroupAccuracy], chance: float) -> Html:
    """Draw the accuracies of one group on a scale from 0 to 1: a bar is the interval of the first.

    Args:
        accuracies: by title, the model first, then its controls.
        chance: where the line of chance is.
    """
    (title, first), *others = accuracies.items()
    marks = [
        tag("i", class_="chance", style=f"--at:{chance:.4f}"),
        tag("i", class_="interval", style=f"--from:{first.low:.4f};--to:{first.high:.4f}"),
        *(
            tag("i", class_=f"control c{i}", style=f"--at:{one.accuracy:.4f}")
            for i, (_, one) in enumerate(others)
        ),
        tag("i", class_="accuracy", style=f"--at:{first.accuracy:.4f}"),
    ]
    spoken = f"{title}: {format_accuracy_interval(first)}"
    spoken += "".join(f"; {name}: {points(one.accuracy)}" for name, one in others)
    return tag("span", *marks, class_="scale", role="img", aria_label=spoken, title=spoken)


def draw_legend(titles: Sequence[str]) -> Html:
    """Draw what the marks of `draw_accuracies` are; titles are those of the model and controls."""
    kinds = [("accuracy", titles[0]), ("interval", "95 % interval"), ("chance", "chance")]
    kinds += [(f"control c{i}", title) for i, title in enumerate(titles[1:])]
    style = "--at:.5;--from:.1;--to:.9"
    marks = [
        tag("span", tag("span", tag("i", class_=name, style=style), class_="scale"), title)
        for name, title in kinds
    ]
    return tag("p", *marks, class_="remark legend")
