from pathlib import Path

import numpy as np
import pytest

from unmask.word_vectors.formats.npy import npy_appender, write_npy


@pytest.mark.parametrize(
    "array",
    [np.arange(7), np.zeros((0, 3), "f4"), np.ones((3, 4), "f4"), np.arange(3, dtype="u8")],
    ids=str,
)
def test_array_is_written_as_by_numpy(array: np.ndarray, tmp_path: Path) -> None:
    write_npy(tmp_path / "a.npy", array)
    np.save(tmp_path / "b.npy", array)
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


def test_appended_rows_are_one_array(tmp_path: Path) -> None:
    rows = np.arange(12.0).reshape(6, 2)
    with npy_appender(tmp_path / "a.npy", "f4", 2) as append:
        append(rows[:1])
        append(np.asfortranarray(rows[1:]))
    assert np.array_equal(np.load(tmp_path / "a.npy"), rows)


@pytest.mark.trials("full disk")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk_is_named() -> None:
    with pytest.raises(OSError, match="No space left"):
        write_npy(Path("/dev/full"), np.zeros(100_000))
