"""Checkpoint folders: written atomically, checked when read, the last few kept.

checkpoints/step-00001000/model.safetensors the trained float32 weights
                          optimizer.safetensors the state of the optimizer progress.json progress of
                          the run and lengths of its logs manifest.json size and SHA-256 of each of
                          these

A run that is divided among processes has folders model/ and optimizer/ in place of these files,
with the part of each process (`unmask.checkpoints.shards`).
"""

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from unmask.checkpoints.shards import read_shards
from unmask.checkpoints.tensors import read_tensors, write_tensors
from unmask.files import atomic_path, read_json, remove_partial_files, sha256
from unmask.saved_format import FORMAT, read_saved

LOG_FILES = ("log.jsonl", "timing.jsonl")
"""Logs in the run folder, truncated to the checkpoint when a run is resumed."""

_CHECKPOINT_NAME = re.compile(r"step-(\d{8,})")
_PARTIAL_NAME = re.compile(r"\.step-\d+(\.damaged)?\.(fresh|removed)\.part")
_MANIFEST_FILE, _PROGRESS_FILE = "manifest.json", "progress.json"
_DISK_FULL_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True)
class Checkpoint:
    """An intact checkpoint."""

    path: Path
    step: int
    progress: Mapping[str, Any]

    def tensors(self, name: str, mesh: Any = None) -> dict[str, Tensor]:
        """Read its tensors of "model" or "optimizer".

        Those that several processes wrote are divided among the processes of a device mesh, if
        there is one; else all are whole.
        """
        if (self.path / name).is_dir():
            return read_shards(self.path / name, mesh)
        return read_tensors(self.path / f"{name}.safetensors")


def write_checkpoint(
    folder: Path,
    step: int,
    tensors: Mapping[str, Mapping[str, Tensor]],
    progress: Mapping[str, Any],
    *,
    n_kept: int = 2,
    write_more: Callable[[Path], None] | None = None,
) -> Path:
    """Write the checkpoint of a run at `step`, and remove all but the newest `n_kept`.

    The run's logs are flushed first, and their lengths saved with the checkpoint for
    `truncate_logs`. Checkpoints of later steps, which exist if a run resumed from an earlier one,
    are removed too.

    Args:
        folder: the run folder; the checkpoint is `checkpoints/step-…` in it.
        step: the last completed step.
        tensors: tensors by file name without `.safetensors`.
        progress: further state of the run, as plain data.
        n_kept: number of checkpoints to keep.
        write_more: writes further files to a folder that becomes the checkpoint.

    Raises:
        OSError: it cannot be written, for instance because the disk is full. Earlier checkpoints
            are untouched.
    """
    home = folder / "checkpoints"
    path, fresh = home / f"step-{step:08}", home / f".step-{step:08}.fresh.part"
    try:
        if not home.is_dir():
            home.mkdir()
            _flush(folder)
        logs = _flush_logs(folder)
        if path.exists() and find_damage(path) is None and read_progress(path)["logs"] == logs:
            return path
        record = {"format": FORMAT, "step": step, "logs": logs, **progress}
        _write_folder(fresh, tensors, record, write_more)
        if path.exists():  # damaged, or older than the last lines of the logs
            _remove(path)
        fresh.rename(path)
        _flush(home)
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        if error.errno not in _DISK_FULL_ERRORS:
            raise
        message = f"the checkpoint of step {step} was not written, earlier ones are untouched"
        message = f"{message}: {os.strerror(error.errno)}"
        raise OSError(error.errno, message, str(home)) from error
    _remove_old(home, step, n_kept)
    return path


def _remove_old(home: Path, step: int, n_kept: int) -> None:
    checkpoints = _list_checkpoints(home)
    kept_paths = [path for s, path in checkpoints if s <= step][:n_kept]
    for _, old in checkpoints:
        if old not in kept_paths:
            _remove(old)
    for damaged in home.glob("step-*.damaged"):
        _remove(damaged)


