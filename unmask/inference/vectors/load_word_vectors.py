"""Word vectors: loading, evaluation, description and conversion."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from unmask.config import check_number_arguments
from unmask.files import read_json_object
from unmask.output import OutputStream, print_line
from unmask.text.documents import list_files
from unmask.text.formats.decompress import COMPRESSIONS
from unmask.text.lines import EncodingErrors
from unmask.word_vectors.evaluation.similarity import (
    AnalogyCounts,
    AnalogyScore,
    CaseHandling,
    WordSimilarityScore,
    WordSimilarityTest,
    evaluate_analogies,
    evaluate_word_similarity,
    is_lower_case,
    read_word_vector_test,
)
from unmask.word_vectors.formats.fasttext_model import open_fasttext
from unmask.word_vectors.formats.files import (
    FORMAT_OF_SUFFIX,
    FORMATS,
    Format,
    detect_format,
    read_vectors,
    write_vectors,
)
from unmask.word_vectors.keyed_vectors import KeyedVectors
from unmask.word_vectors.train.trainer import FASTTEXT_FILE, WORD_VECTOR_FAMILY

WordVectorScores = list[WordSimilarityScore | AnalogyScore]

_JSON_KEYS = {
    "n_pairs": "pairs",
    "n_questions": "questions",
    "n_known": "known",
    "n_correct_add": "right_add",
    "n_correct_multiply": "right_multiply",
    "lowercased": "lowered",
}
"""Names of score fields in plain data, where they differ."""


@check_number_arguments
def load_word_vectors(path: str | Path | KeyedVectors, *, limit: int | None = None) -> KeyedVectors:
    """Load word vectors from a file or a model.

    Args:
        path: a file of vectors (`unmask.word_vectors.formats.files`), or a model, named as for
            `unmask.load`, for its token embeddings; keyed vectors are returned unchanged.
        limit: number of words to read, the first ones; in most files the most frequent.

    Raises:
        FileNotFoundError: there is no such file or model.
        ValueError: it is not a file of word vectors, or damaged.
    """
    if isinstance(path, KeyedVectors):
        return path if limit is None else path.most_frequent(limit)
    if is_word_vectors(path) and not Path(path).is_dir():
        return read_vectors(path, limit=limit)
    vectors = _token_embeddings(path)
    return vectors if limit is None else vectors.most_frequent(limit)


def _token_embeddings(model: str | Path) -> KeyedVectors:
    """Return the nonzero token embeddings of a model."""
    from unmask.checkpoints.checksums import check_recorded_file
    from unmask.checkpoints.huggingface.read import load_folder
    from unmask.inference.open_model import find_model

    folder = find_model(model)
    loaded_model = load_folder(folder, {})
    tokenizer = loaded_model.tokenizer
    if tokenizer is None or loaded_model.model.architecture.is_encoder_decoder:
        raise ValueError(f"{model}: has no token embeddings with a tokenizer")
    table = loaded_model.model.own_weights().get("backbone.tokens.weight")
    if table is None:
        raise ValueError(f"{model}: this model has no token embeddings")
    vectors = table.detach().float().numpy()
    special = tokenizer.special_ids.all_ids
    ids = [i for i in np.flatnonzero(vectors.any(1)).tolist() if i not in special]
    ngrams = folder / FASTTEXT_FILE
    check_recorded_file(folder, FASTTEXT_FILE)
    composer = open_fasttext(ngrams) if ngrams.is_file() else None
    return KeyedVectors(tuple(tokenizer.pieces(ids)), vectors[ids], composer=composer)


def is_word_vectors(model: str | Path) -> bool:
    """Return whether a name is of word vectors: a file, a name with their suffix, or a run."""
    path = Path(model)
    if path.is_dir():
        return _model_type(path) == WORD_VECTOR_FAMILY
    inner = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    has_suffix = inner.suffix.lower() in FORMAT_OF_SUFFIX and not str(model).startswith("hf:")
    return os.path.isfile(path) or (has_suffix and not path.is_dir())


def _model_type(folder: Path) -> str | None:
    try:
        return read_json_object(folder / "config.json").get("model_type")
    except (OSError, ValueError):
        return None


@check_number_arguments
def evaluate_word_vectors(
    word_vectors: str | Path | KeyedVectors,
    data: str | Path | Sequence[str | Path],
    *,
    case: CaseHandling = "auto",
    limit: int | None = None,
    encoding_errors: EncodingErrors = "strict",
    terminal: OutputStream | None = sys.stderr,
) -> WordVectorScores:
    """Evaluate word vectors on files of word pairs or analogies, detected by content.

    Args:
        word_vectors: word vectors, or their file.
        data: files, folders or patterns.
        case: lookup of the words of these files: unchanged, in lower case, or in lower case if all
            words of the vectors are.
        limit: number of words that are known and can be answers, the first ones.
        encoding_errors: treatment of invalid UTF-8 in these files.
        terminal: stream for progress. None: not shown.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is neither, or a line is invalid.
    """
    tests = [read_word_vector_test(path, encoding_errors) for path in list_files(data)]
    word_vectors = load_word_vectors(word_vectors, limit=limit)
    scores: WordVectorScores = []
    for test in tests:
        if isinstance(test, WordSimilarityTest):
            scores.append(evaluate_word_similarity(word_vectors, test, case=case))
            continue
        if terminal is not None and terminal.isatty():
            n = sum(len(questions) for _, questions in test.sections)
            print_line(f"{test.name}: {n:,} questions ...", terminal)
        scores.append(evaluate_analogies(word_vectors, test, case=case))
    if terminal is not None and case == "auto" and scores and scores[0].lowercased:
        print_line("the vectors are lowercase only: words of the files are lowercased", terminal)
    return scores


@check_number_arguments
def convert_word_vectors(
    source: str | Path | KeyedVectors,
    target: str | Path,
    *,
    format_name: Format | None = None,
    limit: int | None = None,
    white_space: str | None = None,
) -> KeyedVectors:
    """Write word vectors in another format, and return them.

    Args:
        source: word vectors, or their file.
        target: a new file; .gz, .xz and .zst are compressed.
        format_name: the format; None: by the suffix of the file.
        limit: number of words to write, the first ones.
        white_space: replacement of white space in words, which other libraries cannot read.

    Raises:
        FileExistsError: the file exists.
        ValueError: the source is not a file of word vectors, or a word cannot be written.
    """
    if Path(target).exists():
        raise FileExistsError(f"{target}: is there already; name a new file")
    space = load_word_vectors(source, limit=limit)
    write_vectors(space, target, format_name, white_space_replacement=white_space)
    return space


def describe_word_vectors(path: str | Path) -> dict[str, Any]:
    """Describe a file of word vectors, as plain data."""
    space = load_word_vectors(path)
    return {
        "name": str(path),
        "format": detect_format(Path(path)),
        "words": len(space),
        "width": space.vector_size,
        "lower_case": is_lower_case(space),
        "counted": space.counts is not None,
        "first": list(space.words[:10]),
        "bytes": space.vectors.nbytes,
    }


def format_word_vector_facts(description: Mapping[str, Any]) -> list[str]:
    """Format a description as lines for a terminal."""
    case = "lower case only" if description["lower_case"] else "upper and lower case"
    megabytes = description["bytes"] / 1e6
    return [
        description["name"],
        "",
        f"format  {description['format']}",
        f"words   {description['words']:,}, "
        f"{case}{', with counts' if description['counted'] else ''}",
        f"width   {description['width']:,}, in float32: {megabytes:,.1f} MB in memory",
        f"first   {' '.join(description['first'])}",
    ]


def resolve_word_vector_format(format_name: str | None) -> Format | None:
    """Return the named format of word vectors; None if none is given.

    Raises:
        ValueError: it is not one, but for instance a format of models.
    """
    result: Format | None = next((form for form in FORMATS if form == format_name), None)
    if format_name is not None and result is None:
        raise ValueError(
            f"word vectors need a format of {', '.join(FORMATS)}, got --to {format_name}"
        )
    return result


def score_to_dict(score: WordSimilarityScore | AnalogyScore) -> dict[str, Any]:
    """Return a score as plain data."""
    if isinstance(score, WordSimilarityScore):
        return {"kind": "pairs"} | _to_plain(score)
    sums = {
        name: _counts_to_dict(getattr(score, name)) for name in ("total", "semantic", "syntactic")
    }
    sections = [_counts_to_dict(section) for section in score.sections]
    facts = {"name": score.name, "lowered": score.lowercased, "among": score.restrict_vocab}
    return {"kind": "analogies"} | facts | sums | {"sections": sections}


def format_word_vector_scores(scores: WordVectorScores) -> list[str]:
    """Format scores as lines: correlations, and accuracies in percent."""
    pairs = [score for score in scores if isinstance(score, WordSimilarityScore)]
    lines: list[str] = []
    if pairs:
        rows = [("word pairs", "pairs", "known", "Spearman", "with unknown")]
        rows += [
            (
                score.name,
                f"{score.n_pairs:,}",
                f"{score.n_known:,}",
                *map(_format_correlation, _correlations(score)),
            )
            for score in pairs
        ]
        lines += _align_columns(rows)
    for score in scores:
        if isinstance(score, AnalogyScore):
            rows = [
                (
                    f"{score.name}, among {score.restrict_vocab:,}",
                    "questions",
                    "known",
                    "3CosAdd",
                    "3CosMul",
                )
            ]
            parts = [score.semantic, score.syntactic] if score.syntactic.n_questions else []
            tallies = [*score.sections, *parts, score.total]
            rows += [
                (
                    t.name,
                    f"{t.n_questions:,}",
                    f"{t.n_known:,}",
                    _format_share(t.accuracy_add),
                    _format_share(t.accuracy_multiply),
                )
                for t in tallies
            ]
            lines += ["", *_align_columns(rows)] if lines else _align_columns(rows)
    return lines


def _correlations(score: WordSimilarityScore) -> tuple[float | None, float | None]:
    return score.spearman, score.spearman_all


def _counts_to_dict(counts: AnalogyCounts) -> dict[str, Any]:
    return _to_plain(counts) | {"add": counts.accuracy_add, "multiply": counts.accuracy_multiply}


def _to_plain(score: WordSimilarityScore | AnalogyCounts) -> dict[str, Any]:
    return {_JSON_KEYS.get(name, name): value for name, value in asdict(score).items()}


def _format_correlation(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _format_share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _align_columns(rows: Iterable[Sequence[str]]) -> list[str]:
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
