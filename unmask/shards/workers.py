"""Documents to token arrays, on one process or several, in the order of the documents.

The processes are new interpreters that talk through pipes, neither forked nor spawned by
`multiprocessing`: a fork would copy the locks of the tokenizers library's threads in whatever state
they are, and a spawn would run the user's script a second time where it lacks an `if __name__ ==
"__main__"`. A worker ends by itself when its pipe closes, so none is left over when the process
that started it is killed.
"""

import logging
import os
import signal
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import Queue
from typing import IO, Literal

import numpy as np

from unmask.batch import Tokens
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.load import load_tokenizer
from unmask.tokenizers.spec import SpecialTokenIds

WORKER_CHUNK_BYTES = 2**20
"""A worker is given about this much text at once; twice as many chunks as workers are in memory."""
_DOCUMENT_OVERHEAD_BYTES = 256
"""Counted for each document besides its text, so that a chunk does not hold a million tiny ones."""

_MAX_WORKER_LOSSES = 3
"""So many processes may be lost over one chunk of text; then something is wrong."""

_log = logging.getLogger(__name__)

_WORKER_SCRIPT = """\
import signal, sys
for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # they are for the process that started this one
    signal.signal(getattr(signal, name), signal.SIG_IGN)
sys.path[:] = sys.argv[2:]
from unmask.shards.workers import run_worker
run_worker(sys.argv[1])
"""


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
    with _encoder_pool(folder, n_workers) as begin:
        pending = deque[tuple[list[tuple[str, bytes]], Callable[[], list[bytes]]]]()
        stored = _stored_dtype(n_ids)
        for chunk in _chunks(texts):
            pending.append((chunk, begin([text for _, text in chunk])))
            if len(pending) == 2 * n_workers:
                first, answer = pending.popleft()
                yield from _unpack_answer(first, answer(), stored)
        for chunk, answer in pending:
            yield from _unpack_answer(chunk, answer(), stored)


def run_worker(folder: str) -> None:
    """Be a worker: answer chunks of texts from standard input with tokens, until it closes."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anything else prints must not come between the answers
    tokenizer = load_tokenizer(Path(folder))
    with suppress(EOFError):
        while True:
            _send_parts(answers, _encode_chunk(tokenizer, _receive_parts(sys.stdin.buffer)))


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


def append_end_token(text: Tokens, special_ids: SpecialTokenIds) -> Tokens:
    """Put the token that ends a text after a document, where no frame does.

    From it GPT-2 learns to end one. Radford et al. 2019 do not say so; their models write it.
    """
    if special_ids.end is None or special_ids.end in special_ids.suffix or not len(text):
        return text
    return Tokens(
        np.concatenate((text.ids, [special_ids.end])),
        np.concatenate((text.boundaries, [0])).astype(np.uint8),
    )


def _encode_chunk(tokenizer: Tokenizer, texts: Sequence[bytes]) -> list[bytes]:
    """Give three arrays as bytes: lengths, ids, boundaries.

    Or two parts: which text is refused, and why.
    """
    try:
        tokens = tokenizer.encode_batch([text.decode() for text in texts])
    except ValueError:
        return _find_refused(tokenizer, texts)
    tokens = [append_end_token(t, tokenizer.special_ids) for t in tokens]
    lengths = np.array([len(t) for t in tokens], "<i8")
    ids = np.concatenate([t.ids for t in tokens])
    marks = np.concatenate([t.boundaries for t in tokens])
    if len(ids) and not 0 <= ids.min() <= ids.max() < tokenizer.vocab_size:
        wrong = int(np.argmax((ids < 0) | (ids >= tokenizer.vocab_size)))
        text = int(np.searchsorted(np.cumsum(lengths), wrong, "right"))
        why = f"the tokenizer gave the id {ids[wrong]}, though it has {tokenizer.vocab_size} ids"
        return [str(text).encode(), why.encode()]
    stored = ids.astype(_stored_dtype(tokenizer.vocab_size))
    return [lengths.tobytes(), stored.tobytes(), marks.astype(np.uint8).tobytes()]


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


@contextmanager
def _encoder_pool(
    folder: Path, n_workers: int
) -> Generator[Callable[[list[bytes]], Callable[[], list[bytes]]]]:
    """Give a function that begins to encode a chunk, and gives one that waits for the answer."""
    if n_workers == 1:
        tokenizer = load_tokenizer(folder)
        yield lambda texts: partial(_encode_chunk, tokenizer, texts)
        return
    processes: list[subprocess.Popen[bytes]] = []
    idle = Queue[subprocess.Popen[bytes]]()

    def ask(texts: list[bytes]) -> list[bytes]:
        process = idle.get()
        try:
            for n in range(_MAX_WORKER_LOSSES):
                try:
                    return _request(process, texts)
                except ChildProcessError:
                    if closing or n == _MAX_WORKER_LOSSES - 1:
                        raise
                    _log.warning("a tokenizing process was lost; another does its work")
                    process = _start_worker(folder)
                    processes.append(process)
            raise AssertionError
        finally:
            idle.put(process)

    def begin(texts: list[bytes]) -> Callable[[], list[bytes]]:
        if idle.empty() and len(processes) < n_workers:  # a small corpus does not start all of them
            processes.append(_start_worker(folder))
            idle.put(processes[-1])
        return threads.submit(ask, texts).result

    closing: list[bool] = []
    threads = ThreadPoolExecutor(n_workers)  # a thread waits for its process's answer
    try:
        yield begin
    finally:
        closing.append(True)
        threads.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()
        threads.shutdown(wait=True)
        for process in processes:
            process.kill()  # one may have been started in between
            with suppress(BrokenPipeError), process:  # closes its pipes, waits for its end
                pass


def _start_worker(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", _WORKER_SCRIPT, str(folder.absolute()), *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"TOKENIZERS_PARALLELISM": "false"},  # a worker is one thread
    )


def _request(process: subprocess.Popen[bytes], texts: Sequence[bytes]) -> list[bytes]:
    assert process.stdin
    assert process.stdout
    try:
        _send_parts(process.stdin, texts)
        return _receive_parts(process.stdout)
    except (BrokenPipeError, EOFError) as error:
        status = process.wait()
        raise ChildProcessError(
            f"a tokenizing process ended with status {status} before its work was done"
            + (" (killed: was the memory enough?)" if status == -signal.SIGKILL else "")
        ) from error


def _send_parts(stream: IO[bytes], parts: Sequence[bytes]) -> None:
    """Write how many parts there are, how long each is, and the parts."""
    stream.write(struct.pack(f"<Q{len(parts)}Q", len(parts), *map(len, parts)))
    for part in parts:
        stream.write(part)
    stream.flush()


def _receive_parts(stream: IO[bytes]) -> list[bytes]:
    """Read what `_send_parts` wrote; EOFError where the stream has ended."""
    (n,) = struct.unpack("<Q", _read_exactly(stream, 8))
    return [
        _read_exactly(stream, size)
        for size in struct.unpack(f"<{n}Q", _read_exactly(stream, 8 * n))
    ]


def _read_exactly(stream: IO[bytes], n: int) -> bytes:
    data = stream.read(n)
    if len(data) < n:
        raise EOFError
    return data
