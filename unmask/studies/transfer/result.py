"""Results of a study of transfer: accuracies and alignment by cell and language."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unmask.studies.result import CellResult, format_mean_and_std
from unmask.studies.transfer.study import TransferStudy


@dataclass(frozen=True, kw_only=True)
class LanguageScores:
    """What a cell knows of a language."""

    language: str
    accuracies: tuple[float, ...] = ()
    """On the held-out rows, in percent, one per seed."""
    tokens_per_word: float
    """Tokens per word between white space, on held-out sentences."""
    retrieval: tuple[float, ...] = ()
    """Percentage of sentences of the source language whose nearest sentence of this language is
    their translation, of each layer of the pretrained model, from the input of the first."""
    shuffled: tuple[float, ...] = ()
    """The same with sentences of this language in random order."""


@dataclass(frozen=True, kw_only=True)
class TransferResult(CellResult):
    """What a cell knows of each language."""

    languages: tuple[LanguageScores, ...] = ()

    def is_done(self, benchmarks: Sequence[str]) -> bool:
        """Return whether its languages are scored, which is done at once."""
        return not self.error and bool(self.languages)

    def scores_in(self, language: str) -> LanguageScores | None:
        """Return the scores in a language; None: not scored."""
        return next((one for one in self.languages if one.language == language), None)


@dataclass(frozen=True, kw_only=True)
class TransferStudyResult:
    """Results of a study of transfer so far."""

    study: TransferStudy
    benchmarks: tuple[str, ...]
    """Languages."""
    cell_results: tuple[TransferResult, ...]
    n_scored: int
    """Number of rows that are scored in each language."""
    majority: float
    """Percentage of the most frequent label among them."""

    def accuracies(self, result: TransferResult, language: str) -> list[float]:
        """Return a cell's accuracies in a language, one per seed; none where it is not scored."""
        found = result.scores_in(language)
        return [] if found is None else [*found.accuracies]

    def half_interval(self, percent: float) -> float:
        """Return half of the 95 % interval of an accuracy, in percent, by the normal approximation.

        It is that of the sample of rows, for one model.
        """
        share = percent / 100
        return 196 * float(np.sqrt(share * (1 - share) / self.n_scored))

    def to_table(self) -> tuple[list[str], list[list[str]]]:
        """Return the column names, a row for each cell, and one for the most frequent label."""
        names = ["cell", "parameters", "held-out loss", *self.benchmarks]
        rows = [self._table_row(one) for one in self.cell_results]
        baseline = [f"{self.majority:.1f}" for _ in self.benchmarks]
        return names, [*rows, ["most frequent label", "", "", *baseline]]

    def _table_row(self, result: TransferResult) -> list[str]:
        loss = "" if result.loss is None else f"{result.loss:.3f}"
        return [
            result.name,
            f"{result.parameters:,}" if result.parameters else "",
            "left out" if result.error else loss,
            *(format_mean_and_std(self.accuracies(result, one)) for one in self.benchmarks),
        ]

    def space_table(self) -> tuple[list[str], list[list[str]]]:
        """Return tokens per word, and retrieval by layer, of each cell that is done."""
        others = self.benchmarks[1:]
        names = ["cell", *(f"tokens per word, {one}" for one in self.benchmarks)]
        names += [f"{one} by layer" for one in others] + ["shuffled"]
        rows: list[list[str]] = []
        for cell in self.cell_results:
            if not cell.languages:
                continue
            found = [cell.scores_in(one) for one in self.benchmarks]
            row = [
                cell.name,
                *("" if one is None else f"{one.tokens_per_word:.2f}" for one in found),
            ]
            row += ["" if one is None else _by_layer(one.retrieval) for one in found[1:]]
            shuffled = [x for one in found if one is not None for x in one.shuffled]
            rows.append([*row, f"{max(shuffled):.1f}" if shuffled else ""])
        return names, rows


def _by_layer(values: Sequence[float]) -> str:
    return " / ".join(f"{x:.1f}" for x in values)
