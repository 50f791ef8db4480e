import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.config import from_dict, parse_change, to_dict
from unmask.objectives.published import BERT, T5
from unmask.training.config import Recipe, merge, read_recipe
from unmask.training.optimizers.config import LAMB, AdamW, Muon
from unmask.training.schedules import WSD, Cosine, Linear


def card(name):
    if name != "bert-mini":
        raise ValueError(f"unknown model {name!r}")
    return Recipe(model=name, sequence_length=128, objective=BERT)


def written(tmp_path, text):
    path = tmp_path / "my.toml"
    path.write_text(text)
    return path


def test_file_is_a_difference_to_its_preset(tmp_path):
    path = written(
        tmp_path,
        """
        model = "bert-mini"
        data = ["a.txt", "b/*.jsonl.gz"]
        steps = 500
        optimizer = {weight_decay = 0.1}
        schedule = {kind = "WSD", decay = 50}
        objective.objective.select.rate = 0.3
        [architecture]
        d_model = 64
        """,
    )
    recipe = read_recipe(path, base=card)
    assert recipe.sequence_length == 128
    assert recipe.data == ("a.txt", "b/*.jsonl.gz")
    assert recipe.optimizer == AdamW(weight_decay=0.1)
    assert recipe.schedule == WSD(decay=50)
    assert recipe.objective == replace(
        BERT, objective=replace(BERT.objective, select=replace(BERT.objective.select, rate=0.3))
    )
    assert recipe.architecture == {"d_model": 64}


def test_changes_are_differences_to_the_file(tmp_path):
    path = written(tmp_path, 'model = "bert-mini"\nsteps = 500\n')
    recipe = read_recipe(
        path,
        base=card,
        changes=[
            "learning_rate=3e-4",
            "steps=20",
            "schedule.kind=Cosine",
            "schedule.final_fraction=0.5",
            "optimizer=LAMB",
            "architecture.n_layers=2",
            "micro_batch_tokens=512",
            "micro_batch_tokens=none",
            "tokenizer=runs/other",
            "compile=true",
        ],
    )
    assert (recipe.learning_rate, recipe.steps, recipe.micro_batch_tokens, recipe.compile) == (
        3e-4,
        20,
        None,
        True,
    )
    assert recipe.schedule == Cosine(final_fraction=0.5)
    assert recipe.optimizer == LAMB()
    assert recipe.architecture == {"n_layers": 2}
    assert recipe.tokenizer == "runs/other"


def test_name_alone_is_the_presets_recipe():
    assert read_recipe("bert-mini", base=card) == card("bert-mini")


def test_recipe_round_trips_as_plain_data():
    recipe = Recipe(
        model="t5-mini", objective=T5, optimizer=Muon(), schedule=WSD(0.1, 7), dropout=0.0
    )
    assert from_dict(Recipe, to_dict(recipe)) == recipe


