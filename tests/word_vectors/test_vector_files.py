"""Files of vectors: every format there and back, as gensim reads and writes them, and damaged."""

import gzip
import lzma
import os
import pickle
import re
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.word_vectors.alignment.align import prepare_vectors
from unmask.word_vectors.formats import files
from unmask.word_vectors.formats.files import FORMATS, detect_format, read_vectors, write_vectors
from unmask.word_vectors.formats.text import shortest_decimals
from unmask.word_vectors.keyed_vectors import KeyedVectors

TABLES = [form for form in FORMATS if form != "fasttext"]

ENDING = {"word2vec-text": ".vec", "word2vec-binary": ".bin", "glove": ".txt"}
ODD = ("the", "ü", "日本", "'", "1", "\u00a0", "a\u2028b", "\ufeffx", "", "</s>", "x" * 300)


def make_space(words: tuple[str, ...] = ODD, d: int = 3, seed: int = 0) -> KeyedVectors:
    vectors = np.random.default_rng(seed).standard_normal((len(words), d)).astype(np.float32)
    return KeyedVectors(words, vectors)


@pytest.fixture
def file(tmp_path):
    def write(name: str, data: bytes | str):
        (tmp_path / name).write_bytes(data if isinstance(data, bytes) else data.encode())
        return tmp_path / name

    return write


# There and back


@pytest.mark.parametrize("packing", ["", ".gz", ".xz", ".zst"])
@pytest.mark.parametrize("form", TABLES)
def test_space_round_trips_in_every_format(form, packing, tmp_path) -> None:
    path = tmp_path / f"vectors{ENDING[form]}{packing}"
    write_vectors(make_space(), path)
    assert detect_format(path) == form
    back = read_vectors(path)
    assert back.words == ODD
    assert back.vectors.tobytes() == make_space().vectors.tobytes()
    assert read_vectors(path, limit=4).words == ODD[:4]
    assert not list(tmp_path.glob(".*"))


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_float32_is_written_in_at_most_nine_digits(numbers: list[float]) -> None:
    rows = np.array([numbers], dtype=np.float32)
    output = [b"%.9g" % x for x in shortest_decimals(rows)[0].tolist()]
    assert np.array_equal(np.array([float(s) for s in output], np.float32), rows[0])


def test_numbers_are_written_as_read() -> None:
    output = "0.418 -1.5 1e-05 123456 0.012345678 0 3.4028235e+38 1e-45"
    rows = np.array([output.split()], dtype=np.float32)
    assert " ".join(f"{x:.9g}" for x in shortest_decimals(rows)[0].tolist()) == output.replace(
        "1e-45", "1.4013e-45"
    )


@pytest.mark.parametrize("d", [1, 2, 50])
@pytest.mark.parametrize("form", TABLES)
def test_formats_are_detected_by_content(form, d, tmp_path) -> None:
    for seed in range(5):
        path = tmp_path / f"{form}{seed}.data"
        write_vectors(make_space(("one", "two", "three"), d, seed), path, form)
        assert detect_format(path) == form


def test_first_words_are_read_from_a_truncated_file(file) -> None:
    path = file("cut.vec", "900000 2\na 1 2\nb 3 4\nc 5")
    assert read_vectors(path, limit=2).words == ("a", "b")


def test_crlf_trailing_spaces_and_tabs_are_accepted(file) -> None:
    path = file("w.vec", b"\xef\xbb\xbf2 2\r\na 1 2 \r\nb\t3\t4\r\n\r\n\n")
    space = read_vectors(path)
    assert space.words == ("a", "b")
    assert space.vectors.tolist() == [[1, 2], [3, 4]]


def test_words_may_contain_spaces(file) -> None:
    """As in GloVe's 840B, whose words ". . ." and "at name@domain.com" are famous."""
    path = file("g.txt", "the 1 2\n. . . 3 4\nat name@domain.com 5 6\n New  York 7 8\n5 9 9\n")
    assert read_vectors(path).words == ("the", ". . .", "at name@domain.com", " New  York", "5")


