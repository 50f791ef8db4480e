"""What a model answered before and after training, as a page shows it."""

from collections.abc import Iterable, Sequence

from unmask.serving.markup import EMPTY, Content, Html, bar, section, tag
from unmask.serving.record import Fill, Generate, Guesses, Near, Sample, number
from unmask.serving.words import NARROW, NOTHING, cut, percent

MOST_SAMPLES, MOST_GUESSES, MOST_CHARACTERS = 24, 5, 1500  # what is longer is cut, and says so


def draw_samples(samples: Sequence[Sample]) -> Html:
    """Show blanks as they were filled, prompts as they went on, words with their neighbors."""
    if not samples:
        return EMPTY
    fills = [_fill(s) for s in samples[:MOST_SAMPLES] if isinstance(s, Fill)]
    texts = [_generated(s) for s in samples[:MOST_SAMPLES] if isinstance(s, Generate)]
    words = [_near(s) for s in samples[:MOST_SAMPLES] if isinstance(s, Near)]
    more = len(samples) - MOST_SAMPLES
    return section(
        "samples",
        "Samples",
        _says(samples),
        tag("div", *fills, class_="fills") if fills else EMPTY,
        tag("div", *texts, class_="texts") if texts else EMPTY,
        tag("div", *words, class_="nears") if words else EMPTY,
        tag("p", f"{more:,} more are in samples.json.", class_="remark") if more > 0 else EMPTY,
    )


def _says(samples: Sequence[Sample]) -> str:
    asked = [s for s in samples if not isinstance(s, Near)]
    if not asked:
        return "Words, from frequent to rare, and those whose vectors are nearest, with the cosine."
    said = "What the network answers"
    said += " before its first step" if any(s.before for s in asked) else ""
    both = any(s.before for s in asked) and any(s.after for s in asked)
    return f"{said} and after its last." if both else f"{said}."


def _fill(sample: Fill) -> Html:
    sides = [(name, g) for name, g in (("before", sample.before), ("after", sample.after)) if g]
    drawn = [tag("div", tag("h3", name), *_blanks(g, sample), class_=name) for name, g in sides]
    sentence = tag("p", *_sentence(sample), class_="sentence", dir="auto")
    return tag("article", sentence, tag("div", *drawn, class_="sides"), class_="sample")


def _sentence(sample: Fill) -> Iterable[Content]:
    """Mark the blanks of a text, numbered if they are several; known answers stand in them."""
    text = cut(sample.text, MOST_CHARACTERS)
    first, *rest = text.split(sample.blank) if sample.blank else [text]
    yield first
    for i, piece in enumerate(rest):
        answer = sample.answers[i] if i < len(sample.answers) else ""
        order = tag("sub", str(i + 1)) if len(rest) > 1 else EMPTY
        yield tag("mark", answer or Html("&emsp;?&emsp;"), order)
        yield piece


def _blanks(lists: Sequence[Guesses], sample: Fill) -> Iterable[Html]:
    for i, guesses in enumerate(lists):
        answer = sample.answers[i].strip() if i < len(sample.answers) else None
        order = tag("span", str(i + 1), class_="order") if len(lists) > 1 else EMPTY
        rows = [_guess(token, share, answer) for token, share in guesses[:MOST_GUESSES]]
        yield tag("div", order, tag("ol", *rows), class_="blank")


def _guess(token: str, share: float | None, answer: str | None) -> Html:
    known, right = number(share), token.strip() == answer
    sign = tag("abbr", " ✓", title="what stood there") if right else EMPTY
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
        tag("b", NOTHING if known is None else _probability(known)),
        EMPTY if known is None else bar(known),
        class_="right" if right else None,
    )


def _probability(share: float) -> str:
    return f"<{NARROW}0.1{NARROW}%" if 0 < share < 0.0005 else percent(share)


def _generated(sample: Generate) -> Html:
    prompt = tag("span", cut(sample.prompt, MOST_CHARACTERS), class_="prompt")
    sides = [(name, t) for name, t in (("before", sample.before), ("after", sample.after)) if t]
    drawn = [
        tag(
            "div",
            tag("h3", name),
            tag("p", prompt, cut(text, MOST_CHARACTERS), dir="auto"),
            class_=name,
        )
        for name, text in sides
    ]
    how = tag("p", sample.settings, class_="remark") if sample.settings else EMPTY
    return tag("article", tag("div", *drawn, class_="sides"), how, class_="sample generated")


def _near(sample: Near) -> Html:
    rows = [
        tag(
            "li",
            tag("span", word, class_="token", dir="auto", title=word),
            tag("b", f"{cosine:.2f}"),
            bar(cosine),
        )
        for word, cosine in sample.neighbors[:MOST_GUESSES]
    ]
    shown = tag("p", tag("mark", cut(sample.word, MOST_CHARACTERS)), class_="sentence", dir="auto")
    return tag("article", shown, tag("div", tag("ol", *rows), class_="blank"), class_="sample")
