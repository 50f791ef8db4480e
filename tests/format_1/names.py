"""What names stand in files of format 1: `python tests/format_1/names.py` wrote what lies here.

`names.json` lists every type that such a file may name under `kind`, with its fields; `keys.json`
the keys of the files in `saved`; `cards.json.xz` holds what a run of each card of the catalogue
would save. All are made by the code that wrote format 1, and stay as they are; as `make.py`, this
is a record, and later code does not run it.
"""

import json
import lzma
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from unmask.finetuning.tasks import Task

from unmask.adapters.specs import Adapter
from unmask.box import BOX
from unmask.config import to_dict
from unmask.finetuning.kinds.catalogue import TASK_KINDS
from unmask.finetuning.mixture import Mixture
from unmask.finetuning.plan import Tuning
from unmask.finetuning.results import Scored
from unmask.finetuning.search import Trial
from unmask.finetuning.suite import Ran
from unmask.heads.model import HeadSpec
from unmask.hiding.loader import Cursor
from unmask.model.architecture import EncoderDecoderArchitecture
from unmask.model.canine import CanineArchitecture
from unmask.model.convolutional import ConvolutionalArchitecture
from unmask.model.elmo import ElmoArchitecture
from unmask.model.recurrent import RecurrentArchitecture
from unmask.published.catalogue import MODELS
from unmask.published.objectives import PRESETS
from unmask.serving.pretrain import card_recipe
from unmask.serving.record import Comparison, Sample
from unmask.studies.studied import Outcome
from unmask.studies.study import Study
from unmask.tokens.manifest import Manifest
from unmask.tokens.vocabulary import Frame, TokenizerSpec
from unmask.training.log import Sums
from unmask.training.loop import Progress
from unmask.training.recipe import Recipe
from unmask.vectors.counts import Windows

HERE = Path(__file__).parent
ARCHITECTURES = (
    EncoderDecoderArchitecture
    | CanineArchitecture
    | ConvolutionalArchitecture
    | ElmoArchitecture
    | RecurrentArchitecture
)
ROOTS: Mapping[str, Any] = {
    "recipe of unmask.json, pretraining": Recipe,
    "recipe of unmask.json, fine-tuning; suite.json": Tuning,
    "task of unmask.json": Task,
    "scored, best of unmask.json": Scored,
    "data.mixture of unmask.json": Mixture,
    "architecture of config.json; difference in a recipe": ARCHITECTURES,
    "unmask.heads of config.json; adapter.json": HeadSpec,
    "adapter.json": Adapter,
    "unmask.frame of tokenizer_config.json": Frame,
    "card": TokenizerSpec,
    "results.json": Comparison,
    "samples.json": Sample,
    "trials.jsonl": Trial,
    "progress.json of a checkpoint": Progress | Sums | Cursor,
    "shards.json": Manifest,
    "counts": Windows,
    "suite.json": Ran,
    "study.json": Study | Outcome,
    "options of a task": Union[tuple(one.options for one in TASK_KINDS.values())],  # noqa: UP007
}
"""What is saved, by where; a type stands at the first place of which it is a part."""


def reachable(kind: Any) -> Iterator[type]:
    """Give the dataclasses of a type's union, items and fields, each before its parts."""
    if isinstance(kind, type) and is_dataclass(kind):
        yield kind
    elif get_origin(kind) is not Literal:
        for one in get_args(kind):
            yield from reachable(one)


def known() -> dict[type, str]:
    """Find all types that files of format 1 may name, and where each stands first."""
    found: dict[type, str] = {}
    for place, root in ROOTS.items():
        left = list(reachable(root))
        while left:
            kind = left.pop(0)
            if kind in found:
                continue
            found[kind] = place
            hints = get_type_hints(kind)
            left += [one for f in fields(kind) for one in reachable(hints[f.name])]
    return found


def annotation(kind: Any) -> str:
    """Write a type without the rooms of its parts."""
    text = kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
    return re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text)


def cards() -> dict[str, Any]:
    """Say what a run of each card saves of what it is: recipe, and the card's own parts."""
    return {
        name: {
            "recipe": to_dict(card_recipe(name)),
            "architecture": to_dict(card.architecture),
            "heads": to_dict(card.heads),
            "labels": to_dict(card.labels),
            "objective": to_dict(card.objective),
            "tokenizer": to_dict(card.tokenizer),
        }
        for name, card in MODELS.items()
    }


def kinds_in(plain: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Give the kind and the fields of each table in plain data that has a kind."""
    if isinstance(plain, Mapping):
        if isinstance(plain.get("kind"), str) and "format" not in plain:
            yield plain["kind"], tuple(key for key in plain if key != "kind")
        for value in plain.values():
            yield from kinds_in(value)
    elif isinstance(plain, list | tuple):
        for value in plain:
            yield from kinds_in(value)


def keys_in(plain: Any, before: str = "") -> Iterator[str]:
    """Give the dotted keys of plain data down to tables with a kind, which `names.json` lists."""
    if isinstance(plain, Mapping):
        if before and isinstance(plain.get("kind"), str):
            yield f"{before} = {plain['kind']}"
            return
        for key, value in plain.items():
            yield from keys_in(value, f"{before}.{key}" if before else key)
    elif isinstance(plain, list) and any(isinstance(value, Mapping) for value in plain):
        for value in plain:
            yield from keys_in(value, f"{before}[]")
    else:
        yield before


def saved_files() -> dict[str, list[Any]]:
    """Read the JSON files of the runs, by name; those of our own format of models by themselves."""
    found: dict[str, list[Any]] = {}
    bundled = sorted(BOX["unmask-mini-en"].glob("*.json"))
    for path in [*sorted((HERE / "saved").glob("*/**/*.json*")), *bundled]:
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        for one in map(json.loads, lines):
            name = path.name
            if name == "config.json":
                name += " (ours)" if "architecture" in one else " (a family's)"
            if name == "unmask.json":
                name += f" ({one['kind']})"
            if name != "tokenizer.json":
                found.setdefault(name, []).append(one)
    return found


def main() -> None:
    """Write the three files: a type is `used` where a card or a run in `saved` has it."""
    plain, files = cards(), saved_files()
    used = {*kinds_in(plain), *kinds_in([*files.values()])}
    listed = [_listed(kind, place, used) for kind, place in known().items()]
    of = {name: sum(one["type"] == name for one in listed) for name in {x["type"] for x in listed}}
    names = {
        "types": listed,
        "meant_by_their_place": sorted(name for name, n in of.items() if n > 1),
        "objectives": {name: dict(preset.options) for name, preset in PRESETS.items()},
    }
    _write("names.json", names)
    keys = {
        name: sorted({key for one in some for key in keys_in(one)}) for name, some in files.items()
    }
    _write("keys.json", keys)
    data = json.dumps(plain, separators=(",", ":")).encode()
    (HERE / "cards.json.xz").write_bytes(lzma.compress(data, preset=9))


def _listed(kind: type, place: str, used: set[tuple[str, tuple[str, ...]]]) -> dict[str, Any]:
    hints, names = get_type_hints(kind), [f.name for f in fields(kind)]
    return {
        "type": kind.__name__,
        "module": kind.__module__,
        "place": place,
        "used": any(one == kind.__name__ and set(had) <= set(names) for one, had in used),
        "fields": {name: annotation(hints[name]) for name in names},
    }


def _write(name: str, data: Any) -> None:
    (HERE / name).write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
