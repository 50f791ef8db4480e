"""Every key of every family's configuration: decided, and the reference's logits or refused."""

import dataclasses
import importlib
import inspect
import json
import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from configured import MAKERS, TOLERANCE, differ, ours, quiet, rewrite, theirs
from perturbed import values
from reference import saved

from unmask.model.exchange.config_keys import ConfigKey
from unmask.zoo.catalogue import MODELS
from unmask.zoo.vision.clip import TEXT_KEYS, VISION_KEYS

FIELDS = {
    c.config_mapping.model_type: c.config_mapping
    for c in MODELS.values()
    if c.config_mapping.in_transformers
}
T = 11


def _classes(family: str) -> tuple[Any, Any]:
    """Return the reference's class of a family's configurations, and the module of its models."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = CONFIG_MAPPING[family]
    return kind, importlib.import_module(kind.__module__.replace("configuration_", "modeling_"))


def test_each_family_has_reference_makers() -> None:
    assert set(MAKERS) == set(FIELDS)


@pytest.mark.parametrize("family", FIELDS)
def test_each_reference_key_has_a_decision(family: str) -> None:
    kind, module = _classes(family)
    declared = {f.name for f in dataclasses.fields(kind)} | set(kind.attribute_map)
    source = inspect.getsource(module)
    read = set(re.findall(r"(?<![a-z_])config\.([a-z]\w*)", source))
    read |= set(re.findall(r"[gs]etattr\((?:self\.)?config, \"(\w+)\"", source))
    read = {name for name in read if not hasattr(kind, name)} - _OF_OTHERS
    table = FIELDS[family].config_keys.table
    assert not (declared | read) - table.keys() - _PARTS.get(family, set())
    aliases = {k.name: k.alias_of for k in table.values() if k.use == "alias"}
    output = {name: kind.attribute_map.get(name) for name in aliases}
    assert aliases == output


_PARTS = {"clip": {*TEXT_KEYS.table, *VISION_KEYS.table}}
"""Keys of the configurations within a configuration, which have tables of their own."""
_OF_OTHERS = {"vision_config", "image_token_id", "mm_tokens_per_image", "n_layers"}
"""Keys of classes beside a family's own, and a word of a docstring."""


@pytest.mark.parametrize("family", FIELDS)
def test_absent_keys_have_reference_defaults(family: str) -> None:
    kind, _ = _classes(family)
    known = {f.name: f.default for f in dataclasses.fields(kind)}
    for key in FIELDS[family].config_keys.table.values():
        if key.default and key.name in known:
            assert (key.name, key.default[0]) == (key.name, known[key.name])


@pytest.mark.sample(7)
@pytest.mark.parametrize("family", MAKERS)
def test_config_of_required_keys_equals_reference(family: str, tmp_path: Path) -> None:
    """What the tiny model has by default is taken out of its config.json."""
    make = next(iter(MAKERS[family].values()))
    with quiet():
        made = make()
    saved(made, tmp_path)
    facts = json.loads((tmp_path / "config.json").read_text())
    known = {f.name: f.default for f in dataclasses.fields(type(made.config))}
    needed = {k.name for k in FIELDS[family].config_keys.table.values() if k.required}
    usual = [k for k in facts if k in known and known[k] == facts[k] and k not in needed]
    rewrite(tmp_path, {}, tuple(usual))
    assert differ(ours(tmp_path, T), theirs(made, tmp_path, T)) < TOLERANCE


@cache
def _made(family: str, head: str, folder: Path) -> Any:
    with quiet():
        made = MAKERS[family][head]()
        made.save_pretrained(folder)
    return made


@pytest.fixture(scope="module")
def model_folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("model_folders")


def _wanted(made: Any, folder: Path) -> Any:
    try:
        return theirs(made, folder, T)
    except Exception as error:
        return error


def _outcome(key: ConfigKey, made: Any, folder: Path, *, by_hand: bool) -> str:
    """Return what comes of a folder: equal, refused, or what is wrong.

    Tables that are not tied may be of a width that ours have no place for.

    Where a key was written by hand into the configuration of other weights, theirs may lack
    tensors, which the reference draws at random and we refuse by their names.
    """
    expected = _wanted(made, folder)
    try:
        found = ours(folder, T)
    except ValueError as error:
        message = str(error)
        named = any(name and name in message for name in (key.name, key.alias_of))
        of_weights = ("has shape", "the weights lack", "the weights have", "be tied to")
        shapes = by_hand or key.name == "tie_word_embeddings"
        shapes = shapes and any(output in message for output in of_weights)
        if key.use == "harmless" and not isinstance(expected, Exception):
            return f"refused, but harmless: {message}"
        if "\n" in message or not (named or shapes):
            return f"refused badly: {message}"
        return "refused"
    if isinstance(expected, Exception):
        return "equal" if key.use == "harmless" else f"opened, but theirs: {expected!r}"
    apart = differ(found, expected)
    return "equal" if apart < TOLERANCE else f"differs by {apart}"


def _try(
    family: str, head: str, names: list[str], model_folders: Path, folder: Path
) -> dict[str, str]:
    made = _made(family, head, model_folders / family / head)
    out: dict[str, str] = {}
    for name in names:
        key = FIELDS[family].config_keys.table[name]
        for value in values(key):
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(model_folders / family / head, folder)
            rewrite(folder, {name: value})
            out[f"{name} = {value!r} by hand"] = _outcome(key, made, folder, by_hand=True)
            shutil.rmtree(folder)
            try:
                with quiet():
                    other = MAKERS[family][head](**{name: value})
                    other.save_pretrained(folder)
                    other.__class__.from_pretrained(folder)
            except Exception:  # of any type: the reference library refuses to build it
                continue
            out[f"{name} = {value!r} built"] = _outcome(key, other, folder, by_hand=False)
    return out


def _check(found: dict[str, str]) -> None:
    wrong = {name: how for name, how in found.items() if how not in ("equal", "refused")}
    assert not wrong, json.dumps(wrong, indent=1)


USUAL = {
    "bert": ["hidden_act", "is_decoder", "type_vocab_size", "chunk_size_feed_forward"],
    "roberta": ["hidden_act", "pad_token_id"],
    "llama": ["attention_bias", "head_dim", "is_causal"],
    "deberta-v2": ["pos_att_type", "position_buckets"],
    "gemma2": ["layer_types", "query_pre_attn_scalar"],
    "gpt2": ["n_inner", "scale_attn_by_inverse_layer_idx"],
    "t5": ["feed_forward_proj", "dense_act_fn", "relative_attention_num_buckets"],
    "bart": ["scale_embedding", "num_hidden_layers"],
    "xlnet": ["clamp_len", "same_length"],
}
"""The cut of the default suite, of language heads."""


@pytest.mark.sample(1)
@pytest.mark.parametrize("family", USUAL)
def test_usual_keys_give_reference_logits_or_are_refused(
    family: str, model_folders: Path, tmp_path: Path
) -> None:
    _check(_try(family, "language", USUAL[family], model_folders, tmp_path / "x"))


@pytest.mark.slow
@pytest.mark.parametrize(("family", "head"), [(f, h) for f in MAKERS for h in MAKERS[f]])
def test_all_keys_give_reference_logits_or_are_refused(
    family: str, head: str, model_folders: Path, tmp_path: Path
) -> None:
    _check(
        _try(family, head, list(FIELDS[family].config_keys.table), model_folders, tmp_path / "x")
    )
