"""Two files of vectors -> one space: what a map reaches, and which words moved."""

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float

from unmask.config import check_number_arguments
from unmask.files import atomic_path, encode_utf8
from unmask.inference.load_word_vectors import load_word_vectors
from unmask.output import OutputStream, clear_line, markdown_table, overwrite_line, print_line
from unmask.output import escape_markdown as text_of
from unmask.text.lines import is_blank, read_lines
from unmask.training.interrupt import interrupt_on_signal
from unmask.word_vectors.alignment.align import (
    DEFAULT_PREPARATION,
    STOCHASTIC_SELF_LEARNING,
    AlignmentRound,
    LeastSquaresMap,
    LinearMap,
    OrthogonalProcrustes,
    Preparation,
    ProcrustesRefinement,
    SelfLearning,
    UnitNormalization,
    alignment_rounds,
    apply_map,
    prepare_vectors,
)
from unmask.word_vectors.alignment.dictionary import (
    MAX_LINE_LENGTH,
    BilingualDictionary,
    DictionaryInductionScores,
    RowPairs,
    known_pairs,
    read_dictionary,
    score_dictionary,
)
from unmask.word_vectors.alignment.dictionary import identical_pairs as identical_words
from unmask.word_vectors.alignment.dictionary import numeral_pairs as numerals_of
from unmask.word_vectors.alignment.retrieval import CSLS, CosineRetrieval
from unmask.word_vectors.alignment.semantic_shift import SemanticShift
from unmask.word_vectors.alignment.semantic_shift import semantic_shifts as moved_words
from unmask.word_vectors.keyed_vectors import KeyedVectors

MapName = Literal["procrustes", "least-squares"]
NormalizationName = Literal["unit-center-unit", "unit", "none"]
SelfLearningName = Literal["none", "nearest", "csls", "stochastic"]

MAPS: Mapping[MapName, LinearMap] = {
    "procrustes": OrthogonalProcrustes(),
    "least-squares": LeastSquaresMap(),
}
NORMALIZATIONS: Mapping[NormalizationName, tuple[Preparation, ...]] = {
    "unit-center-unit": DEFAULT_PREPARATION,
    "unit": (UnitNormalization(),),
    "none": (),
}
MAX_SHIFTED_RANK = 10_000
"""Words among which those are looked for that moved: the most frequent."""
SELF_LEARNING_CUTOFF = 20_000
"""Words of each space that take part in self-learning, as in Artetxe et al. 2018."""
MAX_HELD_OUT_PAIRS = 1_000
"""Words in common, at most, that a first map does not see and is scored on."""
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
"""What fields of scores are called in `align.json`, where they are called otherwise."""
_WHITE_SPACE = re.compile(r"[ \t\r\n]")
_LIVE_LINE_WIDTH = 70  # columns of the live line
_LINE_SECONDS = 10.0  # between two lines of progress where there is no terminal


