import errno
import fcntl
import functools
import itertools
import json
import multiprocessing
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trials import Trials

from unmask import files
from unmask.batch import PARAGRAPH_START, SENTENCE_START, Tokens
from unmask.shards import read, rows, workers, write
from unmask.shards.read import TokenShards
from unmask.shards.workers import encode_documents, id_type
from unmask.shards.write import write_shards
from unmask.text import processes
from unmask.text.documents import Document
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.spec import GPT2, T5, TokenizerSpec
from unmask.tokenizers.splitting.cached_words import CorpusEncoder
from unmask.tokenizers.vocabulary import ByteBPE, ByteLevel

UNITS = ("document", "paragraph", "sentence")
TEXTS = st.lists(st.text(alphabet="ab. \né𝄞", max_size=40), min_size=1, max_size=12)
# The examples of one test share a temporary folder; each makes its own in it.
a_few = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def _without_flushing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only for speed: what a killed process has written is there, flushed or not."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@functools.cache
def tokenizer() -> Tokenizer:
    return train_tokenizer(TokenizerSpec(ByteLevel(), T5), ["text"])


def documents(texts: Sequence[str]) -> Iterator[Document]:
    """Give them once, as a reader of files does."""
    return (Document(text, f"some.txt:{i}") for i, text in enumerate(texts))


def story(n: int) -> list[str]:
    return [f"The {i}. It is {i * i}.\nAnd {i} more." if i % 5 else "" for i in range(n)]


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


def new_folder(folder: Path) -> Path:
    return folder / f"{len(list(folder.iterdir()))}"


def prepare_shards(
    texts: Sequence[str], out: Path, *, shard_tokens: int = 50, n_workers: int = 1
) -> TokenShards:
    return write_shards(
        documents(texts), tokenizer(), out, n_workers=n_workers, shard_tokens=shard_tokens
    )


def places(spans: np.ndarray) -> np.ndarray:
    """Every token of the spans, one by one."""
    return np.concatenate([np.arange(a, b) for a, b in spans] or [np.arange(0)])


# Reading back


@pytest.mark.thorough
@a_few
@given(texts=TEXTS, shard_tokens=st.integers(1, 60))
def test_shards_return_the_tokens_of_the_tokenizer(
    tmp_path: Path, texts: list[str], shard_tokens: int
) -> None:
    expected = [t for t in map(tokenizer().encode, texts) if len(t)]
    out = new_folder(tmp_path)
    if not expected:
        with pytest.raises(ValueError, match=rf"none of {len(texts)} documents has a token"):
            prepare_shards(texts, out)
        return
    found = prepare_shards(texts, out, shard_tokens=shard_tokens)
    assert (found.n_documents, found.n_skipped) == (len(expected), len(texts) - len(expected))
    assert found.n_tokens == sum(map(len, expected)) == found.document_spans[-1, 1]
    kept = [text for text in texts if len(tokenizer().encode(text))]
    assert found.n_bytes == sum(len(text.encode()) for text in kept)
    for (start, end), tokens in zip(found.document_spans, expected, strict=True):
        text = found.read_tokens(start, end)
        np.testing.assert_array_equal(text.ids, tokens.ids)
        np.testing.assert_array_equal(text.boundaries, tokens.boundaries)
        assert (text.ids.dtype, text.boundaries.dtype) == (np.int64, np.uint8)
    everything = found.read_tokens(0, found.n_tokens)  # across the borders of shards
    np.testing.assert_array_equal(everything.ids, np.concatenate([t.ids for t in expected]))
    np.testing.assert_array_equal(
        everything.boundaries, np.concatenate([t.boundaries for t in expected])
    )


@pytest.mark.thorough
@a_few
@given(texts=TEXTS, shard_tokens=st.integers(1, 60))
def test_shard_is_closed_by_the_document_that_fills_it(
    tmp_path: Path, texts: list[str], shard_tokens: int
) -> None:
    sizes = [n for n in (len(tokenizer().encode(text)) for text in texts) if n]
    expected, here = [], 0
    for size in sizes:
        here += size
        if here >= shard_tokens:
            expected.append(here)
            here = 0
    if here:
        expected.append(here)
    if expected:
        found = prepare_shards(texts, new_folder(tmp_path), shard_tokens=shard_tokens)
        assert [shard.n_tokens for shard in found.manifest.shards] == expected


@pytest.mark.parametrize(("start", "end"), [(-1, 2), (2, 1), (0, 10**6)])
def test_out_of_range_positions_are_an_error(tmp_path: Path, start: int, end: int) -> None:
    found = prepare_shards(story(3), tmp_path / "out")
    with pytest.raises(ValueError, match=rf"tokens {start} to {end} do not lie within 0 to"):
        found.read_tokens(start, end)


def test_empty_range_can_be_read(tmp_path: Path) -> None:
    found = prepare_shards(story(3), tmp_path / "out")
    for position in (0, 3, found.n_tokens):
        assert len(found.read_tokens(position, position)) == 0


