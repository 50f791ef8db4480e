import csv as standard
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet as arrow
from storing import compressed, stored

from unmask.text.formats import delimited, json_lines, parquet, records
from unmask.text.formats.delimited import read_delimited_column
from unmask.text.formats.json_lines import read_jsonl
from unmask.text.formats.parquet import read_parquet


def write(folder: Path, name: str, data: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass"))
    return path


def fails(records: Iterator[object], *parts: str, kind: type[Exception] = ValueError) -> str:
    """Expect one clear line."""
    with pytest.raises(kind) as caught:
        list(records)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 500
    for part in parts:
        assert part in message
    return message


# JSONL


def test_jsonl_gives_the_line_of_each_text(tmp_path: Path):
    lines = [
        '{"text": "a\\nb"}',
        "",
        '{"n": 1, "text": "c"}',
        "  ",
        '{"text": ""}',
        '{"text": null}',
        "{}",
    ]
    path = write(tmp_path, "x.jsonl", "\r\n".join(lines[:-1]))
    assert list(read_jsonl(path, "text")) == [(1, "a\nb"), (3, "c")]
    fails(
        read_jsonl(write(tmp_path, "x.jsonl", "\n".join(lines)), "text"),
        "x.jsonl:7: no column 'text'",
    )


def test_jsonl_column_can_be_named(tmp_path: Path):
    path = write(tmp_path, "x.jsonl", '{"text": 1, "body": "b"}')
    assert list(read_jsonl(path, "body")) == [(1, "b")]
    fails(read_jsonl(path, "title"), "x.jsonl:1: no column 'title', only 'text', 'body'", "--text")
    fails(read_jsonl(path, "text"), "x.jsonl:1: 'text' must be text, got int 1")


@pytest.mark.parametrize(
    ("line", "output"),
    {
        "plain text": "malformed JSON: Expecting value at character 1",
        '{"text": "open': "malformed JSON: Unterminated string",
        '{"text": "a"} {"text": "b"}': "malformed JSON: Extra data",
        '{"text": "a", "text": "b"}': "malformed JSON: an object has the key 'text' twice",
        '{"text": "a", "m": {"k": 1, "k": 1}}': "malformed JSON: an object has the key 'k' twice",
        '{"text": "tab\there"}': "malformed JSON: Invalid control character",
        "[": "one whole object a line",
        '["a"]': "must be an object, got list ['a']",
        '"a"': "must be an object, got str 'a'",
        "[" * 100_000: "malformed JSON: nested too deeply",
        '{"n": ' + "9" * 5000 + "}": "malformed JSON: Exceeds the limit",
        '{"text": {"a": 1}}': "'text' must be text, got dict {'a': 1}",
        '{"text": ["' + "a" * 10_000 + '"]}': "'text' must be text, got list ['aaa",
        json.dumps({"k" * 1000 + str(i): i for i in range(100)}): "and 80 more",
    }.items(),
)
def test_jsonl_mistake_is_named_with_its_line(line: str, output: str, tmp_path: Path):
    path = write(tmp_path, "x.jsonl", f'{{"text": "fine"}}\n{line}\n')
    if "more" in output:
        with pytest.raises(ValueError, match=output):
            list(read_jsonl(path, "text"))
    else:
        fails(read_jsonl(path, "text"), f"{path}:2: ", output)


def test_lone_surrogates_are_refused_or_replaced(tmp_path: Path):
    path = write(tmp_path, "x.jsonl", '{"text": "\\ud83d\\ude00"}\n{"text": "a\\ud800b\\udc00"}')
    fails(
        read_jsonl(path, "text"),
        "x.jsonl:2: a lone surrogate (\\ud800)",
        "--encoding-errors replace",
    )
    assert list(read_jsonl(path, "text", "replace")) == [(1, "😀"), (2, "a\ufffdb\ufffd")]


def test_escaped_nuls_are_refused_or_replaced(tmp_path: Path):
    path = write(tmp_path, "x.jsonl", '{"text": "a\\nb\\u0000c"}')
    fails(read_jsonl(path, "text"), "x.jsonl:1: a NUL character", "--encoding-errors replace")
    assert list(read_jsonl(path, "text", "replace")) == [(1, "a\nb\ufffdc")]


# CSV and TSV


FIELDS = st.text(st.sampled_from('ab",\n é😀'), max_size=10)


@given(st.lists(st.tuples(FIELDS, FIELDS), max_size=10))
def test_csv_reads_what_the_standard_library_writes(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
):
    file = io.StringIO(newline="")
    writer = standard.writer(file)
    writer.writerows([("id", "text"), *rows])
    path = write(tmp_path_factory.getbasetemp(), "x.csv", file.getvalue())
    assert [text for _, text in read_delimited_column(path, "text")] == [
        text for _, text in rows if text
    ]
    # A row of one empty and one blank field may look blank, but never with the comma between them.
    assert [text for _, text in read_delimited_column(path, "id")] == [
        text for text, _ in rows if text
    ]


def test_csv_gives_the_line_at_which_a_row_starts(tmp_path: Path):
    path = write(tmp_path, "x.csv", '\ufeffid,text\r\n\r\n1,a\r\n2,"b\r\n\r\n""c"", d"\r\n3,e')
    assert list(read_delimited_column(path, "text")) == [(3, "a"), (4, 'b\n\n"c", d'), (7, "e")]


def test_quote_within_an_unquoted_field_is_a_character(tmp_path: Path):
    path = write(tmp_path, "x.csv", 'id,text\n1,a "b" c\n2,5" disk\n3,"d"\n')
    found = [(2, 'a "b" c'), (3, '5" disk'), (4, "d")]
    assert list(read_delimited_column(path, "text")) == found


def test_csv_fields_may_be_long(tmp_path: Path):
    text = "a, " * 200_000  # the standard library refuses fields of more than 131072 characters
    path = write(tmp_path, "x.csv", f'text\n"{text}"\n')
    assert list(read_delimited_column(path, "text")) == [(2, text)]


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        ("id;text\n1;a", (": columns are parted by semicolons in 'id;text'",)),
        ("id,text,text\n1,a,b", (":1: several columns 'text'",)),
        ("id,text\n1,a\n2,b, c\n", (":3: 3 fields, but there are 2 columns ('id', 'text')",)),
        ("id,text\n1\n", (":2: 1 field, but there are 2 columns",)),
        ('id,text\n1,"b" c\n', (":2: a field goes on after its closing quote",)),
        ('id,text\n1,a\n2,"b\n3,c\n', (":3: a quote opens a field that never ends",)),
    ],
)
def test_csv_mistake_is_named_with_its_line(data: str, parts: tuple[str, ...], tmp_path: Path):
    fails(read_delimited_column(write(tmp_path, "x.csv", data), "text"), "x.csv" + parts[0])


