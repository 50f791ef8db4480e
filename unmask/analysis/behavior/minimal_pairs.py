"""Minimal pairs: two sentences that differ little, one acceptable or fitting its context."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from unmask.evaluation.prompting import evenly_spaced
from unmask.tasks.readers.tables import Table, read_table
from unmask.text.formats.decompress import compression_suffix
from unmask.text.formats.records import describe_value, format_names
from unmask.text.lines import EncodingErrors

_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "good": ("sentence_good", "good"),
    "bad": ("sentence_bad", "bad"),
    "paradigm": ("UID", "uid"),
    "phenomenon": ("linguistics_term", "term"),
}
"""Names of each column; the first are those of BLiMP's own files and of BabyLM's."""
_EWOK_COLUMNS = ("Context1", "Context2", "Target1", "Target2")
Compared = Literal["targets", "contexts"]
"""Of a target that fits a context: compared with another target after the same context, or with
itself after another context."""


@dataclass(frozen=True)
class MinimalPair:
    """An acceptable sentence and one that is not."""

    good: str
    bad: str
    paradigm: str
    """What the pair was made by, as anaphor_number_agreement."""
    phenomenon: str
    """What several paradigms belong to, as anaphor_agreement."""
    good_context: str = ""
    """Text before the acceptable sentence, which is read, but not scored."""
    bad_context: str = ""


def read_minimal_pairs(
    path: str | Path,
    encoding_errors: EncodingErrors = "strict",
    compared: Compared = "targets",
) -> list[MinimalPair]:
    """Read the pairs of a file, or of all .jsonl files of a folder, optionally compressed.

    Columns are sentence_good, sentence_bad, UID and linguistics_term (BLiMP: Warstadt et al. 2020,
    arXiv:1912.00582), or good, bad, uid and term. The paradigm of a file without a UID is its name,
    the phenomenon of a paradigm without a term is the paradigm. Or they are Context1, Context2,
    Target1, Target2 and Domain (EWoK: Ivanova et al. 2024, arXiv:2405.09605): the good sentence is
    Target1 after Context1, the bad one Target2 after it, or Target1 after Context2.

    Args:
        path: of the data.
        encoding_errors: treatment of invalid UTF-8.
        compared: of data with contexts, what differs between the two sentences of a pair.

    Raises:
        FileNotFoundError: there is no such file, or the folder has none.
        ValueError: a file is empty, or lacks a column or a sentence.
    """
    return [
        pair
        for one in data_files(Path(path))
        for pair in _read_file(one, encoding_errors, compared)
    ]


def data_files(path: Path) -> list[Path]:
    """Return a file itself, or all .jsonl files of a folder, optionally compressed.

    Raises:
        FileNotFoundError: the folder has none.
    """
    if not path.is_dir():
        return [path]
    files = sorted(one for one in path.iterdir() if _plain(one).suffix == ".jsonl")
    if not files:
        raise FileNotFoundError(f"{path}: this folder has no .jsonl file")
    return files


def data_stem(path: Path) -> str:
    """Return the name of a file without suffixes of format and compression."""
    return _plain(path).stem


def sample_pairs(pairs: Sequence[MinimalPair], per_paradigm: int | None) -> list[MinimalPair]:
    """Choose as many pairs of each paradigm, evenly spaced in its order; None: all."""
    by_paradigm: dict[str, list[MinimalPair]] = defaultdict(list)
    for pair in pairs:
        by_paradigm[pair.paradigm].append(pair)
    return [
        some[i] for some in by_paradigm.values() for i in evenly_spaced(len(some), per_paradigm)
    ]


def _read_file(
    path: Path, encoding_errors: EncodingErrors, compared: Compared
) -> list[MinimalPair]:
    table = read_table(path, encoding_errors=encoding_errors)
    if any(name in table.columns for name in _EWOK_COLUMNS):
        return _read_with_contexts(table, compared)
    names = {
        kind: next((name for name in options if name in table.columns), None)
        for kind, options in _COLUMNS.items()
    }
    for kind in ("good", "bad"):
        if names[kind] is None:
            raise ValueError(
                f"{path}: minimal pairs need a column {' or '.join(_COLUMNS[kind])} "
                f"(columns: {format_names(table.columns)})"
            )
    columns = [
        [None] * len(table) if name is None else _texts(table, name) for name in names.values()
    ]
    stem = data_stem(path)
    return [
        MinimalPair(str(good), str(bad), paradigm or stem, phenomenon or paradigm or stem)
        for good, bad, paradigm, phenomenon in zip(*columns, strict=True)
    ]


def _read_with_contexts(table: Table, compared: Compared) -> list[MinimalPair]:
    """Return EWoK's pairs; the paradigm is the domain, or the name of a file without one."""
    context, other_context, target, other_target = (_texts(table, one) for one in _EWOK_COLUMNS)
    stem = data_stem(table.path)
    domains = _texts(table, "Domain") if "Domain" in table.columns else [stem] * len(table)
    if compared == "targets":
        other_context = context
    else:
        other_target = target
    return [
        MinimalPair(good, bad, domain, domain, before, other_before)
        for good, bad, domain, before, other_before in zip(
            target, other_target, domains, context, other_context, strict=True
        )
    ]


def _texts(table: Table, name: str) -> list[str]:
    """Return the texts of a column.

    Raises:
        ValueError: one is missing, blank or no text.
    """
    values = table.column(name)
    for i, value in enumerate(values):
        if not isinstance(value, str) or not value.strip():
            raise ValueError(
                f"{table.location(i)}: {name} must be a text, got {describe_value(value)}"
            )
    return [str(value) for value in values]


def _plain(path: Path) -> Path:
    """Return the path without the suffix of a compression."""
    return path if compression_suffix(path) is None else path.with_suffix("")
