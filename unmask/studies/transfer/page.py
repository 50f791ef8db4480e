"""The results of a study of transfer as a page and a plot: a row per cell, a column a language."""

from collections.abc import Iterator

from unmask.output import escape_markdown, markdown_table
from unmask.reports.charts.dot_plot import draw_dot_plot
from unmask.studies.page import PLOT_FILE
from unmask.studies.transfer.result import TransferStudyResult


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
        f"![Accuracy in each language: dots are seeds, lines their means]({PLOT_FILE})",
        *(space if rows else []),
        *([escape_markdown(_space_sentence(result))] if rows else []),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def draw_transfer_plot(result: TransferStudyResult) -> str:
    """Draw the accuracies as SVG: a dot for each seed, a line for their mean."""
    cells = result.cell_results
    columns = {
        name: [*(result.accuracies(one, name) for one in cells), [result.majority]]
        for name in result.benchmarks
    }
    names = [*(one.name for one in cells), "most frequent label"]
    return draw_dot_plot(f"{result.study.name}: accuracy in each language, %", names, columns)


def _method_sentences(result: TransferStudyResult) -> Iterator[str]:
    study = result.study
    yield (
        f"Accuracy in percent of {len(study.labels)} labels on {result.n_scored:,} held-out "
        f"sentences and their translations. Each cell was tuned on up to {study.rows:,} rows, "
        f"{study.epochs:g} epochs, {study.seeds} {'seeds' if study.seeds > 1 else 'seed'}, and "
        "kept by its accuracy in the language of tuning."
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
    half = result.half_interval(50.0)
    spread = "± is the standard deviation over the seeds of tuning; " if study.seeds > 1 else ""
    yield f"{spread}the 95 % interval of an accuracy of 50 on these rows is ± {half:.1f}."


def _space_sentence(result: TransferStudyResult) -> str:
    study = result.study
    return (
        f"By layer, from the input of the first: of {study.aligned_rows:,} held-out sentences of "
        f"{study.source}, the percentage whose nearest sentence of the language, by the cosine of "
        "mean states of the pretrained model, is their translation. Shuffled: the highest of any "
        "layer and language with sentences in random order."
    )
