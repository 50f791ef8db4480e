"""Augment: a new training table, made of a task's table with a model."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from unmask.config import parse_variant
from unmask.inference.open_model import load
from unmask.jobs.augment.outputs import TeacherOutputs
from unmask.jobs.augment.table import TrainingTable, check_new_table, write_rows
from unmask.jobs.augment.words import WordReplacement
from unmask.jobs.options.augment import AugmentOptions
from unmask.options import takes_options
from unmask.output import ProgressLine
from unmask.tasks.readers import tables

AugmentationMethod = TeacherOutputs | WordReplacement
AUGMENTATION_METHODS: Mapping[str, type[AugmentationMethod]] = {
    "outputs": TeacherOutputs,
    "words": WordReplacement,
}
"""By their words."""


@dataclass(frozen=True, kw_only=True)
class AugmentedTable:
    """A table that was written."""

    path: Path
    rows_read: int
    rows_written: int


@takes_options(AugmentOptions)
def augment(options: AugmentOptions) -> AugmentedTable:
    """Make a new training table of a table with a model, which `finetune` takes as any other.

    The fields of `AugmentOptions` are its keywords. The same options make the same table.

    Raises:
        FileNotFoundError: there is no such model or table.
        ValueError: there is no such method, or model and table do not fit it; or the new table
            exists already.
    """
    method = options.method
    if isinstance(method, str):
        method = parse_variant(AUGMENTATION_METHODS, method, "method")
    out = Path(options.out)
    table = tables.read_table(
        options.train, header=tuple(options.columns), encoding_errors=options.encoding_errors
    )
    check_new_table(out, table)
    given = options.model
    pipeline = load(given).to(options.device) if isinstance(given, str | Path) else given
    source = TrainingTable(
        table=table,
        pipeline=pipeline,
        text=(options.text,) if isinstance(options.text, str) else tuple(options.text),
        label=options.label,
        seed=options.seed,
        encoding_errors=options.encoding_errors,
        progress=ProgressLine(options.terminal),
    )
    n = write_rows(out, method.new_rows(source), table)
    source.progress.finish()
    return AugmentedTable(path=out, rows_read=len(table), rows_written=n)
