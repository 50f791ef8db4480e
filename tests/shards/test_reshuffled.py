"""Documents in another order in each epoch: which, and in what order."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_text import corpus

from unmask.jobs.corpus.prepare import prepare
from unmask.shards.read import TokenShards
from unmask.shards.reshuffled import (
    EPOCH_PLACES,
    DocumentGroup,
    ReshuffledDocuments,
    ReshuffledRows,
)


def spans_of(sizes: list[int]) -> np.ndarray:
    ends = np.cumsum(sizes)
    return np.stack((ends - sizes, ends), 1)


@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=20),
    share=st.floats(0.05, 5),
    seed=st.integers(0, 9),
)
def test_no_document_is_read_again_before_all_others(
    sizes: list[int], share: float, seed: int
) -> None:
    spans = spans_of(sizes)
    per_epoch = max(1, round(share * sum(sizes)))
    group = DocumentGroup(spans=spans, tokens_per_epoch=per_epoch)
    n_epochs = 6
    epochs = [group.epoch_spans(e, seed, 0) for e in range(n_epochs)]
    again = [group.epoch_spans(e, seed, 0) for e in reversed(range(n_epochs))]
    assert all((a == b).all() for a, b in zip(epochs, reversed(again), strict=True))
    read = np.concatenate(epochs)[:, 0].tolist()
    for first in range(0, len(read), len(sizes)):
        part = read[first : first + len(sizes)]
        assert len(set(part)) == len(part), "each round is of all documents"
    tokens = sum(sizes[spans[:, 0].tolist().index(start)] for start in read)
    assert abs(tokens - n_epochs * per_epoch) < max(sizes)


def test_all_documents_are_an_epoch_in_another_order_each_time() -> None:
    spans = spans_of([5] * 30)
    group = DocumentGroup(spans=spans, tokens_per_epoch=150)
    orders = [group.epoch_spans(e, 0, 0)[:, 0].tolist() for e in range(4)]
    assert all(sorted(order) == spans[:, 0].tolist() for order in orders)
    others = [group.epoch_spans(0, 1, 0), group.epoch_spans(0, 0, 1)]
    assert len({tuple(order) for order in [*orders, *(o[:, 0].tolist() for o in others)]}) == 6


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> TokenShards:
    folder = tmp_path_factory.mktemp("shuffled")
    (folder / "text.txt").write_text(corpus(40))
    prepare(
        folder / "text.txt", out=folder / "data", model="roberta-mini", vocab_size=320, quiet=True
    )
    return TokenShards.open(folder / "data")


@pytest.mark.parametrize("stride", [None, 20, 10])
def test_rows_of_an_epoch_are_read_by_their_places(shards: TokenShards, stride: int | None) -> None:
    group = DocumentGroup(spans=shards.document_spans, tokens_per_epoch=shards.n_tokens)
    documents = ReshuffledDocuments(shards=shards, groups=(group,), separator_ids=(2,), seed=0)
    rows = ReshuffledRows(documents=documents, row_length=20, stride=stride)
    for copied in (rows, pickle.loads(pickle.dumps(rows))):
        for epoch in (0, 3, 1, 0):
            spans, text = copied.row_spans(epoch), documents.epoch(epoch)
            assert (spans // EPOCH_PLACES == epoch).all()
            assert (spans[:, 1] - spans[:, 0]).max() <= 20
            for start, end in spans[:5].tolist():
                place = start - epoch * EPOCH_PLACES
                np.testing.assert_array_equal(
                    copied.documents.read_tokens(start, end).ids,
                    text.read_tokens(place, place + end - start).ids,
                )
            of = copied.document_of_row(epoch, spans)
            assert (np.diff(of) >= 0).all()
            assert of[0] == 0
            if stride is None:
                read = [copied.documents.read_tokens(a, b).ids for a, b in spans.tolist()]
                counted = np.concatenate(read)
                assert (counted != 2).sum() == shards.n_tokens
