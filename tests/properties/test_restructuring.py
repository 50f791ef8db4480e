"""Every network of the catalogue loses parts or refuses, and is opened again as it was."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import unmask
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.checkpoints.huggingface.write import write_folder
from unmask.compression.structure.layers import KeepLayers
from unmask.compression.structure.low_rank import LowRank
from unmask.compression.structure.widths import ColumnPruning, HeadPruning
from unmask.inference.export import save_model
from unmask.model.architecture import StackArchitecture
from unmask.model.initialize import NormalInit
from unmask.word_vectors.train.trainer import WORD_VECTOR_METHODS
from unmask.zoo.catalogue import MODELS

CARDS = {
    card.family: card.name
    for card in reversed(list(MODELS.values()))
    if any(word in card.name for word in ("mini", "tiny"))
    and not isinstance(card.objective, WORD_VECTOR_METHODS)
}
QUICK = ("gpt-bert", "electra", "t5-shared", "gemma2")
FAMILIES = [pytest.param(f, marks=() if f in QUICK else pytest.mark.slow) for f in CARDS]
REFUSED = {
    "layers": {
        "albert": "share their weights", "bilstm": "do not make a model",
        "awd-lstm": "do not make a model", "lstm": "do not make a model",
    },
    "widths": dict.fromkeys(
        ("canine", "cnn", "bilstm", "quick-thoughts", "skip-thoughts", "elmo", "awd-lstm", "lstm",
         "show-and-tell", "show-attend-and-tell"),
        "only Transformer blocks",
    )
    | {"t5-shared": "share their layers"},
    "heads": {
        "olmo2": "of all heads are normalized together", "gpt-bert": "a norm within",
        "meena": "layers with convolutions", "evolved-transformer": "layers with convolutions",
    },
    "columns": {
        "gpt-bert": "a norm within",
        "meena": "layers with convolutions", "evolved-transformer": "layers with convolutions",
    },
    "lowrank": {},
}  # fmt: skip


def opened(family: str, folder: Path) -> LoadedModel:
    preset = MODELS[CARDS[family]]
    write_folder(folder, preset.build().initialize(0), preset, None)
    return unmask.load(folder).loaded_model


def check_saved(after: LoadedModel, folder: Path, format: str = "huggingface") -> None:
    save_model(after, folder, format)
    again = unmask.load(folder).loaded_model
    mine, theirs = after.model.own_weights(), again.model.own_weights()
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(w, theirs[name]) for name, w in mine.items())
    assert again.missing == ()
    assert trained_parts(again) == trained_parts(after)


def trained_parts(loaded: LoadedModel) -> dict[str, StackArchitecture]:
    """Return the stacks without how they would begin at random, which formats give anew."""
    stacks = loaded.model.architecture.stacks
    return {side: replace(a, initializer=NormalInit()) for side, a in stacks.items()}


@pytest.mark.sample(1)
@pytest.mark.parametrize("family", FAMILIES)
def test_networks_keep_fewer_layers_or_are_refused(family: str, tmp_path: Path) -> None:
    before = opened(family, tmp_path / "model")
    depth = min(stack.n_layers for stack in before.model.architecture.stacks.values())
    method = KeepLayers(keep=max(1, depth // 2))
    if family in REFUSED["layers"]:
        with pytest.raises(ValueError, match=REFUSED["layers"][family]) as error:
            method.restructure(before)
        assert "\n" not in str(error.value)
        return
    after = method.restructure(before)
    assert all(s.n_layers == method.keep for s in after.model.architecture.stacks.values())
    check_saved(after, tmp_path / "small")


@pytest.mark.sample(1)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", ["heads", "columns", "lowrank"])
def test_networks_are_narrowed_or_refused(family: str, method: str, tmp_path: Path) -> None:
    before = opened(family, tmp_path / "model")
    kind = {"heads": HeadPruning, "columns": ColumnPruning, "lowrank": LowRank}[method]
    pruning = kind(fraction=0.4)
    if reason := (REFUSED["widths"] | REFUSED[method]).get(family):
        with pytest.raises(ValueError, match=reason) as error:
            pruning.restructure(before)
        assert "\n" not in str(error.value)
        return
    after = pruning.restructure(before)
    assert after.model.parameter_count() < before.model.parameter_count()
    assert after.model.backbone.flops(32) < before.model.backbone.flops(32)
    check_saved(after, tmp_path / "small", "unmask")
