"""CompressOptions: what `compress` takes, in Python and on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.options import JobOptions, flag

if TYPE_CHECKING:
    from unmask.inference.pipeline import Pipeline


@dataclass(frozen=True)
class CompressOptions(JobOptions):
    """Which model to make smaller, and how."""

    model: str | Path | Pipeline = field(metadata=flag(metavar="MODEL", is_argument=True))
    """Model: a run folder, a folder in the Hugging Face layout, hf:owner/name, or the bundled
    unmask-mini-en; in Python also an open model."""
    _: KW_ONLY
    method: str | Sequence[Any] = field(default=(), metadata=flag(metavar="NAME"))
    """Compression method, applied in order: int8, int4, int3, int2, quantize:bits=4,group=64,
    gptq:bits=4 and int8:activations=8 (with data), packed (the codes that a model was trained
    with), prune:fraction=0.5, mask:source=RUN, layers:keep=6, heads:fraction=0.5, ...
    (docs/compression.md)."""
    data: str | Path | None = field(default=None, metadata=flag(metavar="FILE"))
    """Calibration texts, on which methods that use some measure the model; of a fine-tuned model a
    file of its task. None: methods do without."""
    calibration_texts: int = 128
    """Number of calibration texts that are read, from the first."""
    out: str | Path = field(metadata=flag(metavar="FOLDER"))
    """Output folder, a new one."""
