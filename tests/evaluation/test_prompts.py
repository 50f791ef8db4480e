"""Tasks from prompts: shots are drawn with a seed and never show the item; files are checked."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import make, tokenizer

from unmask.evaluation.answer_methods import (
    MultipleChoiceScoring,
    PromptedModel,
    PromptedRow,
    RowScore,
    TargetLikelihood,
)
from unmask.evaluation.prompting import PromptingConfig, PromptTask, evenly_spaced, read_prompt_task
from unmask.evaluation.zero_shot import ZERO_SHOT, find_task

TASK = """
description = "Who speaks?"
query = "Text: {{text}}\\nSpeaker:"
test = "test.jsonl"
train = "train.jsonl"
[answer]
kind = "{kind}"
{options}
"""
OPTIONS = 'choices = ["king", "fox"]\ntarget = "{label}"'


class Recorded(MultipleChoiceScoring):
    """A way of answering that keeps what it was given."""

    def score(self, model: PromptedModel, items: Any) -> list[RowScore]:
        SEEN.extend(items)
        return [
            RowScore({"accuracy": float(len(item.prompt) % 2)}, n_truncated_tokens=1)
            for item in items
        ]


SEEN: list[PromptedRow] = []


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> PromptedModel:
    _, loaded = make("gpt2", tmp_path_factory.mktemp("gpt2"))
    return PromptedModel(model=loaded.model, tokenizer=tokenizer("gpt2"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, n in (("train", 6), ("test", 10)):
        rows = [{"text": f"{i} the sea", "label": i % 2} for i in range(n)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def make_task(**changes: Any) -> PromptTask:
    SEEN.clear()
    return PromptTask(
        **{
            "name": "who", "test": "test.jsonl", "train": "train.jsonl", "query": "{text}:",
            "answer": Recorded(choices=("king", "fox"), target="{label}"),
        }
        | changes
    )  # fmt: skip


def test_prompt_is_description_shots_and_query(model: PromptedModel, folder: Path) -> None:
    make_task(description="Who?", separator="\n").score(
        model, folder, PromptingConfig(shots=2, rows=1)
    )
    first, *shots, last = SEEN[0].prompt.split("\n")
    assert (first, last) == ("Who?", "0 the sea:")
    rows = [f"{i} the sea: {('king', 'fox')[i % 2]}" for i in range(6)]
    assert len(shots) == len(set(shots)) == 2
    assert set(shots) <= set(rows[1:]), "the item itself is in the training file, too"
    make_task(example="{text} = {label}").score(model, folder, PromptingConfig(shots=1, rows=1))
    assert SEEN[0].prompt.split("\n\n")[0] in [f"{i} the sea = {i % 2}" for i in range(1, 6)]


def test_shots_depend_on_item_and_seed_only(model: PromptedModel, folder: Path) -> None:
    def prompts(seed: int, **how: Any) -> list[str]:
        make_task().score(model, folder, PromptingConfig(shots=3, seed=seed, **how))
        return [item.prompt for item in SEEN]

    first = prompts(0)
    assert prompts(0) == first
    assert prompts(1) != first
    assert prompts(0, rows=5) == first[::2], "whatever else is asked"
    assert len({p.rsplit("\n\n", 1)[0] for p in first}) > 1


def test_shots_from_the_test_file_exclude_the_item(model: PromptedModel, folder: Path) -> None:
    make_task(train=()).score(model, folder, PromptingConfig(shots=9))
    for i, item in enumerate(SEEN):
        *shots, query = item.prompt.split("\n\n")
        assert query == f"{i} the sea:"
        assert {int(s.split()[0]) for s in shots} == set(range(10)) - {i}
    with pytest.raises(ValueError, match=r"test.jsonl: 10 rows, of which 9 may be shots for"):
        make_task(train=()).score(model, folder, PromptingConfig(shots=10))
    with pytest.raises(ValueError, match=r"train.jsonl: 6 distinct rows, got shots = 7"):
        make_task().score(model, folder, PromptingConfig(shots=7))


def test_figures_have_standard_errors_and_groups(model: PromptedModel, folder: Path) -> None:
    output: list[tuple[int, int]] = []
    task = make_task(query="{text} {label}", group="{label}")
    how = PromptingConfig(on_progress=lambda *done: output.append(done))
    got = task.score(model, folder, how)
    values = [float(len(item.prompt) % 2) for item in SEEN]
    assert got.n_examples == got.n_truncated == 10
    assert got.score.value == pytest.approx(np.mean(values))
    assert got.score.standard_error == pytest.approx(np.std(values, ddof=1) / math.sqrt(10))
    assert got.groups == {g: np.mean([v for i, v in enumerate(values) if i % 2 == int(g)])
                          for g in "01"}  # fmt: skip
    assert output == [(10, 10)]


def test_perplexity_is_exp_of_mean_over_items(model: PromptedModel, folder: Path) -> None:
    part = TargetLikelihood(target="{text}")
    got = make_task(answer=part, train=()).score(model, folder, PromptingConfig())
    nats = [one.metrics["perplexity"] for one in part.score(model, SEEN or [
        PromptedRow(prompt=f"{i} the sea:", row=row) for i, row in enumerate(rows_of(folder))
    ])]  # fmt: skip
    assert got.metrics["perplexity"].value == pytest.approx(math.exp(-np.mean(nats)), rel=1e-6)
    error = np.std(nats, ddof=1) / math.sqrt(10) * math.exp(-np.mean(nats))
    assert got.metrics["perplexity"].standard_error == pytest.approx(error, rel=1e-6)
    assert got.primary_metric == "accuracy"


def rows_of(folder: Path) -> Any:
    from unmask.evaluation.prompting import read_rows

    return read_rows(folder / "test.jsonl")


def test_limited_rows_are_evenly_spaced() -> None:
    assert evenly_spaced(10, 3) == [0, 3, 6]
    assert evenly_spaced(3, 10) == evenly_spaced(3, None) == [0, 1, 2]
    assert len(set(evenly_spaced(67_000, 670))) == 670


def test_task_file_is_read(folder: Path, model: PromptedModel) -> None:
    path = folder / "who.toml"
    path.write_text(TASK.format(kind="MultipleChoiceScoring", options=OPTIONS))
    one = read_prompt_task(path)
    assert (one.name, one.description) == ("who", "Who speaks?")
    assert one.answer == MultipleChoiceScoring(choices=("king", "fox"), target="{label}")
    assert find_task(str(path)) == one
    got = one.score(model, folder, PromptingConfig(shots=2, rows=4))
    assert (got.shots, got.n_examples) == (2, 4)
    assert 0 <= got.score.value <= 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TASK.format(kind="Pick", options=OPTIONS),
         r"answer.kind must be one of \['GenerateUntil', "),
        (TASK.format(kind="MultipleChoiceScoring", options="target = '0'"), "answer lacks choices"),
        (TASK.format(kind="MultipleChoiceScoring", options=OPTIONS + "\nnormalisation = 'sum'"),
         "unknown key 'answer.normalisation'; did you mean 'normalization'"),
        (TASK.format(kind="MultipleChoiceScoring", options=OPTIONS + "\nnormalization = 'mean'"),
         r"answer.normalization must be one of \['sum', 'token', .*\], got 'mean'"),
        ("qery = 'a'\n" + TASK.format(kind="MultipleChoiceScoring", options=OPTIONS),
         "unknown key 'qery'"),
        ("query = 'a'", "lacks answer, test"),
        ("query = ", "not TOML"),
        ("test = ''\n[answer]\nkind = 'TargetLikelihood'\ntarget = 'a'", "test must name a file"),
    ],
)  # fmt: skip
def test_invalid_task_file_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"wrong.toml: .*{message}"):
        read_prompt_task(path)


def test_missing_files_and_tasks_are_named(tmp_path: Path, model: PromptedModel) -> None:
    with pytest.raises(FileNotFoundError, match=r"none.toml: no such file"):
        find_task(str(tmp_path / "none.toml"))
    with pytest.raises(
        ValueError, match=r"task must be one of zero-shot, lambada, blimp.*, got 'blip'"
    ):
        find_task("blip")
    with pytest.raises(FileNotFoundError, match=r"the task 'blimp' needs .*blimp.jsonl"):
        ZERO_SHOT["blimp"].score(model, tmp_path, PromptingConfig())
    for wrong in ({"shots": -1}, {"seed": -1}, {"rows": 0}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be at least"):
            PromptingConfig(**wrong)
