"""The results of a study of transfer as a page and a plot: a row per cell, a column a language."""

from collections.abc import Iterator

from unmask.output import escape_markdown, markdown_table
from unmask.reports.charts.dot_plot import draw_dot_plot
from unmask.studies.page import PLOT_FILE
from unmask.studies.transfer.result import MOST_FREQUENT, TransferStudyResult, half_interval


def format_transfer_page(result: TransferStudyResult) -> str:
    """Format the results as a Markdown page with the plot."""
    study = result.study
    paper = f" In small, after {study.paper}." if study.paper else ""
    names, rows = result.space_table()
    space = ["", "## Tokens and spaces", "", *markdown_table(names, rows, right_align=True), ""]
    lines = [
        f"# {escape_markdown(study.name)}", "", escape_markdown(study.question + paper), "",
        *markdown_table(*result.to_table(), right_align=True),
        "", escape_markdown(" ".join(_method_sentences(result))), "",
        *(
            f"- {escape_markdown(f'{one.name} was left out: {one.error}')}\n"
            for one in result.cell_results if one.error
        ),
        f"![Scores in each language: dots are seeds, lines their means]({PLOT_FILE})",
        *(space if rows else []),
        *([escape_markdown(_space_sentence(result))] if rows else []),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def draw_transfer_plot(result: TransferStudyResult) -> str:
    """Draw the scores as SVG: a dot for each seed, a line for their mean."""
    cells = result.cell_results
    columns = {
        name: [*(result.scores(one, name) for one in cells), result.most_frequent(name)]
        for name in result.benchmarks
    }
    names = [*(one.name for one in cells), MOST_FREQUENT]
    metric = result.metric.replace("_", " ")
    return draw_dot_plot(f"{result.study.name}: {metric} in each language, %", names, columns)


def _method_sentences(result: TransferStudyResult) -> Iterator[str]:
    study = result.study
    rows = result.n_rows
    metric = result.metric.replace("_", " ").capitalize()
    if study.labeled is None:
        n = max(rows.values(), default=study.scored_rows)
        yield (
            f"{metric} in percent of {len(study.labels)} labels on {n:,} held-out sentences and "
            "their translations."
        )
    else:
        each = ", ".join(f"{n:,} of {language}" for language, n in rows.items())
        yield f"{metric} in percent on labeled rows{f' ({each})' if each else ''}."
    yield (
        f"Each cell was tuned on up to {study.rows:,} rows, {study.epochs:g} epochs, "
        f"{study.seeds} {'seeds' if study.seeds > 1 else 'seed'}, and kept by its score in the "
        "language of tuning."
    )
    own = [f"{one.name} in {one.tune_language}" for one in study.cells if one.tune_language]
    exceptions = f", except for {', '.join(own)}" if own else ""
    yield f"It was tuned in {study.source}{exceptions}; no label of another language was seen."
    for cell in study.cells:
        if cell.body_of:
            yield f"{cell.name} has the tuned layers of {cell.body_of} and its own embeddings."
        elif cell.tune != "full":
            yield f"{cell.name} was tuned by {cell.tune}."
    budgets = {cell.name: study.token_budget(cell) for cell in study.cells if cell.token_factor}
    read = "; ".join(
        f"{', '.join(name for name, n in budgets.items() if n == size)}: {size:,}"
        for size in sorted({*budgets.values()})
    )
    yield f"Pretraining tokens, padding included: {read}."
    if study.seeds > 1:
        yield "± is the standard deviation over the seeds of tuning."
    if rows and result.metric == "accuracy":
        widest = half_interval(50.0, min(rows.values()))
        yield f"The 95 % interval of an accuracy of 50 on these rows is at most ± {widest:.1f}."


def _space_sentence(result: TransferStudyResult) -> str:
    study = result.study
    return (
        f"By layer, from the input of the first: of {study.aligned_rows:,} held-out sentences of "
        f"{study.source}, the percentage whose nearest sentence of the language, by the cosine of "
        "mean states of the pretrained model, is their translation. Shuffled: the highest of any "
        "layer and language with sentences in random order."
    )
