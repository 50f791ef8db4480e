"""EvaluateOptions: what `evaluate` takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

from unmask.jobs.options.shell.from_dataclass import refuse_options
from unmask.jobs.options.shell.shared_options import (
    EnsembleOptions,
    JsonOption,
    LimitOption,
    MoreData,
    NetworkOptions,
    TextPoolingOptions,
)
from unmask.options import EncodingOptions, Flag, default_of, flag

_COLUMNS = "unmask.jobs.options.shell.shared_options:ColumnOptions"


def _of_tasks(metavar: str | None = None, shown_default: str | None = None) -> Mapping[str, Flag]:
    """Return the metadata of an option shared with `evaluate_tasks`."""
    location = "unmask.jobs.options.evaluate:EvaluateTasksOptions"
    return flag(metavar=metavar, shown_default=shown_default, documented_in=location)


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(
    NetworkOptions,
    MoreData,
    EnsembleOptions,
    TextPoolingOptions,
    LimitOption,
    EncodingOptions,
    JsonOption,
):
    """A model, and the text, rows or tasks on which it is evaluated."""

    data: Sequence[str] = field(default=(), metadata=flag(metavar="PATH"))
    """Data source: texts, or the labelled rows of a fine-tuned model's task: a file (.txt, .jsonl,
    .csv, .tsv, .parquet, each also .gz, .xz, .zst), a folder, a quoted glob pattern, or
    hf:owner/name. Several files of rows, or LANGUAGE=FILE, are scored one by one."""
    sequence_length: int | None = field(
        default=None, metadata=_of_tasks(shown_default="as in pretraining")
    )
    seed: int = 0
    """Random seed for masked positions, or for in-context examples."""
    memory_length: int | None = field(
        default=None, metadata=_of_tasks(shown_default="as in pretraining")
    )
    task: Sequence[str] = field(default=(), metadata=flag(metavar="NAME"))
    """Task evaluated by prompting, with --data its folder: lambada, blimp, ..., zero-shot for all
    whose files are present, or a .toml file. Or similarity: sentence pairs, with --data their
    files."""
    label: str | None = field(default=None, metadata=flag(metavar="COLUMN"))
    """Name of the column with labels, numbers or tags; with --task similarity, the human scores."""
    choices: Sequence[str] = field(
        default=(), metadata=flag(metavar="COLUMN", documented_in=_COLUMNS)
    )
    columns: Sequence[str] = field(
        default=(), metadata=flag(metavar="A,B,...", separator=",", documented_in=_COLUMNS)
    )
    shots: str = field(default="0", metadata=flag(metavar="N,N"))
    """Number of in-context examples with --task, or several numbers separated by commas."""
    rows: int | None = field(default=None, metadata=_of_tasks(shown_default="all"))
    stride: int | None = field(default=None, metadata=_of_tasks(shown_default="as many as fit"))
    pll_masking: Literal["word", "token"] = field(default="word", metadata=_of_tasks())
    document_separator: Literal["blank", "line", "file"] = field(
        default="blank",
        metadata=flag("--document", documented_in="unmask.training.config:Recipe"),
    )
    by: str | None = field(default=None, metadata=flag(metavar="COLUMN"))
    """Column whose values are groups of labeled rows, each scored by itself, such as language."""
    text: Sequence[str] = field(default=(), metadata=flag(metavar="COLUMN"))
    """Name of the text column, of held-out records or labeled rows; two for text pairs."""
    where: Sequence[str] = field(default=(), metadata=flag(metavar="COLUMN=VALUE"))
    """Rows of a table of pictures that are read: split=test. Default: all."""
    page: Path | None = field(default=None, metadata=flag(metavar="FILE"))
    """HTML page of captions to write: scores, and ten pictures with the attention of each word."""
    case: Literal["auto", "keep", "lower"] = "auto"
    """Letter case in which words of the data are looked up, for word vectors. auto: lower case if
    the vectors contain no other."""

    @property
    def sources(self) -> tuple[str, ...]:
        """All data sources."""
        return (*self.data, *self.more)

    def refuse(self, names: Iterable[str], before: str, after: str = "") -> None:
        """Reject options that do not apply."""
        defaults = {f.name: default_of(f) for f in fields(self)}
        values = {name: getattr(self, name) != defaults[name] for name in names}
        refuse_options(EvaluateOptions, before, after, **values)