@pytest.mark.trials("mistakes")
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("steps = 5", "my.toml: model must be the name of a preset, got None"),
        ("model = 3", "my.toml: model must be the name of a preset, got 3"),
        ('model = "bert-mini"\nsteps = = 5', r"my.toml: not TOML: .*line 2"),
        ('model = "bert-mini"\nstep = 5', "my.toml: unknown key 'step'; did you mean 'steps'"),
        ('model = "bert-mini"\nsteps = "5"', "my.toml: steps must be int, got '5'"),
        ('model = "bert-mini"\nsteps = 0', "my.toml: steps must be at least 1, got 0"),
        (
            'model = "bert-mini"\nlearning_rate = nan',
            "learning_rate must be above 0 and at most 1000, got nan",
        ),
        ('model = "bert-mini"\nlearning_rate = -1.0', "my.toml: learning_rate must be above 0"),
        (
            'model = "bert-mini"\nlearning_rate = 1e30',
            "learning_rate must be above 0 and at most 1000, got",
        ),
        ('model = "bert-mini"\noptimizer.weight_decay = 1e9', "must be from 0 to below 1000"),
        ('model = "bert-mini"\noptimizer.eps = 2.0', "optimizer.eps must be above 0 and at most 1"),
        ('model = "bert-mini"\ndropout = 1.0', "dropout must be from 0 to below 1, got 1"),
        ('model = "bert-mini"\ndropout = 1.0', "my.toml: dropout must be from 0 to below 1"),
        (
            'model = "bert-mini"\ndev_fraction = 1.0',
            "my.toml: dev_fraction must be from 0 to below 1",
        ),
        ('model = "bert-mini"\nmax_grad_norm = -1.0', "my.toml: max_grad_norm must be at least 0"),
        ('model = "bert-mini"\nseed = -1', "my.toml: seed must be from 0"),
        (
            'model = "bert-mini"\nbatch_tokens = 100',
            "batch_tokens must be at least sequence_length, 128",
        ),
        (
            'model = "bert-mini"\nmicro_batch_tokens = 100',
            "micro_batch_tokens must be at least sequence_length, 128",
        ),
        ('model = "bert-mini"\nschedule = "Cosinus"', "schedule.kind must be one of .*'Cosine'"),
        ('model = "bert-mini"\nschedule.warmup = 1.5', r"schedule\.warmup must be a whole number"),
        ('model = "bert-mini"\noptimizer.betas = [0.9]', "optimizer.betas must have 2 items"),
        ('model = "bert-mini"\noptimizer.betas = [0.9, 1.0]', "optimizer.betas must be from 0 to"),
        ('model = "bert-mini"\noptimizer.eps = 0', "optimizer.eps must be above 0"),
        ('model = "bert-mini"\nsteps = 9\nschedule.warmup = 10', "take 10 steps, but steps is 9"),
        ('model = "bert-maxi"', "my.toml: unknown model 'bert-maxi'"),
    ],
)  # fmt: skip
def test_mistake_is_one_line_naming_file_and_key(tmp_path, text, says):
    with pytest.raises(ValueError, match=says) as error:
        read_recipe(written(tmp_path, text), base=card)
    assert "\n" not in str(error.value)


def test_non_utf8_file_is_an_error(tmp_path):
    path = tmp_path / "my.toml"
    path.write_bytes(b'model = "\xff"')
    with pytest.raises(ValueError, match=r"my.toml: not UTF-8 .* at byte 9"):
        read_recipe(path, base=card)


def test_missing_file_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.toml"):
        read_recipe(tmp_path / "none.toml", base=card)


@pytest.mark.parametrize("change", ["steps", "=5", "a..b=5", ".a=5"])
def test_change_without_key_or_value_is_an_error(change):
    with pytest.raises(ValueError, match=r"--set .*: must be key=value"):
        read_recipe("bert-mini", base=card, changes=[change])


def test_invalid_change_is_named():
    with pytest.raises(ValueError, match=r"--set steps=many: steps must be int, got 'many'"):
        read_recipe("bert-mini", base=card, changes=["steps=many"])


@given(st.text())
def test_any_value_of_a_change_parses(text):
    assert list(parse_change(f"a.b={text}")["a"]) == ["b"]


def test_value_cannot_set_another_key():
    assert parse_change("a=1\nb = 2") == {"a": "1\nb = 2"}


def test_table_of_another_kind_replaces_the_old():
    old = to_dict({"schedule": WSD(decay=7)})
    assert merge(old, {"schedule": {"kind": "Linear"}}) == {"schedule": {"kind": "Linear"}}
    assert merge(old, {"schedule": {"warmup": 3}})["schedule"]["decay"] == 7
    assert merge(old, {"schedule": "Linear"}) == {"schedule": {"kind": "Linear"}}


def test_learning_rate_is_peak_times_schedule():
    recipe = Recipe(model="x", learning_rate=0.5, steps=6, schedule=Linear(2))
    assert [recipe.learning_rate_at(step) for step in (1, 2, 3)] == [0.25, 0.5, 0.4]


@pytest.mark.thorough
def test_recipes_are_read_without_torch():
    code = "import sys, unmask.training.config; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
