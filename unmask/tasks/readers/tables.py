"""Labelled files -> named columns: TSV, CSV, JSON, Parquet, CoNLL, each also compressed."""

import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from unmask.files import LARGEST, parsed
from unmask.tasks.readers import conll, squad
from unmask.tasks.readers.class_names import class_names, with_names
from unmask.text.compressed import COMPRESSIONS, compression, pieces, require
from unmask.text.lines import EncodingErrors, blank, decoded
from unmask.text.records import (
    LONGEST,
    Budget,
    arrow_errors,
    check_delimiter,
    json_rows,
    listed,
    named,
    one_line,
    whole_lines,
)

_ROWS, _FEW = 2**12, 2**5  # of Parquet, that are decoded together
_VALUES = 2**23  # values in a .json file, each of which takes up to 80 times its length
_SMALL = 2**28  # bytes of strings that any Parquet file may be, however small
_FULL, _EMPTY = 16, 2**20  # fields of a table: times those that are told, and more
_MEMBER = re.compile(r"(.+)\[(\d+)\]")
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"')

Row = tuple[int | str, tuple[object, ...]]
"""The line at which a row begins (its number, in Parquet), from 1, or, where a line would say
little, its place in words; and its fields."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A file with named columns."""

    path: Path
    columns: tuple[str, ...]
    rows: Sequence[Row]

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, i: int) -> str:
        """Say where row `i` stands: file and line, or file and question."""
        place = self.rows[i][0]
        return f"{self.path}:{place}" if isinstance(place, int) else f"{self.path}: {place}"

    def has(self, name: str) -> bool:
        """Say whether there is a column of this name, or of lists of which it names a member."""
        return name in self.columns or _member(name)[0] in self.columns

    def column(self, name: str) -> list[object]:
        """Return the values of a column; None where a row has none.

        "answers[0]" is the first member of the list in the column "answers"; of SQuAD's answers,
        its text.

        Raises:
            ValueError: there is no such column, or there are several.
        """
        if name not in self.columns and (found := _member(name))[1] is not None:
            return [_of_list(value, found[1]) for value in self.column(found[0])]
        self.check(name)
        at = self.columns.index(name)
        return [fields[at] for _, fields in self.rows]

    def named_by(self, option: str) -> str:
        """Say how a column is named that was not found."""
        all_of_them = ""
        if _ending(self.path) in (".tsv", ".csv"):
            all_of_them = ", or all of a file without a header by columns (--columns)"
        return f"name it by {option} (--{option}){all_of_them} (columns: {listed(self.columns)})"

    def check(self, name: str) -> None:
        """Check that there is exactly one column of this name.

        Raises:
            ValueError: there is none, or there are several.
        """
        n = self.columns.count(name if name in self.columns else _member(name)[0])
        if n != 1:
            what = "no column" if n == 0 else f"{n} columns"
            raise ValueError(f"{self.path}: {what} {name!r} (columns: {listed(self.columns)})")


def _member(name: str) -> tuple[str, int | None]:
    """Return the column of lists and the place that a name like "answers[0]" names."""
    found = _MEMBER.fullmatch(name)
    return (name, None) if found is None else (found[1], int(found[2]))


def _of_list(value: object, at: int) -> object:
    """Return a member of a list; None where it has not so many; anything else is itself."""
    if isinstance(value, dict):  # SQuAD's answers, as data sets of the Hub have them
        value = cast("dict[str, object]", value).get("text", value)
    if not isinstance(value, list | tuple):
        return value
    listed = cast("Sequence[object]", value)
    one = listed[at] if at < len(listed) else None
    return cast("dict[str, object]", one).get("text", one) if isinstance(one, dict) else one


def read(
    path: str | Path,
    *,
    header: Sequence[str] = (),
    tagged: bool = False,
    errors: EncodingErrors = "strict",
) -> Table:
    """Read a file whole.

    The name says the format: .tsv (a line is a row, quotes are plain characters, as in GLUE), .csv
    (RFC 4180: quotes), .jsonl (an object a line), .json (a list of objects, alone or as "data", or
    SQuAD's articles, of which each question is a row), .parquet, .txt (a text a line), .conllu,
    .conll; each may be followed by .gz, .xz or .zst. Lines with nothing but white space are passed
    over. Classes that a Parquet file has names for are read as these.

    Args:
        path: of the file.
        header: names of the columns, of a .tsv, .csv or .conll file whose first line does not say
            them.
        tagged: a word a line and a blank line between sentences, also in .txt and .tsv; a row is
            then a sentence.
        errors: what becomes of bytes that are no UTF-8, and of NULs.

    Two plain files, as translations come, are named "SOURCES+TARGETS": line for line they are the
    columns "source" and "target". The second is in the first's folder unless it names one.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is empty, of another format, damaged, not UTF-8, or a row has not as
            many fields as others; or of two files one has an empty line or more lines.
    """
    two = pair_of(path)
    if two is not None:
        return _pairs(*two, errors)
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    if not path.is_file():
        what = "a folder" if path.is_dir() else "a pipe or a device, which cannot be read twice"
        raise ValueError(f"{path}: must be a file, not {what}")
    columns, rows = _read(path, _ending(path), tuple(header), tagged, errors)
    if not rows:
        raise ValueError(f"{path}: {_nothing(_ending(path), columns)}")
    return Table(path=path, columns=columns, rows=rows)


