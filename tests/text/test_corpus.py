import gzip
import itertools
import logging
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storing import COMPRESSIONS, FORMATS, write

from unmask.bundled.demo import bundled_path
from unmask.text.documents import Document, read_documents

NAMES = [f"x{inner}{outer}" for inner in FORMATS for outer in COMPRESSIONS]


def texts(sources: str | Path | Sequence[str | Path], **how: Any) -> list[str]:
    return [document.text for document in read_documents(sources, **how)]


def plain(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def fails(sources: Any, *parts: str, kind: type[Exception] = ValueError, **how: Any) -> None:
    """Expect one clear line, at the latest when the documents are read."""
    with pytest.raises(kind) as caught:
        list(read_documents(sources, **how))
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


# Whatever they are stored in


PARAGRAPHS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n"), min_size=1
)
DOCUMENTS = st.lists(
    st.lists(
        PARAGRAPHS.filter(lambda p: not p.isspace() and p[0] != "\ufeff"), min_size=1, max_size=4
    ),
    min_size=1,
    max_size=5,
)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)  # pyarrow's import is in the first
@given(found=DOCUMENTS)
def test_documents_round_trip(
    name: str, found: list[list[str]], tmp_path_factory: pytest.TempPathFactory
):
    expected = ["\n".join(paragraphs) for paragraphs in found]
    assert texts(write(tmp_path_factory.getbasetemp() / name, expected)) == expected


@given(found=DOCUMENTS, max_characters=st.integers(1, 20))
@pytest.mark.parametrize("name", ["x.txt", "x.jsonl"])
def test_long_documents_are_split_without_loss(
    name: str, found: list[list[str]], max_characters: int, tmp_path_factory: pytest.TempPathFactory
):
    expected = ["\n".join(paragraphs) for paragraphs in found]
    path = write(tmp_path_factory.getbasetemp() / name, expected)
    parts = texts(path, max_characters=max_characters)
    assert all(1 <= len(part) <= max_characters for part in parts)
    assert not any(part.isspace() for part in parts)
    assert "".join("".join(parts).split()) == "".join("".join(expected).split())


def test_long_documents_are_split_at_paragraphs_or_white_space(tmp_path: Path):
    path = plain(tmp_path / "x.txt", "aaa\nbbb\nccc ddd eee fff ggg\nh\ni\n\nj")
    assert list(read_documents(path, max_characters=11)) == [
        Document("aaa\nbbb", f"{path}:1"),
        Document("ccc ddd eee", f"{path}:3"),
        Document("fff ggg\nh\ni", f"{path}:3"),
        Document("j", f"{path}:7"),
    ]


# Plain text


TEXT = "\n \nTitle\n  First. \n\u3000\n\n\nSecond.\r\nThird.\n\t\nFourth."


def test_blank_lines_separate_documents(tmp_path: Path):
    path = plain(tmp_path / "x.txt", TEXT)
    assert list(read_documents([path])) == [
        Document("Title\n  First. ", f"{path}:3"),
        Document("Second.\nThird.", f"{path}:8"),
        Document("Fourth.", f"{path}:11"),
    ]


def test_document_may_be_a_line_or_a_file(tmp_path: Path):
    path = plain(tmp_path / "x.txt", TEXT)
    lines = ["Title", "  First. ", "Second.", "Third.", "Fourth."]
    assert texts(path, document_separator="line") == lines
    assert texts(path, document_separator="file") == ["\n".join(lines)]
    where = [document.location for document in read_documents(path, document_separator="line")]
    assert where == [f"{path}:{line}" for line in (3, 4, 8, 9, 11)]


def test_long_blank_line_separates_in_bounded_memory(tmp_path: Path):
    path = plain(tmp_path / "x.txt", "a\n" + " " * 1000 + "\nb" + " " * 1000 + "c\nd")
    assert texts(path, max_characters=10) == ["a", "b" + " " * 9, "c\nd"]


def test_records_are_documents_without_blank_lines(tmp_path: Path):
    path = write(tmp_path / "x.jsonl", ["\n\na\r\n \n\nb\rc\n", "\n", "d"])
    assert list(read_documents(path)) == [
        Document("a\nb\nc", f"{path}:1"),
        Document("d", f"{path}:3"),
    ]
    assert texts(path, document_separator="line") == ["a\nb\nc", "d"]


def test_text_column_can_be_named(tmp_path: Path):
    path = plain(tmp_path / "x.csv", "title,body\na,b\n")
    assert texts(path, text_column="body") == ["b"]
    fails(path, "x.csv:1: no column 'text', only 'title', 'body'")