def test_modifying_a_read_array_leaves_shards_unchanged(tmp_path: Path) -> None:
    found = prepare_shards(story(3), tmp_path / "out")
    before = contents(tmp_path)
    found.read_tokens(0, 5).ids[:] = 0
    assert contents(tmp_path) == before
    assert found.read_tokens(0, 5).ids.any()


def test_saved_tokenizer_equals_the_given(tmp_path: Path) -> None:
    found = prepare_shards(story(3), tmp_path / "out")
    text = "Anything? é\nYes."
    np.testing.assert_array_equal(found.tokenizer.encode(text).ids, tokenizer().encode(text).ids)


def test_ids_take_two_bytes_while_they_fit() -> None:
    assert [id_type(n) for n in (1, 2**16, 2**16 + 1)] == ["uint16", "uint16", "uint32"]


def _encode_by(
    monkeypatch: pytest.MonkeyPatch, encode: Callable[[Tokenizer, Sequence[str]], list[Tokens]]
) -> None:
    """Have texts encoded by a function, not by words."""
    monkeypatch.setattr(Tokenizer, "encode_batch", encode)
    monkeypatch.setattr(Tokenizer, "corpus_encoder", lambda self: CorpusEncoder(self.encode_batch))


def test_large_ids_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    big = 2**31 + 7
    wide = Tokens(np.array([big, 0, 2**16]), np.array([7, 0, 1]))
    _encode_by(monkeypatch, lambda _, texts: [wide for _ in texts])
    monkeypatch.setattr(
        Tokenizer, "vocab_size", property(lambda _: big + 1, lambda *_: None), raising=False
    )
    found = prepare_shards(["a", "b"], tmp_path / "out")
    assert found.manifest.dtype == "uint32"
    np.testing.assert_array_equal(found.read_tokens(0, 6).ids, [big, 0, 2**16] * 2)


def test_id_outside_the_vocabulary_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(_: Tokenizer, texts: Sequence[str]) -> list[Tokens]:
        size = tokenizer().vocab_size
        return [Tokens(np.array([1, size if t == "b" else 1]), np.zeros(2, int)) for t in texts]

    _encode_by(monkeypatch, encode)
    with pytest.raises(
        ValueError, match=rf"some.txt:1: the tokenizer gave the id {tokenizer().vocab_size}"
    ):
        prepare_shards(["a", "b", "c"], tmp_path / "out")


# Rows


@pytest.mark.thorough
@a_few
@given(
    texts=TEXTS,
    shard_tokens=st.integers(1, 60),
    length=st.one_of(st.integers(1, 20), st.just(2**63)),
    unit=st.sampled_from(UNITS),
)
def test_rows_cover_every_token_once_within_documents(
    tmp_path: Path,
    texts: list[str],
    shard_tokens: int,
    length: int,
    unit: Literal["document", "paragraph", "sentence"],
) -> None:
    if not any(len(tokenizer().encode(text)) for text in texts):
        return
    found = prepare_shards(texts, new_folder(tmp_path), shard_tokens=shard_tokens)
    pieces = found.row_spans(length, unit)
    sizes = pieces[:, 1] - pieces[:, 0]
    assert sizes.min() >= 1
    assert sizes.max() <= length
    np.testing.assert_array_equal(places(pieces), np.arange(found.n_tokens))
    # A row starts where a unit does, or where the row before it was full.
    bit = {"document": 0, "paragraph": PARAGRAPH_START, "sentence": SENTENCE_START}[unit]
    begins = (found.read_tokens(0, found.n_tokens).boundaries & bit) != 0
    begins[found.document_spans[:, 0]] = True
    starts = np.zeros(found.n_tokens, bool)
    starts[pieces[:, 0]] = True
    assert starts[begins].all()
    full = pieces[:-1][sizes[:-1] == length]
    assert set(np.flatnonzero(starts & ~begins)) <= set(full[:, 1])