def pair_of(path: str | Path) -> tuple[Path, Path] | None:
    """Find the two files of a name like "train.de.xz+train.en.xz"; None if it names one.

    Raises:
        FileNotFoundError: the first file is there, and the second is not.
    """
    one, plus, other = str(path).partition("+")
    first, second = Path(one), Path(other)
    if not plus or not other or Path(path).exists() or not first.is_file():
        return None
    second = second if len(second.parts) > 1 else first.parent / second
    if not second.is_file():
        raise FileNotFoundError(f"{second}: no such file, which {path} names")
    return first, second


def _pairs(first: Path, second: Path, errors: EncodingErrors) -> Table:
    """Read two files line for line."""
    sides = [[*_lines(path, errors, blanks=True)] for path in (first, second)]
    for path, side in zip((first, second), sides, strict=True):
        for number, line in side:
            if blank(line):
                raise ValueError(f"{path}:{number}: the line is empty; each must have its like")
    n, m = map(len, sides)
    if n != m:
        raise ValueError(f"{first} has {n:,} lines and {second} {m:,}; each must have its like")
    if not n:
        raise ValueError(f"{first}: the file is empty")
    rows = [(number, (a, b)) for (number, a), (_, b) in zip(*sides, strict=True)]
    return Table(path=first, columns=("source", "target"), rows=rows)


def is_plain(path: Path) -> bool:
    """Say whether a file is named as plain text, which has no columns."""
    return _ending(path) == ".txt"


def header(path: Path, errors: EncodingErrors = "strict") -> tuple[str, ...]:
    """Read the first row alone, which names the columns if the file has a header.

    Raises:
        ValueError: the file is damaged, or neither .tsv nor .csv.
    """
    ending = _ending(path)
    if ending not in (".tsv", ".csv"):
        raise ValueError(f"{path}: only .tsv and .csv have a header")
    rows = _tsv(path, errors) if ending == ".tsv" else _csv(path, errors)
    return tuple(next(rows, (0, []))[1])


def _nothing(ending: str, columns: tuple[str, ...]) -> str:
    if ending == ".json":
        return "holds no rows"
    headed = columns and ending in (".tsv", ".csv", ".parquet")
    return "has a header but no rows" if headed else "the file is empty"


def _ending(path: Path) -> str:
    inner = path if compression(path) is None else path.with_suffix("")
    return inner.suffix.lower()


def _read(
    path: Path, ending: str, header: tuple[str, ...], tagged: bool, errors: EncodingErrors
) -> tuple[tuple[str, ...], list[Row]]:
    if ending == ".conllu":
        return conll.CONLLU, list(conll.conllu(path, errors))
    if ending in (".conll", ".iob", ".bio") or (tagged and ending in (".txt", ".tsv")):
        columns, rows = conll.conll(path, header, errors)
        return columns, [*rows]
    if ending in (".jsonl", ".ndjson"):
        return _jsonl(path, errors)
    if ending == ".json":
        return _json(path, errors)
    if ending == ".parquet":
        return _parquet(path)
    if ending == ".txt":
        return ("text",), [(n, (line,)) for n, line in _lines(path, errors)]
    if ending in (".tsv", ".csv"):
        return _table(path, header, _tsv(path, errors) if ending == ".tsv" else _csv(path, errors))
    raise ValueError(
        f"{path}: the name must end in .tsv, .csv, .jsonl, .json, .parquet, .txt, .conllu or "
        f".conll, and may go on with {' or '.join(COMPRESSIONS)}"
    )


def _lines(
    path: Path, errors: EncodingErrors, *, blanks: bool = False
) -> Iterator[tuple[int, str]]:
    for number, line in whole_lines(path, errors):
        if blanks or not blank(line):
            yield number, line


