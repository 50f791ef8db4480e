"""One folder a checkpoint: written whole or not at all, checked when read, the last few kept.

checkpoints/step-00001000/model.safetensors        the float32 weights that are trained
                          optimizer.safetensors    what the optimizer remembers
                          progress.json            how far the run was, and how long its logs were
                          manifest.json            size and SHA-256 of each of these
"""

import errno
import json
import os
import re
import shutil
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from unmask.checkpoints.tensors import read_tensors, write_tensors
from unmask.files import atomic_path, read_json, remove_partial_files, sha256
from unmask.saved_format import FORMAT, read_saved

LOG_FILES = ("log.jsonl", "timing.jsonl")
"""Files of the run folder that grow; a resumed run cuts them back to where its checkpoint was."""

_CHECKPOINT_NAME = re.compile(r"step-(\d{8,})")
_PARTIAL_NAME = re.compile(r"\.step-\d+(\.damaged)?\.(fresh|removed)\.part")
_MANIFEST_FILE, _PROGRESS_FILE = "manifest.json", "progress.json"
_DISK_FULL_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was found whole."""

    path: Path
    step: int
    progress: Mapping[str, Any]

    def tensors(self, name: str) -> dict[str, Tensor]:
        """Read one of its sets of tensors: "model" or "optimizer"."""
        return read_tensors(self.path / f"{name}.safetensors")


def write_checkpoint(
    folder: Path,
    step: int,
    tensors: Mapping[str, Mapping[str, Tensor]],
    progress: Mapping[str, Any],
    *,
    n_kept: int = 2,
) -> Path:
    """Write the checkpoint of a run at `step`, and remove all but the newest `n_kept`.

    The run's logs are flushed to the disk first, and how long they are is written with the
    checkpoint: `truncate_logs` cuts them back to it. Checkpoints of later steps, which only a run
    that went back can find, are removed too.

    Args:
        folder: of the run; the checkpoint goes to `checkpoints/step-…` in it.
        step: the last step that was taken.
        tensors: by file name without `.safetensors`.
        progress: what else the run must know, as plain data.
        n_kept: how many checkpoints stay.

    Raises:
        OSError: it cannot be written, for instance because the disk is full. Checkpoints that were
            there are untouched.
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
        _write_folder(fresh, tensors, {"format": FORMAT, "step": step, "logs": logs, **progress})
        if path.exists():  # damaged, or written before the logs' last lines
            _remove(path)
        fresh.rename(path)
        _flush(home)
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        if error.errno not in _DISK_FULL_ERRORS:
            raise
        why = f"the checkpoint of step {step} was not written, earlier ones are untouched"
        why = f"{why}: {os.strerror(error.errno)}"
        raise OSError(error.errno, why, str(home)) from error
    _remove_old(home, step, n_kept)
    return path


def _remove_old(home: Path, step: int, n_kept: int) -> None:
    found = _list_checkpoints(home)
    kept = [path for s, path in found if s <= step][:n_kept]
    for _, old in found:
        if old not in kept:
            _remove(old)
    for damaged in home.glob("step-*.damaged"):
        _remove(damaged)


def newest_checkpoint(
    folder: Path, *, clean_up: bool = True
) -> tuple[Checkpoint | None, list[str]]:
    """Find the newest whole checkpoint of a run; say which newer ones are damaged, a line each.

    Args:
        folder: of the run.
        clean_up: remove what interrupted writes left, and rename damaged checkpoints to
            `step-….damaged`, which `save` removes when it has written another. Only for the one
            process that continues with the run; whoever merely looks at it says False.
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
        damaged.append(f"{path}: damaged, so not used: {reason}")
        if clean_up:
            aside = path.with_name(f"{path.name}.damaged")
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)
    return None, damaged


def last_checkpoints(folder: Path, n: int) -> list[Checkpoint]:
    """Return the last `n` checkpoints of a run, the oldest first.

    Raises:
        ValueError: there are fewer, or one of them is damaged.
    """
    home = folder / "checkpoints"
    found = _list_checkpoints(home)[:n] if home.is_dir() else []
    if len(found) < n:
        raise ValueError(
            f"{home}: holds {len(found)} checkpoints, but the mean is to be of the last {n}; a "
            "recipe keeps more by keep"
        )
    for _, path in found:
        if (reason := find_damage(path)) is not None:
            raise ValueError(f"{path}: damaged, so there is no mean with it: {reason}")
    return [Checkpoint(path, step, read_progress(path)) for step, path in reversed(found)]


def average_tensors(
    states: Iterable[Mapping[str, Tensor]], names: Iterable[str]
) -> dict[str, Tensor]:
    """Average the tensors of these names over some states, summed in float64; float32.

    Raises:
        ValueError: there is no state, or they are of different models.
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
    for left in home.iterdir():
        if _PARTIAL_NAME.fullmatch(left.name):
            shutil.rmtree(left)