def newest_checkpoint(
    folder: Path, *, clean_up: bool = True
) -> tuple[Checkpoint | None, list[str]]:
    """Find the newest intact checkpoint of a run, and a line for each newer damaged one.

    Args:
        folder: the run folder.
        clean_up: remove the remains of interrupted writes, and rename damaged checkpoints to
            `step-….damaged`, which the next write removes. Only for the process that resumes the
            run; readers pass False.
    """
    home = folder / "checkpoints"
    if not home.is_dir():
        return None, []
    if clean_up:
        _remove_leftovers(home)
    damaged: list[str] = []
    for step, path in _list_checkpoints(home):
        reason = find_damage(path)
        if reason is None:
            return Checkpoint(path, step, read_progress(path)), damaged
        damaged.append(f"{path}: damaged, not used: {reason}")
        if clean_up:
            aside = path.with_name(f"{path.name}.damaged")
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)
    return None, damaged


def last_checkpoints(folder: Path, n: int) -> list[Checkpoint]:
    """Return the last `n` checkpoints of a run, the oldest first.

    Raises:
        ValueError: there are fewer, or one is damaged.
    """
    home = folder / "checkpoints"
    checkpoints = _list_checkpoints(home)[:n] if home.is_dir() else []
    if len(checkpoints) < n:
        raise ValueError(
            f"{home}: has {len(checkpoints)} checkpoints, but the average needs {n}; a "
            "recipe keeps more by keep_checkpoints"
        )
    for _, path in checkpoints:
        if (reason := find_damage(path)) is not None:
            raise ValueError(f"{path}: damaged, cannot be averaged: {reason}")
    return [Checkpoint(path, step, read_progress(path)) for step, path in reversed(checkpoints)]


def average_tensors(
    states: Iterable[Mapping[str, Tensor]], names: Iterable[str]
) -> dict[str, Tensor]:
    """Average the tensors of these names over states, summed in float64; return float32.

    Raises:
        ValueError: there is no state, or the states are from different models.
    """
    total: dict[str, Tensor] = {}
    n, names = 0, tuple(names)
    for state in states:
        n += 1
        for name in names:
            shape = state[name].shape if name in state else None
            if (n > 1 and shape != total[name].shape) or shape is None:
                raise ValueError(f"these states are of different models: {name} differs")
            exact = state[name].detach().cpu().double()
            total[name] = exact.clone() if n == 1 else total[name] + exact
    if not n:
        raise ValueError("there is no state to average")
    return {name: (x / n).float() for name, x in total.items()}


def _remove_leftovers(home: Path) -> None:
    remove_partial_files(home)
    for path in home.iterdir():
        if _PARTIAL_NAME.fullmatch(path.name):
            shutil.rmtree(path)


def find_damage(path: Path) -> str | None:
    """Check a checkpoint against its manifest, byte by byte; return the damage, if any."""
    try:
        manifest = read_json(path / _MANIFEST_FILE)
        files: dict[str, dict[str, Any]] = manifest["files"]
        expected = {str(name): (int(f["size"]), str(f["sha256"])) for name, f in files.items()}
    except FileNotFoundError:
        return f"there is no {_MANIFEST_FILE}"
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return f"{_MANIFEST_FILE} cannot be read"
    if _PROGRESS_FILE not in expected:
        return f"{_MANIFEST_FILE} does not name {_PROGRESS_FILE}"
    for name, (size, digest) in expected.items():
        file = path / name
        if not file.resolve().is_relative_to(path.resolve()):
            return f"{_MANIFEST_FILE} names {name}, which is not a file of this folder"
        if not file.is_file():
            return f"{name} is missing"
        if file.stat().st_size != size:
            return f"{name} has {file.stat().st_size} bytes instead of {size}"
        if sha256(file) != digest:
            return f"{name} has changed since it was written"
    return None


def read_progress(path: Path) -> dict[str, Any]:
    """Read the progress of a run.

    Raises:
        ValueError: a later version of Unmask wrote it.
    """
    return read_saved(path / _PROGRESS_FILE)


