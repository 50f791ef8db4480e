"""A study as a page, and as a picture: a row for each cell, a column for each task."""

from collections.abc import Sequence

import numpy as np

from unmask.channels import markdown as text_of
from unmask.channels import markdown_table
from unmask.serving.axis import linear, tick
from unmask.serving.markup import Html, tag
from unmask.studies.studied import Outcome, Studied

PICTURE = "plot.svg"
LETTER, WIDE, GAP = 8, 150, 44
"""Units of the picture: a letter of a cell's name, a column, what is between two."""
TOP, ROW, BOTTOM = 44, 26, 34


def markdown(made: Studied) -> str:
    """Write what came out as a page, which shows the picture."""
    study = made.study
    names, table = made.rows()
    many = study.seeds > 1
    none = [cell.name for cell in study.cells if not cell.trained]
    more = {
        cell.name: study.tokens_of(cell)
        for cell in study.cells
        if cell.reads not in (0, 1) and not cell.begins
    }
    rows = (
        "all rows (or as many as its name says)" if study.rows is None else f"{study.rows:,} rows"
    )
    epochs = "as many epochs as suit them" if study.epochs is None else f"{study.epochs:g} epochs"
    tuned = "tuned" if any(cell.tune != "full" for cell in study.cells) else "tuned whole"
    says = [
        f"Each cell read {study.tokens:,} tokens of the same text, once, and was then {tuned} "
        f"on {rows} of each task, {epochs}, {study.seeds} {'seeds' if many else 'seed'}.",
        *(
            f"But for {cell.name}, too: word vectors, learned of the whole text, as often as their "
            "recipe says."
            for cell in study.cells
            if cell.of_vectors and cell.trained
        ),
        *([f"But for {', '.join(none)}: random weights, drawn for each seed."] if none else []),
        *(
            f"{cell.name} began with the weights of {cell.begins}"
            + (f" and read {study.tokens_of(cell):,} tokens" if cell.reads else "")
            + (f" of {' and '.join(cell.text)}." if cell.text and cell.reads else ".")
            for cell in study.cells
            if cell.begins
        ),
        *(f"{cell.name} was tuned by {cell.tune}." for cell in study.cells if cell.tune != "full"),
        *(
            [
                "Rows that hold both source and target have more tokens of as much text: "
                + ", ".join(f"{name} read {n:,}" for name, n in more.items())
                + "."
            ]
            if more
            else []
        ),
        "Scores are of 100, on the dev files; the average is over those of which more is better"
        + ("; ± is the standard deviation over the seeds of tuning." if many else "."),
        "Held-out losses are of each cell's own objective and cannot be compared where these "
        "differ.",
    ]
    paper = f" In small, after {study.paper}." if study.paper else ""
    lines = [
        f"# {text_of(study.name)}", "", text_of(study.asks + paper), "",
        *markdown_table(names, table, right=True),
        "", text_of(" ".join(says)), "",
        *(
            f"- {text_of(f'{one.name} was left out: {one.error}')}\n"
            for one in made.outcomes
            if one.error
        ),
        *(
            f"- {text_of(f'{ran.name} was left out of {one.name}: {ran.error}')}\n"
            for one in made.outcomes
            for ran in one.scores
            if ran.error
        ),
        f"![Scores of each cell: dots are seeds, lines their means]({PICTURE})",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def draw(made: Studied) -> str:
    """Draw the scores: a dot for each seed, a stroke for their mean; returns an SVG document."""
    columns = [*made.benchmarks, "average"]
    left = LETTER * max(len(one.name) for one in made.outcomes) + GAP
    width = left + len(columns) * (WIDE + GAP)
    height = TOP + ROW * len(made.outcomes) + BOTTOM
    names = [
        tag("text", one.name, x=left - GAP, y=_middle(i) + 4, text_anchor="end")
        for i, one in enumerate(made.outcomes)
    ]
    each = [
        _column(name, left + i * (WIDE + GAP), [_values(name, one) for one in made.outcomes])
        for i, name in enumerate(columns)
    ]
    return tag(
        "svg",
        tag("title", f"{made.study.name}: scores of each cell"),
        tag("rect", width=width, height=height, fill="#fffefb"),
        *names,
        *each,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height}",
        font_family="system-ui, sans-serif",
        font_size=13,
        fill="#1d1c1a",
    ).source


def _values(name: str, one: Outcome) -> list[float]:
    return one.averages() if name == "average" else one.of(name)


def _middle(row: int) -> float:
    return TOP + ROW * (row + 0.5)


def _column(name: str, left: int, values: Sequence[Sequence[float]]) -> Html:
    """Draw the scores of one task over an axis of its own."""
    found = [value for one in values for value in one]
    axis = linear(min(found, default=0.0), max(found, default=1.0), 3)

    def x(value: float) -> float:
        return round(left + WIDE * axis.share(value), 1)

    bottom = _middle(len(values) - 1) + ROW / 2
    parts = [tag("text", name, x=left + WIDE / 2, y=TOP - 18, text_anchor="middle")]
    for at in axis.ticks:
        parts.append(tag("path", d=f"M{x(at)} {TOP}V{bottom}", stroke="#d9d4ca"))
        says = tick(at, axis, "")
        parts.append(
            tag("text", says, x=x(at), y=bottom + 16, text_anchor="middle", fill="#615d56")
        )
    for i, one in enumerate(values):
        y = _middle(i)
        parts += [tag("circle", cx=x(v), cy=y, r=3.5, fill="#1b5e9e", opacity=0.45) for v in one]
        if one:
            mean = x(float(np.mean(one)))
            line = f"M{mean} {y - 8}V{y + 8}"
            parts.append(tag("path", d=line, stroke="#b0461c", stroke_width=2))
    return tag("g", *parts)
