"""ProbingStudy: pretraining variants whose layers are probed on the same annotated sentences."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from unmask.studies.study import FOLDER_NAME, PretrainedCells
from unmask.tasks.suites.benchmark import find_file


@dataclass(frozen=True, kw_only=True)
class ProbedFile:
    """A task of probes, and the file that has its labels."""

    name: str
    """Name in the table, also of its folder."""
    file: str
    """In the folder of the tasks, plain or compressed. Probes are fitted on its first half and
    scored on the second."""
    task: Literal["tags", "relations", "labels", "spans"]
    """Task of `unmask probe --analysis probes`."""
    label_column: int | None = None
    """Number of the column of labels of a file of tags, from 2. None: the last."""

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        if not FOLDER_NAME.fullmatch(self.name):
            raise ValueError(
                f"name must be valid for a folder, like 'entities', got {self.name!r:.120}"
            )


@dataclass(frozen=True, kw_only=True)
class ProbingStudy(PretrainedCells):
    """Pretraining variants with the same budget and text, probed in each layer.

    Beside each stands the same network with random weights.
    """

    tasks: tuple[ProbedFile, ...]
    """What is probed; tasks whose files are missing are left out."""
    rows: int = 600
    """Sentences that are scored, and as many that fit probes and stop their training."""
    epochs: float = 200.0
    """Passes of probes over the training words, at most; a whole number."""

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        super().__post_init__()
        names = [one.name.casefold() for one in self.tasks]
        if not names or len({*names}) < len(names):
            raise ValueError(f"tasks must be one or more that differ by name, got {names}")
        if self.rows < 2:
            raise ValueError(f"rows must be at least 2, got {self.rows}")
        if self.epochs < 1 or self.epochs != int(self.epochs):
            raise ValueError(f"epochs must be a whole number of at least 1, got {self.epochs:g}")
        for cell in self.cells:
            if cell.has_word_vectors or not cell.has_trained_weights:
                what = "word vectors" if cell.has_word_vectors else "random weights"
                raise ValueError(
                    f"cell {cell.name}: must be a pretrained network, got {what}; random weights "
                    "are probed beside each cell"
                )
            if cell.tune != "full":
                raise ValueError(f"cell {cell.name}: tune is of studies that fine-tune")

    def find_files(self, folder: Path | None) -> tuple[tuple[ProbedFile, Path], ...]:
        """Find the files of the tasks.

        Raises:
            FileNotFoundError: all are missing.
            ValueError: there is no folder.
        """
        if folder is None:
            raise ValueError(
                f"{self.name} reads annotated sentences: give their folder by --tasks-data"
            )
        found = [(one, find_file(folder, one.file)) for one in self.tasks]
        known = tuple((one, path) for one, path in found if path is not None)
        if not known:
            raise FileNotFoundError(
                f"{folder}: has none of {', '.join(dict.fromkeys(one.file for one in self.tasks))}"
            )
        return known
