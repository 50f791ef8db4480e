"""Write a model's folder in the Hugging Face layout."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from unmask.checkpoints.activations import write_activations
from unmask.checkpoints.huggingface.differences import (
    heads_without_transformers_class,
    refusing_tensors,
)
from unmask.checkpoints.huggingface.generation import special_token_keys, write_generation
from unmask.checkpoints.huggingface.read import MULTI_LABEL, NATIVE_HEADS_KEY
from unmask.checkpoints.huggingface.tokenizer import SOURCE_TOKENIZER_FOLDER
from unmask.checkpoints.tensors import (
    SAFETENSORS_WEIGHTS,
    write_tensors,
)
from unmask.config import to_dict
from unmask.files import encode_utf8
from unmask.heads.classification.label_losses import ChoiceCrossEntropy
from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.language.language_modeling import (
    AppendedMaskGeneration,
    LanguageModeling,
)
from unmask.heads.model import Model
from unmask.heads.spec import HeadSpec
from unmask.saved_format import write_record
from unmask.tokenizers.encode import Tokenizer
from unmask.zoo.catalogue import MODELS
from unmask.zoo.preset import Published


def write_folder(
    folder: Path,
    model: Model,
    preset: Published,
    tokenizer: Tokenizer | None,
    label_names: Sequence[str] = (),
    *,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Write a model to `folder`.

    config.json, generation_config.json, model.safetensors, the tokenizer's files and, where the
    model rounds inputs of its linear layers, activations.json. The files are
    written one after another: the caller makes it atomic. Of models with unsupported heads
    transformers loads only the backbone (see `refusing_tensors`).
    """
    config = write_configuration(folder, model, preset, tokenizer, label_names, dtype=dtype)
    weights = {k: v.to(dtype) for k, v in model.trained_weights().items()}
    unsupported = heads_without_transformers_class(preset, model.head_specs)
    native = {
        k: v for k, v in weights.items() if k.startswith(tuple(f"heads.{n}." for n in unsupported))
    }
    mapped = {k: v for k, v in weights.items() if k not in native}
    state = preset.weight_names.to_external(mapped)
    if config.get("tie_word_embeddings") is False and not preset.config_mapping.ties_embeddings(
        config
    ):
        state |= preset.weight_names.tied_copies(mapped)
    if set(model.head_specs) - set(unsupported) <= {"language"}:
        state = preset.weight_names.zero_rows(weights) | state
    if all(
        n in unsupported or not s.is_kept_after_pretraining for n, s in model.head_specs.items()
    ):
        state = preset.weight_names.without_prefix(state)
    if config["architectures"][0] in preset.config_mapping.aliased_classes:
        state = preset.weight_names.with_alias(state)
    state = refusing_tensors(preset, model.head_specs) | state | native
    write_tensors(folder / SAFETENSORS_WEIGHTS, state)
    write_activations(folder, model)


def write_configuration(
    folder: Path,
    model: Model,
    preset: Published,
    tokenizer: Tokenizer | None,
    label_names: Sequence[str] = (),
    *,
    dtype: torch.dtype = torch.float32,
) -> dict[str, Any]:
    """Write all of a model's folder but the weights; return config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    config = to_external_config(model, preset, tokenizer, label_names)
    _write_json(folder / "config.json", config | {"dtype": str(dtype).removeprefix("torch.")})
    if tokenizer is not None:
        tokenizer.save(
            folder, uses_segments=None if model.decoder_architecture.uses_segments else False
        )
        if tokenizer.source_tokenizer is not None:
            tokenizer.source_tokenizer.save(folder / SOURCE_TOKENIZER_FOLDER)
    write_generation(folder, model, tokenizer)
    return config


def to_external_config(
    model: Model,
    preset: Published,
    tokenizer: Tokenizer | None = None,
    label_names: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the config.json of a model."""
    own = heads_without_transformers_class(preset, model.head_specs)
    classes = preset.config_mapping.class_names_of(preset.architecture)
    specs = {n: s for n, s in model.head_specs.items() if s.is_kept_after_pretraining}
    has = specs.keys() - own.keys()
    heads = next(k for k in classes if set(k) == has)
    config = preset.config_mapping.from_architecture(
        model.architecture.with_vocab_size(model.vocab_size)
    )
    config |= {"model_type": preset.config_mapping.model_type, "architectures": [classes[heads]]}
    if own or not _class_determines_heads(preset, specs):
        config[NATIVE_HEADS_KEY] = write_record({"heads": to_dict(specs)})
    language = model.head_specs.get("language")
    if isinstance(language, LanguageModeling):
        config["tie_word_embeddings"] = language.tie_embeddings
        if "scale_hidden" in preset.config_mapping.read_language_head({}):
            config["scale_decoder_outputs"] = language.scale_hidden
        config |= preset.config_mapping.write_language_head(language)
    if label_names:
        config["id2label"] = {str(i): name for i, name in enumerate(label_names)}
        config["label2id"] = {name: i for i, name in enumerate(label_names)}
    elif (n := _unnamed_labels(model.head_specs)) > 1:
        config["num_labels"] = n
    config |= _pooling_config(model.head_specs, preset)
    if label_names and (problem := _problem_type(model.head_specs)) is not None:
        config["problem_type"] = problem
    if tokenizer is not None:
        config |= special_token_keys(tokenizer.special_ids, model)
    return preset.config_mapping.arrange_config(config)


def _unnamed_labels(head_specs: Mapping[str, HeadSpec]) -> int:
    """Return the number of labels of a head whose labels have no names; 0: there is none."""
    specs = [spec for spec in head_specs.values() if spec.has_label_names]
    return getattr(specs[0], "n_labels", 0) if specs else 0


def _class_determines_heads(preset: Published, head_specs: Mapping[str, HeadSpec]) -> bool:
    """Return whether transformers' class determines the language head's term and generation."""
    spec = head_specs.get("language")
    presets = (other for other in MODELS.values() if other.family == preset.family)
    usual = next(presets, preset)
    class_head = {**usual.extra_heads, **usual.heads}.get("language")
    if not isinstance(spec, LanguageModeling) or not isinstance(class_head, LanguageModeling):
        return True
    if isinstance(spec.generation, AppendedMaskGeneration):  # set in UniLM's format
        return spec.term == class_head.term
    return (spec.term, spec.generation) == (class_head.term, class_head.generation)


def _problem_type(head_specs: Mapping[str, HeadSpec]) -> str | None:
    """Return `problem_type`, which selects the loss in transformers and the meaning of scores."""
    spec = head_specs.get("label")
    if not isinstance(spec, SequenceClassification) or isinstance(spec.loss, ChoiceCrossEntropy):
        return None
    if spec.loss.multi_label:
        return MULTI_LABEL
    return "regression" if spec.n_labels == 1 else "single_label_classification"


def _pooling_config(head_specs: Mapping[str, HeadSpec], preset: Published) -> dict[str, str]:
    """Return the pooling settings of a classification head in a configuration."""
    key, pools = preset.config_mapping.pooling_key
    used = [
        spec.pooling for spec in head_specs.values() if isinstance(spec, SequenceClassification)
    ]
    values = [external for external, internal in pools.items() if internal in used]
    return {key: values[0]} if values else {}


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    path.write_bytes(encode_utf8(json.dumps(data, indent=2, ensure_ascii=False) + "\n"))
