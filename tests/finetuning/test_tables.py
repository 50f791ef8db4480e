"""Tables: every format gives the same columns, and each mistake is one line that says where."""

import csv
import gzip
import io
import json
import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.finetuning.tables import read

SHARED = Path(__file__).parents[3] / "shared" / "data"
ROWS = [("a b", "x"), ("c, d", "y"), ('"e" f', "x")]


def write(folder: Path, name: str, data: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def fails(path: Path, message: str, **options) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read(path, **options)
    assert "\n" not in str(caught.value)


def test_every_format_gives_the_same_rows(tmp_path: Path) -> None:
    import pyarrow
    import zstandard
    from pyarrow import parquet

    tsv = "text\tlabel\n" + "".join(f"{a}\t{b}\n" for a, b in ROWS)
    quoted = io.StringIO()
    csv.writer(quoted).writerows([("text", "label"), *ROWS])
    lines = "".join(json.dumps({"text": a, "label": b}) + "\n" for a, b in ROWS)
    arrow = io.BytesIO()
    table = pyarrow.table({"text": [a for a, _ in ROWS], "label": [b for _, b in ROWS]})
    parquet.write_table(table, arrow)
    paths = [
        write(tmp_path, "a.tsv", tsv),
        write(tmp_path, "a.TSV.xz", lzma.compress(tsv.encode())),
        write(tmp_path, "a.csv.gz", gzip.compress(quoted.getvalue().encode())),
        write(tmp_path, "windows.csv", "\ufeff" + quoted.getvalue().replace("\n", "\r\n")),
        write(tmp_path, "a.jsonl.zst", zstandard.compress(lines.encode())),
        write(tmp_path, "a.parquet", arrow.getvalue()),
        write(tmp_path, "a.parquet.gz", gzip.compress(arrow.getvalue())),
    ]
    for path in paths:
        table = read(path)
        assert list(zip(table.column("text"), table.column("label"), strict=True)) == ROWS, path


field = st.text(st.sampled_from('ab,"\n é'), max_size=6)


@given(st.lists(st.lists(field, min_size=2, max_size=2), min_size=1, max_size=6), st.booleans())
def test_what_python_writes_as_csv_is_read_back(tmp_path_factory, rows, always) -> None:
    out = io.StringIO()
    quoting = csv.QUOTE_ALL if always else csv.QUOTE_MINIMAL
    csv.writer(out, quoting=quoting, lineterminator="\n").writerows([["x", "y"], *rows])
    path = write(tmp_path_factory.mktemp("csv"), "a.csv", out.getvalue())
    assert [list(fields) for _, fields in read(path).rows] == rows


def test_quotes_are_plain_characters_in_tsv(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", 'text\tlabel\nsay "hi\t1\n"a\t0\n')
    assert read(path).column("text") == ['say "hi', '"a']


def test_lines_are_counted_as_an_editor_counts_them(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'text,label\n"two\nlines",1\n\nlast,0\n')
    table = read(path)
    assert [table.where(i).rsplit(":", 1)[1] for i in range(2)] == ["2", "5"]


def test_a_file_without_a_header_has_its_columns_named(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "ham\thello there\nspam\tprize\n")
    assert read(path, header=("label", "text")).column("text") == ["hello there", "prize"]


def test_lines_of_txt_are_texts(tmp_path: Path) -> None:
    assert read(write(tmp_path, "a.txt", "one\n\ntwo\n")).column("text") == ["one", "two"]


def test_a_key_that_a_json_line_lacks_is_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{"text": "a"}\n{"label": 1, "text": "b"}\n')
    assert read(path).column("label") == [None, 1]


def test_sentences_of_conll_are_rows(tmp_path: Path) -> None:
    text = "-DOCSTART- X O\n\nEU NNP B-ORG\nrejects VBZ O\n\n\n# NN O\n"
    table = read(write(tmp_path, "a.txt", text), tagged=True)
    assert table.columns == ("words", "2", "3")
    assert table.column("words") == [["EU", "rejects"], ["#"]]
    assert table.column("3") == [["B-ORG", "O"], ["O"]]
    assert table.where(1).endswith(":7")


def test_words_of_conllu_are_read_without_ranges_and_empty_nodes(tmp_path: Path) -> None:
    def line(i, form, tag):
        return "\t".join([i, form, "_", tag, *["_"] * 6])

    rows = [line("1-2", "im", "_"), line("1", "in", "ADP"), line("2", "dem", "DET"),
            line("2.1", "x", "VERB"), line("3", "New York", "PROPN")]  # fmt: skip
    path = write(tmp_path, "a.conllu", "# sent_id = 1\n# text\n" + "\n".join(rows) + "\n\n")
    table = read(path)
    assert table.column("form") == [["in", "dem", "New York"]]
    assert table.column("upos") == [["ADP", "DET", "PROPN"]]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.tsv", "", r"a\.tsv: the file is empty"),
        ("a.tsv", "\n \n", r"a\.tsv: the file is empty"),
        ("a.tsv", "text\tlabel\n", r"a\.tsv: has a header but no rows"),
        ("a.tsv", "text\tlabel\na\t1\nb\n", r"a\.tsv:3: 1 field, but there are 2 columns"),
        ("a.csv", "text,label\na,1\nb,c,1\n", r"a\.csv:3: 3 fields, but there are 2 columns"),
        ("a.csv", 'text,label\n"a" b,1\n', r"a\.csv:2: field 1 goes on after its closing quote"),
        ("a.csv", 'text,label\na,1\n"b,1\nc,0\n', r"a\.csv:3: a quote opens a field"),
        ("a.jsonl", '{"a": 1}\n{"a": \n', r"a\.jsonl:2: malformed JSON"),
        ("a.jsonl", "[" * 100_000, r"a\.jsonl:1: malformed JSON"),
        ("a.jsonl", "[1]\n", r"a\.jsonl:1: a line of \.jsonl must be an object"),
        ("a.jsonl", "[\n", r"a\.jsonl:1: malformed JSON.*one whole object a line"),
        ("a.tsv", b"text\tlabel\n\xff\t1\n", r"a\.tsv:2: invalid UTF-8"),
        ("a.tsv", "text\tlabel\na\0\t1\n", r"a\.tsv:2: a NUL"),
        ("a.tsv.gz", b"no gzip", r"a\.tsv\.gz: .*damaged"),
        ("a.parquet", b"PAR1 no", r"a\.parquet: damaged, or not Parquet"),
        ("a.xlsx", "x", r"a\.xlsx: the name must end in \.tsv"),
        ("a.conllu", "1\tEU\n", r"a\.conllu:1: 2 fields, but a word of \.conllu has 10"),
        ("a.conll", "EU B\nx\n", r"a\.conll:2: 1 field, but there are 2 columns"),
    ],
)
def test_each_mistake_is_one_line_that_names_its_place(tmp_path, name, data, message) -> None:
    fails(write(tmp_path, name, data), message)


