"""Changes to runs: moved into the trash and back, renamed, tagged.

A deleted run is ROOT/.unmask/trash/TIME-NUMBER/run, with deleted.json beside it, until it is purged
or restored. Nothing is done to a run in which a process is training.
"""

import json
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, cast

from unmask.files import lock_run_folder, read_json_object, write_atomically
from unmask.web.runs.scan import (
    RUN_FILE,
    STUDY_FILE,
    SUITE_FILE,
    FoundRun,
    find_run,
    find_runs,
)
from unmask.web.runs.state import is_running
from unmask.web.workplace import Workplace, checked_name

MAX_TAGS, MAX_TAG_CHARACTERS = 20, 40
"""Of a run; of a tag."""
SECONDS_IN_TRASH = 7 * 24 * 3600
"""After which a deleted run is purged."""

_DELETED_FILE, _RUN_FOLDER = "deleted.json", "run"
_TAGS_LOCK = Lock()


@dataclass(frozen=True, kw_only=True)
class DeletedRun:
    """A run in the trash."""

    id: str
    """In the trash."""
    run_id: str
    """That it had, and gets again."""
    deleted: float
    """When, in seconds since 1970."""


def delete_run(workplace: Workplace, run_id: str) -> DeletedRun:
    """Move a run into the trash, with the runs in its folder.

    Raises:
        BlockingIOError: a process is training in it.
        FileNotFoundError: there is no such run.
        ValueError: it is no id.
    """
    found = _existing_run(workplace, run_id)
    now = time.time()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    place = workplace.trash_folder / f"{stamp}-{secrets.token_hex(4)}"
    with ExitStack() as stack:
        _hold(found, stack)
        place.mkdir()
        try:
            with _TAGS_LOCK:
                tags = workplace.read_tags()
                own = {name: tags.pop(name) for name in _at_or_below(tags, run_id)}
                facts = {"run": run_id, "deleted": now, "tags": own}
                write_atomically(place / _DELETED_FILE, json.dumps(facts, ensure_ascii=False))
                _move(found.path, place / _RUN_FOLDER, run_id)
                if own:
                    workplace.write_tags(tags)
        except BaseException:
            if not (place / _RUN_FOLDER).exists():
                shutil.rmtree(place, ignore_errors=True)
            raise
    return DeletedRun(id=place.name, run_id=run_id, deleted=now)


def deleted_runs(workplace: Workplace) -> list[DeletedRun]:
    """Return the runs in the trash, the last deleted first."""
    found = [_deleted_run(place) for place in _trash_places(workplace)]
    return sorted((one for one in found if one is not None), key=lambda one: -one.deleted)


def restore_run(workplace: Workplace, deleted_id: str) -> str:
    """Move a deleted run back to where it was, and return its id.

    Raises:
        FileExistsError: there is another run of its id now.
        FileNotFoundError: there is no such run in the trash.
        ValueError: its record is damaged.
    """
    places = {place.name: place for place in _trash_places(workplace)}
    place = places.get(deleted_id)
    if place is None or not (place / _RUN_FOLDER).is_dir():
        raise FileNotFoundError(f"{deleted_id!r:.60}: no such run in the trash")
    facts = read_json_object(place / _DELETED_FILE)
    run_id = str(facts.get("run", ""))
    path = workplace.path_of(run_id)
    if os.path.lexists(path):
        raise FileExistsError(f"{run_id}: there is a run of this name already; rename it first")
    path.parent.mkdir(parents=True, exist_ok=True)
    _move(place / _RUN_FOLDER, path, run_id)
    tags = facts.get("tags")
    if isinstance(tags, dict) and tags:
        with _TAGS_LOCK:
            workplace.write_tags(workplace.read_tags() | cast("dict[str, list[str]]", tags))
    shutil.rmtree(place, ignore_errors=True)
    return run_id


def purge_trash(workplace: Workplace, older_than: int | float = SECONDS_IN_TRASH) -> int:
    """Remove what has been in the trash for some seconds, a week by default; return how many."""
    limit, n_purged = time.time() - older_than, 0
    for place in _trash_places(workplace):
        found = _deleted_run(place)
        with suppress(OSError):  # removed by another process
            if (place.stat().st_mtime if found is None else found.deleted) <= limit:
                shutil.rmtree(place)
                n_purged += 1
    return n_purged


def rename_run(workplace: Workplace, run_id: str, name: str) -> str:
    """Give the folder of a run another name, and return its new id.

    Raises:
        BlockingIOError: a process is training in it.
        FileExistsError: there is one of this name already.
        FileNotFoundError: there is no such run.
        ValueError: it is no name; the run belongs to a study or a suite, or others were made from
            it, whose records name its folder.
    """
    found = _existing_run(workplace, run_id)
    new_id = "/".join((*run_id.split("/")[:-1], checked_name(name)))
    if new_id == run_id:
        return run_id
    path = workplace.path_of(new_id)
    if os.path.lexists(path):
        raise FileExistsError(f"{new_id}: there is a run of this name already")
    if found.parent:
        raise ValueError(f"{run_id}: belongs to {found.parent}, which would not find it again")
    if users := runs_made_from(workplace, run_id):
        raise ValueError(f"{run_id}: keeps its name, by which {users[0]} refers to it")
    with ExitStack() as stack:
        _hold(found, stack)
        _move(found.path, path, run_id)
    with _TAGS_LOCK:
        tags = workplace.read_tags()
        for old in _at_or_below(tags, run_id):
            tags[new_id + old.removeprefix(run_id)] = tags.pop(old)
        workplace.write_tags(tags)
    return new_id


