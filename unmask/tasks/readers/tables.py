"""Labelled files -> named columns: TSV, CSV, JSON, Parquet, CoNLL, each also compressed."""

import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from unmask.files import MAX_FILE_BYTES, parse_json
from unmask.tasks.readers import conll, squad
from unmask.tasks.readers.class_names import class_names, replace_class_numbers
from unmask.text.decompress import (
    COMPRESSIONS,
    compression_suffix,
    read_decompressed,
    require_module,
)
from unmask.text.lines import EncodingErrors, is_blank, read_decoded
from unmask.text.records import (
    MAX_RECORD_CHARACTERS,
    ExpansionBudget,
    arrow_errors,
    check_delimiter,
    describe_value,
    format_error,
    format_names,
    read_json_rows,
    read_whole_lines,
)

_PARQUET_ROWS, _MIN_PARQUET_ROWS = 2**12, 2**5  # of Parquet, that are decoded together
_MAX_JSON_VALUES = 2**23  # values in a .json file, each of which takes up to 80 times its length
_MAX_WHOLE_FILE_BYTES = 2**28  # bytes of strings that any Parquet file may be, however small
_MAX_EXPANSION, _EXPANSION_ALLOWANCE_BYTES = (
    16,
    2**20,
)  # fields of a table: times those that are told, and more
_LIST_MEMBER = re.compile(r"(.+)\[(\d+)\]")
_JSON_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"')

TableRow = tuple[int | str, tuple[object, ...]]
"""The line at which a row begins (its number, in Parquet), from 1, or, where a line would say
little, its place in words; and its fields."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A file with named columns."""

    path: Path
    columns: tuple[str, ...]
    rows: Sequence[TableRow]

    def __len__(self) -> int:
        return len(self.rows)

    def location(self, i: int) -> str:
        """Say where row `i` stands: file and line, or file and question."""
        place = self.rows[i][0]
        return f"{self.path}:{place}" if isinstance(place, int) else f"{self.path}: {place}"

    def has_column(self, name: str) -> bool:
        """Say whether there is a column of this name, or of lists of which it names a member."""
        return name in self.columns or _split_list_member(name)[0] in self.columns

    def column(self, name: str) -> list[object]:
        """Return the values of a column; None where a row has none.

        "answers[0]" is the first member of the list in the column "answers"; of SQuAD's answers,
        its text.

        Raises:
            ValueError: there is no such column, or there are several.
        """
        if name not in self.columns and (found := _split_list_member(name))[1] is not None:
            return [_list_member(value, found[1]) for value in self.column(found[0])]
        self.check_column(name)
        at = self.columns.index(name)
        return [fields[at] for _, fields in self.rows]

    def column_hint(self, option: str) -> str:
        """Say how a column is named that was not found."""
        all_of_them = ""
        if _suffix(self.path) in (".tsv", ".csv"):
            all_of_them = ", or all of a file without a header by columns (--columns)"
        return (
            f"name it by {option} (--{option}){all_of_them} (columns: {format_names(self.columns)})"
        )

    def check_column(self, name: str) -> None:
        """Check that there is exactly one column of this name.

        Raises:
            ValueError: there is none, or there are several.
        """
        n = self.columns.count(name if name in self.columns else _split_list_member(name)[0])
        if n != 1:
            what = "no column" if n == 0 else f"{n} columns"
            raise ValueError(
                f"{self.path}: {what} {name!r} (columns: {format_names(self.columns)})"
            )


def _split_list_member(name: str) -> tuple[str, int | None]:
    """Return the column of lists and the place that a name like "answers[0]" names."""
    found = _LIST_MEMBER.fullmatch(name)
    return (name, None) if found is None else (found[1], int(found[2]))


def _list_member(value: object, at: int) -> object:
    """Return a member of a list; None where it has not so many; anything else is itself."""
    if isinstance(value, dict):  # SQuAD's answers, as data sets of the Hub have them
        value = cast("dict[str, object]", value).get("text", value)
    if not isinstance(value, list | tuple):
        return value
    listed = cast("Sequence[object]", value)
    one = listed[at] if at < len(listed) else None
    return cast("dict[str, object]", one).get("text", one) if isinstance(one, dict) else one


