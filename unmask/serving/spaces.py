"""Word vectors where a model is named: opened, scored, described, converted."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from unmask.channels import Stream, tell
from unmask.files import read_object
from unmask.text.compressed import COMPRESSIONS
from unmask.text.corpus import files
from unmask.text.lines import EncodingErrors
from unmask.vectors.facebook import read_composed
from unmask.vectors.files import ENDINGS, FORMATS, Format, read_vectors, recognize, write_vectors
from unmask.vectors.learning import FAMILY, NGRAMS
from unmask.vectors.similarity import (
    AnalogyScore,
    Case,
    Pairs,
    PairScore,
    Tally,
    is_lower_case,
    read_test,
    score_pairs,
    score_questions,
)
from unmask.vectors.space import Space

Scores = list[PairScore | AnalogyScore]


def open_space(path: str | Path | Space, *, limit: int | None = None) -> Space:
    """Open word vectors: the one place that decides what a path is.

    Args:
        path: a file of vectors (`unmask.vectors.files`), or a model, named as for `unmask.load`,
            whose table of tokens is meant; a space is returned as it is.
        limit: only the first `limit` words: the most frequent, in most files.

    Raises:
        FileNotFoundError: there is no such file or model.
        ValueError: it is no file of vectors, or damaged.
    """
    if isinstance(path, Space):
        return path if limit is None else path.first(limit)
    if is_vectors(path) and not Path(path).is_dir():
        return read_vectors(path, limit=limit)
    space = _table(path)
    return space if limit is None else space.first(limit)


def _table(model: str | Path) -> Space:
    """Return the vectors of a model's tokens; zeros are those of what has none."""
    from unmask.checkpoints.huggingface import open_folder
    from unmask.checkpoints.written import check_named
    from unmask.model.transformer import EncoderDecoder
    from unmask.serving.pipeline import find

    folder, _ = find(model)
    opened = open_folder(folder, {})
    if opened.tokenizer is None or isinstance(opened.model.backbone, EncoderDecoder):
        raise ValueError(f"{model}: has no table of words' vectors, with a tokenizer")
    table = opened.model.weights().get("backbone.tokens.weight")
    if table is None:
        raise ValueError(f"{model}: this model has no table of words' vectors")
    vectors = table.detach().float().numpy()
    special = opened.tokenizer.special.ids
    ids = [i for i in np.flatnonzero(vectors.any(1)).tolist() if i not in special]
    ngrams = folder / NGRAMS
    check_named(folder, NGRAMS)
    unseen = read_composed(ngrams) if ngrams.is_file() else None
    return Space(tuple(opened.tokenizer.pieces(ids)), vectors[ids], unseen=unseen)


def is_vectors(model: str | Path) -> bool:
    """Say whether a model that is named is word vectors: a file, a name as theirs, or a run."""
    path = Path(model)
    if path.is_dir():
        return _model_type(path) == FAMILY
    ending = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    named = ending.suffix.lower() in ENDINGS and not str(model).startswith("hf:")
    return os.path.isfile(path) or (named and not path.is_dir())


def _model_type(folder: Path) -> str | None:
    try:
        return read_object(folder / "config.json").get("model_type")
    except (OSError, ValueError):
        return None


def evaluate_space(
    space: str | Path | Space,
    data: str | Path | Sequence[str | Path],
    *,
    case: Case = "auto",
    limit: int | None = None,
    encoding_errors: EncodingErrors = "strict",
    terminal: Stream | None = sys.stderr,
) -> Scores:
    """Score word vectors on files of word pairs and of analogies; a file says what it is.

    Args:
        space: word vectors, or their file.
        data: files, folders or patterns.
        case: how words of these files are looked up: as they are, in lower case, or in lower case
            where all words of the space are.
        limit: only the first `limit` words are known, and can be an answer.
        encoding_errors: what becomes of bytes of these files that are not UTF-8.
        terminal: where it says how far it is, and what it does. None: nowhere.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is neither, or a line does not fit.
    """
    tests = [read_test(path, encoding_errors) for path in files(data)]
    space = open_space(space, limit=limit)
    found: Scores = []
    for test in tests:
        if isinstance(test, Pairs):
            found.append(score_pairs(space, test, case=case))
            continue
        if terminal is not None and terminal.isatty():
            n = sum(len(questions) for _, questions in test.sections)
            tell(f"{test.name}: {n:,} questions ...", terminal)
        found.append(score_questions(space, test, case=case))
    if terminal is not None and case == "auto" and found and found[0].lowered:
        tell(
            "the vectors know lower case alone: words of the files are put in lower case", terminal
        )
    return found


