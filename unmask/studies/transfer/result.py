"""Results of a study of transfer: scores and alignment by cell and language."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unmask.studies.result import CellResult, format_mean_and_std
from unmask.studies.transfer.study import TransferStudy

MOST_FREQUENT = "most frequent answer"
"""Name of the floor."""


@dataclass(frozen=True, kw_only=True)
class LanguageScores:
    """What a cell knows of a language."""

    language: str
    scores: tuple[float, ...] = ()
    """Main metric on the scored rows, in percent, one per seed."""
    metric: str = "accuracy"
    """Name of the main metric."""
    n_rows: int = 0
    """Number of scored rows."""
    most_frequent: float | None = None
    """What the metric is for the most frequent answer of these rows, in percent."""
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

    def scores(self, result: TransferResult, language: str) -> list[float]:
        """Return a cell's scores in a language, one per seed; none where it is not scored."""
        found = result.scores_in(language)
        return [] if found is None else [*found.scores]

    def scored_in(self, language: str) -> LanguageScores | None:
        """Return the scores of the first cell that is scored in a language; all have its rows."""
        return next((x for one in self.cell_results if (x := one.scores_in(language))), None)

    def most_frequent(self, language: str) -> list[float]:
        """Return the score of the most frequent answer in a language; none where it is unknown."""
        found = self.scored_in(language)
        return [] if found is None or found.most_frequent is None else [found.most_frequent]

    @property
    def metric(self) -> str:
        """Name of the main metric; "score" while no cell is scored."""
        found = [x for one in self.benchmarks if (x := self.scored_in(one)) is not None]
        return found[0].metric if found else "score"

    @property
    def n_rows(self) -> Mapping[str, int]:
        """Number of scored rows by language."""
        found = ((one, self.scored_in(one)) for one in self.benchmarks)
        return {name: one.n_rows for name, one in found if one is not None and one.n_rows}

    def to_table(self) -> tuple[list[str], list[list[str]]]:
        """Return the column names, a row for each cell, and one for the most frequent answer."""
        names = ["cell", "parameters", "held-out loss", *self.benchmarks]
        rows = [self._table_row(one) for one in self.cell_results]
        floors = ("".join(f"{x:.1f}" for x in self.most_frequent(one)) for one in self.benchmarks)
        return names, [*rows, [MOST_FREQUENT, "", "", *floors]]

    def _table_row(self, result: TransferResult) -> list[str]:
        loss = "" if result.loss is None else f"{result.loss:.3f}"
        return [
            result.name,
            f"{result.parameters:,}" if result.parameters else "",
            "left out" if result.error else loss,
            *(format_mean_and_std(self.scores(result, one)) for one in self.benchmarks),
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


def half_interval(percent: float, n: int) -> float:
    """Return half of the 95 % interval of an accuracy on n rows, in percent, for one model.

    By the normal approximation.
    """
    share = percent / 100
    return 196 * math.sqrt(share * (1 - share) / n)
