"""`probe`: what a model knows and where."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unmask.jobs.options.probe import ProbeOptions
from unmask.jobs.options.shell.from_dataclass import command
from unmask.jobs.options.shell.shared_options import JsonOption
from unmask.options import QuietOptions
from unmask.output import print_json, print_line, print_table


@command(ProbeOptions, QuietOptions, JsonOption)
def probe(options: Mapping[str, Any], progress: QuietOptions, output: JsonOption) -> None:
    """Analyze what a model knows and where, beside the same network with random weights.

    Each analysis writes NAME.json, NAME.md and NAME.html, one page that loads nothing.
    """
    import unmask

    reports = unmask.probe(**options, terminal=None if progress.quiet else sys.stderr)
    if output.as_json:
        print_json({name: report.json for name, report in reports.items()})
        return
    for name, report in reports.items():
        print_table(name, *report.table)
        for sentence in report.sentences:
            print_line(sentence)
        print_line(f"page in {Path(options['out']) / f'{name}.html'}")
