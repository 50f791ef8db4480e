"""Blocks on disk: never more bytes than the limit, whole or absent, whoever is killed."""

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from unmask.shards.remote.block_cache import BlockCache

SIZE = 1000


def block(number: int) -> bytes:
    return np.random.default_rng(number).bytes(SIZE)


def test_what_is_written_is_read_by_others_too(tmp_path: Path) -> None:
    cache = BlockCache(tmp_path, 10**6)
    assert cache.read("a", 0, 0, 10) is None
    cache.write("a", 0, block(0))
    for reader in (cache, BlockCache(tmp_path, 10**6)):
        assert reader.read("a", 0, 0, SIZE) == block(0)
        assert reader.read("a", 0, 10, 20) == block(0)[10:20]
        assert reader.read("a", 1, 0, 10) is None
        assert reader.read("b", 0, 0, 10) is None


def test_what_was_not_read_for_the_longest_time_is_removed(tmp_path: Path) -> None:
    cache = BlockCache(tmp_path, 10 * (SIZE + 4))
    for number in range(10):
        cache.write("a", number, block(number))
        os.utime(tmp_path / "a" / f"{number:08d}", (number, number))
    reader = BlockCache(tmp_path, 10 * (SIZE + 4))
    assert reader.read("a", 0, 0, 1) is not None  # is now the newest
    cache.write("a", 10, block(10))
    assert cache.total() <= 0.9 * cache.limit
    left = [n for n in range(11) if cache.has("a", n)]
    assert left == [0, 3, 4, 5, 6, 7, 8, 9, 10]


def test_smaller_limit_holds_at_once(tmp_path: Path) -> None:
    cache = BlockCache(tmp_path, 10**6)
    for number in range(10):
        cache.write("a", number, block(number))
    assert BlockCache(tmp_path, 3 * (SIZE + 4)).total() == 3 * (SIZE + 4)


@pytest.mark.parametrize("damage", ["flipped", "truncated", "empty"])
def test_damaged_block_is_absent(damage: str, tmp_path: Path) -> None:
    BlockCache(tmp_path, 10**6).write("a", 0, block(0))
    path = tmp_path / "a" / "00000000"
    data = bytearray(path.read_bytes())
    data[500] ^= 1
    path.write_bytes({"flipped": data, "truncated": data[:700], "empty": b""}[damage])
    cache = BlockCache(tmp_path, 10**6)
    assert cache.read("a", 0, 0, 10) is None
    cache.write("a", 0, block(0))
    assert cache.read("a", 0, 0, SIZE) == block(0)


def test_sum_is_counted_anew_where_it_was_lost(tmp_path: Path) -> None:
    cache = BlockCache(tmp_path, 3 * (SIZE + 4))
    for number in range(3):
        cache.write("a", number, block(number))
    (tmp_path / "bytes").write_text("")
    cache.write("a", 3, block(3))
    assert cache.total() <= cache.limit


def write_for_ever(folder: Path, limit: int, seed: int) -> None:
    cache, draw = BlockCache(folder, limit), random.Random(seed)
    while True:
        number = draw.randrange(60)
        found = cache.read("a", number, 0, SIZE)
        assert found is None or found == block(number)
        if found is None:
            cache.write("a", number, block(number))


def test_limit_holds_for_several_processes_that_are_killed(tmp_path: Path) -> None:
    limit = 30 * (SIZE + 4)
    context = multiprocessing.get_context("spawn")
    writers = [
        context.Process(target=write_for_ever, args=(tmp_path, limit, seed)) for seed in range(3)
    ]
    for writer in writers:
        writer.start()
    observer, end, most = BlockCache(tmp_path, limit), time.monotonic() + 60, 0
    for _ in range(200):
        most = max(most, observer.total())
        time.sleep(0.005)
        assert time.monotonic() < end
    while most < limit // 2 and time.monotonic() < end:
        most = max(most, observer.total())
    for writer in writers:
        assert writer.is_alive(), "none was wrong"
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
    assert limit // 2 < most <= limit
    cache = BlockCache(tmp_path, limit)
    for number in range(60):
        assert cache.read("a", number, 0, SIZE) in (None, block(number))
        cache.write("a", number, block(number))
    assert cache.total() <= limit
