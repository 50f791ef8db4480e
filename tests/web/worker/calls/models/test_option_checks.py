"""What a run would refuse of its options is known before it is queued."""

from typing import Any

import pytest

from unmask.web.worker.table import load_call

PRETRAIN: dict[str, Any] = {"model": "bert-tiny", "data": ["a.txt"], "out": "a"}
FINETUNE: dict[str, Any] = {"base": "b", "task": "classify", "train": "a.csv", "out": "a"}


@pytest.mark.parametrize(
    ("command", "values", "field", "line"),
    [
        ("pretrain", PRETRAIN | {"minutes": 0}, "minutes", "minutes must be above 0"),
        ("pretrain", PRETRAIN | {"steps": -3}, "steps", "steps must be at least 1"),
        ("pretrain", PRETRAIN | {"steps": "ten"}, "steps", "must be a whole number"),
        ("pretrain", PRETRAIN | {"changes": ["learning_rate=-1"]}, "changes", "learning_rate"),
        ("pretrain", PRETRAIN | {"objective": "mlm:rate=3"}, "objective", "rate must be above 0"),
        ("finetune", FINETUNE | {"seeds": 0}, "seeds", "seeds must be at least 1"),
        ("finetune", FINETUNE | {"epochs": "x"}, "epochs", "must be a number"),
        ("finetune", FINETUNE | {"tune": "lora:rank=0"}, "tune", "rank must be at least 1"),
        ("finetune", FINETUNE | {"dropout": 2}, "dropout", "dropout must be from 0 to below 1"),
    ],
)
def test_the_field_of_a_wrong_value_is_named(
    command: str, values: dict[str, Any], field: str, line: str
) -> None:
    problem = load_call("check_options")({"command": command, "values": values})["problem"]
    assert problem["field"] == field
    assert line in problem["line"]


def test_what_a_run_would_take_has_no_problem() -> None:
    call = load_call("check_options")
    for command, values in (("pretrain", PRETRAIN), ("finetune", FINETUNE), ("hide", {"x": 1})):
        assert call({"command": command, "values": values}) == {"problem": None}
    teacher = {"teacher": ["hf:nobody/nothing"]}  # it is not opened
    assert call({"command": "pretrain", "values": PRETRAIN | teacher}) == {"problem": None}
