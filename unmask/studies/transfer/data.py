"""The text and the labeled rows of a study of transfer, from lines that are translations."""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from unmask.files import write_atomically
from unmask.studies.transfer.study import TransferCell, TransferStudy
from unmask.text.lines import read_decoded

_WORD = re.compile(r"\w+")
_SCRIPTS = ((0x1400, 0x280), (0xA000, 0x480))
"""First code point and size of the alphabets of other scripts: Canadian syllables, Yi syllables.
Neither has capitals, compositions or compatibility forms, so that normalization keeps them."""


@dataclass(frozen=True)
class LabeledLine:
    """The number of a line, from 0, and its label."""

    line: int
    label: str


@dataclass(frozen=True)
class Translations:
    """The lines of each language, which are translations, and their labels."""

    study: TransferStudy
    lines: Mapping[str, Sequence[str]]

    @property
    def n_training(self) -> int:
        """Number of the first lines, which are training data."""
        return len(self.lines[self.study.source]) - self.study.held_out

    def labeled(self, *, held_out: bool) -> list[LabeledLine]:
        """Return the lines that train or are scored, of each label as many, in random order."""
        study = self.study
        n = study.scored_rows if held_out else study.rows
        found = [one for one in self._all_labeled() if (one.line >= self.n_training) == held_out]
        draw = random.Random(0)
        draw.shuffle(found)
        each, chosen = n // len(study.labels), list[LabeledLine]()
        for label in study.labels:
            chosen += [one for one in found if one.label == label.label][:each]
        draw.shuffle(chosen)
        return chosen

    def _all_labeled(self) -> list[LabeledLine]:
        label_of = {word: one.label for one in self.study.labels for word in one.words}
        found: list[LabeledLine] = []
        for i, text in enumerate(self.lines[self.study.source]):
            labels = {label_of[w] for w in _WORD.findall(text.lower()) if w in label_of}
            if len(labels) == 1:
                found.append(LabeledLine(i, labels.pop()))
        return found

    def text_of(self, language: str, line: int, cell: TransferCell) -> str:
        """Return a sentence as a cell reads it."""
        text = self.lines[language][line]
        n = self.study.languages.index(language)
        return in_script(text, n - 1) if n and cell.own_scripts else text

    def held_out_texts(self, language: str, cell: TransferCell) -> list[str]:
        """Return the first held-out sentences, whose translations are looked for."""
        n = self.n_training
        last = min(n + self.study.aligned_rows, len(self.lines[language]))
        return [self.text_of(language, i, cell) for i in range(n, last)]

    def write_rows(self, path: Path, language: str, cell: TransferCell, *, held_out: bool) -> None:
        """Write labeled rows of a language, as a cell reads them."""
        rows = [
            f"{self.text_of(language, one.line, cell)}\t{one.label}"
            for one in self.labeled(held_out=held_out)
        ]
        write_atomically(path, "\n".join(["text\tlabel", *rows]) + "\n")

    def write_text(self, folder: Path, cell: TransferCell) -> list[str]:
        """Write a cell's text for pretraining; return its sources.

        No sentence is in two sources: of a cell with pairs, two thirds of the lines are pairs.
        """
        numbers = range(self.n_training)
        folder.mkdir(parents=True, exist_ok=True)
        if not cell.is_paired:
            return [self._write(folder, language, numbers, cell) for language in cell.languages]
        source = self.study.source
        others = [language for language in cell.languages if language != source]
        n, sources = len(others), list[str]()
        for k, other in enumerate(others):
            of_pair = [i for i in numbers if i % 3 and (i // 3) % n == k]
            sides = [
                self._write(folder, language, of_pair, cell, f"pair-{k}-")
                for language in (other, source)
            ]
            sources.append("+".join(sides))
        rest = [i for i in numbers if not i % 3]
        return [*sources, *(self._write(folder, one, rest, cell) for one in cell.languages)]

    def _write(
        self, folder: Path, language: str, lines: Sequence[int], cell: TransferCell, name: str = ""
    ) -> str:
        path = folder / f"{name}{language}.txt"
        text = "\n".join(self.text_of(language, i, cell) for i in lines) + "\n"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            write_atomically(path, text)  # an equal file keeps its time
        return f"{language}={path}"


def read_translations(study: TransferStudy, files: Mapping[str, Path]) -> Translations:
    """Read the lines of all languages.

    Raises:
        ValueError: the files differ in their number of lines, have too few, or too few of a label.
    """
    lines: dict[str, list[str]] = {}
    for language, path in files.items():
        text = "".join(read_decoded(path, "strict")).removesuffix("\n")
        lines[language] = [" ".join(line.split()) for line in text.split("\n")]
    counts = {language: len(texts) for language, texts in lines.items()}
    if len({*counts.values()}) > 1:
        raise ValueError(
            f"{files[study.source]}: its translations must have as many lines, got "
            f"{', '.join(f'{n:,} of {language}' for language, n in counts.items())}"
        )
    if counts[study.source] <= study.held_out:
        raise ValueError(
            f"{files[study.source]}: must have more than held_out = {study.held_out:,} lines, got "
            f"{counts[study.source]:,}"
        )
    found = Translations(study, lines)
    if study.labeled is not None:
        return found
    for held_out in (False, True):
        chosen = {one.label for one in found.labeled(held_out=held_out)}
        missing = [one.label for one in study.labels if one.label not in chosen]
        if missing:
            which = "held-out" if held_out else "training"
            raise ValueError(
                f"{files[study.source]}: no {which} line has the label {missing[0]!r} alone"
            )
    return found


def in_script(text: str, number: int) -> str:
    """Return a text in letters that no other language has; white space stays.

    Punctuation and digits become letters, too. Characters after U+024F may share a letter with
    others.
    """
    start, size = _SCRIPTS[number % len(_SCRIPTS)]
    return "".join(c if c.isspace() else chr(start + 1 + ord(c) % (size - 1)) for c in text)
