"""Folders that other people open: a model with its card, written whole."""

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast, get_args

import torch

from unmask.adapters.folder import folded
from unmask.box import BOX
from unmask.channels import markdown
from unmask.checkpoints import bilm
from unmask.checkpoints import folder as checkpoints
from unmask.checkpoints.generator import write_generator
from unmask.checkpoints.huggingface import (
    HUB,
    Opened,
    config_of,
    differs_there,
    opens_where,
    write_folder,
)
from unmask.checkpoints.subwords import write_subwords
from unmask.files import read_json, utf8, whole, write_whole
from unmask.finetuning.export import write_record
from unmask.heads.model import Model
from unmask.model.attention import copy_to_wide
from unmask.model.elmo import ElmoArchitecture
from unmask.published.card import Published
from unmask.published.catalogue import ALIASES, MODELS
from unmask.serving.record import FACTS
from unmask.training.aside import for_the_report
from unmask.training.loop import versions

Format = Literal["huggingface", "unmask", "elmo"]
FORMATS: tuple[str, ...] = get_args(Format)


def model_format(name: str | None) -> Format:
    """Return the format of models that is named; where none is, the one that others open.

    Raises:
        ValueError: it is a format of something else.
    """
    if name is None:
        return "huggingface"
    if name not in FORMATS:
        known = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        raise ValueError(f"a model is written as {known}; got --to {name}")
    return cast(Format, name)


def is_card(model: str) -> bool:
    """Say whether a name can only mean a card: known, or neither on the disk nor on the Hub."""
    if Path(model).is_dir() or model in BOX:
        return False
    named = model in MODELS or model in ALIASES
    return named or not (model.startswith(HUB) or os.sep in model or Path(model).exists())


def check_new(folder: Path) -> None:
    """Check that a model can be written into a folder; also before a long work.

    Raises:
        ValueError: it is a file or holds something already.
    """
    if folder.is_dir() and any(folder.iterdir()):
        raise ValueError(f"{folder}: is there already, with files in it; name a new folder")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder}: is a file; name a new folder")


def save_model(
    opened: Opened,
    folder: Path,
    format: str = "huggingface",
    more: Mapping[str, Any] | None = None,
) -> Path:
    """Write a model into a new folder.

    The first two formats open in transformers, but for heads that it lacks. In unmask.json stands
    `more`, such as the task; without any, only "unmask" has that file, which says what made the
    model. "elmo" is the layout of ELMo's released code, which has neither heads nor a tokenizer.

    Raises:
        ModuleNotFoundError: the format needs a library that is not installed.
        ValueError: there is no such format, it is not one of this model, or the folder is a file or
            holds something already.
    """
    if format not in FORMATS:
        raise ValueError(f"format must be one of {list(FORMATS)}, got {format!r}")
    check_new(folder)
    a = opened.model.architecture
    if format == "elmo" and not isinstance(a, ElmoArchitecture):
        raise ValueError(f"format elmo is that of ELMo alone, got a {opened.card.family} model")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with whole(folder) as beside:
        if format == "elmo":
            bilm.write(beside, cast(ElmoArchitecture, a), opened.model.weights())
            return folder
        write_model(beside, opened, {})
        if format == "unmask" or more:
            write_record(beside, opened, more or {})
    return folder


def write_model(folder: Path, opened: Opened, figures: Mapping[str, Any]) -> None:
    """Write weights, configuration, tokenizer and README.md; the caller makes the folder whole."""
    with folded(opened.model):
        write_folder(folder, opened.model, opened.card, opened.tokenizer, opened.labels)
        write_generator(folder, opened)
        write_subwords(folder, opened)
    with for_the_report("README.md"):
        (folder / "README.md").write_bytes(utf8(model_card(opened, figures)))


def check_mean(n: int) -> None:
    """Check of how many checkpoints a mean is asked.

    Raises:
        ValueError: it is of fewer than two.
    """
    if n < 2:
        raise ValueError(f"average must be of 2 checkpoints or more, got {n}")


