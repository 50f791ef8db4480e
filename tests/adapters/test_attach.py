"""Attaching, choosing, merging and removing adapters, in models of every kind."""

import copy

import adapted
import pytest
import torch
from adapted import (
    FAMILIES,
    IDENTITIES,
    TWO_STACKS,
    batch,
    hidden,
    model,
    perturb_weights,
    real,
    same,
    state,
)

from unmask.adapters.attach import (
    AdapterModule,
    attach,
    detach,
    find_adapter,
    find_linears,
    freeze,
    merge,
    unmerge,
    use_adapters,
)
from unmask.adapters.bottleneck import HoulsbyAdapter, PfeifferAdapter
from unmask.adapters.ia3 import IA3
from unmask.adapters.lora import LoRA
from unmask.adapters.scalar_mix import ScalarMix
from unmask.generation.decode import generate
from unmask.generation.decoding import common_prefix
from unmask.generation.settings import GenerationConfig
from unmask.heads.model import Model
from unmask.training import loop
from unmask.training.resume import find_newest_checkpoint, restore_run, save_checkpoint
from unmask.training.run import TrainingRun

SPECS = IDENTITIES | {"mix": ScalarMix()}
MERGEABLE = {
    "lora": LoRA(rank=3),
    "lora, everywhere": LoRA(rank=2, target_modules=("all",)),
    "ia3": IA3(),
    "ia3, other places": IA3(target_modules=("q", "up"), feedforward_modules=("o",)),
}
over_families = pytest.mark.parametrize("family", FAMILIES)
over_specs = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)


