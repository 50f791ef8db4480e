"""A study as a page and a plot: a row for each cell, a column for each task."""

from collections.abc import Iterator

from unmask.output import escape_markdown, markdown_table
from unmask.reports.charts.dot_plot import draw_dot_plot
from unmask.studies.result import StudyResult
from unmask.studies.study import Study

PLOT_FILE = "plot.svg"


def format_markdown(result: StudyResult) -> str:
    """Write the results as a page in Markdown, which shows the plot."""
    study = result.study
    names, table = result.to_table()
    paper = f" In small, after {study.paper}." if study.paper else ""
    left_out = [f"{one.name} was left out: {one.error}" for one in result.cell_results if one.error]
    left_out += [
        f"{ran.name} was left out of {one.name}: {ran.error}"
        for one in result.cell_results
        for ran in one.scores
        if ran.error
    ]
    lines = [
        f"# {escape_markdown(study.name)}", "", escape_markdown(study.question + paper), "",
        *markdown_table(names, table, right_align=True),
        "", escape_markdown(" ".join(_method_sentences(study))), "",
        *(f"- {escape_markdown(sentence)}\n" for sentence in left_out),
        f"![Scores of each cell: dots are seeds, lines their means]({PLOT_FILE})",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def draw_svg(result: StudyResult) -> str:
    """Draw the scores: a dot for each seed, a stroke for their mean; returns an SVG document."""
    cells = result.cell_results
    columns = {name: [one.scores_of(name) for one in cells] for name in result.benchmarks}
    columns |= {"average": [one.averages() for one in cells]}
    title = f"{result.study.name}: scores of each cell"
    return draw_dot_plot(title, [one.name for one in cells], columns)


def _method_sentences(study: Study) -> Iterator[str]:
    """Say how the cells were trained and scored, and which differ from the others."""
    several = study.seeds > 1
    rows = (
        "all rows (or as many as its name says)" if study.rows is None else f"{study.rows:,} rows"
    )
    epochs = "as many epochs as suit them" if study.epochs is None else f"{study.epochs:g} epochs"
    tuned = "tuned" if any(cell.tune != "full" for cell in study.cells) else "tuned whole"
    yield (
        f"Each cell read {study.tokens:,} tokens of the same text, once, and was then {tuned} "
        f"on {rows} of each task, {epochs}, {study.seeds} {'seeds' if several else 'seed'}."
    )
    for cell in study.cells:
        if cell.has_word_vectors and cell.has_trained_weights:
            yield (
                f"But for {cell.name}, too: word vectors, learned of the whole text, as often as "
                "their recipe says."
            )
    if none := [cell.name for cell in study.cells if not cell.has_trained_weights]:
        yield f"But for {', '.join(none)}: random weights, drawn for each seed."
    for cell in study.cells:
        if cell.init_from:
            read = f" and read {study.token_budget(cell):,} tokens" if cell.token_factor else ""
            text = f" of {' and '.join(cell.text)}" if cell.text and cell.token_factor else ""
            yield f"{cell.name} began with the weights of {cell.init_from}{read}{text}."
    for cell in study.cells:
        if cell.tune != "full":
            yield f"{cell.name} was tuned by {cell.tune}."
    more = [
        f"{cell.name} read {study.token_budget(cell):,}"
        for cell in study.cells
        if cell.token_factor not in (0, 1) and not cell.init_from
    ]
    if more:
        yield (
            "Rows that hold both source and target have more tokens of as much text: "
            f"{', '.join(more)}."
        )
    spread = "; ± is the standard deviation over the seeds of tuning" if several else ""
    yield (
        "Scores are of 100, on the dev files; the average is over those of which more is better"
        f"{spread}."
    )
    yield (
        "Held-out losses are of each cell's own objective and cannot be compared where these "
        "differ."
    )
