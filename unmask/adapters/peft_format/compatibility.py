"""Compatibility of adapters with PEFT, and reasons."""

from collections.abc import Collection
from typing import Any, cast

from unmask.adapters.attach import find_adapter
from unmask.adapters.peft_format.convert import FusedModule, fused_modules, untranslatable
from unmask.adapters.prefix import PrefixTuningModule, PromptTuningModule
from unmask.checkpoints.huggingface.differences import heads_without_transformers_class
from unmask.heads.classification.sequence_classification import (
    SequenceClassification,
    TokenClassification,
)
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.heads.model import Model
from unmask.model.backbones.transformer import Architecture
from unmask.zoo.preset import Published


def task_type(model: Model) -> str | None:
    """Return PEFT's task type of a model's heads; None: there is none."""
    heads = list(model.head_specs.values())
    if not heads:
        return "FEATURE_EXTRACTION"
    if list(model.head_specs) == ["label"] and isinstance(heads[0], SequenceClassification):
        return "SEQ_CLS"
    if list(model.head_specs) == ["token_label"] and isinstance(heads[0], TokenClassification):
        return "TOKEN_CLS"
    if (
        list(model.head_specs) == ["language"]
        and isinstance(heads[0], LanguageModeling)
        and model.decoder_architecture.causal
    ):
        return "SEQ_2_SEQ_LM" if model.decoder_architecture.attends_to_encoder else "CAUSAL_LM"
    return None


def peft_incompatibility(
    model: Model, preset: Published, name: str | None, extra_parameters: Collection[str] = ()
) -> str | None:
    """Return why PEFT cannot load the output of `write_adapter`; None: it can."""
    if (reason := unsupported_by_peft(model, preset, name)) is not None or name is None:
        return reason
    return tensor_incompatibility(
        model,
        name,
        parameters_to_save(model, extra_parameters),
        fused_modules(model, preset.weight_names),
    )


def unsupported_by_peft(model: Model, preset: Published, name: str | None) -> str | None:
    """Return why PEFT cannot load an adapter of this method on this model; None if it can."""
    if name is None:
        return "PEFT has no layout for parameters without an adapter"
    if preset.weight_names.joins_by_head:
        return "PEFT has no layout for maps that are joined head by head"
    if not preset.config_mapping.in_transformers:
        return "transformers has no class of this family"
    if unsupported_heads := heads_without_transformers_class(preset, model.head_specs):
        return f"no class of transformers has a head {next(iter(unsupported_heads.values()))}"
    module = find_adapter(model, name)
    if isinstance(module, PrefixTuningModule | PromptTuningModule):
        kind, heads = task_type(model), " + ".join(model.head_specs) or "none"
        if (
            reason := prefix_incompatibility(model, preset, isinstance(module, PrefixTuningModule))
        ) is not None:
            return f"PEFT has no vectors before a text here: {reason}"
        if kind in (None, "FEATURE_EXTRACTION"):
            return f"PEFT has no prefixes and prompts for the heads {heads}"
        if kind == "SEQ_CLS" and model.decoder_architecture.attends_to_encoder:
            return f"PEFT has no prefixes and prompts for the heads {heads} of two stacks"
    return None


_FAMILIES_WITH_PREFIX_CACHE = frozenset(
    {
        "bert", "roberta", "xlm-roberta", "camembert", "electra", "gpt2", "llama", "mistral",
        "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "olmo2", "t5", "mt5", "bart", "mbart",
    }
)  # fmt: skip
"""Families whose classes of transformers accept keys and values before a text."""


def prefix_incompatibility(model: Model, preset: Published, prefix: bool) -> str | None:
    """Return why outputs with a prefix or prompt would differ from PEFT's; None: equal."""
    stacks = model.architecture.stacks.values()
    if any(isinstance(a, Architecture) and any(a.attention_window) for a in stacks):
        return "an attention window hides them there, but not here"
    if prefix and preset.config_mapping.model_type not in _FAMILIES_WITH_PREFIX_CACHE:
        return f"transformers' classes of {preset.family} take no keys and values before a text"
    return None


def tensor_incompatibility(
    model: Model, name: str, names: Collection[str], table: Collection[FusedModule]
) -> str | None:
    """Return why PEFT cannot load a tensor that is saved with an adapter; None if it can."""
    if (reason := untranslatable(find_adapter(model, name), table)) is not None:
        return f"PEFT has no {reason}"
    return _module_incompatibility(model, table, name, names)


def _module_incompatibility(
    model: Model, table: Collection[FusedModule], name: str, names: Collection[str]
) -> str | None:
    parameters = {internal for fused in table for internal in fused.internal_names}
    for parameter in names:
        module = parameter.rpartition(".")[0]
        if module not in parameters or module == "backbone.tokens":
            return f"PEFT cannot train {parameter} besides an adapter"
    adapted = {
        n.rpartition(".")[0] for n, _ in cast(Any, find_adapter(model, name)).named_parameters()
    }
    for fused in modules_to_save(table, names):
        if any(internal in adapted for internal in fused.internal_names):
            return f"PEFT cannot both adapt and train {fused.external_name}"
    return None


def parameters_to_save(model: Model, extra_parameters: Collection[str]) -> list[str]:
    """List the parameters to write with the adapter."""
    weights = model.own_weights()
    if unknown := [name for name in extra_parameters if name not in weights]:
        raise ValueError(f"the model has no parameter {unknown[0]!r}")
    heads = tuple(
        f"heads.{n}." for n, s in model.head_specs.items() if not isinstance(s, LanguageModeling)
    )
    return [name for name in weights if name in extra_parameters or name.startswith(heads)]


def modules_to_save(table: Collection[FusedModule], names: Collection[str]) -> list[FusedModule]:
    """List the external modules with a parameter to write."""
    internal = {name.rpartition(".")[0] for name in names}
    return [fused for fused in table if any(name in internal for name in fused.internal_names)]
