"""Word vectors in place of a model, in Python and on the command line."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import unmask
from unmask.cli import main as cli
from unmask.inference.vectors.load_word_vectors import is_word_vectors
from unmask.word_vectors.formats.files import detect_format, read_vectors, write_vectors

WORDS = ("man", "woman", "king", "queen", "apple", "pear", "new york")
ROWS = [(1, 0, 0, 0), (0, 1, 0, 0), (1, 0, 1, 0), (0, 1, 1, 0), (-1, -1, 0, 2), (-1, -1, 0, 3)]
ROWS += [(0, 0, -1, 1)]


@pytest.fixture
def space() -> unmask.KeyedVectors:
    return unmask.KeyedVectors(WORDS, np.array(ROWS, dtype=np.float32))


@pytest.fixture
def home(tmp_path, space):
    write_vectors(space, tmp_path / "royal.vec", white_space_replacement="_")
    (tmp_path / "pairs.tsv").write_text("king\tqueen\t9\nApple\tpear\t8\nking\tpear\t1\nx\ty\t1\n")
    (tmp_path / "questions.txt").write_text(": gram1\nman king woman queen\n: s\nman woman x y\n")
    (tmp_path / "list.txt").write_text("king\nqueen\n\nnobody\napple\n")
    (tmp_path / "latin.tsv").write_bytes(b"king\tcaf\xe9\t1\nking\tqueen\t2\n")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


@pytest.fixture
def run(capsys, home, monkeypatch):
    monkeypatch.chdir(home)

    def command(words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        return (cli.run(words.split()), *capsys.readouterr())

    return command


def test_path_is_recognized_as_word_vectors_or_model(home) -> None:
    assert is_word_vectors(home / "royal.vec")
    assert is_word_vectors("nowhere/vectors.bin.gz")
    assert not is_word_vectors(home)
    assert not is_word_vectors("bert-mini")
    assert not is_word_vectors("hf:owner/name.bin")
    with pytest.raises(ValueError, match=r"not a model: it has no config\.json"):
        unmask.load_word_vectors(home)
    with pytest.raises(FileNotFoundError, match="no such file"):
        unmask.load_word_vectors(home / "none.vec")
    assert unmask.load_word_vectors(home / "royal.vec", limit=2).words == ("man", "woman")


def test_neighbors_are_printed(run) -> None:
    status, out, _ = run("neighbors royal.vec king woman --minus man -k 2")
    assert (status, out.split()[1]) == (0, "queen")
    assert len(out.splitlines()) == 2
    status, out, _ = run("neighbors royal.vec king woman --minus man --multiply --json")
    found = json.loads(out)
    assert (found["plus"], found["minus"]) == (["king", "woman"], ["man"])
    assert found["neighbors"][0]["word"] == "queen"


def test_vectors_are_scored_on_pairs_and_analogies(run) -> None:
    status, out, err = run("evaluate royal.vec --data pairs.tsv questions.txt")
    assert status == 0
    assert out.splitlines()[1].split() == ["pairs", "4", "3", "0.500", "0.738"]
    assert "questions, among 7" in out
    assert out.splitlines()[-1].split() == ["total", "2", "1", "100.0", "100.0"]
    assert "lowercase only" in err
    found = json.loads(run("evaluate royal.vec --data pairs.tsv questions.txt --json")[1])["scores"]
    assert [one["kind"] for one in found] == ["pairs", "analogies"]
    assert found[1]["syntactic"]["add"] == 1.0
    assert found[1]["semantic"]["add"] is None
    replaced = run("evaluate royal.vec latin.tsv --encoding-errors replace --json")
    assert json.loads(replaced[1])["scores"][0]["known"] == 1
    found = json.loads(run("evaluate royal.vec pairs.tsv --case keep --json")[1])["scores"]
    assert found[0]["known"] == 2


@pytest.mark.parametrize(
    ("name", "to", "form"),
    [
        ("a.bin", "", "word2vec-binary"),
        ("a.txt.gz", "", "glove"),
        ("a.dat", "--to word2vec-text", "word2vec-text"),
        ("a.txt.xz", "--to word2vec-text", "word2vec-text"),
    ],
)
def test_vectors_are_converted(name, to, form, run, home, space) -> None:
    status, out, _ = run(f"convert royal.vec {name} {to}")
    assert (status, out) == (0, f"{name}: 7 words, 4 dimensions\n")
    assert detect_format(home / name) == form
    assert np.array_equal(read_vectors(home / name).vectors, space.vectors)
    assert json.loads(run(f"convert {name} b.vec --limit 2 --json")[1])["words"] == 2


def test_word_vectors_are_described(run) -> None:
    _, out, _ = run("show royal.vec")
    assert "7, lower case only" in out
    assert json.loads(run("show royal.vec --json")[1])["width"] == 4


@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_words_are_plotted(method, run, home) -> None:
    status, out, err = run(f"picture royal.vec pear --words list.txt --out x.svg --method {method}")
    assert (status, out) == (0, "x.svg: 4 words\n"), err
    assert err == "list.txt: 1 of 4 words are not known: nobody\n"
    drawn = (home / "x.svg").read_text()
    assert all(f">{word}</text>" in drawn for word in ("king", "queen", "apple", "pear"))
    assert run(f"picture royal.vec pear --words list.txt --out y.svg --method {method}")[0] == 0
    assert (home / "y.svg").read_text() == drawn


def test_bundled_model_is_named_as_everywhere(home) -> None:
    space = unmask.load_word_vectors("unmask-mini-en", limit=2000)
    model = unmask.load("unmask-mini-en")
    tokenizer = model.tokenizer.word_vocabulary()
    table = model.model.backbone.embedding_table.weight.detach().float().numpy()
    np.testing.assert_array_equal(space.vector("king"), table[tokenizer["king"]])


@pytest.mark.trials("mistakes")
@pytest.mark.parametrize(
    ("words", "output"),
    [
        ("neighbors royal.vec King", "'King' is not among the 7 words; 'king' is"),
        ("neighbors bert-mini king", "bert-mini is a preset, which has no weights"),
        ("neighbors nothing king", "nothing: no such folder, and no model of the catalogue"),
        ("neighbors royal.vec king -k 0", "k must be at least 1"),
        ("neighbors none.vec king", "none.vec: no such file"),
        (
            "neighbors list.txt king",
            "list.txt:1: a line must be a word and its numbers, got 'king'",
        ),
        ("neighbors royal.vec king --limit 0", "limit must be at least 1"),
        ("evaluate royal.vec", "no data: give files of word pairs or analogies"),
        ("evaluate none.vec --data pairs.tsv", "none.vec: no such file"),
        ("evaluate royal.vec --data list.txt", "list.txt:1: 1 fields, 'king', where word pairs"),
        (
            "evaluate royal.vec --data pairs.tsv --sequence-length 3",
            "word vectors: leave out --sequence-length",
        ),
        ("evaluate royal.vec --data pairs.tsv --task x", "word vectors: leave out --task"),
        (
            "evaluate unmask-mini-en --data pairs.tsv --limit 3",
            "--limit applies to word vectors only",
        ),
        ("convert royal.vec royal.vec", "royal.vec: is there already"),
        ("convert royal.vec a.bin --to huggingface", "need a format of word2vec-text, word2vec"),
        ("convert royal.vec a.dat", "a.dat: name the format, or end the name in one of .vec"),
        ("convert royal.vec a.bin --average 2", "--average applies to pretraining runs only"),
        (
            "convert unmask-mini-en a --to glove",
            "huggingface, unmask, elmo, onnx or gguf; got --to glove",
        ),
        ("convert unmask-mini-en a --white-space _", "--white-space applies to word vectors only"),
        ("picture royal.vec king queen", "a picture shows 3 to 2,000 words, got 2"),
        ("picture royal.vec king nobody", "'nobody' is not among"),
        ("picture royal.vec --words none.txt", "none.txt: no such file"),
        ("picture royal.vec --out none/x.svg", "none/x.svg: there is no folder none"),
        ("picture royal.vec --out map.png", "map.png: pictures are drawn as SVG"),
        ("picture royal.vec --out pipe", "pipe: is a folder or a device"),
        ("picture royal.vec --out .", ".: is a folder or a device"),
        ("evaluate royal.vec --data pairs.tsv --shots 2", "word vectors: leave out --shots"),
        (
            "evaluate royal.vec --data pairs.tsv --memory-length 0",
            "word vectors: leave out --memory-length",
        ),
        ("evaluate royal.vec --data latin.tsv", "latin.tsv:1: invalid UTF-8"),
        (
            "fill royal.vec x",
            "royal.vec: is a file; a model is a folder (word vectors are taken by",
        ),
        ("show list.txt", "list.txt:1: a line must be a word"),
    ],
)
def test_mistake_is_reported_in_one_line(words, output, run) -> None:
    status, out, err = run(words)
    assert (status, out) == (2, "")
    assert output in err
    assert len(err.splitlines()) == 1


def test_white_space_in_a_word_names_the_option(run, home, space) -> None:
    (home / "g.txt").write_text("new york 1 2\na 3 4\n")
    status, _, err = run("convert g.txt h.vec")
    assert (status, "(--white-space _)" in err, "'new york'" in err) == (2, True, True)
    assert run("convert g.txt h.vec --white-space _")[0] == 0


def test_word_vector_commands_do_not_import_torch(home) -> None:
    code = f"""
