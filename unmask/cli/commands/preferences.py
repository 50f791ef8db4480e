"""`prefer`: a model learns from preferences."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from unmask.jobs.options.shell.from_dataclass import command
from unmask.jobs.options.shell.shared_options import JsonOption
from unmask.options import QuietOptions
from unmask.output import print_json, print_line
from unmask.preferences.options import PreferOptions

if TYPE_CHECKING:
    from unmask.preferences.job.result import PreferenceResult
    from unmask.reports.report_data import ReportSample

_N_SAMPLES = 6


@command(PreferOptions, QuietOptions, JsonOption, defaults={"out": "runs/preferred"})
def prefer(options: Mapping[str, Any], progress: QuietOptions, output: JsonOption) -> None:
    """Train a model on preferences: DPO and its kin on pairs, or PPO by a reward.

    The model stays near to what it was before, the reference. Ctrl-C stops where a step, or a
    batch of written responses, has ended, and saves a checkpoint; the same command with --resume
    continues a stopped or killed run to the same result.
    """
    import unmask
    from unmask.reports.page import write_report
    from unmask.reports.report_data import save_samples
    from unmask.training.best_effort import best_effort

    keywords = dict(options)
    terminal = None if progress.quiet else sys.stderr
    try:
        found = unmask.prefer(keywords.pop("base"), **keywords, terminal=terminal)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{options['out']}: stopped; continue with --resume") from None
    if output.as_json:
        print_json({"before": dict(found.before), "after": dict(found.after)})
        return
    for line in found.summary():
        print_line(line)
    with best_effort("report.html"):
        save_samples(found.folder, _samples(found))
        write_report(found.folder)
    print_line(f"{found.folder}: done; report in {found.folder / 'report.html'}")


def _samples(found: PreferenceResult) -> list[ReportSample]:
    """Return some of the prompts, evenly spaced, with the responses before and after."""
    from unmask.reports.report_data import Generate

    n = min(len(found.responses), _N_SAMPLES)
    chosen = [found.responses[i * len(found.responses) // n] for i in range(n)]
    return [
        Generate(
            prompt=" ".join(turn["content"] for turn in row["prompt"]),
            before=row["before"],
            after=row["after"],
            settings=", ".join(
                f"{name} {row[f'{name}_before']:.2f}, then {row[f'{name}_after']:.2f}"
                for name in ("reward", "judge")
                if f"{name}_after" in row
            ),
        )
        for row in chosen
    ]
