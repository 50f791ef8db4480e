import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.text.formats import decompress
from unmask.text.lines import (
    BlankLines,
    EncodingErrors,
    iter_paragraphs,
    read_decoded,
    read_lines,
    split_long_text,
)


def write(folder: Path, data: bytes | str) -> Path:
    path = folder / "x.txt"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def read(path: Path, longest: int = 1000, errors: EncodingErrors = "strict") -> list[str]:
    return [text for _, text, _ in read_lines(path, longest, errors)]


@pytest.mark.parametrize(
    ("data", "expected"),
    {
        "": [],
        "a": ["a"],
        "a\n": ["a"],
        "\n": [""],
        "a\n\nb": ["a", "", "b"],
        "a\r\nb\r\n": ["a", "b"],
        "a\rb\r\rc": ["a", "b", "", "c"],
        "a\r\r\nb": ["a", "b"],
        "a\r\r\r\nb": ["a", "", "b"],
        "a\r": ["a"],
        "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g\n": ["a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g"],
        "\ufeffa\n\ufeffb": ["a", "\ufeffb"],
        "\ufeff": [],
        "   \n\u3000": ["   ", "\u3000"],
    }.items(),
)
def test_lines_end_at_newlines_and_carriage_returns_only(
    data: str, expected: list[str], tmp_path: Path
):
    assert read(write(tmp_path, data)) == expected


TEXT = st.text(st.sampled_from("ab \n\r\té€😀\u0301"), max_size=40)


@given(text=TEXT, piece=st.integers(1, 5), longest=st.integers(1, 12))
def test_lines_do_not_depend_on_buffering(
    text: str, piece: int, longest: int, tmp_path_factory: pytest.TempPathFactory
):
    path = write(tmp_path_factory.getbasetemp(), text)
    whole = list(read_lines(path, longest))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decompress, "CHUNK_BYTES", piece)
        assert list(read_lines(path, longest)) == whole


@given(text=TEXT, longest=st.integers(1, 12))
def test_splitting_loses_only_line_ends_and_white_space(
    text: str, longest: int, tmp_path_factory: pytest.TempPathFactory
):
    path = write(tmp_path_factory.getbasetemp(), text)
    found: dict[int, list[str]] = {}
    for number, part, goes_on in read_lines(path, longest):
        assert len(part) <= longest
        assert part or not goes_on
        found.setdefault(number, []).append(part)
    expected = re.sub("\r{0,2}\n|\r", "\n", text).removesuffix("\n").split("\n") if text else []
    assert list(found) == list(range(1, len(expected) + 1))
    for parts, line in zip(found.values(), expected, strict=True):
        assert "".join("".join(parts).split()) == "".join(line.split())
        assert len(line) - len("".join(parts)) <= len(parts)


@given(text=st.text(st.sampled_from("ab \u3000\u0301\u200d😀")), longest=st.integers(1, 8))
def test_each_cut_drops_at_most_one_white_space(text: str, longest: int):
    parts = list(split_long_text(text, longest))
    assert all(len(part) <= longest for part in parts)
    assert all(parts[:-1])
    pattern = r"\s?".join(map(re.escape, parts))
    assert re.fullmatch(pattern, text)


def test_cuts_prefer_white_space():
    assert list(split_long_text("the quick brown fox", 11)) == ["the quick", "brown fox"]
    assert list(split_long_text("the quick\u3000brown fox", 11)) == ["the quick", "brown fox"]
    assert list(split_long_text("undividable", 4)) == ["undi", "vida", "ble"]


def test_cuts_keep_grapheme_clusters_together():
    assert list(split_long_text("ee\u0301e", 2)) == ["e", "e\u0301", "e"]
    assert list(split_long_text("a👩\u200d🔬b", 3)) == ["a", "👩\u200d🔬", "b"]


def test_overlong_clusters_are_cut_anyway():
    parts = list(split_long_text("e" + "\u0301" * 500, 100))
    assert [len(part) for part in parts] == [100, 100, 100, 100, 100, 1]