@pytest.mark.thorough
@a_few
@given(
    texts=TEXTS,
    length=st.integers(1, 20),
    unit=st.sampled_from(UNITS),
    edges=st.lists(st.floats(0, 1), max_size=8),
)
def test_rows_within_spans_cover_the_spans(
    tmp_path: Path,
    texts: list[str],
    length: int,
    unit: Literal["document", "paragraph", "sentence"],
    edges: list[float],
) -> None:
    texts = [*texts, "a"]
    found = prepare_shards(texts, new_folder(tmp_path))
    at = sorted(round(edge * found.n_tokens) for edge in edges[: len(edges) // 2 * 2])
    spans = np.array(at, np.int64).reshape(-1, 2)
    pieces = found.row_spans(length, unit, spans)
    np.testing.assert_array_equal(places(pieces), places(spans))
    sizes = pieces[:, 1] - pieces[:, 0]
    assert ((sizes >= 1) & (sizes <= length)).all()
    document = np.searchsorted(found.document_spans[:, 0], pieces, "right")
    last = np.searchsorted(found.document_spans[:, 0], pieces[:, 1] - 1, "right")
    np.testing.assert_array_equal(document[:, 0], last)


@pytest.mark.thorough
@a_few
@given(
    texts=TEXTS,
    shard_tokens=st.integers(1, 60),
    length=st.one_of(st.integers(1, 20), st.just(2**63)),
)
def test_sentence_rows_hold_as_many_full_sentences_as_fit(
    tmp_path: Path, texts: list[str], shard_tokens: int, length: int
) -> None:
    if not any(len(tokenizer().encode(text)) for text in texts):
        return
    found = prepare_shards(texts, new_folder(tmp_path), shard_tokens=shard_tokens)
    pieces, each = found.row_spans(length, "sentences"), found.row_spans(length, "sentence")
    np.testing.assert_array_equal(places(pieces), np.arange(found.n_tokens))
    assert set(pieces[:, 0]) <= set(each[:, 0])
    assert set(pieces[:, 1]) <= set(each[:, 1])
    for (start, end), after in zip(pieces[:-1], pieces[1:, 0], strict=True):
        assert end - start <= length
        assert end == after
        following = int(each[each[:, 0] == after, 1][0])
        assert following - start > length or after in found.document_spans[:, 0]
    own = np.searchsorted(found.document_spans[:, 0], pieces[:, 0], "right") - 1
    assert (pieces[:, 1] <= found.document_spans[own, 1]).all()


def test_rows_of_all_documents_equal_rows_of_everything(tmp_path: Path) -> None:
    found = prepare_shards(story(30), tmp_path / "out")
    for unit in UNITS:
        np.testing.assert_array_equal(
            found.row_spans(7, unit, found.document_spans), found.row_spans(7, unit)
        )


def test_long_unit_is_split_into_consecutive_rows() -> None:
    cut = rows.split_spans(np.array([0, 7, 9]), np.array([7, 9, 12]), 3)
    assert cut.tolist() == [[0, 3], [3, 6], [6, 7], [7, 9], [9, 12]]


@pytest.mark.parametrize(
    ("length", "unit", "within", "says"),
    [
        (0, "document", None, "at least 1, got 0"),
        (5, "document", [[3, 2]], "spans must be in order"),
        (5, "document", [[0, 3], [2, 4]], "spans must be in order"),
        (5, "document", [[-1, 2]], "lie within 0 to"),
        (5, "document", [[0, 10**6]], "lie within 0 to"),
    ],
)
def test_impossible_rows_are_an_error(
    tmp_path: Path,
    length: int,
    unit: Literal["document"],
    within: list[list[int]] | None,
    says: str,
) -> None:
    found = prepare_shards(story(3), tmp_path / "out")
    with pytest.raises(ValueError, match=says):
        found.row_spans(length, unit, None if within is None else np.array(within))


# Holding out


@given(
    sizes=st.lists(st.integers(1, 50), min_size=2, max_size=30),
    share=st.floats(0.001, 0.999),
    seed=st.integers(0, 2**32),
)
def test_whole_documents_are_held_out(sizes: list[int], share: float, seed: int) -> None:
    ends = np.cumsum(sizes)
    spans = np.stack([ends - sizes, ends], 1)
    train, dev = rows.split_held_out(spans, share, seed)
    again = rows.split_held_out(spans, share, seed)
    np.testing.assert_array_equal(train, again[0])
    np.testing.assert_array_equal(dev, again[1])
    assert len(train)
    assert len(dev)
    both = np.concatenate([train, dev])
    np.testing.assert_array_equal(both[np.argsort(both[:, 0])], spans)
    assert (np.diff(train[:, 0]) > 0).all()
    assert (np.diff(dev[:, 0]) > 0).all()
    drawn, expected = (dev[:, 1] - dev[:, 0]).sum(), share * sum(sizes)
    assert drawn <= max(1.5 * expected, min(sizes))


def test_held_out_share_is_approximate_and_depends_on_seed() -> None:
    ends = np.arange(1, 1001) * 10
    spans = np.stack([ends - 10, ends], 1)
    first, second = rows.split_held_out(spans, 0.1, 0)[1], rows.split_held_out(spans, 0.1, 1)[1]
    assert len(first) == len(second) == 100
    assert first.tolist() != second.tolist()


def test_two_documents_are_split_one_each(tmp_path: Path) -> None:
    found = prepare_shards(["aaaaaaaaaaaaaaaaaaaa", "b"], tmp_path / "out")
    for share in (0.001, 0.5, 0.99):
        train, dev = found.split_held_out(share)
        assert (train.tolist(), dev.tolist()) in (
            ([[0, 20]], [[20, 21]]),
            ([[20, 21]], [[0, 20]]),
        )


@pytest.mark.parametrize("share", [0.01, 0.3, 0.99])
def test_single_document_is_split_at_a_sentence(tmp_path: Path, share: float) -> None:
    found = prepare_shards(
        ["One is here. Two is here. Three is here. Four is here."], tmp_path / "out"
    )
    train, dev = found.split_held_out(share)
    cut = int(dev[0, 0])
    assert train.tolist() == [[0, cut]]
    assert dev.tolist() == [[cut, found.n_tokens]]
    assert found.read_tokens(cut, cut + 1).boundaries[0] & SENTENCE_START
    assert 0 < cut < found.n_tokens


def test_single_sentence_is_split_anywhere(tmp_path: Path) -> None:
    found = prepare_shards(["abcdefghij"], tmp_path / "out")
    assert found.split_held_out(0.2)[1].tolist() == [[8, 10]]
    assert found.split_held_out(0.001)[1].tolist() == [[9, 10]]
    assert found.split_held_out(0.999)[1].tolist() == [[1, 10]]


def test_single_token_cannot_be_split(tmp_path: Path) -> None:
    found = prepare_shards(["a"], tmp_path / "out")
    with pytest.raises(ValueError, match="single token: nothing can be held out"):
        found.split_held_out(0.1)


def test_share_zero_holds_out_nothing(tmp_path: Path) -> None:
    found = prepare_shards(story(9), tmp_path / "out")
    train, dev = found.split_held_out(0.0)
    assert train.tolist() == found.document_spans.tolist()
    assert dev.shape == (0, 2)
    assert found.row_spans(5, "sentence", dev).shape == (0, 2)


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_invalid_share_is_an_error(tmp_path: Path, share: float) -> None:
    found = prepare_shards(story(9), tmp_path / "out")
    with pytest.raises(ValueError, match="at least 0 and below 1, got"):
        found.split_held_out(share)


# Several processes


@pytest.mark.thorough
@pytest.mark.parametrize("n_workers", [2, 3])
def test_bytes_are_equal_for_any_number_of_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_workers: int
) -> None:
    monkeypatch.setattr(workers, "WORKER_CHUNK_BYTES", 2000)  # 50 chunks
    texts = story(300)
    one = prepare_shards(texts, tmp_path / "1", shard_tokens=1000)
    several = prepare_shards(texts, tmp_path / "2", shard_tokens=1000, n_workers=n_workers)
    assert contents(one.folder) == contents(several.folder)
    assert len(one.manifest.shards) > 3


@pytest.mark.sample(1)
@pytest.mark.parametrize("n_workers", [1, 2])
def test_documents_are_read_lazily(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_workers: int
) -> None:
    monkeypatch.setattr(workers, "WORKER_CHUNK_BYTES", 10 * (256 + 4))
    tokenizer().save(tmp_path)
    n_read = n_given = 0

    def texts() -> Iterator[tuple[str, bytes]]:
        nonlocal n_read
        while n_read < 300:
            n_read += 1
            yield "", b"text"

    for n_given, _ in enumerate(
        encode_documents(texts(), tmp_path, tokenizer().vocab_size, n_workers), 1
    ):
        assert n_read - n_given < 2 * n_workers * 10
    assert n_read == n_given == 300


def test_text_refused_by_the_tokenizer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(_: Tokenizer, texts: Sequence[str]) -> list[Tokens]:
        if "bad" in texts:
            raise ValueError("it holds something bad")
        return [Tokens(np.zeros(2, int), np.zeros(2, int)) for _ in texts]

    _encode_by(monkeypatch, encode)
    with pytest.raises(ValueError, match=r"some\.txt:2: it holds something bad"):
        prepare_shards(["a", "b", "bad", "c"], tmp_path / "out")


@pytest.mark.sample(1)
@pytest.mark.parametrize("n_workers", [1, 2])
def test_lone_surrogate_is_named_and_closed_shards_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_workers: int
) -> None:
    monkeypatch.setattr(workers, "WORKER_CHUNK_BYTES", 1)
    texts = story(20)
    with pytest.raises(ValueError, match=r"some\.txt:20: character 3 .* \(U\+D83D\)") as caught:
        prepare_shards([*texts, "ab\ud83d"], tmp_path / "out", n_workers=n_workers)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out" / "shards.json").exists()
    assert (tmp_path / "out" / "00001.tokens").exists()
    mended = prepare_shards([*texts, "ab😀"], tmp_path / "out")
    assert contents(mended.folder) == contents(
        prepare_shards([*texts, "ab😀"], tmp_path / "2").folder
    )


