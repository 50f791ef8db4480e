"""ServeOptions: the options of `serve`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from unmask.options import JobOptions, flag


@dataclass(frozen=True)
class ServeOptions(JobOptions):
    """The folder of the runs, the address, and how much jobs may take."""

    root: str | Path = field(default="runs", metadata=flag(metavar="FOLDER", is_argument=True))
    """Folder of the runs; made if it is not there. Nothing outside of it is shown or written."""
    _: KW_ONLY
    host: str = field(default="127.0.0.1", metadata=flag(metavar="ADDRESS"))
    """Address to listen at: one of this machine only, or with a password 0.0.0.0 (all networks)."""
    port: int = 8642
    """Port to listen at; 0: a free one."""
    password: str | None = field(default=None, metadata=flag(metavar="TEXT"))
    """Password asked of everyone who opens the page; "-": read from standard input. Needed for
    addresses other than this machine's own, where all who know it may read and write the folder
    and use this machine; what is sent is not encrypted."""
    jobs: int = 1
    """Number of jobs that run at once; others wait in a queue."""
    cores: int | None = field(default=None, metadata=flag(shown_default="all cores"))
    """Number of cores for all jobs together."""
    memory: int | float | None = field(
        default=None, metadata=flag(metavar="GIB", shown_default="all but 1 GiB")
    )
    """Memory for all jobs together, in GiB: no further job starts while they take more."""
    max_upload: int | float = field(default=2, metadata=flag(metavar="GIB"))
    """Size of an uploaded file at most, in GiB, also of what an archive holds."""
    open_browser: bool = field(default=False, metadata=flag("--open"))
    """Open the page in the default browser."""