def _table(
    path: Path, header: tuple[str, ...], rows: Iterator[tuple[int, list[str]]]
) -> tuple[tuple[str, ...], list[Row]]:
    columns = header or tuple(next(rows, (0, []))[1])
    check_delimiter(path, columns)
    kept: list[Row] = []
    for number, fields in rows:
        if len(fields) != len(columns):
            check_delimiter(path, fields)
            raise ValueError(
                f"{path}:{number}: {conll.count(len(fields))}, but there are {len(columns)} "
                f"columns ({listed(columns)})"
            )
        kept.append((number, tuple(fields)))
    return columns, kept


def _tsv(path: Path, errors: EncodingErrors) -> Iterator[tuple[int, list[str]]]:
    return ((n, line.split("\t")) for n, line in _lines(path, errors))


def _csv(path: Path, errors: EncodingErrors) -> Iterator[tuple[int, list[str]]]:
    """Cut lines at commas, but not within quotes, where a line end is a character too."""
    begin, size, held, fields = 0, 0, list[str](), list[str]()
    for number, line in _lines(path, errors, blanks=True):
        at = 0
        if begin:
            at = _quoted(line, 0, held, fields, f"{path}:{begin}")
        elif blank(line):
            continue
        else:
            begin, size, fields = number, 0, []
        while 0 <= at <= len(line):
            if line.startswith('"', at):
                held = []
                at = _quoted(line, at + 1, held, fields, f"{path}:{begin}")
            else:
                end = line.find(",", at)
                end = len(line) if end < 0 else end
                fields.append(line[at:end])
                at = end + 1
        size += len(line)
        if at >= 0:
            yield begin, fields
            begin = 0
        elif size > LONGEST:
            break
    if begin:
        raise ValueError(f"{path}:{begin}: a quote opens a field that never ends")


def _quoted(line: str, at: int, held: list[str], fields: list[str], where: str) -> int:
    """Read on in a quoted field; return where the next one begins, -1 if the line ends first."""
    while True:
        end = line.find('"', at)
        if end < 0:
            held.append(line[at:] + "\n")
            return -1
        held.append(line[at:end])
        at = end + 1
        if not line.startswith('"', at):
            break
        held.append('"')
        at += 1
    if at < len(line) and line[at] != ",":
        raise ValueError(
            f"{where}: field {len(fields) + 1} goes on after its closing quote; "
            "a quote within a quoted field must be doubled"
        )
    fields.append("".join(held))
    return at + 1


def _jsonl(path: Path, errors: EncodingErrors) -> tuple[tuple[str, ...], list[Row]]:
    return _alike(path, list(json_rows(path, errors)))


def _alike(
    path: Path, records: Sequence[tuple[int | str, dict[str, object]]]
) -> tuple[tuple[str, ...], list[Row]]:
    """Make rows of records: all keys are columns, and what a record lacks is None.

    Raises:
        ValueError: records have so little in common that the table would be mostly empty.
    """
    keys: dict[str, None] = {}
    for _, fields in records:
        keys |= dict.fromkeys(fields)
    held = sum(len(fields) for _, fields in records)
    if len(keys) * len(records) > _FULL * held + _EMPTY:
        raise ValueError(
            f"{path}: {len(records):,} rows have {len(keys):,} different keys, and each only some "
            f"of them ({listed(keys)}): keys are names of columns, which all rows have"
        )
    return tuple(keys), [(n, tuple(fields.get(k) for k in keys)) for n, fields in records]


def _json(path: Path, errors: EncodingErrors) -> tuple[tuple[str, ...], list[Row]]:
    data = _parsed(path, _whole(path, errors))
    at = ""
    if isinstance(data, dict):
        fields = cast("dict[str, object]", data)
        if "data" not in fields:
            raise ValueError(
                f"{path}: a .json file must be a list of objects, or an object with such a list as "
                f"'data'; got an object with {listed(fields)}"
            )
        data, at = fields["data"], "data"
    if not isinstance(data, list):
        raise ValueError(f"{path}: {at or 'the file'} must be a list of objects, got {named(data)}")
    found = cast("list[object]", data)
    if squad.is_nested(found):
        return squad.COLUMNS, list(squad.questions(found, path))
    return _objects(found, at, path)


def _objects(found: Sequence[object], at: str, path: Path) -> tuple[tuple[str, ...], list[Row]]:
    for i, record in enumerate(found):
        if not isinstance(record, dict):
            raise ValueError(f"{path}: {at}[{i}] must be an object, got {named(record)}")
    records = cast("Sequence[dict[str, object]]", found)
    return _alike(path, [(f"{at}[{i}]", record) for i, record in enumerate(records)])


