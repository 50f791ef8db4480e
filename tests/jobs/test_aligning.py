"""Vector files are aligned, scored and written; changed words are found; mistakes reported."""

import io
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from two_spaces import clustered, copied, named

import unmask
from unmask.cli import main as cli
from unmask.word_vectors.formats.files import read_vectors, write_vectors
from unmask.word_vectors.keyed_vectors import KeyedVectors

N = 300


class Home(NamedTuple):
    folder: Path
    source: KeyedVectors
    target: KeyedVectors
    pairs: list[tuple[str, str]]

    def __truediv__(self, name: str) -> Path:
        return self.folder / name


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Home:
    """Write a space, its noisy copy in another language, and dictionaries."""
    folder = tmp_path_factory.mktemp("home")
    source, target, rows = copied(clustered(N, 20, seed=3, n_numerals=25), noise=0.1)
    pairs = [(source.words[one], target.words[other]) for one, other in rows.tolist()]
    write_vectors(source, folder / "en.vec")
    write_vectors(target, folder / "de.vec")
    write_vectors(named(source.vectors[:, :7], words=source.words), folder / "narrow.vec")
    write_vectors(source.most_frequent(5), folder / "five.vec")
    texts = {
        "all.tsv": pairs,
        "train.tsv": pairs[25:125],
        "test.tsv": [*pairs[125:], ("nobody", "niemand"), ("w30", "niemand"), pairs[30]],
        "broken.tsv": [*pairs[:4], ("alone",)],
        "empty.tsv": [],
        "other.tsv": [("x", "y")],
    }
    for name, lines in texts.items():
        (folder / name).write_text("".join("\t".join(pair) + "\n" for pair in lines))
    (folder / "full").mkdir()
    (folder / "full" / "file").touch()
    return Home(folder, source, target, pairs)


def test_train_dictionary_maps_and_test_dictionary_scores(home: Home, tmp_path: Path) -> None:
    made = unmask.align(
        home / "en.vec",
        home / "de.vec",
        dictionary=home / "train.tsv",
        test=home / "test.tsv",
        refine=2,
        out=tmp_path / "out",
    )
    scored = made.scores["csls"]
    assert scored.precision_at_1 > 0.98
    assert (scored.n_evaluated, scored.n_source_unknown, scored.n_target_unknown) == (
        N - 125 + 1,
        1,
        0,
    )
    assert scored.n_seed_words == 1
    facts = json.loads((tmp_path / "out" / "align.json").read_text())
    assert facts == json.loads(json.dumps(made.summary))
    assert facts["scores"]["csls"]["p_at_1"] == scored.precision_at_1
    assert (facts["seeds"], facts["rounds"], facts["self_learning"]) == (100, 3, "none")
    weights = np.load(tmp_path / "out" / "map.npy", allow_pickle=False)
    np.testing.assert_allclose(weights @ weights.T, np.eye(20), atol=1e-9)
    source = read_vectors(tmp_path / "out" / "source.vec")
    target = read_vectors(tmp_path / "out" / "target.vec")
    assert (source.words, target.words) == (home.source.words, home.target.words)
    np.testing.assert_array_equal(source.vectors, made.source.vectors)
    one, other = home.pairs[200]
    assert target.neighbors(source.vector(one)[None], 1)[0][0].word == other
    page = (tmp_path / "out" / "README.md").read_text()
    assert "# en.vec (300 words, 20 wide) -> de.vec" in page
    assert "| CSLS | " in page
    assert "1 of 177 words were not tested: the source space lacks 1, the target space" in page
    assert "1 of the test words are in the seed dictionary, too" in page


def test_first_pairs_are_seeds_and_the_rest_the_test(home: Home) -> None:
    made = unmask.align(home.source, home.target, dictionary=home / "all.tsv", seed_pairs=60)
    assert made.summary["seeds"] == 60
    assert made.scores["nearest"].n_evaluated == N - 60
    assert made.scores["nearest"].n_seed_words == 0
    assert made.summary["source"]["file"] is None
    assert made.summary["self_learning"] == "none"
    assert made.held_out_scores is None


@pytest.mark.parametrize("way", ["csls", "nearest", "stochastic", None])
def test_numerals_suffice_with_self_learning(way, home: Home, monkeypatch) -> None:
    import unmask.jobs.word_vectors.align.align as serving

    monkeypatch.setattr(
        serving, "STOCHASTIC_SELF_LEARNING", replace(serving.STOCHASTIC_SELF_LEARNING, patience=2)
    )
    made = unmask.align(
        home / "en.vec", home / "de.vec", numerals=True, test=home / "test.tsv", self_learning=way
    )
    assert made.summary["self_learning"] == way or "csls"
    assert made.summary["seeds"] == 25
    assert made.summary["rounds"] > 2
    assert made.scores["csls"].precision_at_1 > 0.95


def test_no_claim_is_made_without_a_test(home: Home) -> None:
    made = unmask.align(home.source, home.target, dictionary=home / "all.tsv")
    assert made.scores == {}
    assert made.score_table()[1] == []
    assert any("not tested" in line for line in made.notes())


