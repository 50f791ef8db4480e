"""StudyOptions: the options of `run_study`, in Python and on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from unmask.options import LoaderOptions, TerminalOptions, flag

if TYPE_CHECKING:
    from unmask.studies.compression.study import CompressionStudy
    from unmask.studies.lottery.study import LotteryStudy
    from unmask.studies.probing.study import ProbingStudy
    from unmask.studies.study import Study
    from unmask.studies.transfer.study import TransferStudy


@dataclass(frozen=True)
class StudyOptions(LoaderOptions, TerminalOptions):
    """The study to run, its text and tasks, and changes of its definition."""

    study: str | Path | Study | CompressionStudy | LotteryStudy | ProbingStudy | TransferStudy = (
        field(metadata=flag(metavar="STUDY", is_argument=True))
    )
    """Study: bart-noises, t5-objectives, t5-rates, t5-spans, t5-architectures, summaries,
    elmo-tags, ulmfit-stages, ulmfit-stages-trec, smaller, lottery, lottery-scratch,
    lottery-rewind, lottery-heads, lottery-transfer, what-layers-know, transfer, or a .toml file."""
    _: KW_ONLY
    data: str | Path | Sequence[str | Path] = field(default=(), metadata=flag(metavar="PATH"))
    """Data source: a file (.txt, .jsonl, .csv, .tsv, .parquet, each also .gz, .xz, .zst), a folder
    of such files, a quoted glob pattern, or hf:owner/name. Each study tokenizes it itself."""
    out: str | Path = field(metadata=flag(metavar="FOLDER"))
    """Output folder of the study, a new one unless `resume`."""
    tasks_data: str | Path | None = field(
        default=None, metadata=flag(metavar="FOLDER", shown_default="download from the Hub")
    )
    """Folder with the files of the tasks."""
    cells: Sequence[str] = field(
        default=(), metadata=flag(metavar="A,B", separator=",", shown_default="all")
    )
    """Cells of the study to run now, separated by commas: variants, or of lottery tickets ticket,
    random-mask, random-weights."""
    base: str | None = field(
        default=None, metadata=flag(metavar="MODEL", shown_default="that of the study")
    )
    """Model of a study of compression or of lottery tickets."""
    tokens: int | None = field(default=None, metadata=flag(shown_default="that of the study"))
    """Number of pretraining tokens per cell, or per round."""
    rows: int | None = field(default=None, metadata=flag(shown_default="that of the study"))
    """Number of training rows per task; of probes, of sentences that fit them."""
    epochs: int | float | None = field(
        default=None, metadata=flag(shown_default="that of the study")
    )
    """Number of fine-tuning epochs; of probes, the most."""
    seeds: int | None = field(default=None, metadata=flag(shown_default="that of the study"))
    """Number of fine-tuning runs per cell and task."""
    resume: bool = False
    """Continue the study in `out`; finished parts are not run again."""
