"""AugmentOptions: what `augment` takes, in Python and on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.options import DeviceOptions, EncodingOptions, TerminalOptions, flag

if TYPE_CHECKING:
    from unmask.inference.pipeline import Pipeline


@dataclass(frozen=True)
class AugmentOptions(EncodingOptions, DeviceOptions, TerminalOptions):
    """A model, a table, and what the model makes of its rows."""

    model: str | Path | Pipeline = field(metadata=flag(metavar="MODEL", is_argument=True))
    """Model: a run folder, a folder in the Hugging Face layout, hf:owner/name, or the bundled
    unmask-mini-en; in Python also an open model."""
    _: KW_ONLY
    method: Any = field(metadata=flag(metavar="NAME"))
    """Method: outputs (a fine-tuned generator's outputs become the targets), words (copies of each
    row, with words replaced by a masked language model); with settings:
    outputs:beams=5,interpolate=true (docs/distillation.md)."""
    train: str | Path = field(metadata=flag(metavar="FILE"))
    """Training table: .tsv, .csv, .json, .jsonl, .parquet."""
    out: str | Path = field(metadata=flag(metavar="FILE"))
    """Output table, a new file: .jsonl, with the columns of `train`."""
    text: str | Sequence[str] = field(
        default=(), metadata=flag(metavar="COLUMN", shown_default="found by customary names")
    )
    """Name of the text column; two for text pairs."""
    label: str | None = field(
        default=None, metadata=flag(metavar="COLUMN", shown_default="that of the model's task")
    )
    """Name of the column with targets."""
    columns: Sequence[str] = field(default=(), metadata=flag(metavar="A,B,...", separator=","))
    """Comma-separated names of all columns, for files without a header."""
    seed: int = 0
    """Random seed of the words that are replaced."""
