"""The results of a study as a page and a plot: a row per cell, a column per task."""

from collections.abc import Iterator

from unmask.output import escape_markdown, markdown_table
from unmask.reports.charts.dot_plot import draw_dot_plot
from unmask.studies.result import StudyResult
from unmask.studies.study import Study

PLOT_FILE = "plot.svg"


def format_markdown(result: StudyResult) -> str:
    """Format the results as a Markdown page with the plot."""
    study = result.study
    names, table = result.to_table()
    paper = f" In small, after {study.paper}." if study.paper else ""
    left_out = [
        f"{cell.name} was left out: {cell.error}" for cell in result.cell_results if cell.error
    ]
    left_out += [
        f"{ran.name} was left out of {cell.name}: {ran.error}"
        for cell in result.cell_results
        for ran in cell.scores
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
    """Draw the scores as SVG: a dot for each seed, a line for their mean."""
    cells = result.cell_results
    columns = {name: [one.scores_of(name) for one in cells] for name in result.benchmarks}
    columns |= {"average": [one.averages(result.benchmarks) for one in cells]}
    title = f"{result.study.name}: scores of each cell"
    return draw_dot_plot(title, [one.name for one in cells], columns)


def _method_sentences(study: Study) -> Iterator[str]:
    """Yield sentences on training and scoring, and on cells that differ."""
    several = study.seeds > 1
    rows = "all rows (or the number in its name)" if study.rows is None else f"{study.rows:,} rows"
    epochs = "a number of epochs chosen by size"
    if study.epochs is not None:
        epochs = "1 epoch" if study.epochs == 1 else f"{study.epochs:g} epochs"
    tuned = "tuned" if any(cell.tune != "full" for cell in study.cells) else "tuned whole"
    yield (
        f"Each cell read {study.tokens:,} tokens of the same text, once, and was then {tuned} "
        f"on {rows} of each task, {epochs}, {study.seeds} {'seeds' if several else 'seed'}."
    )
    for cell in study.cells:
        if cell.has_word_vectors and cell.has_trained_weights:
            yield (
                f"Except for {cell.name}: word vectors, trained on the whole text for the epochs "
                "of their recipe."
            )
    if none := [cell.name for cell in study.cells if not cell.has_trained_weights]:
        yield f"Except for {', '.join(none)}: random weights, drawn for each seed."
    for cell in study.cells:
        if cell.init_from:
            read = f" and read {study.token_budget(cell):,} tokens" if cell.token_factor else ""
            text = f" of {' and '.join(cell.text)}" if cell.text and cell.token_factor else ""
            yield f"{cell.name} was initialized from {cell.init_from}{read}{text}."
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
            "Rows with both source and target have more tokens for the same text: "
            f"{', '.join(more)}."
        )
    spread = "; ± is the standard deviation over the seeds of tuning" if several else ""
    yield (
        "Scores range to 100, on held-out rows; the average is over metrics where higher is better"
        f"{spread}."
    )
    yield (
        "Held-out losses are of each cell's own objective and cannot be compared where these "
        "differ."
    )
