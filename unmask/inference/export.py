"""Folders that other people open: a model with its model card, written whole."""

import json
import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, cast, get_args

import torch

from unmask.adapters.folder import merged
from unmask.checkpoints import elmo
from unmask.checkpoints import folder as checkpoints
from unmask.checkpoints.activations import ACTIVATIONS_FILE
from unmask.checkpoints.checksums import RUN_FILE
from unmask.checkpoints.generator import write_generator
from unmask.checkpoints.gguf.write import GgufDtype, require_gguf, write_gguf
from unmask.checkpoints.huggingface.differences import opening_note, transformers_difference
from unmask.checkpoints.huggingface.generation import write_generation
from unmask.checkpoints.huggingface.preprocessing import save_preprocessing
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.checkpoints.huggingface.sentence_vectors import copy_sentence_files
from unmask.checkpoints.huggingface.write import to_external_config, write_folder
from unmask.checkpoints.subword_head import write_subword_head
from unmask.compression.structure.whole import is_divided, to_whole
from unmask.conversations.template_files import save_chat_template
from unmask.files import atomic_path, encode_utf8, read_json, write_atomically
from unmask.finetuning.results.save_model import write_model_record
from unmask.heads.model import Model
from unmask.model.backbones.elmo import ElmoArchitecture
from unmask.model.layers.attention.attention import copy_to_global_attention
from unmask.model.layers.quantized_inputs import describe_quantized_inputs
from unmask.output import escape_markdown
from unmask.saved_format import FORMAT, check_format
from unmask.training.best_effort import best_effort
from unmask.training.resume import library_versions

ModelFormat = Literal["huggingface", "unmask", "elmo", "onnx", "gguf"]
MODEL_FORMATS: tuple[str, ...] = get_args(ModelFormat)
_WEIGHT_FORMATS = MODEL_FORMATS[:3]
"""Those of `save_model`."""


def resolve_model_format(format_name: str | None) -> ModelFormat:
    """Return the format of models that is named; where none is, the one that others open.

    Raises:
        ValueError: it is a format of something else.
    """
    if format_name is None:
        return "huggingface"
    if format_name not in MODEL_FORMATS:
        known = f"{', '.join(MODEL_FORMATS[:-1])} or {MODEL_FORMATS[-1]}"
        raise ValueError(f"a model is written as {known}; got --to {format_name}")
    return cast(ModelFormat, format_name)


def check_new_folder(folder: Path) -> None:
    """Check that a model can be written into a folder; also before long work.

    Raises:
        ValueError: it is a file or holds something already.
    """
    if folder.is_dir() and any(folder.iterdir()):
        raise ValueError(f"{folder}: is there already, with files in it; name a new folder")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder}: is a file; name a new folder")


def save_model(
    loaded_model: LoadedModel,
    folder: Path,
    format: str = "huggingface",
    extra_facts: Mapping[str, Any] | None = None,
    pack: Callable[[Path], str | None] | None = None,
    card_entries: Mapping[str, Any] | None = None,
) -> Path:
    """Write a model into a new folder.

    The first two formats open in transformers, but for heads that it lacks; in "huggingface" heads
    and columns that were removed are zeros, and factors are multiplied. `extra_facts`, such as
    the task, are written to unmask.json; without any, only "unmask" has that file, which says what
    made the model. "elmo" is the layout of ELMo's released code, without heads and tokenizer.
    `pack` encodes the weights of a folder that is being written, and returns what its card says of
    that; None: nothing had to be encoded. `card_entries` are listed in the card.

    Raises:
        ModuleNotFoundError: the format needs a library that is not installed.
        ValueError: there is no such format, it is not one of this model, or the folder is a file or
            holds something already.
    """
    if format not in _WEIGHT_FORMATS:
        raise ValueError(f"format must be one of {list(_WEIGHT_FORMATS)}, got {format!r}")
    check_new_folder(folder)
    a = loaded_model.model.architecture
    if format == "elmo" and not isinstance(a, ElmoArchitecture):
        raise ValueError(
            f"format elmo is that of ELMo alone, got a {loaded_model.preset.family} model"
        )
    if format != "unmask":
        check_plain_inputs(loaded_model, format)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(folder) as beside:
        if format == "elmo":
            elmo.write_elmo(beside, cast(ElmoArchitecture, a), loaded_model.model.own_weights())
            return folder
        if format == "huggingface" and is_divided(a):
            with merged(loaded_model.model):
                loaded_model = to_whole(loaded_model)
        write_model(beside, loaded_model, card_entries or {}, pack)
        if format == "unmask" or extra_facts:
            write_model_record(beside, loaded_model, extra_facts or {})
    return folder


