"""What commands import and do before their first answer."""

import gc
import os
import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
import small_models

import unmask
from unmask.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "numpy", "scipy", "tokenizers", "safetensors", "huggingface_hub", "transformers")
HELP = (*HEAVY, "pydantic", "rich", "jaxtyping", "jinja2", "asyncio", "multiprocessing", "pandas")
"""What no help text needs. typer has pydantic make each value that is given."""
INFERENCE = (
    "scipy", "sklearn", "pandas", "PIL", "transformers", "huggingface_hub", "datasets", "requests",
    "torchvision", "torch._dynamo", "torch._inductor", "torch.onnx", "torch.distributed.fsdp",
    "torch.distributed.tensor", "sympy", "onnxruntime", "onnx", "matplotlib", "numpy.f2py",
    "unmask.jobs.pretrain", "unmask.jobs.finetune", "unmask.reports", "unmask.studies",
    "unmask.web", "unmask.analysis", "unmask.preferences", "unmask.planning",
)  # fmt: skip
"""What the answer of a small encoder does not need; torch imports much of its own by itself."""


def imported_by(commands: list[list[str]], modules: tuple[str, ...]) -> str:
    """Run commands one after the other in a new process, and name what each imports of modules."""
    code = f"""
import contextlib, io, sys
from unmask.cli.main import run
for words in {commands!r}:
    with contextlib.redirect_stdout(io.StringIO()):
        assert run(words) == 0, words
    found = [name for name in {modules!r} if name in sys.modules]
    if found:
        sys.exit(f"{{words}}: {{', '.join(found)}}")
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    return done.stderr if done.returncode else ""


def test_help_imports_nothing_heavy() -> None:
    commands = [["--help"], *([name, "--help"] for name in COMMANDS)]
    assert imported_by(commands, HELP) == ""


@pytest.mark.thorough
def test_answers_import_only_what_they_need(tmp_path: Path) -> None:
    small_models.make("bert", tmp_path, "BertForSequenceClassification", num_labels=2)
    commands = [["fill", "unmask-mini-en", "a [MASK] ."], ["predict", str(tmp_path), "a text ."]]
    assert imported_by(commands, INFERENCE) == ""


@pytest.mark.parametrize("n_frozen", [0, 7])
@pytest.mark.parametrize("enabled", [True, False])
def test_collection_of_garbage_goes_on_after_an_import(
    enabled: bool, n_frozen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the state that it was in; what others froze stays frozen."""
    calls: list[str] = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: n_frozen)
    for name in ("freeze", "unfreeze"):
        monkeypatch.setattr(gc, name, partial(calls.append, name))
    try:
        (gc.enable if enabled else gc.disable)()
        assert unmask.IA3 is import_module("unmask.adapters.ia3").IA3
        assert gc.isenabled() is enabled
    finally:
        gc.enable()
    assert calls == (["freeze", "unfreeze"] if enabled and not n_frozen else [])
