"""Memory of training against what torch allocates, and how devices share it."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from unmask.batch import Batch
from unmask.batching.collate import collate
from unmask.jobs.pretrain.apply_recipe import apply_recipe
from unmask.jobs.pretrain.resolve_options import preset_recipe
from unmask.planning.memory import (
    FLOAT32_BYTES,
    MemorySettings,
    TrainingMemory,
    optimizer_numbers,
    state_bytes,
    training_memory,
)
from unmask.planning.rows import (
    RowShape,
    sample_examples,
    sample_row_shape,
    sample_tokenizer,
)
from unmask.training.optimizers.build import build_optimizer
from unmask.training.optimizers.config import LAMB, SGD, Adafactor, AdamW, Muon
from unmask.training.optimizers.master_weights import MasterWeights
from unmask.word_vectors.train.trainer import WORD_VECTOR_METHODS
from unmask.zoo.catalogue import get_preset
from unmask.zoo.preset import Published

FLOAT32 = MemorySettings(precision="float32", on_cpu=True)


def small(name: str) -> Published:
    recipe = preset_recipe(name)
    return apply_recipe(get_preset(name), recipe)


def one_step(name: str, rows: int) -> tuple[int, RowShape, Any]:
    """Return the most bytes that a forward and backward allocate, the shape of rows, the model."""
    preset = small(name)
    tokenizer = sample_tokenizer(preset)
    preset = preset.with_vocabulary(tokenizer.special_ids)
    assert not isinstance(preset.objective, WORD_VECTOR_METHODS)
    length = preset.sequence_length
    shape = sample_row_shape(tokenizer, preset.objective, length)
    examples = sample_examples(tokenizer, preset.objective, length)[:rows]
    batch: Batch = collate([[e] for e in examples], tokenizer.special_ids).to_batch()
    model = preset.build().initialize(0).train()
    weights = MasterWeights(model)
    weights.begin_step()
    with torch.profiler.profile(profile_memory=True) as watched:
        terms = model(batch).terms
        torch.stack([t.total for t in terms.values()]).sum().backward()
    results: Any = watched.profiler
    events = [e for e in results.kineto_results.events() if e.name() == "[memory]"]
    now, most = 0, 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most, shape, model


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", ["bert-mini", "gpt2-mini", "llama-mini", "electra-mini", "bart-mini", "lstm-mini"]
)
def test_planned_activations_equal_measured_allocation(name: str) -> None:
    """To 10 %: what is kept until the backward, and what is needed for a moment.

    The count is of a layer's largest tensors; norms, masks and biases are left out.
    """
    rows = 16
    most, shape, model = one_step(name, rows)
    planned = training_memory(model, AdamW(), shape, rows * shape.length, FLOAT32)
    assert planned.activations + planned.workspace == pytest.approx(most, rel=0.10), (name, planned)


@pytest.mark.parametrize(
    "optimizer",
    [AdamW(), LAMB(), Muon(), Adafactor(), SGD(), SGD(momentum=0.9), SGD(averaging_patience=1)],
    ids=str,
)
def test_optimizer_state_equals_measured_state(optimizer: Any) -> None:
    model = small("bert-tiny").build().initialize(0)
    weights = MasterWeights(model)
    own = build_optimizer(optimizer, model, weights)
    if optimizer == SGD(averaging_patience=1):
        for loss in (1.0, 2.0, 3.0):
            own.update_dev_loss(loss)  # pyright: ignore[reportAttributeAccessIssue]
    for gradient in weights.gradients.values():
        gradient.fill_(0.1)
    weights.finish_backward([True] * len(weights.trained_names))
    own.step(1e-3)
    remembered = sum(t.numel() for t in own.state_tensors().values() if t.numel() > 1)
    # One-element tensors are mostly counts of steps; a bias of one number is one, too.
    assert optimizer_numbers(optimizer, model) == pytest.approx(remembered, abs=20)


def test_adam_state_is_18_bytes_per_parameter_in_bfloat16() -> None:
    """Rajbhandari et al. 2020, arXiv:1910.02054, section 3.1: 16, whose gradients are 2 not 4."""
    assert state_bytes(10, "bfloat16", 20) == 18 * 10
    assert state_bytes(10, "float32", 20) == 16 * 10


def planned(**changes: Any) -> TrainingMemory:
    preset = small("bert-mini")
    with torch.device("meta"):
        model = preset.build()
    shape = RowShape(length=128, target_fraction=0.15)
    settings = replace(MemorySettings(precision="bfloat16"), **changes)
    return training_memory(model, AdamW(), shape, 4096, settings)


def test_fsdp_shards_state_and_ddp_does_not() -> None:
    one, ddp, fsdp = (
        planned(),
        planned(strategy="ddp", n_devices=4),
        planned(strategy="fsdp", n_devices=4),
    )
    assert ddp == one
    for part in ("gradients", "optimizer"):
        assert getattr(fsdp, part) == getattr(one, part) // 4
    assert fsdp.weights == one.weights * 4 // 6 // 4  # in bfloat16 they are gathered, not kept
    assert fsdp.activations == one.activations
    assert fsdp.workspace > one.workspace  # what it gathers
    assert fsdp.total < one.total
    assert one.total == sum(
        (one.weights, one.gradients, one.optimizer, one.activations, one.workspace)
    )


def test_checkpointing_keeps_layer_inputs_and_one_layer() -> None:
    """Korthikanti et al. 2023, arXiv:2205.05198, section 5: 2 s b h L bytes, and one layer's."""
    a = small("bert-mini").architecture.encoder_stack
    all_kept = planned().activations
    assert planned(checkpoint_activations=True).activations == (
        2 * 4096 * a.n_layers * a.d_model + all_kept // a.n_layers
    )


def test_eager_attention_keeps_scores() -> None:
    fused, eager = planned(), planned(on_cpu=True)
    n_scores = 4 * 4 * 128 * 4096  # layers, heads, keys, queries
    assert eager.activations - fused.activations == pytest.approx(2 * n_scores, rel=1e-3)


def test_frozen_parameter_has_no_gradient_or_state() -> None:
    preset = small("bert-mini")
    with torch.device("meta"):
        model = preset.build()
    shape = RowShape(length=128, target_fraction=0.15)
    before = training_memory(model, AdamW(), shape, 4096, FLOAT32)
    table = model.get_parameter("backbone.tokens.weight")
    table.requires_grad_(False)
    after = training_memory(model, AdamW(), shape, 4096, FLOAT32)
    assert before.gradients - after.gradients == FLOAT32_BYTES * math.prod(table.shape)
    assert before.optimizer - after.optimizer == 2 * FLOAT32_BYTES * math.prod(table.shape)
    assert before.weights == after.weights
