"""What there is to know of a model: its card, its size, what it costs."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from unmask.box import BOX
from unmask.config import to_dict, written
from unmask.model.architecture import Architecture, EncoderDecoderArchitecture
from unmask.published.card import FineTuning, Published
from unmask.published.catalogue import published
from unmask.serving.earlier import recipe_of
from unmask.serving.folders import is_card
from unmask.serving.pipeline import load
from unmask.serving.spaces import describe_space, described, is_vectors
from unmask.serving.words import NARROW, Number, memory, short
from unmask.training.recipe import Recipe


def describe(model: str) -> dict[str, Any]:
    """Describe a card, the model of a folder or a file of word vectors, as plain data.

    Besides what the card says: `flops_per_token` of a training step, and `memory_bytes` of the
    weights, and of all that stays in memory while training (bfloat16 weights, float32 masters,
    gradients, two moments, also of what serves pretraining alone); activations come on top.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: there is no such card; the nearest is named.
    """
    if is_vectors(model) and not Path(model).is_dir():
        return describe_space(model)
    card = published(model) if is_card(model) else _opened(model)
    with torch.device("meta"):
        built = card.build()
    n = built.parameter_count()
    asked = 0.15 if "masked" in card.objective.asks else 1.0
    return card_facts(card) | {
        "parameters": n,
        "flops_per_token": built.flops(card.length, asked),
        "memory_bytes": {
            "inference_float32": 4 * n,
            "inference_bfloat16": 2 * n,
            "training": 18 * sum(weight.numel() for weight in built.weights().values()),
        },
    }


ELSEWHERE = ("architecture", "heads", "objective", "length", "batch_tokens", "rate")
"""Of a run's recipe: what a page says in other places."""


def _opened(model: str | Path) -> Published:
    """Return the card of a model with weights, with the recipe that these were learned by.

    Its note says where they are.
    """
    opened = load(model)
    where = Path(model) if Path(model).is_dir() else BOX.get(str(model), model)
    card = replace(
        opened.card,
        parameters=opened.model.parameter_count(),
        note=f"Its weights: {where}",
    )
    recipe = recipe_of(Path(where))
    if recipe is None:
        return card
    told, usual = to_dict(recipe), to_dict(Recipe(model=recipe.model))
    return replace(
        card,
        length=recipe.length or card.length,
        batch_tokens=recipe.batch_tokens,
        rate=recipe.rate,
        training={k: v for k, v in told.items() if v != usual[k] and k not in ELSEWHERE},
    )


def boxed() -> list[Published]:
    """Return the cards of the models in the package."""
    return [_opened(folder) for folder in BOX.values()]


def card_facts(card: Published) -> dict[str, Any]:
    """Return a card as plain data."""
    return {
        "name": card.name,
        "family": card.family,
        "parameters": card.parameters,
        "paper": to_dict(card.paper),
        "architecture": _told(card.architecture),
        "heads": to_dict(card.heads),
        "objective": to_dict(card.objective),
        "tokenizer": to_dict(card.tokenizer),
        "length": card.length,
        "batch_tokens": card.batch_tokens,
        "rate": card.rate,
        "training": to_dict(card.training),
        "finetuning": to_dict(card.finetuning),
        "hub": card.hub,
        "note": card.note,
    }


def _told(a: Architecture | EncoderDecoderArchitecture) -> dict[str, Any]:
    """Return a network as plain data, without what says nothing of it."""
    if isinstance(a, EncoderDecoderArchitecture):
        parts = {name: getattr(a, name) for name in ("encoder", "decoder", "source")}
        stacks = {name: _told(part) for name, part in parts.items() if part is not None}
        return to_dict(a) | stacks
    return {name: value for name, value in to_dict(a).items() if name not in a.unread}


def card_line(card: Published) -> str:
    """Write a card in one line of a table."""
    who = f"{card.paper.authors.split(',')[0]} {card.paper.year}"
    if card.name in BOX:
        who = "with its weights in this package"
    return f"{card.name:38}{_short(card.parameters):>7} parameters  {who}"


def text(facts: Mapping[str, Any]) -> Iterator[str]:
    """Write a description in lines for a terminal."""
    return iter(described(facts)) if "width" in facts else _of_model(facts)


def _of_model(facts: Mapping[str, Any]) -> Iterator[str]:
    paper = facts["paper"]
    yield facts["name"]
    yield f"{paper['authors']} {paper['year']}, {paper['title']}"
    if paper["arxiv"] or paper["url"]:
        yield f"https://arxiv.org/abs/{paper['arxiv']}" if paper["arxiv"] else paper["url"]
    if facts["note"]:
        yield facts["note"]
    yield ""
    for name, said in _rows(facts).items():
        yield f"{name:24}{said}"
    yield ""
    yield "recipe"
    recipe = {name: facts[name] for name in ("length", "batch_tokens", "rate")}
    yield from _fields(recipe | facts["training"])
    for name, stack in _stacks(facts["architecture"]).items():
        yield ""
        yield f"architecture{name and '.' + name}"
        yield from _fields(stack)
    if facts["architecture"].get("shared") is True:
        yield ""
        yield "the layers of both are the same"


def _rows(facts: Mapping[str, Any]) -> dict[str, str]:
    size = facts["memory_bytes"]
    weights, training = map(_memory, (size["inference_float32"], size["training"]))
    rows = {"parameters": f"{facts['parameters']:,}", "memory": f"{weights} of weights in float32"}
    if flops := facts["flops_per_token"]:  # there is none where no step is one of a network
        rows["memory"] += f"; to train, {training} and activations"
        rows["to train"] = f"{_short(flops)}FLOP a token, in rows of {facts['length']}"
    if facts["finetuning"] != to_dict(FineTuning()):
        rows["fine-tuning"] = written(facts["finetuning"])
    rows |= {
        "tokenizer": written(facts["tokenizer"]["vocabulary"]),
        "objective": written(facts["objective"]),
    }
    return rows | {f"heads.{name}": written(spec) for name, spec in facts["heads"].items()}


def settings(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Give what a description says of a model's recipe: `key`, `value`, as `--set` takes them."""
    yield "objective", written(facts["objective"])
    for name, spec in facts["heads"].items():
        yield f"heads.{name}", written(spec)
    for name in ("length", "batch_tokens", "rate"):
        yield name, written(facts[name])
    for name, value in facts["training"].items():
        yield name, written(value)
    for name, stack in _stacks(facts["architecture"]).items():
        for key, value in stack.items():
            if key != "kind":
                yield f"architecture{name and '.' + name}.{key}", written(value)


def _stacks(architecture: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the stacks of a network by name; where there is one, it has none."""
    if "decoder" not in architecture:
        return {"": architecture}
    return {name: part for name, part in architecture.items() if isinstance(part, Mapping)}


def _fields(stack: Mapping[str, Any]) -> Iterator[str]:
    for name, value in stack.items():
        if name != "kind" and value is not None:
            yield f"  {name:22}{written(value)}"


def _short(n: Number) -> str:
    return short(n).replace(NARROW, " ")


def _memory(n: Number) -> str:
    return memory(n).replace(NARROW, " ")