@pytest.mark.trials("data and workers")
def test_repeatedly_dying_workers_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_WORKER_SCRIPT", "import os; os.kill(os.getpid(), 9)")
    with pytest.raises(ChildProcessError, match=r"ended with status -9 .* was the memory enough"):
        prepare_shards(story(9), tmp_path / "out", n_workers=2)


@pytest.mark.trials("data and workers")
@pytest.mark.thorough
def test_killed_worker_is_replaced(tmp_path: Path, monkeypatch, caplog) -> None:
    first = processes._WORKER_SCRIPT.replace(
        "from unmask.text.processes import run_worker\n",
        f"import os\ntry:\n    os.mkdir({str(tmp_path / 'died')!r})\n"
        "except FileExistsError:\n    pass\nelse:\n    os.kill(os.getpid(), 9)\n"
        "from unmask.text.processes import run_worker\n",
    )
    monkeypatch.setattr(processes, "_WORKER_SCRIPT", first)
    many = prepare_shards(story(9), tmp_path / "out", n_workers=2)
    assert (tmp_path / "died").is_dir()
    assert "another does its work" in caplog.text
    assert contents(many.folder) == contents(prepare_shards(story(9), tmp_path / "2").folder)


def test_document_error_does_not_wait_for_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "WORKER_CHUNK_BYTES", 1)
    monkeypatch.setattr(processes, "_WORKER_SCRIPT", "import time; time.sleep(60)")
    started: list[subprocess.Popen[bytes]] = []
    start = processes._start_worker
    monkeypatch.setattr(
        processes, "_start_worker", lambda *given: started.append(start(*given)) or started[-1]
    )
    before = time.monotonic()
    with pytest.raises(ValueError, match="surrogate"):
        prepare_shards(["a", "\ud800"], tmp_path / "out", n_workers=2)
    assert time.monotonic() - before < 30
    assert [process.returncode for process in started] == [-signal.SIGKILL]


