"""Scores of vectors: read from files, as gensim and the formulas have them."""

import lzma

import numpy as np
import pytest

from unmask.word_vectors.evaluation import similarity
from unmask.word_vectors.evaluation.similarity import (
    AnalogyTest,
    WordSimilarityTest,
    evaluate_analogies,
    evaluate_word_similarity,
    is_lower_case,
    read_word_vector_test,
)
from unmask.word_vectors.keyed_vectors import COS_MUL_EPSILON, KeyedVectors

PAIRS = "w0\tw1\t5\nw2\tw3\t5\nw4\tw5\t1.5\nw6\tnone\t9\nw7\tw8\t-2\nw9\tw10\t3\n"


def make_space(n: int = 400, d: int = 12) -> KeyedVectors:
    vectors = np.random.default_rng(0).standard_normal((n, d)).astype(np.float32)
    return KeyedVectors(tuple(f"w{i}" for i in range(n)), vectors)


def analogies(n: int = 120) -> str:
    """Questions of which some are right: d is what most vectors near b - a + c are."""
    rng = np.random.default_rng(1)
    space, lines = make_space(), list[str]()
    for i in range(n):
        if i in (0, 60, 110):
            lines.append(f": {'gram1-x' if i == 60 else f's{i}'}")
        a, b, c, d = rng.integers(0, 400, 4)
        if i % 3:
            rows = space.unit_vectors[b] - space.unit_vectors[a] + space.unit_vectors[c]
            order = [j for j in np.argsort(-space.unit_vectors @ rows) if j not in (a, b, c)]
            d = order[i % 2]
        lines.append(f"w{a} w{b} w{c} {'none' if i % 17 == 0 else f'w{d}'}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def file(tmp_path):
    def write(name: str, text: str):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


# Files


def test_pairs_are_read_with_any_delimiter_and_header(file) -> None:
    expected = WordSimilarityTest(
        name="ws", pairs=(("tiger", "big cat"), ("a", "b")), scores=(7.5, -1.0)
    )
    assert (
        read_word_vector_test(file("ws.tsv", "# made\ntiger\tbig cat\t7.5\n\na\tb\t-1\n"))
        == expected
    )
    assert (
        read_word_vector_test(file("ws.tsv", "w1\tw2\tscore\ntiger\tbig cat\t7.5\na\tb\t-1\n"))
        == expected
    )
    assert (
        read_word_vector_test(file("ws.csv", "W 1,W 2,Human (mean)\ntiger,big cat,7.5\na,b,-1\n"))
        == expected
    )
    assert read_word_vector_test(file("ws.txt", "tiger cat 7.5\n# b 1\n")) == WordSimilarityTest(
        name="ws", pairs=(("tiger", "cat"), ("#", "b")), scores=(7.5, 1.0)
    )


def test_analogies_are_read_by_section_also_compressed(file, tmp_path) -> None:
    text = ": capitals\nAthens Greece Oslo Norway\n:gram1\nbig\tbigger\tsmall\tsmaller\n"
    (tmp_path / "q.txt.xz").write_bytes(lzma.compress(text.encode()))
    found = read_word_vector_test(tmp_path / "q.txt.xz")
    assert found == AnalogyTest(
        name="q",
        sections=(
            ("capitals", (("Athens", "Greece", "Oslo", "Norway"),)),
            ("gram1", (("big", "bigger", "small", "smaller"),)),
        ),
    )


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("", "empty; word pairs are 'word1 word2 score', analogies are four words"),
        ("# only this\n", "empty"),
        ("a b c\n", "a header, but no pair of words"),
        ("a b 1\nc d\n", ":2: 2 fields, 'c d', where word pairs are"),
        ("take remove V 6.8\n", ":1: 4 fields"),
        ("a b 1\nc d x\n", ":2: 'x' is no score"),
        ("a b 1\nc d nan\n", ":2: 'nan' is no score"),
        (": s\na b c\n", ":2: an analogy must be four words, got 3: 'a b c'"),
        (": s\n: t\n", "no question in its sections"),
        ("a b 1\n: s\n", ":2: 2 fields"),
    ],
)
def test_malformed_files_are_refused_with_their_line(text, output, file) -> None:
    with pytest.raises(ValueError, match=output):
        read_word_vector_test(file("x.txt", text))


