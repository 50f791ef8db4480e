"""Tables: every format gives the same columns; each mistake is one line with its location."""

import csv
import gzip
import io
import json
import lzma
import tracemalloc
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.tasks.readers import json_tables, squad
from unmask.tasks.readers.tables import read_table
from unmask.text.formats import records

SHARED = Path(__file__).parents[3] / "shared" / "data"
ROWS = [("a b", "x"), ("c, d", "y"), ('"e" f', "x")]


def write(folder: Path, name: str, data: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def fails(path: Path, message: str, **options) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read_table(path, **options)
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
        table = read_table(path)
        assert list(zip(table.column("text"), table.column("label"), strict=True)) == ROWS, path


field = st.text(st.sampled_from('ab,"\n é'), max_size=6)


@given(st.lists(st.lists(field, min_size=2, max_size=2), min_size=1, max_size=6), st.booleans())
def test_csv_written_by_python_reads_back(tmp_path_factory, rows, always) -> None:
    out = io.StringIO()
    quoting = csv.QUOTE_ALL if always else csv.QUOTE_MINIMAL
    csv.writer(out, quoting=quoting, lineterminator="\n").writerows([["x", "y"], *rows])
    path = write(tmp_path_factory.mktemp("csv"), "a.csv", out.getvalue())
    assert [list(fields) for _, fields in read_table(path).rows] == rows


def test_tsv_quotes_are_plain_characters(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", 'text\tlabel\nsay "hi\t1\n"a\t0\n')
    assert read_table(path).column("text") == ['say "hi', '"a']


def test_line_numbers_are_those_of_an_editor(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'text,label\n"two\nlines",1\n\nlast,0\n')
    table = read_table(path)
    assert [table.location(i).rsplit(":", 1)[1] for i in range(2)] == ["2", "5"]


def test_file_without_header_gets_column_names(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "ham\thello there\nspam\tprize\n")
    assert read_table(path, header=("label", "text")).column("text") == ["hello there", "prize"]


def test_txt_lines_are_texts(tmp_path: Path) -> None:
    assert read_table(write(tmp_path, "a.txt", "one\n\ntwo\n")).column("text") == ["one", "two"]


def test_missing_json_key_is_none(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{"text": "a"}\n{"label": 1, "text": "b"}\n')
    assert read_table(path).column("label") == [None, 1]


def test_conll_sentences_are_rows(tmp_path: Path) -> None:
    text = "-DOCSTART- X O\n\nEU NNP B-ORG\nrejects VBZ O\n\n\n# NN O\n"
    table = read_table(write(tmp_path, "a.txt", text), word_per_line=True)
    assert table.columns == ("words", "2", "3")
    assert table.column("words") == [["EU", "rejects"], ["#"]]
    assert table.column("3") == [["B-ORG", "O"], ["O"]]
    assert table.location(1).endswith(":7")


@pytest.mark.parametrize("parted", ["\t", " "])
@pytest.mark.parametrize(
    "word", ["#newparents", "#newdoc", "#a=b", "#", "#newpar", "#global.x", "##"]
)
@pytest.mark.parametrize("starts", [True, False])
def test_words_may_start_with_a_hash(tmp_path, word, parted, starts) -> None:
    """Many tweets contain them; feature columns have values such as Case=Nom."""
    for tag in ("O", "Case=Nom"):
        rows = [f"{word}{parted}{tag}", f"some{parted}O", f"other{parted}Case=Nom"]
        rows = rows if starts else [rows[1], rows[2], rows[0]]
        table = read_table(write(tmp_path, "a.conll", "\n".join(rows) + "\n\nlast O\n"))
        assert sorted(table.column("words")[0]) == sorted([word, "some", "other"])
        assert len(table.column("words")) == 2


@pytest.mark.parametrize(
    "comment",
    ["# newdoc", "# newdoc id = a", "# newpar", "# sent_id = 1", "# text = a b c", "# text = a\tb",
     "# global.columns = A B", "# "],
)  # fmt: skip
def test_comments_before_a_sentence_are_skipped(tmp_path, comment) -> None:
    path = write(tmp_path, "a.conll", f"{comment}\na B\nb O\n\n{comment}\n{comment}\n# O\nc B\n")
    table = read_table(path)
    assert table.column("words") == [["a", "b"], ["#", "c"]]
    assert [table.location(i)[-2:] for i in (0, 1)] == [":2", ":7"]


def test_hash_line_within_a_sentence_is_no_comment(tmp_path) -> None:
    fails(write(tmp_path, "a.conll", "a O\n# sent_id = 2\nb O\n"), r"a\.conll:2: 4 fields")


@pytest.mark.parametrize("space", ["\u00a0", "\u3000", "\u2009", "\u202f", "\x0b", "\x0c", "\x85"])
@pytest.mark.parametrize("parted", ["\t", " ", "  "])
def test_only_spaces_and_tabs_separate_columns(tmp_path, space, parted) -> None:
    word = f"10{space}000"
    path = write(tmp_path, "a.conll", f"{word}{parted}B\nx{parted}O\n{space}{parted}O\n")
    assert read_table(path).column("words") == [[word, "x", space]]
    name = unicodedata.name(space, "a control character")
    fails(
        write(tmp_path, "b.conll", f"x O\ny{space}O\n"),
        rf"b\.conll:2: 1 field, .*; only spaces and tabs separate columns, not its "
        rf"U\+{ord(space):04X} \({name}\)",
    )


@pytest.mark.parametrize("number", ["x", "0", "-1", "\uff11", "1-", "1.0", "01", ""])
def test_conllu_ids_are_numbers_ranges_or_empty_nodes(tmp_path, number) -> None:
    line = "\t".join([number, "a", *["_"] * 8])
    fails(write(tmp_path, "a.conllu", f"# newdoc\n{line}\n"), r"a\.conllu:2: a word's id must be")


def test_conllu_ranges_and_empty_nodes_are_skipped(tmp_path: Path) -> None:
    def line(i, form, tag):
        return "\t".join([i, form, "_", tag, *["_"] * 6])

    rows = [line("1-2", "im", "_"), line("1", "in", "ADP"), line("2", "dem", "DET"),
            line("2.1", "x", "VERB"), line("3", "New York", "PROPN")]  # fmt: skip
    path = write(tmp_path, "a.conllu", "# sent_id = 1\n# text\n" + "\n".join(rows) + "\n\n")
    table = read_table(path)
    assert table.column("form") == [["in", "dem", "New York"]]
    assert table.column("upos") == [["ADP", "DET", "PROPN"]]


@pytest.mark.trials("mistakes")
@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.tsv", "", r"a\.tsv: the file is empty"),
        ("a.tsv", "\n \n", r"a\.tsv: the file is empty"),
        ("a.tsv", "text\tlabel\n", r"a\.tsv: has a header but no rows"),
        ("a.tsv", "text\tlabel\na\t1\nb\n", r"a\.tsv:3: 1 field, but there are 2 columns"),
        ("a.csv", "text,label\na,1\nb,c,1\n", r"a\.csv:3: 3 fields, but there are 2 columns"),
        ("a.csv", 'text,label\n"a" b,1\n', r"a\.csv:2: a field goes on after its closing quote"),
        ("a.csv", 'text,label\na,1\n"b,1\nc,0\n', r"a\.csv:3: a quote opens a field"),
        ("a.jsonl", '{"a": 1}\n{"a": \n', r"a\.jsonl:2: malformed JSON"),
        ("a.jsonl", "[" * 100_000, r"a\.jsonl:1: malformed JSON"),
        ("a.jsonl", "[1]\n", r"a\.jsonl:1: a line of \.jsonl must be an object"),
        (
            "a.json",
            '[{"a": 1, "a": 2}]',
            r"a\.json: malformed JSON: an object has the key 'a' twice",
        ),
        ("a.jsonl", "[\n", r"a\.jsonl:1: malformed JSON.*one whole object a line"),
        ("a.tsv", b"text\tlabel\n\xff\t1\n", r"a\.tsv:2: invalid UTF-8"),
        ("a.tsv", "text\tlabel\na\0\t1\n", r"a\.tsv:2: a NUL"),
        ("a.tsv.gz", b"no gzip", r"a\.tsv\.gz: .*damaged"),
        ("a.parquet", b"PAR1 no", r"a\.parquet: damaged, or not Parquet"),
        ("a.xls", "x", r"a\.xls: a spreadsheet: save its sheet as CSV UTF-8"),
        ("a.doc", "x", r"a\.doc: the name must end in \.tsv"),
        ("a.conllu", "1\tEU\n", r"a\.conllu:1: 2 fields, but a word of \.conllu has 10"),
        ("a.conll", "EU B\nx\n", r"a\.conll:2: 1 field, but there are 2 columns"),
    ],
)
def test_each_mistake_is_one_line_with_its_place(tmp_path, name, data, message) -> None:
    fails(write(tmp_path, name, data), message)


def test_missing_file_or_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.tsv: no such file"):
        read_table(tmp_path / "none.tsv")
    fails(tmp_path, "must be a file, not a folder")
    fails(Path("/dev/null"), "must be a file, not a pipe or a device")


def test_missing_column_is_named_with_the_available(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "a.tsv", "text\tlabel\tlabel\na\t1\t1\n"))
    with pytest.raises(ValueError, match=r"no column 'x' \(columns: 'text', 'label', 'label'\)"):
        table.column("x")
    with pytest.raises(ValueError, match="2 columns 'label'"):
        table.column("label")


