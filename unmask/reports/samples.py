"""What a model answered before and after training, as a page shows it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from unmask.reports.formatting import MISSING_VALUE, NARROW_SPACE, format_percent, truncate_text
from unmask.reports.markup import EMPTY_HTML, Html, HtmlContent, png_image, section, share_bar, tag
from unmask.reports.report_data import (
    BlankPredictions,
    Fill,
    Generate,
    Near,
    Picture,
    ReportSample,
)
from unmask.training.log import finite_number

MAX_SAMPLES, MAX_PREDICTIONS, MAX_SAMPLE_CHARACTERS = (
    24,
    5,
    1500,
)  # what is longer is cut, and says so


def draw_samples(samples: Sequence[ReportSample]) -> Html:
    """Show blanks as they were filled, prompts as they went on, words with their neighbors."""
    if not samples:
        return EMPTY_HTML
    by_kind: dict[type, list[Html]] = {}
    for sample in samples[:MAX_SAMPLES]:
        by_kind.setdefault(type(sample), []).append(_ARTICLES[type(sample)](sample))
    more = len(samples) - MAX_SAMPLES
    return section(
        "samples",
        "Samples",
        _section_summary(samples),
        *(
            tag("div", *by_kind[kind], class_=name)
            for kind, name in _GROUPS.items()
            if kind in by_kind
        ),
        tag("p", f"{more:,} more are in samples.json.", class_="remark")
        if more > 0
        else EMPTY_HTML,
    )


def _section_summary(samples: Sequence[ReportSample]) -> str:
    if type(samples[0]) is Picture:
        return "Held-out pictures, and what the network makes of them."
    answered = [s for s in samples if isinstance(s, Fill | Generate)]
    if not answered:
        return "Words, from frequent to rare, and those whose vectors are nearest, with the cosine."
    summary = "What the network answers"
    summary += " before its first step" if any(s.before for s in answered) else ""
    has_both = any(s.before for s in answered) and any(s.after for s in answered)
    return f"{summary} and after its last." if has_both else f"{summary}."


def _fill_article(sample: Fill) -> Html:
    sides = [(name, g) for name, g in (("before", sample.before), ("after", sample.after)) if g]
    drawn = [
        tag("div", tag("h3", name), *_blank_lists(g, sample), class_=name) for name, g in sides
    ]
    sentence = tag("p", *_marked_sentence(sample), class_="sentence", dir="auto")
    return tag("article", sentence, tag("div", *drawn, class_="sides"), class_="sample")


def _marked_sentence(sample: Fill) -> Iterable[HtmlContent]:
    """Mark the blanks of a text, numbered if there are several, with known answers filled in."""
    text = truncate_text(sample.text, MAX_SAMPLE_CHARACTERS)
    first, *rest = text.split(sample.blank) if sample.blank else [text]
    yield first
    for i, piece in enumerate(rest):
        answer = sample.answers[i] if i < len(sample.answers) else ""
        order = tag("sub", str(i + 1)) if len(rest) > 1 else EMPTY_HTML
        yield tag("mark", answer or Html("&emsp;?&emsp;"), order)
        yield piece


def _blank_lists(prediction_lists: Sequence[BlankPredictions], sample: Fill) -> Iterable[Html]:
    for i, guesses in enumerate(prediction_lists):
        answer = sample.answers[i].strip() if i < len(sample.answers) else None
        order = tag("span", str(i + 1), class_="order") if len(prediction_lists) > 1 else EMPTY_HTML
        rows = [
            _prediction_item(token, share, answer) for token, share in guesses[:MAX_PREDICTIONS]
        ]
        yield tag("div", order, tag("ol", *rows), class_="blank")


def _prediction_item(token: str, probability: float | None, original_token: str | None) -> Html:
    known, right = finite_number(probability), token.strip() == original_token
    sign = tag("abbr", " ✓", title="what stood there") if right else EMPTY_HTML
    return tag(
        "li",
        tag(
            "span",
            token.strip() or ("␣" if token else "nothing"),
            sign,
            class_="token",
            dir="auto",
            title=token,
        ),
        tag("b", MISSING_VALUE if known is None else _format_probability(known)),
        EMPTY_HTML if known is None else share_bar(known),
        class_="right" if right else None,
    )


def _format_probability(probability: float) -> str:
    return (
        f"<{NARROW_SPACE}0.1{NARROW_SPACE}%"
        if 0 < probability < 0.0005
        else format_percent(probability)
    )


def _generation_article(sample: Generate) -> Html:
    prompt = tag("span", truncate_text(sample.prompt, MAX_SAMPLE_CHARACTERS), class_="prompt")
    sides = [(name, t) for name, t in (("before", sample.before), ("after", sample.after)) if t]
    drawn = [
        tag(
            "div",
            tag("h3", name),
            tag("p", prompt, truncate_text(text, MAX_SAMPLE_CHARACTERS), dir="auto"),
            class_=name,
        )
        for name, text in sides
    ]
    how = tag("p", sample.settings, class_="remark") if sample.settings else EMPTY_HTML
    return tag("article", tag("div", *drawn, class_="sides"), how, class_="sample generated")


def _neighbor_article(sample: Near) -> Html:
    rows = [
        tag(
            "li",
            tag("span", word, class_="token", dir="auto", title=word),
            tag("b", f"{cosine:.2f}"),
            share_bar(cosine),
        )
        for word, cosine in sample.neighbors[:MAX_PREDICTIONS]
    ]
    shown = tag(
        "p",
        tag("mark", truncate_text(sample.word, MAX_SAMPLE_CHARACTERS)),
        class_="sentence",
        dir="auto",
    )
    return tag("article", shown, tag("div", tag("ol", *rows), class_="blank"), class_="sample")


def picture_article(sample: Picture) -> Html:
    """Show a picture in several views, with lines of text below."""
    figures = [
        tag("figure", image, tag("figcaption", title))
        for title, png in sample.panels
        if (image := png_image(png, f"{title} {sample.name}")) != EMPTY_HTML
    ]
    lines = [
        tag("p", truncate_text(line, MAX_SAMPLE_CHARACTERS), dir="auto") for line in sample.lines
    ]
    return tag("article", tag("div", *figures, class_="views"), *lines, class_="sample")


_GROUPS = {Fill: "fills", Generate: "texts", Near: "nears", Picture: "pictures"}
"""Kinds of samples in their order on the page, and the class of their group."""
_ARTICLES: Mapping[type, Callable[[Any], Html]] = {
    Fill: _fill_article,
    Generate: _generation_article,
    Near: _neighbor_article,
    Picture: picture_article,
}