def test_tab_in_a_word_is_kept(file) -> None:
    """Read as a space it would be another word, which may be there too."""
    path = file("g.txt", "a b 1 2\na\tb 3 4\nc\t5\t6\n")
    space = read_vectors(path)
    assert space.words == ("a b", "a\tb", "c")
    assert space.vectors.tolist() == [[1, 2], [3, 4], [5, 6]]


def test_repeated_word_is_dropped_and_counted(file, caplog) -> None:
    path = file("t.vec", "4 1\na 1\nb 2\na 3\nb 4\n")
    space = read_vectors(path)
    assert (space.words, space.vectors.ravel().tolist()) == (("a", "b"), [1, 2])
    assert caplog.messages == [f"{path}: 2 words that came before are left out ('a', {path}:4)"]
    assert read_vectors(path, limit=3).words == ("a", "b")


def test_non_utf8_words_stay_distinct_and_are_reported(file, caplog) -> None:
    path = file("l.txt", b"caf\xe9 1\ncaf\xe8 2\n\xed\xa0\x80 3\n")
    assert read_vectors(path).words == ("caf\\xe9", "caf\\xe8", "\\xed\\xa0\\x80")
    assert "3 words not UTF-8 are read with \\xNN for each such byte" in caplog.text
    binary = file("l.bin", b"1 1\ncaf\xe9 " + struct.pack("<f", 1))
    assert read_vectors(binary).words == ("caf\\xe9",)


def test_both_kinds_of_binary_files_are_read(file) -> None:
    rows = [struct.pack("<2f", 1, 2), struct.pack("<2f", 3, 4)]
    for end in (b"", b"\n"):
        data = b"2 2\n" + b"".join(
            w + b" " + r + end for w, r in zip((b"a", b"b"), rows, strict=True)
        )
        assert read_vectors(file("b.bin", data)).vectors.tolist() == [[1, 2], [3, 4]]


# What is wrong with a file