def test_default_self_learning_is_skipped_in_a_small_space(home: Home) -> None:
    five = home.source.most_frequent(5)
    assert unmask.align(five, five, identical=True).summary["self_learning"] == "none"


def test_spaces_without_numerals_do_not_align(home: Home) -> None:
    empty = named(np.zeros((N, 20)))
    made = unmask.align(empty, empty, semantic_shift=3)
    assert "the semantic shifts mean nothing" in made.notes()[-1]


def test_unrelated_spaces_are_reported_as_unaligned(home: Home) -> None:
    other = named(clustered(N, 20, seed=8).vectors, words=home.target.words)
    made = unmask.align(home.source, other, dictionary=home / "all.tsv", seed_pairs=15)
    assert made.summary["self_learning"] == "csls"
    assert not made.scores["csls"].above_chance
    assert "accuracy is at chance level: the spaces do not align" in made.notes()
    assert any("15 pairs do not determine a map of 20 dimensions" in line for line in made.notes())


def two_times(n_moved: int) -> tuple[KeyedVectors, KeyedVectors]:
    """Make a space and, turned, the same later, in which some words stand where others stood."""
    then = clustered(N, 20, seed=5)
    rng = np.random.default_rng(6)
    vectors = then.vectors.copy()
    for word in range(n_moved):
        vectors[word] = then.vectors[N - 1 - word] + 0.05 * rng.normal(size=20)
    prediction_order, _ = np.linalg.qr(rng.normal(size=(20, 20)))
    vectors = vectors @ prediction_order + 0.02 * rng.normal(size=(N, 20))
    counts = np.arange(N, 0, -1)
    order = rng.permutation(N)
    words = [then.words[row] for row in order]
    now = KeyedVectors(tuple(words), vectors[order].astype(np.float32), counts[order])
    return KeyedVectors(then.words, then.vectors, counts), now


def test_largest_semantic_shifts_are_found_with_neighbors() -> None:
    then, now = two_times(6)
    made = unmask.align(then, now, semantic_shift=8)
    assert {one.word for one in made.semantic_shifts[:6]} == {f"w{i}" for i in range(6)}
    assert made.semantic_shifts[5].cosine < 0.9 < made.semantic_shifts[6].cosine
    first = next(one for one in made.semantic_shifts if one.word == "w0")
    assert first.new_neighbors[0].word == f"w{N - 1}"
    assert first.old_neighbors[0].word != f"w{N - 1}"
    assert len(first.old_neighbors) == len(first.new_neighbors) == 8
    assert (first.old_count, first.new_count) == (N, N)
    assert made.held_out_scores is not None
    assert made.held_out_scores.precision_at_1 > 0.95
    assert "do not align" not in " ".join(made.notes())


def test_rare_words_are_excluded_from_shifts() -> None:
    then, now = two_times(6)
    counted = [
        one.word
        for one in unmask.align(then, now, semantic_shift=N, min_count=N - 3).semantic_shifts
    ]
    assert sorted(counted) == ["w0", "w1", "w2", "w3"]
    first = [
        one.word
        for one in unmask.align(then, now, semantic_shift=N, vocabulary_cutoff=100).semantic_shifts
    ]
    assert set(first) == set(then.words[:100]) & set(now.words[:100])
    with pytest.raises(ValueError, match="of the first 2 words of each: the spaces have no word"):
        unmask.align(then, now, semantic_shift=N, vocabulary_cutoff=2)


def test_periods_are_aligned_on_given_words(tmp_path: Path) -> None:
    then, now = two_times(6)
    (tmp_path / "anchors.txt").write_text("".join(f"w{i}\n" for i in range(50, 150)) + "nobody\n")
    made = unmask.align(then, now, anchors=tmp_path / "anchors.txt", semantic_shift=6)
    assert made.summary["seeds"] == 100
    assert {one.word for one in made.semantic_shifts} == {f"w{i}" for i in range(6)}


def test_shifts_of_unrelated_spaces_are_reported_as_meaningless() -> None:
    then = clustered(N, 20, seed=5)
    made = unmask.align(then, named(clustered(N, 20, seed=9).vectors), semantic_shift=3)
    assert "the semantic shifts mean nothing" in made.notes()[-1]


