"""Search: trials are the same for the same seed, none is made twice, and the best is taken."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import toy_models as toy

from unmask.finetuning import run, search
from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.job.finetune_job import FinetuneJob
from unmask.finetuning.job.prepare import prepare_job
from unmask.finetuning.search import TRIALS_FILE, SearchTrial, best_trial, read_trials, run_search
from unmask.jobs.finetune import resume_finetuning
from unmask.training.device import distributed

pytest.importorskip("optuna")


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, str]:
    home = tmp_path_factory.mktemp("files")
    toy.pretrained("bert", home / "base", dropout=0.0, attention_dropout=0.0)
    toy.write(home / "train.tsv", toy.texts(48, 1, 1, 4))
    toy.write(home / "dev.tsv", toy.texts(24, 2, 1, 4))
    return {n: str(home / name) for n, name in
            (("base", "base"), ("train", "train.tsv"), ("dev", "dev.tsv"))}  # fmt: skip


def job_of(files: dict[str, str], folder: Path, **more) -> tuple[FinetuneJob, FinetuneConfig]:
    finetune_config = FinetuneConfig(
        task="classify", **(files | {"epochs": 1.0, "precision": "float32"} | more)
    )
    with distributed.process_group("cpu") as world:
        return prepare_job(finetune_config, None, folder, world, 1, None), finetune_config


def fake_run(job: FinetuneJob) -> float:
    """Stand in for a run: the higher the rate, the better, and batches of 32 are best of all."""
    assert job.config.learning_rate is not None
    return job.config.learning_rate + (job.config.batch_size == 32)


def test_first_trial_uses_defaults_and_others_vary_around_them(files, tmp_path) -> None:
    job, finetune_config = job_of(files, tmp_path, search=8)
    found = run_search(job, finetune_config, fake_run)
    tried = read_trials(tmp_path)
    assert [one.index for one in tried] == list(range(1, 9))
    assert (tried[0].learning_rate, tried[0].batch_size) == (
        job.config.learning_rate,
        job.config.batch_size,
    )
    assert all(
        tried[0].learning_rate / 10 <= one.learning_rate <= tried[0].learning_rate * 10
        for one in tried
    )
    assert len({one.learning_rate for one in tried}) == 8
    assert {one.batch_size for one in tried} <= {8, 16, 32, 64}
    top = max(tried, key=lambda one: one.score or 0.0)
    assert (found.config.learning_rate, found.config.batch_size) == (
        top.learning_rate,
        top.batch_size,
    )
    assert found.run_record["recipe"]["learning_rate"] == top.learning_rate
    assert found.config.evaluate_every == -(-48 // top.batch_size)  # an epoch still
    assert found.config.epochs == job.config.epochs


def test_interrupted_search_resumes_identically(files, tmp_path) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    for folder in (whole, part):
        folder.mkdir()
    job, finetune_config = job_of(files, whole, search=7)
    run_search(job, finetune_config, fake_run)
    made_by_now: list[FinetuneJob] = []

    def stopped(one: FinetuneJob) -> float:
        made_by_now.append(one)
        if len(made_by_now) == 4:
            raise KeyboardInterrupt
        return fake_run(one)

    again = replace(job, folder=part)
    with pytest.raises(KeyboardInterrupt):
        run_search(again, finetune_config, stopped)
    assert len(read_trials(part)) == 3
    left: list[FinetuneJob] = []
    run_search(again, finetune_config, lambda one: left.append(one) or fake_run(one))
    assert len(left) == 4

    def trials(folder: Path) -> list[SearchTrial]:
        return [replace(one, seconds=0.0) for one in read_trials(folder)]

    assert trials(part) == trials(whole)
    other = replace(job, folder=tmp_path, config=replace(job.config, seed=1))
    run_search(other, finetune_config, fake_run)
    assert [t.learning_rate for t in read_trials(tmp_path)] != [
        t.learning_rate for t in read_trials(whole)
    ]


def test_given_values_are_not_searched(files, tmp_path) -> None:
    (tmp_path / "a").mkdir()
    job, finetune_config = job_of(files, tmp_path / "a", search=5, learning_rate=1e-3)
    run_search(job, finetune_config, fake_run)
    assert {one.learning_rate for one in read_trials(tmp_path / "a")} == {1e-3}
    job, finetune_config = job_of(files, tmp_path, search=5, batch_size=12)
    run_search(job, finetune_config, fake_run)
    assert {one.batch_size for one in read_trials(tmp_path)} == {12}
    with pytest.raises(ValueError, match="both are given"):
        run.run_finetuning(
            replace(finetune_config, learning_rate=1e-3), output_folder=tmp_path / "none"
        )
    assert not (tmp_path / "none").exists()
    with pytest.raises(ValueError, match="search must be at least 0, got -1"):
        job_of(files, tmp_path, search=-1)


def test_diverged_trial_is_kept_but_not_best(files, tmp_path) -> None:
    job, finetune_config = job_of(files, tmp_path, search=6)
    results = iter([None, 0.1, None, 0.3, 0.2, None])
    found = run_search(job, finetune_config, lambda _: next(results))
    assert [one.score for one in read_trials(tmp_path)] == [None, 0.1, None, 0.3, 0.2, None]
    assert found.config.learning_rate == read_trials(tmp_path)[3].learning_rate


def trial(number: int, score: float | None) -> SearchTrial:
    return SearchTrial(
        index=number,
        learning_rate=1.0 * number,
        batch_size=8,
        score=score,
        seconds=1.0,
        run_digest="x",
    )


def test_best_trial_is_by_metric_and_first_of_ties() -> None:
    some = [trial(1, None), trial(2, 0.5), trial(3, 0.7), trial(4, 0.7)]
    assert best_trial(some, "accuracy").index == 3
    assert best_trial(some, "mean_squared_error").index == 2
    with pytest.raises(FloatingPointError, match="all 1 trials diverged"):
        best_trial(some[:1], "accuracy")


def test_trials_of_another_run_are_refused(files, tmp_path) -> None:
    job, finetune_config = job_of(files, tmp_path, search=2)
    run_search(job, finetune_config, fake_run)
    job, finetune_config = job_of(files, tmp_path, search=2, weight_decay=0.5)
    with pytest.raises(ValueError, match=r"search\.jsonl: holds trials of another run"):
        run_search(job, finetune_config, fake_run)
    (tmp_path / TRIALS_FILE).write_text('{"number": 1}\n')
    with pytest.raises(ValueError, match=r"search\.jsonl:1: not a trial"):
        read_trials(tmp_path)


def test_missing_optuna_names_the_extra(files, tmp_path, monkeypatch) -> None:
    finetune_config = FinetuneConfig(task="classify", search=2, **files)
    monkeypatch.setattr(search.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'unmask\[search\]'"):
        run.run_finetuning(finetune_config, output_folder=tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_run_uses_the_best_trial_and_resumes(files, tmp_path, monkeypatch) -> None:
    more = files | {
        "epochs": 1.0,
        "batch_size": 16,
        "precision": "float32",
        "search": 3,
        "seeds": 2,
    }
    finetune_config = FinetuneConfig(task="classify", **more)
    out = tmp_path / "run"
    tries = 0
    real = run._run_trial

    def counted(job: FinetuneJob) -> float | None:
        nonlocal tries
        tries += 1
        if tries == 3:
            raise KeyboardInterrupt
        return real(job)

    monkeypatch.setattr(run, "_run_trial", counted)
    with pytest.raises(KeyboardInterrupt):
        run.run_finetuning(finetune_config, output_folder=out, device="cpu", terminal=None)
    assert len(read_trials(out)) == 2
    with pytest.raises(ValueError, match="its search is unfinished"):
        resume_finetuning(out, terminal=None)
    with pytest.raises(ValueError, match="holds a run already"):
        run.run_finetuning(finetune_config, output_folder=out, device="cpu", terminal=None)
    tuned = run.run_finetuning(
        finetune_config, output_folder=out, resume=True, device="cpu", terminal=None
    )
    assert tries == 4
    assert len(tuned.run_results) == 2
    tried = read_trials(out)
    assert tuned.config.learning_rate == best_trial(tried, "accuracy").learning_rate
    assert (
        json.loads((out / "unmask.json").read_text())["recipe"]["learning_rate"]
        == tuned.config.learning_rate
    )
    shown = json.loads((out / "results.json").read_text())["search"]
    assert [one["rate"] for one in shown] == [one.learning_rate for one in tried]
    again = run.run_finetuning(
        finetune_config, output_folder=out, resume=True, device="cpu", terminal=None
    )
    assert tries == 4
    assert again.run_results == tuned.run_results
    assert resume_finetuning(out, device="cpu", terminal=None).run_results == tuned.run_results
    # The first trial is the first run of the job, with nothing but the rate changed.
    alone = replace(finetune_config, search=0, learning_rate=tried[0].learning_rate, seeds=1)
    once = run.run_finetuning(alone, device="cpu", terminal=None)
    assert tried[0].score == pytest.approx(once.best_run.dev["accuracy"], abs=1e-6)
