"""Figures of minimal pairs, blanks and saliency."""

from unmask.analysis.behavior.cloze_scores import ClozeFindings
from unmask.analysis.behavior.pair_scores import PairFindings
from unmask.analysis.saliency.findings import ExplainedText, SaliencyFindings
from unmask.reports.analysis.behavior.cloze_tables import CLOZE_TITLES, cloze_groups
from unmask.reports.analysis.behavior.pairs_tables import ACCURACY_TITLES, CHANCE
from unmask.reports.analysis.figures.accuracy_plot import draw_accuracy_plot
from unmask.reports.analysis.figures.heat_map import HeatCell, draw_heat_map
from unmask.reports.analysis.saliency.tables import METHOD_TITLES


def draw_pair_figures(findings: PairFindings) -> dict[str, str]:
    """Draw the accuracies of phenomena and of paradigms."""
    names = [ACCURACY_TITLES[one.name] for one in findings.accuracies]
    groups = {
        "phenomena": list(zip(*(one.by_phenomenon for one in findings.accuracies), strict=True)),
        "paradigms": list(zip(*(one.by_paradigm for one in findings.accuracies), strict=True)),
    }
    groups["phenomena"].append(tuple(one.overall for one in findings.accuracies))
    return {
        kind: draw_accuracy_plot(
            f"Minimal pairs, {findings.model}: {kind}", names, some, [CHANCE] * len(some)
        )
        for kind, some in groups.items()
    }


def draw_cloze_figures(findings: ClozeFindings) -> dict[str, str]:
    """Draw the accuracies of tasks or relations."""
    kind = "relations" if findings.are_facts else "tasks"
    names = [CLOZE_TITLES[one.name] for one in findings.accuracies]
    chances = [*findings.chance, findings.overall_chance]
    title = f"Blanks, {findings.model}: {kind}"
    return {kind: draw_accuracy_plot(title, names, cloze_groups(findings), chances)}


def draw_saliency_figures(findings: SaliencyFindings) -> dict[str, str]:
    """Draw each text that the page shows: methods by words, shaded by attribution."""
    return {
        f"text-{i}": _draw_text(text)
        for i, text in enumerate(findings.texts[: findings.n_shown], 1)
    }


def _draw_text(text: ExplainedText) -> str:
    cells: list[list[HeatCell]] = []
    for values in text.attributions.values():
        largest = max(map(abs, values), default=0.0) or 1.0
        cells.append(
            [HeatCell(values[word] / largest if word >= 0 else 0.0) for word in text.word_of_label]
        )
    rows = [METHOD_TITLES[method] for method in text.attributions]
    return draw_heat_map(f"What {text.predicted} rests on", rows, text.labels, cells)
