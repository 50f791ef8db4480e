"""Figures of attention heads and of hidden states: maps of heads, layers and positions; curves."""

from collections.abc import Mapping

from jaxtyping import Float
from numpy import ndarray

from unmask.analysis.attention.findings import AttentionFindings
from unmask.analysis.attention.importance import ImportanceFindings
from unmask.analysis.hidden_states.contextuality import ContextualityFindings
from unmask.analysis.hidden_states.lens import LensFindings, LensView
from unmask.analysis.hidden_states.senses.findings import SensesFindings
from unmask.analysis.hidden_states.similarity import SimilarityFindings
from unmask.reports.analysis.figures.heat_map import HeatCell, draw_heat_map
from unmask.reports.charts.curve_plot import CurvePanel, CurvePoints, draw_curve_plot


def draw_attention_figures(findings: AttentionFindings) -> dict[str, str]:
    """Draw the accuracy of each head at each relation, for each network."""
    figures: dict[str, str] = {}
    for one in findings.networks:
        accuracies = one.syntax.accuracies.max(0)  # [k r]
        figures[f"relations-{one.name}"] = draw_heat_map(
            f"Heads × relations, {findings.model}, {one.name} weights, %",
            [str(head) for head in one.syntax.heads],
            one.syntax.relations,
            _cells(accuracies, percent=True),
        )
    return figures


def draw_importance_figures(findings: ImportanceFindings) -> dict[str, str]:
    """Draw the importance of each head, and the loss by the share of heads that is removed."""
    most = max(len(one.importance) for one in findings.layers)
    cells = [
        [HeatCell(x, f"{x:.2f}") for x in one.importance.tolist()]
        + [HeatCell(0.0)] * (most - len(one.importance))
        for one in findings.layers
    ]
    curves = {
        name: {100 * f: (x,) for f, x in zip(findings.fractions, losses, strict=True)}
        for name, losses in findings.curves.items()
    }
    panel = CurvePanel(
        title="loss, nats of a target",
        curves=curves,
        level_name="all heads",
        level=(findings.loss,),
    )
    return {
        "heads": draw_heat_map(
            f"Importance of heads, {findings.model}",
            [one.name for one in findings.layers],
            [f"head {i + 1}" for i in range(most)],
            cells,
        ),
        "orders": draw_curve_plot(
            f"Heads removed, {findings.model}", "% of the heads removed", [panel]
        ),
    }


def draw_similarity_figures(findings: SimilarityFindings) -> dict[str, str]:
    """Draw the CKA of all pairs of layers."""
    pairs = {"cka": (findings.other, findings.to_other)}
    if findings.to_random is not None:
        pairs["cka-random"] = (f"random weights of {findings.other}", findings.to_random)
    return {
        name: draw_heat_map(
            f"CKA of {findings.model} (rows) and {other} (columns)",
            [f"layer {i}" for i in range(len(layers.cka))],
            [f"layer {i}" for i in range(layers.cka.shape[1])],
            _cells(layers.cka, percent=False),
        )
        for name, (other, layers) in pairs.items()
    }


def draw_lens_figures(findings: LensFindings) -> dict[str, str]:
    """Draw measures by layer, and each text that the page shows: layers by positions."""
    figures: dict[str, str] = {}
    if findings.n_positions:
        measures = {"agreement with the last layer": "agreement", "accuracy": "accuracy"}
        figures["layers"] = _draw_layers(
            f"Logit lens, {findings.model}",
            {
                title: {
                    f"{one.name} weights": {
                        float(x.layer): (float(getattr(x, name)),) for x in one.layers
                    }
                    for one in findings.networks
                }
                for title, name in measures.items()
            },
        )
    trained = findings.networks[0]
    return figures | {f"text-{i}": _draw_view(one) for i, one in enumerate(trained.views, 1)}


def draw_contextuality_figures(findings: ContextualityFindings) -> dict[str, str]:
    """Draw the measures by layer."""
    measures = ("anisotropy", "self_similarity", "intra_sentence")
    return {
        "layers": _draw_layers(
            f"Contextuality, {findings.model}",
            {
                name.replace("_", " "): {
                    network: {float(x.layer): (float(getattr(x, name)),) for x in layers}
                    for network, layers in findings.networks.items()
                }
                for name in measures
            },
        )
    }


def draw_senses_figures(findings: SensesFindings) -> dict[str, str]:
    """Draw the accuracy by layer, with the baseline of the other words."""
    curves = {
        network: {float(x.layer): (x.scored.accuracy,) for x in layers}
        for network, layers in findings.networks.items()
    }
    panel = CurvePanel(
        title="accuracy",
        curves=curves,
        level_name="static vectors of the other words",
        level=(findings.other_words.scored.accuracy,),
    )
    return {"layers": draw_curve_plot(f"Senses, {findings.model}", "layer", [panel])}


def _draw_layers(title: str, panels: Mapping[str, Mapping[str, CurvePoints]]) -> str:
    drawn = [
        CurvePanel(title=name, curves=curves, level_name="zero", level=(0.0,))
        for name, curves in panels.items()
    ]
    return draw_curve_plot(title, "layer", drawn)


def _draw_view(view: LensView) -> str:
    n_layers = len(view.positions[0].layers)
    cells = [
        [
            HeatCell(one.layers[layer].probabilities[0], one.layers[layer].tokens[0])
            for one in view.positions
        ]
        for layer in reversed(range(n_layers))
    ]
    rows = [f"layer {layer}" for layer in reversed(range(n_layers))]
    return draw_heat_map(view.text, rows, [one.read for one in view.positions], cells)


def _cells(values: Float[ndarray, "r c"], *, percent: bool) -> list[list[HeatCell]]:
    return [
        [HeatCell(x, f"{100 * x:.0f}" if percent else f"{x:.2f}") for x in row]
        for row in values.tolist()
    ]
