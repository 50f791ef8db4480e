"""The results of a study of compression as a page and a plot."""

from collections.abc import Iterator, Sequence

import numpy as np

from unmask.output import escape_markdown, markdown_table
from unmask.reports.charts.dot_plot import draw_dot_plot
from unmask.reports.charts.scatter import ScatterPoint, draw_scatter
from unmask.studies.compression.result import CompressionStudyResult
from unmask.studies.compression.study import CompressionCell, CompressionStudy
from unmask.studies.page import PLOT_FILE

FRONT_FILE = "size.svg"


def format_compression_page(result: CompressionStudyResult) -> str:
    """Format the results as a Markdown page with both plots."""
    study = result.study
    names, table = result.to_table()
    paper = f" After {study.paper}." if study.paper else ""
    left_out = [f"{r.name} was left out: {r.error}" for r in result.cell_results if r.error]
    lines = [
        f"# {escape_markdown(study.name)}", "", escape_markdown(study.question + paper), "",
        *markdown_table(names, table, right_align=True),
        "", escape_markdown(" ".join(_method_sentences(result))), "",
        *(f"- {escape_markdown(one)}\n" for one in left_out),
        *(f"- **{escape_markdown(c.name)}**: {escape_markdown(describe_cell(study, c))}"
          for c in study.cells),
        "", f"![Average score by bytes on disk; the Pareto front is joined]({FRONT_FILE})",
        f"![Scores of each cell: dots are seeds, lines their means]({PLOT_FILE})",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def draw_scores(result: CompressionStudyResult) -> str:
    """Draw the scores as SVG: a dot for each seed, a line for their mean."""
    cells = result.cell_results
    columns = {name: [one.scores_of(name) for one in cells] for name in result.benchmarks}
    columns |= {"average": [one.averages(result.benchmarks) for one in cells]}
    title = f"{result.study.name}: scores of each cell"
    return draw_dot_plot(title, [one.name for one in cells], columns)


def draw_front(result: CompressionStudyResult) -> str:
    """Draw the average score by the bytes on disk as SVG, the Pareto front joined by a line."""
    front = {one.name for one in result.pareto_front()}
    points = [
        ScatterPoint(
            name=one.name,
            x=one.measurements.disk_bytes / 1e6,
            y=float(np.mean(averages)),
            is_joined=one.name in front,
        )
        for one in result.cell_results
        if one.measurements and (averages := one.averages(result.benchmarks))
    ]
    title = f"{result.study.name}: average score by size on disk"
    return draw_scatter(title, "size on disk, MB", "average score", points)


def describe_cell(study: CompressionStudy, cell: CompressionCell) -> str:
    """Say in a line what is done in a cell, in order."""
    steps = [*cell.compress]
    if cell.initialize == "random":
        steps.append("random weights")
    if cell.token_factor:
        teacher = f" with the base as teacher ({_join(cell.distill)})" if cell.distill else ""
        steps.append(f"pretrained on {study.token_budget(cell):,} tokens{teacher}")
    while_tuning = [f"--compress {one}" for one in cell.tune_compress]
    if cell.tune_distill:
        while_tuning.append(f"{study.whole.name} as teacher ({_join(cell.tune_distill)})")
    steps.append("fine-tuned" + (f" with {_join(while_tuning)}" if while_tuning else ""))
    steps += cell.finish
    if cell.onnx:
        steps.append(f"an ONNX graph in {cell.onnx}")
    return "; ".join(steps)


def _join(names: Sequence[str]) -> str:
    return ", ".join(names)


def _method_sentences(result: CompressionStudyResult) -> Iterator[str]:
    """Yield sentences on training, scoring and measuring."""
    study = result.study
    rows = "all rows" if study.rows is None else f"{study.rows:,} rows"
    epochs = "a number of epochs by size" if study.epochs is None else f"{study.epochs:g} epochs"
    yield (
        f"The base is {study.base}. Each cell was fine-tuned on {rows} of each task, {epochs}, "
        f"{study.seeds} {'seeds' if study.seeds > 1 else 'seed'}."
    )
    yield (
        "Scores range to 100, on held-out rows, or the test files of tasks without; the average is "
        "over metrics where higher is better"
        + ("; ± is the standard deviation over seeds." if study.seeds > 1 else ".")
    )
    yield (
        "* marks the Pareto front of average and size on disk. Latency is the ratio to the whole "
        "model's in calls of so many texts of about 128 tokens, text in, answer out, models in "
        "turn; memory is the peak of a process that opens the model and answers, without the "
        "process itself."
    )
    if sources := {r.measurements.power_source for r in result.cell_results if r.measurements}:
        yield f"Energy is time x power ({_join(sorted(sources))})."