def _whole(path: Path, errors: EncodingErrors) -> str:
    """Read a file that is understood only whole, if it fits into memory when it is."""
    held: list[str] = []
    size = 0
    for text in decoded(path, errors):
        held.append(text)
        size += len(text)
        if size > LONGEST:
            raise ValueError(
                f"{path}: a .json file of more than {LONGEST:,} characters; write it as .jsonl"
            )
    text = "".join(held)
    if _values(text) > _VALUES and _values(_STRING.sub("", text)) > _VALUES:
        raise ValueError(f"{path}: more than {_VALUES:,} values in .json; write it as .jsonl")
    return text


def _values(text: str) -> int:
    return sum(map(text.count, ",[{"))


def _parsed(path: Path, text: str) -> object:
    if blank(text):
        raise ValueError(f"{path}: the file is empty")
    try:
        return parsed(text)
    except json.JSONDecodeError as error:
        why = f"{error.msg} at character {error.colno} of the line"
        if error.msg == "Extra data":
            why += "; a file of one object a line is named .jsonl"
        elif error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated"):
            why += "; the file ends too early"
        raise ValueError(f"{path}:{error.lineno}: malformed JSON: {why}") from None
    except ValueError as error:  # nested too deeply, or an integer of thousands of digits
        raise ValueError(f"{path}: malformed JSON: {one_line(error)}") from None


def _parquet(path: Path) -> tuple[tuple[str, ...], list[Row]]:
    require("pyarrow", "reading .parquet")
    from pyarrow import parquet

    source: Any = path if compression(path) is None else io.BytesIO(_unpacked(path))
    with arrow_errors(path):
        opened = parquet.ParquetFile(source)
        schema = opened.schema_arrow
        names = tuple(schema.names)
        strings = _strings(opened)
        # Strings stay as they are stored, each once, until it is known how much they are; for
        # those in lists and tables Arrow cannot do so, and few rows are read at a time.
        stored = parquet.ParquetFile(source, read_dictionary=[n for n in names if n in strings])
    nested = [name for name in names if any(s.startswith(f"{name}.") for s in strings)]
    if len(set(names)) < len(names):  # which cannot be read by their names
        nested = list(names)
    columns: list[list[object]] = [[] for _ in names]
    budget = Budget(path, _SMALL)
    for file, some, rows in (
        (stored, [name for name in names if name not in nested], _ROWS),
        (opened, nested, _FEW),
    ):
        places = [i for i, name in enumerate(names) if name in some]
        for batch in _batches(path, file, some, rows):
            for i, values in zip(places, batch.columns, strict=True):
                with arrow_errors(path):
                    size = expanded(values)
                budget.spend(size)
                with arrow_errors(path):
                    columns[i] += values.cast(schema.types[i]).to_pylist()
    found = class_names(schema.metadata, path)
    for name, classes in found.items():
        for at in (i for i, column in enumerate(names) if column == name):
            columns[at] = [
                with_names(value, classes, name, f"{path}:{i}")
                for i, value in enumerate(columns[at], 1)
            ]
    rows_of = zip(*columns, strict=True)
    return names, [(i, row) for i, row in enumerate(rows_of, 1)]


def _batches(path: Path, file: Any, columns: Sequence[str], rows: int) -> Iterator[Any]:
    """Yield so many rows of some columns at a time."""
    if not columns:
        return
    every = len(columns) == len(file.schema_arrow.names)
    batches = file.iter_batches(rows, columns=None if every else list(columns))
    while True:
        with arrow_errors(path):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def _unpacked(path: Path) -> bytes:
    """Unpack a file that is read from its end, up to a limit."""
    held: list[bytes] = []
    size = 0
    for piece in pieces(path):
        held.append(piece)
        size += len(piece)
        if size > LARGEST:
            raise ValueError(f"{path}: more than {LARGEST:,} bytes unpacked; unpack it first")
    return b"".join(held)


def _strings(opened: Any) -> list[str]:
    """List the columns of strings as Parquet calls them, those in others by their ways: "a.b"."""
    columns = [opened.schema.column(i) for i in range(len(opened.schema))]
    return [one.path for one in columns if one.physical_type == "BYTE_ARRAY"]


def expanded(values: Any) -> int:
    """Return how many bytes the strings of an Arrow array are, each as often as it stands there."""
    import pyarrow
    from pyarrow import compute, types

    kind = values.type
    if types.is_dictionary(kind):
        sizes = compute.call_function("binary_length", [values.dictionary])
        return compute.call_function("sum", [sizes.take(values.indices)]).as_py() or 0
    if types.is_struct(kind):
        return sum(expanded(values.field(i)) for i in range(kind.num_fields))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return 8 * len(values) + expanded(values.flatten())
    if types.is_map(kind):
        return expanded(values.keys) + expanded(values.items)
    assert isinstance(values, pyarrow.Array)
    return int(values.nbytes) + 8 * len(values)