def find_damage(path: Path) -> str | None:
    """Check a checkpoint against its manifest, byte by byte; return what is wrong, if anything."""
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
        file = path / Path(name).name
        if not file.is_file():
            return f"{name} is missing"
        if file.stat().st_size != size:
            return f"{name} has {file.stat().st_size} bytes instead of {size}"
        if sha256(file) != digest:
            return f"{name} has changed since it was written"
    return None


def read_progress(path: Path) -> dict[str, Any]:
    """Read how far the run was.

    Raises:
        ValueError: a later version of Unmask wrote it.
    """
    return read_saved(path / _PROGRESS_FILE)


def truncate_logs(folder: Path, checkpoint: Checkpoint | None) -> list[str]:
    """Cut the run's logs back to a checkpoint, or to nothing; say what they lack, if anything."""
    lengths: Mapping[str, int] = {} if checkpoint is None else checkpoint.progress["logs"]
    missing: list[str] = []
    for name in LOG_FILES:
        path, length = folder / name, lengths.get(name, 0)
        there = path.stat().st_size if path.exists() else 0
        if there > length:
            os.truncate(path, length)
        elif there < length:
            missing.append(
                f"{path}: {length - there} bytes of the log are missing; going on without them"
            )
    return missing


@contextmanager
def lock_run_folder(folder: Path, *, wait: bool = False) -> Generator[None, None, None]:
    """Keep other processes from training in the same run folder, for as long as this process lives.

    Args:
        folder: of the run.
        wait: until no other process does.

    Raises:
        ValueError: another process does.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with (folder / ".lock").open("wb") as file:
        try:
            # A record lock: unlike flock's, it does not live on in worker processes when this one
            # is killed.
            fcntl.lockf(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise ValueError(f"{folder}: another process is training in this folder") from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise  # file systems without locks go without
        yield


def _list_checkpoints(home: Path) -> list[tuple[int, Path]]:
    """List the checkpoints, whole or not, newest first."""
    found = [
        (int(m[1]), p)
        for p in home.iterdir()
        if (m := _CHECKPOINT_NAME.fullmatch(p.name)) and p.is_dir()
    ]
    return sorted(found, reverse=True)


def _write_folder(
    path: Path, tensors: Mapping[str, Mapping[str, Tensor]], progress: Mapping[str, Any]
) -> None:
    """Write a checkpoint to a hidden folder, whole and flushed; replace one that was left there."""
    if path.exists():
        shutil.rmtree(path)
    with atomic_path(path) as beside:
        beside.mkdir()
        for name, some in tensors.items():
            write_tensors(beside / f"{name}.safetensors", some)
        (beside / _PROGRESS_FILE).write_text(json.dumps(progress, indent=1) + "\n")
        (beside / _MANIFEST_FILE).write_text(json.dumps(_build_manifest(beside), indent=1) + "\n")


def _build_manifest(folder: Path) -> dict[str, Any]:
    files = {
        p.name: {"size": p.stat().st_size, "sha256": sha256(p)} for p in sorted(folder.iterdir())
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
    """Remove a checkpoint; killed on the way, it leaves nothing that looks like one."""
    hidden = path.with_name(f".{path.name}.removed.part")
    if hidden.exists():
        shutil.rmtree(hidden)
    path.rename(hidden)
    shutil.rmtree(hidden)