# Where the files are


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    for name in ("b.txt", "a/z.TXT", "a/b.jsonl", "c.d/e.txt.gz", ".hidden.txt", ".git/x.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("TXT"):
            plain(folder / name, name)
        else:
            write(folder / name, [name])
    plain(folder / "empty.txt", "\n \n")
    return folder


def test_folders_are_read_recursively_and_sorted(tree: Path):
    assert texts(tree) == ["a/b.jsonl", "a/z.TXT", "b.txt", "c.d/e.txt.gz"]
    assert [d.location for d in read_documents(str(tree))][:1] == [f"{tree}/a/b.jsonl:1"]


def test_patterns_are_sorted_and_find_each_file_once(tree: Path):
    assert texts(f"{tree}/*.txt") == ["b.txt"]
    assert texts(f"{tree}/**") == texts(tree)
    assert texts(f"{tree}/[ab]*") == ["a/b.jsonl", "a/z.TXT", "b.txt"]


def test_existing_name_takes_precedence_over_pattern(tmp_path: Path):
    path = write(tmp_path / "x[1].txt", ["a"])
    write(tmp_path / "x1.txt", ["b"])
    assert texts(path) == ["a"]


def test_sources_are_read_in_given_order_with_repetition(tree: Path):
    sources = [tree / "c.d", tree / "b.txt", str(tree / "b.txt")]
    assert texts(sources) == ["c.d/e.txt.gz", "b.txt", "b.txt"]


def test_unknown_files_of_a_folder_are_named(tree: Path, caplog: pytest.LogCaptureFixture):
    plain(tree / "README.md", "not text to train on")
    with caplog.at_level(logging.WARNING):
        assert len(texts(tree)) == 4
    [message] = caplog.messages
    assert "README.md" in message
    assert "b.txt" not in message
    assert ".git" not in message


def test_links_are_followed_without_cycles(tree: Path):
    (tree / "a" / "circle").symlink_to(tree)
    (tree / "linked").symlink_to(tree.parent / "elsewhere")
    write_to = tree.parent / "elsewhere"
    write_to.mkdir()
    write(write_to / "far.txt", ["far"])
    assert texts(tree) == ["a/b.jsonl", "a/z.TXT", "b.txt", "c.d/e.txt.gz", "far"]


# Mistakes


def test_missing_source_is_reported_before_reading(tree: Path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.txt: no such file or folder"):
        read_documents([tree, "nothing.txt"])
    with pytest.raises(FileNotFoundError, match=r"\*\.log: no file matches this pattern"):
        read_documents([tree, f"{tree}/*.log"])


def test_unknown_suffixes_are_refused_with_the_known(tmp_path: Path):
    for name in ("x.pdf", "x", "x.txt.bz2", "x.gz", "x.txt.gz.xz"):
        fails(
            plain(tmp_path / name, "a"), f"{name}: an unknown ending; known are .txt, .jsonl, .csv"
        )


def test_folder_without_text_files_lists_what_it_has(tmp_path: Path):
    plain(tmp_path / "sub/x.pdf", "a")
    fails(tmp_path, "no file of a known kind in it (.txt, ", "x.pdf", kind=FileNotFoundError)
    fails(f"{tmp_path}/*", "no file of a known kind", "x.pdf", kind=FileNotFoundError)
    (tmp_path / "empty").mkdir()
    fails(tmp_path / "empty", "no file of a known kind", "found: none", kind=FileNotFoundError)


@pytest.mark.parametrize("text", ["", "\n", " \n\t\r\n", "\ufeff"])
def test_source_without_text_is_named(text: str, tree: Path):
    path = plain(tree.parent / "nothing.txt", text)
    fails([tree, path], "nothing.txt: no text in it")


def test_sources_and_choices_are_validated(tree: Path):
    fails([], "no text was named")
    fails([""], "a source has no name")
    fails(tree, "max_characters must be at least 1", max_characters=0)


@pytest.mark.parametrize("how", [{"document_separator": "page"}, {"encoding_errors": "ignore"}])
def test_unknown_choices_are_refused(how: dict[str, str], tree: Path):
    code = (
        "from unmask.text.documents import read_documents\n"
        f"try:\n    read_documents({str(tree)!r}, **{how!r})\n"
        "except ValueError as error:\n    print(error)"
    )  # in a process without run-time type checks, as users have it
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    [(name, value)] = how.items()
    assert process.stdout.startswith(f"{name} must be one of [")
    assert process.stdout.endswith(f"got {value!r}\n")


@pytest.mark.parametrize(
    ("name", "module"),
    [("x.parquet", "pyarrow"), ("x.txt.zst", "zstandard"), ("hf:a/b", "datasets")],
)
def test_missing_extras_are_reported_before_reading(
    name: str, module: str, tree: Path, monkeypatch: pytest.MonkeyPatch
):
    source = name if name.startswith("hf:") else write(tree / name, ["a"])
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"needs {module}: pip install 'unmask\[data\]'"):
        read_documents([tree / "b.txt", source])


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_unreadable_folder_is_an_error(tree: Path):
    (tree / "a").chmod(0)
    fails(tree, "a", kind=PermissionError)
    (tree / "a").chmod(0o755)


# Memory


@pytest.mark.sample(1)
@pytest.mark.parametrize("unit", [b"word ", b"a", "é字".encode()])
def test_long_line_is_read_in_bounded_memory(unit: bytes, tmp_path: Path):
    size, longest = 20 * 2**20, 2**18
    path = tmp_path / "x.txt.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(20):
            file.write(unit * (2**20 // len(unit)))
    peaks = []
    for _ in range(2):  # other threads of this process are counted, too: the smaller one is ours
        tracemalloc.start()
        seen = n = 0
        for document in read_documents(path, max_characters=longest):
            assert len(document.text) <= longest
            seen, n = seen + len(document.text.encode()), n + 1
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert n >= 20 * (2**20 // len(unit)) * len(unit.decode()) // longest
    assert size - 100 - n < seen <= size
    assert min(peaks) < 8 * 2**20


@pytest.mark.thorough
@pytest.mark.parametrize("unit", ["\n", "\r", "a\n"])
def test_many_lines_are_read_in_bounded_memory(unit: str, tmp_path: Path):
    path = tmp_path / "x.txt.gz"
    with gzip.open(path, "wt", newline="", compresslevel=1) as file:
        for _ in range(8):
            file.write(unit * 2**19)
        file.write("\nend")
    code = (
        "import resource, sys\n"
        "from unmask.text.documents import read_documents\n"
        "def memory(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024\n"
        "before = memory()\n"
        "for document in read_documents(sys.argv[1], max_characters=2**17): pass\n"
        "print(memory() - before, document.text[-3:])\n"
    )  # in a process without run-time type checks, which take a minute for so many lines
    process = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=True
    )
    megabytes, end = process.stdout.split()
    assert end == "end"
    assert int(megabytes) < 24  # the lines of the whole file in a list would be 32 MiB or more


def test_endless_zeros_are_refused_quickly(tmp_path: Path):
    path = tmp_path / "x.txt.gz"
    with gzip.open(path, "wb") as file:
        for _ in range(50):
            file.write(bytes(2**20))
    tracemalloc.start()
    fails(path, "x.txt.gz:1: a NUL character")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * 2**20


def test_files_are_closed_when_reading_stops_early(tree: Path):
    reader = read_documents(tree)
    assert len(list(itertools.islice(reader, 2))) == 2
    del reader  # an open file would be a warning here, and warnings are errors


def test_nothing_heavy_is_imported():
    code = "import sys, unmask.text.documents as c; print(*sys.modules)"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    heavy = {"torch", "numpy", "pyarrow", "datasets", "zstandard", "tokenizers"}
    assert not heavy & set(process.stdout.split())


# Real files


SHARED = Path(__file__).parents[3] / "shared/data"


@pytest.mark.skipif(not SHARED.exists(), reason="the shared data is not here")
@pytest.mark.parametrize(
    ("name", "n_documents", "n_paragraphs"),
    [("wikipedia-en/valid.txt.xz", 400, 4357), ("wikipedia-en/test.txt.xz", 400, 3892)],
)
def test_wikitext_documents_and_paragraphs_equal_its_readme(
    name: str, n_documents: int, n_paragraphs: int
):
    found = texts(SHARED / name)
    assert len(found) == n_documents
    # Every document's first line is its title; paragraphs come after.
    assert sum(text.count("\n") for text in found) == n_paragraphs


@pytest.mark.skipif(not SHARED.exists(), reason="the shared data is not here")
def test_chapter_is_a_document():
    found = texts(SHARED / "books/test.txt.xz")
    assert found[0].startswith("I\nThe Eve of the War\nNo one would have believed")
    assert len(found) > 30
    assert sum(len(text.split()) for text in found) == 118_154


@pytest.mark.skipif(not SHARED.exists(), reason="the shared data is not here")
def test_no_word_of_wikitext_is_lost():
    found = texts(SHARED / "wikitext-2/test.txt.xz")
    # 245569 tokens in 4358 lines, each with one more token for its end.
    assert sum(len(text.split()) for text in found) == 245_569 - 4358
    assert found[0] == " = Robert <unk> = "


def test_the_bundled_novels_have_a_name():
    assert texts("demo:novels")[0].startswith("Preface to the 1850 Edition")
    assert len(texts("demo:novels")) == len(texts(bundled_path("novels")))
    fails("demo:nothing", "demo:nothing: no such file or folder", kind=FileNotFoundError)
