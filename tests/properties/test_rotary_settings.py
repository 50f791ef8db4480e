"""Rotary settings of config.json, in every combination: the reference's logits, or refused."""

import json
import shutil
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from configured import MAKERS, TOLERANCE, differ, ours, quiet, rewrite, theirs

FULL, NEAR = "full_attention", "sliding_attention"
FLAT = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "olmo2", "gpt_neox")
BY_KIND = ("gemma3_text", "modernbert")
LENGTHS = (9, 44)
"""Of texts: shorter and longer than the lengths below."""
_LLAMA_3 = {
    "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 12,
}  # fmt: skip
_YARN = {"factor": 4.0, "original_max_position_embeddings": 12}
_LONG = {
    "short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "factor": 4.0,
    "original_max_position_embeddings": 12,
}  # fmt: skip
TABLES: Mapping[str, Any] = {
    "none": None,
    "empty": {},
    "default": {"rope_type": "default", "rope_theta": 50.0},
    "default, no theta": {"rope_type": "default"},
    "old word": {"type": "default", "rope_theta": 50.0},
    "theta alone": {"rope_theta": 50.0},
    "linear": {"rope_type": "linear", "factor": 3.0, "rope_theta": 50.0},
    "linear, no theta": {"rope_type": "linear", "factor": 3.0},
    "linear, old word": {"type": "linear", "factor": 3.0},
    "linear, whole factor": {"rope_type": "linear", "factor": 3},
    "linear, no factor": {"rope_type": "linear"},
    "linear, factor null": {"rope_type": "linear", "factor": None},
    "linear, a factor that speeds up": {"rope_type": "linear", "factor": 0.5},
    "factor without a type": {"factor": 3.0},
    "two words that differ": {"rope_type": "default", "type": "linear", "factor": 3.0},
    "llama3": {"rope_type": "llama3", "rope_theta": 50.0, **_LLAMA_3},
    "llama3, old word, no theta": {"type": "llama3", **_LLAMA_3},
    "llama3, no length": {
        "rope_type": "llama3",
        **{k: x for k, x in _LLAMA_3.items() if "length" not in k},
    },
    "llama3, without its length": {
        "rope_type": "llama3",
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    },
    "llama3, no factors": {"rope_type": "llama3", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "yarn": {"rope_type": "yarn", **_YARN},
    "yarn, old word": {"type": "yarn", **_YARN},
    "longrope": {"rope_type": "longrope", **_LONG},
    "proportional": {"rope_type": "proportional", "rope_theta": 50.0, "factor": 2.0},
    "nobody's": {"rope_type": "spiral"},
    "null type": {"rope_type": None, "rope_theta": 50.0},
    "partial": {"rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 0.5},
    "partial, linear": {"rope_type": "linear", "factor": 3.0, "partial_rotary_factor": 0.5},
    "whole, linear": {"rope_type": "linear", "factor": 3.0, "partial_rotary_factor": 1.0},
    "odd part": {"rope_type": "default", "partial_rotary_factor": 0.4},
    "what nobody reads": {"rope_type": "default", "rope_theta": 50.0, "factor": 9.0, "twist": 1},
    "by kind": {FULL: {"rope_type": "default", "rope_theta": 50.0}},
    "both kinds": {
        FULL: {"rope_type": "linear", "factor": 3.0, "rope_theta": 50.0},
        NEAR: {"rope_type": "default", "rope_theta": 20.0},
    },
    "both kinds, old words, no theta": {FULL: {"type": "linear", "factor": 3.0}, NEAR: {}},
    "a kind that is null": {FULL: {"rope_type": "default", "rope_theta": 50.0}, NEAR: None},
    "both kinds, llama3": {FULL: {"rope_type": "llama3", **_LLAMA_3}, NEAR: {"rope_theta": 9.0}},
    "kinds, in part": {
        FULL: {"rope_type": "default", "partial_rotary_factor": 0.5},
        NEAR: {"rope_type": "linear", "factor": 2.0},
    },
    "a list": [1],
    "a word": "linear",
}
"""What may stand under `rope_parameters` or `rope_scaling`."""
BESIDE: Mapping[str, Mapping[str, Any]] = {
    "nothing": {},
    "theta": {"rope_theta": 30.0},
    "length": {"original_max_position_embeddings": 7},
    "part": {"partial_rotary_factor": 0.5},
    "old words": {
        "rotary_emb_base": 30.0, "rotary_pct": 0.5, "global_rope_theta": 30.0,
        "local_rope_theta": 15.0, "rope_local_base_freq": 15.0, "rope_theta": 30.0,
    },
}  # fmt: skip
"""Keys beside the table."""
_ABSENT = "absent"


def combinations() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield settings and their names."""
    for beside, keys in BESIDE.items():
        yield f"{_ABSENT}; {beside}", dict(keys)
        for name, table in TABLES.items():
            yield f"parameters {name}; {beside}", {"rope_parameters": table, **keys}
            yield f"scaling {name}; {beside}", {"rope_scaling": table, **keys}
    saved = {"rope_parameters": {"rope_type": "default", "rope_theta": 70.0}}
    for name, table in TABLES.items():
        yield f"scaling {name} beside what was saved", saved | {"rope_scaling": table}
    kinds = {"rope_parameters": TABLES["both kinds"]}
    for name, table in TABLES.items():
        yield f"scaling {name} beside kinds that were saved", kinds | {"rope_scaling": table}


ALL = dict(combinations())
USUAL = (
    "parameters default, no theta; theta", "parameters linear, old word; nothing",
    "scaling linear, old word beside what was saved", "parameters partial; nothing",
    "scaling llama3; length", "parameters both kinds, old words, no theta; old words",
    "scaling yarn; nothing", f"{_ABSENT}; old words",
)  # fmt: skip
"""The cut of the default suite."""


@cache
def _made(family: str, folder: Path) -> Any:
    with quiet():
        model = MAKERS[family]["language"]()
        model.save_pretrained(folder)
    return model


def outcome(family: str, settings: Mapping[str, Any], model_folders: Path, folder: Path) -> str:
    """Return the outcome of a folder with these settings: equal, refused, or what is wrong."""
    made = _made(family, model_folders / family)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(model_folders / family, folder)
    rewrite(folder, settings, () if "rope_parameters" in settings else ("rope_parameters",))
    try:
        found = [ours(folder, t) for t in LENGTHS]
    except ValueError as error:
        message = str(error)
        lines, named = message.count("\n"), "rope_" in message or "rotary" in message
        named = named or "_factor" in message or "pairs of numbers turn" in message
        where = str(folder / "config.json") in message
        named = named or "original_max" in message or "factor" in message
        return "refused" if not lines and named and where else f"refused badly: {message}"
    try:
        expected = [theirs(made, folder, t) for t in LENGTHS]
    except Exception as error:
        return f"opened, but theirs: {error!r}"
    apart = max(differ(a, b) for a, b in zip(found, expected, strict=True))
    return "equal" if apart < TOLERANCE else f"differs by {apart}"


@pytest.fixture(scope="module")
def model_folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("model_folders")


def _check(family: str, names: Iterator[str], model_folders: Path, folder: Path) -> dict[str, str]:
    found = {name: outcome(family, ALL[name], model_folders, folder) for name in names}
    wrong = {name: how for name, how in found.items() if how not in ("equal", "refused")}
    assert not wrong, json.dumps(wrong, indent=1)
    return found


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("family", "equal"),
    [("llama", 4), ("gpt_neox", 4), ("gemma3_text", 4), ("modernbert", 3)],  # the rest is refused
)
def test_usual_settings_give_reference_logits_or_are_refused(
    family: str, equal: int, model_folders: Path, tmp_path: Path
) -> None:
    found = _check(family, iter(USUAL), model_folders, tmp_path / "x")
    assert list(found.values()).count("equal") >= equal


@pytest.mark.slow
@pytest.mark.parametrize("family", FLAT + BY_KIND)
def test_all_settings_give_reference_logits_or_are_refused(
    family: str, model_folders: Path, tmp_path: Path
) -> None:
    found = _check(family, iter(ALL), model_folders, tmp_path / "x")
    assert list(found.values()).count("equal") > len(found) // 4
