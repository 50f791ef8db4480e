"""DemoOptions: the options of `demo`, in Python and on the command line."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from unmask.options import QuietOptions, flag


@dataclass(frozen=True)
class DemoOptions(QuietOptions):
    """Length of pretraining on the bundled text, and number of fine-tuning runs."""

    out: str | Path = field(default="demo-run", metadata=flag(metavar="FOLDER"))
    """Output folder. Finished parts of an earlier run in it are reused."""
    _: KW_ONLY
    minutes: int | float = field(default=4.0, metadata=flag(metavar="M"))
    """Pretraining time in minutes."""
    seeds: int = 5
    """Number of fine-tuning runs from the pretrained and, likewise, from random weights."""