def check_plain_inputs(loaded_model: LoadedModel, format: str) -> None:
    """Check that a model rounds no inputs of its layers, which other libraries would not.

    Raises:
        ValueError: it does.
    """
    if rounding := describe_quantized_inputs(loaded_model.model):
        raise ValueError(
            f"this model computes with {rounding}, which format {format} does not hold: only "
            "format unmask does (--to unmask)"
        )


def save_gguf(loaded_model: LoadedModel, folder: Path, dtype: GgufDtype) -> Path:
    """Write a model as `model.gguf` into a new folder.

    Raises:
        ImportError: the extra `gguf` is not installed.
        ValueError: llama.cpp has no such network or tokenizer, or the folder holds something.
    """
    check_new_folder(folder)
    check_plain_inputs(loaded_model, "gguf")
    require_gguf()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(folder) as beside, merged(loaded_model.model):
        beside.mkdir(exist_ok=True)
        write_gguf(beside, loaded_model, dtype)
    return folder


def write_model(
    folder: Path,
    loaded_model: LoadedModel,
    card_entries: Mapping[str, Any],
    pack: Callable[[Path], str | None] | None = None,
) -> None:
    """Write weights, configuration, tokenizer and README.md; the caller makes the folder whole."""
    with merged(loaded_model.model):
        write_folder(
            folder,
            loaded_model.model,
            loaded_model.preset,
            loaded_model.tokenizer,
            loaded_model.label_names,
        )
        save_preprocessing(loaded_model.preprocessing, folder)
        save_chat_template(loaded_model.chat_template, folder)
        write_generation(
            folder, loaded_model.model, loaded_model.tokenizer, read=loaded_model.generation
        )
        copy_sentence_files(loaded_model.sentence_folder, folder)
        write_generator(folder, loaded_model)
        write_subword_head(folder, loaded_model)
    note = None if pack is None else pack(folder)
    with best_effort("README.md"):
        (folder / "README.md").write_bytes(
            encode_utf8(model_card(loaded_model, card_entries, note))
        )


def check_average_count(n_checkpoints: int) -> None:
    """Check the number of checkpoints to average.

    Raises:
        ValueError: it is less than two.
    """
    if n_checkpoints < 2:
        raise ValueError(f"average must be of 2 checkpoints or more, got {n_checkpoints}")


def average_checkpoints(model: Model, run_folder: Path, n_checkpoints: int) -> None:
    """Give a model the mean of the last checkpoints of its pretraining run.

    Vaswani et al. 2017, arXiv:1706.03762, section 6.1: of the base model the last 5, written every
    10 minutes, of the large one the last 20. Summed in float64; what was not trained stays.

    Raises:
        FileNotFoundError: the folder is no run.
        ValueError: it has fewer checkpoints, one is damaged, or they are of another model.
    """
    check_average_count(n_checkpoints)
    facts = read_run_file(run_folder)
    states = [
        one.tensors("model") for one in checkpoints.last_checkpoints(run_folder, n_checkpoints)
    ]
    weights = model.own_weights()
    found = checkpoints.average_tensors(states, [name for name in weights if name in states[0]])
    if not found:
        raise ValueError(
            f"{run_folder / 'checkpoints'}: hold no weights of the model in {run_folder}"
        )
    with torch.no_grad():
        for name, x in found.items():
            weights[name].copy_(x)
    recipe = cast("Mapping[str, Any]", facts.get("recipe") or {})
    if recipe.get("init_from") is None:  # as at the end of the run
        copy_to_global_attention(model)


