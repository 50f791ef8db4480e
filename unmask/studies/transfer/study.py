"""TransferStudy: pretraining variants that are tuned in one language and scored in others."""

import math
from dataclasses import dataclass
from pathlib import Path

from unmask.studies.study import FOLDER_NAME, PretrainedCells, StudyCell
from unmask.studies.transfer.labels import LabeledFiles, LabelWords
from unmask.tasks.suites.benchmark import find_file
from unmask.zoo.catalogue import get_preset

LANGUAGE_FIELD = "{language}"
"""What stands for a language in the name of a file."""


@dataclass(frozen=True, kw_only=True)
class TransferCell(StudyCell):
    """One variant: the languages that it reads, and in what form."""

    languages: tuple[str, ...]
    """Languages of its text; each has the same share of the sentences."""
    is_paired: bool = False
    """Whether two thirds of the sentences are read as translation pairs with the source language,
    for translation language modeling."""
    own_scripts: bool = False
    """Whether each language but the source has letters of its own, so that vocabularies do not
    overlap (Karthikeyan et al. 2020, arXiv:1912.07840, section 3.1)."""
    tune_language: str = ""
    """Language of the rows that tune it. Empty: the source."""
    body_of: str = ""
    """Earlier cell, tuned, whose layers and head are scored with this cell's token embeddings
    (Artetxe et al. 2020, arXiv:1910.11856, section 2). Empty: the cell is tuned itself."""
    scored: tuple[str, ...] = ()
    """Languages that are scored. Empty: all."""


