"""A study from a TOML file."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from unmask.config import from_dict, read_toml
from unmask.studies.compression.study import CompressionStudy
from unmask.studies.lottery.study import LotteryStudy
from unmask.studies.probing.study import ProbingStudy
from unmask.studies.study import Study
from unmask.studies.transfer.study import TransferStudy

AnyStudy = Study | CompressionStudy | LotteryStudy | ProbingStudy | TransferStudy
_KIND = "kind"
KINDS: Mapping[str, type[AnyStudy]] = {
    kind.__name__: kind
    for kind in (Study, CompressionStudy, LotteryStudy, ProbingStudy, TransferStudy)
}
"""Types of studies by the `kind` of their files, the default first."""


def read_study(path: Path) -> AnyStudy:
    """Read a study from a TOML file; the default name is that of the file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not TOML, or a key or value is invalid.
    """
    plain = dict(read_toml(path))
    kind = plain.pop(_KIND, next(iter(KINDS)))
    if kind not in KINDS:
        raise ValueError(f"{path}: {_KIND} must be one of {', '.join(KINDS)}, got {kind!r:.120}")
    try:
        study = from_dict(KINDS[kind], {"name": path.stem} | plain)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if isinstance(study.tasks, str) and study.tasks.endswith(".toml"):
        return replace(study, tasks=str(path.parent / study.tasks))
    return study