def read_text(found: TokenShards) -> list[int]:
    return found.read_tokens(3, 40).ids.tolist()


@pytest.mark.sample(1)
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_other_processes_read_equally(tmp_path: Path, way: str) -> None:
    found = prepare_shards(story(30), tmp_path / "out")
    here = read_text(found)  # maps the shard before the fork
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(way)) as pool:
        assert pool.submit(read_text, found).result() == here


def test_pickled_shards_find_their_folder_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = prepare_shards(story(30), Path("out"))
    sent = pickle.dumps(found)
    monkeypatch.chdir("/")
    assert len(sent) < 1000
    assert read_text(pickle.loads(sent)) == read_text(found)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_many_shards_do_not_exhaust_file_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "_MAX_MAPPED_SHARDS", 3)
    found = prepare_shards(story(60), tmp_path / "out", shard_tokens=1)
    assert len(found.manifest.shards) == 48
    n_before = len(os.listdir("/proc/self/fd"))
    found.read_tokens(0, found.n_tokens)
    found.row_spans(5, "sentence")
    assert len(os.listdir("/proc/self/fd")) <= n_before + 6


# Several sources


def of_two(texts: Sequence[str], border: int) -> Iterator[Document]:
    for i, document in enumerate(documents(texts)):
        yield replace(document, source="en" if i < border else "fr")


@pytest.mark.parametrize("n_workers", [1, 2])
def test_documents_record_their_source(tmp_path: Path, n_workers: int) -> None:
    texts = story(30)
    found = write_shards(
        of_two(texts, 21), tokenizer(), tmp_path / "out", n_workers=n_workers, shard_tokens=90
    )
    assert len(found.manifest.shards) > 3
    names, of = TokenShards.open(tmp_path / "out").sources_of_documents or ((), np.empty(0))
    assert names == ("en", "fr")
    kept = [i for i, text in enumerate(texts) if text]
    assert of.tolist() == [int(i >= 21) for i in kept]
    alone = prepare_shards(texts, tmp_path / "alone", shard_tokens=90)
    assert alone.sources_of_documents is None
    np.testing.assert_array_equal(
        found.read_tokens(0, found.n_tokens).ids, alone.read_tokens(0, alone.n_tokens).ids
    )


def test_interrupted_preparation_keeps_sources(tmp_path: Path) -> None:
    texts = story(30)

    def stopped() -> Iterator[Document]:
        yield from itertools.islice(of_two(texts, 11), 24)
        raise KeyboardInterrupt

    whole = write_shards(of_two(texts, 11), tokenizer(), tmp_path / "whole", shard_tokens=90)
    with pytest.raises(KeyboardInterrupt):
        write_shards(stopped(), tokenizer(), tmp_path / "out", shard_tokens=90)
    found = write_shards(of_two(texts, 11), tokenizer(), tmp_path / "out", shard_tokens=90)
    assert found.manifest == whole.manifest


def test_folder_without_sources_opens(tmp_path: Path) -> None:
    write_shards(of_two(story(9), 4), tokenizer(), tmp_path, shard_tokens=90)
    path = tmp_path / "shards.json"
    facts = json.loads(path.read_text())
    for shard in facts["shards"]:
        del shard["source_segments"]
    path.write_text(json.dumps(facts))
    loaded = TokenShards.open(tmp_path, verify_contents=True)
    assert loaded.sources_of_documents is None
    assert loaded.n_documents == 7


def test_incomplete_parts_of_a_shard_are_refused(tmp_path: Path) -> None:
    write_shards(of_two(story(9), 4), tokenizer(), tmp_path)
    path = tmp_path / "shards.json"
    facts = json.loads(path.read_text())
    facts["shards"][0]["source_segments"].pop()
    path.write_text(json.dumps(facts))
    with pytest.raises(ValueError, match="the parts of shard 0 are not all of it"):
        TokenShards.open(tmp_path)


def test_each_source_is_held_out_except_single_documents(
    tmp_path: Path,
) -> None:
    texts = ["word " * (3 + i % 4) for i in range(51)]
    named = (
        replace(d, source="large" if i < 40 else "small" if i < 50 else "single")
        for i, d in enumerate(documents(texts))
    )
    found = write_shards(named, tokenizer(), tmp_path)
    train, dev = found.split_held_out(0.2, seed=3, by_source=True)
    assert found.sources_of_documents is not None
    of = found.sources_of_documents[1][np.searchsorted(found.document_spans[:, 0], dev[:, 0])]
    counts = np.bincount(of, dev[:, 1] - dev[:, 0], minlength=3)
    sizes = np.bincount(
        found.sources_of_documents[1], found.document_spans[:, 1] - found.document_spans[:, 0]
    )
    assert counts[2] == 0
    assert (np.abs(counts[:2] / sizes[:2] - 0.2) < 0.1).all()
    np.testing.assert_array_equal(
        np.sort(np.concatenate((train, dev))[:, 0]), found.document_spans[:, 0]
    )
    assert len(found.split_held_out(0.0, by_source=True)[1]) == 0