def test_unclosed_quote_does_not_exhaust_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(records, "MAX_RECORD_CHARACTERS", 1000)
    path = write(tmp_path, "x.csv", 'id,text\n1,"' + "\n" * 10_000 + '"')
    fails(read_delimited_column(path, "text"), "x.csv:2: a quote opens a field that never ends")


@pytest.mark.parametrize("reader", [read_jsonl, read_delimited_column])
def test_record_size_is_limited(
    reader: Callable[..., Iterator[object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(records, "MAX_RECORD_CHARACTERS", 1000)
    path = write(tmp_path, "x", "a" * 5000)
    fails(reader(path, "text"), "x:1: a record of more than 1000 characters")


def test_json_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(json_lines, "_LONG_JSON_CHARACTERS", 1000)
    monkeypatch.setattr(json_lines, "_MAX_JSON_VALUES", 100)
    monkeypatch.setattr(delimited, "_MAX_FIELDS", 100)
    text = "[{,}]\\" * 500
    path = write(tmp_path, "x.jsonl", json.dumps({"text": text, "n": [1] * 90}))
    assert list(read_jsonl(path, "text")) == [(1, text)]
    path = write(tmp_path, "x.jsonl", json.dumps({"text": text, "n": [{}] * 101}))
    fails(read_jsonl(path, "text"), "x.jsonl:1: a JSON object of more than 100 values")
    path = write(tmp_path, "x.csv", "id,text\n" + "," * 10_000)
    fails(read_delimited_column(path, "text"), "x.csv:2: 10001 fields, but there are 2 columns")
    path = write(tmp_path, "x.tsv", "id\ttext\n" + "a\t" * 10_000)
    fails(read_delimited_column(path, "text"), "x.tsv:2: 101 fields, but there are 2 columns")


def test_empty_table_has_no_records(tmp_path: Path):
    for data in ("", "\n\n", "text\n"):
        assert list(read_delimited_column(write(tmp_path, "x.csv", data), "text")) == []
        assert list(read_delimited_column(write(tmp_path, "x.tsv", data), "text")) == []


def test_tsv_quotes_are_plain_characters(tmp_path: Path):
    path = write(tmp_path, "x.tsv", 'id\ttext\r\n1\t"a\r\n\r\n2\t b" "" \r\n3\t\r\n')
    assert list(read_delimited_column(path, "text")) == [(2, '"a'), (4, ' b" "" ')]
    path = write(tmp_path, "x.tsv", "id\ttext\n1\ta\tb\n")
    fails(read_delimited_column(path, "text"), "x.tsv:2: 3 fields, but there are 2 columns")
    fails(read_delimited_column(path, "body"), "x.tsv:1: no column 'body', only 'id', 'text'")


# Parquet


def parquet_of(folder: Path, array: pyarrow.Array, name: str = "text") -> Path:
    path = folder / "x.parquet"
    arrow.write_table(pyarrow.table({name: array}), path)
    return path


@pytest.mark.parametrize(
    "kind",
    [
        pyarrow.string(),
        pyarrow.large_string(),
        pyarrow.string_view(),
        pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
    ],
)
def test_parquet_reads_every_text_type(kind: pyarrow.DataType, tmp_path: Path):
    texts = ["a", None, "", "é😀\n\nb", *(f"row {i % 7}" for i in range(100))]
    path = parquet_of(tmp_path, pyarrow.array(texts).cast(kind))
    assert list(read_parquet(path, "text")) == [(i, t) for i, t in enumerate(texts, 1) if t]


def test_parquet_of_nulls_has_no_text(tmp_path: Path):
    assert list(read_parquet(parquet_of(tmp_path, pyarrow.nulls(5)), "text")) == []


def test_parquet_columns_may_have_dots(tmp_path: Path):
    path = parquet_of(tmp_path, pyarrow.array(["a"]), "body.text")
    assert list(read_parquet(path, "body.text")) == [(1, "a")]


def test_parquet_mistakes_are_one_line(tmp_path: Path):
    path = parquet_of(tmp_path, pyarrow.array([1, 2]), "n")
    fails(read_parquet(path, "text"), "x.parquet: no column 'text', only 'n'")
    fails(read_parquet(path, "n"), "x.parquet: column 'n' must be text, got int64")
    path = parquet_of(tmp_path, pyarrow.array([["a"]]))
    fails(read_parquet(path, "text"), "x.parquet: column 'text' must be text, got list<")
    fails(read_parquet(tmp_path / "y.parquet", "text"), "y.parquet", kind=FileNotFoundError)


@pytest.mark.parametrize("data", [b"", b"PAR1", b"text that is not Parquet"])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_non_parquet_file_is_refused(data: bytes, ending: str, tmp_path: Path):
    path = write(tmp_path, f"x.parquet{ending}", compressed(data, ending))
    fails(read_parquet(path, "text"), f"x.parquet{ending}: damaged, or not Parquet")


@given(share=st.floats(0, 1, exclude_max=True))
def test_truncated_parquet_is_refused(share: float, tmp_path_factory: pytest.TempPathFactory):
    data = stored(["one", "two"] * 50, ".parquet")
    path = write(tmp_path_factory.getbasetemp(), "x.parquet", data[: int(share * len(data))])
    fails(read_parquet(path, "text"), "x.parquet: damaged, or not Parquet")


def test_parquet_with_damaged_pages_is_refused(tmp_path: Path):
    data = bytearray(stored([f"text {i}" for i in range(1000)], ".parquet"))
    data[4 : len(data) // 2] = bytes(len(data) // 2 - 4)
    fails(read_parquet(write(tmp_path, "x.parquet", bytes(data)), "text"), "x.parquet: damaged")


def test_invalid_text_in_parquet_is_refused_or_replaced(tmp_path: Path):
    array = pyarrow.array([b"a", b"b\xffc", b"d\0", b"e\xed\xa0\x80"], pyarrow.binary())
    strings = pyarrow.Array.from_buffers(pyarrow.string(), len(array), array.buffers())
    path = parquet_of(tmp_path, strings)
    fails(read_parquet(path, "text"), "x.parquet:2: invalid UTF-8 at byte offset 1 of 'text'")
    replaced = [text for _, text in read_parquet(path, "text", "replace")]
    assert replaced == ["a", "b\ufffdc", "d\ufffd", "e\ufffd\ufffd\ufffd"]
    fails(read_parquet(parquet_of(tmp_path, strings[2:]), "text"), "x.parquet:1: a NUL character")


@pytest.mark.sample(1)
@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd"])
def test_repeated_long_parquet_value_is_decoded_in_small_batches(
    compression: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n, long = 40, "x" * 2**23
    indices = pyarrow.array([0] * n + [1, None], pyarrow.int32())
    array = pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array([long, "short"]))
    path = tmp_path / "x.parquet"
    arrow.write_table(
        pyarrow.table({"n": [1] * len(array), "text": array}), path, compression=compression
    )
    rows: list[int] = []
    read = arrow.ParquetFile.iter_batches

    def note(self: arrow.ParquetFile, size: int, **more: object) -> Iterator[object]:
        rows.append(size)
        return read(self, size, **more)

    monkeypatch.setattr(arrow.ParquetFile, "iter_batches", note)
    assert [len(text) for _, text in read_parquet(path, "text")] == [2**23] * n + [5]
    arrow.write_table(pyarrow.table({"text": ["short", "texts"] * 9}), path)
    assert len(list(read_parquet(path, "text"))) == 18
    assert rows == [7, 32]


@pytest.mark.parametrize("header", [b"", b"\x15", b"\x15\x80" * 8, b"\x80" * 16, b"\x15\x04\x16"])
def test_page_without_header_is_refused(header: bytes) -> None:
    with pytest.raises(ValueError, match="no header"):
        parquet._page_size(header)
