"""Options shared by commands that the Python functions lack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from unmask.options import DeviceOptions, flag


@dataclass(frozen=True, kw_only=True)
class JsonOption:
    """Output format."""

    as_json: bool = field(default=False, metadata=flag("--json"))
    """Print the result as JSON."""


@dataclass(frozen=True, kw_only=True)
class JsonLinesOption:
    """Results are always printed as lines of JSON."""

    as_json: bool = field(default=False, metadata=flag("--json"))
    """Print JSON (always the case; accepted for uniformity)."""


@dataclass(frozen=True, kw_only=True)
class MoreData:
    """Data sources besides those of `--data`."""

    more: Sequence[str] = field(default=(), metadata=flag(metavar="PATH", is_argument=True))
    """Further data sources, as for --data (so that the shell may expand --data *.txt)."""


@dataclass(frozen=True, kw_only=True)
class ModelArgument:
    """The model of a command."""

    model: str = field(metadata=flag(metavar="MODEL", is_argument=True))
    """Model: a run folder, a folder in the Hugging Face layout, hf:owner/name, or the bundled
    unmask-mini-en."""


@dataclass(frozen=True, kw_only=True)
class LanguageOption:
    """The language of texts."""

    language: str | None = field(
        default=None, metadata=flag(metavar="NAME", shown_default="that of fine-tuning, or none")
    )
    """Language of the texts, for models with language embeddings (XLM): en; of text pairs in two
    languages, both: de+en."""


@dataclass(frozen=True, kw_only=True)
class NetworkOptions(ModelArgument, LanguageOption, DeviceOptions):
    """A network, and where and in what it computes."""

    precision: Literal["float32", "bfloat16"] = "float32"
    """Type of weights and activations. bfloat16, where the processor multiplies in it, is
    1.6 to 1.8 times as fast; it has three digits."""


@dataclass(frozen=True, kw_only=True)
class TextColumn:
    """Column with the text of a record."""

    text_column: str | None = field(
        default=None,
        metadata=flag(
            "--text",
            metavar="COLUMN",
            shown_default="text",
            documented_in="unmask.training.config:Recipe",
        ),
    )


@dataclass(frozen=True, kw_only=True)
class TextFile(TextColumn):
    """A file of texts."""

    input: Path | None = field(default=None, metadata=flag(metavar="FILE"))
    """Input file: one text per line, or records as for --data."""


@dataclass(frozen=True, kw_only=True)
class TextArguments:
    """Texts on the command line."""

    texts: Sequence[str] = field(default=(), metadata=flag(metavar="TEXT", is_argument=True))
    """Input texts. Default: those of --input, or one per line of standard input."""


@dataclass(frozen=True, kw_only=True)
class TextPoolingOptions:
    """Pooling of a text."""

    pooling: Literal["mean", "first", "last", "ends", "projection"] | None = field(
        default=None,
        metadata=flag(
            shown_default="that of the model: mean, or last for skip-thoughts and quick-thoughts, "
            "first for pictures, projection for CLIP"
        ),
    )
    """Pooling of token vectors into a text vector; ends: the final state of each direction;
    projection: into the space of pictures and texts."""
    layer: int | None = field(default=None, metadata=flag(shown_default="-1"))
    """Layer of the hidden states. 0: input to the first block; -1: the last layer."""


@dataclass(frozen=True, kw_only=True)
class LimitOption:
    """Limit of word vectors."""

    limit: int | None = field(default=None, metadata=flag(shown_default="all"))
    """Number of word vectors to read from the start of the file."""


@dataclass(frozen=True, kw_only=True)
class EnsembleOptions:
    """Further models, and the task of a mixture."""

    ensemble: Sequence[str] = field(default=(), metadata=flag(metavar="MODEL"))
    """Further model of an ensemble, whose predicted probabilities (or numbers) are averaged."""
    mixture_task: str | None = field(default=None, metadata=flag(metavar="NAME"))
    """Name of the task to use, of a model trained on a mixture of tasks."""


@dataclass(frozen=True, kw_only=True)
class ColumnOptions:
    """Columns of labeled rows."""

    text: Sequence[str] = field(default=(), metadata=flag(metavar="COLUMN"))
    """Name of the text column of --input; two for text pairs."""
    choices: Sequence[str] = field(default=(), metadata=flag(metavar="COLUMN"))
    """Name of a column with answer choices; one column may hold a list."""
    columns: Sequence[str] = field(default=(), metadata=flag(metavar="A,B,...", separator=","))
    """Comma-separated names of all columns, for files without a header."""