def model_card(
    loaded_model: LoadedModel, card_entries: Mapping[str, Any], packed_note: str | None = None
) -> str:
    """Write what a stranger must know before using these weights; `packed_note`: if encoded."""
    preset, model = loaded_model.preset, loaded_model.model
    class_name = to_external_config(model, preset)["architectures"][0]
    what = class_name if preset.config_mapping.in_transformers else "network"
    rounding = describe_quantized_inputs(model)
    note = packed_note or opening_note(preset, model.head_specs)
    if rounding is not None:
        card_entries = {**card_entries, "computes with": f"{rounding} ({ACTIVATIONS_FILE})"}
        note = note or "Other libraries open it, but do not round these inputs."
    alike = (
        packed_note is None
        and rounding is None
        and preset.config_mapping.in_transformers
        and transformers_difference(preset, model.head_specs) is None
    )
    lines = [
        "---",
        f"library_name: {'transformers' if note is None else 'unmask'}",
        "tags: [unmask]",
        f"pipeline_tag: {_pipeline_tag(model.head_specs, model.decoder_architecture.causal)}",
        "---",
        f"# {escape_markdown(preset.name)}",
        "",
        f"A {what} with {model.parameter_count():,} parameters, made with Unmask after "
        f"{escape_markdown(preset.paper.authors)} {preset.paper.year}, "
        f"*{escape_markdown(preset.paper.title)}*"
        + (f" (arXiv:{escape_markdown(preset.paper.arxiv)})." if preset.paper.arxiv else "."),
        "",
    ]
    lines += [f"- {escape_markdown(f'{name}: {value}')}" for name, value in card_entries.items()]
    if loaded_model.label_names:
        lines.append(f"- {escape_markdown('labels: ' + ', '.join(loaded_model.label_names))}")
    if note is not None:
        lines.append(f"- {note}")
    lines += [
        "",
        "```python",
        *_loading_example(class_name if alike else None),
        "```",
        "",
        "It knows what stands in the text it was trained on, mistakes and prejudices included.",
    ]
    return "\n".join(lines) + "\n"


def _loading_example(class_name: str | None) -> list[str]:
    """Write how to open a model by its class in transformers; None: there is none."""
    if class_name is None:
        return ["import unmask", "", 'model = unmask.load("this folder")']
    return [
        f"from transformers import AutoTokenizer, {class_name}",
        "",
        'tokenizer = AutoTokenizer.from_pretrained("this folder")',
        f'model = {class_name}.from_pretrained("this folder")',
    ]


def _pipeline_tag(heads: Mapping[str, Any], causal: bool) -> str:
    if "label" in heads:
        return "text-classification"
    if "token_label" in heads:
        return "token-classification"
    if "language" in heads:
        return "text-generation" if causal else "fill-mask"
    return "feature-extraction"


def environment_record(device: str, threads: int) -> dict[str, Any]:
    """Describe the machine that a run was made on."""
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "processor": _processor_name(),
        "cores": os.cpu_count(),
        "threads": threads,
        "device": device if device == "cpu" else torch.cuda.get_device_name(device),
    }


def _processor_name() -> str:
    """Return the processor's name, which Linux keeps in a file."""
    path = Path("/proc/cpuinfo")
    if path.is_file():
        for line in path.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def write_run_file(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write unmask.json: all that a run depends on, with the format and the software's versions."""
    record = {"format": FORMAT, **facts, "versions": library_versions()}
    write_atomically(folder / RUN_FILE, json.dumps(record, indent=2, ensure_ascii=False) + "\n")


def is_finished_run(folder: Path) -> bool:
    """Return whether a folder has a run that has ended.

    Raises:
        ValueError: its description is damaged, or a later version's.
    """
    return (folder / RUN_FILE).is_file() and bool(read_run_file(folder).get("finished"))


def read_run_file(folder: Path) -> dict[str, Any]:
    """Read unmask.json of a run.

    Raises:
        ValueError: the folder is not a run, or a later version's.
    """
    path = folder / RUN_FILE
    if not path.is_file():
        raise ValueError(f"{folder}: not a run: it has no unmask.json")
    facts = read_json(path)
    if not isinstance(facts, dict) or "format" not in facts:
        raise ValueError(f"{path}: not a run's description: it lacks 'format'")
    return check_format(facts, path)
