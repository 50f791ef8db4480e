"""Sources of different size: which text is of which, what share each gets, how often it is read."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.text.documents import Document
from unmask.text.mixtures import repeat_documents, smoothed_shares, source_names


def touch(folder: Path, *names: str) -> list[str]:
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("a text\n")
    return [str(folder / name) for name in names]


def test_several_folders_are_one_source_each(tmp_path: Path):
    named = touch(tmp_path, "en/a.txt", "en/b.txt", "fr/a.txt", "fr/b.txt")
    assert [Path(n).name for n in source_names(named)] == ["en", "en", "fr", "fr"]


def test_files_of_one_folder_are_one_source_each(tmp_path: Path):
    named = touch(tmp_path, "en.txt", "fr.txt")
    assert source_names(named) == named


def test_only_file_of_a_folder_keeps_its_name(tmp_path: Path):
    named = touch(tmp_path, "en.txt", "fr/a.txt", "fr/b.txt")
    assert source_names(named) == [named[0], *[str(tmp_path / "fr")] * 2]


def test_folders_patterns_and_hub_names_are_one_source_each(tmp_path: Path):
    touch(tmp_path, "en/a.txt", "fr/a.txt")
    named = [str(tmp_path / "en"), str(tmp_path / "fr" / "*.txt"), "hf:some/corpus"]
    assert source_names(named) == named


def test_smoothed_shares_equal_lample_and_conneau():
    """q = p ** a / sum of p ** a, worked out by hand for 81 and 16 tokens in 97 and a = 1/4."""
    assert smoothed_shares([81, 16], 0.25) == pytest.approx([3 / 5, 2 / 5])
    assert smoothed_shares([99, 1], 1.0) == pytest.approx([0.99, 0.01])
    assert smoothed_shares([99, 1], 0.0) == pytest.approx([0.5, 0.5])
    assert smoothed_shares([99, 0, 1], 0.0) == pytest.approx([0.5, 0.0, 0.5])


@given(st.lists(st.integers(1, 10**12), min_size=2, max_size=8), st.floats(0, 1))
def test_smoothing_favors_small_sources_and_keeps_their_order(sizes, exponent):
    shares = smoothed_shares(sizes, exponent)
    was = [size / sum(sizes) for size in sizes]
    assert sum(shares) == pytest.approx(1)
    assert shares[sizes.index(max(sizes))] <= max(was) + 1e-9
    assert shares[sizes.index(min(sizes))] >= min(was) - 1e-9
    assert sorted(range(len(sizes)), key=lambda i: (sizes[i], i)) == sorted(
        range(len(sizes)), key=lambda i: (round(shares[i], 9), sizes[i], i)
    )


@pytest.mark.parametrize(("sizes", "exponent"), [([1, 2], -0.1), ([1, 2], 1.1), ([0, 0], 0.5)])
def test_sources_without_shares_are_refused(sizes, exponent):
    with pytest.raises(
        ValueError, match=r"sampling_exponent must be from 0 to 1|no source has any text"
    ):
        smoothed_shares(sizes, exponent)


def test_documents_are_repeated_or_dropped_by_source_weight():
    draw = np.random.default_rng(1)
    lengths = {"en": draw.integers(1, 80, 4000).tolist(), "fr": draw.integers(1, 80, 400).tolist()}
    documents = [
        Document("x" * n, f"{name}:{i}", name)
        for name, sizes in lengths.items()
        for i, n in enumerate(sizes)
    ]
    times = {"en": 0.3, "fr": 4.6}
    given = list(repeat_documents(documents, times))
    assert given == list(repeat_documents(documents, times))
    for name, factor in times.items():
        size = sum(len(d.text) for d in given if d.source == name)
        assert size == pytest.approx(factor * sum(lengths[name]), rel=0.06)
        counts = Counter(d.location for d in given if d.source == name)
        assert set(counts.values()) == ({1} if name == "en" else {4, 5})
    assert len({d.location for d in given if d.source == "fr"}) == 400


def test_dropping_is_random_so_periodic_headings_do_not_dominate():
    """What is left out is drawn: every second document would be all headings."""
    documents = [Document("x" * (1 + 99 * (i % 2)), f"a:{i}", "en") for i in range(2000)]
    headings = sum(len(d.text) == 1 for d in repeat_documents(documents, {"en": 0.5}))
    assert 400 < headings < 600


def test_first_document_of_a_source_is_always_kept():
    document = Document("some words", "a:1", "en")
    assert list(repeat_documents([document], {"en": 0.01})) == [document]
