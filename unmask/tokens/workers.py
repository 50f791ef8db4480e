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
from unmask.tokens.tokenizer import Special, Tokenizer

CHUNK_BYTES = 2**20
"""A worker is given about this much text at once; twice as many chunks as workers are in memory."""
_DOCUMENT_BYTES = 256
"""Counted for each document besides its text, so that a chunk does not hold a million tiny ones."""

_TRIES = 3
"""So many processes may be lost over one chunk of text; then something is wrong."""

_log = logging.getLogger(__name__)

_START = """\
import signal, sys
for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # they are for the process that started this one
    signal.signal(getattr(signal, name), signal.SIG_IGN)
sys.path[:] = sys.argv[2:]
from unmask.tokens.workers import work
work(sys.argv[1])
"""


def check_workers(workers: int, least: int = 0) -> None:
    """Check a number of worker processes.

    At most four for each core of this machine, or 16: more only take memory.

    Raises:
        ValueError: it is smaller or larger than is allowed.
    """
    if workers < least:
        raise ValueError(f"workers must be at least {least}, got {workers}")
    cores = os.cpu_count() or 1
    if workers > (most := max(16, 4 * cores)):
        raise ValueError(f"workers must be at most {most} here, with {cores} cores, got {workers}")


def id_type(n_ids: int) -> Literal["uint16", "uint32"]:
    """Name the smaller of the two types of stored ids that holds all of them."""
    return "uint16" if n_ids <= 2**16 else "uint32"


def encoded(
    texts: Iterable[tuple[str, bytes]], folder: Path, n_ids: int, workers: int
) -> Generator[tuple[bytes, np.ndarray, np.ndarray]]:
    """Encode texts in UTF-8, each with where it comes from: give each with its ids and marks.

    Args:
        texts: read as they are needed; a text is in memory from then until it is given back.
        folder: the saved tokenizer.
        n_ids: its size.
        workers: how many processes; 1 is this one. What is given does not depend on it.

    Raises:
        ValueError: the tokenizer refuses a text, or gives an id that it does not have.
        ChildProcessError: processes end again and again before their work is done.
    """
    with _encoders(folder, workers) as begin:
        pending = deque[tuple[list[tuple[str, bytes]], Callable[[], list[bytes]]]]()
        stored = _stored(n_ids)
        for chunk in _chunks(texts):
            pending.append((chunk, begin([text for _, text in chunk])))
            if len(pending) == 2 * workers:
                first, answer = pending.popleft()
                yield from _unpack(first, answer(), stored)
        for chunk, answer in pending:
            yield from _unpack(chunk, answer(), stored)