@dataclass(frozen=True, kw_only=True)
class TransferStudy(PretrainedCells):
    """Pretraining variants, tuned on labels of one language and scored in others.

    All languages are translations of each other, line by line. Either a sentence's label is read
    from its translation in the source language and is that of all translations, or files are
    labeled.
    """

    cells: tuple[TransferCell, ...]  # pyright: ignore[reportIncompatibleVariableOverride]
    tasks: str
    """File of sentences in the folder of the tasks, a line each, plain or compressed, with
    "{language}" in place of the language."""
    languages: tuple[str, ...]
    """Languages, the source first."""
    labels: tuple[LabelWords, ...] = ()
    """The task, by the words of the source language. Empty: `labeled`."""
    labeled: LabeledFiles | None = None
    """The task, by files, in place of `labels`."""
    vocab_size: int = 2048
    """Vocabulary size of each tokenizer."""
    sampling_exponent: float = 0.7
    """Exponent of a language's share, for the tokenizer and in pretraining."""
    held_out: int = 5000
    """Last lines of the files, which are in no training data. They are scored."""
    rows: int = 1800
    """Rows that tune, of labels by words as many of each, as far as there are."""
    scored_rows: int = 798
    """Rows that are scored, likewise. Of labeled files all are scored."""
    aligned_rows: int = 500
    """Held-out translations among which each sentence's own is looked for."""
    epochs: float = 5.0
    """Fine-tuning epochs."""
    seeds: int = 3
    """Fine-tuning seeds; each cell is pretrained once."""

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        super().__post_init__()
        for key in ("vocab_size", "held_out", "rows", "scored_rows", "aligned_rows", "seeds"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} must be at least 1, got {getattr(self, key)}")
        if not 0 < self.epochs < math.inf:
            raise ValueError(f"epochs must be above 0, got {self.epochs:g}")
        if LANGUAGE_FIELD not in self.tasks:
            raise ValueError(f"tasks must have {LANGUAGE_FIELD} in its name, got {self.tasks!r}")
        self._check_languages()
        if (self.labeled is None) == (not self.labels):
            raise ValueError("labels (of words) or labeled (files) must be given, and not both")
        if self.labeled is None:
            self._check_labels()
        else:
            self.labeled.check(self.languages)
        for i, cell in enumerate(self.cells):
            self._check_cell(cell, self.cells[:i])

    @property
    def source(self) -> str:
        """The language of the labeled rows."""
        return self.languages[0]

    @property
    def scored_languages(self) -> tuple[str, ...]:
        """The languages of the scored rows, the source first."""
        if self.labeled is None:
            return self.languages
        return tuple(one for one in self.languages if one in self.labeled.test)

    @property
    def tuned_languages(self) -> tuple[str, ...]:
        """The languages of rows that tune."""
        return self.languages if self.labeled is None else tuple(self.labeled.train)

    def exponent_of(self, cell: TransferCell) -> float:
        """Return the sampling exponent of a cell; 1 for one language."""
        return self.sampling_exponent if len(cell.languages) > 1 else 1.0

    def _check_languages(self) -> None:
        if len(self.languages) < 2 or len({*self.languages}) < len(self.languages):
            raise ValueError(
                f"languages must be two or more that differ, got {list(self.languages)}"
            )
        for language in self.languages:
            if not FOLDER_NAME.fullmatch(language):
                raise ValueError(f"languages must be names like 'de', got {language!r:.120}")

    def _check_labels(self) -> None:
        words = [word for one in self.labels for word in one.words]
        names = {one.label for one in self.labels}
        if len(names) < 2 or len(names) < len(self.labels):
            raise ValueError(
                f"labels must be two or more that differ, got {[x.label for x in self.labels]}"
            )
        twice = next((word for i, word in enumerate(words) if word in words[:i]), None)
        if twice is not None:
            raise ValueError(f"labels has the word {twice!r} twice")
        # of rows that tune, some of each label are held out
        for key, each, count in (("rows", 2, "two"), ("scored_rows", 1, "one")):
            if getattr(self, key) < (least := each * len(names)):
                raise ValueError(
                    f"{key} must be at least {least}, {count} of each label, got "
                    f"{getattr(self, key)}"
                )

    def _check_cell(self, cell: TransferCell, before: tuple[TransferCell, ...]) -> None:
        place = f"cell {cell.name}: "
        if not cell.languages:
            raise ValueError(f"{place}languages must not be empty")
        if cell.has_word_vectors:
            raise ValueError(f"{place}must be a network, got word vectors")
        if cell.text:
            raise ValueError(f"{place}text is given by its languages; leave it out")
        tunes = (cell.tune_language,) if cell.tune_language else ()
        for key, found, allowed in (
            ("languages", cell.languages, self.languages),
            ("scored", cell.scored, self.scored_languages),
            ("tune_language", tunes, self.tuned_languages),
        ):
            if odd := [one for one in found if one not in allowed]:
                raise ValueError(f"{place}{key} must be of {', '.join(allowed)}, got {odd[0]!r}")
        if cell.own_scripts and self.labeled is not None:
            raise ValueError(f"{place}own_scripts needs labels by words: files keep their letters")
        if cell.is_paired and (self.source not in cell.languages or len(cell.languages) < 2):
            raise ValueError(f"{place}pairs need the source {self.source} and another language")
        if cell.body_of and get_preset(cell.model).tokenizer.special_tokens.language_embeddings:
            raise ValueError(
                f"{place}body_of needs a model without language embeddings, got {cell.model}"
            )
        bodies = [one.name for one in before if not one.body_of]
        if cell.body_of and cell.body_of not in bodies:
            raise ValueError(
                f"{place}body_of must be a tuned cell before it ({', '.join(bodies) or 'none'}), "
                f"got {cell.body_of!r}"
            )

    def find_files(self, folder: Path | None) -> dict[str, Path]:
        """Find the file of each language.

        Raises:
            FileNotFoundError: one is missing.
            ValueError: there is no folder.
        """
        if folder is None:
            raise ValueError(f"{self.name} reads translations: give their folder by --tasks-data")
        files: dict[str, Path] = {}
        for language in self.languages:
            name = self.tasks.replace(LANGUAGE_FIELD, language)
            path = find_file(folder, name)
            if path is None:
                raise FileNotFoundError(f"{folder}: has no {name}, plain or compressed")
            files[language] = path
        return files
