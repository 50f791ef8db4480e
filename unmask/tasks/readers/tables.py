"""Labeled files -> named columns: TSV, CSV, JSON, Parquet, CoNLL, optionally compressed."""

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from unmask.bundled.demo import bundled_table
from unmask.tasks.readers import conll
from unmask.tasks.readers.json_tables import read_json_table, read_jsonl_table
from unmask.tasks.readers.parquet_tables import read_parquet_table
from unmask.text.formats.decompress import COMPRESSIONS, compression_suffix
from unmask.text.formats.delimited import read_delimited
from unmask.text.formats.records import TableRow, format_names, read_whole_lines
from unmask.text.lines import BlankLines, EncodingErrors, is_blank

_log = logging.getLogger(__name__)
_LIST_MEMBER = re.compile(r"(.+)\[(\d+)\]")


@dataclass(frozen=True, kw_only=True)
class Table:
    """A file with named columns."""

    path: Path
    columns: tuple[str, ...]
    rows: Sequence[TableRow]

    def __len__(self) -> int:
        return len(self.rows)

    def location(self, i: int) -> str:
        """Return the location of row `i`: file and line, or file and question."""
        location = self.rows[i][0]
        return (
            f"{self.path}:{location}" if isinstance(location, int) else f"{self.path}: {location}"
        )

    def has_column(self, name: str) -> bool:
        """Return whether `name` is a column, or a member "answers[0]" of a column of lists."""
        return name in self.columns or _split_list_member(name)[0] in self.columns

    def column(self, name: str) -> list[object]:
        """Return the values of a column; None where missing.

        "answers[0]" is the first member of the list in the column "answers"; of SQuAD's answers,
        its text.

        Raises:
            ValueError: there is no such column, or there are several.
        """
        if name not in self.columns and (member := _split_list_member(name))[1] is not None:
            return [_list_member(value, member[1]) for value in self.column(member[0])]
        self.check_column(name)
        index = self.columns.index(name)
        return [fields[index] for _, fields in self.rows]

    def column_hint(self, option: str) -> str:
        """Return a hint for messages: the option that names the column, and all columns."""
        header_hint = ""
        if _suffix(self.path) in (".tsv", ".csv"):
            header_hint = ", or name all columns of a file without a header by columns (--columns)"
        return (
            f"name it by {option} (--{option}){header_hint} (columns: {format_names(self.columns)})"
        )

    def check_column(self, name: str) -> None:
        """Check that there is exactly one column of this name.

        Raises:
            ValueError: there is none, or there are several.
        """
        n = self.columns.count(name if name in self.columns else _split_list_member(name)[0])
        if n != 1:
            count = "no column" if n == 0 else f"{n} columns"
            raise ValueError(
                f"{self.path}: {count} {name!r} (columns: {format_names(self.columns)})"
            )


def _split_list_member(name: str) -> tuple[str, int | None]:
    """Split "answers[0]" into column and index; the index is None for other names."""
    match = _LIST_MEMBER.fullmatch(name)
    return (name, None) if match is None else (match[1], int(match[2]))


def _list_member(value: object, index: int) -> object:
    """Return a member of a list, None if out of range; a value that is no list is returned."""
    if isinstance(value, dict):  # SQuAD's answers in data sets of the Hub
        value = cast("dict[str, object]", value).get("text", value)
    if not isinstance(value, list | tuple):
        return value
    members = cast("Sequence[object]", value)
    member = members[index] if index < len(members) else None
    return (
        cast("dict[str, object]", member).get("text", member)
        if isinstance(member, dict)
        else member
    )


def read_table(
    path: str | Path,
    *,
    header: Sequence[str] = (),
    word_per_line: bool = False,
    encoding_errors: EncodingErrors = "strict",
) -> Table:
    """Read a whole file.

    The suffix gives the format: .tsv (one row per line, quotes are plain characters, as in GLUE),
    .csv (RFC 4180: quotes), .jsonl (one object per line), .json (a list of objects, alone or as
    "data", or SQuAD's articles, one row per question), .parquet, .txt (one text per line), .conllu,
    .conll; each may be followed by .gz, .xz or .zst. Blank lines are skipped (in .conllu and
    .conll, they end sentences); a warning lists those before the last row. Class numbers in Parquet
    files are replaced by class names.

    Args:
        path: the file.
        header: column names of a .tsv, .csv or .conll file without a header.
        word_per_line: one word per line and a blank line between sentences, also in .txt and .tsv;
            a row is a sentence.
        encoding_errors: treatment of invalid UTF-8 and NULs.

    `demo:spoken/train`, `/dev` and `/test` are splits of the task that is in the package.

    Two parallel files of plain text are given as "SOURCES+TARGETS": their lines are the columns
    "source" and "target". The second is in the folder of the first unless it names one.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is empty, of another format, damaged or not UTF-8, or rows differ in
            their number of fields; or one of two files has an empty line or more lines.
    """
    two = parallel_paths(path)
    if two is not None:
        return _read_parallel(*two, encoding_errors)
    path = Path(bundled_table(str(path)))
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "a pipe or a device, which cannot be read twice"
        raise ValueError(f"{path}: must be a file, not {kind}")
    blank_lines, suffix = BlankLines(), _suffix(path)
    columns, rows = _read_rows(
        path, suffix, tuple(header), word_per_line, encoding_errors, blank_lines
    )
    if not rows:
        raise ValueError(f"{path}: {_empty_message(suffix, columns)}")
    last_line = rows[-1][0]
    if isinstance(last_line, int) and (skipped := blank_lines.describe(last_line)):
        _log.warning("%s: blank lines are skipped: %s", path, skipped)
    return Table(path=path, columns=columns, rows=rows)


