"""Jobs that are made of others, and those that write what is made: killed anywhere, they end alike.

A study, a suite, tuning after a stage on the task's own text or after a search, `convert`,
`report`. Of the first two each instant of their own writes is tried, and of the runs within them
the first and the last.
"""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kills import Job, check, instants, learned, put, tree
from tiny_jobs import SMALL, pretraining, studying, texts
from toy_text import corpus
from trials import Trials

from unmask.cli import main as cli
from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.methods.adapt_first import TaskAdaptivePretraining
from unmask.finetuning.run import run_finetuning as tune
from unmask.finetuning.suite import finetune_suite
from unmask.jobs.adapt_to_task import adapt_to_task_text


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("home")
    texts(home)
    (home / "more.txt").write_text(corpus(3, seed=4))
    pretraining("electra-mini", *SMALL)(home, home / "electra", False)
    yield home
    shutil.rmtree(home)


def suiting(home: Path, out: Path, again: bool) -> object:
    return finetune_suite(
        home / "electra",
        tasks=str(home / "toys.toml"),
        out=out,
        epochs=1.0,
        batch_size=8,
        max_length=16,
        learning_rate=1e-3,
        rows=16,
        device="cpu",
        terminal=None,
        resume=again and out.exists(),
    )


def tuning(base: str, **more: object) -> Job:
    def job(home: Path, out: Path, again: bool) -> object:
        rows = str(home / "rows.tsv")
        output = FinetuneConfig(
            base=str(home / base),
            task="classify",
            train=rows,
            dev=rows,
            batch_size=8,
            max_length=16,
            epochs=1.0,
            evaluate_every=1,
            **more,
        )
        if output.adapt_first is not None:
            domain = replace(output.adapt_first, unlabeled=(str(home / "more.txt"),))
            output = replace(output, adapt_first=domain)
        return tune(
            output,
            output_folder=out,
            resume=again and out.exists(),
            adapt=adapt_to_task_text,
            terminal=None,
        )

    return job


FEW = TaskAdaptivePretraining(
    epochs=0.3, changes=("batch_tokens=64", "sequence_length=16", "checkpoint_every=2")
)
JOBS: dict[str, Job] = {
    "study": studying,
    "suite": suiting,
    "in domain": tuning("electra", learning_rate=1e-3, adapt_first=FEW),
    "in domain, new words": tuning("lstm", learning_rate=1e-3, adapt_first=FEW),
    "search": tuning("electra", search=3),
}
WITHIN = (
    "pretrained/", "text/", "tuned/", "Day-or-night", "How-long", "in-domain/",
    "in-domain-text/tokens/",
)  # fmt: skip
"""Runs within a job, which are jobs of their own."""


def own(events: list[str]) -> set[int]:
    """Choose each instant at which a job itself writes, and of each run within it the ends."""
    found: set[int] = set()
    before = ""
    for i, what in enumerate(events):
        path = what.split(" ", 2)[2]
        inner = path.startswith(WITHIN) and "suite.json" not in path
        position = "/".join(path.split("/")[:2]) if inner else ""
        if not inner or position != before:
            found |= {i, max(i - 1, 0)}
        before = position
    return found


def lstm(home: Path) -> None:
    """Pretrain a model whose tokens are words, of which the task's text has others."""
    if not (home / "lstm").exists():
        (home / "little.txt").write_text("The king saw the gate at night.\n\n" * 60)
        sizes = "architecture={d_model=16,d_ff=16,n_layers=1}"
        changes = (sizes, "batch_tokens=64", "sequence_length=8", "dev_fraction=0.1")
        model = pretraining("ulmfit-mini", *changes)
        little = home / "small"
        little.mkdir()
        shutil.copy(home / "little.txt", little / "text.txt")
        model(little, home / "lstm", False)


def wanted(name: str, home: Path) -> Job:
    """Give a job, with what it needs."""
    if "search" in name:
        pytest.importorskip("optuna")
    if name == "in domain, new words":
        lstm(home)
    return JOBS[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_job_killed_at_any_own_write_ends_as_uninterrupted(
    name: str, home: Path, tmp_path: Path, trials: Trials
) -> None:
    every = name in ("search", "in domain, new words")
    chosen = (lambda events: set(range(len(events)))) if every else own
    check(wanted(name, home), home, tmp_path / "run", chosen, trials)


def few(events: list[str]) -> set[int]:
    """Choose the middle of what a job itself writes of its table."""
    tables = [i for i, what in enumerate(events) if "rename" in what and "suite.json" in what]
    return {tables[len(tables) // 2] + 1}


@pytest.mark.thorough
def test_suite_resumes_after_any_kill(home: Path, tmp_path: Path, trials: Trials) -> None:
    check(JOBS["suite"], home, tmp_path / "run", few, trials)


CONVERSIONS: dict[str, tuple[str, ...]] = {
    "model": ("electra", "made"),
    "model, ours": ("electra", "made", "--to", "unmask"),
    "mean": ("electra", "made", "--average", "2"),
    "vectors": ("a.vec", "made.bin"),
    "vectors as GloVe": ("a.vec", "made.txt", "--to", "glove"),
}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "vectors" else pytest.mark.slow) for n in CONVERSIONS]
)
def test_killed_conversion_can_be_repeated(
    name: str, home: Path, tmp_path: Path, trials: Trials
) -> None:
    source, target, *options = CONVERSIONS[name]
    out = tmp_path / "out"
    out.mkdir()

    def convert() -> int:
        return cli.run(["convert", str(home / source), str(out / target), *options])

    found = instants(out, lambda: convert() == 0 or pytest.fail("it does not convert"))
    whole = learned(out)
    assert any(data for data in whole.values())
    for what, there in found:
        put(there, out)
        done = (out / target).exists()
        assert not done or learned(out) == whole, f"half of it is there, killed {what}"
        # What is there is whole, and is not written over.
        assert convert() == (2 if done else 0), f"killed {what}"
        assert learned(out) == whole, f"killed {what}"
        trials.count("kills")


def test_killed_report_leaves_the_run_unchanged(home: Path, tmp_path: Path, trials: Trials) -> None:
    out = tmp_path / "run"
    shutil.copytree(home / "electra", out)
    cli.run(["report", str(out)])
    whole = tree(out)
    (out / "report.html").unlink()
    found = instants(out, lambda: cli.run(["report", str(out)]))
    assert tree(out) == whole
    for what, there in [*found, ("with a page of before", {**whole, "report.html": b"old"})]:
        put(there, out)
        assert cli.run(["report", str(out)]) == 0
        left = {n: data for n, data in tree(out).items() if not n.startswith(".")}
        assert left == {n: data for n, data in whole.items() if not n.startswith(".")}, what
        trials.count("kills")