@pytest.mark.sample(18)
@over_families
@pytest.mark.parametrize("spec", IDENTITIES.values(), ids=IDENTITIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_new_adapter_leaves_outputs_bitwise_equal(family, spec, dtype) -> None:
    m, b = model(family).to(dtype), batch(family)
    before = hidden(m, b)
    module = attach(m, spec)
    assert isinstance(module, AdapterModule)
    assert {p.dtype for p in module.parameters()} == {dtype}
    assert torch.equal(hidden(m, b), before)


@pytest.mark.quick("bert", "lora")
@over_families
@over_specs
def test_detach_removes_all_hooks(family, spec) -> None:
    m, b = model(family), batch(family)
    before, weights = hidden(m, b), state(m)
    perturb_weights(attach(m, spec))
    assert not torch.equal(hidden(m, b), before)
    detach(m, "default")
    assert torch.equal(hidden(m, b), before)
    assert same(state(m), weights)
    assert not any(x._forward_hooks or x._forward_pre_hooks for x in m.modules())


@pytest.mark.quick("bert", "lora")
@over_families
@over_specs
def test_own_names_count_and_weights_exclude_adapters(family, spec) -> None:
    m = model(family)
    weights, count, names = m.own_weights(), m.parameter_count(), set(state(m))
    module = attach(m, spec, "mine")
    assert same(m.own_weights(), weights)
    assert m.parameter_count() == count
    added = {name for name, _ in module.named_parameters()}
    assert set(state(m)) - names == {f"adapters.mine.{name}" for name in added}
    perturb_weights(module)
    learned = state(module)
    m.initialize(3)
    assert same(state(module), learned)
    assert same(m.own_weights(), Model(m.architecture, m.head_specs).initialize(3).own_weights())


@over_specs
def test_adapter_initialization_depends_on_its_seed_only(spec) -> None:
    states = []
    for seed, noise in ((0, 1), (0, 2), (1, 1)):
        m = model("t5")
        torch.manual_seed(noise)
        after = torch.get_rng_state()
        states.append(state(attach(m, spec, seed=seed)))
        assert torch.equal(torch.get_rng_state(), after)
    assert same(states[0], states[1])
    if not isinstance(spec, IA3 | ScalarMix):
        assert not same(states[0], states[2])


@pytest.mark.sample(4)
@pytest.mark.quick("bert", "lora")
@over_specs
@pytest.mark.parametrize(
    ("family", "precision"),
    [("bert", "float32"), ("gpt2", "bfloat16"), ("t5", "float32"), ("t5", "bfloat16")],
)
def test_training_updates_only_adapter_and_heads(family, spec, precision) -> None:
    m = model(family)
    backbone = state(m.backbone)
    module = attach(m, spec)
    adapter, heads = state(module), state(m.heads)
    freeze(m)
    reports = adapted.train(adapted.start(m, family, 3, precision=precision))
    assert not any(report.was_skipped for report in reports)
    assert same(state(m.backbone), backbone)
    moved = {name for name, x in state(module).items() if not torch.equal(x, adapter[name])}
    # of the experts of AdaMix, perhaps not each was drawn
    assert {mapped(name) for name in moved} == {mapped(name) for name in adapter}
    assert not same(state(m.heads), heads)
    assert all(x.isfinite().all() for x in state(module).values())


def mapped(name: str) -> str:
    return name.split(".each.")[0]


@over_families
def test_backbone_is_frozen(family) -> None:
    m = model(family)
    attach(m, LoRA())
    assert all(p.requires_grad for p in m.parameters())
    freeze(m)
    trained = {n.split(".")[0] for n, p in m.named_parameters() if p.requires_grad}
    assert trained == {"adapters", "heads"}
    assert not any(p.requires_grad for p in m.backbone.parameters())


@pytest.mark.quick("bert", "lora")
@over_families
@over_specs
def test_one_of_several_adapters_is_selected(family, spec) -> None:
    m, b = model(family), batch(family)
    base = hidden(m, b)
    perturb_weights(attach(m, spec, "a"), seed=1)
    only_a = hidden(m, b)
    perturb_weights(attach(m, PfeifferAdapter(bottleneck_size=4), "b"), seed=2)
    assert torch.equal(hidden(m, b), base)  # none, until one is chosen
    with use_adapters(m, "a"):
        assert torch.equal(hidden(m, b), only_a)
        with use_adapters(m, "b"):
            assert not torch.equal(hidden(m, b), only_a)
            with use_adapters(m, None):
                assert torch.equal(hidden(m, b), base)
        assert torch.equal(hidden(m, b), only_a)
    assert torch.equal(hidden(m, b), base)
    detach(m, "b")
    assert torch.equal(hidden(m, b), only_a)  # the only one again


@pytest.mark.sample(6)
@pytest.mark.quick("bert", "lora")
@over_families
@over_specs
def test_mixed_adapter_batch_equals_each_row_alone(family, spec) -> None:
    m = model(family)
    b = batch(family)
    perturb_weights(attach(m, spec, "a"), seed=1)
    perturb_weights(attach(m, LoRA(rank=2, target_modules=("v", "down")), "b"), seed=2)
    perturb_weights(attach(m, HoulsbyAdapter(bottleneck_size=3), "c"), seed=3)
    rows = ("c", "a", None, "b")
    with use_adapters(m, rows):
        mixed = hidden(m, b)
    for row, name in enumerate(rows):
        with use_adapters(m, name):
            alone = hidden(m, batch_row(family, row))
        n = real(b, row)
        torch.testing.assert_close(mixed[row, :n], alone[0, :n], rtol=1e-4, atol=1e-5)
    with use_adapters(m, "a"):
        everywhere = hidden(m, b)
    with use_adapters(m, ["a"] * 4):
        assert torch.equal(hidden(m, b), everywhere)
    with use_adapters(m, ("a", "a", "a", None)):
        torch.testing.assert_close(hidden(m, b)[:3], everywhere[:3], rtol=1e-4, atol=1e-5)


def batch_row(family: str, row: int):
    """The row alone, without its padding."""
    b = batch(family)
    n = real(b, row)
    source = b.source
    if source is not None:
        source = source[row : row + 1, :n]
    cut = batch(family, (n,))
    return type(b)(
        inputs=b.inputs[row : row + 1, :n],
        visibility=cut.visibility,
        source=source,
        source_visibility=cut.source_visibility,
    )


@over_families
def test_gradient_reaches_an_adapter_from_its_own_rows_only(family) -> None:
    m, b = model(family), batch(family)
    parts = {name: attach(m, LoRA(), name, seed=i) for i, name in enumerate("ab")}
    for part in parts.values():
        perturb_weights(part)
    with use_adapters(m, ("a", "b", None, "a")):
        m.hidden_states(b)[2].sum().backward()  # the row without an adapter
        assert all(p.grad is None or not p.grad.any() for p in m.adapters.parameters())
        m.hidden_states(b)[1].square().sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in parts["a"].parameters())
    assert any(p.grad is not None and p.grad.any() for p in parts["b"].parameters())