def convert_space(
    source: str | Path | Space,
    target: str | Path,
    *,
    form: Format | None = None,
    limit: int | None = None,
    white: str | None = None,
) -> Space:
    """Write word vectors in another format, and return them.

    Args:
        source: word vectors, or their file.
        target: a file that is not there yet; .gz, .xz and .zst are packed.
        form: the format; None: what the name of the file says.
        limit: only the first `limit` words.
        white: what is written for white space in words, which other libraries cannot read.

    Raises:
        FileExistsError: the file is there.
        ValueError: the source is no file of vectors, or a word cannot be written.
    """
    if Path(target).exists():
        raise FileExistsError(f"{target}: is there already; name a new file")
    space = open_space(source, limit=limit)
    write_vectors(space, target, form, white=white)
    return space


def describe_space(path: str | Path) -> dict[str, Any]:
    """Describe a file of word vectors, as plain data."""
    space = open_space(path)
    return {
        "name": str(path),
        "format": recognize(Path(path)),
        "words": len(space),
        "width": space.width,
        "lower_case": is_lower_case(space),
        "counted": space.counts is not None,
        "first": list(space.words[:10]),
        "bytes": space.vectors.nbytes,
    }


def described(facts: Mapping[str, Any]) -> list[str]:
    """Write a description in lines for a terminal."""
    case = "lower case alone" if facts["lower_case"] else "upper and lower case"
    return [
        facts["name"],
        "",
        f"format  {facts['format']}",
        f"words   {facts['words']:,}, {case}{', with counts' if facts['counted'] else ''}",
        f"width   {facts['width']:,}, in float32: {facts['bytes'] / 1e6:,.1f} MB in memory",
        f"first   {' '.join(facts['first'])}",
    ]


def vectors_format(name: str | None) -> Format | None:
    """Return the format of vectors that is named; None if none is.

    Raises:
        ValueError: it is a format of models.
    """
    found: Format | None = next((form for form in FORMATS if form == name), None)
    if name is not None and found is None:
        raise ValueError(f"word vectors are written as {', '.join(FORMATS)}; got --to {name}")
    return found


def plain(one: PairScore | AnalogyScore) -> dict[str, Any]:
    """Return a score as plain data."""
    if isinstance(one, PairScore):
        return {"kind": "pairs"} | asdict(one)
    sums = {name: _tally(getattr(one, name)) for name in ("total", "semantic", "syntactic")}
    sections = [_tally(section) for section in one.sections]
    more = {"name": one.name, "lowered": one.lowered, "among": one.among}
    return {"kind": "analogies"} | more | sums | {"sections": sections}


def table(scores: Scores) -> list[str]:
    """Write scores in lines: correlations as they are, shares in percent."""
    pairs = [one for one in scores if isinstance(one, PairScore)]
    lines: list[str] = []
    if pairs:
        rows = [("word pairs", "pairs", "known", "Spearman", "with unknown")]
        rows += [
            (one.name, f"{one.pairs:,}", f"{one.known:,}", *map(_rho, _both(one))) for one in pairs
        ]
        lines += _aligned(rows)
    for one in scores:
        if isinstance(one, AnalogyScore):
            rows = [
                (f"{one.name}, among {one.among:,}", "questions", "known", "3CosAdd", "3CosMul")
            ]
            parts = [one.semantic, one.syntactic] if one.syntactic.questions else []
            tallies = [*one.sections, *parts, one.total]
            rows += [
                (t.name, f"{t.questions:,}", f"{t.known:,}", _share(t.add), _share(t.multiply))
                for t in tallies
            ]
            lines += ["", *_aligned(rows)] if lines else _aligned(rows)
    return lines


def _both(one: PairScore) -> tuple[float | None, float | None]:
    return one.spearman, one.spearman_all


def _tally(one: Tally) -> dict[str, Any]:
    return asdict(one) | {"add": one.add, "multiply": one.multiply}


def _rho(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
