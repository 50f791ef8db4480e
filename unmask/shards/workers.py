"""Documents to token arrays, on one process or several, in the order of the documents."""

import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from unmask.text.processes import Work, map_in_order, worker_pool
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.load import load_tokenizer
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.tokenizers.splitting.cached_words import EncodedTexts

WORKER_CHUNK_BYTES = 2**20
"""A worker is given about this much text at once; twice as many chunks as workers are in memory."""
_DOCUMENT_OVERHEAD_BYTES = 256
"""Counted for each document besides its text, so that a chunk does not hold a million tiny ones."""


def check_workers(n_workers: int, minimum: int = 0) -> None:
    """Check a number of worker processes.

    At most four for each core of this machine, or 16: more only take memory.

    Raises:
        ValueError: it is smaller or larger than is allowed.
    """
    if n_workers < minimum:
        raise ValueError(f"workers must be at least {minimum}, got {n_workers}")
    cores = os.cpu_count() or 1
    if n_workers > (most := max(16, 4 * cores)):
        raise ValueError(
            f"workers must be at most {most} here, with {cores} cores, got {n_workers}"
        )


def id_type(n_ids: int) -> Literal["uint16", "uint32"]:
    """Name the smaller of the two types of stored ids that holds all of them."""
    return "uint16" if n_ids <= 2**16 else "uint32"


def encode_documents(
    texts: Iterable[tuple[str, bytes]], folder: Path, n_ids: int, n_workers: int
) -> Generator[tuple[bytes, np.ndarray, np.ndarray]]:
    """Encode texts in UTF-8, each with where it comes from: give each with its ids and boundaries.

    Args:
        texts: read as they are needed; a text is in memory from then until it is given back.
        folder: the saved tokenizer.
        n_ids: its size.
        n_workers: how many processes; 1 is this one. What is given does not depend on it.

    Raises:
        ValueError: the tokenizer refuses a text, or gives an id that it does not have.
        ChildProcessError: processes end again and again before their work is done.
    """
    stored = _stored_dtype(n_ids)
    with worker_pool(
        "unmask.shards.workers:make_encoder", str(folder.absolute()), n_workers
    ) as begin:
        chunks = map_in_order(
            _chunks(texts), lambda chunk: begin([text for _, text in chunk]), n_workers
        )
        for chunk, answer in chunks:
            yield from _unpack_answer(chunk, answer, stored)


def make_encoder(folder: str) -> Work:
    """Return what encodes chunks of texts with the tokenizer of a folder."""
    return _ChunkEncoder(load_tokenizer(Path(folder)))


def _chunks(texts: Iterable[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    chunk: list[tuple[str, bytes]] = []
    size = 0
    for where, text in texts:
        chunk.append((where, text))
        size += len(text) + _DOCUMENT_OVERHEAD_BYTES
        if size >= WORKER_CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _stored_dtype(n_ids: int) -> np.dtype:
    return np.dtype(id_type(n_ids)).newbyteorder("<")


def append_end_tokens(texts: EncodedTexts, special_ids: SpecialTokenIds) -> EncodedTexts:
    """Put the token that ends a text after each document that has tokens, where no frame does.

    From it GPT-2 learns to end one. Radford et al. 2019 do not say so; their models write it.
    """
    if special_ids.end is None or special_ids.end in special_ids.suffix:
        return texts
    ends = np.cumsum(texts.lengths)[texts.lengths > 0]
    return EncodedTexts(
        texts.lengths + (texts.lengths > 0),
        np.insert(texts.ids, ends, special_ids.end),
        np.insert(texts.boundaries, ends, 0),
    )


class _ChunkEncoder:
    """Encodes chunks of texts with one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self._encoder = tokenizer, tokenizer.corpus_encoder()

    def __call__(self, texts: Sequence[bytes]) -> list[bytes]:
        """Give three arrays as bytes: lengths, ids, boundaries.

        Or two parts: which text is refused, and why.
        """
        tokenizer, n_ids = self._tokenizer, self._tokenizer.vocab_size
        try:
            tokens = self._encoder.encode_batch([text.decode() for text in texts])
        except ValueError:
            return _find_refused(tokenizer, texts)
        tokens = append_end_tokens(tokens, tokenizer.special_ids)
        ids = tokens.ids
        if len(ids) and not 0 <= ids.min() <= ids.max() < n_ids:
            wrong = int(np.argmax((ids < 0) | (ids >= n_ids)))
            text = int(np.searchsorted(np.cumsum(tokens.lengths), wrong, "right"))
            why = f"the tokenizer gave the id {ids[wrong]}, though it has {n_ids} ids"
            return [str(text).encode(), why.encode()]
        return [
            tokens.lengths.astype("<i8").tobytes(),
            ids.astype(_stored_dtype(n_ids)).tobytes(),
            tokens.boundaries.tobytes(),
        ]


def _find_refused(tokenizer: Tokenizer, texts: Sequence[bytes]) -> list[bytes]:
    for i, text in enumerate(texts):
        try:
            tokenizer.encode_batch([text.decode()])
        except ValueError as error:
            return [str(i).encode(), str(error).encode(errors="replace")]
    raise AssertionError("the tokenizer refuses together what it takes one by one")


def _unpack_answer(
    chunk: list[tuple[str, bytes]], answer: list[bytes], stored: np.dtype
) -> Iterator[tuple[bytes, np.ndarray, np.ndarray]]:
    if len(answer) == 2:
        where, _ = chunk[int(answer[0])]
        raise ValueError(f"{where}: {answer[1].decode()}")
    ids, marks = np.frombuffer(answer[1], stored), np.frombuffer(answer[2], np.uint8)
    start = 0
    ends = np.cumsum(np.frombuffer(answer[0], "<i8")).tolist()
    for (_, text), end in zip(chunk, ends, strict=True):
        yield text, ids[start:end], marks[start:end]
        start = end