def test_missing_file_is_refused(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_word_vector_test(tmp_path / "none.txt")


# Pairs


def test_correlations_equal_gensim(file) -> None:
    pytest.importorskip("gensim")
    path = file("pairs.tsv", PAIRS)
    space = make_space()
    _, theirs, _ = space.to_gensim().evaluate_word_pairs(str(path), case_insensitive=False)
    found = evaluate_word_similarity(space, read_word_vector_test(path))
    assert (found.n_pairs, found.n_known) == (6, 5)
    assert found.spearman == pytest.approx(theirs.statistic, abs=1e-12)
    _, theirs, _ = space.to_gensim().evaluate_word_pairs(
        str(path), case_insensitive=False, dummy4unknown=True
    )
    all_of_them = evaluate_word_similarity(
        space, read_word_vector_test(path), unknown_cosine=0.0
    ).spearman_all
    assert all_of_them == pytest.approx(theirs.statistic, abs=1e-12)


def test_unknown_pairs_get_the_mean_cosine() -> None:
    test = WordSimilarityTest(
        name="t",
        pairs=(("w0", "w1"), ("w0", "w2"), ("w0", "no"), ("w0", "w3")),
        scores=(1.0, 2.0, 3.0, 4.0),
    )
    space = make_space()
    known = [space.cosine("w0", w) for w in ("w1", "w2", "w3")]
    cosines = [known[0], known[1], sum(known) / 3, known[2]]
    ranks = np.argsort(np.argsort(cosines))
    assert evaluate_word_similarity(space, test).spearman_all == pytest.approx(
        np.corrcoef(ranks, range(4))[0, 1]
    )


@pytest.mark.parametrize(
    "pairs", [(("w0", "w1"),), (("no", "w1"), ("w1", "no")), (("w0", "w1"), ("w0", "w1"))]
)
def test_undefined_correlation_is_none(pairs) -> None:
    found = evaluate_word_similarity(
        make_space(),
        WordSimilarityTest(name="t", pairs=pairs, scores=tuple(map(float, range(len(pairs))))),
    )
    assert found.spearman is None


def test_lower_case_lookup_is_used_for_lower_case_spaces() -> None:
    test = WordSimilarityTest(
        name="t", pairs=(("W0", "w1"), ("W2", "W3"), ("w4", "w5")), scores=(1.0, 3.0, 2.0)
    )
    space = make_space()
    assert is_lower_case(space)
    assert (
        evaluate_word_similarity(space, test).n_known,
        evaluate_word_similarity(space, test).lowercased,
    ) == (3, True)
    assert evaluate_word_similarity(space, test, case="keep").n_known == 1
    mixed = KeyedVectors((*space.words[:-1], "W0"), space.vectors)
    assert not is_lower_case(mixed)
    assert evaluate_word_similarity(mixed, test).n_known == 2
    assert is_lower_case(KeyedVectors((*space.words[:-1], "<UNK>"), space.vectors))


# Analogies


def test_analogy_answers_equal_formula(monkeypatch) -> None:
    monkeypatch.setattr(similarity, "_BLOCK", 64)
    monkeypatch.setattr(similarity, "_QUESTIONS_PER_BLOCK", 7)
    space = make_space()
    rows = np.random.default_rng(2).integers(0, 400, (30, 3))
    cos = space.unit_vectors.astype(np.float64) @ space.unit_vectors.T.astype(np.float64)
    moved = (cos + 1) / 2
    add, multiply = similarity._answer_rows(space, rows)
    for (a, b, c), one, other in zip(rows, add, multiply, strict=True):
        scores = cos[b] - cos[a] + cos[c]
        scores[[a, b, c]] = -np.inf
        assert one == scores.argmax()
        scores = moved[b] * moved[c] / (moved[a] + COS_MUL_EPSILON)
        scores[[a, b, c]] = -np.inf
        assert other == scores.argmax()


def test_analogy_accuracies_equal_gensim(file) -> None:
    pytest.importorskip("gensim")
    path = file("q.txt", analogies())
    space = make_space()
    score, sections = space.to_gensim().evaluate_word_analogies(str(path), case_insensitive=False)
    found = evaluate_analogies(space, read_word_vector_test(path))
    assert found.total.accuracy_add == pytest.approx(score)
    assert 0.2 < score < 0.8
    for ours, theirs in zip(found.sections, sections, strict=False):
        assert ours.name == theirs["section"]
        assert ours.n_correct_add == len(theirs["correct"])
        assert ours.n_known - ours.n_correct_add == len(theirs["incorrect"])
    with_unknown, _ = space.to_gensim().evaluate_word_analogies(
        str(path), case_insensitive=False, dummy4unknown=True
    )
    assert found.total.n_correct_add / found.total.n_questions == pytest.approx(with_unknown)
    few, _ = space.to_gensim().evaluate_word_analogies(
        str(path), case_insensitive=False, restrict_vocab=200
    )
    limited = evaluate_analogies(space, read_word_vector_test(path), restrict_vocab=200)
    assert (limited.total.accuracy_add, limited.restrict_vocab) == (pytest.approx(few), 200)


def test_sections_starting_with_gram_are_syntactic(file) -> None:
    found = evaluate_analogies(make_space(), read_word_vector_test(file("q.txt", analogies())))
    assert [one.name for one in found.sections] == ["s0", "gram1-x", "s110"]
    assert found.syntactic.n_questions == found.sections[1].n_questions == 50
    assert found.semantic.n_questions == 70
    assert found.total.n_known == found.semantic.n_known + found.syntactic.n_known == 112
    assert found.total.n_correct_multiply == sum(one.n_correct_multiply for one in found.sections)


def test_section_without_known_questions_has_no_accuracy(file) -> None:
    found = evaluate_analogies(make_space(), read_word_vector_test(file("q.txt", ": s\na b c d\n")))
    assert (found.total.n_known, found.total.accuracy_add, found.syntactic.accuracy_multiply) == (
        0,
        None,
        None,
    )


def test_answer_is_never_a_word_of_its_question() -> None:
    space = KeyedVectors(("a", "b", "c", "d"), np.eye(4, dtype=np.float32))
    test = AnalogyTest(name="t", sections=(("s", (("a", "b", "c", "b"), ("a", "a", "a", "a"))),))
    assert evaluate_analogies(space, test).total.n_correct_add == 0