import sys
from unmask.cli import main as cli
assert cli.run(["neighbors", {str(home / "royal.vec")!r}, "king"]) == 0
assert cli.run(["evaluate", {str(home / "royal.vec")!r}, {str(home / "questions.txt")!r}]) == 0
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_plot_labels_do_not_overlap_where_there_is_room(space) -> None:
    from unmask.reports.charts.labeled_points import _place_labels
    from unmask.reports.charts.word_map import _scale_to_page

    rng = np.random.default_rng(0)
    words = [f"word{i}" for i in range(60)]
    positions = _scale_to_page(rng.standard_normal((60, 2)), 900.0, 700.0)
    boxes = [
        (one.left, one.top, one.left + one.width)
        for one in _place_labels(words, positions, 900.0, 700.0)
    ]
    for i, (left, top, right) in enumerate(boxes):
        assert left >= 0
        assert right <= 900
        for other in boxes[:i]:
            beside = right <= other[0] or other[2] <= left
            assert beside or abs(top - other[1]) >= 14.99


def test_identical_points_are_plotted(tmp_path) -> None:
    space = unmask.KeyedVectors(
        ("a", "<b>", "c", "zero"), np.array([[1], [1], [1], [0]], np.float32)
    )
    out = tmp_path / "x.svg"
    for projection in (unmask.PrincipalComponents(), unmask.TSNE()):
        unmask.draw_word_map(space, ("a", "<b>", "c"), out=out, projection=projection)
        assert "&lt;b&gt;" in out.read_text()
