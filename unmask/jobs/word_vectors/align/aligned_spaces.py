"""AlignedSpaces: two spaces of word vectors in one, with scores, tables and files."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from unmask.files import atomic_path, encode_utf8
from unmask.output import escape_markdown as text_of
from unmask.output import markdown_table
from unmask.word_vectors.alignment.align import AlignmentRound
from unmask.word_vectors.alignment.dictionary import DictionaryInductionScores
from unmask.word_vectors.alignment.semantic_shift import SemanticShift
from unmask.word_vectors.formats.files import write_vectors
from unmask.word_vectors.formats.npy import write_npy
from unmask.word_vectors.keyed_vectors import KeyedVectors

_JSON_KEYS = {
    "n_evaluated": "asked",
    "n_source_unknown": "source_unknown",
    "n_target_unknown": "target_unknown",
    "precision_at_1": "p_at_1",
    "precision_at_5": "p_at_5",
    "chance_precision": "chance",
    "chance_p_value": "by_chance",
    "n_seed_words": "seen",
}
"""Names of score fields in `align.json`, where they differ."""


@dataclass(frozen=True, kw_only=True)
class AlignedSpaces:
    """Two aligned spaces, with scores."""

    source: KeyedVectors
    """The source space, normalized and mapped."""
    target: KeyedVectors
    """The target space, normalized."""
    map_weights: Float[np.ndarray, "d e"]
    """The matrix of the map for a normalized source vector."""
    rounds: tuple[AlignmentRound, ...]
    scores: Mapping[str, DictionaryInductionScores]
    """Scores by `nearest` and `csls` on the test dictionary; empty without one."""
    held_out_scores: DictionaryInductionScores | None
    """Retrieval scores by cosine of shared words held out from a first map."""
    semantic_shifts: tuple[SemanticShift, ...]
    summary: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """All results as plain data, the contents of `align.json`."""

    def score_table(self) -> tuple[list[str], list[list[str]]]:
        """Return the names and rows of the table of scores."""
        names = ["nearest by", "P@1", "P@5", "mean reciprocal rank", "P@1 by chance", "asked"]
        measured = {"cosine": self.scores.get("nearest"), "CSLS": self.scores.get("csls")}
        measured["cosine, words held out"] = self.held_out_scores
        return names, [
            [
                name,
                f"{score.precision_at_1:.1%}",
                f"{score.precision_at_5:.1%}",
                f"{score.mean_reciprocal_rank:.3f}",
                f"{score.chance_precision:.2%}",
                f"{score.n_evaluated:,} of {score.n_source_words:,}",
            ]
            for name, score in measured.items()
            if score is not None
        ]

    def shift_table(self) -> tuple[list[str], list[list[str]]]:
        """Return the names and rows of the table of semantic shifts."""
        return ["word", "cosine", "then", "now"], [
            [
                one.word,
                f"{one.cosine:.3f}",
                " ".join(n.word for n in one.old_neighbors),
                " ".join(n.word for n in one.new_neighbors),
            ]
            for one in self.semantic_shifts
        ]

    def notes(self) -> list[str]:
        """Return notes on the seed pairs and the reliability of the scores."""
        facts = self.summary
        rounds = "1 round" if facts["rounds"] == 1 else f"{facts['rounds']:,} rounds"
        notes = [f"{facts['seeds']:,} seed pairs, {rounds}, the last on {facts['pairs']:,} pairs"]
        if facts["seeds"] < len(self.map_weights):
            notes.append(
                f"{facts['seeds']:,} pairs do not determine a map of {len(self.map_weights)} "
                "dimensions"
            )
        first = next(iter(self.scores.values()), None)
        if first is not None:
            notes += _coverage_notes(first)
        if not self.scores and self.held_out_scores is None:
            notes.append(
                "not tested: give --test, or fewer --seed-pairs than the dictionary has pairs"
            )
        measured = [s for s in (*self.scores.values(), self.held_out_scores) if s is not None]
        if measured and not any(score.above_chance for score in measured):
            consequence = "; the semantic shifts mean nothing" if self.semantic_shifts else ""
            notes.append(f"accuracy is at chance level: the spaces do not align{consequence}")
        return notes


def _coverage_notes(scores: DictionaryInductionScores) -> list[str]:
    notes = list[str]()
    if scores.n_evaluated < scores.n_source_words:
        n_words = scores.n_source_words
        notes.append(
            f"{n_words - scores.n_evaluated:,} of {n_words:,} words were not tested: the source "
            f"space lacks {scores.n_source_unknown:,}, the target space the translations of "
            f"{scores.n_target_unknown:,}"
        )
    if scores.n_seed_words:
        notes.append(f"{scores.n_seed_words:,} of the test words are in the seed dictionary, too")
    return notes


def describe_space(given: str | Path | KeyedVectors, space: KeyedVectors) -> dict[str, Any]:
    """Return file, number of words and width of a space."""
    file = None if isinstance(given, KeyedVectors) else str(given)
    return {"file": file, "words": len(space.words), "width": space.vectors.shape[1]}


def scores_to_dict(scores: DictionaryInductionScores) -> dict[str, Any]:
    """Return scores as plain data."""
    plain = {_JSON_KEYS.get(name, name): value for name, value in asdict(scores).items()}
    return plain | {"above_chance": scores.above_chance, "coverage": scores.coverage}


def shift_to_dict(shift: SemanticShift) -> dict[str, Any]:
    """Return a word whose vector changed as plain data."""
    lists = {"then": shift.old_neighbors, "now": shift.new_neighbors}
    near = {name: [list(n) for n in neighbors] for name, neighbors in lists.items()}
    counts = {"count_then": shift.old_count, "count_now": shift.new_count}
    return {"word": shift.word, "cosine": shift.cosine, **counts, **near}


def write_alignment(aligned: AlignedSpaces, folder: Path) -> None:
    """Write vectors, map, summary and README to a new folder, atomically."""
    with atomic_path(folder) as beside:
        beside.mkdir()
        write_vectors(aligned.source, beside / "source.vec", white_space_replacement="_")
        write_vectors(aligned.target, beside / "target.vec", white_space_replacement="_")
        write_npy(beside / "map.npy", aligned.map_weights)
        text = json.dumps(aligned.summary, ensure_ascii=False, indent=1) + "\n"
        (beside / "align.json").write_bytes(encode_utf8(text))
        (beside / "README.md").write_bytes(encode_utf8(alignment_markdown(aligned)))


def alignment_markdown(aligned: AlignedSpaces) -> str:
    """Format the results as a page: tables and notes."""
    names = [_space_title(aligned.summary[name]) for name in ("source", "target")]
    parts = [f"# {text_of(' -> '.join(names))}", *map(text_of, aligned.notes())]
    for names, rows in (aligned.score_table(), aligned.shift_table()):
        if rows:
            parts.append("\n".join(markdown_table(names, rows)))
    return "\n\n".join(parts) + "\n"


def _space_title(space_summary: Mapping[str, Any]) -> str:
    name = "space" if space_summary["file"] is None else Path(space_summary["file"]).name
    return f"{name} ({space_summary['words']:,} words, {space_summary['width']} wide)"