@pytest.mark.sample(8)
@over_families
@pytest.mark.parametrize("spec", MERGEABLE.values(), ids=MERGEABLE)
def test_merge_and_unmerge_restore_outputs_bitwise(family, spec) -> None:
    m, b = model(family), batch(family)
    before = m.own_weights()
    before = {name: x.clone() for name, x in before.items()}
    base = hidden(m, b)
    perturb_weights(attach(m, spec), 0.1)
    beside = hidden(m, b)
    merge(m, "default")
    assert not any(x._forward_hooks or x._forward_pre_hooks for x in m.modules())
    within = hidden(m, b)
    assert not torch.equal(within, base)
    assert float((within - beside).norm() / beside.norm()) < 1e-5
    unmerge(m, "default")
    assert same(m.own_weights(), before)
    assert torch.equal(hidden(m, b), beside)
    merge(m, "default")
    detach(m, "default")
    assert same(m.own_weights(), before)
    assert torch.equal(hidden(m, b), base)


def test_merged_adapter_refuses_further_changes() -> None:
    m = model("bert")
    attach(m, LoRA(), "a")
    attach(m, HoulsbyAdapter(), "b")
    with pytest.raises(ValueError, match=r"^houlsby cannot .*LoRA, IA3 and BitFit can"):
        merge(m, "b")
    with pytest.raises(ValueError, match="'a' is not merged"):
        unmerge(m, "a")
    merge(m, "a")
    for act in (
        lambda: merge(m, "a"),
        lambda: merge(m, "b"),
        lambda: attach(m, LoRA(), "c"),
        lambda: freeze(m),
        lambda: use_adapters(m, None).__enter__(),
    ):
        with pytest.raises(ValueError, match="'a' is merged into the weights: unmerge it to"):
            act()


@pytest.mark.sample(4)
@over_specs
@pytest.mark.parametrize("prompts", [[[5, 9, 7], [8, 6]], [[5, 9, 7], [5, 9, 6, 8]]])
def test_cached_generation_equals_full_forward(spec, prompts, monkeypatch) -> None:
    monkeypatch.setattr(common_prefix, "MIN_SAVED_TOKENS", 1)
    for family in ("gpt2", *TWO_STACKS):
        m = model(family)
        perturb_weights(attach(m, spec), 0.2)
        generated = generate(m, prompts, adapted.SPECIAL, GenerationConfig(max_new_tokens=4))
        assert any(generated)
        with torch.no_grad():
            for prompt, new in zip(prompts, generated, strict=True):
                start = [adapted.SPECIAL.start] if family in TWO_STACKS else list(prompt)
                for i, token in enumerate(new):
                    read = torch.tensor([start + new[:i]])
                    source = torch.tensor([prompt]) if family in TWO_STACKS else None
                    one = batch(family, (read.shape[1],))
                    whole = type(one)(inputs=read, visibility=one.visibility, source=source)
                    scores = m.language_head.logits(m.hidden_states(whole)[:, -1])[0]
                    assert int(scores.argmax()) == token


def test_copied_model_has_independent_adapters() -> None:
    m, b = model("bert"), batch("bert")
    perturb_weights(attach(m, LoRA()))
    other = copy.deepcopy(m)
    before = hidden(m, b)
    assert torch.equal(hidden(other, b), before)
    perturb_weights(other.adapters, seed=9)
    assert torch.equal(hidden(m, b), before)
    assert not torch.equal(hidden(other, b), before)
    detach(other, "default")
    assert torch.equal(hidden(other, b), hidden_without(m, b))
    assert torch.equal(hidden(m, b), before)


