"""What stands for a text where only its words have vectors."""

import numpy as np
import pytest

from unmask.word_vectors.keyed_vectors import KeyedVectors
from unmask.word_vectors.sentence_means import mean_word_vectors

SPACE = KeyedVectors(
    ("the", "cat", "don't", "well", "known", "don"),
    np.array([[1, 0], [0, 1], [4, 4], [2, 0], [0, 2], [9, 9]], np.float32),
)


@pytest.mark.parametrize(
    ("text", "mean"),
    [
        ("the cat", (0.5, 0.5)),
        ("The cat, the cat!", (0.5, 0.5)),
        ("The CAT saw the dog.", (2 / 3, 1 / 3)),  # what is not known does not count
        ("don't", (4, 4)),  # a word of its own
        ("well-known", (1, 1)),  # and two, where the space has no such word
        ("", (0, 0)),
        ("nothing, here: 1.5", (0, 0)),
    ],
)
def test_text_vector_is_mean_of_known_words(text: str, mean: tuple[float, float]) -> None:
    found = mean_word_vectors(SPACE, ["cat", text])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [(0, 1), mean], rtol=1e-6)


def test_lower_case_lookup_is_used_for_lower_case_spaces() -> None:
    cased = KeyedVectors(("The", "cat"), SPACE.vectors[:2])
    assert mean_word_vectors(cased, ["The Cat"]).tolist() == [[1, 0]]
    assert mean_word_vectors(cased, ["THE CAT"], case="lower").tolist() == [[0, 1]]
    assert mean_word_vectors(SPACE, ["The Cat"], case="keep").tolist() == [[0, 0]]
