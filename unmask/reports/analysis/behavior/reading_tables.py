"""Tables of the analysis of reading times: rows for Markdown, a terminal and a page."""

from collections.abc import Iterator

from unmask.analysis.behavior.reading_scores import ReadingFindings, SurprisalEffect
from unmask.output import escape_markdown, markdown_table
from unmask.reports.formatting import MINUS_SIGN, format_number, format_percent

PREDICTOR_TITLES = {
    "trained": "surprisal, trained weights",
    "random": "surprisal, random weights",
    "tokens": "number of tokens",
}
SIGNIFICANCE = 0.05


def format_reading_markdown(findings: ReadingFindings) -> str:
    """Format the findings as a Markdown page."""
    lines = [f"# Reading times, {escape_markdown(findings.model)}", ""]
    lines += [escape_markdown(describe_words(findings)), ""]
    lines += [f"{sentence}\n" for sentence in reading_sentences(findings)]
    lines += markdown_table(*effect_table(findings), right_align=True)
    return "\n".join(lines).rstrip() + "\n"


def describe_words(findings: ReadingFindings) -> str:
    """Say which words were measured, and by which models."""
    text = (
        f"{findings.n_words:,} words of {findings.data}. The baseline predicts a measure from log "
        "frequency, length and position of a word, and their products"
    )
    if findings.spillover:
        text += f"; of {', '.join(findings.spillover)} also from the previous word's length and "
        text += "surprisal"
    if findings.token_count:
        text += "; all from the number of its tokens, too"
    text += ". R² is of least squares on the same words."
    if findings.n_too_long:
        text += f" Left out as beyond the model's positions: {findings.n_too_long:,}."
    return text


def reading_sentences(findings: ReadingFindings) -> Iterator[str]:
    """Yield what each predictor adds, in a sentence."""
    for one in findings.networks:
        significant = sum(effect.p_value < SIGNIFICANCE for effect in one.effects)
        mean = sum(effect.partial_r2 for effect in one.effects) / len(one.effects)
        unit = "tokens" if one.name == "tokens" else "bits"
        yield (
            f"{PREDICTOR_TITLES[one.name].capitalize()} (mean {one.mean_surprisal:.2f} {unit} a "
            f"word, correlation with log frequency {signed(one.frequency_correlation, 2)}): "
            f"explains {format_percent(mean, 2)} of what the baseline leaves, in the mean of "
            f"{len(one.effects)} measures, {significant} of which are significant at "
            f"{SIGNIFICANCE} (F tests)."
        )


def effect_table(findings: ReadingFindings) -> tuple[list[str], list[list[str]]]:
    """Return a row for each measure and predictor."""
    titles = ["measure", "words", "baseline R², %", "predictor", "gain", "of the rest, %"]
    titles += ["for each bit or token", "p"]
    rows = [
        [
            one.measure,
            f"{one.n_words:,}",
            f"{100 * one.r2_baseline:.2f}",
            network.name,
            signed(100 * one.gain, 2),
            f"{100 * one.partial_r2:.2f}",
            format_slope(one),
            format_p_value(one.p_value),
        ]
        for group in zip(*(one.effects for one in findings.networks), strict=True)
        for network, one in zip(findings.networks, group, strict=True)
    ]
    return titles, rows


def format_slope(effect: SurprisalEffect) -> str:
    """Return units of the measure for each bit, with their 95 % interval."""
    low, high = signed(effect.slope_low, 2), signed(effect.slope_high, 2)
    return f"{signed(effect.slope, 2)} ({low} to {high})"


def format_p_value(p_value: float) -> str:
    """Return a p value with two digits, or that it is very small."""
    return "< 0.0001" if p_value < 1e-4 else format_number(p_value, 2)


def signed(value: float, n_decimals: int) -> str:
    """Return a number with its sign."""
    return f"{value:+.{n_decimals}f}".replace("-", MINUS_SIGN)
