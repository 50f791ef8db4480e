"""Plans of networks that read pictures: what torch counts, and what is refused."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import unmask
from unmask.batch import Batch
from unmask.cli.main import run as run_command
from unmask.heads.model import Model
from unmask.jobs.pretrain.apply_recipe import apply_recipe
from unmask.jobs.pretrain.data.planned_rows import make_planned_rows
from unmask.jobs.pretrain.resolve_options import preset_recipe
from unmask.planning.flops import training_flops_per_token
from unmask.planning.memory import MemorySettings, training_memory
from unmask.planning.rows import RowShape, count_positions, shape_of_batches
from unmask.training.optimizers.master_weights import MasterWeights
from unmask.zoo.catalogue import get_preset

NAMES = (
    "vit-mini", "mae-mini", "vit-gpt2-mini", "clip-mini", "show-and-tell-mini",
    "show-attend-and-tell-mini",
)  # fmt: skip


def lstm_flops(x: Any, reads: Any, recalls: Any, *_: Any, **__: Any) -> int:
    """FLOPs of oneDNN's LSTM, which torch counts as none."""
    return 2 * x[0] * x[1] * (math.prod(reads) + math.prod(recalls))


def lstm_backward_flops(*args: Any, **__: Any) -> int:
    return 2 * lstm_flops(*args)


FUSED = {
    torch.ops.aten.mkldnn_rnn_layer: lstm_flops,
    torch.ops.aten.mkldnn_rnn_layer_backward: lstm_backward_flops,
}


def one_batch(name: str, folder: Path) -> tuple[Model, Batch, RowShape]:
    """Return a model in training, a batch of noise, and the shape of its rows."""
    recipe = preset_recipe(name)
    preset = apply_recipe(get_preset(name), recipe)
    rows = make_planned_rows(recipe, preset, preset.objective, folder)
    preset = rows.with_vocabulary(preset.architecture.vocab_size)
    recipe = replace(recipe, dev_fraction=0.0, batch_tokens=520, precision="float32")
    data = rows.training_data(recipe, preset.objective)
    micro, _ = next(iter(data.batches(None)))
    model = preset.build().initialize(0).train()
    return model, micro[0], shape_of_batches([micro[0]], data.max_length)


def step(model: Model, batch: Batch) -> None:
    terms = model(batch).terms
    torch.stack([one.total for one in terms.values()]).sum().backward()


@pytest.mark.thorough
@pytest.mark.quick("mae-mini")
@pytest.mark.parametrize("name", NAMES)
def test_planned_flops_and_memory_equal_what_torch_counts(name: str, tmp_path: Path) -> None:
    """FLOPs to 10 %, and to 15 % what a step allocates: captions of a batch differ in length."""
    model, batch, shape = one_batch(name, tmp_path)
    MasterWeights(model).begin_step()
    with torch.profiler.profile(profile_memory=True) as watched:
        step(model, batch)
    results: Any = watched.profiler
    events = [e for e in results.kineto_results.events() if e.name() == "[memory]"]
    now, most = 0, 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    with FlopCounterMode(display=False, custom_mapping=FUSED) as counter:
        step(model, batch)
    n_tokens = count_positions(batch) * shape.tokens_per_position
    per_token = training_flops_per_token(model, shape.length, shape.target_fraction)
    assert per_token * n_tokens == pytest.approx(counter.get_total_flops(), rel=0.10)
    settings = MemorySettings(precision="float32", on_cpu=True)
    recipe = preset_recipe(name)
    planned = training_memory(model, recipe.optimizer, shape, count_positions(batch), settings)
    assert planned.working == pytest.approx(most, rel=0.15)


def test_masked_autoencoders_cost_less_than_networks_of_all_patches() -> None:
    plans = [unmask.plan(name, hardware="a100") for name in ("mae-mini", "vit-mini")]
    mae, vit = plans
    assert mae.parameters == get_preset("mae-mini").build_without_memory().parameter_count()
    assert mae.shape.length == vit.shape.length == 65
    assert mae.parameters > vit.parameters
    assert mae.flops_per_token < 0.5 * vit.flops_per_token
    assert mae.memory.activations < 0.6 * vit.memory.activations


def test_batches_of_captions_count_texts_and_read_pictures_beside() -> None:
    made = unmask.plan("vit-gpt2-mini", hardware="a100", steps=10)
    assert made.shape.decoder_ratio == 1
    assert made.shape.length * made.shape.encoder_ratio == pytest.approx(65, rel=0.05)
    assert made.tokens == pytest.approx(
        10 * made.batch_tokens * (1 + float(made.shape.encoder_ratio))
    )
    other = unmask.plan(
        "vit-gpt2-mini", hardware="a100", steps=10, changes=["image_size=[192,192]"]
    )
    assert other.shape.encoder_ratio > 3 * made.shape.encoder_ratio


def test_command_plans_pictures_and_names_what_is_not_pretrained(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["plan", "show-and-tell-mini", "--hardware", "v100", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["flops"] > 0
    assert plan["fits"]
    assert run_command(["plan", "vit-base-patch16-224", "--hardware", "v100"]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert "labels of pictures are learned by `unmask finetune" in lines[0]