def test_words_with_white_space_are_written(tmp_path: Path, home: Home) -> None:
    words = ("New York", *home.source.words[1:])
    source = named(home.source.vectors, words=words)
    unmask.align(source, source, identical=True, out=tmp_path / "out")
    assert "New_York" in read_vectors(tmp_path / "out" / "source.vec")
    both = named(home.source.vectors, words=("New York", "New_York", *words[2:]))
    with pytest.raises(ValueError, match="differ only in white space"):
        unmask.align(both, both, identical=True, out=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_progress_is_shown_when_requested(home: Home, monkeypatch) -> None:

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(time, "monotonic", iter(range(0, 10**6, 20)).__next__)
    for stream, before in ((Terminal(), "\r"), (io.StringIO(), "")):
        unmask.align(home.source, home.target, numerals=True, terminal=stream)
        assert f"{before}round 1: " in stream.getvalue()


# The command


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    capsys.readouterr()
    status = cli.run([str(a) for a in arguments])
    return (status, *capsys.readouterr())


def test_command_prints_table_and_writes_folder(home: Home, tmp_path: Path, capsys) -> None:
    words = f"--dictionary {home / 'all.tsv'} --seed-pairs 60 --refine 1 --out {tmp_path / 'o'}"
    status, out, _ = run(capsys, "align", home / "en.vec", home / "de.vec", *words.split())
    assert status == 0
    assert "P@1" in out
    assert f"{tmp_path / 'o'}: done" in out
    assert {path.name for path in (tmp_path / "o").iterdir()} == {
        "source.vec", "target.vec", "map.npy", "align.json", "README.md",
    }  # fmt: skip


def test_command_lists_semantic_shifts(home: Home, tmp_path: Path, capsys) -> None:
    then, now = two_times(6)
    write_vectors(then, tmp_path / "then.vec")
    write_vectors(now, tmp_path / "now.bin")
    files = tmp_path / "then.vec", tmp_path / "now.bin"
    status, out, _ = run(capsys, "align", *files, "--semantic-shift", 3)
    assert status == 0
    assert all(name in out for name in ("word", "cosine", "then", "now", "w0"))
    status, out, err = run(capsys, "align", *files, "--semantic-shift", 3, "--json")
    assert (status, err) == (0, "")
    facts = json.loads(out)
    assert len(facts["moved"]) == 3
    assert facts["held_out"]["above_chance"]
    assert facts["moved"][0]["now"][0][0].startswith("w")


@pytest.mark.trials("mistakes")
@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("en.vec de.vec", "nothing to learn from: give --dictionary, --numerals"),
        ("en.vec de.vec --numerals --identical", "learn from one of them: got --numerals and"),
        (
            "en.vec de.vec --numerals --seed-pairs 5",
            "--seed-pairs is a number of pairs of --dictionary",
        ),
        (
            "en.vec de.vec --dictionary train.tsv --seed-pairs 0",
            "--seed-pairs must be 1 or more, got 0",
        ),
        ("en.vec de.vec --numerals --refine -1", "--refine must be 0 or more, got -1"),
        ("en.vec de.vec --numerals --seed -1", "--seed must be 0 or more, got -1"),
        (
            "en.vec de.vec --numerals --min-count 5",
            "--min-count is for the words of --semantic-shift",
        ),
        ("en.vec de.vec --dictionary broken.tsv", "broken.tsv:5: a line must be a word"),
        ("en.vec de.vec --dictionary empty.tsv", "empty.tsv: no pair of words"),
        ("en.vec de.vec --dictionary other.tsv", "other.tsv: the dictionary's 1 pairs have none"),
        ("de.vec en.vec --dictionary train.tsv", "source and target swapped"),
        ("en.vec de.vec --dictionary train.tsv --test other.tsv", "other.tsv: the dictionary's 1"),
        ("en.vec de.vec --dictionary nothere.tsv", "nothere.tsv: no such file"),
        ("en.vec nothere.vec --numerals", "nothere.vec: no such file"),
        ("en.vec all.tsv --numerals", "all.tsv"),
        ("narrow.vec de.vec --numerals", "one width: got 7 (source) and 20 (target)"),
        ("five.vec de.vec --numerals --refine 1", "only 5 source words; k may be at most 5"),
        ("en.vec de.vec --anchors other.tsv", "other.tsv: of those that were given, the spaces"),
        ("en.vec de.vec --anchors empty.tsv", "empty.tsv: has no words"),
        ("en.vec de.vec --semantic-shift 0", "--semantic-shift must be 1 or more, got 0"),
        (
            "en.vec de.vec --semantic-shift 3 --min-count 3",
            "does not say how often words were seen",
        ),
        ("en.vec de.vec --numerals --out /proc/new", "/proc/new"),
        ("en.vec de.vec --numerals --out full", "is there already"),
        ("en.vec de.vec --numerals --out en.vec", "is there already"),
        ("en.vec de.vec --numerals --out no/out", "there is no folder"),
        ("en.vec de.vec --numerals --map affine", "'affine' is not one of"),
        ("en.vec de.vec --numerals --limit 0", "--limit must be 1 or more, got 0"),
    ],
)
def test_mistake_is_reported_in_one_line(
    words: str, line: str, home: Home, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(home.folder)
    before = sorted(home.folder.rglob("*"))
    status, out, err = run(capsys, "align", *words.split())
    assert (status, out) == (2, "")
    assert line in err
    assert err.count("\n") == 1
    assert sorted(home.folder.rglob("*")) == before


@pytest.mark.parametrize("wrong", [{"map": "affine"}, {"normalize": "all"}, {"self_learning": "x"}])
def test_invalid_choice_is_refused_in_python_too(wrong: dict, home: Home) -> None:
    with pytest.raises((ValueError, TypeError), match=r"must be one of|violates|Type-check"):
        unmask.align(home.source, home.target, numerals=True, **wrong)
