"""Tables of the analysis of saliency: rows for Markdown, a terminal and a page."""

from collections.abc import Iterator, Sequence

from unmask.analysis.saliency.attributions import Method
from unmask.analysis.saliency.faithfulness import FRACTIONS
from unmask.analysis.saliency.findings import ExplainedText, MethodScores, SaliencyFindings
from unmask.output import escape_markdown, markdown_table
from unmask.reports.formatting import format_percent

METHOD_TITLES: dict[Method, str] = {
    "integrated_gradients": "integrated gradients",
    "gradient_x_input": "gradient × input",
    "occlusion": "occlusion",
    "attention_rollout": "attention rollout",
    "random": "random",
}
BASELINE_TITLES = {"mask": "the mask token", "pad": "the padding token", "zero": "zeros"}


def format_saliency_markdown(findings: SaliencyFindings) -> str:
    """Format the findings as a Markdown page: scores, curves, and the words of some texts."""
    lines = [f"# What decisions of {escape_markdown(findings.model)} rest on", ""]
    lines += [
        describe_texts(findings),
        "",
        *markdown_table(*method_table(findings), right_align=True),
    ]
    lines += ["", *(f"{sentence}\n" for sentence in result_sentences(findings))]
    for name in ("comprehensiveness", "sufficiency"):
        lines += [f"{name.capitalize()} by the fraction of words:", ""]
        lines += [*markdown_table(*curve_table(findings, name), right_align=True), ""]
    for text in findings.shown:
        lines += [f"{escape_markdown(describe_decision(text))}", ""]
        lines += [*markdown_table(*word_table(text)), ""]
    return "\n".join(lines).rstrip() + "\n"


def describe_texts(findings: SaliencyFindings) -> str:
    """Say what was explained."""
    decisions = {
        "labels": "the predicted label",
        "numbers": "the predicted number",
        "tokens": "the predicted token",
    }[findings.decides]
    text = f"{len(findings.texts):,} texts; explained is {decisions}."
    if findings.n_skipped:
        text += f" {findings.n_skipped:,} without words, or too long, are left out."
    if (accuracy := findings.accuracy) is not None:
        text += f" {format_percent(accuracy)} of the predictions are right."
    return text


def result_sentences(findings: SaliencyFindings) -> Iterator[str]:
    """Yield what the scores say."""
    better = [one for one in findings.methods if one.above_random[0] > 0]
    names = ", ".join(METHOD_TITLES[one.method] for one in better)
    yield (
        f"More than random words name what the decision rests on: {names}."
        if better
        else "No method names words on which the decision rests more than on random ones."
    )
    mean, largest = findings.gaps
    yield (
        f"Integrated gradients add up to the difference from the baseline but for {mean:.2g} in "
        f"the mean and {largest:.2g} at most, of {findings.mean_difference:.2g} in the mean "
        f"({findings.steps} gradients; removed words have the embedding of "
        f"{BASELINE_TITLES[findings.baseline]})."
    )
    if findings.left_out is not None:
        yield f"Attention rollout is left out: {findings.left_out}."


def method_table(findings: SaliencyFindings) -> tuple[list[str], list[list[str]]]:
    """Return a row for each method; a star where the interval beside random excludes zero."""
    titles = ["method", "comprehensiveness", "over random", "sufficiency", "under random"]
    has_control = any(one.rank_correlation is not None for one in findings.methods)
    rows = [_method_row(one, has_control) for one in findings.methods]
    return [*titles, *(["ρ with random weights"] if has_control else [])], rows


def _method_row(one: MethodScores, has_control: bool) -> list[str]:
    is_random = one.method == "random"
    row = [
        METHOD_TITLES[one.method],
        f"{one.comprehensiveness_area:.3f}",
        "" if is_random else _interval(one.above_random),
        f"{one.sufficiency_area:.3f}",
        "" if is_random else _interval(one.below_random),
    ]
    if has_control:
        row.append("" if one.rank_correlation is None else f"{one.rank_correlation:.2f}")
    return row


def _interval(bounds: tuple[float, float]) -> str:
    low, high = bounds
    return f"{low:+.3f} to {high:+.3f}" + (" *" if low > 0 else "")


def curve_table(findings: SaliencyFindings, name: str) -> tuple[list[str], list[list[str]]]:
    """Return comprehensiveness or sufficiency of each method at each fraction of words."""
    rows = [
        [METHOD_TITLES[one.method], *(f"{value:.3f}" for value in vars(one)[name])]
        for one in findings.methods
    ]
    return [name, *(f"{fraction:.0%}" for fraction in FRACTIONS)], rows


def describe_decision(text: ExplainedText) -> str:
    """Say what was predicted of a text, with its probability or, of a number, without."""
    said = f"{text.predicted} ({format_percent(text.probability)})"
    if 0 <= text.probability <= 1:
        return said if text.target in (None, text.predicted) else f"{said}, should be {text.target}"
    return text.predicted if text.target is None else f"{text.predicted}, should be {text.target}"


def word_table(text: ExplainedText) -> tuple[list[str], list[list[str]]]:
    """Return what each method attributes to each word."""
    methods: list[Method] = [method for method in text.attributions if method != "random"]
    labels = _labels_of_words(text)
    rows = [
        [label, *(f"{text.attributions[method][word]:.3f}" for method in methods)]
        for word, label in enumerate(labels)
    ]
    return ["word", *(METHOD_TITLES[method] for method in methods)], rows


def _labels_of_words(text: ExplainedText) -> Sequence[str]:
    pairs = zip(text.word_of_label, text.labels, strict=True)
    return [label for _, label in sorted(pair for pair in pairs if pair[0] >= 0)]
