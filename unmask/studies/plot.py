"""A study as a page, and as a picture: a row for each cell, a column for each task."""

from collections.abc import Sequence

import numpy as np

from unmask.output import escape_markdown as text_of
from unmask.output import markdown_table
from unmask.reports.charts.axis import format_tick, linear_axis
from unmask.reports.markup import Html, tag
from unmask.studies.result import CellResult, StudyResult

PLOT_FILE = "plot.svg"
CHARACTER_WIDTH, PLOT_WIDTH, COLUMN_GAP = 8, 150, 44
"""Units of the picture: a letter of a cell's name, a column, what is between two."""
TOP_MARGIN, ROW_HEIGHT, BOTTOM_MARGIN = 44, 26, 34


def format_markdown(result: StudyResult) -> str:
    """Write what came out as a page, which shows the picture."""
    study = result.study
    names, table = result.to_table()
    many = study.seeds > 1
    none = [cell.name for cell in study.cells if not cell.has_trained_weights]
    more = {
        cell.name: study.token_budget(cell)
        for cell in study.cells
        if cell.token_factor not in (0, 1) and not cell.init_from
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
            if cell.has_word_vectors and cell.has_trained_weights
        ),
        *([f"But for {', '.join(none)}: random weights, drawn for each seed."] if none else []),
        *(
            f"{cell.name} began with the weights of {cell.init_from}"
            + (f" and read {study.token_budget(cell):,} tokens" if cell.token_factor else "")
            + (f" of {' and '.join(cell.text)}." if cell.text and cell.token_factor else ".")
            for cell in study.cells
            if cell.init_from
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
        f"# {text_of(study.name)}", "", text_of(study.question + paper), "",
        *markdown_table(names, table, right_align=True),
        "", text_of(" ".join(says)), "",
        *(
            f"- {text_of(f'{one.name} was left out: {one.error}')}\n"
            for one in result.cell_results
            if one.error
        ),
        *(
            f"- {text_of(f'{ran.name} was left out of {one.name}: {ran.error}')}\n"
            for one in result.cell_results
            for ran in one.scores
            if ran.error
        ),
        f"![Scores of each cell: dots are seeds, lines their means]({PLOT_FILE})",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def draw_svg(result: StudyResult) -> str:
    """Draw the scores: a dot for each seed, a stroke for their mean; returns an SVG document."""
    columns = [*result.benchmarks, "average"]
    left = CHARACTER_WIDTH * max(len(one.name) for one in result.cell_results) + COLUMN_GAP
    width = left + len(columns) * (PLOT_WIDTH + COLUMN_GAP)
    height = TOP_MARGIN + ROW_HEIGHT * len(result.cell_results) + BOTTOM_MARGIN
    names = [
        tag("text", one.name, x=left - COLUMN_GAP, y=_row_center(i) + 4, text_anchor="end")
        for i, one in enumerate(result.cell_results)
    ]
    each = [
        _draw_column(
            name,
            left + i * (PLOT_WIDTH + COLUMN_GAP),
            [_plotted_values(name, one) for one in result.cell_results],
        )
        for i, name in enumerate(columns)
    ]
    return tag(
        "svg",
        tag("title", f"{result.study.name}: scores of each cell"),
        tag("rect", width=width, height=height, fill="#fffefb"),
        *names,
        *each,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height}",
        font_family="system-ui, sans-serif",
        font_size=13,
        fill="#1d1c1a",
    ).source


def _plotted_values(name: str, cell_result: CellResult) -> list[float]:
    return cell_result.averages() if name == "average" else cell_result.scores_of(name)


def _row_center(row: int) -> float:
    return TOP_MARGIN + ROW_HEIGHT * (row + 0.5)


def _draw_column(name: str, left: int, values: Sequence[Sequence[float]]) -> Html:
    """Draw the scores of one task over an axis of its own."""
    found = [value for one in values for value in one]
    axis = linear_axis(min(found, default=0.0), max(found, default=1.0), 3)

    def x(value: float) -> float:
        return round(left + PLOT_WIDTH * axis.position(value), 1)

    bottom = _row_center(len(values) - 1) + ROW_HEIGHT / 2
    parts = [tag("text", name, x=left + PLOT_WIDTH / 2, y=TOP_MARGIN - 18, text_anchor="middle")]
    for at in axis.ticks:
        parts.append(tag("path", d=f"M{x(at)} {TOP_MARGIN}V{bottom}", stroke="#d9d4ca"))
        says = format_tick(at, axis, "")
        parts.append(
            tag("text", says, x=x(at), y=bottom + 16, text_anchor="middle", fill="#615d56")
        )
    for i, one in enumerate(values):
        y = _row_center(i)
        parts += [tag("circle", cx=x(v), cy=y, r=3.5, fill="#1b5e9e", opacity=0.45) for v in one]
        if one:
            mean = x(float(np.mean(one)))
            line = f"M{mean} {y - 8}V{y + 8}"
            parts.append(tag("path", d=line, stroke="#b0461c", stroke_width=2))
    return tag("g", *parts)