# Again, and interrupted


def test_finished_shards_are_not_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_shards(story(40), tmp_path / "out")
    before = contents(tmp_path)
    monkeypatch.setattr(write, "encode_documents", None)  # it is not even tried
    monkeypatch.setattr(write, "write_atomically", None)
    again = prepare_shards(story(40), tmp_path / "out")
    assert again.n_documents == 32
    assert contents(tmp_path) == before


def test_documents_of_equal_provenance_are_not_reread(tmp_path: Path) -> None:
    def ask(texts: Sequence[str] | None, made_from: str) -> TokenShards:
        given = iter(()) if texts is None else documents(texts)
        return write_shards(given, tokenizer(), tmp_path / "out", made_from=made_from)

    ask(story(9), "a.txt 100 bytes")
    ask(None, "a.txt 100 bytes")
    ask(story(9), "b.txt 100 bytes")
    ask(story(9), "")
    with pytest.raises(ValueError, match="was made from other documents"):
        ask(None, "b.txt 100 bytes")
    with pytest.raises(ValueError, match="was made from other documents"):
        ask(None, "")


@pytest.mark.parametrize("finished", [True, False])
def test_shards_of_other_settings_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: bool
) -> None:
    monkeypatch.setattr(workers, "WORKER_CHUNK_BYTES", 1)
    out, texts = tmp_path / "out", story(40)
    if finished:
        prepare_shards(texts, out)
    else:
        with pytest.raises(ValueError, match="surrogate"):
            prepare_shards([*texts, "\ud800"], out)
        assert not (out / "shards.json").exists()
    before = contents(out)
    changed = [*texts[:3], texts[3] + "!", *texts[4:]]
    for other in (changed, texts[1:], texts[:2], [texts[1], texts[0], *texts[2:]]):
        with pytest.raises(ValueError, match=r"out was made from other documents"):
            prepare_shards(other, out)
    if finished:
        for other in ([*texts, "more"], [*texts, ""], texts[:-1]):
            with pytest.raises(ValueError, match=r"out was made from other documents"):
                prepare_shards(other, out)
    with pytest.raises(ValueError, match="in shards of 50 tokens, not 51"):
        prepare_shards(texts, out, shard_tokens=51)
    fewer = train_tokenizer(TokenizerSpec(ByteLevel(), replace(T5, n_sentinels=7)), ["text"])
    with pytest.raises(ValueError, match="with another tokenizer"):
        write_shards(documents(texts), fewer, out, shard_tokens=50)
    assert contents(out) == before


def test_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(FileExistsError, match="is not empty and holds no prepared tokens"):
        prepare_shards(story(3), tmp_path)
    assert contents(tmp_path) == {"thesis.tex": b"mine"}


def test_empty_or_missing_folders_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for out in (tmp_path / "empty", tmp_path / "not" / "yet"):
        assert prepare_shards(story(3), out).n_documents == 2


def test_concurrent_writers_are_refused(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="is being written by another process"):
            prepare_shards(story(3), tmp_path)
    finally:
        os.close(descriptor)
    prepare_shards(story(3), tmp_path)


@pytest.mark.parametrize("numbers", [(0, 1), (1, 0)])
def test_counts_below_one_are_refused(tmp_path: Path, numbers: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        prepare_shards(story(3), tmp_path / "out", n_workers=numbers[0], shard_tokens=numbers[1])
    assert not (tmp_path / "out").exists()


class Killed(BaseException):
    """The process ends here: nothing after it happens, no cleaning up either."""


def stop_at(patch: pytest.MonkeyPatch, step: int, error: BaseException) -> list[int]:
    """Raise at the `step`th flush or renaming, and clean nothing up if it is a kill; count them."""
    steps = [0]
    rename = os.replace

    def act(*args: object) -> None:
        steps[0] += 1
        if steps[0] == step:
            if isinstance(error, Killed):
                patch.setattr(files, "_remove", lambda _: None)
            raise error
        if len(args) == 2:
            rename(*args)

    patch.setattr(os, "fsync", act)
    patch.setattr(os, "replace", act)
    return steps


@pytest.mark.sample(1)
@pytest.mark.parametrize("error", [Killed(), OSError(errno.ENOSPC, "No space left on device")])
def test_interruption_at_any_step_is_marked_unfinished_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    texts = ["", *story(8), "", ""]
    with monkeypatch.context() as patch:
        steps = stop_at(patch, 0, error)
        whole = contents(prepare_shards(texts, tmp_path / "whole").folder)
    assert len([name for name in whole if name.endswith(".tokens")]) == 3
    for step in range(1, steps[0] + 1):
        out = tmp_path / str(step)
        with monkeypatch.context() as patch:
            stop_at(patch, step, error)
            with pytest.raises(type(error)) as caught:
                prepare_shards(texts, out)
        if isinstance(error, OSError):
            assert re.fullmatch(r".* No space left on device: '/.*'", str(caught.value))
            assert not [name for name in contents(out) if name.endswith(".part")]
        if (out / "shards.json").exists():
            assert TokenShards.open(out, verify_contents=True).n_tokens > 0
        else:
            with pytest.raises(FileNotFoundError, match=r"unfinished|no prepared tokens"):
                TokenShards.open(out)
        prepare_shards(texts, out)
        assert contents(out) == whole, f"step {step} of {steps[0]}"


def test_closed_shards_are_kept_on_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = story(40)
    monkeypatch.setattr(workers, "WORKER_CHUNK_BYTES", 1)
    with pytest.raises(ValueError, match="surrogate"):
        prepare_shards([*texts, "\ud800"], tmp_path / "out")
    times = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "out").glob("0*")}
    assert len(times) > 9
    prepare_shards(texts, tmp_path / "out")
    assert (
        times.items()
        <= {p.name: p.stat().st_mtime_ns for p in (tmp_path / "out").glob("0*")}.items()
    )