def truncate_logs(folder: Path, checkpoint: Checkpoint | None) -> list[str]:
    """Truncate the logs to a checkpoint, or to nothing; return a line for each incomplete log."""
    lengths: Mapping[str, int] = {} if checkpoint is None else checkpoint.progress["logs"]
    missing: list[str] = []
    for name in LOG_FILES:
        path, length = folder / name, lengths.get(name, 0)
        actual_length = path.stat().st_size if path.exists() else 0
        if actual_length > length:
            os.truncate(path, length)
        elif actual_length < length:
            missing.append(
                f"{path}: {length - actual_length} bytes of the log are missing; continuing"
            )
    return missing


def has_run(folder: Path, files: Iterable[str], what: str = "run") -> bool:
    """Return whether a folder has a run: one of the files by which it is known.

    Without one it must be new, or empty but for hidden files.

    Args:
        folder: the run folder.
        files: names of files of which a run has one.
        what: name of such a run, for messages.

    Raises:
        ValueError: it is a file, or has other content.
    """
    if not folder.is_dir():
        if folder.exists():
            raise ValueError(f"{folder}: is a file; a {what} needs a folder")
        return False
    if any((folder / name).is_file() for name in files):
        return True
    if any(not path.name.startswith(".") for path in folder.iterdir()):
        raise ValueError(f"{folder}: holds files, but not a {what}; name a new folder")
    return False


def check_resumed(folder: Path, what: str = "run", *, resume: bool) -> None:
    """Check that the run of a folder is to be continued.

    Raises:
        ValueError: it is not.
    """
    if not resume:
        raise ValueError(f"{folder}: holds a {what} already; resume it, or name a new folder")


def check_not_begun(folder: Path, file: str) -> None:
    """Check, with the lock of a folder, that no other process began a run there meanwhile.

    Args:
        folder: the run folder.
        file: name of the file by which a run is known.

    Raises:
        ValueError: one did; the run may have ended since.
    """
    if (folder / file).exists():
        raise ValueError(f"{folder}: another process began a run here; name a new folder")


def _list_checkpoints(home: Path) -> list[tuple[int, Path]]:
    """List the checkpoints, intact or not, newest first."""
    checkpoints = [
        (int(m[1]), p)
        for p in home.iterdir()
        if (m := _CHECKPOINT_NAME.fullmatch(p.name)) and p.is_dir()
    ]
    return sorted(checkpoints, reverse=True)


def _write_folder(
    path: Path,
    tensors: Mapping[str, Mapping[str, Tensor]],
    progress: Mapping[str, Any],
    write_more: Callable[[Path], None] | None,
) -> None:
    """Write a checkpoint to a hidden folder and flush it; replace a leftover one."""
    if path.exists():
        shutil.rmtree(path)
    with atomic_path(path) as beside:
        beside.mkdir()
        for name, some in tensors.items():
            write_tensors(beside / f"{name}.safetensors", some)
        if write_more is not None:
            write_more(beside)
        (beside / _PROGRESS_FILE).write_text(json.dumps(progress, indent=1) + "\n")
        (beside / _MANIFEST_FILE).write_text(json.dumps(_build_manifest(beside), indent=1) + "\n")


def _build_manifest(folder: Path) -> dict[str, Any]:
    files = {
        p.relative_to(folder).as_posix(): {"size": p.stat().st_size, "sha256": sha256(p)}
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }
    return {"format": FORMAT, "files": files}


def _flush_logs(folder: Path) -> dict[str, int]:
    lengths: dict[str, int] = {}
    for name in LOG_FILES:
        if (folder / name).exists():
            with (folder / name).open("rb") as file:
                os.fsync(file.fileno())
                lengths[name] = os.fstat(file.fileno()).st_size
    return lengths


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Remove a checkpoint; if killed meanwhile, the remains are not taken for one."""
    hidden_path = path.with_name(f".{path.name}.removed.part")
    if hidden_path.exists():
        shutil.rmtree(hidden_path)
    path.rename(hidden_path)
    shutil.rmtree(hidden_path)
