"""Finding run folders below a root, each with the times and sizes of the files that matter.

A fine-tuning run with several seeds is one run: its folders seed-0, seed-1, random-seed-0, ... hold
logs and no record of their own. The cells of a study and the benchmarks of a suite are runs below
that run.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from unmask.files import LOCK_FILE, lock_holder
from unmask.training.log import LOG_FILE, TIMING_FILE
from unmask.web.workplace import is_visible_name

RUN_FILE, SUITE_FILE, STUDY_FILE = "unmask.json", "suite.json", "study.json"
RESULTS_FILE, MEASURES_FILE, SEARCH_FILE = "results.json", "measures.json", "search.jsonl"
SAMPLES_FILE, BASELINES_FILE = "samples.json", "baselines.json"
"""Names that the modules of jobs and reports have too, which take longer to import."""
REPORT_FILE = "report.html"
CHECKPOINTS_FOLDER = "checkpoints"
MAX_DEPTH, MAX_FOLDERS = 8, 50_000
"""Folders within each other, and in all, that are looked at for runs."""

Stamps = Mapping[str, tuple[int, int]]
"""Time of the last change in nanoseconds, and size in bytes, of files by name."""

_MARKS = frozenset((RUN_FILE, SUITE_FILE, STUDY_FILE, LOG_FILE, SEARCH_FILE))
"""Files that only a run has."""
_WEIGHTS = frozenset((
    "model.safetensors", "model.packed.safetensors", "adapter_model.safetensors",
    "pytorch_model.bin", "model.safetensors.index.json", "pytorch_model.bin.index.json",
))  # fmt: skip
_WATCHED = (
    _MARKS | _WEIGHTS | {TIMING_FILE, RESULTS_FILE, SAMPLES_FILE, BASELINES_FILE}
    | {MEASURES_FILE, REPORT_FILE, LOCK_FILE, "config.json"}
)  # fmt: skip
_LOGS = frozenset((LOG_FILE, TIMING_FILE))
_PARTS_OF_RUNS = frozenset(
    (CHECKPOINTS_FOLDER, "data", "text", "tensorboard", "tokenizer", "generator", "onnx")
)
"""Folders of a run in which no run is."""
_SEED_FOLDER = re.compile(r"(random-)?seed-\d+")


@dataclass(frozen=True, kw_only=True)
class FoundRun:
    """A run folder that was found."""

    id: str
    path: Path
    parent: str
    """Id of the run in whose folder it is. Empty: none."""
    stamps: Stamps
    """Of its own files that matter, without the lock."""
    seeds: Mapping[str, Stamps] = field(default_factory=dict[str, Stamps])
    """Of the logs in its seeds' folders, by the folder's name."""
    has_checkpoints: bool = False

    @property
    def is_model_only(self) -> bool:
        """Whether it is a model that no run of ours made, such as one from the Hub."""
        return not self.stamps.keys() & _MARKS and bool(self.stamps.keys() & _WEIGHTS)

    @property
    def has_model(self) -> bool:
        """Whether it holds weights."""
        return bool(self.stamps.keys() & _WEIGHTS)

    def logs(self, name: str) -> list[Path]:
        """Return the logs of a name: of each seed, or the run's own."""
        if self.seeds:
            return [self.path / seed / name for seed, s in self.seeds.items() if name in s]
        return [self.path / name] if name in self.stamps else []

    def times(self) -> list[float]:
        """Return when its files were last changed, in seconds since 1970."""
        every = [self.stamps, *self.seeds.values()]
        return [time / 1e9 for stamps in every for time, _ in stamps.values()]


def find_runs(root: Path) -> Iterator[FoundRun]:
    """Iterate over all runs below a folder, a run before those in its folder.

    What cannot be read, or is removed meanwhile, is passed over; so are hidden folders and links.
    """
    left: list[tuple[Path, str, str, int]] = [(root, "", "", 0)]
    n_folders = 0
    while left and n_folders < MAX_FOLDERS:
        folder, run_id, parent, depth = left.pop()
        n_folders += 1
        inside = _list_folder(folder)
        if inside is None:
            continue
        found = _as_run(folder, run_id, parent, inside) if run_id else None
        if found is not None:
            yield found
            parent = run_id
        skipped = () if not parent else (*_PARTS_OF_RUNS, *(found.seeds if found else ()))
        if depth < MAX_DEPTH:
            left += [
                (folder / name, f"{run_id}/{name}" if run_id else name, parent, depth + 1)
                for name in sorted(inside[1], reverse=True)
                if name not in skipped and is_visible_name(name)
            ]


def find_run(root: Path, run_id: str) -> FoundRun | None:
    """Return the run of an id, or None if there is none."""
    parts, parent, found = run_id.split("/"), "", None
    for n in range(1, len(parts) + 1):
        folder = root.joinpath(*parts[:n])
        inside = _list_folder(folder)
        parent = parent if found is None else found.id
        found = None if inside is None else _as_run(folder, "/".join(parts[:n]), parent, inside)
    return found


def _as_run(
    folder: Path, run_id: str, parent: str, inside: tuple[Stamps, list[str]]
) -> FoundRun | None:
    """Return a folder as a run, if it is one."""
    stamps, names = inside
    own = {name: stamp for name, stamp in stamps.items() if name != LOCK_FILE}
    is_model = "config.json" in own and bool(own.keys() & _WEIGHTS) and not parent
    has_begun = LOCK_FILE in stamps and lock_holder(folder) is not None
    if not (own.keys() & _MARKS or is_model or has_begun):
        return None
    return FoundRun(
        id=run_id,
        path=folder,
        parent=parent,
        stamps=own,
        seeds={
            name: logs
            for name in sorted(names, key=_seed_order)
            if _SEED_FOLDER.fullmatch(name) and (logs := _seed_logs(folder / name)) is not None
        },
        has_checkpoints=CHECKPOINTS_FOLDER in names,
    )


def _seed_order(name: str) -> tuple[str, int]:
    head, _, number = name.rpartition("-")
    return head, int(number) if number.isdecimal() else 0


def _seed_logs(folder: Path) -> Stamps | None:
    """Return the logs of a seed's folder; None if it is a run of its own."""
    inside = _list_folder(folder)
    if inside is None or RUN_FILE in inside[0]:
        return None
    return {name: stamp for name, stamp in inside[0].items() if name in _LOGS}


def _list_folder(folder: Path) -> tuple[Stamps, list[str]] | None:
    """Return the files that matter and the visible folders of a folder; None: it has gone."""
    stamps: dict[str, tuple[int, int]] = {}
    names: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name in _WATCHED:
                    _add_stamp(stamps, entry)
                elif not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                    names.append(entry.name)
    except OSError:
        return None
    return stamps, names


def _add_stamp(stamps: dict[str, tuple[int, int]], entry: "os.DirEntry[str]") -> None:
    try:
        if entry.is_file():
            facts = entry.stat()
            stamps[entry.name] = facts.st_mtime_ns, facts.st_size
    except OSError:  # removed meanwhile
        return
