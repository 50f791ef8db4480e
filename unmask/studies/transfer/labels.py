"""What a study of transfer is tuned on: words that decide a label, or labeled files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from unmask.tasks.suites.benchmark import find_file


@dataclass(frozen=True, kw_only=True)
class LabelWords:
    """A label, and the words of the source language that a sentence with this label has."""

    label: str
    words: tuple[str, ...]
    """Words in lower case. A sentence with words of several labels has none."""


@dataclass(frozen=True, kw_only=True)
class LabeledFiles:
    """A task of labeled files in the folder of the tasks, such as XNLI or XQuAD."""

    task: Literal["classify", "pairs", "tag", "answer"]
    """Kind of task, as for `unmask finetune --task`."""
    train: Mapping[str, str]
    """Files that tune, by language; at least that of the source."""
    test: Mapping[str, str]
    """Files that are scored, by language; that of the source and others."""
    by: str = ""
    """Column of the scored files that holds the language of a row. Empty: a file is of one
    language. A file without this column is read whole."""
    text: tuple[str, ...] = ()
    """Columns of text. Empty: found by usual names."""
    label: str = ""
    """Column of labels. Empty: found by usual names."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of the task, as for `unmask finetune --option`."""

    def check(self, languages: Sequence[str]) -> None:
        """Check that files are of the languages of a study, and that the source has both.

        Raises:
            ValueError: they are not.
        """
        for key, files in (("train", self.train), ("test", self.test)):
            for language in files:
                if language not in languages:
                    raise ValueError(
                        f"labeled.{key} must have languages of {', '.join(languages)}, got "
                        f"{language!r}"
                    )
            if languages[0] not in files:
                raise ValueError(
                    f"labeled.{key} must have the source {languages[0]}, got "
                    f"{', '.join(files) or 'none'}"
                )

    def find(self, folder: Path) -> "FoundFiles":
        """Find all files, plain or compressed.

        Raises:
            FileNotFoundError: one is missing.
        """
        return FoundFiles(train=_find(folder, self.train), test=_find(folder, self.test))


@dataclass(frozen=True)
class FoundFiles:
    """The paths of labeled files by language."""

    train: Mapping[str, Path]
    test: Mapping[str, Path]


def _find(folder: Path, names: Mapping[str, str]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for language, name in names.items():
        path = find_file(folder, name)
        if path is None:
            raise FileNotFoundError(f"{folder}: has no {name}, plain or compressed")
        found[language] = path
    return found
