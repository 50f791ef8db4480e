"""Search: trials are the same for the same seed, none is made twice, and the best is taken."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import toy_models as toy

from unmask.finetuning import search, tune
from unmask.finetuning.job import Job, prepare
from unmask.finetuning.plan import Tuning
from unmask.finetuning.search import TRIALS, Trial, best, searched, trials
from unmask.serving.finetune import go_on
from unmask.training import parallel

pytest.importorskip("optuna")


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, str]:
    home = tmp_path_factory.mktemp("files")
    toy.pretrained("bert", home / "base", dropout=0.0, attention_dropout=0.0)
    toy.write(home / "train.tsv", toy.texts(48, 1, 1, 4))
    toy.write(home / "dev.tsv", toy.texts(24, 2, 1, 4))
    return {n: str(home / name) for n, name in
            (("base", "base"), ("train", "train.tsv"), ("dev", "dev.tsv"))}  # fmt: skip


def job_of(files: dict[str, str], folder: Path, **more) -> tuple[Job, Tuning]:
    asked = Tuning(task="classify", **(files | {"epochs": 1.0, "precision": "float32"} | more))
    with parallel.join("cpu") as world:
        return prepare(asked, None, folder, world, 1, None), asked


def made(job: Job) -> float:
    """Stand in for a run: the higher the rate, the better, and batches of 32 are best of all."""
    assert job.tuning.rate is not None
    return job.tuning.rate + (job.tuning.batch == 32)


def test_the_first_trial_is_what_is_customary_and_the_others_lie_around_it(files, tmp_path) -> None:
    job, asked = job_of(files, tmp_path, search=8)
    found = searched(job, asked, made)
    tried = trials(tmp_path)
    assert [one.number for one in tried] == list(range(1, 9))
    assert (tried[0].rate, tried[0].batch) == (job.tuning.rate, job.tuning.batch)
    assert all(tried[0].rate / 10 <= one.rate <= tried[0].rate * 10 for one in tried)
    assert len({one.rate for one in tried}) == 8
    assert {one.batch for one in tried} <= {8, 16, 32, 64}
    top = max(tried, key=lambda one: one.score or 0.0)
    assert (found.tuning.rate, found.tuning.batch) == (top.rate, top.batch)
    assert found.facts["recipe"]["rate"] == top.rate
    assert found.tuning.evaluate_every == -(-48 // top.batch)  # an epoch still
    assert found.tuning.epochs == job.tuning.epochs


def test_a_search_that_was_stopped_goes_on_as_if_it_was_not(files, tmp_path) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    for folder in (whole, part):
        folder.mkdir()
    job, asked = job_of(files, whole, search=7)
    searched(job, asked, made)
    made_by_now: list[Job] = []

    def stopped(one: Job) -> float:
        made_by_now.append(one)
        if len(made_by_now) == 4:
            raise KeyboardInterrupt
        return made(one)

    again = replace(job, folder=part)
    with pytest.raises(KeyboardInterrupt):
        searched(again, asked, stopped)
    assert len(trials(part)) == 3
    left: list[Job] = []
    searched(again, asked, lambda one: left.append(one) or made(one))
    assert len(left) == 4

    def said(folder: Path) -> list[Trial]:
        return [replace(one, seconds=0.0) for one in trials(folder)]

    assert said(part) == said(whole)
    other = replace(job, folder=tmp_path, tuning=replace(job.tuning, seed=1))
    searched(other, asked, made)
    assert [t.rate for t in trials(tmp_path)] != [t.rate for t in trials(whole)]


def test_what_is_given_is_not_searched(files, tmp_path) -> None:
    (tmp_path / "a").mkdir()
    job, asked = job_of(files, tmp_path / "a", search=5, rate=1e-3)
    searched(job, asked, made)
    assert {one.rate for one in trials(tmp_path / "a")} == {1e-3}
    job, asked = job_of(files, tmp_path, search=5, batch=12)
    searched(job, asked, made)
    assert {one.batch for one in trials(tmp_path)} == {12}
    with pytest.raises(ValueError, match="both are given"):
        tune.run(replace(asked, rate=1e-3), out=tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(ValueError, match="search must be at least 0, got -1"):
        job_of(files, tmp_path, search=-1)


def test_a_trial_that_diverges_is_not_the_best_and_is_kept(files, tmp_path) -> None:
    job, asked = job_of(files, tmp_path, search=6)
    results = iter([None, 0.1, None, 0.3, 0.2, None])
    found = searched(job, asked, lambda _: next(results))
    assert [one.score for one in trials(tmp_path)] == [None, 0.1, None, 0.3, 0.2, None]
    assert found.tuning.rate == trials(tmp_path)[3].rate


def trial(number: int, score: float | None) -> Trial:
    return Trial(number=number, rate=1.0 * number, batch=8, score=score, seconds=1.0, run="x")


def test_the_best_is_by_the_metric_and_of_ties_the_first() -> None:
    some = [trial(1, None), trial(2, 0.5), trial(3, 0.7), trial(4, 0.7)]
    assert best(some, "accuracy").number == 3
    assert best(some, "mean_squared_error").number == 2
    with pytest.raises(FloatingPointError, match="all 1 trials diverged"):
        best(some[:1], "accuracy")


def test_trials_of_another_run_are_not_taken_for_this_one(files, tmp_path) -> None:
    job, asked = job_of(files, tmp_path, search=2)
    searched(job, asked, made)
    job, asked = job_of(files, tmp_path, search=2, weight_decay=0.5)
    with pytest.raises(ValueError, match=r"search\.jsonl: holds trials of another run"):
        searched(job, asked, made)
    (tmp_path / TRIALS).write_text('{"number": 1}\n')
    with pytest.raises(ValueError, match=r"search\.jsonl:1: not a trial"):
        trials(tmp_path)


def test_without_optuna_it_is_said_how_to_get_it(files, tmp_path, monkeypatch) -> None:
    asked = Tuning(task="classify", search=2, **files)
    monkeypatch.setattr(search.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'unmask\[search\]'"):
        tune.run(asked, out=tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_run_is_made_with_the_best_and_can_be_resumed(files, tmp_path, monkeypatch) -> None:
    more = files | {"epochs": 1.0, "batch": 16, "precision": "float32", "search": 3, "seeds": 2}
    asked = Tuning(task="classify", **more)
    out = tmp_path / "run"
    tries = 0
    real = tune._attempt

    def counted(job: Job) -> float | None:
        nonlocal tries
        tries += 1
        if tries == 3:
            raise KeyboardInterrupt
        return real(job)

    monkeypatch.setattr(tune, "_attempt", counted)
    with pytest.raises(KeyboardInterrupt):
        tune.run(asked, out=out, device="cpu", terminal=None)
    assert len(trials(out)) == 2
    with pytest.raises(ValueError, match="its search has not ended"):
        go_on(out, terminal=None)
    with pytest.raises(ValueError, match="holds a run already"):
        tune.run(asked, out=out, device="cpu", terminal=None)
    tuned = tune.run(asked, out=out, resume=True, device="cpu", terminal=None)
    assert tries == 4
    assert len(tuned.scored) == 2
    tried = trials(out)
    assert tuned.tuning.rate == best(tried, "accuracy").rate
    assert json.loads((out / "unmask.json").read_text())["recipe"]["rate"] == tuned.tuning.rate
    shown = json.loads((out / "results.json").read_text())["search"]
    assert [one["rate"] for one in shown] == [one.rate for one in tried]
    again = tune.run(asked, out=out, resume=True, device="cpu", terminal=None)
    assert tries == 4
    assert again.scored == tuned.scored
    assert go_on(out, device="cpu", terminal=None).scored == tuned.scored
    # The first trial is the first run of the job, with nothing but the rate changed.
    alone = replace(asked, search=0, rate=tried[0].rate, seeds=1)
    once = tune.run(alone, device="cpu", terminal=None)
    assert tried[0].score == pytest.approx(once.best.dev["accuracy"], abs=1e-6)