def hidden_without(m: Model, b) -> torch.Tensor:
    with use_adapters(m, None):
        return hidden(m, b)


def test_target_pattern_matches_end_of_module_name() -> None:
    m = model("t5")
    both = {f"backbone.{s}.layers.{i}" for s in ("encoder", "decoder") for i in range(2)}
    assert set(find_linears(m, ("attention.q",))) == {f"{x}.attention.q" for x in both}
    crossed = {f"backbone.decoder.layers.{i}.cross.v" for i in range(2)}
    assert set(find_linears(m, ("v",))) == {f"{x}.attention.v" for x in both} | crossed
    assert set(find_linears(m, ("decoder.layers.1.*.[kv]",))) == {
        f"backbone.decoder.layers.1.{part}.{x}" for part in ("attention", "cross") for x in "kv"
    }
    assert len(find_linears(m, ("all",))) == 2 * 6 + 2 * 10
    assert find_linears(m, ("q", "attention.q")) == find_linears(m, ("q",))
    assert find_linears(m, ()) == {}


@pytest.mark.parametrize("pattern", ["tention.q", "querry", "attention", "*.*.*.*.*.*.*.q", ""])
def test_unmatched_pattern_lists_available_modules(pattern) -> None:
    m = model("bert")
    with pytest.raises(ValueError, match=r"matches no linear map \(there are attention.k, att"):
        attach(m, LoRA(target_modules=("q", pattern)))
    assert not m.adapters


def test_invalid_attach_calls_are_refused_in_one_line() -> None:
    m, b = model("bert"), batch("bert")
    attach(m, LoRA(), "a")
    with pytest.raises(ValueError, match="has an adapter 'a' already"):
        attach(m, LoRA(), "a")
    for name in ("", "a.b", "pop", "training"):
        with pytest.raises(ValueError, match="cannot be the name of an adapter"):
            attach(m, LoRA(), name)
    for act in (find_adapter, detach, merge, unmerge):
        with pytest.raises(ValueError, match=r"no adapter 'b' \(attached: a\)"):
            act(m, "b")
    for which in ("b", ["a", "b"]):
        with pytest.raises(ValueError, match="no adapter 'b'"), use_adapters(m, which):
            pass
    with (
        pytest.raises(ValueError, match="selected for 2 rows, but the batch has 4"),
        use_adapters(m, ["a", None]),
    ):
        hidden(m, b)
    perturb_weights(m.adapters)
    with use_adapters(m, "a"):
        chosen = hidden(m, b)
    assert torch.equal(hidden(m, b), chosen)  # the mistakes left the only adapter as it was


def test_selection_is_restored_after_an_error() -> None:
    m, b = model("t5"), batch("t5")
    for i, name in enumerate("ab"):
        perturb_weights(attach(m, LoRA(), name), seed=i)
    with use_adapters(m, "b"):
        before = hidden(m, b)
        with pytest.raises(KeyError, match="lost"), use_adapters(m, ["a", None, None, "b"]):
            raise KeyError("lost")
        assert torch.equal(hidden(m, b), before)
        with pytest.raises(ValueError, match="no adapter"), use_adapters(m, "c"):
            pass
        assert torch.equal(hidden(m, b), before)


@pytest.mark.sample(1)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_resumed_run_equals_uninterrupted_run(precision, tmp_path) -> None:
    def begin() -> tuple[Model, TrainingRun]:
        m = model("bert")
        attach(m, IDENTITIES["adamix, nothing shared"])
        freeze(m)
        return m, adapted.start(m, "bert", 6, precision=precision)

    whole, run = begin()
    adapted.train(run)
    _, run = begin()
    for report in loop.train(run):
        if report.step == 3:
            save_checkpoint(run, tmp_path)
            break
    resumed, run = begin()
    found, _ = find_newest_checkpoint(tmp_path, run.world)
    assert found is not None
    restore_run(run, found)
    adapted.train(run)
    assert same(state(resumed), state(whole))
