"""What cleaning did to a corpus, as lines for a terminal and as a page."""

from collections.abc import Iterator

from unmask import __version__
from unmask.jobs.corpus.clean import CleaningReport
from unmask.jobs.corpus.cleaned_chunks import Removed
from unmask.reports.formatting import format_percent
from unmask.reports.markup import Html, html_table, join_html, section, tag
from unmask.reports.page import html_page
from unmask.text.cleaning.rules import Cleaning

_REASONS_SHOWN = 12


def describe_cleaning(report: CleaningReport) -> Iterator[str]:
    """Yield lines for a terminal."""
    read, kept = report.read, report.kept
    share = format_percent(kept.characters / max(read.characters, 1))
    yield (
        f"cleaned: {kept.documents:,} of {read.documents:,} documents are left, "
        f"{share} of the characters"
    )
    reasons = sorted(report.removed.items(), key=lambda one: -one[1].characters)
    for reason, one in reasons[:_REASONS_SHOWN]:
        yield f"  {reason}: {_amount(one)}"
    if len(reasons) > _REASONS_SHOWN:
        yield f"  and {len(reasons) - _REASONS_SHOWN} more reasons"


def _amount(one: Removed) -> str:
    counts = (
        (one.documents, "document"), (one.lines, "line"), (one.changes, "changed line"),
    )  # fmt: skip
    said = [f"{n:,} {what}{'s' * (n != 1)}" for n, what in counts if n]
    if one.characters:
        said.append(f"{one.characters:,} characters")
    return ", ".join(said) or "nothing"


def cleaning_page(report: CleaningReport, cleaning: Cleaning) -> str:
    """Return a page: what was kept, what was removed and why, examples."""
    read, kept = report.read, report.kept
    rows = [
        ["read", f"{read.documents:,}", "", f"{read.characters:,}", "100 %"],
        *(
            [
                reason,
                f"{one.documents:,}" if one.documents else "",
                f"{one.lines or one.changes:,}" if one.lines or one.changes else "",
                f"{one.characters:,}" if not one.changes else "changed",
                format_percent(one.characters / max(read.characters, 1)),
            ]
            for reason, one in report.removed.items()
        ),
    ]
    share = format_percent(kept.characters / max(read.characters, 1))
    table = html_table(
        ["", "documents", "lines", "characters", "share"], rows, "What was removed, by reason",
        ["left", f"{kept.documents:,}", "", f"{kept.characters:,}", share],
    )  # fmt: skip
    examples = [
        join_html(tag("h3", reason), *(_example(one) for one in removed.examples))
        for reason, removed in report.removed.items()
        if removed.examples
    ]
    sections = [("removed", "What was removed"), ("examples", "Examples"), ("rules", "Rules")]
    summary = f"{kept.documents:,} of {read.documents:,} documents are left."
    content = [
        tag("h1", "What cleaning left"),
        section("removed", "What was removed", summary, table),
        section("examples", "Examples", "The first few of each reason.", *examples),
        section("rules", "Rules", "In the order in which they were applied.", _rules(cleaning)),
    ]
    return html_page("Cleaning", sections, content, "cleaning of a corpus", version=__version__)


def _example(example: dict[str, str]) -> Html:
    stays = example.get("stays")
    return tag(
        "blockquote",
        tag("p", example["text"]),
        tag("p", tag("small", example["location"])),
        *([tag("p", tag("small", "stays: "), stays)] if stays else []),
    )


def _rules(cleaning: Cleaning) -> Html:
    rows = [
        [type(one).__name__, ", ".join(f"{k} = {v}" for k, v in vars(one).items())]
        for one in (*cleaning.all_rules, *cleaning.deduplications)
    ]
    return html_table(["rule", "fields"], rows, "Rules and their fields", class_="")