def test_invalid_utf8_can_be_replaced(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", b"text\tlabel\n\xff\t1\n")
    assert read_table(path, encoding_errors="replace").column("text") == ["\ufffd"]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data are not here")
@pytest.mark.parametrize(
    ("name", "n"),
    [("CoLA/dev.tsv", 527), ("MRPC/dev.tsv", 408), ("STS-B/dev.tsv", 1500), ("RTE/dev.tsv", 277),
     ("WNLI/train.tsv", 635), ("QNLI/dev.tsv.xz", 5463), ("SST-2/dev.tsv", 872)],
)  # fmt: skip
def test_glue_has_published_number_of_rows(name: str, n: int) -> None:
    assert len(read_table(SHARED / "glue" / name)) == n


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data are not here")
def test_conll_2003_has_published_sentences_and_words() -> None:
    table = read_table(SHARED / "conll2003" / "testb.txt.xz", word_per_line=True)
    assert len(table) == 3453
    assert sum(len(words) for words in table.column("words")) == 46_435


ASKED = {
    "version": "v2.0",
    "data": [
        {
            "title": "Rivers",
            "paragraphs": [
                {
                    "context": "The Rhine flows north.",
                    "qas": [
                        {
                            "id": "q1",
                            "question": "Where does the Rhine flow?",
                            "answers": [{"text": "north", "answer_start": 16}],
                            "is_impossible": False,
                        },
                        {"id": "q2", "question": "Why?", "answers": [], "is_impossible": True},
                    ],
                },
            ],
        },
        {"paragraphs": [{"context": "Empty.", "qas": [{"question": "What?"}]}]},
    ],
}


def test_each_squad_question_is_a_row(tmp_path: Path) -> None:
    text = json.dumps(ASKED, indent=1)
    for name, data in (("a.json", text.encode()), ("a.json.xz", lzma.compress(text.encode()))):
        table = read_table(write(tmp_path, name, data))
        assert table.columns == squad.SQUAD_COLUMNS
        assert table.column("id") == ["q1", "q2", None]
        assert table.column("title") == ["Rivers", "Rivers", None]
        assert table.column("context")[1:] == ["The Rhine flows north.", "Empty."]
        assert table.column("question")[2] == "What?"
        assert table.column("answers") == [[{"text": "north", "answer_start": 16}], [], None]
        assert table.column("is_impossible") == [False, True, None]


def test_question_is_located_by_id_or_path(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "a.json", json.dumps(ASKED)))
    assert table.location(1) == f"{table.path}: question 'q2'"
    assert table.location(2) == f"{table.path}: data[1].paragraphs[0].qas[0]"


