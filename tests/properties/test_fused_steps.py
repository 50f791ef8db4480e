"""Fused steps: of every family that generates, logits and texts are those of its modules."""

from dataclasses import replace

import pytest
import torch
from test_generation_batches import GENERATING, PROMPTS, SPECIAL
from test_leak import build

from unmask.adapters.attach import attach, use_adapters
from unmask.adapters.bottleneck import PfeifferAdapter
from unmask.adapters.ia3 import IA3
from unmask.adapters.lora import LoRA
from unmask.generation.decode import generate, generate_candidates
from unmask.generation.decoding import fused_step as fused_steps
from unmask.generation.decoding.batch import DecodingBatch, Prompt
from unmask.generation.decoding.fused_step import FusedStep, fused_step
from unmask.generation.settings import generation_config
from unmask.generation.text_batches import evaluation_mode
from unmask.heads.model import Model

COVERED = {family for family in GENERATING if FusedStep.covers(build(family))}


def test_covered_families() -> None:
    assert {"bart", "gpt", "gpt2", "llama", "mistral", "gemma2", "gpt_neox", "t5"} <= COVERED
    assert not {"transformer-xl", "gpt-bert", "lstm"} & COVERED


def steps_logits(model: Model, step: FusedStep | None, how: list[list[int]]) -> list[torch.Tensor]:
    """Read prompts of three lengths, then tokens; rows are dropped and repeated on the way."""
    encoder = model.architecture.is_encoder_decoder
    prompts = [
        Prompt(input_ids=ids[:1] if encoder else ids, source_ids=ids if encoder else None)
        for ids in PROMPTS
    ]
    with evaluation_mode(model):
        batch = DecodingBatch(model, prompts, SPECIAL, max_rollback=1, step=step)
        found = [batch.next_token_logits()]
        for i, tokens in enumerate(how):
            batch.append_tokens(torch.tensor(tokens)[:, None])
            found.append(batch.next_token_logits())
            if i == 1:
                batch.select_rows(torch.tensor([2, 0]))
            if i == 3:
                batch.crop(1)
                batch.select_rows(torch.tensor([1]))
    return found


READ = [[3, 4, 5], [6, 7, 8], [9, 10], [11, 12], [13], [14]]


@pytest.mark.sample(7)
@pytest.mark.quick("gpt2", "llama", "t5", "gemma2", "gpt_neox")
@pytest.mark.parametrize("family", sorted(COVERED))
def test_logits_equal_those_of_modules(family: str) -> None:
    for changes in ({}, {"attention_window": (4, None, 1, 2)}):
        model = build(family, **changes)
        step = fused_step(model, 100)
        assert step is not None
        ours, expected = (steps_logits(model, one, READ) for one in (step, None))
        for a, b in zip(ours, expected, strict=True):
            # sums of float32 in another order, in logits of about 10
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5 * float(b.abs().max()))


@pytest.mark.sample(7)
@pytest.mark.quick("gpt2", "llama", "t5", "gemma2")
@pytest.mark.parametrize("family", GENERATING)
def test_texts_and_beams_equal_those_of_modules(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, special = build(family), replace(SPECIAL, end=2)
    greedy = generation_config(max_new_tokens=9)
    beams = generation_config(max_new_tokens=9, beams=3, n_best=3)

    def texts() -> list:
        found = generate_candidates(model, PROMPTS, special, beams)
        return [generate(model, PROMPTS, special, greedy), found]

    monkeypatch.setattr(fused_steps, "MIN_STEPS", 1)
    ours, ours_best = texts()
    monkeypatch.setattr(fused_steps, "MIN_STEPS", 10**9)
    expected, expected_best = texts()
    assert ours == expected
    for own, other in zip(ours_best, expected_best, strict=True):
        assert [one.token_ids for one in own] == [one.token_ids for one in other]
        assert [one.score for one in own] == pytest.approx([one.score for one in other], rel=1e-4)


@pytest.mark.quick("gpt2", "t5")
@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
@pytest.mark.parametrize("family", sorted(COVERED))
def test_lower_precisions_are_close(family: str, precision) -> None:
    model = build(family)
    if not fused_steps.PACKED_LINEARS[precision].is_supported():
        pytest.skip(f"this processor does not multiply in {precision}")
    step = fused_step(model, 1, precision)
    rough, expected = (steps_logits(model, one, READ) for one in (step, None))
    for a, b in zip(rough, expected, strict=True):
        # 8 bits of inputs and weights, four layers of width 16
        assert float((a - b).abs().max()) < 0.15 * float(b.abs().max())
    assert not all(torch.equal(a, b) for a, b in zip(rough, expected, strict=True))


ADAPTERS = {
    "lora": LoRA(rank=2, target_modules=("all",)),
    "ia3": IA3(),
}


@pytest.mark.sample(7)
@pytest.mark.quick("gpt2", "llama", "t5")
@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("family", sorted(COVERED))
def test_an_adapter_that_can_be_merged_is_in_the_step(family: str, adapter: str) -> None:
    model = build(family)
    plain = steps_logits(model, fused_step(model, 100), READ)
    module = attach(model, ADAPTERS[adapter])
    with torch.no_grad():
        for parameter in module.parameters():
            draw = torch.Generator().manual_seed(0)
            parameter.add_(torch.rand(parameter.shape, generator=draw), alpha=0.2)
    before = {name: x.clone() for name, x in model.state_dict().items()}
    step = fused_step(model, 100)
    assert step is not None
    ours, expected = (steps_logits(model, one, READ) for one in (step, None))
    for a, b, c in zip(ours, expected, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * float(b.abs().max()))
        assert not torch.allclose(a, c, rtol=1e-2)
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    with use_adapters(model, None):
        step = fused_step(model, 100)
        assert step is not None
        found = steps_logits(model, step, READ)
    assert all(torch.equal(a, b) for a, b in zip(found, plain, strict=True))


def test_adapters_that_cannot_be_merged_are_not_in_a_step() -> None:
    model = build("gpt2")
    attach(model, PfeifferAdapter())
    assert fused_step(model, 100) is None
    model = build("gpt2")
    attach(model, ADAPTERS["lora"], "one")
    attach(model, ADAPTERS["lora"], "two")
    with use_adapters(model, ["one", "two", None]):
        assert fused_step(model, 100) is None
    with use_adapters(model, "two"):
        assert fused_step(model, 100) is not None
    model.backbone.layers[0].attention.q.register_forward_hook(lambda *_: None)
    assert fused_step(model, 100) is None


def test_modules_read_few_tokens_and_large_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("gpt2")
    assert fused_step(model, fused_steps.MIN_STEPS) is not None
    assert fused_step(model, fused_steps.MIN_STEPS - 1) is None
    monkeypatch.setattr(fused_steps, "MAX_COPIED_WEIGHTS", model.parameter_count() - 1)
    assert fused_step(model, fused_steps.MIN_STEPS) is None
