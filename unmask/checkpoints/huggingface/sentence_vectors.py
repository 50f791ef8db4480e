"""Folders of sentence-transformers: how the states of a text's tokens become its vector."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unmask.checkpoints.tensors import read_model_tensors, to_float32_weight
from unmask.files import encode_utf8, read_json, read_json_object

MODULES_FILE = "modules.json"
_PROMPTS_FILE = "config_sentence_transformers.json"
_POOLING_OF_KEY = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Keys of the older format, in the order in which their vectors are joined."""
_ACTIVATIONS = {"Identity": nn.Identity, "Tanh": nn.Tanh, "ReLU": nn.ReLU, "GELU": nn.GELU}
_TEXT_KEYS: Mapping[str, tuple[Any, ...]] = {
    "max_seq_length": (),
    "do_lower_case": (),
    "transformer_task": ("feature-extraction",),
    "modality_config": (),
    "module_output_name": ("token_embeddings",),
    "unpad_inputs": (),
    "processing_kwargs": ({},),
    "model_args": ({},),
    "tokenizer_args": ({},),
    "config_args": ({},),
    "query_length": (),
    "document_length": (),
    "query_expansion": (),
}
"""Keys of sentence_bert_config.json, with the values that are supported; none: any."""


@dataclass(frozen=True)
class _Dense:
    weight: Float[Tensor, "o d"]
    bias: Float[Tensor, "o"] | None
    activation: nn.Module


@dataclass(frozen=True, kw_only=True)
class SentenceVectors:
    """How a folder makes one vector of each text (Reimers and Gurevych 2019, arXiv:1908.10084)."""

    poolings: tuple[str, ...]
    """Their vectors are joined in this order."""
    steps: tuple[_Dense | None, ...]
    """What follows, in this order: a linear layer, or, None, division by the length."""
    max_length: int | None
    """Tokens of a text that are read, special ones included. None: as many as have positions."""
    lowercase: bool
    prompt: str
    """What each text begins with."""

    def prepare(self, text: str) -> str:
        """Return what is read of a text."""
        text = self.prompt + text
        return text.lower() if self.lowercase else text

    def pool(self, states: Float[Tensor, "t d"]) -> Float[Tensor, "e"]:
        """Return the vector of a text with these states of its tokens."""
        vector = torch.cat([_pool(states, pooling) for pooling in self.poolings])
        for step in self.steps:
            if step is None:
                vector = nn.functional.normalize(vector, dim=0)
            else:
                vector = step.activation(nn.functional.linear(vector, step.weight, step.bias))
        return vector


def _pool(states: Float[Tensor, "t d"], pooling: str) -> Float[Tensor, "d"]:
    match pooling:
        case "cls":
            return states[0]
        case "lasttoken":
            return states[-1]
        case "max":
            return states.amax(0)
        case "mean":
            return states.mean(0)
        case "mean_sqrt_len_tokens":
            return states.sum(0) / len(states) ** 0.5
        case _:
            weights = torch.arange(1.0, len(states) + 1)
            return weights @ states / weights.sum()


def find_sentence_folder(folder: Path) -> Path | None:
    """Return the folder, if it says how the vectors of sentences are made."""
    return folder if (folder / MODULES_FILE).is_file() else None


def read_sentence_vectors(folder: Path) -> SentenceVectors:
    """Read how a folder makes the vectors of sentences.

    Raises:
        ValueError: a file is damaged or asks for what is not supported; the message names it and
            its key.
    """
    modules = _read_modules(folder)
    if [kind for kind, _ in modules[:2]] != ["Transformer", "Pooling"]:
        raise ValueError(
            f"{folder / MODULES_FILE}: type: only a Transformer, then a Pooling are supported, got "
            f"{', '.join(kind for kind, _ in modules)}"
        )
    steps: list[_Dense | None] = []
    for kind, path in modules[2:]:
        if kind == "Dense":
            steps.append(_read_dense(path))
        elif kind == "Normalize":
            _check_values(path / "config.json", _read_optional(path / "config.json"), _NORMALIZE)
            steps.append(None)
        elif kind != "Dropout":
            raise ValueError(
                f"{folder / MODULES_FILE}: type: after pooling only Dense, Normalize and Dropout "
                f"are supported, got {kind}"
            )
    text = _text_options(folder)
    prompts_path = folder / _PROMPTS_FILE
    prompts = _read_optional(prompts_path)
    name = prompts.get("default_prompt_name")
    known = prompts.get("prompts") or {}
    if name is not None and name not in known:
        raise ValueError(f"{prompts_path}: default_prompt_name: there is no prompt {name!r}")
    prompt = "" if name is None else str(known[name])
    length = text.get("max_seq_length")
    if length is None:
        length = _read_optional(folder / "tokenizer_config.json").get("model_max_length")
    if length is not None and not (isinstance(length, int | float) and length >= 1):
        raise ValueError(f"{folder}: max_seq_length must be at least 1, got {length!r}")
    return SentenceVectors(
        poolings=_read_poolings(modules[1][1] / "config.json", has_prompt=bool(prompt)),
        steps=tuple(steps),
        max_length=None if length is None or length > 2**31 else int(length),
        lowercase=bool(text.get("do_lower_case")),
        prompt=prompt,
    )