def test_damaged_closed_shard_is_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, out = story(40), tmp_path / "out"
    monkeypatch.setattr(workers, "WORKER_CHUNK_BYTES", 1)
    with pytest.raises(ValueError, match="surrogate"):
        prepare_shards([*texts, "\ud800"], out)
    tokens = bytearray((out / "00002.tokens").read_bytes())
    tokens[0] ^= 1
    (out / "00002.tokens").write_bytes(tokens)
    (out / "00003.marks").unlink()
    (out / "00099.tokens").write_text("of a shard that is not made any more")
    (out / "tokenizer" / "tokenizer.json").unlink()
    prepare_shards(texts, out)
    assert contents(out) == contents(prepare_shards(texts, tmp_path / "2").folder)


def test_documents_added_after_interruption_give_equal_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        n_steps = stop_at(patch, 0, Killed())
        prepare_shards(story(7), tmp_path / "once")
    with monkeypatch.context() as patch:
        stop_at(patch, n_steps[0] - 2, Killed())  # before shards.json, which takes three
        with pytest.raises(Killed):
            prepare_shards(story(7), tmp_path / "out")
    assert (tmp_path / "out" / "00002.documents").exists()
    prepare_shards(story(9), tmp_path / "out")
    assert contents(tmp_path / "out") == contents(prepare_shards(story(9), tmp_path / "2").folder)


RUN = """
import sys
from pathlib import Path
from unmask.text.documents import Document
from unmask.shards import workers
from unmask.shards.write import write_shards
from unmask.tokenizers.load import load_tokenizer
workers.WORKER_CHUNK_BYTES = 2**15
tokenizer = load_tokenizer(Path(sys.argv[1]))
documents = (Document(f"The {i}. It is {i * i}.\\n" * (i % 9), str(i)) for i in range(6000))
print(flush=True)
n_workers = int(sys.argv[3])
write_shards(documents, tokenizer, Path(sys.argv[2]), n_workers=n_workers, shard_tokens=20_000)
"""


def running(word: str) -> list[str]:
    """Give the command lines with the word in it that are there still after a while."""
    found: list[str] = []
    for _ in range(100):
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(FileNotFoundError, ProcessLookupError):
                found.append(path.read_bytes().decode(errors="replace"))
        found = [line for line in found if word in line]
        if not found:
            break
        time.sleep(0.1)
    return found


@pytest.mark.thorough
def test_kill_at_any_instant_resumes_to_equal_bytes(tmp_path: Path, trials: Trials) -> None:
    tokenizer().save(tmp_path / "tokenizer")

    def begin(out: str, n_workers: int) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", RUN, str(tmp_path / "tokenizer"), str(tmp_path / out)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen(
            [*command, str(n_workers)], stdout=subprocess.PIPE, env=environment
        )
        assert process.stdout
        process.stdout.readline()  # from here on it writes
        return process

    started = time.monotonic()
    with begin("whole", 1) as process:
        pass
    seconds = time.monotonic() - started
    assert process.returncode == 0
    rng, n_killed = random.Random(0), 0
    for i in range(6):
        with begin("out", 1 + i % 2) as process:
            time.sleep(rng.uniform(0, seconds / 8))
            process.send_signal(signal.SIGKILL)
        n_killed += process.returncode == -signal.SIGKILL
        if process.returncode and (tmp_path / "out").exists():
            assert not (tmp_path / "out" / "shards.json").exists() or TokenShards.open(
                tmp_path / "out", verify_contents=True
            )
    with begin("out", 2) as process:
        pass
    assert process.returncode == 0
    assert n_killed >= 2
    assert not running(str(tmp_path / "out"))
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    trials.count("kills", n_killed)


# Damage


def test_checksums_of_written_files_match(tmp_path: Path) -> None:
    prepare_shards(story(40), tmp_path / "out")
    TokenShards.open(tmp_path / "out", verify_contents=True)