def test_context_is_shared_by_its_questions(tmp_path: Path) -> None:
    first, second = read_table(write(tmp_path, "a.json", json.dumps(ASKED))).column("context")[:2]
    assert first is second


@pytest.mark.parametrize("wrapped", [False, True])
def test_list_of_objects_is_rows(tmp_path: Path, wrapped: bool) -> None:
    rows = [{"text": "a", "label": 1}, {"text": "b", "more": [1]}]
    table = read_table(write(tmp_path, "a.json", json.dumps({"data": rows} if wrapped else rows)))
    assert table.columns == ("text", "label", "more")
    assert table.column("label") == [1, None]
    assert table.location(1) == f"{table.path}: {'data' if wrapped else ''}[1]"


def damaged(way: list[str | int], value: object) -> str:
    """Write `ASKED` with something else, or nothing, at the end of a way through it."""
    copy = json.loads(json.dumps(ASKED))
    *before, last = way
    held = copy
    for step in before:
        held = held[step]
    held[last] = value
    if value is None:
        del held[last]
    return json.dumps(copy)


QAS = ["data", 0, "paragraphs", 0, "qas"]


@pytest.mark.trials("mistakes")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"a\.json: the file is empty"),
        ("[]", r"a\.json: the file has no rows"),
        (json.dumps({"data": ASKED["data"] * 2}), r"a\.json: two questions have the id '"),
        ('{"data": []}', r"a\.json: the file has no rows"),
        (json.dumps(ASKED, indent=1)[:200], r"a\.json:\d+: malformed JSON: .* ends too early"),
        (json.dumps(ASKED)[:-1], r"a\.json:1: malformed JSON: .* ends too early"),
        ('{"a": 1}\n{"a": 2}\n', r"a\.json:2: malformed JSON: Extra data.* is named \.jsonl"),
        ("[" * 100_000, r"a\.json: malformed JSON: nested too deeply"),
        ("7", r"a\.json: the file must be a list of objects, got int 7"),
        ('{"rows": []}', r"a\.json: a \.json file must be .* as 'data'; got an object with 'rows'"),
        ('{"data": {"a": 1}}', r"a\.json: data must be a list of objects, got dict"),
        ('[{"a": 1}, 2]', r"a\.json: \[1\] must be an object, got int 2"),
        (damaged(["data", 1], 3), r"a\.json: data\[1\] must be an object, got int 3"),
        (damaged(["data", 1, "paragraphs"], None), r"data\[1\] lacks 'paragraphs' \(it has none\)"),
        (damaged(["data", 0, "title"], 5), r"data\[0\]\.title must be text, got int 5"),
        (damaged(QAS, {}), r"data\[0\]\.paragraphs\[0\]\.qas must be a list, got dict"),
        (damaged([*QAS[:-1], "context"], 1), r"paragraphs\[0\]\.context must be text, got int 1"),
        (damaged([*QAS, 1], "x"), r"data\[0\]\.paragraphs\[0\]\.qas\[1\] must be an object"),
        (damaged([*QAS, 1, "question"], None), r"paragraphs\[0\]\.qas\[1\] lacks 'question'"),
        (damaged([*QAS, 1, "id"], [1]), r"qas\[1\]\.id must be text, got list"),
        (damaged([*QAS, 1, "is_impossible"], 0), r"qas\[1\]\.is_impossible must be true or false"),
        (damaged([*QAS, 0, "answers"], "north"), r"qas\[0\]\.answers must be a list, got str"),
        (damaged([*QAS, 0, "answers", 0], "north"), r"answers\[0\] must be an object, got str"),
        (
            damaged([*QAS, 0, "answers", 0, "answer_start"], "16"),
            r"qas\[0\]\.answers\[0\]\.answer_start must be a character index.*got str '16'",
        ),
    ],
)
def test_each_json_mistake_names_its_path(tmp_path: Path, text: str, message: str) -> None:
    fails(write(tmp_path, "a.json", text), message)