def tag_run(workplace: Workplace, run_id: str, tags: Sequence[str]) -> tuple[str, ...]:
    """Give a run these tags in place of those it has, and return them.

    Raises:
        FileNotFoundError: there is no such run.
        ValueError: there are more than 20, or one is empty, longer than 40 characters, or has a
            character that cannot be seen.
    """
    _existing_run(workplace, run_id)
    kept = tuple(dict.fromkeys(tag.strip() for tag in tags))
    for tag in kept:
        if not tag or len(tag) > MAX_TAG_CHARACTERS or not tag.isprintable():
            raise ValueError(
                f"tag {tag!r:.60}: must be 1 to {MAX_TAG_CHARACTERS} visible characters"
            )
    if len(kept) > MAX_TAGS:
        raise ValueError(f"tags: a run has at most {MAX_TAGS}, got {len(kept)}")
    with _TAGS_LOCK:
        workplace.write_tags(workplace.read_tags() | {run_id: list(kept)})
    return kept


def runs_made_from(workplace: Workplace, run_id: str) -> list[str]:
    """Return the runs whose record names a folder of this run: as their base, teacher, text, ..."""
    path = workplace.path_of(run_id)
    users: list[str] = []
    for found in find_runs(workplace.root):
        is_inside = found.id == run_id or found.id.startswith(f"{run_id}/")
        if not is_inside and any(_names(text, path, workplace.root) for text in _recorded(found)):
            users.append(found.id)
    return users


def _recorded(found: FoundRun) -> Iterator[str]:
    """Iterate over the texts in what a run records of its options."""
    for name in (RUN_FILE, SUITE_FILE, STUDY_FILE):
        if name not in found.stamps:
            continue
        with suppress(OSError, ValueError):  # damaged: it names nothing
            record = read_json_object(found.path / name)
            for key in ("recipe", "base", "data", "study", "tasks_data"):
                yield from _texts(record.get(key))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in cast("dict[str, Any]", value).values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _texts(item)


def _names(text: str, path: Path, root: Path) -> bool:
    """Return whether a text is a path of a folder, or of what is in it."""
    if "\0" in text or path.name not in text:
        return False
    return Path(os.path.normpath(root / text)).is_relative_to(path)


def _existing_run(workplace: Workplace, run_id: str) -> FoundRun:
    workplace.existing(run_id)
    found = find_run(workplace.root, run_id)
    if found is None:
        raise FileNotFoundError(f"{run_id}: no such run")
    return found


def _hold(found: FoundRun, stack: ExitStack) -> None:
    """Keep processes from training in a run while its folder moves.

    Raises:
        BlockingIOError: one is.
    """
    busy = f"{found.id}: a process is training in it; stop it first"
    inside = [found.path, *(one.path for one in find_runs(found.path))]
    if any(is_running(folder) for folder in inside):
        raise BlockingIOError(busy)
    try:
        stack.enter_context(lock_run_folder(found.path))
    except ValueError:  # it has begun just now
        raise BlockingIOError(busy) from None


def _move(source: Path, target: Path, run_id: str) -> None:
    """Rename a folder; errors name the run and no path.

    Raises:
        FileNotFoundError: it has been removed, or moved by another request.
        OSError: it cannot be moved, for instance to another file system.
    """
    try:
        os.rename(source, target)
    except FileNotFoundError:
        raise FileNotFoundError(f"{run_id}: no such run any more") from None
    except OSError as error:
        raise OSError(f"{run_id}: cannot be moved: {error.strerror}") from None


def _trash_places(workplace: Workplace) -> list[Path]:
    return [path for path in workplace.trash_folder.iterdir() if path.is_dir()]


def _deleted_run(place: Path) -> DeletedRun | None:
    """Return what is known of a folder in the trash; None if it is nothing that can be restored."""
    try:
        facts: Mapping[str, Any] = read_json_object(place / _DELETED_FILE)
    except (OSError, ValueError):
        return None
    run_id, deleted = facts.get("run"), facts.get("deleted")
    if not isinstance(run_id, str) or not isinstance(deleted, int | float):
        return None
    return DeletedRun(id=place.name, run_id=run_id, deleted=float(deleted))


def _at_or_below(run_ids: Iterable[str], run_id: str) -> list[str]:
    """Return an id, and those of what is in its folder."""
    return [one for one in run_ids if one == run_id or one.startswith(f"{run_id}/")]
