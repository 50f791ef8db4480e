"""Mixtures of instructions: shares, held-out tasks, the metric of each task, and one table."""

import json
from pathlib import Path
from typing import Any

import pytest
from small_models import make

from unmask.cli import main as cli
from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.data.instruction_mixture import read_instruction_mixture
from unmask.finetuning.data.read_data import FinetuneData, read_data
from unmask.finetuning.data.task_mixture import TaskMixture
from unmask.finetuning.results.task_metrics import compute_metrics, tasks_of_mixture
from unmask.inference.open_model import load
from unmask.jobs.finetune import finetune
from unmask.tasks.metrics.generation import normalized_match
from unmask.tasks.task import Task, TaskColumns, TaskExample

MIXTURE = """\
size_limit = 20

[tasks.p3]
train = "p3.jsonl"
by = "dataset"
metrics = {quartz = "exact_match"}

[tasks.alpaca]
train = "alpaca.jsonl"
size_limit = 5
dev_share = 0.0

[tasks.held_out]
dev = "paws.jsonl"
test = "paws.jsonl"
"""


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def write_mixture(folder: Path, text: str = MIXTURE) -> Path:
    words = ["cat", "dog", "fox", "king", "old", "runs", "sees", "the"]
    p3 = [
        {"dataset": "imdb", "prompt": f"a {words[i % 8]}", "completion": ["cat", "dog"][i % 2]}
        for i in range(40)
    ]
    p3 += [
        {"dataset": "quartz", "prompt": f"the {words[i % 8]}", "completion": f"fox {i}"}
        for i in range(10)
    ]
    write_rows(folder / "p3.jsonl", p3)
    alpaca = [
        {"instruction": f"the {words[i % 8]} sees", "input": "", "output": f"a {i} runs"}
        for i in range(12)
    ]
    write_rows(folder / "alpaca.jsonl", alpaca)
    paws = [
        {"messages": [
            {"role": "user", "content": f"a {words[i % 8]} runs"},
            {"role": "assistant", "content": ["Yes", "No"][i % 2]},
        ]}
        for i in range(10)
    ]  # fmt: skip
    write_rows(folder / "paws.jsonl", paws)
    path = folder / "mixture.toml"
    path.write_text(text, "utf-8")
    return path


def read(path: Path, **more: Any) -> FinetuneData:
    return read_data(FinetuneConfig(base="x", train=str(path), task="instruct", **more))


def test_tasks_are_read_by_file_and_by_column(tmp_path: Path) -> None:
    data = read(write_mixture(tmp_path))
    names = [item.component for item in data.train]
    assert {name: names.count(name) for name in dict.fromkeys(names)} == {
        "p3/imdb": 36, "p3/quartz": 9, "alpaca": 12,
    }  # fmt: skip
    held_out = [item.component for item in data.dev]
    assert {name: held_out.count(name) for name in dict.fromkeys(held_out)} == {
        "p3/imdb": 4, "p3/quartz": 1, "held_out": 10,
    }  # fmt: skip
    assert len(data.test) == 10
    assert data.task_options["task_metrics"] == {
        "p3/imdb": "normalized_match",  # two answers
        "p3/quartz": "exact_match",  # given
        "alpaca": "rougeL",
        "held_out": "normalized_match",
    }


def test_shares_are_examples_proportional_with_a_limit(tmp_path: Path) -> None:
    data = read(write_mixture(tmp_path))
    assert data.mixture is not None
    components = [item.component for item in data.train]
    assert data.mixture.sampled_names(components) == ("p3/imdb", "p3/quartz", "alpaca")
    sampling = data.mixture.make_source_sampling(components)
    assert sampling.rows_per_epoch == (20, 9, 5)


def test_a_resolved_configuration_reads_the_same(tmp_path: Path) -> None:
    """As when a run is resumed: columns and metrics are those that the mixture gave."""
    path = write_mixture(tmp_path)
    data = read(path)
    again = read(path, text=("messages",), label="last turn", task_options=data.task_options)
    assert again.train == data.train
    assert again.task_options == data.task_options
    with pytest.raises(ValueError, match="leave out dev"):
        read(path, dev="paws.jsonl")


def test_rows_are_drawn_of_each_task(tmp_path: Path) -> None:
    data = read(write_mixture(tmp_path), rows=3)
    assert [item.component for item in data.train] == (
        ["p3/imdb"] * 3 + ["p3/quartz"] * 3 + ["alpaca"] * 3
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"exact_match"', '"accuracy"', r"toml: tasks\.p3\.metrics\.quartz must be one of norm"),
        ("quartz", "quart", r"toml: tasks\.p3\.metrics\.quart: no row has 'quart' in column 'data"),
        ('by = "dataset"', "", r"toml: tasks\.p3\.metrics needs by, the column"),
        ('by = "dataset"', 'by = "set"', r"p3\.jsonl: no column 'set'"),
        ("dev_share = 0.0", "dev_share = 1.0", r"tasks\.alpaca\.dev_share must be from 0 to below"),
        ("dev_share = 0.0", 'template = "stsb"', r"toml: tasks\.alpaca\.template is of task = gen"),
        ('dev = "paws.jsonl"\ntest = "paws.jsonl"', "", r"tasks\.held_out must have train, or"),
        ("[tasks.held_out]", '[tasks."p3/imdb"]', r"a task is named 'p3/imdb' already"),
        ("[tasks.held_out]", '[text.x]\ndata = ["a"]\n[tasks.y]', r"toml: text\.x: plain text is"),
    ],
)
def test_mistakes_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in MIXTURE
    with pytest.raises(ValueError, match=message):
        read(write_mixture(tmp_path, MIXTURE.replace(old, new, 1)))


