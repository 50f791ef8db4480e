"""Alignment of two files of word vectors: map, scores and semantic shifts."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from unmask.inference.vectors.load_word_vectors import load_word_vectors
from unmask.jobs.options.align import AlignOptions, MapName, NormalizationName, SelfLearningName
from unmask.jobs.word_vectors.align.aligned_spaces import (
    AlignedSpaces,
    describe_space,
    scores_to_dict,
    shift_to_dict,
    write_alignment,
)
from unmask.options import takes_options
from unmask.output import OutputStream, ProgressLine, print_line
from unmask.text.lines import is_blank, read_lines
from unmask.training.device.stopwatch import Stopwatch
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
"""Number of most frequent words searched for semantic shifts."""
SELF_LEARNING_CUTOFF = 20_000
"""Words of each space in self-learning, as in Artetxe et al. 2018."""
MAX_HELD_OUT_PAIRS = 1_000
"""Maximum shared words held out from a first map to score it."""
_WHITE_SPACE = re.compile(r"[ \t\r\n]")


@takes_options(AlignOptions)
@interrupt_on_signal()
def align(options: AlignOptions) -> AlignedSpaces:
    """Map one space of word vectors to another, and score the map on a dictionary.

    The fields of `AlignOptions` are its keywords.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file or line is invalid, there are no seed pairs, the spaces do not fit the
            map, or options exclude each other.
        FileExistsError: `out` has files in it.
    """
    _check_options(options)
    watch = Stopwatch()
    old, new = (
        load_word_vectors(given, limit=options.limit) for given in (options.source, options.target)
    )
    if options.out is not None:
        _check_output_folder(Path(options.out), old, new)
    pairs, test_pairs = _training_and_test_pairs(options, old, new)
    methods = _build_methods(options, len(pairs), old, new)
    x, z = (prepare_vectors(space, NORMALIZATIONS[options.normalize]) for space in (old, new))
    rounds = _run_rounds(
        alignment_rounds(
            x, z, pairs, fit=methods.fit, self_learning=methods.self_learning,
            refinement=methods.refinement, seed=options.seed,
        ),
        options.terminal,
    )  # fmt: skip
    mapped = apply_map(x, rounds[-1].map_weights)
    if not (np.isfinite(mapped.vectors).all() and np.isfinite(z.vectors).all()):
        raise FloatingPointError("the mapped vectors are not finite")
    scores = dict[str, DictionaryInductionScores]()
    if test_pairs:
        _print_if_shown(options.terminal, f"scoring {len(test_pairs):,} pairs")
        retrievals = {"nearest": CosineRetrieval(), "csls": CSLS(options.csls_k)}
        scores = {
            name: score_dictionary(mapped, z, test_pairs, retrieval, pairs)
            for name, retrieval in retrievals.items()
        }
    held_out_scores, shifts = None, list[SemanticShift]()
    if options.semantic_shift is not None:
        cutoff = options.vocabulary_cutoff or MAX_SHIFTED_RANK
        held_out_scores = _score_held_out(x, z, pairs, methods.fit, cutoff)
        shifts = _find_semantic_shifts(mapped, z, options.semantic_shift, options.min_count, cutoff)
    aligned = AlignedSpaces(
        source=mapped, target=z, map_weights=rounds[-1].map_weights, rounds=tuple(rounds),
        scores=scores, held_out_scores=held_out_scores, semantic_shifts=tuple(shifts),
    )  # fmt: skip
    summary = _summarize(aligned, options, methods, (old, new), len(pairs))
    aligned = replace(aligned, summary=summary | {"seconds": round(watch.seconds, 1)})
    if options.out is not None:
        _print_if_shown(options.terminal, f"writing {options.out}")
        write_alignment(aligned, Path(options.out))
    return aligned


# Options


def _check_options(options: AlignOptions) -> None:
    """Check options before a file is read."""
    names = (
        "seed_pairs", "vocabulary_cutoff", "csls_k", "semantic_shift", "min_count", "limit",
    )  # fmt: skip
    for name, least in {**dict.fromkeys(names, 1), "refine": 0, "seed": 0}.items():
        number = getattr(options, name)
        if number is not None and number < least:
            raise ValueError(f"--{name.replace('_', '-')} must be {least} or more, got {number}")
    given = {
        "dictionary": options.dictionary is not None, "numerals": options.numerals,
        "identical": options.identical, "anchors": options.anchors is not None,
    }  # fmt: skip
    supervision = [name for name, is_given in given.items() if is_given]
    if len(supervision) > 1:
        raise ValueError(f"learn from one of them: got --{supervision[0]} and --{supervision[1]}")
    if not supervision and options.semantic_shift is None:
        raise ValueError(
            "nothing to learn from: give --dictionary, --numerals, --identical or --anchors"
        )
    if options.seed_pairs is not None and options.dictionary is None:
        raise ValueError("--seed-pairs is a number of pairs of --dictionary; give it, too")
    if options.min_count is not None and options.semantic_shift is None:
        raise ValueError("--min-count is for the words of --semantic-shift; give it, too")


def _check_output_folder(folder: Path, *spaces: KeyedVectors) -> None:
    """Check in advance that the result can be written."""
    if not folder.parent.is_dir():
        raise FileNotFoundError(f"{folder}: there is no folder {folder.parent}")
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is there already, a file")
    if folder.is_dir() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is there already, a folder with files in it")
    if not folder.is_dir():
        folder.mkdir()  # fail before the work
        folder.rmdir()
    for space in spaces:
        written = {_WHITE_SPACE.sub("_", word) for word in space.words}
        if len(written) < len(space.words):
            raise ValueError(
                "two words differ only in white space and _, and would be written alike"
            )


@dataclass(frozen=True)
class _Methods:
    """Methods for fitting a map, self-learning and refinement."""

    fit: LinearMap
    self_learning: SelfLearning | None
    refinement: ProcrustesRefinement


def _build_methods(
    options: AlignOptions, n_pairs: int, source: KeyedVectors, target: KeyedVectors
) -> _Methods:
    cutoff, k = options.vocabulary_cutoff, options.csls_k
    name: SelfLearningName = options.self_learning or "none"
    if options.self_learning is None and options.semantic_shift is None:
        is_small_seed = options.numerals or n_pairs < source.vectors.shape[1]
        enough = min(len(source), len(target), cutoff or SELF_LEARNING_CUTOFF) >= k
        name = "csls" if is_small_seed and enough else "none"
    n_words = cutoff or SELF_LEARNING_CUTOFF
    self_learning: dict[str, SelfLearning | None] = {
        "none": None,
        "nearest": SelfLearning(vocabulary_cutoff=n_words),
        "csls": SelfLearning(vocabulary_cutoff=n_words, retrieval=CSLS(k), bidirectional=True),
        "stochastic": replace(
            STOCHASTIC_SELF_LEARNING, vocabulary_cutoff=n_words, retrieval=CSLS(k)
        ),
    }
    refinement = (
        ProcrustesRefinement(options.refine, csls_k=k)
        if cutoff is None
        else ProcrustesRefinement(options.refine, cutoff, k)
    )
    return _Methods(MAPS[options.map], self_learning[name], refinement)


def _training_and_test_pairs(
    options: AlignOptions, source: KeyedVectors, target: KeyedVectors
) -> tuple[RowPairs, BilingualDictionary]:
    """Return training and test pairs."""
    pairs, held_out = _seed_pairs(options, source, target)
    if options.test is None:
        return pairs, held_out
    test_pairs = read_dictionary(Path(options.test), options.lowercase)
    _known_pairs(Path(options.test), test_pairs, source, target)
    return pairs, test_pairs


def _seed_pairs(
    options: AlignOptions, source: KeyedVectors, target: KeyedVectors
) -> tuple[RowPairs, BilingualDictionary]:
    """Return seed pairs, and the rest of the dictionary for scoring."""
    if options.numerals:
        return numerals_of(source, target), ()
    if options.dictionary is None:
        anchors = options.anchors
        words = None if anchors is None else _read_words(Path(anchors))
        try:
            return identical_words(source, target, words), ()
        except ValueError as error:
            raise ValueError(f"{anchors}: {error}" if anchors is not None else str(error)) from None
    path, n_pairs = Path(options.dictionary), options.seed_pairs
    pairs = read_dictionary(path, options.lowercase)
    known_pairs, rows = _known_pairs(path, pairs, source, target)
    if n_pairs is None or n_pairs >= len(known_pairs):
        return rows, ()
    seed_words = {source_word for source_word, _ in known_pairs[:n_pairs]}
    return rows[:n_pairs], tuple(
        pair for pair in known_pairs[n_pairs:] if pair[0] not in seed_words
    )


def _summarize(
    aligned: AlignedSpaces,
    options: AlignOptions,
    methods: _Methods,
    spaces: tuple[KeyedVectors, KeyedVectors],
    n_seeds: int,
) -> dict[str, Any]:
    """Return settings and results as plain data."""
    similar = [one.mean_cosine for one in aligned.rounds if one.mean_cosine is not None]
    held_out = aligned.held_out_scores
    learned_by = options.self_learning or "csls"
    return {
        "source": describe_space(options.source, spaces[0]),
        "target": describe_space(options.target, spaces[1]),
        "map": options.map,
        "prepare": options.normalize,
        "self_learning": "none" if methods.self_learning is None else learned_by,
        "refine": options.refine,
        "seeds": n_seeds,
        "rounds": len(aligned.rounds),
        "pairs": aligned.rounds[-1].n_pairs,
        "similarity": similar[-1] if similar else None,
        "scores": {name: scores_to_dict(one) for name, one in aligned.scores.items()},
        "held_out": None if held_out is None else scores_to_dict(held_out),
        "moved": [shift_to_dict(one) for one in aligned.semantic_shifts],
    }


def _known_pairs(
    path: Path, pairs: BilingualDictionary, source: KeyedVectors, target: KeyedVectors
) -> tuple[BilingualDictionary, RowPairs]:
    try:
        return known_pairs(pairs, source, target)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _read_words(path: Path) -> list[str]:
    """Read words, one per line."""
    words = list[str]()
    for number, line, cut in read_lines(path, MAX_LINE_LENGTH):
        if cut:
            raise ValueError(f"{path}:{number}: a line of more than {MAX_LINE_LENGTH:,} characters")
        if not is_blank(line):
            words.append(line.strip())
    if not words:
        raise ValueError(f"{path}: has no words")
    return words


# The work


def _run_rounds(
    alignment_rounds: Iterator[AlignmentRound], terminal: OutputStream | None
) -> list[AlignmentRound]:
    """Run the rounds, with progress."""
    done, progress = list[AlignmentRound](), ProgressLine(terminal)

    def status() -> str:
        last = done[-1]
        cosine_text = "" if last.mean_cosine is None else f", mean cosine {last.mean_cosine:.4f}"
        return (
            f"round {last.index}: {last.n_pairs:,} pairs{cosine_text}, "
            f"{last.keep_probability:.0%} of scores considered"
        )

    for alignment_round in alignment_rounds:
        done.append(alignment_round)
        progress.show(status)
    progress.clear()
    return done


def _score_held_out(
    source: KeyedVectors,
    target: KeyedVectors,
    pairs: RowPairs,
    fit: LinearMap,
    vocabulary_cutoff: int,
) -> DictionaryInductionScores | None:
    """Score a map on every tenth pair, held out from fitting."""
    out = np.arange(len(pairs)) % 10 == 9
    both = (pairs < vocabulary_cutoff).all(1)
    held_out = pairs[out & both][:MAX_HELD_OUT_PAIRS]
    if not len(held_out):
        return None
    (first,) = alignment_rounds(source, target, pairs[~out], fit=fit)
    words = tuple((source.words[one], target.words[other]) for one, other in held_out.tolist())
    scores = apply_map(source.most_frequent(vocabulary_cutoff), first.map_weights)
    return score_dictionary(
        scores, target.most_frequent(vocabulary_cutoff), words, CosineRetrieval()
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


# Output


def _print_if_shown(terminal: OutputStream | None, text: str) -> None:
    if terminal is not None:
        print_line(text, terminal)
