"""Suites: each benchmark runs once, a failure in one stops no other, one table has all."""

import dataclasses
import inspect
import json
from pathlib import Path

import pytest
import toy_models as toy

from unmask.cli import main as cli
from unmask.finetuning import suite as module
from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.results.finetuned_model import FinetunedModel
from unmask.finetuning.run import run_finetuning
from unmask.finetuning.suite import (
    BenchmarkResult,
    SuiteResult,
    finetune_suite,
    scale_to_100,
    suite_markdown,
)
from unmask.jobs.finetune import finetune

TOML = """
name = "toys"
[[benchmarks]]
name = "Good or bad"
task = "classify"
labels = ["bad", "good"]
metric = "accuracy"
[[benchmarks.files]]
train = "train.tsv"
dev = "dev.tsv"
test = "test.tsv"
text = ["text"]
label = "label"
[[benchmarks]]
name = "How good"
task = "regress"
metric = "pearson"
files = [{train = "numbers.tsv", text = ["text"], label = "score"}]
"""
BROKEN = """[[benchmarks]]
name = "Broken"
task = "classify"
files = [{train = "broken.tsv", text = ["text"], label = "label"}]
[[benchmarks]]
name = "Absent"
task = "classify"
files = [{train = "absent.tsv", text = ["text"], label = "label"}]
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("home")
    toy.pretrained("bert", home / "base", dropout=0.0, attention_dropout=0.0)

    def rows(n: int, seed: int, no: str, yes: str) -> list[tuple[str, str]]:
        return [(text, {"no": no, "yes": yes}[y]) for text, y in toy.texts(n, seed, 1, 4)]

    toy.write(home / "train.tsv", rows(40, 1, "0", "1"))
    toy.write(home / "dev.tsv", rows(16, 2, "0", "1"))
    toy.write(home / "test.tsv", rows(16, 3, "bad", "good"))
    toy.write(home / "numbers.tsv", rows(40, 4, "1.5", "4"), "text\tscore")
    toy.write(home / "broken.tsv", [("x", "a")] * 8)
    (home / "toys.toml").write_text(TOML)
    (home / "more.toml").write_text(TOML + BROKEN)
    return home


def quick(home: Path, out: Path, tasks: str = "toys.toml", **more) -> SuiteResult:
    settings = {"epochs": 1.0, "batch_size": 8, "precision": "float32", "device": "cpu"}
    settings |= {"terminal": None, "rows": 24}
    tasks = str(home / tasks) if tasks.endswith(".toml") else tasks
    return finetune_suite(home / "base", tasks=tasks, out=out, **(settings | more))


def test_each_benchmark_has_a_run_in_one_table(home, tmp_path) -> None:
    out = tmp_path / "run"
    made = quick(home, out, seeds=2)
    first, second = made.benchmarks
    assert (first.name, first.metric, len(first.dev), len(first.test)) == (
        "Good or bad", "accuracy", 2, 2,
    )  # fmt: skip
    assert (second.metric, len(second.dev), second.test) == ("pearson", 2, ())
    mean = 100 * (sum(first.dev) / 2 + sum(second.dev) / 2) / 2
    assert made.average_score == pytest.approx(mean)
    facts = json.loads((out / "Good-or-bad/unmask.json").read_text())
    assert facts["task"]["labels"] == ["bad", "good"]
    assert facts["data"]["train"]["rows"] == 24
    record = json.loads((out / "suite.json").read_text())
    assert record["finished"] is True
    assert record["average"] == pytest.approx(mean)
    assert [tuple(one["dev"]) for one in record["entries"]] == [first.dev, second.dev]
    page = (out / "README.md").read_text()
    assert f"| average of 2 |  | {mean:.1f} |" in page
    assert "| benchmark | metric | held out | test | seconds |" in page
    assert " ± " in page


@pytest.mark.thorough
def test_test_files_are_not_read_unless_requested(home, tmp_path) -> None:
    made = quick(home, tmp_path / "run", include_test=False)
    assert all(one.dev and not one.test for one in made.benchmarks)
    again = module.resume_suite(tmp_path / "run", terminal=None)
    assert [one.dev for one in again.benchmarks] == [one.dev for one in made.benchmarks]


@pytest.mark.thorough
def test_interrupted_suite_resumes_without_rerunning(home, tmp_path, monkeypatch) -> None:
    out = tmp_path / "run"
    steps: list[str] = []

    def watched(tuning, **more) -> FinetunedModel:
        steps.append(tuning.task)
        if len(steps) == 2:
            raise KeyboardInterrupt
        return run_finetuning(tuning, **more)

    monkeypatch.setattr(module, "run_finetuning", watched)
    with pytest.raises(KeyboardInterrupt):
        quick(home, out)
    facts = json.loads((out / "suite.json").read_text())
    assert facts["finished"] is False
    assert len(facts["entries"][0]["dev"]) == 1
    log = (out / "Good-or-bad/log.jsonl").read_bytes()
    with pytest.raises(ValueError, match="holds a suite already"):
        quick(home, out)
    made = quick(home, out, resume=True)
    assert all(one.dev for one in made.benchmarks)
    assert (out / "Good-or-bad/log.jsonl").read_bytes() == log
    assert made.benchmarks[0].seconds == facts["entries"][0]["seconds"]
    with pytest.raises(ValueError, match="is a run of the suite"):
        quick(home, out, "more.toml", resume=True)


@pytest.mark.thorough
def test_failure_of_one_benchmark_is_reported_and_others_run(home, tmp_path) -> None:
    with (tmp_path / "said").open("w") as terminal:
        made = quick(home, tmp_path / "run", "more.toml", terminal=terminal)
    error = (tmp_path / "said").read_text()
    assert [bool(one.error) for one in made.benchmarks] == [False, False, True]
    assert "broken.tsv: only one label, 'a' in 8 rows" in made.benchmarks[2].error
    assert "Broken is left out: " in error
    assert "Absent is left out: there is no absent.tsv" in error
    assert any("Absent" in note for note in made.notes)
    page = (tmp_path / "run/README.md").read_text()
    assert "| Broken |  | left out |" in page
    assert "average of 2" in page
    # What is changed between two processes is a mistake as any other.
    with pytest.raises(ValueError, match=r"run: this run has epochs = 1\.0, not 2\.0"):
        quick(home, tmp_path / "run", "more.toml", epochs=2.0, resume=True)
    assert "average of 2" in (tmp_path / "run/README.md").read_text()


def test_suite_with_no_runnable_benchmark_leaves_no_folder(home, tmp_path) -> None:
    with pytest.raises(ValueError, match=r"no benchmark could be run; .* matches no linear"):
        quick(home, tmp_path / "run", tune="lora:target_modules=nope")
    assert not (tmp_path / "run").exists()


@pytest.mark.thorough
def test_interrupted_suite_resumes_by_its_record(home, tmp_path, monkeypatch, capsys) -> None:
    whole, out = quick(home, tmp_path / "whole", tune="lora:rank=2", rows=20), tmp_path / "run"

    def stopped(tuning, **more) -> FinetunedModel:
        if tuning.task == "regress":
            raise KeyboardInterrupt
        return run_finetuning(tuning, **more)

    with monkeypatch.context() as patch:
        patch.setattr(module, "run_finetuning", stopped)
        with pytest.raises(KeyboardInterrupt):
            quick(home, out, tune="lora:rank=2", rows=20)
    assert cli.run(["finetune", "--out", str(out), "--resume", "--quiet", "--device", "cpu"]) == 0
    facts = json.loads((out / "suite.json").read_text())
    assert [one["dev"] for one in facts["entries"]] == [list(one.dev) for one in whole.benchmarks]
    assert "--tune lora" in " ".join(capsys.readouterr().out.split())


def test_invalid_folders_and_names_are_refused(home, tmp_path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/thesis.pdf").write_text("x")
    with pytest.raises(ValueError, match="is a file"):
        quick(home, tmp_path / "file")
    with pytest.raises(ValueError, match="holds files, but not a suite"):
        quick(home, tmp_path / "thesis")
    with pytest.raises(ValueError, match="did you mean 'glue'"):
        quick(home, tmp_path / "run", "glu")
    one, two = TOML.replace("How good", "Good/or bad"), TOML.replace("Good or bad", "../..")
    for text, name in ((one, "Good-or-bad"), (two, "")):
        (home / "odd.toml").write_text(text)
        with pytest.raises(ValueError, match=f"has no folder name of its own: '{name}'"):
            quick(home, tmp_path / "run", "odd.toml")
    assert not (tmp_path / "run").exists()


@pytest.mark.thorough
def test_command_prints_table_or_json_and_writes_reports(home, tmp_path, capsys) -> None:
    words = ["finetune", str(home / "base"), "--tasks", str(home / "more.toml"), "--data"]
    words += [str(home), "--rows", "24", "--epochs", "1", "--batch-size", "8", "--device", "cpu"]
    words += ["--out", str(tmp_path / "run"), "--quiet"]
    assert cli.run(words) == 0
    output = capsys.readouterr().out
    assert "Good or bad" in output
    assert "average of 2" in output
    assert "left out" in output
    assert "Absent is left out: there is no absent.tsv" in output
    assert (tmp_path / "run/How-good/report.html").is_file()
    assert not (tmp_path / "run/Broken").exists()
    assert cli.run([*words, "--resume", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [one["metric"] for one in facts["entries"]] == ["accuracy", "pearson", ""]
    assert cli.run(words) == 2
    assert "holds a suite already" in capsys.readouterr().err


def ran(name: str, metric: str, *dev: float, **more) -> BenchmarkResult:
    return BenchmarkResult(name=name, folder=name, task="classify", metric=metric, dev=dev, **more)


def test_average_is_of_seed_means_scaled_to_100() -> None:
    some = (
        ran("a", "accuracy", 0.5, 0.7),
        ran("b", "bleu", 30.0),
        ran("c", "mean_squared_error", 2.0),
        BenchmarkResult(name="d", folder="d", task="tag", error="no such file"),
    )
    made = SuiteResult(
        suite="s", base="m", tune="full", benchmarks=some, notes=("a note",), folder=Path()
    )
    assert made.average_score == pytest.approx((60 + 30) / 2)
    names, rows = made.table_rows()
    assert names == ["benchmark", "metric", "held out", "seconds"]
    assert [row[2] for row in rows] == ["60.0 ± 14.1", "30.0", "2.0", "left out", "45.0"]
    assert rows[-1][0] == "average of 2"
    assert "- a note" in suite_markdown(made)
    assert scale_to_100("accuracy", [0.5]) == [50.0]
    nothing = SuiteResult(
        suite="s", base="m", tune="full", benchmarks=some[3:], notes=(), folder=Path()
    )
    assert nothing.average_score is None
    assert nothing.table_rows()[1][-1][:3] == ["average of 0", "", ""]


def test_baseline_has_a_column() -> None:
    some = (ran("a", "accuracy", 0.5, baseline=(0.25,), test=(0.75,)),)
    made = SuiteResult(suite="s", base="m", tune="full", benchmarks=some, notes=(), folder=Path())
    names, rows = made.table_rows()
    assert names == [
        "benchmark",
        "metric",
        "held out",
        "held out, not pretrained",
        "test",
        "seconds",
    ]
    assert rows[0] == ["a", "accuracy", "50.0", "25.0", "75.0", "0"]
    assert all(len(row) == len(names) for row in rows)


def test_suite_takes_the_options_of_a_run_not_set_by_benchmarks() -> None:
    one, all_ = (inspect.signature(f).parameters for f in (finetune, finetune_suite))
    own = {"task", "train", "dev", "test", "text", "label", "choices", "labels", "columns"}
    own |= {"task_options", "metric", "task_name", "adapt_first", "language"}
    assert set(one) - set(all_) == own
    assert set(all_) - set(one) == {"tasks", "data", "include_test"}
    fields = {field.name: field.default for field in dataclasses.fields(FinetuneConfig)}
    for name in set(one) & set(all_) - {"out"}:
        assert one[name].default == all_[name].default, name
        if fields.get(name, dataclasses.MISSING) is not dataclasses.MISSING:
            assert one[name].default == fields[name], name
    output = finetune.__doc__, finetune_suite.__doc__
    assert all(f"\n    {name}: " in doc for name in set(one) & set(all_) for doc in output)
