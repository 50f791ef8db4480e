"""The page of the analysis by probes: curves by layer of each task, tables, and a figure."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from unmask.analysis.probes.findings import LabelProbes, ProbeFindings, TreeProbes
from unmask.analysis.probes.layers import LayerScores
from unmask.reports.analysis.attention_tables import NETWORK_TITLES
from unmask.reports.analysis.layout import PageOpening, analysis_page, link
from unmask.reports.analysis.probes.probes_tables import (
    BASELINES,
    MOST_FREQUENT,
    TASK_TITLES,
    TreeScore,
    describe_data,
    describe_task,
    describe_trees,
    layer_table,
    mix_table,
    probe_sentences,
    tree_scores,
    tree_table,
)
from unmask.reports.charts.curve_plot import CurvePanel, draw_curve_plot
from unmask.reports.charts.line_chart import Curve, LineChart, ReferenceLine, draw_charts
from unmask.reports.markup import EMPTY_HTML, Html, html_table, section, tag
from unmask.reports.task_wording import capitalize_first

_COLORS = {"trained": 1, "random": 2}
_CONTROL_COLOR = 3
"""Of the control task of the trained network."""
_LABEL_PAPERS = (
    ("Control tasks", "Hewitt and Liang 2019", "https://arxiv.org/abs/1909.03368"),
    ("Code length", "Voita and Titov 2020", "https://arxiv.org/abs/2003.12298"),
)
_MIX_PAPER = ("Mixes of layers", "Tenney et al. 2019", "https://arxiv.org/abs/1905.05950")
_SPAN_PAPER = ("Spans", "Tenney et al. 2019", "https://arxiv.org/abs/1905.06316")
_TREE_PAPER = ("Trees", "Hewitt and Manning 2019", "https://aclanthology.org/N19-1419/")


def render_probes_page(findings: ProbeFindings, written: str) -> str:
    """Return the page as one HTML document that loads nothing.

    Args:
        findings: of a network and, beside it, its control.
        written: when it was written.
    """
    opening = PageOpening(
        kicker="Probes",
        title=findings.model,
        says=" ".join([*probe_sentences(findings), describe_data(findings)]),
        byline=[
            ("Data", findings.data),
            *((name, link(paper, url)) for name, paper, url in _papers(findings)),
        ],
    )
    return analysis_page(opening, list(_sections(findings)), written)


def _papers(findings: ProbeFindings) -> Iterator[tuple[str, str, str]]:
    """Yield what was done, by which paper and its address."""
    if findings.labels:
        yield from _LABEL_PAPERS
    if any(task.task == "spans" for task in findings.labels):
        yield _SPAN_PAPER
    if any(mix_table(task) is not None for task in findings.labels):
        yield _MIX_PAPER
    if findings.trees is not None:
        yield _TREE_PAPER


def draw_probes_figure(findings: ProbeFindings) -> str:
    """Return the accuracies and shares by layer as an SVG document, a panel for each task."""
    panels = [
        CurvePanel(
            title=f"{TASK_TITLES[task.task]}, accuracy, %",
            curves={
                NETWORK_TITLES[one.name]: {float(x.layer): (100 * x.accuracy,) for x in one.layers}
                for one in task.networks
            },
            level_name="baseline",
            level=(100 * task.majority,),
        )
        for task in findings.labels
    ]
    for score in () if findings.trees is None else tree_scores(findings.trees):
        if score.is_share:
            panels.append(_tree_panel(score))
    return draw_curve_plot(f"Probes of {findings.model}", "layer", panels)


def _tree_panel(score: TreeScore) -> CurvePanel:
    return CurvePanel(
        title=f"{score.title}, %",
        curves={
            NETWORK_TITLES[name]: {
                float(i): (100 * x,) for i, x in enumerate(layers) if x is not None
            }
            for name, layers in score.layers.items()
        },
        level_name="baseline",
        level=() if score.chain is None else (100 * score.chain,),
    )


def _sections(findings: ProbeFindings) -> Iterator[tuple[str, str, Html]]:
    for task in findings.labels:
        title = capitalize_first(TASK_TITLES[task.task])
        yield task.task, title, _labels_section(task, title)
    if findings.trees is not None:
        yield "trees", "Dependency trees", _trees_section(findings.trees)


def _labels_section(task: LabelProbes, title: str) -> Html:
    is_spans = task.task == "spans"
    baseline = "votes of words" if is_spans else "most frequent"
    accuracy = LineChart(
        title="Accuracy",
        subtitle=f"of the scored {'spans' if is_spans else 'words'}, and on the control task",
        unit="%",
        x_name="layer",
        curves=(
            *_layer_curves(task, lambda one: 100 * one.accuracy),
            _curve(
                "control task",
                [100 * one.control_accuracy for one in task.networks[0].layers],
                _CONTROL_COLOR,
            ),
        ),
        reference_lines=(ReferenceLine(baseline, 100 * task.majority),),
        is_large=True,
    )
    charts = [accuracy, *_small_charts(task), *_mix_charts(task)]
    mixed = mix_table(task)
    return section(
        task.task,
        title,
        describe_task(task),
        tag("div", *draw_charts(charts), class_="figures"),
        html_table(*layer_table(task), f"{title} by layer"),
        EMPTY_HTML if mixed is None else html_table(*mixed, "Scalar mix of all layers"),
        tag(
            "p",
            "In percent. Selectivity: accuracy minus that on the control task, where each "
            f"{'span of the same words' if is_spans else 'word type'} has a random label. kbit: "
            "length of the online code of the training labels; compression: the uniform code's "
            f"length by it. {capitalize_first(baseline)}: the "
            f"{BASELINES.get(task.task, MOST_FREQUENT)}.",
            class_="remark",
        ),
    )


def _small_charts(task: LabelProbes) -> Iterator[LineChart]:
    yield LineChart(
        title="Selectivity",
        subtitle="accuracy minus control task",
        unit="%",
        x_name="layer",
        curves=_layer_curves(task, lambda one: 100 * one.selectivity),
    )
    yield LineChart(
        title="Compression",
        subtitle="uniform code length by online code length",
        x_name="layer",
        curves=_layer_curves(task, lambda one: one.description_length.compression),
    )


def _mix_charts(task: LabelProbes) -> Iterator[LineChart]:
    mixes = [(one.name, one.mix) for one in task.networks if one.mix is not None]
    if not mixes:
        return
    yield LineChart(
        title="Weights of the mix",
        subtitle="softmax(s), all layers",
        unit="%",
        x_name="layer",
        starts_at_zero=True,
        curves=tuple(
            _curve(name, [100 * x for x in mix.layer_weights], _COLORS[name]) for name, mix in mixes
        ),
    )
    yield LineChart(
        title="Accuracy of mixes",
        subtitle="of layers 0 to this one",
        unit="%",
        x_name="layer",
        curves=tuple(
            _curve(name, [100 * x for x in mix.cumulative], _COLORS[name]) for name, mix in mixes
        ),
    )


def _trees_section(trees: TreeProbes) -> Html:
    charts = [
        LineChart(
            title=capitalize_first(score.title),
            subtitle="" if score.is_share else "Spearman",
            unit="%" if score.is_share else "",
            x_name="layer",
            curves=tuple(
                _curve(
                    name,
                    [np.nan if x is None else (100 * x if score.is_share else x) for x in layers],
                    _COLORS[name],
                )
                for name, layers in score.layers.items()
            ),
            reference_lines=()
            if score.chain is None
            else (ReferenceLine("chain", (100 if score.is_share else 1) * score.chain),),
        )
        for score in tree_scores(trees)
    ]
    return section(
        "trees",
        "Dependency trees",
        describe_trees(trees),
        tag("div", *draw_charts(charts), class_="figures"),
        html_table(*tree_table(trees), "Structural probes by layer"),
    )


def _layer_curves(task: LabelProbes, value: Callable[[LayerScores], float]) -> tuple[Curve, ...]:
    return tuple(
        _curve(one.name, [value(x) for x in one.layers], _COLORS[one.name]) for one in task.networks
    )


def _curve(name: str, values: Sequence[float], color: int) -> Curve:
    steps = np.arange(len(values), dtype=np.float64)
    return Curve(name=name, steps=steps, values=np.array(values), color=color, kind="measured")
