"""Data that changed between a kill and the resuming: named, or those of before are gone on with."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from faults import kinds, line_of, spread
from kills import instants, learned, put
from tiny_jobs import JOBS, ready
from trials import Trials

READ = {
    **{name: "text.txt" for name in JOBS if name.startswith("pretrain")},
    "pretrain pictures": "noise.npz",
    **{name: "rows.tsv" for name in JOBS if name.startswith("tune")},
    "tune source": "pairs.tsv", "glove": "text.txt", "fasttext": "text.txt", "lsa": "text.txt",
    "prefer": "pairs.jsonl", "prepare": "text.txt", "prepare cleaned": "text.txt",
}  # fmt: skip


def change_data(path: Path, *, is_longer: bool) -> None:
    """Add a row, document or picture, or change some letters or pixels."""
    if path.suffix == ".npz":
        pictures = np.load(path)["images"]
        pictures[3] //= 2
        np.savez(path, images=np.concatenate([pictures, pictures[:1]]) if is_longer else pictures)
        return
    data = path.read_bytes()
    if is_longer:
        last = data.rstrip(b"\n").split(b"\n")[-1]
        path.write_bytes(data + (b"\n" if b"\n\n" in data else b"") + last + b"\n")
    else:
        path.write_bytes(data.replace(b"night", b"nigth", 1).replace(b"king", b"gnik", 1))


@pytest.mark.parametrize("change", ["longer", "edited"])
@pytest.mark.parametrize("name", kinds(READ))
@pytest.mark.filterwarnings("ignore")
def test_data_changed_since_a_kill_are_named_and_never_mixed_with_the_old(
    name: str, change: str, home: Path, tmp_path: Path, trials: Trials
) -> None:
    """A run that holds all of its data already goes on with these."""
    job, own, out = ready(name, home), tmp_path / "own", tmp_path / "run"
    shutil.copytree(home, own, ignore=shutil.ignore_patterns("undisturbed"))
    found = instants(out, lambda: job(own, out, False))
    old = learned(out)
    change_data(own / READ[name], is_longer=change == "longer")
    shutil.rmtree(out)
    job(own, out, False)
    new = learned(out)
    assert new != old
    for what, there in (found[i] for i in spread(len(found), 6)):
        put(there, out)
        try:
            job(own, out, True)
        except (ValueError, FileExistsError) as error:
            line, status = line_of(error)
            assert status == 2
            assert "changed" in line or "other" in line, line
        else:
            assert learned(out) in (old, new), what
        trials.count("data and workers")
