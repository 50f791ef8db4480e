"""Tables of the analysis by probes: rows for Markdown, a terminal and a page."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from unmask.analysis.probes.annotations import ProbeTask
from unmask.analysis.probes.findings import (
    LabelProbes,
    NetworkLabelProbes,
    ProbeFindings,
    TreeProbes,
)
from unmask.output import escape_markdown, markdown_table
from unmask.reports.analysis.attention_tables import NETWORK_TITLES
from unmask.reports.analysis.behavior.accuracies import points
from unmask.reports.formatting import MINUS_SIGN, MISSING_VALUE
from unmask.reports.task_wording import capitalize_first

TASK_TITLES: Mapping[ProbeTask, str] = {
    "tags": "parts of speech",
    "labels": "labels of words",
    "relations": "dependency relations",
    "spans": "spans",
    "distances": "distances in the tree",
    "depths": "depths in the tree",
}
BASELINES: Mapping[ProbeTask, str] = {
    "spans": "label that the words of a span vote for",
}
"""Baselines that are not the most frequent label of each word type."""
MOST_FREQUENT = "most frequent label of each word type"
MIX = "mix"
"""Name of the row of the scalar mix of all layers."""


def format_probes_markdown(findings: ProbeFindings) -> str:
    """Format the findings as a Markdown page: a table by layer for each task."""
    lines = [f"# Probes of {escape_markdown(findings.model)}", ""]
    lines += [escape_markdown(describe_data(findings)), ""]
    lines += [f"{sentence}\n" for sentence in probe_sentences(findings)]
    for task in findings.labels:
        lines += [f"## {TASK_TITLES[task.task].capitalize()}", "", describe_task(task), ""]
        lines += [*markdown_table(*layer_table(task), right_align=True), ""]
    if findings.trees is not None:
        lines += ["## Dependency trees", "", describe_trees(findings.trees), ""]
        lines += [*markdown_table(*tree_table(findings.trees), right_align=True), ""]
    return "\n".join(lines).rstrip() + "\n"


def describe_data(findings: ProbeFindings) -> str:
    """Say on which sentences probes were fitted and scored."""
    kind = (
        "linear"
        if findings.hidden_size is None
        else f"with a hidden layer of {findings.hidden_size}"
    )
    text = (
        f"Probes of labels are {kind}. {findings.n_fit:,} sentences fit all probes, "
        f"{findings.n_stop:,} stop their training, {findings.n_scored:,} others are scored."
    )
    if findings.n_skipped:
        n = findings.n_skipped
        longer = "1 sentence is" if n == 1 else f"{n:,} sentences are"
        text += f" {longer} longer than the model's positions and left out."
    return text


def describe_task(task: LabelProbes) -> str:
    """Say how many words and labels a task has, and how wide an interval of an accuracy is."""
    fit, stop, scored = task.n_words
    low, high = task.interval(task.networks[0].best.accuracy)
    rows = "spans" if task.task == "spans" else "words"
    text = (
        f"{task.n_labels:,} labels of {fit:,} {rows} to fit, {stop:,} to stop, {scored:,} scored; "
        f"the binomial 95 % interval of an accuracy is about ±{50 * (high - low):.1f} points. "
        "Layer 0 is the input of the first layer."
    )
    if any(one.mix is None and one.has_several_widths for one in task.networks):
        text += " Layers have different widths, so they are not mixed."
    return text


def describe_trees(trees: TreeProbes) -> str:
    """Say how many sentences have trees, and what the columns are."""
    fit, stop, scored = trees.n_sentences
    return (
        f"{fit:,} sentences to fit, {stop:,} to stop, {scored:,} scored; rank {trees.rank}. UUAS: "
        "share of the edges that spanning trees have; correlations are Spearman's, of sentences of "
        "5 to 50 words. A chain links each word to the next; its first word is its root."
    )


def probe_sentences(findings: ProbeFindings) -> Iterator[str]:
    """Yield the highest scores of the network, of its control and of the baseline, by task."""
    for task in findings.labels:
        scores = [
            f"{points(one.best.accuracy)} % at layer {one.best.layer} with "
            f"{NETWORK_TITLES[one.name]}"
            for one in task.networks
        ]
        yield (
            f"{TASK_TITLES[task.task].capitalize()}: highest accuracy {', '.join(scores)}; the "
            f"{BASELINES.get(task.task, MOST_FREQUENT)} has {points(task.majority)} %."
        )
    for score in _shares(findings):
        best = [
            f"{score.format(value)} % at layer {layer} with {NETWORK_TITLES[network]}"
            for network, (layer, value) in _highest(score).items()
        ]
        yield (
            f"{capitalize_first(score.title)}: highest {', '.join(best)}; a chain of words has "
            f"{score.format(score.chain)} %."
        )


def best_layer_table(findings: ProbeFindings) -> tuple[list[str], list[list[str]]]:
    """Return a row for each task and network: its highest accuracy, and what stands beside it."""
    titles = ["task", "weights", "layer", "accuracy", "selectivity", "compression", "mix"]
    rows: list[list[str]] = []
    for task in findings.labels:
        for one in task.networks:
            best, mix = one.best, one.mix
            rows.append(
                [
                    TASK_TITLES[task.task],
                    one.name,
                    str(best.layer),
                    points(best.accuracy),
                    _signed_points(best.selectivity),
                    f"{best.description_length.compression:.2f}",
                    MISSING_VALUE if mix is None else points(mix.accuracy),
                ]
            )
    for score in _shares(findings):
        rows += [
            [score.title, network, str(layer), score.format(value), *[MISSING_VALUE] * 3]
            for network, (layer, value) in _highest(score).items()
        ]
    return titles, rows


def _shares(findings: ProbeFindings) -> list["TreeScore"]:
    trees = findings.trees
    return [] if trees is None else [one for one in tree_scores(trees) if one.is_share]


def _highest(score: "TreeScore") -> dict[str, tuple[int, float]]:
    """Return the layer with the highest score of each network, and the score."""
    found: dict[str, tuple[int, float]] = {}
    for network, layers in score.layers.items():
        known = [(value, -i) for i, value in enumerate(layers) if value is not None]
        value, layer = max(known)
        found[network] = (-layer, value)
    return found


def layer_table(task: LabelProbes) -> tuple[list[str], list[list[str]]]:
    """Return a row for each layer, and for the mix, with the scores of each network."""
    titles = ["layer"]
    for one in task.networks:
        titles += [f"{column}, {one.name}" for column in _COLUMNS]
    rows = [
        [str(i), *(cell for one in task.networks for cell in _layer_cells(one, i))]
        for i in range(len(task.networks[0].layers))
    ]
    if all(one.mix is not None for one in task.networks):
        rows.append([MIX, *(cell for one in task.networks for cell in _mix_cells(one))])
    return titles, rows


_COLUMNS = ("accuracy", "control task", "selectivity", "kbit", "compression")


def _layer_cells(network: NetworkLabelProbes, layer: int) -> list[str]:
    one = network.layers[layer]
    return [
        points(one.accuracy),
        points(one.control_accuracy),
        _signed_points(one.selectivity),
        f"{one.description_length.bits / 1000:.2f}",
        f"{one.description_length.compression:.2f}",
    ]


def _mix_cells(network: NetworkLabelProbes) -> list[str]:
    mix = network.mix
    assert mix is not None
    return [
        points(mix.accuracy),
        points(mix.control_accuracy),
        _signed_points(mix.selectivity),
        f"{mix.description_length.bits / 1000:.2f}",
        f"{mix.description_length.compression:.2f}",
    ]


def _signed_points(value: float) -> str:
    text = points(value)
    return text.removeprefix("-") if float(text) == 0 else text.replace("-", MINUS_SIGN)


def mix_table(task: LabelProbes) -> tuple[list[str], list[list[str]]] | None:
    """Return where in the layers the mixes read: a row for each network. None: no mix."""
    rows: list[list[str]] = []
    for one in task.networks:
        if one.mix is None:
            return None
        expected = one.mix.expected_layer
        rows.append(
            [
                NETWORK_TITLES[one.name],
                f"{one.mix.center_of_gravity:.2f}",
                MISSING_VALUE if expected is None else f"{expected:.2f}",
                points(one.mix.cumulative[0]),
                points(one.mix.accuracy),
            ]
        )
    return ["mix of layers", "center of gravity", "expected layer", "layer 0", "all layers"], rows


@dataclass(frozen=True, kw_only=True)
class TreeScore:
    """One score of structural probes."""

    title: str
    is_share: bool
    """A share of edges or roots; otherwise a correlation."""
    layers: Mapping[str, tuple[float | None, ...]]
    """Of each layer, by network."""
    chain: float | None

    def format(self, value: float | None) -> str:
        """Return a share in points, a correlation with three decimals."""
        if value is None:
            return MISSING_VALUE
        return points(value) if self.is_share else f"{value:.3f}".replace("-", MINUS_SIGN)


def tree_scores(trees: TreeProbes) -> list[TreeScore]:
    """Return the scores that were asked for."""
    found: list[TreeScore] = []
    networks, first = trees.networks, trees.networks[0]
    if first.distances:
        for title, is_share, name in (
            ("UUAS", True, "uuas"),
            ("correlation of distances", False, "spearman"),
        ):
            layers = {one.name: tuple(vars(x)[name] for x in one.distances) for one in networks}
            chain = first.distances[0].chain_uuas if is_share else None
            found.append(TreeScore(title=title, is_share=is_share, layers=layers, chain=chain))
    if first.depths:
        for title, is_share, name in (
            ("roots", True, "root_accuracy"),
            ("correlation of depths", False, "spearman"),
        ):
            layers = {one.name: tuple(vars(x)[name] for x in one.depths) for one in networks}
            chain = vars(first.depths[0])[f"chain_{name}"]
            found.append(TreeScore(title=title, is_share=is_share, layers=layers, chain=chain))
    return found


def tree_table(trees: TreeProbes) -> tuple[list[str], list[list[str]]]:
    """Return a row for each layer, and for the chain, with the scores of each network."""
    scores = tree_scores(trees)
    titles = [f"{one.title}, {network}" for one in scores for network in one.layers]
    n_layers = len(next(iter(scores[0].layers.values())))
    rows = [
        [str(i), *(one.format(layers[i]) for one in scores for layers in one.layers.values())]
        for i in range(n_layers)
    ]
    rows.append(["chain", *(one.format(one.chain) for one in scores for _ in one.layers)])
    return ["layer", *titles], rows
