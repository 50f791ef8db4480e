"""Fine-tuning methods: which parameters change, at which rates, and when."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import toy_models as toy

import unmask
from unmask import finetune
from unmask.adapters.lora import LoRA
from unmask.adapters.prefix import PromptTuning
from unmask.finetuning.methods.method import (
    METHODS,
    BitFit,
    FrozenFeatures,
    FullFinetuning,
    GradualUnfreezing,
    TopLayers,
    adds_modules,
    apply_method,
    learning_rate_factors,
    make_schedule,
    method_learning_rate,
    method_name,
    parse_method,
)
from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.model import Model
from unmask.training.optimizers.layerwise import parameters_by_layer
from unmask.training.schedules import InverseSquareRoot, Linear, SlantedTriangular


def model(family: str = "bert") -> Model:
    preset = toy.card(family)
    heads = {"label": SequenceClassification()} if family != "t5" else dict(preset.heads)
    return preset.build(heads).initialize(0)


def learning(model: Model) -> set[str]:
    return {name for name, p in model.named_parameters() if p.requires_grad}


def test_every_method_is_exported() -> None:
    for kind in METHODS.values():
        assert getattr(unmask, kind.__name__) is kind
        assert kind.__name__ in unmask.__all__


def test_method_name_parses_with_settings() -> None:
    assert parse_method("full") == FullFinetuning()
    assert parse_method("lora:rank=4,alpha=8") == LoRA(rank=4, alpha=8.0)
    assert parse_method("lora:target_modules=attention.q+feed_forward.up").target_modules == (
        "attention.q",
        "feed_forward.up",
    )
    assert parse_method("prompt:init_text=a good film") == PromptTuning(init_text="a good film")
    assert parse_method("prompt:init_text=a good, long film,n_virtual_tokens=4") == PromptTuning(
        init_text="a good, long film", n_virtual_tokens=4
    )
    assert parse_method(TopLayers(n_layers=1)) == TopLayers(n_layers=1)
    assert {method_name(parse_method(word)) for word in METHODS} == set(METHODS)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("lore", "tune must be one of full, frozen.*got 'lore'"),
        ("lora:rang=4", "unknown key 'lora.rang'; did you mean 'rank'"),
        ("lora:rank", "tune must be a word, or word:name=value"),
        ("top:n_layers=0", "n_layers must be at least 1"),
        ("full:layerwise_lr_decay=2", "layerwise_lr_decay must be above 0 and at most 1"),
        ("gradual:unfreeze_fraction=2", "unfreeze_fraction must be a share"),
    ],
)
def test_unknown_method_is_named(output: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_method(output)


@pytest.mark.parametrize("family", toy.FAMILIES)
def test_layers_are_listed_from_bottom_to_top(family: str) -> None:
    groups = parameters_by_layer(model(family))
    assert sum(map(len, groups)) == len(list(model(family).named_parameters()))
    assert any("tokens" in name for name in groups[0])
    two = family in ("t5", "bart")
    assert len(groups) >= 2 + (4 if two else 2) - (family == "t5")
    in_layers = [g for g in groups if ".layers." in g[0]]
    assert len(in_layers) == (4 if two else 2)
    if two:
        assert all("encoder" in name for name in in_layers[0])
        assert all("decoder" in name for name in in_layers[-1])


def test_only_tuned_parameters_have_gradients() -> None:
    net = model()
    apply_method(FrozenFeatures(), net, 0)
    assert learning(net) == {name for name, _ in net.named_parameters() if "heads." in name}
    apply_method(BitFit(), net, 0)
    assert all(name.endswith(".bias") or "heads." in name for name in learning(net))
    assert "backbone.layers.0.attention.q.bias" in learning(net)
    apply_method(TopLayers(n_layers=1), net, 0)
    assert "backbone.layers.1.attention.q.weight" in learning(net)
    assert "backbone.layers.0.attention.q.weight" not in learning(net)
    apply_method(FullFinetuning(), net, 0)
    assert learning(net) == {name for name, _ in net.named_parameters()}


def test_more_layers_than_the_model_has_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 2 layers of this model, got 3"):
        apply_method(TopLayers(n_layers=3), model(), 0)
    with pytest.raises(ValueError, match="reinitialize_layers must be at most 2"):
        apply_method(FullFinetuning(reinitialize_layers=3), model(), 0)


def test_bias_tuning_of_a_model_without_biases_is_refused() -> None:
    with pytest.raises(ValueError, match="this model has none"):
        apply_method(BitFit(), model("t5"), 0)


def test_top_layers_are_reinitialized() -> None:
    net, before = model(), model()
    apply_method(FullFinetuning(reinitialize_layers=1), net, 5)
    changed = {
        name
        for (name, a), b in zip(net.named_parameters(), before.parameters(), strict=True)
        if not torch.equal(a, b)
    }
    assert changed
    assert all(name.startswith("backbone.layers.1.") for name in changed)
    again = model()
    apply_method(FullFinetuning(reinitialize_layers=1), again, 5)
    assert all(map(torch.equal, net.parameters(), again.parameters()))


def test_lower_layers_have_lower_learning_rates() -> None:
    found = learning_rate_factors(
        FullFinetuning(layerwise_lr_decay=0.5, head_learning_rate_factor=1.0), model()
    )
    assert found is not None
    assert found["heads.label.out.weight"] == 1
    assert found["backbone.layers.1.attention.q.weight"] == 0.5
    assert found["backbone.layers.0.attention.q.weight"] == 0.25
    assert found["backbone.tokens.weight"] == 0.125
    assert learning_rate_factors(FullFinetuning(head_learning_rate_factor=1.0), model()) is None
    paper = learning_rate_factors(GradualUnfreezing(), model())
    assert paper is not None
    assert paper["backbone.layers.1.attention.q.weight"] == pytest.approx(1 / 2.6)  # of four groups


@pytest.mark.parametrize("method", [FullFinetuning(), TopLayers()])
def test_label_head_has_a_higher_learning_rate(method) -> None:
    found = learning_rate_factors(method, model())
    assert found is not None
    for name, factor in found.items():
        assert factor == (6 if name.startswith("heads.") else 1)
    words = replace(toy.card("bert"), heads={"language": toy.card("bert").heads["language"]})
    assert learning_rate_factors(method, words.build()) is None, (
        "a head that names tokens was pretrained"
    )
    with pytest.raises(ValueError, match="head_learning_rate_factor must be above 0"):
        type(method)(head_learning_rate_factor=0.0)


def test_layers_are_unfrozen_from_the_top() -> None:
    net, method = model(), GradualUnfreezing(unfreeze_fraction=0.5)
    apply_method(method, net, 0)
    sizes = []
    for step in range(1, 21):
        method.unfreeze(net, step, 20)
        sizes.append(len(learning(net)))
    assert sizes == sorted(sizes)
    method.unfreeze(net, 1, 20)
    assert all(name.startswith("heads.") for name in learning(net))
    method.unfreeze(net, 10, 20)
    assert learning(net) == {name for name, _ in net.named_parameters()}


def test_slanted_triangular_schedule_equals_paper() -> None:
    assert make_schedule(FullFinetuning(), 0.1) == Linear(0.1)
    assert make_schedule(FullFinetuning(), 400.0) == Linear(400)
    assert make_schedule(FullFinetuning(), 0.1, "inverse_square_root") == InverseSquareRoot(0.1)
    slanted = make_schedule(GradualUnfreezing(), 0.1)
    assert isinstance(slanted, SlantedTriangular)
    rising = [slanted.factor(step, 100) for step in range(1, 11)]
    assert rising == sorted(rising)
    assert rising[-1] == 1
    assert rising[0] == pytest.approx((1 + 0.1 * 31) / 32)  # equation 3 with p = 1 / 10
    assert slanted.factor(100, 100) == pytest.approx(1 / 32, abs=0.011)


def test_adapters_have_higher_learning_rates() -> None:
    assert method_learning_rate(FullFinetuning(), 1e-4) == 1e-4
    assert method_learning_rate(LoRA(), 1e-4) > 1e-4
    assert method_learning_rate(LoRA(), 5e-4) / method_learning_rate(
        LoRA(), 5e-4 / 4
    ) == pytest.approx(2.0)
    assert method_learning_rate(PromptTuning(), 1e-3) <= 3e-2


@pytest.mark.sample(1)
@pytest.mark.quick("bitfit", "lora", "prefix", "gradual", "top", "mix")
@pytest.mark.parametrize("word", [w for w in METHODS if w not in ("full", "source_encoder")])
def test_every_method_updates_its_parameters_only(word: str, tmp_path: Path) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    train = toy.write(tmp_path / "train.tsv", toy.texts(64, 1))
    method = "top:n_layers=1" if word == "top" else word
    tuned = finetune(
        str(base), task="classify", train=train, dev=train, tune=method, epochs=3.0, batch_size=16,
        learning_rate=3e-3, terminal=None,
    )  # fmt: skip
    before = finetune(
        str(base),
        task="classify",
        train=train,
        dev=train,
        epochs=1.0,
        learning_rate=1e-30,
        terminal=None,
    ).loaded_model.model.own_weights()
    after = tuned.loaded_model.model.own_weights()
    moved = {n for n, x in after.items() if not torch.allclose(x, before[n], atol=1e-12, rtol=0)}
    if word == "frozen" or adds_modules(parse_method(word)):
        assert all(name.startswith("heads.") for name in moved)
    if word == "bitfit":
        assert all(name.startswith("heads.") or name.endswith(".bias") for name in moved)
        assert any(name.startswith("backbone.") for name in moved)
    if word == "top":
        assert not any(".layers.0." in name or ".tokens." in name for name in moved)
    assert "heads.label.out.weight" in moved


def test_run_stops_early_without_improvement(tmp_path: Path) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    train = toy.write(tmp_path / "train.tsv", toy.texts(40, 1))
    tuned = finetune(
        str(base),
        task="classify",
        train=train,
        dev=train,
        epochs=50.0,
        batch_size=20,
        learning_rate=1e-20,
        evaluate_every=2,
        patience=3,
        out=tmp_path / "run",
        terminal=None,
    )
    lines = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    last = max(json.loads(line)["step"] for line in lines)
    assert tuned.best_run.best_step + 3 * 2 == last < 100
