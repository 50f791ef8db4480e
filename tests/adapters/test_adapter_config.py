"""Each key of PEFT's configurations is used, harmless, or refused by name."""

import dataclasses
from typing import Any

import pytest
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

from unmask.adapters.peft_format.config import (
    FIXED_KEYS,
    HARMLESS_KEYS,
    USED_KEYS,
    PeftConfig,
    read_peft_config,
)
from unmask.adapters.peft_format.tensors import SPEC_CLASSES

THEIRS = {str(kind.value): config for kind, config in PEFT_TYPE_TO_CONFIG_MAPPING.items()}
KEYS = [(kind, field.name) for kind in SPEC_CLASSES for field in dataclasses.fields(THEIRS[kind])]


@pytest.mark.parametrize(("kind", "key"), KEYS)
def test_every_peft_key_has_exactly_one_decision(kind: str, key: str) -> None:
    decided = [key in USED_KEYS, key in HARMLESS_KEYS[kind], key in FIXED_KEYS[kind]]
    assert sum(decided) == 1, f"{key} of {kind}: is it used, harmless or refused?"


@pytest.mark.parametrize("kind", SPEC_CLASSES)
def test_every_decided_key_exists_in_peft(kind: str) -> None:
    assert {*HARMLESS_KEYS[kind], *FIXED_KEYS[kind]} <= {key for one, key in KEYS if one == kind}
    assert {key for _, key in KEYS} >= USED_KEYS


@pytest.mark.parametrize(("kind", "key"), [(k, key) for k in SPEC_CLASSES for key in FIXED_KEYS[k]])
def test_unsupported_key_is_refused_by_name(kind: str, key: str) -> None:
    for value in (True, {"a": 1}, [3], "some"):
        with pytest.raises(ValueError, match=rf"^{key} = .* is not supported, only (None|False)$"):
            read_peft_config({"peft_type": kind, key: value})
    read_peft_config({"peft_type": kind, key: FIXED_KEYS[kind][key]})


@pytest.mark.parametrize("kind", SPEC_CLASSES)
@pytest.mark.parametrize("value", [1, 0, 0.0, "x", True, [0], {"a": None}, "y" * 10_000])
def test_unknown_key_is_refused_unless_empty(kind: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"use_more = .* is an unknown key of {kind}") as error:
        read_peft_config({"peft_type": kind, "use_more": value})
    assert len(str(error.value)) < 300
    for empty in (None, False, "", [], {}):
        read_peft_config({"peft_type": kind, "use_more": empty})


@pytest.mark.parametrize("kind", SPEC_CLASSES)
def test_peft_defaults_are_read(kind: str) -> None:
    config = THEIRS[kind]
    needed = {"target_modules": ["q"]} if kind in ("LORA", "IA3") else {"num_virtual_tokens": 3}
    if kind == "IA3":
        needed["feedforward_modules"] = []
    output = {
        k: sorted(x) if isinstance(x, set) else x for k, x in config(**needed).to_dict().items()
    }
    assert read_peft_config({**output, "peft_type": kind}).peft_type == kind


INITIAL = ("pissa", "pissa_niter_16", "olora", "OLoRA", "corda", "loftq", "lora_ga", "another")


@pytest.mark.parametrize("how", INITIAL)
def test_initialization_from_base_weights_is_refused(how: str) -> None:
    with pytest.raises(ValueError, match="init_lora_weights must be true, false or one of"):
        read_peft_config({"peft_type": "LORA", "init_lora_weights": how})


@pytest.mark.parametrize(
    ("output", "module", "chosen"),
    [
        ({}, "a.layer.1.b.query", True),
        ({}, "a.layer.1.b.subquery", False),
        ({"exclude_modules": ("query",)}, "a.layer.1.b.query", False),
        ({"modules_to_save": ("b",)}, "a.layer.1.b.query", False),
        ({"layers_to_transform": 1}, "a.layer.1.b.query", True),
        ({"layers_to_transform": 1}, "a.layer.2.b.query", False),
        ({"layers_to_transform": (0, 2)}, "a.layer.2.experts.1.query", True),
        ({"layers_to_transform": 2}, "layer.2.query", False),  # PEFT wants two words before it
        ({"layers_to_transform": 2, "layers_pattern": "layer"}, "layer.2.query", True),
        ({"layers_to_transform": 2, "layers_pattern": ("h", "a.layer")}, "a.layer.2.query", True),
        ({"layers_to_transform": 2, "layers_pattern": ("h",)}, "a.layer.2.query", False),
        ({"target_modules": "all-linear"}, "a.layer.1.b.query", None),
        ({"exclude_modules": ".*"}, "a.layer.1.b.query", None),
    ],
)
def test_target_modules_are_selected_as_in_peft(
    output: dict[str, Any], module: str, chosen: bool | None
) -> None:
    from peft import LoraConfig
    from peft.tuners.tuners_utils import check_target_module_exists

    output = {"target_modules": ("query",), **output}
    assert PeftConfig(peft_type="LORA", **output).targets(module) is chosen
    lists = {key: list(x) if isinstance(x, tuple) else x for key, x in output.items()}
    if chosen is not None:
        theirs = check_target_module_exists(LoraConfig(**lists), module)
        assert bool(theirs) is chosen or type(theirs).__name__ == "_ExcludedModule"


def test_encoder_decoder_has_two_submodules_by_default() -> None:
    output = {"peft_type": "PREFIX_TUNING", "num_transformer_submodules": None}
    assert read_peft_config({**output, "task_type": "SEQ_2_SEQ_LM"}).num_transformer_submodules == 2
    assert read_peft_config({**output, "task_type": "CAUSAL_LM"}).num_transformer_submodules == 1
