"""What `finetune` takes besides the options of one task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from unmask.options import flag

_SUITE = "unmask.finetuning.options.finetune:FinetuneSuiteOptions"


@dataclass(frozen=True)
class SuiteOptions:
    """A suite of benchmarks instead of one task."""

    tasks: str | None = field(default=None, metadata=flag(metavar="SUITE", documented_in=_SUITE))
    data: str | None = field(
        default=None,
        metadata=flag(
            metavar="FOLDER", shown_default="download from the Hub", documented_in=_SUITE
        ),
    )


@dataclass(frozen=True)
class AdaptationOptions:
    """Settings of task-adaptive pretraining."""

    unlabeled: Sequence[str] = field(default=(), metadata=flag(metavar="PATH"))
    """Further unlabeled text for --adapt-first, as for unmask pretrain --data."""
    adapt_set: Sequence[str] = field(default=(), metadata=flag(metavar="KEY=VALUE"))
    """Setting of --adapt-first: epochs=10, or any key of its recipe, e.g. learning_rate=1e-3."""
