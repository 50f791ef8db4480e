"""`models`, `show`, `hide`, `report`: the catalogue, objectives and reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unmask.cli.inputs import check_utf8, read_standard_input
from unmask.config import near_hint
from unmask.files import write_atomically
from unmask.jobs.options.hide import HideOptions
from unmask.jobs.options.shell.from_dataclass import command
from unmask.jobs.options.shell.hide import PageOption
from unmask.jobs.options.shell.shared_options import JsonOption
from unmask.options import flag
from unmask.output import has_color, print_data, print_json, print_line, print_rich, terminal_width


@dataclass(frozen=True)
class _ModelsOptions:
    family: str | None = field(default=None, metadata=flag(metavar="NAME", shown_default="all"))
    """Model family to list."""


@dataclass(frozen=True)
class _ShowOptions:
    model: str = field(metadata=flag(metavar="MODEL", is_argument=True))
    """Model: a catalogue name (see unmask models) or a model folder."""


@dataclass(frozen=True)
class _ReportOptions:
    run: Path = field(metadata=flag(metavar="FOLDER", is_argument=True))
    """Run folder."""


@command(_ModelsOptions, JsonOption)
def models(options: Mapping[str, Any], output: JsonOption) -> None:
    """List the bundled models and the presets of the catalogue."""
    from unmask.jobs.catalogue.describe import bundled_presets, preset_line, preset_to_dict
    from unmask.zoo.catalogue import MODELS

    family = options["family"]
    families = sorted({card.family for card in MODELS.values()})
    if family is not None and family not in families:
        names = ", ".join(families)
        hint = near_hint(family, families)
        raise ValueError(f"--family must be one of {names}, got {family!r}{hint}")
    cards = [
        card for card in [*bundled_presets(), *MODELS.values()] if family in (None, card.family)
    ]
    if output.as_json:
        print_json([preset_to_dict(card) for card in cards])
        return
    for card in cards:
        print_line(preset_line(card))


@command(_ShowOptions, JsonOption)
def show(options: Mapping[str, Any], output: JsonOption) -> None:
    """Describe a model: paper, architecture, parameters, FLOPs, memory."""
    from unmask.jobs.catalogue.describe import describe, format_description

    facts = describe(options["model"])
    if output.as_json:
        print_json(facts)
        return
    for line in format_description(facts):
        print_line(line)


@command(HideOptions, PageOption, JsonOption)
def hide(options: Mapping[str, Any], page: PageOption, output: JsonOption) -> None:
    """Show the inputs and targets that a model's objective makes of a text or a picture.

    The text - reads standard input.
    """
    import unmask

    keywords: dict[str, Any] = dict(options)
    check_utf8(keywords["text"])
    if keywords["text"] == "-":
        keywords["text"] = "\n".join(line for _, line in read_standard_input("strict") if line)
    explanation = unmask.hide(**keywords)
    if page.page is not None:
        write_atomically(page.page, explanation.to_html(str(keywords["model"])))
    if output.as_json:
        print_data(explanation.to_json())
    elif has_color():
        print_rich(explanation.to_rich(terminal_width()), wrap=False)
    else:
        for line in explanation.to_text(terminal_width()).split("\n"):
            print_line(line)


@command(_ReportOptions, JsonOption)
def report(options: Mapping[str, Any], output: JsonOption) -> None:
    """Rewrite the HTML report of a run."""
    import unmask

    path = unmask.write_report(options["run"])
    print_json({"report": path}) if output.as_json else print_data(path)