@pytest.mark.parametrize(
    ("data", "output"),
    [
        ("", "an empty file"),
        (" \n\n", "an empty file"),
        ("0 3\n", ":1: a header says how many"),
        ("3 0\n", ":1: a header says how many"),
        ("2 2\na 1 2\n", "says 2 words, but it holds 1"),
        ("2 2\na 1 2\n\nb 1 2\n", ":3: an empty line"),
        ("1 2\na 1 2\nb 1 2\n", ":3: its header says 1 words, but there are more"),
        ("2 3\na 1 2\nb 1 2\n", ":2: 'a' is followed by 2 numbers, not by 3, as the header says"),
        ("2 1\na 1 2\nb 1 2\n", ":2: 'a' is followed by 2 numbers, not by 1"),
        ("a 1 2\nb 1\n", ":2: 'b' is followed by 1 numbers, not by 2, as on the first line"),
        ("a 1 2\nb 1 2 3\n", ":2: 'b' is followed by 3 numbers, not by 2"),
        ("a 1 2\nb\n", ":2: 'b' is followed by 0 numbers, not by 2"),
        ("a 1 2\nb 1,5 2\n", ":2: '1,5' is no number; 2 must follow"),
        ("a 1 2\nb 1 2x\n", ":2: '2x' is no number"),
        ("a 1 2\nb 1_0 2\n", ":2: '1_0' is no number"),
        ("a 1 2\rb 3 4\r", ":1: a carriage return in a line"),
        ("<!DOCTYPE html>\n<html>\n", ":1: a line must be a word and its numbers"),
        ("the,1,2\n", ":1: a line must be a word and its numbers"),
        ("9 99999999\na 1\n", ":1: its header says 9 words of 99,999,999 numbers"),
        ("a 1 2\nb nan 2\n", ":2: number 1 of 'b' is nan"),
        ("a 1 2\nb 1 2\nc 1 -inf\n", ":3: number 2 of 'c' is -inf"),
        ("a 1 2\nb 1 1e39\n", ":2: number 2 of 'b' is inf in float32"),
        ("hello world\n", ":1: a line must be a word and its numbers, got 'hello world'"),
        ("9999999999 300\na 1 2\n", ":1: its header says 9,999,999,999 words of 300 numbers"),
        (b"a 1 2\nb\0c 1 2\n", "neither text nor a binary file"),
        (b"2 300\na \0\0\0\0", "for which its 12 bytes are too few"),
        (b"1 1\na" + b"x" * 70_000, "is followed by 0 numbers"),
        (b"\x80\x04\x95abc", r"a pickle, .*\.save_word2vec_format\('vectors.bin', binary=True\)"),
        (b"\x1f\x8b\x08abc", "looks like gzip: name it .gz"),
        (b"PK\x03\x04abc", "is a zip archive"),
        (b"\x93NUMPYabc", "is an array of NumPy"),
        (b"\xff\xfea\0 \x001\0", "looks like UTF-16"),
        (b"a\0b\0", "neither text nor"),
        (b'\x10\0\0\0\0\0\0\0{"a":{}}', "neither text nor"),
    ],
)
def test_malformed_text_file_is_refused_with_its_line(data, output, file) -> None:
    path = file("x.vec", data)
    with pytest.raises(ValueError, match=output) as error:
        read_vectors(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


BINARY = b"3 2\n" + b"".join(w + struct.pack("<2f", 0.1, 0.2) for w in (b"a ", b"b ", b"c "))


@pytest.mark.parametrize(
    ("data", "output"),
    [
        (BINARY[:-1], "word 3, at byte 24, does not end"),
        (BINARY[:-5], "for which its 29 bytes are too few"),
        (BINARY + b"d " + struct.pack("<2f", 1, 2), "which end at byte 34, but there is more"),
        (BINARY.replace(b"3 2", b"2 2"), "2 words of 2 numbers, which end at byte 24"),
        (BINARY.replace(b"3 2", b"3 3"), "3 words of 3 numbers, for which its 34 bytes"),
        (BINARY.replace(b"b ", b"b_"), "word 3, at byte 34, does not end"),
        (
            BINARY.replace(b"b ", b"\nb ").replace(b"c ", b"\nc ")[:-8]
            + struct.pack("<2f", 1, np.nan),
            "at byte 25: number 2 of 'c' is nan",
        ),
    ],
)
def test_malformed_binary_file_is_refused_with_its_byte(data, output, file) -> None:
    path = file("x.bin", data)
    with pytest.raises(ValueError, match=output) as error:
        read_vectors(path)
    assert str(error.value).startswith(str(path))


@pytest.mark.parametrize("newline", [b"\n", b""])
@pytest.mark.parametrize("width", [2, 3, 8, 300])
@pytest.mark.parametrize(
    "word", ["New York", "a b", " a", "a ", "a b c d", "日 本", "x\0y", "\0", "a\nb", "a\tb"]
)
def test_binary_file_with_word_containing_space_is_refused_by_number(
    file, word, width, newline
) -> None:
    rng = np.random.default_rng(width)
    for position in (0, 1, 4, 5):
        words = [*"abcdef"]
        words[position] = word
        rows = rng.standard_normal((6, width)).astype("<f4")
        data = b"".join(
            w.encode() + b" " + row.tobytes() + newline for w, row in zip(words, rows, strict=True)
        )
        path = file("w.bin", b"6 %d\n" % width + data)
        with pytest.raises(ValueError, match=r"w\.bin: ") as raised:
            read_vectors(path, format_name="word2vec-binary")
        assert "\n" not in str(raised.value)
        output = re.search(r"word ([0-9]+)", str(raised.value))
        if output is not None:  # the last word's rest is more than the header says
            assert int(output[1]) in (position + 1, position + 2, position + 3)


def test_non_utf8_words_are_read_after_rows_containing_space_bytes(file) -> None:
    """A byte of a number may be a space."""
    rows = [struct.pack("<f", x) for x in (1.25, 2.5)]
    first = b" " + rows[0][1:]
    for after in (b"\xe9clair", b"caf\xe9", b"b"):
        data = b"2 1\na " + first + b"\n" + after + b" " + rows[1]
        assert len(read_vectors(file("u.bin", data), format_name="word2vec-binary")) == 2


def test_truncated_compressed_binary_is_refused(file) -> None:
    path = file("x.bin.gz", gzip.compress(BINARY[:-3]))
    with pytest.raises(ValueError, match="word 3, at byte 24, does not end"):
        read_vectors(path)
    path = file("y.vec.xz", lzma.compress(b"9999999999 9999\na 1 2"))
    with pytest.raises(ValueError, match="'a' is followed by 2 numbers, not by 9,999"):
        read_vectors(path)


@given(st.binary(max_size=300))
def test_any_bytes_give_a_space_or_one_line(tmp_path_factory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.bin"
    for start in (b"", b"2 2\n", b"a 1 2\n", files.MAGIC + b"\x0c\0\0\0"):
        path.write_bytes(start + data)
        try:
            read_vectors(path)
        except ValueError as error:
            message = str(error)
        else:
            message = ""
        assert "\n" not in message


def test_header_claiming_much_memory_is_refused(file) -> None:
    path = file("x.vec.gz", gzip.compress(b"9 60000000\na 1\n"))
    with pytest.raises(ValueError, match="followed by 1 numbers, not by 60,000,000"):
        read_vectors(path)
    path = file("x.bin.gz", gzip.compress(b"9 16000000\na " + bytes(50)))
    with pytest.raises(ValueError, match="word 1, at byte 11, does not end"):
        read_vectors(path)


def test_damaged_archive_is_refused(file) -> None:
    path = file("x.vec.gz", gzip.compress(b"1 1\na 1\n" * 50)[:-9])
    with pytest.raises(ValueError, match="truncated"):
        read_vectors(path)


def test_missing_file_and_folder_are_refused(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_vectors(tmp_path / "none.vec")
    with pytest.raises(ValueError, match="must be a file"):
        read_vectors(tmp_path)
    with pytest.raises(ValueError, match="limit must be at least 1"):
        read_vectors(tmp_path, limit=0)


def test_nothing_is_unpickled(tmp_path) -> None:
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "made"), "w"))

    (tmp_path / "model").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ValueError, match="pickle"):
        read_vectors(tmp_path / "model")
    assert not (tmp_path / "made").exists()