def work(folder: str) -> None:
    """Be a worker: answer chunks of texts from standard input with tokens, until it closes."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anything else prints must not come between the answers
    tokenizer = Tokenizer.load(Path(folder))
    with suppress(EOFError):
        while True:
            _send(answers, _encode(tokenizer, _receive(sys.stdin.buffer)))


def _chunks(texts: Iterable[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    chunk: list[tuple[str, bytes]] = []
    size = 0
    for where, text in texts:
        chunk.append((where, text))
        size += len(text) + _DOCUMENT_BYTES
        if size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _stored(n_ids: int) -> np.dtype:
    return np.dtype(id_type(n_ids)).newbyteorder("<")


def ended(text: Tokens, special: Special) -> Tokens:
    """Put the token that ends a text after a document, where no frame does.

    From it GPT-2 learns to end one. Radford et al. 2019 do not say so; their models write it.
    """
    if special.end is None or special.end in special.after or not len(text):
        return text
    return Tokens(
        np.concatenate((text.ids, [special.end])),
        np.concatenate((text.marks, [0])).astype(np.uint8),
    )


def _encode(tokenizer: Tokenizer, texts: Sequence[bytes]) -> list[bytes]:
    """Give three arrays as bytes: lengths, ids, marks. Or two parts: which text is refused, why."""
    try:
        tokens = tokenizer.encode_batch([text.decode() for text in texts])
    except ValueError:
        return _refused(tokenizer, texts)
    tokens = [ended(t, tokenizer.special) for t in tokens]
    lengths = np.array([len(t) for t in tokens], "<i8")
    ids = np.concatenate([t.ids for t in tokens])
    marks = np.concatenate([t.marks for t in tokens])
    if len(ids) and not 0 <= ids.min() <= ids.max() < tokenizer.size:
        wrong = int(np.argmax((ids < 0) | (ids >= tokenizer.size)))
        text = int(np.searchsorted(np.cumsum(lengths), wrong, "right"))
        why = f"the tokenizer gave the id {ids[wrong]}, though it has {tokenizer.size} ids"
        return [str(text).encode(), why.encode()]
    stored = ids.astype(_stored(tokenizer.size))
    return [lengths.tobytes(), stored.tobytes(), marks.astype(np.uint8).tobytes()]


def _refused(tokenizer: Tokenizer, texts: Sequence[bytes]) -> list[bytes]:
    for i, text in enumerate(texts):
        try:
            tokenizer.encode_batch([text.decode()])
        except ValueError as error:
            return [str(i).encode(), str(error).encode(errors="replace")]
    raise AssertionError("the tokenizer refuses together what it takes one by one")


def _unpack(
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
def _encoders(
    folder: Path, workers: int
) -> Generator[Callable[[list[bytes]], Callable[[], list[bytes]]]]:
    """Give a function that begins to encode a chunk, and gives one that waits for the answer."""
    if workers == 1:
        tokenizer = Tokenizer.load(folder)
        yield lambda texts: partial(_encode, tokenizer, texts)
        return
    processes: list[subprocess.Popen[bytes]] = []
    idle = Queue[subprocess.Popen[bytes]]()

    def ask(texts: list[bytes]) -> list[bytes]:
        process = idle.get()
        try:
            for n in range(_TRIES):
                try:
                    return _ask(process, texts)
                except ChildProcessError:
                    if closing or n == _TRIES - 1:
                        raise
                    _log.warning("a tokenizing process was lost; another does its work")
                    process = _start(folder)
                    processes.append(process)
            raise AssertionError
        finally:
            idle.put(process)

    def begin(texts: list[bytes]) -> Callable[[], list[bytes]]:
        if idle.empty() and len(processes) < workers:  # a small corpus does not start all of them
            processes.append(_start(folder))
            idle.put(processes[-1])
        return threads.submit(ask, texts).result

    closing: list[bool] = []
    threads = ThreadPoolExecutor(workers)  # a thread waits for its process's answer
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


def _start(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", _START, str(folder.absolute()), *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"TOKENIZERS_PARALLELISM": "false"},  # a worker is one thread
    )


def _ask(process: subprocess.Popen[bytes], texts: Sequence[bytes]) -> list[bytes]:
    assert process.stdin
    assert process.stdout
    try:
        _send(process.stdin, texts)
        return _receive(process.stdout)
    except (BrokenPipeError, EOFError) as error:
        status = process.wait()
        raise ChildProcessError(
            f"a tokenizing process ended with status {status} before its work was done"
            + (" (killed: was the memory enough?)" if status == -signal.SIGKILL else "")
        ) from error


def _send(stream: IO[bytes], parts: Sequence[bytes]) -> None:
    """Write how many parts there are, how long each is, and the parts."""
    stream.write(struct.pack(f"<Q{len(parts)}Q", len(parts), *map(len, parts)))
    for part in parts:
        stream.write(part)
    stream.flush()


def _receive(stream: IO[bytes]) -> list[bytes]:
    """Read what `_send` wrote; EOFError where the stream has ended."""
    (n,) = struct.unpack("<Q", _exactly(stream, 8))
    return [_exactly(stream, size) for size in struct.unpack(f"<{n}Q", _exactly(stream, 8 * n))]


def _exactly(stream: IO[bytes], n: int) -> bytes:
    data = stream.read(n)
    if len(data) < n:
        raise EOFError
    return data
