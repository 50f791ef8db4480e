"""A change that should change no number changes none: weights and losses are those recorded.

Where processor and versions are those of the record, weights and losses are equal bit for bit. On
another machine losses and the norm of the weights agree to a relative 1e-5. Sums of floats are then
taken in another order: with the kernels for AVX2 and with those for no vector instructions at all,
on the machine of the record, losses of all runs were within 2e-7 of it. A fault is far from both:
one other draw of a mask changes a loss by more than 1e-3.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import golden_runs
import pytest
import torch
from golden_runs import QUICK, RUNS

ELSEWHERE = 1e-5
_VERSIONS = golden_runs.machine()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    return golden_runs.texts(tmp_path_factory.mktemp("texts"))


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_every_run_has_exactly_one_record() -> None:
    assert {path.stem for path in golden_runs.HERE.glob("*.json")} == set(RUNS)
    assert len(RUNS) >= 24
    assert sum(run.resumed for run in RUNS.values()) >= 2


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in RUNS]
)
def test_run_equals_its_record(name: str, files: Mapping[str, Path], tmp_path: Path) -> None:
    if RUNS[name].steps is None:  # word vectors
        pytest.importorskip("numba")
    was = golden_runs.recorded(name)
    assert was["card"] == RUNS[name].card
    assert was["inputs"] == golden_runs.inputs(files), "the runs read other text than was recorded"
    now, out = golden_runs.make(name, files, tmp_path)
    if RUNS[name].resumed:
        again = tmp_path / "resumed"
        text, run = files["text.txt"], RUNS[name]
        last = golden_runs.stopped(lambda: golden_runs.pretrain(run, text, again), again)
        assert golden_runs.STOP <= last < golden_runs.STEPS
        golden_runs.pretrain(run, text, again, resume=True)
        assert golden_runs.measured(again) == now
        assert (again / golden_runs.LOG).read_bytes() == (out / golden_runs.LOG).read_bytes()
    assert _compared(now, was) == []


def _compared(now: Mapping, was: Mapping) -> list[str]:
    """Say in what a run differs from its record."""
    same = all(_VERSIONS[key] == was[key] for key in _VERSIONS)
    odd = [
        f"{table}: step {step}: {now[table].get(step)}, not {loss}"
        for table in ("losses", "held_out")
        for step, loss in was[table].items()
        if not _near(now[table].get(step), loss, same)
    ]
    odd += [
        f"{table}: other steps"
        for table in ("losses", "held_out")
        if len(now[table]) != len(was[table])
    ]
    if now["weights"].keys() != was["weights"].keys():
        odd.append(f"files: {[*now['weights']]}, not {[*was['weights']]}")
    for file, known in was["weights"].items():
        mine = now["weights"].get(file, {})
        exact = known if same else {key: known[key] for key in ("count", "names")}
        odd += [
            f"{file}: {k}: {mine.get(k)}, not {v}" for k, v in exact.items() if mine.get(k) != v
        ]
        if not _near(mine.get("norm"), known["norm"], same):
            odd.append(f"{file}: norm: {mine.get('norm')}, not {known['norm']}")
    return odd


def _near(now: float | None, was: float, same: bool) -> bool:
    return now == was if same or now is None else math.isclose(now, was, rel_tol=ELSEWHERE)


def test_other_machine_is_distinguished_from_other_result() -> None:
    was = golden_runs.recorded("bert")
    assert _compared(was, was) == []
    for changed, ok in ((1 + 1e-7, True), (1 + 1e-3, False)):
        losses = {step: loss * changed for step, loss in was["losses"].items()}
        elsewhere = was | {"processor": "another"}
        assert (_compared(was | {"losses": losses}, elsewhere) == []) is ok
    weights = {"model.safetensors": was["weights"]["model.safetensors"] | {"names": "other"}}
    assert "names" in _compared(was | {"weights": weights}, was)[0]
