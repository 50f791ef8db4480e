"""Settings that `unmask show` prints are accepted by `--set` with equal values."""

from collections.abc import Mapping
from typing import Any

import pytest

from unmask.config import from_dict, parse_change, parse_expression, to_dict, to_expression
from unmask.jobs.catalogue.describe import preset_to_dict, recipe_settings
from unmask.jobs.pretrain.resolve_options import preset_recipe
from unmask.training.config import Recipe, apply_changes
from unmask.zoo.catalogue import MODELS

VALUES = (
    None,
    True,
    False,
    0,
    -3,
    128_256,
    0.15,
    1e-5,
    500_000.0,
    float("inf"),
    "silu",
    "both ways",
    "none",
    "true",
    "lambda",
    "a-b",
    "ü",
    [],
    [None, 64, [1, "x"]],
    {"kind": "Muon"},
    {"kind": "Rotary", "theta": 1e4, "scaling": {"kind": "LinearScaling", "factor": 2.0}},
    {"kind": "Objective", "select": {"kind": "WholeWordMasking", "rate": 0.15}, "list": [{"a": 1}]},
    {"a": {}},
)


def lists(value: Any) -> Any:
    """Return the same with lists for tuples."""
    if isinstance(value, list | tuple):
        return [lists(one) for one in value]
    if isinstance(value, Mapping):
        return {key: lists(one) for key, one in value.items()}
    return value


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_formatted_values_parse_back(value: Any) -> None:
    assert parse_expression(to_expression(value)) == value
    assert parse_change(f"key={to_expression(value)}") == {"key": value}


@pytest.mark.parametrize(
    "text", ["a.b(c=1)", "f(1)", "[x for x in y]", "f(**{})", "__import__('os')", "1 +", "(" * 500]
)
def test_non_literals_are_refused_and_nothing_is_called(text: str) -> None:
    with pytest.raises(ValueError, match="must be a value such as"):
        parse_expression(text)


@pytest.mark.thorough
def test_every_preset_setting_parses_back() -> None:
    n = 0
    for preset in MODELS.values():
        facts = lists(preset_to_dict(preset))
        facts |= {"sequence_length": facts["length"], "learning_rate": facts["rate"]}
        for key, value in recipe_settings(facts):
            read = parse_change(f"{key}={value}")
            expected: Any = facts if key.split(".")[0] in facts else facts["training"]
            for part in key.split("."):
                read, expected = read[part], expected[part]
            assert read == expected, (preset.name, key, value)
            n += 1
    assert n > 10_000


@pytest.mark.parametrize("name", ["bert-mini", "llama-mini", "t5-mini", "lstm-mini", "unilm-mini"])
def test_recipe_accepts_formatted_settings(name: str) -> None:
    recipe = preset_recipe(name)
    output = [f"{key}={value}" for key, value in recipe_settings(preset_to_dict(MODELS[name]))]
    again = apply_changes(recipe, output)
    assert from_dict(Recipe, {**to_dict(again), "architecture": {}, "heads": {}}) == recipe