def parallel_paths(path: str | Path) -> tuple[Path, Path] | None:
    """Find the two files of a name like "train.de.xz+train.en.xz"; None if it names one.

    Raises:
        FileNotFoundError: the first file is there, and the second is not.
    """
    left, plus, right = str(path).partition("+")
    first, second = Path(left), Path(right)
    if not plus or not right or Path(path).exists() or not first.is_file():
        return None
    second = second if len(second.parts) > 1 else first.parent / second
    if not second.is_file():
        raise FileNotFoundError(f"{second}: no such file, which {path} names")
    return first, second


def _read_parallel(first: Path, second: Path, encoding_errors: EncodingErrors) -> Table:
    """Read two parallel files."""
    sides = [[*read_whole_lines(path, encoding_errors)] for path in (first, second)]
    for path, side in zip((first, second), sides, strict=True):
        for number, line in side:
            if is_blank(line):
                raise ValueError(
                    f"{path}:{number}: the line is empty; the lines of both files must correspond"
                )
    n, m = map(len, sides)
    if n != m:
        raise ValueError(f"{first} has {n:,} lines and {second} {m:,}; the lines must correspond")
    if not n:
        raise ValueError(f"{first}: the file is empty")
    rows = [(number, (a, b)) for (number, a), (_, b) in zip(*sides, strict=True)]
    return Table(path=first, columns=("source", "target"), rows=rows)


def is_plain_text(path: Path) -> bool:
    """Return whether a file has the suffix of plain text, which has no columns."""
    return _suffix(path) == ".txt"


def read_header(path: Path, encoding_errors: EncodingErrors = "strict") -> tuple[str, ...]:
    """Read the first row only: the column names if the file has a header.

    Raises:
        ValueError: the file is damaged, or neither .tsv nor .csv.
    """
    if _suffix(path) not in (".tsv", ".csv"):
        raise ValueError(f"{path}: only .tsv and .csv have a header")
    return read_delimited(path, (), encoding_errors).columns


def _empty_message(suffix: str, columns: tuple[str, ...]) -> str:
    if suffix == ".json":
        return "the file has no rows"
    headed = columns and suffix in (".tsv", ".csv", ".parquet")
    return "has a header but no rows" if headed else "the file is empty"


def _suffix(path: Path) -> str:
    inner = path if compression_suffix(path) is None else path.with_suffix("")
    return inner.suffix.lower()


def _read_rows(
    path: Path,
    suffix: str,
    header: tuple[str, ...],
    word_per_line: bool,
    encoding_errors: EncodingErrors,
    blank_lines: BlankLines,
) -> tuple[tuple[str, ...], list[TableRow]]:
    if suffix == ".conllu":
        return conll.CONLLU_COLUMNS, list(conll.read_conllu(path, encoding_errors))
    if suffix in (".conll", ".iob", ".bio") or (word_per_line and suffix in (".txt", ".tsv")):
        columns, rows = conll.read_conll(path, header, encoding_errors)
        return columns, [*rows]
    if suffix in (".jsonl", ".ndjson"):
        return read_jsonl_table(path, encoding_errors, blank_lines)
    if suffix == ".json":
        return read_json_table(path, encoding_errors)
    if suffix == ".parquet":
        return read_parquet_table(path)
    if suffix == ".txt":
        lines = _read_lines(path, encoding_errors, blank_lines)
        return ("text",), [(n, (line,)) for n, line in lines]
    if suffix in (".tsv", ".csv"):
        columns, _, rows = read_delimited(path, header, encoding_errors, blank_lines)
        return columns, [(number, tuple(fields)) for number, fields in rows]
    if suffix in (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods", ".numbers"):
        raise ValueError(
            f"{path}: a spreadsheet: save its sheet as CSV UTF-8 (.csv); the page of "
            "`unmask serve` reads it as it is"
        )
    raise ValueError(
        f"{path}: the name must end in .tsv, .csv, .jsonl, .json, .parquet, .txt, .conllu or "
        f".conll, optionally followed by {' or '.join(COMPRESSIONS)}"
    )


def _read_lines(
    path: Path, encoding_errors: EncodingErrors, blank_lines: BlankLines
) -> Iterator[tuple[int, str]]:
    for number, line in read_whole_lines(path, encoding_errors):
        if is_blank(line):
            blank_lines.add(number)
        else:
            yield number, line
