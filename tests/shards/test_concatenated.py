"""Rows of full sentences across documents: Liu et al. 2019, section 4.2, FULL-SENTENCES."""

import os
import pickle
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unmask.batch import SENTENCE_START
from unmask.shards import rows
from unmask.shards.concatenated import ConcatenatedDocuments, document_separator_ids
from unmask.shards.read import TokenShards
from unmask.shards.write import write_shards
from unmask.text.documents import Document
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.spec import (
    BERT,
    GPT2,
    ROBERTA,
    T5,
    SpecialTokenIds,
    SpecialTokens,
    TokenizerSpec,
)
from unmask.tokenizers.vocabulary import ByteLevel

TEXTS = st.lists(
    st.lists(st.sampled_from(["A b. ", "C. ", "Dd ee ff. ", "G h\n", "x"]), max_size=8).map(
        "".join
    ),
    min_size=1,
    max_size=12,
)
BETWEEN = st.sampled_from([(), (300,), (300, 301)])
a_few = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def _without_flushing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only for speed: what a killed process has written is there, flushed or not."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@cache
def tokenizer() -> Tokenizer:
    return train_tokenizer(TokenizerSpec(ByteLevel(), T5), ["text"])


def prepare_shards(
    texts: Sequence[str], out: Path, shard_tokens: int = 50, sources: Sequence[str] = ()
) -> TokenShards:
    """Write the texts, and a short one before them, lest there be none."""
    named = [*sources, *[None] * (len(texts) + 1)]
    documents = (Document(text, f"some.txt:{i}", named[i]) for i, text in enumerate(["ab", *texts]))
    folder = out / f"{len(list(out.iterdir()))}"
    return write_shards(documents, tokenizer(), folder, shard_tokens=shard_tokens)


def one_text(joined: ConcatenatedDocuments) -> tuple[list[int], list[int], list[int]]:
    """Ids and marks of all documents and what stands between them, and the document of each; -1."""
    ids, marks, of = list[int](), list[int](), list[int]()
    for i, (a, b) in enumerate(joined.document_spans.tolist()):
        if i:
            ids += joined.separator_ids
            marks += [0] * len(joined.separator_ids)
            of += [-1] * len(joined.separator_ids)
        text = joined.shards.read_tokens(a, b)
        ids += text.ids.tolist()
        marks += text.boundaries.tolist()
        of += [i] * len(text)
    return ids, marks, of


def greedy(joined: ConcatenatedDocuments, length: int, source: Sequence[int]) -> list[list[int]]:
    """The places of each row, sentence by sentence: what is too long for a row is cut first."""
    _, marks, of = one_text(joined)
    pieces: list[list[int]] = []
    for position, document in enumerate(of):
        starts = position == 0 or of[position - 1] != document or marks[position] & SENTENCE_START
        if document >= 0 and (starts or len(pieces[-1]) == length):
            pieces.append([])
        if document >= 0:
            pieces[-1].append(position)
    found: list[list[int]] = []
    for piece in pieces:
        same = found and source[of[found[-1][0]]] == source[of[piece[0]]]
        if same and piece[-1] + 1 - found[-1][0] <= length:
            found[-1] = list(range(found[-1][0], piece[-1] + 1))
        else:
            found.append(piece)
    return found


@pytest.mark.thorough
@a_few
@given(
    texts=TEXTS,
    between=BETWEEN,
    length=st.one_of(st.integers(1, 40), st.just(2**63)),
    shard_tokens=st.integers(1, 60),
    border=st.integers(0, 12),
    share=st.sampled_from([0.0, 0.3]),
)
def test_row_holds_as_many_full_sentences_of_a_source_as_fit(
    tmp_path: Path,
    texts: list[str],
    between: tuple[int, ...],
    length: int,
    shard_tokens: int,
    border: int,
    share: float,
) -> None:
    sources = ["en" if i < border else "fr" for i in range(len(texts) + 1)]
    found = prepare_shards(texts, tmp_path, shard_tokens, sources)
    assert found.sources_of_documents is not None
    for spans in found.split_held_out(share):
        joined = ConcatenatedDocuments(found, spans, between)
        source = found.sources_of_documents[1][found.document_of(spans[:, 0])].tolist()
        spans = joined.sentence_rows(length).tolist()
        assert [list(range(a, b)) for a, b in spans] == greedy(joined, length, source)


@pytest.mark.thorough
@a_few
@given(texts=TEXTS, between=BETWEEN, length=st.integers(1, 40), shard_tokens=st.integers(1, 60))
def test_every_token_is_in_one_row_with_separators_between_documents(
    tmp_path: Path, texts: list[str], between: tuple[int, ...], length: int, shard_tokens: int
) -> None:
    found = prepare_shards(texts, tmp_path, shard_tokens)
    joined = ConcatenatedDocuments(found, found.document_spans, between)
    ids, _, of = (np.array(x) for x in one_text(joined))
    read = list[int]()
    for start, end in joined.sentence_rows(length).tolist():
        row, numbers = joined.read_tokens(start, end).ids.tolist(), of[start:end]
        assert 1 <= len(row) == end - start <= length
        of_each = [ids[start:end][numbers == i].tolist() for i in np.unique(numbers[numbers >= 0])]
        expected = of_each[0] + [x for own in of_each[1:] for x in (*between, *own)]
        assert row == expected
        read += [x for own in of_each for x in own]
    assert read == found.read_tokens(0, found.n_tokens).ids.tolist()


