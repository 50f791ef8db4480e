"""The results of a study of probes as a page and a plot: accuracies by task, cell and layer."""

from collections.abc import Iterator

from unmask.output import escape_markdown, markdown_table
from unmask.reports.charts.curve_plot import CurvePanel, draw_curve_plot
from unmask.studies.page import PLOT_FILE
from unmask.studies.probing.result import ProbingStudyResult


def format_probing_page(result: ProbingStudyResult) -> str:
    """Format the results as a Markdown page with the plot."""
    study = result.study
    paper = f" In small, after {study.paper}." if study.paper else ""
    lines = [
        f"# {escape_markdown(study.name)}", "", escape_markdown(study.question + paper), "",
        *markdown_table(*result.to_table(), right_align=True),
        "", escape_markdown(" ".join(_method_sentences(result))), "",
        *(
            f"- {escape_markdown(f'{one.name} was left out: {one.error}')}\n"
            for one in result.cell_results if one.error
        ),
        f"![Accuracy by layer: a panel for each task, a curve for each cell]({PLOT_FILE})",
    ]  # fmt: skip
    for name in result.benchmarks:
        names, rows = result.layer_table(name)
        if rows:
            lines += ["", f"## {escape_markdown(name)}", "", "Accuracy by layer, in percent.", ""]
            lines += markdown_table(names, rows, right_align=True)
    return "\n".join(lines) + "\n"


def draw_probing_plot(result: ProbingStudyResult) -> str:
    """Draw the accuracies by layer as SVG: a panel for each task, a curve for each cell."""
    panels: list[CurvePanel] = []
    for name in result.benchmarks:
        majority = result.majority(name)
        panels.append(
            CurvePanel(
                title=f"{name}, accuracy, %",
                curves={
                    one.name: {float(i): (100 * x,) for i, x in enumerate(found.accuracies)}
                    for one in result.cell_results
                    if (found := one.probes_of(name))
                },
                level_name="baseline",
                level=() if majority is None else (100 * majority,),
            )
        )
    return draw_curve_plot(f"{result.study.name}: probes of each layer", "layer", panels)


def _method_sentences(result: ProbingStudyResult) -> Iterator[str]:
    study = result.study
    yield (
        f"Each cell read {study.tokens:,} tokens of the same text, once. Its frozen layers were "
        f"then probed by linear classifiers, fitted on up to {study.rows:,} sentences of the first "
        f"half of each task's file and scored on up to {study.rows:,} of the second."
    )
    others = [
        f"{cell.name} read {study.token_budget(cell):,}"
        for cell in study.cells
        if cell.token_factor != 1
    ]
    if others:
        yield f"Other numbers of tokens: {', '.join(others)}."
    yield (
        "In percent: the highest accuracy of a layer, the layer, from 0, the input of the first, "
        "and the highest accuracy of the same network with random weights. Baseline: the most "
        "frequent label of each word, or the label that the words of a span vote for."
    )
    yield (
        "Held-out losses are of each cell's own objective and cannot be compared where these "
        "differ."
    )
