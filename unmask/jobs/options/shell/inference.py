"""What `predict`, `fill` and `embed` take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from unmask.jobs.options.shell.shared_options import (
    ColumnOptions,
    EnsembleOptions,
    JsonLinesOption,
    LimitOption,
    NetworkOptions,
    TextArguments,
    TextFile,
)
from unmask.options import EncodingOptions, flag

_POOLING = "unmask.jobs.options.shell.shared_options:TextPoolingOptions"


@dataclass(frozen=True, kw_only=True)
class PredictOptions(
    NetworkOptions,
    TextArguments,
    ColumnOptions,
    EnsembleOptions,
    EncodingOptions,
    JsonLinesOption,
):
    """A fine-tuned model, and its inputs."""

    input: Path | None = field(default=None, metadata=flag(metavar="FILE"))
    """Input file: rows with the columns of the training data; or .txt, each line as for TEXT."""
    labels: Sequence[str] = field(default=(), metadata=flag(metavar="A,B,...", separator=","))
    """Names of classes, for a model that compares pictures with texts (CLIP)."""
    template: Sequence[str] = field(
        default=(), metadata=flag(metavar="TEXT", shown_default='"A photo of a {}."')
    )
    """Text with {} in the place of a class name, with --labels; several are averaged."""


@dataclass(frozen=True, kw_only=True)
class FillOptions(
    NetworkOptions,
    TextArguments,
    TextFile,
    EncodingOptions,
):
    """A model, and texts with blanks."""

    top_k: int = field(default=5, metadata=flag(metavar="K"))
    """Number of candidates for each [MASK]."""


@dataclass(frozen=True, kw_only=True)
class EmbedOptions(
    NetworkOptions,
    TextArguments,
    TextFile,
    LimitOption,
    EncodingOptions,
    JsonLinesOption,
):
    """A model, texts, and how their vectors are made."""

    pooling: Literal["mean", "first", "last", "ends", "projection", "none"] | None = field(
        default=None,
        metadata=flag(
            shown_default="that of the model: mean, or last for skip-thoughts and quick-thoughts, "
            "first for pictures, projection for CLIP"
        ),
    )
    """Pooling of token vectors into a text vector; ends: the final state of each direction;
    projection: into the space of pictures and texts; none: one vector per token."""
    layer: int | None = field(
        default=None,
        metadata=flag(
            shown_default="-1",
            documented_in="unmask.jobs.options.shell.shared_options:TextPoolingOptions",
        ),
    )
    out: Path | None = field(default=None, metadata=flag(metavar="FILE"))
    """Output file: a NumPy array [n d] instead of JSON."""