def _read_modules(folder: Path) -> list[tuple[str, Path]]:
    """Return the kind and the folder of each module, in their order."""
    path = folder / MODULES_FILE
    entries = read_json(path)
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"{path} must be a list of modules")
    modules: list[tuple[str, Path]] = []
    for entry in entries:
        kind, place = (
            (entry.get("type"), entry.get("path")) if isinstance(entry, dict) else (None, None)
        )
        if not isinstance(kind, str) or not kind.startswith("sentence_transformers."):
            raise ValueError(
                f"{path}: type must be a class of sentence_transformers, got {kind!r}: code of "
                "other libraries is not run"
            )
        relative = PurePosixPath(place) if isinstance(place, str) else None
        if relative is None or relative.is_absolute() or ".." in relative.parts:
            raise ValueError(f"{path}: path must be a folder inside {folder}, got {place!r}")
        modules.append((kind.rpartition(".")[2], folder / relative))
    return modules


def _read_optional(path: Path) -> dict[str, Any]:
    return read_json_object(path) if path.is_file() else {}


def _text_options(folder: Path) -> dict[str, Any]:
    """Read sentence_bert_config.json, which older releases named after other families too."""
    path = next(iter(sorted(folder.glob("sentence_*_config.json"))), None)
    if path is None:
        return {}
    options = read_json_object(path)
    _check_values(path, options, _TEXT_KEYS)
    return options


_NORMALIZE: Mapping[str, tuple[Any, ...]] = dict.fromkeys(
    ("module_input_name", "module_output_name"), ("sentence_embedding",)
)
_DENSE = {
    **_NORMALIZE,
    "in_features": (),
    "out_features": (),
    "bias": (),
    "activation_function": (),
    "use_residual": (False,),
}


def _check_values(
    path: Path, options: Mapping[str, Any], supported: Mapping[str, tuple[Any, ...]]
) -> None:
    for key, value in options.items():
        if key not in supported:
            raise ValueError(f"{path}: {key} is not supported")
        if supported[key] and value is not None and value not in supported[key]:
            raise ValueError(
                f"{path}: {key} must be {json.dumps(supported[key][0])}, got {json.dumps(value)}"
            )


def _read_poolings(path: Path, *, has_prompt: bool) -> tuple[str, ...]:
    options = read_json_object(path)
    known = {"word_embedding_dimension", "embedding_dimension", "pooling_mode", "include_prompt"}
    if unknown := sorted(options.keys() - known - _POOLING_OF_KEY.keys()):
        raise ValueError(f"{path}: {unknown[0]} is not supported")
    if options.get("include_prompt") is False and has_prompt:
        raise ValueError(f"{path}: include_prompt: false is not supported with a default prompt")
    modes = options.get("pooling_mode")
    if modes is None:
        modes = [mode for key, mode in _POOLING_OF_KEY.items() if options.get(key)] or ["mean"]
    modes = [modes] if isinstance(modes, str) else modes
    names = list(_POOLING_OF_KEY.values())
    if not isinstance(modes, list) or not modes or not all(mode in names for mode in modes):
        raise ValueError(f"{path}: pooling_mode must be of {names}, got {modes!r}")
    return tuple(modes)


def _read_dense(folder: Path) -> _Dense:
    path = folder / "config.json"
    options = read_json_object(path)
    _check_values(path, options, _DENSE)
    name = str(options.get("activation_function", "torch.nn.modules.activation.Tanh"))
    activation = _ACTIVATIONS.get(name.rpartition(".")[2]) if name.startswith("torch.") else None
    if activation is None:
        raise ValueError(
            f"{path}: activation_function must be one of {list(_ACTIVATIONS)} of torch, got {name}"
        )
    tensors = {n: to_float32_weight(n, x) for n, x in read_model_tensors(folder).items()}
    weight, bias = tensors.get("linear.weight"), tensors.get("linear.bias")
    sizes = [options.get("out_features"), options.get("in_features")]
    if (
        weight is None
        or list(weight.shape) != sizes
        or (bias is None) != (options.get("bias") is False)
    ):
        raise ValueError(f"{folder}: the weights are not those of a layer with the sizes {sizes}")
    return _Dense(weight, bias, activation())


def copy_sentence_files(source: Path | None, folder: Path) -> None:
    """Copy what says how vectors of sentences are made into another folder, where there is some.

    Raises:
        ValueError: `modules.json` is damaged.
    """
    if source is None:
        return
    names = [source / MODULES_FILE, source / _PROMPTS_FILE, *source.glob("sentence_*_config.json")]
    for _, path in _read_modules(source):
        if path != source:
            names += [path / "config.json", path / "model.safetensors", path / "pytorch_model.bin"]
    for path in names:
        if path.is_file():
            copied = folder / path.relative_to(source)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copied)
    length = _read_optional(source / "tokenizer_config.json").get("model_max_length")
    path = folder / "tokenizer_config.json"
    if length is not None and path.is_file():
        config = read_json_object(path) | {"model_max_length": length}
        path.write_bytes(encode_utf8(json.dumps(config, ensure_ascii=False, indent=2) + "\n"))