# What cannot be written


def test_white_space_in_words_is_replaced_as_requested_or_refused(tmp_path) -> None:
    space = make_space(("New York", "a\tb", "c"))
    path = tmp_path / "v.vec"
    with pytest.raises(ValueError, match="'New York' and 1 more"):
        write_vectors(space, path)
    assert not path.exists()
    write_vectors(space, path, white_space_replacement="_")
    assert read_vectors(path).words == ("New_York", "a_b", "c")
    with pytest.raises(ValueError, match="two words become 'a_b'"):
        write_vectors(make_space(("a b", "a_b")), path, white_space_replacement="_")
    with pytest.raises(ValueError, match="must hold none"):
        write_vectors(space, path, white_space_replacement=" ")


@pytest.mark.parametrize(
    ("word", "d", "form", "output"),
    [
        ("a\x0bb", 3, "glove", "holds a control character"),
        ("5", 1, "glove", "is read as a header"),
        ("", 2, "glove", "is read as a header"),
        ("x" * 70_000, 3, "word2vec-binary", "word 1 has 70,000 bytes"),
    ],
)
def test_unreadable_output_is_not_written(word, d, form, output, tmp_path) -> None:
    space = KeyedVectors((word, "b"), np.arange(1, 2 * d + 1, dtype=np.float32).reshape(2, d))
    with pytest.raises(ValueError, match=output):
        write_vectors(space, tmp_path / "v", form)
    assert not (tmp_path / "v").exists()
    write_vectors(space, tmp_path / "v", "word2vec-text")
    assert read_vectors(tmp_path / "v").words == space.words


def test_output_path_and_format_are_validated(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"name the format, or end the name in one of \.vec"):
        write_vectors(make_space(), tmp_path / "v.dat")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        write_vectors(make_space(), tmp_path / "none" / "v.vec")
    os.mkfifo(tmp_path / "pipe")
    for location in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ValueError, match="is a folder or a device"):
            write_vectors(make_space(), location, "glove")
    with pytest.raises(ValueError, match="no text that UTF-8 can say"):
        write_vectors(make_space(("\ud800",)), tmp_path / "v.vec")


# gensim


def theirs():
    return pytest.importorskip("gensim.models").KeyedVectors