def take_mean(model: Model, run: Path, n: int) -> None:
    """Give a model the mean of the last `n` checkpoints of the pretraining run that made it.

    Vaswani et al. 2017, arXiv:1706.03762, section 6.1: of the base model the last 5, written every
    10 minutes, of the large one the last 20. Summed in float64; what was not trained stays.

    Raises:
        FileNotFoundError: the folder is no run.
        ValueError: it has fewer checkpoints, one is damaged, or they are of another model.
    """
    check_mean(n)
    facts = read_facts(run)
    states = [one.tensors("model") for one in checkpoints.last(run, n)]
    weights = model.weights()
    found = checkpoints.mean(states, [name for name in weights if name in states[0]])
    if not found:
        raise ValueError(f"{run / 'checkpoints'}: hold no weights of the model in {run}")
    with torch.no_grad():
        for name, x in found.items():
            weights[name].copy_(x)
    recipe = cast("Mapping[str, Any]", facts.get("recipe") or {})
    if recipe.get("begin") is None:  # as at the end of the run
        copy_to_wide(model)


def model_card(opened: Opened, figures: Mapping[str, Any]) -> str:
    """Write what a stranger must know before using these weights."""
    card, model = opened.card, opened.model
    kind = config_of(model, card)["architectures"][0]
    what = kind if card.fields.in_transformers else "network"
    note = opens_where(card, model.specs)
    alike = card.fields.in_transformers and differs_there(card, model.specs) is None
    lines = [
        "---",
        f"library_name: {'transformers' if note is None else 'unmask'}",
        "tags: [unmask]",
        f"pipeline_tag: {_task(model.specs, model.stack.causal)}",
        "---",
        f"# {markdown(card.name)}",
        "",
        f"A {what} with {model.parameter_count():,} parameters, made with Unmask after "
        f"{markdown(card.paper.authors)} {card.paper.year}, *{markdown(card.paper.title)}*"
        + (f" (arXiv:{markdown(card.paper.arxiv)})." if card.paper.arxiv else "."),
        "",
    ]
    lines += [f"- {markdown(f'{name}: {value}')}" for name, value in figures.items()]
    if opened.labels:
        lines.append(f"- {markdown('labels: ' + ', '.join(opened.labels))}")
    if note is not None:
        lines.append(f"- {note}")
    lines += [
        "",
        "```python",
        *_opening(kind if alike else None),
        "```",
        "",
        "It knows what stands in the text it was trained on, mistakes and prejudices included.",
    ]
    return "\n".join(lines) + "\n"


def _opening(kind: str | None) -> list[str]:
    """Write how to open a model by its class in transformers; None: there is none."""
    if kind is None:
        return ["import unmask", "", 'model = unmask.load("this folder")']
    return [
        f"from transformers import AutoTokenizer, {kind}",
        "",
        'tokenizer = AutoTokenizer.from_pretrained("this folder")',
        f'model = {kind}.from_pretrained("this folder")',
    ]


def _task(heads: Mapping[str, Any], causal: bool) -> str:
    if "label" in heads:
        return "text-classification"
    if "token_label" in heads:
        return "token-classification"
    if "language" in heads:
        return "text-generation" if causal else "fill-mask"
    return "feature-extraction"


def environment(device: str, threads: int) -> dict[str, Any]:
    """Say on what a run was made."""
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": threads,
        "device": device if device == "cpu" else torch.cuda.get_device_name(device),
    }


def _processor() -> str:
    """Return the processor's name, which Linux keeps in a file."""
    path = Path("/proc/cpuinfo")
    if path.is_file():
        for line in path.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def write_facts(
    folder: Path,
    kind: str,
    recipe: Mapping[str, Any],
    card: Published,
    parameters: int,
    surroundings: Mapping[str, Any],
    *,
    finished: bool,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write unmask.json: all that a run depends on, and on what it was made."""
    facts = {
        "format": 1,
        "kind": kind,
        "card": card.name,
        "parameters": parameters,
        "recipe": recipe,
        "versions": versions(),
        "environment": surroundings,
        "finished": finished,
    }
    text = json.dumps(facts | dict(more or {}), indent=2, ensure_ascii=False) + "\n"
    write_whole(folder / FACTS, text)


def read_facts(folder: Path) -> dict[str, Any]:
    """Read unmask.json of a run.

    Raises:
        ValueError: the folder is not a run, or a later version's.
    """
    path = folder / FACTS
    if not path.is_file():
        raise ValueError(f"{folder}: not a run: it has no unmask.json")
    facts = read_json(path)
    if not isinstance(facts, dict) or "format" not in facts:
        raise ValueError(f"{path}: not a run's description: it lacks 'format'")
    if facts["format"] != 1:
        raise ValueError(
            f"{path}: format {facts['format']} is of a later version; this one reads 1"
        )
    return facts