def test_oversized_json_file_is_an_error(tmp_path: Path, monkeypatch) -> None:
    path = write(tmp_path, "a.json", json.dumps([{"text": "a, b, c"}] * 9))
    monkeypatch.setattr(json_tables, "_MAX_JSON_VALUES", 27)
    assert len(read_table(path)) == 9  # commas within texts do not count
    monkeypatch.setattr(json_tables, "_MAX_JSON_VALUES", 17)
    fails(path, r"a\.json: more than 17 values in \.json; write it as \.jsonl")
    monkeypatch.setattr(records, "MAX_RECORD_CHARACTERS", 100)
    fails(path, r"a\.json: a \.json file of more than 100 characters; write it as \.jsonl")


def test_both_answer_formats_are_read() -> None:
    pairs = [("north", 16), ("The Rhine", 0)]
    nested = [{"text": text, "answer_start": start} for text, start in pairs]
    flat = {"text": [text for text, _ in pairs], "answer_start": [start for _, start in pairs]}
    assert squad.parse_answers(nested, "a:1") == squad.parse_answers(flat, "a:1") == pairs
    assert (
        squad.parse_answers([], "a:1")
        == squad.parse_answers({"text": [], "answer_start": []}, "")
        == []
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, r"a:1: answers must be a list of objects .*; there is none"),
        ("north", r"a:1: answers must be a list of objects .*; got str 'north'"),
        ({"text": ["a"]}, r"a:1: answers lacks 'answer_start' \(it has 'text'\)"),
        ({"text": "a", "answer_start": [1]}, r"a:1: answers\.text must be a list, got str 'a'"),
        ({"text": ["a"], "answer_start": []}, r"a:1: answers: 1 texts, but 0 in 'answer_start'"),
        ({"text": ["a"], "answer_start": [-1]}, r"a:1: answers\[0\]\.answer_start .* got int -1"),
        ([{"text": 1, "answer_start": 1}], r"a:1: answers\[0\]\.text must be text, got int 1"),
        ([{"text": "a", "answer_start": True}], r"a:1: answers\[0\]\.answer_start .* got bool"),
        ([{"text": "\0", "answer_start": 1}], r"a:1: answers\[0\]: a NUL"),
    ],
)
def test_malformed_answers_are_one_line(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        squad.parse_answers(value, "a:1")


def test_parquet_columns_may_share_paths_and_hold_views(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    views = pyarrow.array(["x", None], pyarrow.string_view())
    table = pyarrow.table({"a.b": views, "a": [{"b": "y"}, None], "c": views})
    parquet.write_table(table, tmp_path / "x.parquet")
    found = read_table(tmp_path / "x.parquet")
    assert found.columns == ("a.b", "a", "c")
    assert [fields for _, fields in found.rows] == [("x", {"b": "y"}, "x"), (None, None, None)]


def test_parquet_class_labels_use_names_of_the_file(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    def classes(*names: str) -> dict[str, object]:
        return {"names": list(names), "_type": "ClassLabel"}

    features = {
        "label": classes("bad", "good"),
        "tags": {"feature": classes("O", "B-PER"), "_type": "List"},
        "old": [classes("x", "y")],
        "n": {"dtype": "int64", "_type": "Value"},
        "parts": {"text": {"feature": {"dtype": "string", "_type": "Value"}, "_type": "List"}},
    }
    columns = {
        "label": [1, 0, -1],
        "tags": [[0, 1], [], [1]],
        "old": [[1], [0], [0]],
        "n": [1, 0, -1],
        "parts": [{"text": ["a"]}] * 3,
    }
    metadata = json.dumps({"info": {"features": features}})
    table = pyarrow.table(columns).replace_schema_metadata({"huggingface": metadata})
    parquet.write_table(table, tmp_path / "a.parquet")
    found = read_table(tmp_path / "a.parquet")
    assert found.column("label") == ["good", "bad", None]
    assert found.column("tags") == [["O", "B-PER"], [], ["B-PER"]]
    assert found.column("old") == [["y"], ["x"], ["x"]]
    assert found.column("n") == [1, 0, -1]
    columns["label"][1] = 2
    table = pyarrow.table(columns).replace_schema_metadata({"huggingface": metadata})
    parquet.write_table(table, tmp_path / "a.parquet")
    fails(tmp_path / "a.parquet", r"a\.parquet:2: 'label' must be a class from 0 to 1, got int 2")
    table = table.replace_schema_metadata({"huggingface": '{"info": []}'})
    parquet.write_table(table, tmp_path / "a.parquet")
    fails(tmp_path / "a.parquet", r"a\.parquet: its metadata 'huggingface' are damaged")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data are not here")
@pytest.mark.parametrize(
    ("name", "n"),
    [("qa_squadshifts_wiki/dev", 1857),
     ("xquad/xquad.en", 1190), ("xquad/xquad.de", 1190), ("xquad/xquad.es", 1190)],
)  # fmt: skip
def test_squad_like_files_have_published_number_of_questions(name: str, n: int) -> None:
    table = read_table(SHARED / f"{name}.json.xz")
    assert len(table) == n
    pairs = zip(table.column("context"), table.column("answers"), strict=True)
    for i, (context, answers) in enumerate(pairs):
        assert isinstance(context, str)
        for text, start in squad.parse_answers(answers, table.location(i)):
            assert context[start : start + len(text)] == text, table.location(i)


@pytest.mark.parametrize("ending", ["jsonl", "json"])
def test_json_rows_of_distinct_keys_are_refused_early(tmp_path: Path, ending: str) -> None:
    """Their table would be the square of the file: 3,000 rows, nine million fields."""
    rows = [f'{{"key{i}": {i}}}' for i in range(3000)]
    data = "[" + ",".join(rows) + "]" if ending == "json" else "\n".join(rows)
    fails(write(tmp_path, f"a.{ending}", data), "3,000 rows have 3,000 different keys")
    some = [f'{{"key{i % 40}": {i}}}' for i in range(3000)]  # few in each row, and the same
    data = "[" + ",".join(some) + "]" if ending == "json" else "\n".join(some)
    assert len(read_table(write(tmp_path, f"b.{ending}", data)).columns) == 40


@pytest.mark.sample(1)
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_repeated_long_parquet_text_is_refused_early(
    tmp_path: Path, nested: bool, packed: bool
) -> None:
    """400 MB of text in a file of some kilobytes."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    one = pyarrow.array(["x" * 2_000_000])
    many = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 200, pyarrow.int32()), one)
    if nested:
        many = pyarrow.ListArray.from_arrays(list(range(201)), many.cast(pyarrow.string()))
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": many}), path, row_group_size=50)
    if packed:
        data = gzip.compress(path.read_bytes())
        path = write(tmp_path, "a.parquet.gz", data)
    tracemalloc.start()
    fails(path, r"expands more than 250 times, to over 268,435,456 bytes")
    assert tracemalloc.get_traced_memory()[1] < 2**29
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "data", "output"),
    [
        ("a.csv", "text;label\na;b\n", "parted by semicolons in 'text;label', not by commas"),
        ("a.csv", "text\tlabel\na\tb\n", "parted by tabs in .*: name it .tsv"),
        ("a.tsv", "text,label\na,b\n", "parted by commas in .*: name it .csv"),
        ("a.tsv.gz", gzip.compress(b"text|label\na|b\n", mtime=0), "parted by vertical bars"),
        ("a.csv", "text,label\na;b\n", "parted by semicolons in 'a;b'"),
    ],
)
def test_wrong_delimiter_is_reported(tmp_path, name, data, output) -> None:
    fails(write(tmp_path, name, data), output)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.tsv", "text\tlabel\n\na\tx\n\t\nb\ty\n\n\n", "2, 4"),
        ("a.csv", 'text,label\n\n"a\n\nb",x\n \n\nb,y\n\n', "2, 6-7 (3 lines)"),
        ("a.jsonl", '\n{"text": "a"}\n \n{"text": "b"}\n\n', "1, 3"),
        ("a.txt", "\na\n \nb\n\n", "1, 3"),
        ("a.txt.gz", gzip.compress(b"\na\n \nb\n\n", mtime=0), "1, 3"),
        ("b.tsv", "text\tlabel\na\tx\nb\ty\n\n\n", None),
        ("a.json", '\n[{"text": "a"},\n\n{"text": "b"}]', None),
        ("a.conll", "\na\tx\n\n\nb\ty\n\n", None),
    ],
)
def test_blank_lines_before_the_last_row_are_reported(
    name: str,
    data: str | bytes,
    message: str | None,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = write(tmp_path, name, data)
    assert len(read_table(path, header=("text", "label") if name == "a.conll" else ())) == 2
    expected = [] if message is None else [f"{path}: blank lines are skipped: {message}"]
    assert caplog.messages == expected


def test_the_bundled_labels_have_names():
    rows = [len(read_table(f"demo:spoken/{split}").rows) for split in ("train", "dev", "test")]
    assert rows == [100, 400, 2904]
    with pytest.raises(FileNotFoundError, match="demo:spoken: no such bundled table, only demo:sp"):
        read_table("demo:spoken")
