"""Workplace: the one folder below which all runs are, and the ids that stand for its paths.

ROOT/mine/              a run; its id is "mine"
ROOT/mine/seed-0/       its id is "mine/seed-0"
ROOT/.unmask/files/     uploaded files
ROOT/.unmask/jobs/      a folder for each job
ROOT/.unmask/trash/     deleted runs, until they are purged
ROOT/.unmask/tags.json  tags of runs
"""

import json
import os
import re
import unicodedata
from pathlib import Path, PurePath
from typing import Any

from unmask.files import read_json_object, write_atomically

HIDDEN_FOLDER = ".unmask"
"""What the workbench keeps beside the runs."""
MAX_NAME_CHARACTERS, MAX_NAME_BYTES = 100, 200
"""Of a new run's name; file systems take 255 bytes, and what is written beside it is longer."""
MAX_ID_CHARACTERS = 1000

_NAME = re.compile(r"\w(?:[\w. -]*[\w-])?")


class Workplace:
    """A folder of runs. Paths neither leave it nor come in: both are ids below it.

    An id is a path relative to the root, with slashes: "mine", "mine/seed-0".
    """

    def __init__(self, root: Path) -> None:
        """Name the root folder, which need not exist yet."""
        self.root = root.resolve()

    @property
    def files_folder(self) -> Path:
        """The folder of uploaded files."""
        return self._hidden_folder("files")

    @property
    def jobs_folder(self) -> Path:
        """The folder of jobs."""
        return self._hidden_folder("jobs")

    @property
    def trash_folder(self) -> Path:
        """The folder of what was deleted and can be had back."""
        return self._hidden_folder("trash")

    def path_of(self, run_id: str) -> Path:
        """Return the path of an id; it need not exist.

        Raises:
            ValueError: it is no id: empty, absolute, hidden, or it leads out of the root, as ".."
                and symbolic links do.
        """
        parts = run_id.split("/")
        if len(run_id) > MAX_ID_CHARACTERS or not all(map(is_visible_name, parts)):
            raise ValueError(
                f"{run_id!r:.80}: not a run's id, which is names with slashes between, none hidden"
            )
        path = self.root.joinpath(*parts)
        try:
            self.id_of(path.resolve())
        except (OSError, RuntimeError, ValueError):  # RuntimeError: links that lead in a circle
            raise ValueError(f"{run_id!r:.80}: leads out of the folder of runs") from None
        return path

    def existing(self, run_id: str) -> Path:
        """Return the path of an id whose folder exists.

        Raises:
            FileNotFoundError: it does not.
            ValueError: it is no id.
        """
        path = self.path_of(run_id)
        if not path.is_dir():
            raise FileNotFoundError(f"{run_id}: no such run")
        return path

    def id_of(self, path: Path) -> str:
        """Return the id of a path below the root.

        Raises:
            ValueError: it is not below the root, or hidden, or its name cannot be shown.
        """
        parts = path.relative_to(self.root).parts
        if not parts or not all(map(is_visible_name, parts)):
            raise ValueError("not below the folder of runs, or hidden")
        return "/".join(parts)

    def new_run_path(self, name: str) -> Path:
        """Return the path of a new run.

        Args:
            name: letters, digits, spaces and - _ . ; it begins with a letter, a digit or _ and does
                not end with a space or a dot. At most 100 characters.

        Raises:
            FileExistsError: there is one of this name.
            ValueError: it is no name for a run.
        """
        name = checked_name(name)
        path = self.path_of(name)
        if os.path.lexists(path):
            raise FileExistsError(f"{name}: there is a run of this name already")
        return path

    def without_root(self, line: str) -> str:
        """Return a line of text in which paths below the root are ids."""
        return line.replace(f"{self.root}{os.sep}", "")

    def shown(self, value: Any) -> Any:
        """Return a recorded value for display: a path below the root as id, others by name."""
        if isinstance(value, dict):
            return {clean_text(str(key)): self.shown(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.shown(item) for item in value]
        if not isinstance(value, str):
            return value
        if os.path.isabs(value):
            path = PurePath(os.path.normpath(value))
            inside = path.is_relative_to(self.root) and path != self.root
            value = path.relative_to(self.root).as_posix() if inside else path.name or "/"
        return clean_text(value)

    def read_tags(self) -> dict[str, list[str]]:
        """Return the tags of each run that has some; of a damaged file there are none."""
        try:
            found = read_json_object(self._tags_file)
        except (OSError, ValueError):
            return {}
        return {
            run_id: [clean_text(tag) for tag in tags if isinstance(tag, str)]
            for run_id, tags in found.items()
            if isinstance(tags, list)
        }

    def write_tags(self, tags: dict[str, list[str]]) -> None:
        """Write the tags of all runs."""
        self._hidden_folder("")
        kept = {run_id: some for run_id, some in sorted(tags.items()) if some}
        write_atomically(self._tags_file, json.dumps(kept, ensure_ascii=False, indent=1) + "\n")

    @property
    def _tags_file(self) -> Path:
        return self.root / HIDDEN_FOLDER / "tags.json"

    def _hidden_folder(self, name: str) -> Path:
        hidden = self.root / HIDDEN_FOLDER
        hidden.mkdir(mode=0o700, parents=True, exist_ok=True)  # it holds the secret
        path = hidden / name
        path.mkdir(mode=0o700, exist_ok=True)
        return path


def checked_name(name: str) -> str:
    """Return the name of a new run, in the form NFC.

    Raises:
        ValueError: it is no name for a run.
    """
    name = unicodedata.normalize("NFC", name)
    too_long = len(name) > MAX_NAME_CHARACTERS or len(name.encode("utf-8", "replace")) > (
        MAX_NAME_BYTES
    )
    if too_long or not _NAME.fullmatch(name):
        raise ValueError(
            f"name {name!r:.60}: must be 1 to {MAX_NAME_CHARACTERS} letters, digits, spaces and "
            "- _ . , with a letter or digit first"
        )
    return name


def clean_text(text: str) -> str:
    """Return text that can be sent as UTF-8: a lone surrogate is a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


def is_visible_name(part: str) -> bool:
    """Return whether a name of a file or folder can be in an id."""
    # What cannot be printed, a lone surrogate of a name that is no UTF-8 too, cannot be in JSON.
    return bool(part) and not part.startswith(".") and part.isprintable() and "\\" not in part
