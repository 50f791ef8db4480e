"""A valid file of each reader, damaged by chance: read as the same type of value, or refused."""

import os
import random
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from readers import BY_READER
from trials import Trials
from valid_files import LEGACY, VALID, WORD2VEC

CASES = {
    **{name: (name, make) for name, make in VALID.items()},
    "word2vec": ("fastText", WORD2VEC),
    "pickled tensors of the older layout": ("pickled tensors", LEGACY),
}
EXTREMES = (
    b"0",
    b"-1",
    b"1e999",
    b"NaN",
    b"9" * 400,
    b"2147483648",
    b"-9223372036854775809",
    b"true",
    b"null",
    b"[]",
    b"{}",
    b'""',
    b"\0",
    b"\xff",
    b"\xed\xa0\x80",
    b"\n",
    b"\xef\xbb\xbf",
    b"\x1b[2J",
)
NUMBERS = re.compile(rb"-?\d+(?:\.\d+)?")
SECONDS = 2


def mutate(data: bytes, seed: int, other: bytes) -> bytes:
    """Damage bytes at one to four places."""
    draw = random.Random(seed)
    for _ in range(draw.randint(1, 4)):
        at, end = sorted((draw.randint(0, len(data)), draw.randint(0, len(data))))
        end = min(end, at + draw.choice((1, 4, 64, 10**9)))
        found = [*NUMBERS.finditer(data[:20_000])]
        kind = draw.randrange(7)
        if kind == 0 and at < len(data):
            data = data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]
        elif kind == 1:
            data = data[:at]
        elif kind == 2:
            data = data[:end] + data[at:end] * draw.choice((1, 2, 50)) + data[end:]
        elif kind == 3:
            data = data[:at] + other[draw.randint(0, len(other)) :][:200] + data[end:]
        elif kind == 4 and found:
            one = draw.choice(found)
            data = data[: one.start()] + draw.choice(EXTREMES) + data[one.end() :]
        elif kind == 5:
            data = data[:at] + draw.choice(EXTREMES) + data[at:]
        else:
            data = data[:at] + data[end:]
    return data[: 2**20]


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, str]]:
    """Return the folder of a reader's valid file, and what type it is read as."""
    known: dict[str, tuple[Path, str]] = {}

    def of(case: str) -> tuple[Path, str]:
        if case not in known:
            reader, make = CASES[case]
            name, read = BY_READER[reader]
            folder = tmp_path_factory.mktemp("valid")
            make(folder / name)
            known[case] = folder, type(read(folder / name)).__name__
        return known[case]

    return of


def check(case: str, seed: int, valid: Callable[[str], tuple[Path, str]], tmp_path: Path) -> None:
    name, read = BY_READER[CASES[case][0]]
    (source, expected), folder = valid(case), tmp_path / str(seed)
    shutil.copytree(source, folder, symlinks=True)
    draw = random.Random(seed)
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    file = (
        folder / name if draw.random() < 0.7 and (folder / name).is_file() else draw.choice(files)
    )
    other = draw.choice(files).read_bytes()
    file.write_bytes(mutate(file.read_bytes(), seed, other))
    began = time.process_time()
    message = ""
    try:
        found = type(read(folder / name)).__name__
    except (ValueError, OSError) as error:
        found, message = expected, str(error)
    assert found in (expected, "NoneType")
    assert "\n" not in message
    assert time.process_time() - began < SECONDS
    shutil.rmtree(folder)


@pytest.mark.sample(24)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES)
@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_mutated_file_is_read_as_before_or_refused_in_one_line(
    case: str,
    seed: int,
    valid: Callable[[str], tuple[Path, str]],
    tmp_path: Path,
    trials: Trials,
) -> None:
    if not (tmp_path / str(seed)).exists():
        check(case, seed, valid, tmp_path)
        trials.count("fuzzing")


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES)
def test_many_mutated_files_are_read_as_before_or_refused(
    case: str, valid: Callable[[str], tuple[Path, str]], tmp_path: Path, trials: Trials
) -> None:
    first = int(os.environ.get("UNMASK_FUZZ_SEED", "0"))
    for seed in range(first, first + 200):
        try:
            check(case, seed, valid, tmp_path)
        except Exception as error:
            pytest.fail(f"seed {seed}: {error!r:.500}")
        trials.count("fuzzing")