def read_table(
    path: str | Path,
    *,
    header: Sequence[str] = (),
    word_per_line: bool = False,
    encoding_errors: EncodingErrors = "strict",
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
        word_per_line: a word a line and a blank line between sentences, also in .txt and .tsv; a
            row is then a sentence.
        encoding_errors: what becomes of bytes that are no UTF-8, and of NULs.

    Two plain files, as translations come, are named "SOURCES+TARGETS": line for line they are the
    columns "source" and "target". The second is in the first's folder unless it names one.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is empty, of another format, damaged, not UTF-8, or a row has not as
            many fields as others; or of two files one has an empty line or more lines.
    """
    two = parallel_paths(path)
    if two is not None:
        return _read_parallel(*two, encoding_errors)
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    if not path.is_file():
        what = "a folder" if path.is_dir() else "a pipe or a device, which cannot be read twice"
        raise ValueError(f"{path}: must be a file, not {what}")
    columns, rows = _read_rows(path, _suffix(path), tuple(header), word_per_line, encoding_errors)
    if not rows:
        raise ValueError(f"{path}: {_empty_message(_suffix(path), columns)}")
    return Table(path=path, columns=columns, rows=rows)


def parallel_paths(path: str | Path) -> tuple[Path, Path] | None:
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


def _read_parallel(first: Path, second: Path, encoding_errors: EncodingErrors) -> Table:
    """Read two files line for line."""
    sides = [[*_read_lines(path, encoding_errors, blanks=True)] for path in (first, second)]
    for path, side in zip((first, second), sides, strict=True):
        for number, line in side:
            if is_blank(line):
                raise ValueError(f"{path}:{number}: the line is empty; each must have its like")
    n, m = map(len, sides)
    if n != m:
        raise ValueError(f"{first} has {n:,} lines and {second} {m:,}; each must have its like")
    if not n:
        raise ValueError(f"{first}: the file is empty")
    rows = [(number, (a, b)) for (number, a), (_, b) in zip(*sides, strict=True)]
    return Table(path=first, columns=("source", "target"), rows=rows)


def is_plain_text(path: Path) -> bool:
    """Say whether a file is named as plain text, which has no columns."""
    return _suffix(path) == ".txt"


def read_header(path: Path, encoding_errors: EncodingErrors = "strict") -> tuple[str, ...]:
    """Read the first row alone, which names the columns if the file has a header.

    Raises:
        ValueError: the file is damaged, or neither .tsv nor .csv.
    """
    ending = _suffix(path)
    if ending not in (".tsv", ".csv"):
        raise ValueError(f"{path}: only .tsv and .csv have a header")
    rows = (
        _read_tsv(path, encoding_errors) if ending == ".tsv" else _read_csv(path, encoding_errors)
    )
    return tuple(next(rows, (0, []))[1])


def _empty_message(suffix: str, columns: tuple[str, ...]) -> str:
    if suffix == ".json":
        return "holds no rows"
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
) -> tuple[tuple[str, ...], list[TableRow]]:
    if suffix == ".conllu":
        return conll.CONLLU_COLUMNS, list(conll.read_conllu(path, encoding_errors))
    if suffix in (".conll", ".iob", ".bio") or (word_per_line and suffix in (".txt", ".tsv")):
        columns, rows = conll.read_conll(path, header, encoding_errors)
        return columns, [*rows]
    if suffix in (".jsonl", ".ndjson"):
        return _read_jsonl(path, encoding_errors)
    if suffix == ".json":
        return _read_json(path, encoding_errors)
    if suffix == ".parquet":
        return _read_parquet(path)
    if suffix == ".txt":
        return ("text",), [(n, (line,)) for n, line in _read_lines(path, encoding_errors)]
    if suffix in (".tsv", ".csv"):
        return _with_header(
            path,
            header,
            _read_tsv(path, encoding_errors)
            if suffix == ".tsv"
            else _read_csv(path, encoding_errors),
        )
    raise ValueError(
        f"{path}: the name must end in .tsv, .csv, .jsonl, .json, .parquet, .txt, .conllu or "
        f".conll, and may go on with {' or '.join(COMPRESSIONS)}"
    )


def _read_lines(
    path: Path, encoding_errors: EncodingErrors, *, blanks: bool = False
) -> Iterator[tuple[int, str]]:
    for number, line in read_whole_lines(path, encoding_errors):
        if blanks or not is_blank(line):
            yield number, line


def _with_header(
    path: Path, header: tuple[str, ...], rows: Iterator[tuple[int, list[str]]]
) -> tuple[tuple[str, ...], list[TableRow]]:
    columns = header or tuple(next(rows, (0, []))[1])
    check_delimiter(path, columns)
    kept: list[TableRow] = []
    for number, fields in rows:
        if len(fields) != len(columns):
            check_delimiter(path, fields)
            raise ValueError(
                f"{path}:{number}: {conll.format_field_count(len(fields))}, but there are "
                f"{len(columns)} "
                f"columns ({format_names(columns)})"
            )
        kept.append((number, tuple(fields)))
    return columns, kept


def _read_tsv(path: Path, encoding_errors: EncodingErrors) -> Iterator[tuple[int, list[str]]]:
    return ((n, line.split("\t")) for n, line in _read_lines(path, encoding_errors))


def _read_csv(path: Path, encoding_errors: EncodingErrors) -> Iterator[tuple[int, list[str]]]:
    """Cut lines at commas, but not within quotes, where a line end is a character too."""
    begin, size, held, fields = 0, 0, list[str](), list[str]()
    for number, line in _read_lines(path, encoding_errors, blanks=True):
        at = 0
        if begin:
            at = _read_quoted_field(line, 0, held, fields, f"{path}:{begin}")
        elif is_blank(line):
            continue
        else:
            begin, size, fields = number, 0, []
        while 0 <= at <= len(line):
            if line.startswith('"', at):
                held = []
                at = _read_quoted_field(line, at + 1, held, fields, f"{path}:{begin}")
            else:
                end = line.find(",", at)
                end = len(line) if end < 0 else end
                fields.append(line[at:end])
                at = end + 1
        size += len(line)
        if at >= 0:
            yield begin, fields
            begin = 0
        elif size > MAX_RECORD_CHARACTERS:
            break
    if begin:
        raise ValueError(f"{path}:{begin}: a quote opens a field that never ends")


def _read_quoted_field(line: str, at: int, held: list[str], fields: list[str], where: str) -> int:
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


def _read_jsonl(
    path: Path, encoding_errors: EncodingErrors
) -> tuple[tuple[str, ...], list[TableRow]]:
    return _rows_of_records(path, list(read_json_rows(path, encoding_errors)))


def _rows_of_records(
    path: Path, records: Sequence[tuple[int | str, dict[str, object]]]
) -> tuple[tuple[str, ...], list[TableRow]]:
    """Make rows of records: all keys are columns, and what a record lacks is None.

    Raises:
        ValueError: records have so little in common that the table would be mostly empty.
    """
    keys: dict[str, None] = {}
    for _, fields in records:
        keys |= dict.fromkeys(fields)
    held = sum(len(fields) for _, fields in records)
    if len(keys) * len(records) > _MAX_EXPANSION * held + _EXPANSION_ALLOWANCE_BYTES:
        raise ValueError(
            f"{path}: {len(records):,} rows have {len(keys):,} different keys, and each only some "
            f"of them ({format_names(keys)}): keys are names of columns, which all rows have"
        )
    return tuple(keys), [(n, tuple(fields.get(k) for k in keys)) for n, fields in records]


def _read_json(
    path: Path, encoding_errors: EncodingErrors
) -> tuple[tuple[str, ...], list[TableRow]]:
    data = _parse_json(path, _read_whole(path, encoding_errors))
    at = ""
    if isinstance(data, dict):
        fields = cast("dict[str, object]", data)
        if "data" not in fields:
            raise ValueError(
                f"{path}: a .json file must be a list of objects, or an object with such a list as "
                f"'data'; got an object with {format_names(fields)}"
            )
        data, at = fields["data"], "data"
    if not isinstance(data, list):
        raise ValueError(
            f"{path}: {at or 'the file'} must be a list of objects, got {describe_value(data)}"
        )
    found = cast("list[object]", data)
    if squad.is_squad_format(found):
        return squad.SQUAD_COLUMNS, list(squad.read_questions(found, path))
    return _rows_of_objects(found, at, path)


def _rows_of_objects(
    found: Sequence[object], at: str, path: Path
) -> tuple[tuple[str, ...], list[TableRow]]:
    for i, record in enumerate(found):
        if not isinstance(record, dict):
            raise ValueError(f"{path}: {at}[{i}] must be an object, got {describe_value(record)}")
    records = cast("Sequence[dict[str, object]]", found)
    return _rows_of_records(path, [(f"{at}[{i}]", record) for i, record in enumerate(records)])


def _read_whole(path: Path, encoding_errors: EncodingErrors) -> str:
    """Read a file that is understood only whole, if it fits into memory when it is."""
    held: list[str] = []
    size = 0
    for text in read_decoded(path, encoding_errors):
        held.append(text)
        size += len(text)
        if size > MAX_RECORD_CHARACTERS:
            raise ValueError(
                f"{path}: a .json file of more than {MAX_RECORD_CHARACTERS:,} characters; "
                "write it as .jsonl"
            )
    text = "".join(held)
    if (
        _count_json_values(text) > _MAX_JSON_VALUES
        and _count_json_values(_JSON_STRING.sub("", text)) > _MAX_JSON_VALUES
    ):
        raise ValueError(
            f"{path}: more than {_MAX_JSON_VALUES:,} values in .json; write it as .jsonl"
        )
    return text


def _count_json_values(text: str) -> int:
    return sum(map(text.count, ",[{"))


def _parse_json(path: Path, text: str) -> object:
    if is_blank(text):
        raise ValueError(f"{path}: the file is empty")
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        why = f"{error.msg} at character {error.colno} of the line"
        if error.msg == "Extra data":
            why += "; a file of one object a line is named .jsonl"
        elif error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated"):
            why += "; the file ends too early"
        raise ValueError(f"{path}:{error.lineno}: malformed JSON: {why}") from None
    except ValueError as error:  # nested too deeply, or an integer of thousands of digits
        raise ValueError(f"{path}: malformed JSON: {format_error(error)}") from None


def _read_parquet(path: Path) -> tuple[tuple[str, ...], list[TableRow]]:
    require_module("pyarrow", "reading .parquet")
    from pyarrow import parquet

    source: Any = path if compression_suffix(path) is None else io.BytesIO(_decompressed(path))
    with arrow_errors(path):
        opened = parquet.ParquetFile(source)
        schema = opened.schema_arrow
        names = tuple(schema.names)
        strings = _string_columns(opened)
        # Strings stay as they are stored, each once, until it is known how much they are; for
        # those in lists and tables Arrow cannot do so, and few rows are read at a time.
        stored = parquet.ParquetFile(source, read_dictionary=[n for n in names if n in strings])
    nested = [name for name in names if any(s.startswith(f"{name}.") for s in strings)]
    if len(set(names)) < len(names):  # which cannot be read by their names
        nested = list(names)
    columns: list[list[object]] = [[] for _ in names]
    budget = ExpansionBudget(path, _MAX_WHOLE_FILE_BYTES)
    for file, some, rows in (
        (stored, [name for name in names if name not in nested], _PARQUET_ROWS),
        (opened, nested, _MIN_PARQUET_ROWS),
    ):
        places = [i for i, name in enumerate(names) if name in some]
        for batch in _parquet_batches(path, file, some, rows):
            for i, values in zip(places, batch.columns, strict=True):
                with arrow_errors(path):
                    size = expanded_string_bytes(values)
                budget.spend(size)
                with arrow_errors(path):
                    columns[i] += values.cast(schema.types[i]).to_pylist()
    found = class_names(schema.metadata, path)
    for name, classes in found.items():
        for at in (i for i, column in enumerate(names) if column == name):
            columns[at] = [
                replace_class_numbers(value, classes, name, f"{path}:{i}")
                for i, value in enumerate(columns[at], 1)
            ]
    rows_of = zip(*columns, strict=True)
    return names, [(i, row) for i, row in enumerate(rows_of, 1)]


def _parquet_batches(path: Path, file: Any, columns: Sequence[str], rows: int) -> Iterator[Any]:
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


def _decompressed(path: Path) -> bytes:
    """Unpack a file that is read from its end, up to a limit."""
    held: list[bytes] = []
    size = 0
    for piece in read_decompressed(path):
        held.append(piece)
        size += len(piece)
        if size > MAX_FILE_BYTES:
            raise ValueError(
                f"{path}: more than {MAX_FILE_BYTES:,} bytes unpacked; unpack it first"
            )
    return b"".join(held)


def _string_columns(parquet_file: Any) -> list[str]:
    """List the columns of strings as Parquet calls them, those in others by their ways: "a.b"."""
    columns = [parquet_file.schema.column(i) for i in range(len(parquet_file.schema))]
    return [one.path for one in columns if one.physical_type == "BYTE_ARRAY"]


def expanded_string_bytes(values: Any) -> int:
    """Return how many bytes the strings of an Arrow array are, each as often as it stands there."""
    import pyarrow
    from pyarrow import compute, types

    kind = values.type
    if types.is_dictionary(kind):
        sizes = compute.call_function("binary_length", [values.dictionary])
        return compute.call_function("sum", [sizes.take(values.indices)]).as_py() or 0
    if types.is_struct(kind):
        return sum(expanded_string_bytes(values.field(i)) for i in range(kind.num_fields))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return 8 * len(values) + expanded_string_bytes(values.flatten())
    if types.is_map(kind):
        return expanded_string_bytes(values.keys) + expanded_string_bytes(values.items)
    assert isinstance(values, pyarrow.Array)
    return int(values.nbytes) + 8 * len(values)