@given(st.text(st.sampled_from("ab \n\r")))
def test_paragraphs_are_the_nonempty_lines(text: str):
    assert list(iter_paragraphs(text)) == [
        line for line in re.split("\r{0,2}\n|\r", text) if line
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("data", "where", "offset", "found"),
    [
        (b"\xff", "1", 0, "ff"),
        (b"fine\nfine\r\nbad \xe9t\xe9\n", "3", 15, "e9 74 e9 0a"),
        (b"\xef\xbb\xbfabc\xff", "1", 6, "ff"),
        (b"cut short \xf0\x9f\x98", "1", 10, "f0 9f 98"),
        (b"surrogate \xed\xa0\x80", "1", 10, "ed a0 80"),
        (b"overlong \xc0\x80", "1", 9, "c0 80"),
        ("a€😀\r".encode() * 1000 + b"\xff", "1001", 9000, "ff"),
    ],
)
@pytest.mark.parametrize("piece", [1, 3, 2**18])
def test_invalid_utf8_is_located(
    data: bytes, where: str, offset: int, found: str, piece: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    monkeypatch.setattr(decompress, "CHUNK_BYTES", piece)
    path = write(tmp_path, data)
    with pytest.raises(ValueError, match=r"invalid UTF-8") as caught:
        list(read_decoded(path))
    message = str(caught.value)
    assert message.startswith(f"{path}:{where}: invalid UTF-8 at byte offset {offset} ({found[:2]}")
    assert "--encoding-errors replace" in message
    assert "\n" not in message
    assert "\ufffd" in "".join(read_decoded(path, "replace"))


def test_common_other_encodings_are_recognized(tmp_path: Path):
    with pytest.raises(ValueError, match="looks like UTF-16"):
        list(read_decoded(write(tmp_path, "Grüße".encode("utf-16"))))
    with pytest.raises(ValueError, match=r"looks like gzip: name it \.gz"):
        list(read_decoded(write(tmp_path, b"\x1f\x8b\x08\x00abc")))


@pytest.mark.parametrize("piece", [1, 2, 2**18])
def test_nul_is_located(piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(decompress, "CHUNK_BYTES", piece)
    path = write(tmp_path, "one\r\ntwo\rthr\0ee")
    with pytest.raises(ValueError, match=r"x\.txt:3: a NUL character.*--encoding-errors replace"):
        list(read_decoded(path))
    assert read(path, errors="replace") == ["one", "two", "thr\ufffdee"]


def described(numbers: list[int], last_line: int) -> str:
    blank = BlankLines()
    for number in numbers:
        blank.add(number)
    return blank.describe(last_line)


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("numbers", "last_line", "expected"),
    [
        ([], 9, ""),
        ([3], 9, "3"),
        ([3, 4, 5, 8], 9, "3-5, 8 (4 lines)"),
        ([1, 3, 5], 6, "1, 3, 5"),
        ([1, 3, 10, 11, 12], 9, "1, 3"),  # what is behind the last text
        ([10, 11], 9, ""),
        ([*range(2, 18, 2)], 17, "2, 4, 6, 8, 10, 12, 14, 16"),
        ([*range(2, 20, 2)], 17, "2, 4, 6, 8, 10, 12, 14, 16"),
        ([*range(2, 20, 2)], 19, "2, 4, 6, 8, 10, 12, 14, 16, ... (9 lines)"),
        ([*range(2, 20, 2), 21, 22], 20, "2, 4, 6, 8, 10, 12, 14, 16, ... (9 lines)"),
        ([*range(1, 1_000_001)], 1_000_001, "1-1000000 (1,000,000 lines)"),
    ],
)
def test_blank_lines_are_listed_as_ranges(
    numbers: list[int], last_line: int, expected: str
) -> None:
    assert described(numbers, last_line) == expected
