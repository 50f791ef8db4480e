"""Weights of sources: whose they are, and what is refused."""

import pytest

from unmask.text.mixtures import source_weights, weighted_shares

NAMES = ["corpus/wiki.txt", "corpus/code", "hf:owner/books", "de"]


def test_weights_are_of_sources_by_name_or_its_last_part() -> None:
    given = {"wiki": 4.0, "corpus/code": 3.0, "books": 2.0, "de": 1.0}
    assert weighted_shares(NAMES, given) == pytest.approx([0.4, 0.3, 0.2, 0.1])
    assert weighted_shares(["a/wiki", "wiki"], {"wiki": 1.0, "a/wiki": 3.0}) == [0.75, 0.25]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"wkii": 1.0}, "wkii is no source; the sources are corpus/wiki.txt, "),
        ({"wiki.txt": 1.0}, "corpus/wiki.txt has two weights"),
        ({"de": None}, "de has no weight; give each source one"),
    ],
)
def test_other_weights_are_refused(changes: dict[str, float | None], message: str) -> None:
    given = {"wiki": 4.0, "code": 3.0, "books": 2.0, "de": 1.0} | changes
    weights = {name: weight for name, weight in given.items() if weight is not None}
    with pytest.raises(ValueError, match=f"^source_weights: {message}"):
        weighted_shares(NAMES, weights)


def test_weight_of_several_sources_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a may be x/a or y/a\.txt; the sources are"):
        weighted_shares(["x/a", "y/a.txt"], {"a": 1.0})


def test_weights_are_given_as_text_or_as_a_mapping() -> None:
    expected = {"wiki": 0.7, "de=corpus/code": 3.0}
    assert source_weights(["wiki=0.7", "de=corpus/code=3"]) == expected
    assert source_weights({"wiki": 0.7, "de=corpus/code": 3}) == expected
    for wrong in (["wiki"], ["wiki="], ["=1"], ["wiki=much"]):
        with pytest.raises(ValueError, match="--source-weight must be NAME=WEIGHT, such as wiki"):
            source_weights(wrong)
    with pytest.raises(ValueError, match="--source-weight: a is given twice"):
        source_weights(["a=1", "a=2"])
