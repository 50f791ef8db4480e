"""Records of many megabytes are read in pieces: the same text, the same errors, in less memory."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unmask.text.documents import read_documents
from unmask.text.formats import json_lines, long_json, parquet
from unmask.text.formats.json_lines import read_jsonl, read_jsonl_in_pieces
from unmask.text.formats.parquet import read_parquet_in_pieces
from unmask.text.lines import with_newlines

_ODD = [
    "\\", "\\\\", '"', "\n", "\r\n", "\r", "\t", "/", "\\u0041", "\\ud83d", "\U0001f600", "é",
    "中", " ", "a", "long0", "longer0", "\u2028", "{", "}", ",", "[", "word ",
]  # fmt: skip
TEXT = st.lists(st.one_of(st.sampled_from(_ODD), st.text(max_size=4)), max_size=60).map("".join)
VALUE = st.one_of(TEXT, st.integers(), st.none(), st.lists(TEXT, max_size=2))
SLOW = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(autouse=True)
def _short_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_json, "LONG_LINE_BYTES", 20)
    monkeypatch.setattr(long_json, "_LONG_STRING_BYTES", 9)
    monkeypatch.setattr(long_json, "_PIECE_BYTES", 7)
    monkeypatch.setattr(parquet, "_PIECE_BYTES", 3)
    # A line is long where it is in several chunks of the file.
    monkeypatch.setattr("unmask.text.formats.decompress.CHUNK_BYTES", 13)


def outcome(read: object) -> object:
    """Return what is read, or the message of the error."""
    try:
        return [(n, t if isinstance(t, str) else "".join(t)) for n, t in read]  # type: ignore[attr-defined]
    except ValueError as error:
        return str(error)


@SLOW
@given(
    rows=st.lists(st.fixed_dictionaries({"text": VALUE}, optional={"long0": VALUE, "b": VALUE})),
    ascii_only=st.booleans(),
    errors=st.sampled_from(["strict", "replace"]),
)
def test_pieces_are_those_of_the_record(
    rows: list[dict[str, object]], ascii_only: bool, errors: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.jsonl"
    lines = [json.dumps(row, ensure_ascii=ascii_only) for row in rows]
    path.write_bytes("\n".join(lines).encode("utf-8", "replace"))
    whole = outcome(read_jsonl(path, "text", errors))  # type: ignore[arg-type]
    pieces = outcome(read_jsonl_in_pieces(path, "text", errors))  # type: ignore[arg-type]
    if isinstance(pieces, list):
        pieces = [(number, text) for number, text in pieces if text]
    assert pieces == whole


@pytest.mark.parametrize(
    "line",
    [
        '{"text": "a long string with a bad \\x escape in it", "b": 1}',
        '{"text": "a long string that is cut off \\u12"}',
        '{"text": "a long string that ends nowhere',
        '{"text": "a long string with a \x01 control character"}',
        '{"text": "a long string" "and another long string"}',
        '{"other": "a long string that is in another column"}',
        '{"text": "a long string twice", "text": "a long string twice"}',
        '["a long string in a list, which is no object"]',
        '"a long string alone, which is no object"',
        '{"text": ["a long string in a list, which is no text"]}',
        '{"text": "a long string with half of a pair \\ud83d and more"}',
        '{"text": "a long string with half of a pair \\\\\\ud83d"}',
        '{"text": "a long string with a NUL \\u0000 in it"}',
    ],
)
def test_errors_are_those_of_the_record(line: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(f'{{"text": "first"}}\n{line}\n', encoding="utf-8")
    whole = outcome(read_jsonl(path, "text"))
    assert isinstance(whole, str)
    assert outcome(read_jsonl_in_pieces(path, "text")) == whole


def test_record_beyond_the_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_lines, "MAX_RECORD_CHARACTERS", 100)
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "a"}\n{"text": "' + "b" * 200 + '"}\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"x\.jsonl:2: a record of more than"):
        list(read_jsonl_in_pieces(path, "text"))


@SLOW
@given(texts=st.lists(st.one_of(TEXT, st.none())), longest=st.integers(1, 30))
def test_documents_do_not_depend_on_the_format(
    texts: list[str | None], longest: int, tmp_path: Path
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet as arrow_parquet

    texts = [None if t is None else t.encode("utf-8", "replace").decode() for t in texts]
    files = [tmp_path / "x.jsonl", tmp_path / "x.parquet"]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    files[0].write_text(lines, encoding="utf-8")
    table = pyarrow.table({"text": pyarrow.array(texts, pyarrow.string())})
    arrow_parquet.write_table(table, files[1])
    found = [outcome(_documents(file, longest)) for file in files]
    if isinstance(found[0], list):
        assert found[0] == found[1]
        assert all(len(text) <= longest for _, text in found[0])
    else:
        assert isinstance(found[1], str)
    read = outcome(read_parquet_in_pieces(files[1], "text", "replace"))
    assert read == [(i, (t or "").replace("\0", "\ufffd")) for i, t in enumerate(texts, 1)]


def _documents(file: Path, longest: int) -> Iterator[tuple[int, str]]:
    found = read_documents(file, max_characters=longest, encoding_errors="replace")
    yield from ((int(d.location.rpartition(":")[2]), d.text) for d in found)


@given(st.lists(st.text("\r\nab", max_size=4)))
def test_line_ends_may_be_cut(pieces: list[str]) -> None:
    whole = "".join(with_newlines(["".join(pieces)]))
    assert "".join(with_newlines(pieces)) == whole
    assert "\r" not in whole


@pytest.mark.slow
def test_record_of_100_megabytes_takes_little_more_than_its_line(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    words = 'Ein Satz mit Wörtern und \\"Zeichen\\" – auch 中文.\\n'
    path.write_text('{"text": "' + words * (10**8 // len(words.encode())) + '"}', "utf-8")
    code = (
        "import resource, sys\n"
        "from unmask.text.documents import read_documents\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "n = sum(len(d.text) for d in read_documents(sys.argv[1]))\n"
        "print(n, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], check=True, capture_output=True, text=True
    )
    n, more = map(int, done.stdout.split())
    assert n > 8 * 10**7
    assert more < 220 * 1024  # of KiB; the line alone has 98 MiB
