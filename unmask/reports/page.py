"""The report of a run: one HTML page that needs no network, of whatever its folder holds so far.

The page is complete without its script, which adds a switch between light and dark and the
numbers under the pointer. Nothing on it can be loaded from anywhere (its content security policy
forbids it), and text is escaped by construction (`markup`).
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from unmask.files import write_atomically
from unmask.reports.charts.training_curves import draw_curves
from unmask.reports.cost import draw_cost
from unmask.reports.finetuning_scores import draw_results
from unmask.reports.formatting import (
    format_expression,
    truncate_text,
)
from unmask.reports.markup import EMPTY_HTML, Html, section, tag
from unmask.reports.report_data import (
    ArmScores,
    BaselineFigures,
    ConfusionMatrix,
    ErrorExample,
    Fill,
    FinetuningResults,
    Generate,
    ReportData,
    ReportSample,
    read_report_data,
    save_baselines,
    save_results,
    save_samples,
)
from unmask.reports.samples import draw_samples
from unmask.reports.summary import draw_summary, run_title
from unmask.word_vectors.train.trainer import RECIPE_KEYS

__all__ = [
    "ArmScores",
    "BaselineFigures",
    "ConfusionMatrix",
    "ErrorExample",
    "Fill",
    "FinetuningResults",
    "Generate",
    "ReportSample",
    "render_page",
    "save_baselines",
    "save_results",
    "save_samples",
    "write_report",
]

MAX_SETTING_CHARACTERS, MAX_SETTINGS = (
    240,
    200,
)  # characters, rows: the page stays one that opens at once
MAX_SINGLE_COLUMN_ROWS = 14  # rows of a table that stay in one column
MAX_INLINE_CHARACTERS = (
    60  # characters of a nested part of the recipe that still go into one row of its table
)


def write_report(folder: Path) -> Path:
    """Write `report.html` into a run folder, finished or not, and return its path.

    Raises:
        FileNotFoundError: the folder does not exist, or holds nothing of a run.
        ValueError: `unmask.json` is not what it should be. (Of `samples.json`, `results.json` and
            `baselines.json` the report then says that they cannot be read.)
    """
    path = folder / "report.html"
    write_atomically(path, render_page(read_report_data(folder)))
    return path


def render_page(record: ReportData) -> str:
    """Return the report as one HTML document; sections without data are left out."""
    sections = [(name, title, s) for name, title, s in _sections(record) if s != EMPTY_HTML]
    return html_page(
        run_title(record),
        [(name, title) for name, title, _ in sections],
        [draw_summary(record), *(s for _, _, s in sections)],
        f"run last written {record.modified:%Y-%m-%d %H:%M} UTC",
        version=str(record.record_section("versions").get("unmask", "")),
    )


def html_page(
    title: str,
    sections: Sequence[tuple[str, str]],
    content: Sequence[Html],
    footer: str,
    *,
    version: str = "",
    assets: Sequence[str] = (),
) -> str:
    """Return a document in the style of the report that loads nothing.

    Args:
        title: of the window.
        sections: id and title of each section, for the links at the top.
        content: the page between its head and its foot.
        footer: what the foot says besides the version.
        version: of the library that made the page.
        assets: names of further styles and scripts of the page, as "attention.css".
    """
    here = files("unmask.reports") / "assets"
    read = {
        suffix: "".join(
            here.joinpath(name).read_text("utf-8")
            for name in ("palette.css", f"report{suffix}", *assets)
            if name.endswith(suffix)
        )
        for suffix in (".css", ".js")
    }
    # Only the script of this hash may run: text that got out of its quotes could not do harm.
    digest = base64.b64encode(hashlib.sha256(read[".js"].encode()).digest()).decode()
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content="Unmask"),
        tag("title", f"{title} · Unmask"),
        tag("link", rel="icon", href="data:,"),
        tag("style", Html(read[".css"])),
    )
    foot = f"Unmask {version}".strip() + f" · {footer} · needs no network"
    body = tag(
        "body",
        tag("a", "Skip to the report", href="#report", class_="skip"),
        _header(sections),
        tag("main", *content, id="report"),
        tag("footer", tag("p", foot)),
        tag("script", Html(read[".js"])),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en').source}\n"


def _sections(record: ReportData) -> Iterable[tuple[str, str, Html]]:
    if record.is_finetuning:
        yield from draw_results(record)
    yield "curves", "Curves", draw_curves(record)
    yield "samples", "Samples", draw_samples(record.samples)
    if not record.is_finetuning:
        yield from draw_results(record)
    yield "recipe", "Recipe", _recipe_section(record)
    yield "cost", "Cost", draw_cost(record)
    yield "environment", "Environment", _environment_section(record)


def _header(sections: Sequence[tuple[str, str]]) -> Html:
    links = [tag("a", title, href=f"#{name}") for name, title in sections]
    # Without its script the page follows the system, and the switch stays hidden.
    switch = tag("button", "Dark", id="theme", type="button", hidden=True)
    brand = tag("span", "Unmask", class_="brand")
    return tag("div", brand, tag("nav", *links, aria_label="Sections"), switch, class_="masthead")


def _recipe_section(record: ReportData) -> Html:
    recipe, published = (record.record_section(key) for key in ("recipe", "defaults"))
    if not recipe:
        return EMPTY_HTML
    if record.is_word_vector_run:  # they have no optimizer, no layers and no rows
        recipe = {key: value for key, value in recipe.items() if key in RECIPE_KEYS}
    usual, unset = dict(_flatten_settings(published)), list[str]()
    groups: dict[str, list[tuple[str, str, str]]] = {"": []}
    for key, value in _flatten_settings(recipe)[:MAX_SETTINGS]:
        group, dot, name = key.partition(".")
        was = usual.get(key, "not set") if usual else value
        if value == was == "none":
            unset.append(key)
            continue
        row = (name if dot else key, value, "" if was == value else was)
        groups.setdefault(group if dot else "", []).append(row)
    tables = [_settings_table(name, rows) for name, rows in groups.items() if rows]
    says = "All that the run depends on."
    says += " Marked: what differs from the published recipe." if usual else ""
    rest = tag("p", f"Not set: {', '.join(unset)}.", class_="remark") if unset else EMPTY_HTML
    return section("recipe", "Recipe", says, tag("div", *tables, class_="settings"), rest)


def _flatten_settings(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Flatten a recipe to dotted keys; a part that fits into a row stays in one."""
    rows: list[tuple[str, str]] = []
    for key, value in settings.items():
        text = format_expression(value)
        if isinstance(value, Mapping) and len(text) > MAX_INLINE_CHARACTERS:
            rows += _flatten_settings(value, f"{prefix}{key}.")
        elif prefix or key != "kind":
            rows.append((f"{prefix}{key}", truncate_text(text, MAX_SETTING_CHARACTERS)))
    return rows


def _settings_table(name: str, rows: Sequence[tuple[str, str, str]]) -> Html:
    kind = next((value for key, value, _ in rows if key == "kind"), "")
    body = [
        tag(
            "tr",
            tag("th", key, scope="row"),
            tag("td", tag("mark", value), tag("small", f"published: {was}"))
            if was
            else tag("td", value),
        )
        for key, value, was in rows
        if key != "kind" or was
    ]
    caption = (
        tag("caption", name, tag("span", f" {kind}") if kind else EMPTY_HTML)
        if name
        else EMPTY_HTML
    )
    kind = (
        "setting long" if len(body) > MAX_SINGLE_COLUMN_ROWS else "setting"
    )  # may break into a new column
    return tag("table", caption, tag("tbody", *body), class_=kind)


def _environment_section(record: ReportData) -> Html:
    tables = [
        _settings_table(name, [(key, value, "") for key, value in _flatten_settings(found)])
        for name in ("environment", "versions")
        if (found := record.record_section(name))
    ]
    content = tag("div", *tables, class_="settings")
    return section("environment", "Environment", "", content) if tables else EMPTY_HTML
