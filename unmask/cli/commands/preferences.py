"""`prefer`: a model learns from preferences."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from unmask.cli.from_dataclass import command
from unmask.cli.shared_options import JsonOption
from unmask.options import QuietOptions
from unmask.output import print_json, print_line
from unmask.preferences.options import PreferOptions


@command(PreferOptions, QuietOptions, JsonOption, defaults={"out": "runs/preferred"})
def prefer(options: Mapping[str, Any], progress: QuietOptions, output: JsonOption) -> None:
    """Train a model on preferences: DPO and its kin on pairs, or PPO by a reward.

    The model stays near to what it was before, the reference. Ctrl-C stops where a step, or a
    batch of written responses, has ended, and saves a checkpoint; the same command with --resume
    continues a stopped or killed run to the same result.
    """
    import unmask

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
    print_line(f"{found.folder}: the model")
