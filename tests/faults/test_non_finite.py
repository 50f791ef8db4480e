"""One activation that is no number: its step is skipped and counted; too many end the run."""

import json
import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from faults import kinds, line_of
from safetensors.torch import load_file
from tiny_jobs import JOBS, LSTM, PICTURES, SMALL, TWO_STACKS, pretraining, ready
from torch import Tensor, nn

from unmask.training import loop

TRAINED = [
    name
    for name in JOBS
    if name.startswith(("pretrain", "tune", "prefer")) and name not in ("tune seeds", "tune source")
]
VALUES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


@contextmanager
def one_activation(value: float, steps: Callable[[int], bool]) -> Generator[None]:
    """Spoil the first number of the first trained module's output, in some steps."""
    armed = [False]
    accumulate = loop._accumulate_gradients

    def counted(run: Any, micro_batches: Any, step: int) -> Any:
        armed[0] = steps(step)
        return accumulate(run, micro_batches, step)

    def spoil(module: nn.Module, given: Any, out: Any) -> Any:
        if not (armed[0] and isinstance(out, Tensor) and out.requires_grad and out.dim() > 1):
            return None
        armed[0] = False
        flat = out.reshape(-1)
        return torch.cat([flat[:1] * 0 + value, flat[1:]]).view(out.shape)

    hook = nn.modules.module.register_module_forward_hook(spoil)
    patch = pytest.MonkeyPatch()
    patch.setattr(loop, "_accumulate_gradients", counted)
    try:
        yield
    finally:
        hook.remove()
        patch.undo()


@pytest.mark.trials("numbers")
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("name", kinds(TRAINED, ()))
@pytest.mark.filterwarnings("ignore")
def test_step_with_one_activation_that_is_no_number_is_skipped_and_counted(
    name: str, value: str, home: Path, tmp_path: Path
) -> None:
    job, out = ready(name, home), tmp_path / "run"
    with one_activation(VALUES[value], lambda step: step == 2):
        job(home, out, False)
    (log,) = list(out.rglob("log.jsonl"))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["skipped"] for line in lines if "skipped" in line][-1] == 1
    for file in out.glob("*.safetensors"):
        weights = load_file(file)
        assert all(torch.isfinite(w).all() for w in weights.values() if w.is_floating_point())


LIMITED = {
    "encoder": ("bert-tiny", SMALL, "text.txt"),
    "decoder": ("gpt2-mini", SMALL, "text.txt"),
    "encoder-decoder": ("t5-mini", TWO_STACKS, "text.txt"),
    "recurrent": ("ulmfit-mini", LSTM, "text.txt"),
    "pictures": ("vit-mini", PICTURES, "noise.npz"),
}


@pytest.mark.trials("numbers")
@pytest.mark.parametrize(
    "kind", [k if k == "encoder" else pytest.param(k, marks=pytest.mark.thorough) for k in LIMITED]
)
@pytest.mark.filterwarnings("ignore")
def test_run_ends_in_one_line_after_so_many_skipped_steps(
    kind: str, home: Path, tmp_path: Path
) -> None:
    name, changes, data = LIMITED[kind]
    job = pretraining(name, *changes, "max_skipped_steps=3", data=data, steps=6)
    with (
        one_activation(math.nan, lambda step: step > 1),
        pytest.raises(FloatingPointError) as error,
    ):
        job(home, tmp_path / "run", False)
    line, status = line_of(error.value)
    assert status == 1
    assert "step 4" in line
    assert "3 steps in a row" in line
