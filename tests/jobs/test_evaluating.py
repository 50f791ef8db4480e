"""Tasks from prompts, by name and from files, in Python and on the command line."""

import json
import sys
from pathlib import Path

import pytest
from small_models import make

from unmask.cli import main as cli
from unmask.evaluation.prompting import MetricValue, TaskScore
from unmask.inference.open_model import load
from unmask.jobs.evaluate import evaluate_tasks, format_task_scores

OWN = """
query = "Who saw {what}?"
test = "rows.jsonl"
[answer]
kind = "MultipleChoiceScoring"
choices = ["the king", "a fox"]
target = "{who}"
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    for family in ("bert", "gpt2"):
        make(family, folder / family)
    pairs = [{"term": t, "good": f"the sea {t} saw", "bad": f"saw {t} sea the"} for t in "abcd"]
    (folder / "blimp.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    (folder / "ptb.test.txt").write_text(" the sea \n a king \n")
    rows = [{"what": f"the gate {i}", "who": ("the king", "a fox")[i % 2]} for i in range(6)]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "own.toml").write_text(OWN)
    return folder


def test_all_tasks_of_a_folder_are_scored(home: Path, capsys: pytest.CaptureFixture) -> None:
    found = evaluate_tasks(
        home / "gpt2", data=home, shots=(0, 1), sequence_length=12, terminal=sys.stderr
    )
    output = capsys.readouterr().err
    names = [(one.task, one.shots) for one in found]
    assert names == [("blimp", 0), ("blimp", 1), ("penn-treebank", 0)]
    assert "lambada is left out" in output
    assert "penn-treebank: 4 words and 2 ends of lines are counted" in output
    assert found[1].n_truncated == 4
    assert "blimp: of 4 of 4 prompts the beginning was cut to fit 12 tokens" in output
    encoder = evaluate_tasks(load(home / "bert"), data=home, rows=2, terminal=sys.stderr)
    assert [(one.task, one.n_examples) for one in encoder] == [("blimp", 2)]
    result = "penn-treebank is left out: it needs a causal model"
    assert result in capsys.readouterr().err


def test_user_task_needs_no_data_folder(home: Path) -> None:
    (found,) = evaluate_tasks(home / "gpt2", str(home / "own.toml"), shots=2, terminal=None)
    assert (found.task, found.shots, found.n_examples) == ("own", 2, 6)
    again = evaluate_tasks(home / "gpt2", str(home / "own.toml"), shots=2, terminal=None)
    assert again == [found]


def test_scores_are_formatted_in_lines() -> None:
    one = TaskScore(
        task="blimp",
        shots=0,
        primary_metric="accuracy",
        n_examples=1200,
        n_truncated=3,
        groups={"binding": 0.5},
        metrics={"perplexity": MetricValue(12.345, 1.5), "accuracy": MetricValue(0.612, 0.019)},
    )
    assert [line.split() for line in format_task_scores([one])] == [
        ["task", "shots", "measure", "score", "±", "items", "cut"],
        ["blimp", "0", "accuracy", "61.2", "1.9", "1,200", "3"],
        ["perplexity", "12.35", "1.50"],
        ["binding", "50.0"],
    ]


def test_command_prints_table_or_json(home: Path, capsys: pytest.CaptureFixture) -> None:
    words = ["evaluate", home / "gpt2", "--task", "blimp", "--task", home / "own.toml"]
    words += ["--data", home, "--shots", "0,1", "--rows", "3", "--seed", "1"]
    assert cli.run([*map(str, words)]) == 0
    assert capsys.readouterr().out.count("accuracy") == 4
    assert cli.run([*map(str, words), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert [(s["task"], s["shots"], s["items"]) for s in scores] == [
        ("blimp", 0, 3), ("blimp", 1, 3), ("own", 0, 3), ("own", 1, 3)
    ]  # fmt: skip
    assert all(s["score"] == s["figures"]["accuracy"]["value"] for s in scores)


@pytest.mark.trials("mistakes")
@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--task blip --data {0}", "task must be one of zero-shot, lambada"),
        ("--task blimp", "no data: give the folder with the files of blimp"),
        ("--task blimp --data {0}/none", "none: no such folder"),
        ("--task copa --data {0}", "the task 'copa' needs multiple_choice/copa.jsonl or copa.js"),
        ("--task zero-shot --data {0}/gpt2", "gpt2: has no files of any task"),
        ("--task {0}/none.toml", "none.toml: no such file"),
        ("--task {0}/own.toml --shots 6", "rows.jsonl: 6 rows, of which 5 may be shots"),
        ("--task {0}/own.toml --shots two", "--shots must be integers separated by commas"),
        ("--task {0}/own.toml --shots -1", "shots must be at least 0, got -1"),
        ("--task {0}/own.toml --rows 0", "rows must be at least 1, got 0"),
        (
            "--task {0}/own.toml --sequence-length 99",
            "--sequence-length must be at most the model's 40 positions",
        ),
        ("--task {0}/own.toml --data {0} {0}", "--data must be one folder with --task, got 2"),
        ("--task blimp --data {0} --stride 4", "stride is for tasks of whole files, and none"),
        (
            "--task blimp --data {0} --memory-length 4",
            "--memory-length is for tasks of whole files, and none",
        ),
        ("--task penn-treebank --data {0} --memory-length 4", "--memory-length: "),
        ("--task penn-treebank --data {0} --stride 41", "stride must be from 1 to 40, got 41"),
        ("--data {0}/ptb.test.txt --rows 3", "--rows needs --task"),
    ],
)
def test_mistake_is_reported_in_one_line(
    words: str, line: str, home: Path, capsys: pytest.CaptureFixture
) -> None:
    assert cli.run(["evaluate", str(home / "gpt2"), *words.format(home).split()]) == 2
    output = capsys.readouterr().err.strip().splitlines()
    assert line in output[-1]
    assert len(output) == 1


def test_perplexity_task_runs_once_for_several_shot_counts(home: Path) -> None:
    tasks = ["blimp", "penn-treebank"]
    found = evaluate_tasks(home / "gpt2", tasks, data=home, shots=(0, 1), terminal=None)
    names = [(one.task, one.shots) for one in found]
    assert names == [("blimp", 0), ("blimp", 1), ("penn-treebank", 0)]
