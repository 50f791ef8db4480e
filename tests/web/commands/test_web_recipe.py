"""The recipe file of a form of pretraining makes the same recipe."""

import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from unmask.jobs.options.pretrain import PretrainOptions
from unmask.jobs.pretrain.resolve_options import resolve_options
from unmask.training.config import Recipe
from unmask.web.commands.arguments import FieldError, parse_command
from unmask.web.commands.recipe import recipe_toml

CASES: list[dict[str, Any]] = [
    {"model": "bert-mini", "data": ["a.txt"]},
    {"model": "bert-mini", "data": ["a.txt", "hf:b/c"], "steps": 200, "seed": 3},
    {"model": "gpt2-mini", "data": ["a"], "tokens": 300000, "sequence_length": 64, "threads": 1},
    {"model": "bert-mini", "data": ["a"], "minutes": 5, "objective": "mlm:rate=0.3+nsp"},
    {"model": "bert-mini", "data": ["a"], "changes": ["architecture.n_layers=2", "dropout=0.2"]},
    {"model": "bert-mini", "data": ["a"], "changes": ["schedule=Cosine", "schedule.warmup=0.1"]},
    {
        "model": "bert-mini",
        "data": ["a"],
        "changes": ["optimizer.weight_decay=0.2", "schedule.warmup=0.1"],
    },
    {"model": "bert-mini", "data": ["a"], "changes": ["micro_batch_tokens=none", "seed=5"]},
    {"model": "bert-mini", "data": ["a"], "changes": ["dropout=none", "seed=5"], "seed": 7},
    {"model": "bert-mini", "data": ["a"], "changes": ["schedule.warmup=5", "schedule.kind=WSD"]},
    {"model": "bert-mini", "data": ["a"], "changes": ["schedule.kind=WSD", "schedule.warmup=5"]},
    {"model": "bert-mini", "data": ["a"], "changes": ["objective.select.rate=0.3"]},
    {
        "model": "bert-mini",
        "data": ["a"],
        "changes": ["objective.select.rate=0.3"],
        "objective": "clm",
    },
    {"model": "bert-mini", "data": ["a"], "changes": ["steps=70", "log_every=7"], "steps": 50},
    {"model": "bert-mini", "data": ["a"], "compression": ["gradual:fraction=0.5", "qat:bits=4"]},
    {"model": "bert-mini", "data": ["a"], "teacher": ["unmask-mini-en"], "distill": ["soft"]},
    {
        "model": "bert-mini",
        "data": ['"\\\n\x7f é'],
        "text_column": "x",
        "document_separator": "line",
    },
    {"model": "bert-mini", "data": ["a"], "init_from": "m", "sampling_exponent": 0.5},
]


def recipe_of(values: dict[str, Any], folder: Path) -> Recipe:
    options: dict[str, Any] = {**values, "out": str(folder / "run")}
    return resolve_options(PretrainOptions(**options))[0]


@pytest.mark.parametrize("values", CASES, ids=str)
def test_recipe_file_makes_the_same_recipe(values: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    text = recipe_toml(values, str(path))
    path.write_text(text, encoding="utf-8")
    first = text.partition("\n")[0]
    name, rest = parse_command(shlex.split(first.removeprefix("# unmask ")))
    assert name == "pretrain"
    assert rest["model"] == str(path)
    assert recipe_of(rest, tmp_path) == recipe_of(values, tmp_path)


def test_recipe_is_a_difference_to_the_recipe_file_that_was_given(tmp_path: Path) -> None:
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    first.write_text(
        'model = "bert-mini"\ndata = ["a"]\n[architecture]\nd_model = 64\nd_ff = 128\n'
    )
    values = {"model": str(first), "seed": 4, "changes": ["architecture.d_ff=256"]}
    second.write_text(recipe_toml(values, "second.toml"))
    keys = tomllib.loads(second.read_text())
    assert keys["architecture"] == {"d_model": 64, "d_ff": 256}
    assert recipe_of({"model": str(second)}, tmp_path) == recipe_of(values, tmp_path)


def test_first_line_has_what_no_recipe_holds() -> None:
    values = {"model": "bert-mini", "data": ["a"], "out": "my\nrun", "minutes": 2, "workers": 3}
    first, *lines = recipe_toml(values).splitlines()
    assert first == "# unmask pretrain recipe.toml --minutes 2 --out 'my\\x0arun' --workers 3"
    assert lines == ['model = "bert-mini"', 'data = ["a"]']


def test_wrong_values_are_refused() -> None:
    with pytest.raises(FieldError, match="missing argument 'MODEL'"):
        recipe_toml({"data": ["a"]})
    with pytest.raises(FieldError, match="missing argument 'MODEL'"):
        recipe_toml({"resume": True})
    with pytest.raises(FieldError, match="--set x: must be key=value"):
        recipe_toml({"model": "bert-mini", "data": ["a"], "changes": ["x"]})
    with pytest.raises(FieldError, match="compress must be one of") as error:
        recipe_toml({"model": "bert-mini", "data": ["a"], "compression": ["x"]})
    assert error.value.field == "compression"
