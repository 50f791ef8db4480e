"""The results of a lottery study as a page and a plot of scores against sparsity."""

from collections.abc import Iterator

from unmask.output import escape_markdown, markdown_table
from unmask.reports.charts.curve_plot import CurvePanel, draw_curve_plot
from unmask.studies.lottery.result import LotteryResult
from unmask.studies.lottery.study import DENSE, Arm, LotteryStudy

PLOT_FILE = "plot.svg"
_ARM_SENTENCES: dict[Arm, str] = {
    "ticket": "ticket: the mask that was found, with the weights of the start.",
    "random-mask": (
        "random mask: the weights of the start, with as many zeros in each matrix at random places "
        "(of heads and sublayers: as many random ones)."
    ),
    "random-weights": "random weights: the mask that was found, with newly drawn weights.",
}


def format_markdown(result: LotteryResult) -> str:
    """Format the results as a Markdown page with the plot."""
    study = result.study
    names, rows = result.to_table()
    paper = f" In small, after {study.paper}." if study.paper else ""
    lines = [
        f"# {escape_markdown(study.name)}", "", escape_markdown(study.question + paper), "",
        *markdown_table(names, rows, right_align=True),
        "", escape_markdown(" ".join(_method_sentences(study))), "",
        *(f"- {_ARM_SENTENCES[arm]}" for arm in study.arms), "",
        f"![Scores against the fraction of zeros; dots are seeds, lines their means]({PLOT_FILE})",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def draw_svg(result: LotteryResult) -> str:
    """Draw the scores against sparsity as SVG: a panel for each task and split."""
    panels = [
        CurvePanel(
            title=f"{benchmark}, {split}",
            curves={
                arm.replace("-", " "): {
                    100 * s: result.scores_of(benchmark, arm, s, split)
                    for s in result.study.sparsities
                }
                for arm in result.study.arms
            },
            level_name=DENSE,
            level=result.scores_of(benchmark, DENSE, split=split),
        )
        for benchmark in result.benchmarks
        for split in result.splits_of(benchmark)
    ]
    title = f"{result.study.name}: scores against sparsity"
    return draw_curve_plot(title, "zeros in the layers, %", panels)


def _method_sentences(study: LotteryStudy) -> Iterator[str]:
    """Yield sentences on masks, training and scoring."""
    start = "its pretrained weights" if study.initialize == "pretrained" else "random weights"
    compared = "of all layers together" if study.scope == "global" else "of each matrix"
    yield (
        f"{study.base} was trained from {start}, {study.seeds} "
        f"{'seeds' if study.seeds > 1 else 'seed'}; the row of 0 % is the dense model."
    )
    if study.unit == "blocks":
        yield (
            "In each round the least important heads and feed-forward sublayers of the round "
            "before become zero, the same fraction of both."
        )
    else:
        yield (
            "In each round the smallest weights of the round before become zero, of the matrices "
            f"within the layers, {compared}."
        )
    if study.masks_of == "text":
        yield (
            f"Masks are those of pretraining from the same weights, {study.tokens:,} tokens a "
            "round; all tasks and seeds share them."
        )
    if study.rewind:
        yield (
            f"The first {100 * study.rewind:g} % of the steps are without the mask: weights are "
            "set back to those of that step."
        )
    else:
        yield "Weights are set back to the start."
    rows = "all rows" if study.rows is None else f"{study.rows:,} rows"
    epochs = (
        "as many epochs as suit their number"
        if study.epochs is None
        else f"epochs: {study.epochs:g}"
    )
    yield f"Each run: {rows} of the task, {epochs}."
    spread = "; ± is the standard deviation over seeds" if study.seeds > 1 else ""
    yield f"Scores range to 100{spread}."