@dataclass(frozen=True, kw_only=True)
class AlignedSpaces:
    """Two spaces in one, and what was reached."""

    source: KeyedVectors
    """Prepared and mapped."""
    target: KeyedVectors
    """Prepared."""
    map_weights: Float[np.ndarray, "d e"]
    """What a prepared source vector is multiplied by."""
    rounds: tuple[AlignmentRound, ...]
    scores: Mapping[str, DictionaryInductionScores]
    """By `nearest` and by `csls`, on the test dictionary; none where nothing was left to test."""
    held_out_scores: DictionaryInductionScores | None
    """Of words in common, which a first map did not see: whether they are found, by cosine."""
    semantic_shifts: tuple[SemanticShift, ...]
    summary: Mapping[str, Any]
    """All of it in plain data: what `align.json` holds."""

    def score_table(self) -> tuple[list[str], list[list[str]]]:
        """Return the names and rows of the table of scores."""
        names = ["nearest by", "P@1", "P@5", "mean reciprocal rank", "P@1 by chance", "asked"]
        measured = {"cosine": self.scores.get("nearest"), "CSLS": self.scores.get("csls")}
        measured["cosine, words held out"] = self.held_out_scores
        return names, [
            [
                name,
                f"{one.precision_at_1:.1%}",
                f"{one.precision_at_5:.1%}",
                f"{one.mean_reciprocal_rank:.3f}",
                f"{one.chance_precision:.2%}",
                f"{one.n_evaluated:,} of {one.n_source_words:,}",
            ]
            for name, one in measured.items()
            if one is not None
        ]

    def shift_table(self) -> tuple[list[str], list[list[str]]]:
        """Return the names and rows of the table of words that moved."""
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
        """Say in lines what there was to learn from, and how far the scores can be believed."""
        facts = self.summary
        rounds = "1 round" if facts["rounds"] == 1 else f"{facts['rounds']:,} rounds"
        notes = [
            f"{facts['seeds']:,} pairs to begin with, {rounds}, the last on "
            f"{facts['pairs']:,} pairs"
        ]
        if facts["seeds"] < len(self.map_weights):
            notes.append(
                f"{facts['seeds']:,} pairs do not settle a map of {len(self.map_weights)} "
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
        if measured and not any(one.above_chance for one in measured):
            what = "; which words moved says nothing" if self.semantic_shifts else ""
            notes.append(f"no more words are found than by chance: the spaces do not align{what}")
        return notes


@interrupt_on_signal()
@check_number_arguments
def align(
    source: str | Path | KeyedVectors,
    target: str | Path | KeyedVectors,
    *,
    dictionary: str | Path | None = None,
    seed_pairs: int | None = None,
    numerals: bool = False,
    identical: bool = False,
    anchors: str | Path | None = None,
    lowercase: bool = False,
    test: str | Path | None = None,
    map: MapName = "procrustes",
    normalize: NormalizationName = "unit-center-unit",
    self_learning: SelfLearningName | None = None,
    refine: int = 0,
    vocabulary_cutoff: int | None = None,
    csls_k: int = 10,
    semantic_shift: int | None = None,
    min_count: int | None = None,
    limit: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    terminal: OutputStream | None = None,
) -> AlignedSpaces:
    """Map the space of one file of vectors into that of another, and score it by a dictionary.

    Args:
        source: a file of vectors, or KeyedVectors; with `semantic_shift`, the older one.
        target: the other.
        dictionary: pairs of words to learn from.
        seed_pairs: only so many of its known pairs, the first; without `test` the others are it.
        numerals: learn from the numerals that both have, instead.
        identical: learn from the words that both have, instead; what `semantic_shift` does by
            itself.
        anchors: learn from those of these words, one a line, that both have, instead.
        lowercase: read dictionaries in lower case.
        test: pairs of words to score by; a source word may have several translations.
        map: "procrustes" or "least-squares".
        normalize: "unit-center-unit" (VecMap's name), "unit"; or "none".
        self_learning: how pairs are found by the map itself: "nearest" (Artetxe et al. 2017),
            "csls" (in both directions, by CSLS), "stochastic" (Artetxe et al. 2018), "none". None:
            "csls" for numerals or fewer pairs than dimensions, else "none".
        refine: how often the map is fitted anew on words that are each other's nearest.
        vocabulary_cutoff: how many of the most frequent words of each space learn by themselves,
            refine, and are listed as moved. None: 20,000; 15,000; 10,000.
        csls_k: the k of CSLS.
        semantic_shift: list so many words that moved most.
        min_count: how often words that moved were seen, where the files say it.
        limit: read only so many words of each file, the first.
        seed: of what is drawn in stochastic self-learning.
        out: a new folder for the vectors and tables. None: nothing is written.
        terminal: where progress is shown. None: nowhere.

    Raises:
        FileNotFoundError: a file is not there.
        ValueError: a file or a line of it is not what it should be, there is nothing to learn from,
            the spaces do not fit the map, or options exclude each other.
        FileExistsError: `out` has files in it.
    """
    _check_choices(map=map, normalize=normalize, self_learning=self_learning)
    _check_numbers(
        seed_pairs=seed_pairs,
        vocabulary_cutoff=vocabulary_cutoff,
        csls_k=csls_k,
        semantic_shift=semantic_shift,
        min_count=min_count,
        limit=limit,
    )
    if refine < 0 or seed < 0:
        name, number = ("refine", refine) if refine < 0 else ("seed", seed)
        raise ValueError(f"--{name} must be 0 or more, got {number}")
    ways = {
        "dictionary": dictionary is not None, "numerals": numerals, "identical": identical,
        "anchors": anchors is not None,
    }  # fmt: skip
    _check_supervision(
        [name for name, given in ways.items() if given], seed_pairs, semantic_shift, min_count
    )
    began = time.monotonic()
    folder = None if out is None else Path(out)
    old, new = (load_word_vectors(given, limit=limit) for given in (source, target))
    if folder is not None:
        _check_output_folder(folder, old, new)
    fit, learn, again = _build_methods(map, self_learning, refine, vocabulary_cutoff, csls_k)
    pairs, rest = _seed_pairs(
        old, new, dictionary=dictionary, seed_pairs=seed_pairs, numerals=numerals, anchors=anchors,
        lowercase=lowercase,
    )  # fmt: skip
    test_pairs = rest if test is None else read_dictionary(Path(test), lowercase)
    if test is not None:
        _known_pairs(Path(test), test_pairs, old, new)
    if self_learning is None and semantic_shift is None:
        few = numerals or len(pairs) < old.vectors.shape[1]
        enough = min(len(old), len(new), vocabulary_cutoff or SELF_LEARNING_CUTOFF) >= csls_k
        learn = _build_self_learning(
            "csls" if few and enough else "none", vocabulary_cutoff, csls_k
        )
    x, z = (prepare_vectors(space, NORMALIZATIONS[normalize]) for space in (old, new))
    rounds = _run_rounds(
        alignment_rounds(x, z, pairs, fit=fit, self_learning=learn, refinement=again, seed=seed),
        terminal,
    )
    mapped = apply_map(x, rounds[-1].map_weights)
    if not (np.isfinite(mapped.vectors).all() and np.isfinite(z.vectors).all()):
        raise FloatingPointError("the mapped vectors are not finite: nothing can be said of them")
    scores = dict[str, DictionaryInductionScores]()
    if test_pairs:
        _print_if_shown(terminal, f"scoring {len(test_pairs):,} pairs")
        ways = {"nearest": CosineRetrieval(), "csls": CSLS(csls_k)}
        scores = {
            name: score_dictionary(mapped, z, test_pairs, way, pairs) for name, way in ways.items()
        }
    held_out_scores, shifts = None, list[SemanticShift]()
    if semantic_shift is not None:
        held_out_scores = _score_held_out(x, z, pairs, fit, vocabulary_cutoff or MAX_SHIFTED_RANK)
        shifts = _find_semantic_shifts(
            mapped, z, semantic_shift, min_count, vocabulary_cutoff or MAX_SHIFTED_RANK
        )
    similar = [one.mean_cosine for one in rounds if one.mean_cosine is not None]
    facts: dict[str, Any] = {
        "source": _describe_space(source, old),
        "target": _describe_space(target, new),
        "map": map,
        "prepare": normalize,
        "self_learning": "none" if learn is None else (self_learning or "csls"),
        "refine": refine,
        "seeds": len(pairs),
        "rounds": len(rounds),
        "pairs": rounds[-1].n_pairs,
        "similarity": similar[-1] if similar else None,
        "scores": {name: _scores_to_dict(one) for name, one in scores.items()},
        "held_out": None if held_out_scores is None else _scores_to_dict(held_out_scores),
        "moved": [_shift_to_dict(one) for one in shifts],
        "seconds": round(time.monotonic() - began, 1),
    }
    aligned = AlignedSpaces(
        source=mapped, target=z, map_weights=rounds[-1].map_weights, rounds=tuple(rounds),
        scores=scores, held_out_scores=held_out_scores, semantic_shifts=tuple(shifts),
        summary=facts,
    )  # fmt: skip
    if folder is not None:
        _print_if_shown(terminal, f"writing {folder}")
        _write_alignment(aligned, folder)
    return aligned


# What is asked for


def _check_supervision(
    supervision: Sequence[str],
    seed_pairs: int | None,
    semantic_shift: int | None,
    min_count: int | None,
) -> None:
    """Check all that can be known to be wrong before a file is read."""
    if len(supervision) > 1:
        raise ValueError(f"learn from one of them: got --{supervision[0]} and --{supervision[1]}")
    if not supervision and semantic_shift is None:
        raise ValueError(
            "nothing to learn from: give --dictionary, --numerals, --identical or --anchors"
        )
    if seed_pairs is not None and "dictionary" not in supervision:
        raise ValueError(
            "--seed-pairs is how many pairs of --dictionary are learned from; give it, too"
        )
    if min_count is not None and semantic_shift is None:
        raise ValueError("--min-count is of the words that --semantic-shift lists; give it, too")


def _check_numbers(**options: int | None) -> None:
    for name, number in options.items():
        if number is not None and number < 1:
            option = name.replace("_", "-")
            raise ValueError(f"--{option} must be 1 or more, got {number}")


def _check_choices(**options: str | None) -> None:
    known_ones = {
        "map": get_args(MapName),
        "normalize": get_args(NormalizationName),
        "self_learning": (*get_args(SelfLearningName), None),
    }
    for name, choice in options.items():
        if choice not in known_ones[name]:
            allowed = ", ".join(filter(None, known_ones[name]))
            option = name.replace("_", "-")
            raise ValueError(f"--{option} must be one of {allowed}, got {choice!r}")


def _check_output_folder(folder: Path, *spaces: KeyedVectors) -> None:
    """Check before the work that its result can be written."""
    if not folder.parent.is_dir():
        raise FileNotFoundError(f"{folder}: there is no folder {folder.parent}")
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is there already, a file")
    if folder.is_dir() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is there already, a folder with files in it")
    if not folder.is_dir():
        folder.mkdir()  # where that fails, it fails before the work
        folder.rmdir()
    for space in spaces:
        written = {_WHITE_SPACE.sub("_", word) for word in space.words}
        if len(written) < len(space.words):
            raise ValueError("two words differ only in white space and _, and would be one written")


def _build_methods(
    map: MapName,
    self_learning: SelfLearningName | None,
    refine: int,
    vocabulary_cutoff: int | None,
    csls_k: int,
) -> tuple[LinearMap, SelfLearning | None, ProcrustesRefinement | None]:
    csls = (
        ProcrustesRefinement(refine, csls_k=csls_k)
        if vocabulary_cutoff is None
        else ProcrustesRefinement(refine, vocabulary_cutoff, csls_k)
    )
    return MAPS[map], _build_self_learning(self_learning or "none", vocabulary_cutoff, csls_k), csls


def _build_self_learning(
    name: SelfLearningName, vocabulary_cutoff: int | None, csls_k: int
) -> SelfLearning | None:
    many = vocabulary_cutoff or SELF_LEARNING_CUTOFF
    made: dict[str, SelfLearning | None] = {
        "none": None,
        "nearest": SelfLearning(vocabulary_cutoff=many),
        "csls": SelfLearning(vocabulary_cutoff=many, retrieval=CSLS(csls_k), bidirectional=True),
        "stochastic": replace(
            STOCHASTIC_SELF_LEARNING, vocabulary_cutoff=many, retrieval=CSLS(csls_k)
        ),
    }
    return made[name]


def _seed_pairs(
    source: KeyedVectors,
    target: KeyedVectors,
    *,
    dictionary: str | Path | None,
    seed_pairs: int | None,
    numerals: bool,
    anchors: str | Path | None,
    lowercase: bool,
) -> tuple[RowPairs, BilingualDictionary]:
    """Find what is learned from, and what of a dictionary is left to score by."""
    if numerals:
        return numerals_of(source, target), ()
    if dictionary is None:
        words = None if anchors is None else _read_words(Path(anchors))
        try:
            return identical_words(source, target, words), ()
        except ValueError as error:
            raise ValueError(f"{anchors}: {error}" if anchors is not None else str(error)) from None
    pairs = read_dictionary(Path(dictionary), lowercase)
    known, rows = _known_pairs(Path(dictionary), pairs, source, target)
    if seed_pairs is None or seed_pairs >= len(known):
        return rows, ()
    learned = {one for one, _ in known[:seed_pairs]}
    return rows[:seed_pairs], tuple(pair for pair in known[seed_pairs:] if pair[0] not in learned)


def _known_pairs(
    path: Path, pairs: BilingualDictionary, source: KeyedVectors, target: KeyedVectors
) -> tuple[BilingualDictionary, RowPairs]:
    try:
        return known_pairs(pairs, source, target)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _read_words(path: Path) -> list[str]:
    """Read words, one a line."""
    found = list[str]()
    for number, line, cut in read_lines(path, MAX_LINE_LENGTH):
        if cut:
            raise ValueError(f"{path}:{number}: a line of more than {MAX_LINE_LENGTH:,} characters")
        if not is_blank(line):
            found.append(line.strip())
    if not found:
        raise ValueError(f"{path}: no word in it")
    return found


# The work


def _run_rounds(
    alignment_rounds: Iterator[AlignmentRound], terminal: OutputStream | None
) -> list[AlignmentRound]:
    """Take the rounds one after the other, and show where they are."""
    done, shown = list[AlignmentRound](), time.monotonic()
    for one in alignment_rounds:
        done.append(one)
        live = terminal is not None and terminal.isatty()
        if terminal is not None and time.monotonic() - shown > (0.1 if live else _LINE_SECONDS):
            shown = time.monotonic()
            near = "" if one.mean_cosine is None else f", mean cosine {one.mean_cosine:.4f}"
            share = f"{one.keep_probability:.0%} looked at"
            line = f"round {one.index}: {one.n_pairs:,} pairs{near}, {share}"
            overwrite_line(line, terminal, _LIVE_LINE_WIDTH) if live else print_line(line, terminal)
    if terminal is not None and terminal.isatty() and len(done) > 1:
        clear_line(terminal, _LIVE_LINE_WIDTH)
    return done


def _score_held_out(
    source: KeyedVectors,
    target: KeyedVectors,
    pairs: RowPairs,
    fit: LinearMap,
    vocabulary_cutoff: int,
) -> DictionaryInductionScores | None:
    """Score a map on every tenth of the pairs, which it was not fitted on."""
    out = np.arange(len(pairs)) % 10 == 9
    both = (pairs < vocabulary_cutoff).all(1)
    held_out = pairs[out & both][:MAX_HELD_OUT_PAIRS]
    if not len(held_out):
        return None
    (first,) = alignment_rounds(source, target, pairs[~out], fit=fit)
    words = tuple((source.words[one], target.words[other]) for one, other in held_out.tolist())
    found = apply_map(source.most_frequent(vocabulary_cutoff), first.map_weights)
    return score_dictionary(
        found, target.most_frequent(vocabulary_cutoff), words, CosineRetrieval()
    )


def _find_semantic_shifts(
    source: KeyedVectors,
    target: KeyedVectors,
    n_words: int,
    min_count: int | None,
    vocabulary_cutoff: int,
) -> list[SemanticShift]:
    try:
        return moved_words(
            source.most_frequent(vocabulary_cutoff),
            target.most_frequent(vocabulary_cutoff),
            n_words,
            min_count=min_count,
        )
    except ValueError as error:
        raise ValueError(f"of the first {vocabulary_cutoff:,} words of each: {error}") from None


# What is told and written


def _print_if_shown(terminal: OutputStream | None, text: str) -> None:
    if terminal is not None:
        print_line(text, terminal)


def _coverage_notes(scores: DictionaryInductionScores) -> list[str]:
    notes = list[str]()
    if scores.n_evaluated < scores.n_source_words:
        n_words = scores.n_source_words
        notes.append(
            f"{n_words - scores.n_evaluated:,} of {n_words:,} words were not asked: the source "
            f"space lacks {scores.n_source_unknown:,}, the target space the translations of "
            f"{scores.n_target_unknown:,}"
        )
    if scores.n_seed_words:
        notes.append(f"{scores.n_seed_words:,} of the words asked were learned from, too")
    return notes


def _describe_space(given: str | Path | KeyedVectors, space: KeyedVectors) -> dict[str, Any]:
    file = None if isinstance(given, KeyedVectors) else str(given)
    return {"file": file, "words": len(space.words), "width": space.vectors.shape[1]}


def _scores_to_dict(scores: DictionaryInductionScores) -> dict[str, Any]:
    plain = {_JSON_KEYS.get(name, name): value for name, value in asdict(scores).items()}
    return plain | {"above_chance": scores.above_chance, "coverage": scores.coverage}


def _shift_to_dict(shift: SemanticShift) -> dict[str, Any]:
    lists = {"then": shift.old_neighbors, "now": shift.new_neighbors}
    near = {name: [list(n) for n in neighbors] for name, neighbors in lists.items()}
    counts = {"count_then": shift.old_count, "count_now": shift.new_count}
    return {"word": shift.word, "cosine": shift.cosine, **counts, **near}


def _write_alignment(aligned: AlignedSpaces, folder: Path) -> None:
    from unmask.word_vectors.formats.files import write_vectors

    with atomic_path(folder) as beside:
        beside.mkdir()
        write_vectors(aligned.source, beside / "source.vec", white_space_replacement="_")
        write_vectors(aligned.target, beside / "target.vec", white_space_replacement="_")
        np.save(beside / "map.npy", aligned.map_weights, allow_pickle=False)
        text = json.dumps(aligned.summary, ensure_ascii=False, indent=1) + "\n"
        (beside / "align.json").write_bytes(encode_utf8(text))
        (beside / "README.md").write_bytes(encode_utf8(alignment_markdown(aligned)))


def alignment_markdown(aligned: AlignedSpaces) -> str:
    """Write what was reached as a page: tables, and what there is to know of them."""
    names = [_space_title(aligned.summary[name]) for name in ("source", "target")]
    parts = [f"# {text_of(' -> '.join(names))}", *map(text_of, aligned.notes())]
    for names, rows in (aligned.score_table(), aligned.shift_table()):
        if rows:
            parts.append("\n".join(markdown_table(names, rows)))
    return "\n\n".join(parts) + "\n"


def _space_title(space_summary: Mapping[str, Any]) -> str:
    name = "space" if space_summary["file"] is None else Path(space_summary["file"]).name
    return f"{name} ({space_summary['words']:,} words, {space_summary['width']} wide)"
