import numpy as np
import pytest

pytest.importorskip("numba")

from unmask.word_vectors.train.corpus import Corpus, build_lexicon, corpus_from_ids, count_ids
from unmask.word_vectors.train.lsa import LSA, term_document_matrix
from unmask.word_vectors.train.svd import truncated_svd

DOCUMENTS = [[1, 2, 2, 3], [1, 1, 4], [1, 2, 0], [1, 4, 4, 4, 5]]


def corpus(documents: list[list[int]]) -> Corpus:
    ends = np.cumsum([0, *map(len, documents)])
    ids = np.concatenate(documents).astype(np.uint16)
    return corpus_from_ids(ids, np.stack((ends[:-1], ends[1:]), 1))


def test_counts_have_log_entropy_weights() -> None:
    made = corpus(DOCUMENTS)
    words = build_lexicon(["<unk>", *"abcde"], count_ids(made), [0], 1)
    found = term_document_matrix(made, words).toarray()
    expected = np.zeros_like(found)
    for row, word in enumerate(words.words):
        counts = np.array([d.count("<abcde".index(word)) for d in DOCUMENTS], float)
        share = counts[counts > 0] / counts.sum()
        entropy = -(share * np.log(share)).sum()
        expected[row] = np.log1p(counts) * (1 - entropy / np.log(len(DOCUMENTS)))
    np.testing.assert_allclose(found, expected, atol=1e-12)
    # a word of one document determines it, a word of all documents alike determines nothing
    assert expected[words.words.index("c")].max() == pytest.approx(np.log(2))


def test_words_of_the_same_documents_are_similar() -> None:
    random = np.random.default_rng(0)
    topics = [random.integers(1, 6, 30) + 5 * (i % 2) for i in range(40)]
    made = corpus([topic.tolist() for topic in topics])
    words = build_lexicon(["<unk>", *"abcdefghij"], count_ids(made), [0], 1)
    vectors = truncated_svd(term_document_matrix(made, words), 2).vectors(LSA().power)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    first = np.array([word in "abcde" for word in words.words])
    cosine, same = unit @ unit.T, first[:, None] == first
    assert cosine[same].min() > cosine[~same].max()


def test_invalid_settings_are_refused() -> None:
    made = corpus([[1, 2, 3]])
    words = build_lexicon(["<unk>", *"abc"], count_ids(made), [0], 1)
    with pytest.raises(ValueError, match="one document only"):
        term_document_matrix(made, words)
    with pytest.raises(ValueError, match="power must be at least 0"):
        LSA(power=-1.0)