@pytest.mark.thorough
@a_few
@given(texts=TEXTS, between=BETWEEN, edges=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_any_positions_can_be_read(
    tmp_path: Path, texts: list[str], between: tuple[int, ...], edges: tuple[float, float]
) -> None:
    joined = ConcatenatedDocuments(
        found := prepare_shards(texts, tmp_path), found.document_spans, between
    )
    ids, marks, of = one_text(joined)
    assert joined.n_tokens == len(ids)
    start, end = sorted(round(edge * len(ids)) for edge in edges)
    text = joined.read_tokens(start, end)
    assert text.ids.tolist() == ids[start:end]
    assert text.boundaries.tolist() == marks[start:end]
    assert (text.ids.dtype, text.boundaries.dtype) == (np.int64, np.uint8)
    own = np.flatnonzero(np.array(of) >= 0)
    assert joined.document_of(own).tolist() == np.array(of)[own].tolist()


def test_rows_do_not_depend_on_storage(tmp_path: Path) -> None:
    texts = [f"The {i}. It is {i * i}.\nAnd {i} more." for i in range(40)]
    expected = None
    for shard_tokens in (1, 70, 10**6):
        found = prepare_shards(texts, tmp_path, shard_tokens)
        spans = ConcatenatedDocuments(found, found.split_held_out(0.2)[0], (300,)).sentence_rows(60)
        assert expected is None or np.array_equal(spans, expected)
        expected = spans


def test_pieces_fill_rows_up_to_a_boundary() -> None:
    parts = [np.array([[0, 3], [3, 5]]), np.array([[6, 8], [8, 9]]), np.array([[10, 14]])]
    none = np.zeros(0, np.int64)
    assert rows.pack_pieces(parts, 8, none).tolist() == [[0, 8], [8, 14]]
    assert rows.pack_pieces(parts, 7, none).tolist() == [[0, 5], [6, 9], [10, 14]]
    assert rows.pack_pieces(parts, 100, np.array([6])).tolist() == [[0, 5], [6, 14]]
    assert rows.pack_pieces([], 8, none).shape == (0, 2)


def test_empty_held_out_part_has_no_rows(tmp_path: Path) -> None:
    found = prepare_shards(["A b. C d."], tmp_path)
    joined = ConcatenatedDocuments(found, found.split_held_out(0.0)[1], (300,))
    assert joined.sentence_rows(5).shape == (0, 2)
    assert joined.n_tokens == 0
    assert len(joined.read_tokens(0, 0)) == 0


def test_invalid_lengths_are_refused(tmp_path: Path) -> None:
    joined = ConcatenatedDocuments(
        found := prepare_shards(["A b. C d."], tmp_path), found.document_spans, (300,)
    )
    with pytest.raises(ValueError, match="at least 1, got 0"):
        joined.sentence_rows(0)
    for start, end in ((-1, 2), (2, 1), (0, 99)):
        with pytest.raises(ValueError, match=rf"places {start} to {end} do not lie within 0 to 12"):
            joined.read_tokens(start, end)


def test_workers_receive_only_the_folder_and_offsets(tmp_path: Path) -> None:
    found = prepare_shards(["A long text. " * 100] * 3, tmp_path)
    joined = ConcatenatedDocuments(found, found.document_spans, (300,))
    spans = joined.sentence_rows(50)
    again = pickle.loads(sent := pickle.dumps(joined))
    assert len(sent) < 1500
    for start, end in spans.tolist():
        assert (
            again.read_tokens(start, end).ids.tolist()
            == joined.read_tokens(start, end).ids.tolist()
        )


def special(frame: SpecialTokens) -> SpecialTokenIds:
    return train_tokenizer(TokenizerSpec(ByteLevel(), frame), ["text"]).special_ids


def test_document_separator_is_the_end_token_once() -> None:
    for frame in (BERT, ROBERTA):
        family = special(frame)
        assert family.end in family.separator
        assert document_separator_ids(family) == (family.end,)
    assert document_separator_ids(special(GPT2)) == (), "each document ends with it already"
    assert document_separator_ids(special(T5)) == (), "the paper's have nothing between them"
    assert document_separator_ids(SpecialTokenIds(vocab_size=9, pad=0, start=0, end=None)) == ()


@a_few
@given(
    texts=TEXTS,
    between=BETWEEN,
    length=st.integers(1, 40),
    shard_tokens=st.integers(1, 60),
    seed=st.integers(0, 99),
    at_once=st.sampled_from([1, 7, 2**22]),
)
def test_documents_in_any_order_are_cut_alike(
    texts: list[str],
    between: tuple[int, ...],
    length: int,
    shard_tokens: int,
    seed: int,
    at_once: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("unmask.shards.concatenated.TOKENS_AT_ONCE", at_once)
    found = prepare_shards(texts, tmp_path, shard_tokens)
    some = np.random.default_rng(seed).integers(0, found.n_documents, found.n_documents)
    joined = ConcatenatedDocuments(found, found.document_spans[some], between)
    expected = [[row[0], row[-1] + 1] for row in greedy(joined, length, [0] * len(some))]
    assert joined.sentence_rows(length).tolist() == expected
    ids, marks, _ = one_text(joined)
    assert joined.n_tokens == len(ids)
    for start, end in expected[:3]:
        text = joined.read_tokens(start, end)
        assert (text.ids.tolist(), text.boundaries.tolist()) == (ids[start:end], marks[start:end])