LEFT_OPEN = pytest.mark.filterwarnings(  # by gensim, of a file without a header
    "ignore:.*unclosed file:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@LEFT_OPEN
def test_gensim_reads_our_files(tmp_path) -> None:
    words = tuple(word for word in ODD if word)
    for form, how in (
        ("word2vec-text", {}),
        ("word2vec-binary", {"binary": True}),
        ("glove", {"no_header": True}),
    ):
        path = tmp_path / f"v{ENDING[form]}.gz"
        write_vectors(make_space(words), path)
        read = theirs().load_word2vec_format(str(path), **how)
        assert tuple(read.index_to_key) == words
        assert read.vectors.tobytes() == make_space(words).vectors.tobytes()


@pytest.mark.parametrize("binary", [False, True])
def test_our_reader_reads_gensims_files(binary, tmp_path) -> None:
    path = tmp_path / "vectors"
    pytest.importorskip("gensim")
    make_space().to_gensim().save_word2vec_format(str(path), binary=binary)
    back = read_vectors(path)
    assert back.words == ODD
    assert back.vectors.tobytes() == make_space().vectors.tobytes()


def test_native_gensim_files_are_refused_with_advice(tmp_path) -> None:
    theirs()
    pytest.importorskip("gensim")
    make_space().to_gensim().save(str(tmp_path / "kv"))
    with pytest.raises(ValueError, match="save_word2vec_format"):
        read_vectors(tmp_path / "kv")


@LEFT_OPEN
def test_numbers_are_parsed_as_in_gensim(tmp_path) -> None:
    rng = np.random.default_rng(1)
    numbers = [
        f"{x:.{n}g}"
        for x in rng.standard_normal(200) * 10.0 ** rng.integers(-40, 30, 200)
        for n in (3, 7, 17)
    ]
    path = tmp_path / "v.txt"
    path.write_text("".join(f"w{i} {x}\n" for i, x in enumerate(numbers)))
    read = theirs().load_word2vec_format(str(path), no_header=True)
    assert read.vectors.tobytes() == read_vectors(path).vectors.tobytes()


# fastText


TEXT = [["the", "käse", "日本", "a", "</s>", "cheese"] * 20, ["cheese", "the"] * 30]


@pytest.fixture(scope="module")
def facebook(tmp_path_factory):
    """Write a model as Facebook's program does, by gensim; return it with its path."""
    fasttext = pytest.importorskip("gensim.models.fasttext")
    model = fasttext.FastText(
        TEXT, vector_size=5, min_count=1, bucket=97, min_n=1, max_n=4, epochs=1, workers=1, seed=1
    )
    path = tmp_path_factory.mktemp("facebook") / "model.bin"
    fasttext.save_facebook_model(model, str(path))
    return path, fasttext.load_facebook_vectors(str(path))


def test_fasttext_vectors_equal_the_library(facebook) -> None:
    path, vectors = facebook
    assert detect_format(path) == "fasttext"
    space = read_vectors(path)
    assert sorted(space.words) == sorted(vectors.index_to_key)
    for word in space.words:
        if word != "</s>":  # to which gensim gives n-grams, and Facebook's program does not
            np.testing.assert_allclose(space.vector(word), vectors[word], atol=1e-7)
            assert space.counts[space.row(word)] == vectors.get_vecattr(word, "count")
    np.testing.assert_allclose(
        space.vector("</s>"), vectors.vectors_vocab[vectors.key_to_index["</s>"]], atol=1e-7
    )
    few = read_vectors(path, limit=2)
    assert few.words == space.words[:2]
    np.testing.assert_allclose(few.vectors, space.vectors[:2], atol=1e-7)


def test_compressed_fasttext_model_is_equal(facebook, tmp_path) -> None:
    path, _ = facebook
    packed = tmp_path / "model.bin.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert np.array_equal(read_vectors(packed).vectors, read_vectors(path).vectors)


def test_ngram_hashes_equal_fasttext() -> None:
    hashing = pytest.importorskip("gensim.models.fasttext")
    from unmask.word_vectors.formats.fasttext_model import _ngram_hashes

    words = ["käse", "日本語", "a", "", "😀x"]
    found: dict[int, list[int]] = {i: [] for i in range(len(words))}
    for owners, hashes in _ngram_hashes([w.encode() for w in words], 1, 5):
        for owner, value in zip(owners.tolist(), hashes.tolist(), strict=True):
            found[owner].append(value % 1009)
    for i, word in enumerate(words):
        expected = hashing.ft_ngram_hashes(word, 1, 5, 1009)
        alone = hashing.ft_ngram_hashes("", 1, 1, 1009)  # "<" and ">" by themselves are none
        assert sorted(found[i]) == sorted(expected), (word, alone)


@pytest.mark.parametrize("size", [6, 30, 80, 140, 300, -1])
def test_truncated_fasttext_model_is_refused(facebook, size, tmp_path) -> None:
    path, _ = facebook
    data = path.read_bytes()
    inputs = data[: 4 * 5 * 97]  # without the output matrix, which is not read
    for name, packed in (("cut.bin", inputs), ("cut.bin.gz", gzip.compress(inputs))):
        cut = packed if name.endswith(".gz") else packed[:size]
        (tmp_path / name).write_bytes(cut)
        with pytest.raises(ValueError, match=r"fastText model ends too early, at byte \d+"):
            read_vectors(tmp_path / name)


def test_unsupported_fasttext_models_are_refused(facebook, tmp_path) -> None:
    path, _ = facebook
    data = bytearray(path.read_bytes())
    data[4:8] = struct.pack("<i", 9)
    (tmp_path / "v.bin").write_bytes(data)
    with pytest.raises(ValueError, match="version 9"):
        read_vectors(tmp_path / "v.bin")
    data[4:8] = struct.pack("<i", 12)
    data[8:12] = struct.pack("<i", -5)
    (tmp_path / "v.bin").write_bytes(data)
    with pytest.raises(ValueError, match="makes no sense"):
        read_vectors(tmp_path / "v.bin")


def test_impossible_fasttext_sizes_are_refused_without_allocating(facebook, tmp_path):
    data = bytearray(facebook[0].read_bytes())
    least, most = 8 + 4 * 9, 8 + 4 * 10
    assert struct.unpack_from("<2i", data, least) == (1, 4)
    long = data.copy()
    struct.pack_into("<i", long, most, 2**31 - 1)
    (tmp_path / "long.bin").write_bytes(long)
    assert len(read_vectors(tmp_path / "long.bin"))
    head = 8 + 4 * 12 + 8 + 28  # the dictionary begins
    at = data.index(b"\0", head) + 1
    struct.pack_into("<q", data, at, -1)
    (tmp_path / "count.bin").write_bytes(data)
    with pytest.raises(ValueError, match=r"count\.bin: word 1 was seen -1 times"):
        read_vectors(tmp_path / "count.bin")


def test_unseen_words_are_composed_as_in_fasttext(facebook, tmp_path) -> None:
    path, vectors = facebook
    space = read_vectors(path, limit=2)
    seen = set(vectors.index_to_key) - {"</s>"}
    for word in ("käsebrot", "chees", "日本語", *seen):
        np.testing.assert_allclose(space.vector(word), vectors[word], atol=1e-6)
    for word in ("käsebrot", "chees"):
        (found,) = space.neighbors([word], k=2)
        cosines = [vectors.similarity(word, one.word) for one in found]
        assert [one.score for one in found] == pytest.approx(cosines, abs=1e-5)
        assert space.cosine(word, "the") == pytest.approx(vectors.similarity(word, "the"), abs=1e-5)
    assert not prepare_vectors(space).has_vector("käsebrot")  # which would be of the space before
    assert space.most_frequent(1).has_vector("käsebrot")
    again = tmp_path / "again.bin"
    write_vectors(read_vectors(path), again, "fasttext")
    assert again.read_bytes() == path.read_bytes()
    with pytest.raises(ValueError, match="is written whole, with its 6 words, got 2"):
        write_vectors(space, tmp_path / "few.bin", "fasttext")
    with pytest.raises(ValueError, match="these vectors have none"):
        write_vectors(
            KeyedVectors(("a",), np.ones((1, 2), np.float32)), tmp_path / "n.bin", "fasttext"
        )