@pytest.mark.parametrize("kind", ["tokens", "marks", "documents"])
def test_truncated_file_is_named(tmp_path: Path, kind: str) -> None:
    prepare_shards(story(40), tmp_path / "out")
    path = tmp_path / "out" / f"00001.{kind}"
    size = path.stat().st_size
    os.truncate(path, size - 1)
    with pytest.raises(
        ValueError, match=rf"00001\.{kind} is truncated .* has {size - 1} bytes, expected {size}"
    ):
        TokenShards.open(tmp_path / "out")


@pytest.mark.parametrize("kind", ["tokens", "marks", "documents"])
def test_changed_byte_is_detected_and_named(tmp_path: Path, kind: str) -> None:
    prepare_shards(story(40), tmp_path / "out")
    path = tmp_path / "out" / f"00001.{kind}"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    TokenShards.open(tmp_path / "out")
    with pytest.raises(ValueError, match=rf"00001\.{kind} is damaged: its SHA-256 is .*, expected"):
        TokenShards.open(tmp_path / "out", verify_contents=True)


def test_inconsistent_document_offsets_are_an_error(tmp_path: Path) -> None:
    prepare_shards(story(40), tmp_path / "out")
    path = tmp_path / "out" / "00000.documents"
    offsets = np.fromfile(path, "<i8")
    offsets[1] = offsets[-1] + 5
    offsets.tofile(path)
    with pytest.raises(ValueError, match=r"00000\.documents is damaged"):
        TokenShards.open(tmp_path / "out").row_spans(5)


def test_missing_file_is_named(tmp_path: Path) -> None:
    prepare_shards(story(40), tmp_path / "out")
    (tmp_path / "out" / "00001.marks").unlink()
    with pytest.raises(FileNotFoundError, match=r"00001\.marks is missing"):
        TokenShards.open(tmp_path / "out")


def test_other_tokenizer_in_the_folder_is_an_error(tmp_path: Path) -> None:
    found = prepare_shards(story(3), tmp_path / "out")
    with (tmp_path / "out" / "tokenizer" / "tokenizer.json").open("a") as file:
        file.write("\n")
    with pytest.raises(ValueError, match="is not the tokenizer that made the tokens"):
        TokenShards.open(tmp_path / "out", verify_contents=True)
    with pytest.raises(ValueError, match="is not the tokenizer that made the tokens"):
        _ = found.tokenizer


def test_folder_without_shards_is_an_error(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(
            FileNotFoundError, match=re.escape(f"{folder} holds no prepared tokens")
        ):
            TokenShards.open(folder)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("format", 3, "format 3 is not read: this version of Unmask reads 2"),
        ("n_tokens", 3, "its counts are not the sums of its shards'"),
        ("n_documents", "many", "n_documents must be int, got 'many'"),
        ("dtype", "float64", "dtype must be one of"),
        ("dtype", "uint32", "the sizes and counts of shard 0 disagree"),
        ("shards", [], "its counts are not the sums of its shards'"),
        ("colour", "red", "unknown key"),
    ],
)
def test_impossible_manifest_is_an_error(
    tmp_path: Path, key: str, value: object, says: str
) -> None:
    prepare_shards(story(3), tmp_path)
    path = tmp_path / "shards.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(ValueError, match=says) as caught:
        TokenShards.open(tmp_path)
    assert "shards.json" in str(caught.value)


def test_impossible_shard_counts_are_an_error(tmp_path: Path) -> None:
    prepare_shards(story(9), tmp_path)
    manifest = json.loads((tmp_path / "shards.json").read_text())
    manifest["shards"][1]["n_documents_read"] = manifest["shards"][0]["n_documents_read"]
    (tmp_path / "shards.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="the sizes and counts of shard 1 disagree"):
        TokenShards.open(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "\udcff"])
def test_malformed_manifest_is_an_error(tmp_path: Path, text: str) -> None:
    prepare_shards(story(3), tmp_path)
    (tmp_path / "shards.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=r"shards\.json"):
        TokenShards.open(tmp_path)


def test_copied_folder_opens(tmp_path: Path) -> None:
    found = prepare_shards(story(3), tmp_path / "out")
    shutil.copytree(found.folder, tmp_path / "copy")
    copied = TokenShards.open(tmp_path / "copy", verify_contents=True)
    assert copied.read_tokens(0, 9).ids.tolist() == found.read_tokens(0, 9).ids.tolist()


def test_document_ends_with_end_token_if_no_frame_adds_it(tmp_path: Path) -> None:
    texts = ["one text", "", "another\none"]
    gpt2 = train_tokenizer(TokenizerSpec(ByteBPE(300), GPT2), texts)
    written = write_shards(documents(texts), gpt2, tmp_path / "gpt2")
    pieces = [written.read_tokens(int(a), int(b)).ids.tolist() for a, b in written.document_spans]
    assert [p[-1] for p in pieces] == [gpt2.special_ids.end] * 2
    assert [gpt2.decode(p) for p in pieces] == ["one text", "another\none"]
    t5 = write_shards(documents(texts), tokenizer(), tmp_path / "t5")
    assert t5.tokenizer.special_ids.end not in t5.read_tokens(0, t5.n_tokens).ids