def test_without_dev_rows_there_is_nothing_to_select_by(tmp_path: Path) -> None:
    text = '[tasks.alpaca]\ntrain = "alpaca.jsonl"\ndev_share = 0.0\n'
    with pytest.raises(ValueError, match="no task has dev rows"):
        read(write_mixture(tmp_path, text))


def test_keys_of_instructions_are_refused_of_generate(tmp_path: Path) -> None:
    path = write_mixture(tmp_path)
    config = FinetuneConfig(base="x", train=str(path), task="generate")
    with pytest.raises(ValueError, match=r"tasks\.p3\.by is of instructions \(task = instruct\)"):
        read_data(config)


@pytest.mark.parametrize(
    ("answer", "text", "match"),
    [
        ("A", "(a)", 1), ("A", "a cat", 0), ("Yes", " yes.\n", 1), ("No", "no, it is", 0),
        ("not  the same", "Not the\nsame", 1), ("?", "?", 1), ("?", "!", 0), ("", ".", 0),
        ("the cat", "cat", 0), ("1.5", "15", 0),
    ],
)  # fmt: skip
def test_answers_match_after_normalization(answer: str, text: str, match: int) -> None:
    assert normalized_match([[answer]], [text]) == match


def test_mean_is_over_each_tasks_own_metric() -> None:
    metrics = {"a": "normalized_match", "b": "bleu", "unscored": "rougeL"}
    task = Task(
        task_kind="instruct", columns=TaskColumns(texts=("messages",), label="last turn"),
        metric="mean", options={"task_metrics": metrics},
    )  # fmt: skip
    assert tasks_of_mixture(task)["b"].metric == "bleu"
    long = "the old cat sees a dog"
    items = [
        TaskExample(texts=("x",), label=(answer,), component=name)
        for name, answer in (("a", "Yes"), ("a", "No"), ("b", long))
    ]
    found = compute_metrics(task, items, ["yes.", "yes", long])
    assert found == pytest.approx({"a.normalized_match": 0.5, "b.bleu": 100, "mean": 0.75})


def test_mixture_is_learned_and_scored_in_one_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, run = write_mixture(tmp_path), tmp_path / "run"
    _, base = make("gpt2", tmp_path / "base", n_positions=128)
    found = finetune(
        base, task="instruct", train=str(path), out=str(run), epochs=1.0,
        batch_size=8, max_length=100, learning_rate=1e-2, metric="mean", terminal=None,
        task_options={"max_response_length": 3},
    )  # fmt: skip
    dev = found.best_run.dev
    assert {"p3/imdb.normalized_match", "p3/imdb.loss", "held_out.loss", "mean"} <= dev.keys()
    assert "alpaca.loss" not in dev
    assert set(found.best_run.test) == {
        "held_out.normalized_match", "held_out.loss", "mean", "loss",
    }  # fmt: skip
    capsys.readouterr()
    assert cli.run(["evaluate", str(run), "--data", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["task", "rows", "metric", "score", "most", "frequent", "loss"]
    assert [line.split()[:3] for line in lines[1:]] == [
        ["p3/imdb", "4", "normalized_match"], ["p3/quartz", "1", "exact_match"],
        ["held_out", "10", "normalized_match"],
    ]  # fmt: skip
    assert lines[3].split()[4] == "0.5000"
    scored = found.best_run.test["held_out.loss"]
    assert float(lines[3].split()[5]) == pytest.approx(scored, abs=1e-4)
    alone = load(run).mixture_task("held_out")
    assert alone.required_task().metric == "normalized_match"
    assert cli.run(["evaluate", str(run), "--data", str(path), str(path)]) == 2
    assert "a mixture is scored alone, got" in capsys.readouterr().err
    write_rows(tmp_path / "long.jsonl", [{"prompt": "a " * 200, "completion": "cat"}])
    tasks = '[tasks.long]\ntest = "long.jsonl"\n'
    path.write_text(f'{tasks}[tasks.held_out]\ntest = "paws.jsonl"\n')
    assert cli.run(["evaluate", str(run), "--data", str(path)]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["task", "held_out"]
    assert "long: left out of 1 rows: 1 whose last turns are longer than 100 tokens" in err
    path.write_text(tasks)
    assert cli.run(["evaluate", str(run), "--data", str(path)]) == 2
    assert "mixture.toml: no row of any task is left to score" in capsys.readouterr().err


def test_what_is_split_keeps_the_settings_of_its_table(tmp_path: Path) -> None:
    mixture = read_instruction_mixture(str(write_mixture(tmp_path)), "strict").mixture
    assert isinstance(mixture, TaskMixture)
    assert mixture.size_limit_of("p3/imdb") == 20
    assert mixture.size_limit_of("alpaca") == 5
