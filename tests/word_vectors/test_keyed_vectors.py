"""Keyed vectors: refused inputs, nearest words and analogies."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from unmask.word_vectors import keyed_vectors as module
from unmask.word_vectors.keyed_vectors import KeyedVectors


def make_space(n: int = 60, d: int = 8, seed: int = 0) -> KeyedVectors:
    vectors = np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)
    return KeyedVectors(tuple(f"w{i}" for i in range(n)), vectors)


def rows(*rows: tuple[float, ...]) -> np.ndarray:
    return np.array(rows, dtype=np.float32)


ROYAL = KeyedVectors(
    ("man", "woman", "king", "queen", "apple", "nothing"),
    rows((1, 0, 0), (0, 1, 0), (1, 0, 1), (0, 1, 1), (-1, -1, -0.5), (0, 0, 0)),
)


@pytest.mark.parametrize(
    ("words", "vectors", "counts", "output"),
    [
        ((), np.zeros((0, 2), np.float32), None, "at least one word"),
        (("a", "b"), rows((1, 2)), None, "2 words, but 1 vectors"),
        (("a",), np.ones(3, np.float32), None, r"\[n d\], got \[3\]"),
        (("a",), np.ones((1, 0), np.float32), None, r"\[n d\], got \[1, 0\]"),
        (("a",), rows((1,)), np.array([1, 2]), r"1 words, but counts are \[2\]"),
    ],
)
def test_inconsistent_shapes_are_refused(words, vectors, counts, output) -> None:
    with pytest.raises(ValueError, match=output):  # the types that tests check say some of it, too
        module._check_shapes(words, vectors, counts)


@pytest.mark.parametrize(
    ("words", "vectors", "output"),
    [
        (("a", "b", "a"), rows((1,), (2,), (3,)), "'a' stands twice, in rows 0 and 2"),
        (("a", "b"), rows((1, 2), (3, np.nan)), r"'b' \(row 1 .* nan at place 1"),
        (("a", "b"), rows((-np.inf, 2), (3, 4)), r"'a' \(row 0 .* -inf at place 0"),
        (("a",), np.array([[1e39]]), "'a' .* inf at place 0.* finite in float32"),
    ],
)
def test_invalid_words_and_numbers_are_refused(words, vectors, output) -> None:
    with pytest.raises(ValueError, match=output):
        KeyedVectors(words, vectors)


def test_other_number_types_become_float32() -> None:
    space = KeyedVectors(("a",), np.array([[0.1, 0.2]]))
    assert space.vectors.dtype == np.float32
    assert space.unit_vectors.dtype == np.float32


def test_repr_of_a_large_space_is_short() -> None:
    assert repr(make_space()) == "<Space of 60 words, 8 numbers each>"


def test_norms_are_correct_for_huge_tiny_and_zero_rows() -> None:
    space = KeyedVectors(("a", "b", "c"), rows((3e38, 3e38), (3e-30, 4e-30), (0, 0)))
    np.testing.assert_allclose(space.norms, [3e38 * 2**0.5, 5e-30, 0], rtol=1e-6)
    np.testing.assert_allclose(space.unit_vectors, [[0.5**0.5] * 2, [0.6, 0.8], [0, 0]], rtol=1e-6)
    assert space.cosine("a", "c") == 0
    assert space.cosine("a", "a") == pytest.approx(1)


@given(
    arrays.arrays(np.float32, (30, 4), elements=st.integers(-2, 2).map(float)),
    st.integers(1, 40),
    st.sampled_from([3, 7, 2**13]),
)
def test_neighbors_equal_a_full_sort(vectors: np.ndarray, k: int, block: int) -> None:
    """Small whole numbers: many ties, which go to the lower row, whatever the blocks."""
    space = KeyedVectors(tuple(f"w{i}" for i in range(30)), vectors)
    wide = vectors.astype(np.float64)
    length = np.linalg.norm(wide, axis=1)
    unit = wide / np.where(length > 0, length, 1)[:, None]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        found = space.neighbors(["w0", "w7"], k, exclude=["w3"])
    for query, got in zip((0, 7), found, strict=True):
        cosines = (unit * unit[query]).sum(1)
        expected = [
            i for i in np.lexsort((np.arange(30), -cosines.round(12))) if i not in (query, 3)
        ]
        scores = [score for _, score in got]
        assert len(got) == min(k, 28)
        np.testing.assert_allclose(scores, cosines[expected[:k]], atol=1e-12)
        assert scores == sorted(scores, reverse=True)
        # Cosines that are equal but for rounding may change places; equal rows may not.
        for (one, a), (other, b) in itertools.pairwise(got):
            assert a > b or int(one[1:]) < int(other[1:])


def test_equal_rows_keep_their_order_in_any_block() -> None:
    row = np.random.default_rng(0).standard_normal(300).astype(np.float32)
    space = KeyedVectors(tuple(map(str, range(20_000))), np.tile(row, (20_000, 1)))
    (found,) = space.neighbors(row[None] * 3, 12)
    assert [word for word, _ in found] == [str(i) for i in range(12)]


def test_neighbors_of_word_and_vector_differ_only_by_the_word() -> None:
    space = make_space(20_000, 16)
    (of_word,) = space.neighbors(["w5"], 4)
    (of_vector,) = space.neighbors(space.vectors[5:6] * 7, 5)
    assert of_vector[0].word == "w5"
    assert [word for word, _ in of_vector[1:]] == [word for word, _ in of_word]
    assert [s for _, s in of_vector[1:]] == pytest.approx([s for _, s in of_word])
    assert space.unit_vectors is space.unit_vectors
    assert space.neighbors(["w5"], 4) == [of_word]  # with `unit` at hand


def test_fewer_neighbors_than_requested_are_possible() -> None:
    assert len(ROYAL.neighbors(["man"], 100)[0]) == 5
    assert ROYAL.neighbors(["man"], 3, exclude=["woman", "king", "queen", "apple", "nothing"]) == [
        []
    ]
    assert ROYAL.neighbors([]) == []


@pytest.mark.parametrize("by", ["add", "multiply"])
def test_king_minus_man_plus_woman_is_queen(by) -> None:
    (best,) = ROYAL.analogy("man", "king", "woman", 1, by)
    assert best.word == "queen"
    assert {"man", "king", "woman"}.isdisjoint(w for w, _ in ROYAL.analogy("man", "king", "woman"))


def test_3cosmul_equals_the_papers_formula() -> None:
    space = make_space(300, 5)
    cos = (space.unit_vectors.astype(np.float64) @ space.unit_vectors.T.astype(np.float64) + 1) / 2
    score = cos[2] * cos[3] / (cos[1] + 0.001)
    score[[1, 2, 3]] = -1
    found = space.analogy("w1", "w2", "w3", 20, "multiply")
    best = np.argsort(-score)[:20]
    assert [word for word, _ in found] == [f"w{i}" for i in best]
    np.testing.assert_allclose([s for _, s in found], score[best], rtol=1e-4)


def test_unknown_word_is_refused_with_similar_spellings() -> None:
    space = KeyedVectors(("paris", "PARIS", "Rome"), rows((1,), (2,), (3,)))
    with pytest.raises(
        ValueError, match="'Paris' is not among the 3 words; 'paris' and 'PARIS' are"
    ):
        space.neighbors(["Paris"])
    with pytest.raises(ValueError, match="'rome' is not among the 3 words; 'Rome' is"):
        space.most_similar(["Rome"], ["rome"])
    with pytest.raises(ValueError, match=r"'x' is not among the 3 words$"):
        space.neighbors(["Rome"], exclude=["x"])


def test_invalid_queries_are_refused() -> None:
    with pytest.raises(ValueError, match="k must be at least 1"):
        ROYAL.neighbors(["man"], 0)
    with pytest.raises(ValueError, match=r"\[q 3\], got \[1, 2\]"):
        ROYAL.neighbors(np.ones((1, 2), np.float32))
    with pytest.raises(ValueError, match="not finite"):
        ROYAL.neighbors(np.array([[1.0, np.nan, 0]]))
    with pytest.raises(ValueError, match="at least one word must be added"):
        ROYAL.most_similar([], ["man"])
    with pytest.raises(ValueError, match="cancel each other"):
        ROYAL.most_similar(["man"], ["man"])
    with pytest.raises(ValueError, match="at least one word"):
        ROYAL.most_frequent(0)


def test_most_frequent_words_form_a_space() -> None:
    space = KeyedVectors(("a", "b", "c"), rows((1,), (2,), (3,)), np.array([9, 5, 1]))
    assert space.most_frequent(2).words == ("a", "b")
    assert space.most_frequent(2).counts.tolist() == [9, 5]
    assert space.most_frequent(9) is space


def test_gensim_round_trip() -> None:
    models = pytest.importorskip("gensim.models")
    space = KeyedVectors(("a", "b c", "ü"), make_space(3, 4).vectors, np.array([7, 2, 1]))
    theirs = space.to_gensim()
    assert isinstance(theirs, models.KeyedVectors)
    assert np.array_equal(theirs["ü"], space.vector("ü"))
    assert theirs.get_vecattr("b c", "count") == 2
    theirs.add_vectors(["new"], np.ones((1, 4), np.float32))  # it grows, and ours does not
    assert (len(theirs), len(space)) == (4, 3)
    back = KeyedVectors.from_gensim(space.to_gensim())
    assert back.words == space.words
    assert np.array_equal(back.vectors, space.vectors)
    assert back.counts.tolist() == [7, 2, 1]


def test_neighbors_and_analogies_equal_gensim() -> None:
    pytest.importorskip("gensim")
    space = make_space(500, 20)
    theirs = space.to_gensim()
    for ours, other in (
        (space.neighbors(["w3"], 15)[0], theirs.most_similar("w3", topn=15)),
        (
            space.analogy("w1", "w2", "w3", 15),
            theirs.most_similar(positive=["w2", "w3"], negative=["w1"], topn=15),
        ),
        (space.most_similar(["w2", "w9"]), theirs.most_similar(positive=["w2", "w9"])),
    ):
        assert [word for word, _ in ours] == [word for word, _ in other]
        np.testing.assert_allclose([s for _, s in ours], [s for _, s in other], atol=1e-6)
    # Its epsilon is 1e-6, not the paper's 0.001: the words are the same here, the scores near.
    ours = space.analogy("w1", "w2", "w3", 5, "multiply")
    with pytest.warns(DeprecationWarning, match="init_sims"):
        other = theirs.most_similar_cosmul(positive=["w2", "w3"], negative=["w1"], topn=5)
    assert [word for word, _ in ours] == [word for word, _ in other]