def test_a_missing_file_or_a_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.tsv: no such file"):
        read(tmp_path / "none.tsv")
    fails(tmp_path, "must be a file, not a folder")


def test_a_column_that_does_not_exist_is_named_with_those_that_do(tmp_path: Path) -> None:
    table = read(write(tmp_path, "a.tsv", "text\tlabel\tlabel\na\t1\t1\n"))
    with pytest.raises(ValueError, match=r"no column 'x' \(columns: 'text', 'label', 'label'\)"):
        table.column("x")
    with pytest.raises(ValueError, match="2 columns 'label'"):
        table.column("label")


def test_what_is_no_utf8_can_be_replaced(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", b"text\tlabel\n\xff\t1\n")
    assert read(path, errors="replace").column("text") == ["\ufffd"]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data are not here")
@pytest.mark.parametrize(
    ("name", "n"),
    [("CoLA/dev.tsv", 527), ("MRPC/dev.tsv", 408), ("STS-B/dev.tsv", 1500), ("RTE/dev.tsv", 277),
     ("WNLI/train.tsv", 635), ("QNLI/dev.tsv.xz", 5463), ("SST-2/dev.tsv", 872)],
)  # fmt: skip
def test_glue_has_as_many_rows_as_published(name: str, n: int) -> None:
    assert len(read(SHARED / "glue" / name)) == n


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data are not here")
def test_conll_2003_has_as_many_sentences_and_words_as_published() -> None:
    table = read(SHARED / "conll2003" / "testb.txt.xz", tagged=True)
    assert len(table) == 3453
    assert sum(len(words) for words in table.column("words")) == 46_435
