"""What is tuned: just that moves, at the rates and times that the method says."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import toy_models as toy

import unmask
from unmask import finetune
from unmask.adapters.lora import LoRA
from unmask.adapters.prefix import Prompt
from unmask.finetuning.methods import (
    METHODS,
    BitFit,
    Frozen,
    Full,
    Gradual,
    TopLayers,
    begin_method,
    is_added,
    layers,
    method_of,
    rate_of,
    rates,
    schedule,
    thaw,
    word_of,
)
from unmask.heads.labels import Labels
from unmask.heads.model import Model
from unmask.training.schedule import InverseSquareRoot, Linear, SlantedTriangle


def model(family: str = "bert") -> Model:
    card = toy.card(family)
    heads = {"label": Labels()} if family != "t5" else dict(card.heads)
    return card.build(heads).initialize(0)


def learning(model: Model) -> set[str]:
    return {name for name, p in model.named_parameters() if p.requires_grad}


def test_every_method_is_a_name_of_the_package() -> None:
    for kind in METHODS.values():
        assert getattr(unmask, kind.__name__) is kind
        assert kind.__name__ in unmask.__all__


def test_a_word_names_a_method_with_differences() -> None:
    assert method_of("full") == Full()
    assert method_of("lora:rank=4,alpha=8") == LoRA(rank=4, alpha=8.0)
    assert method_of("lora:where=attention.q+feed_forward.up").where == (
        "attention.q",
        "feed_forward.up",
    )
    assert method_of("prompt:words=a good film") == Prompt(words="a good film")
    assert method_of("prompt:words=a good, long film,length=4") == Prompt(
        words="a good, long film", length=4
    )
    assert method_of(TopLayers(layers=1)) == TopLayers(layers=1)
    assert {word_of(method_of(word)) for word in METHODS} == set(METHODS)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("lore", "tune must be one of full, frozen.*got 'lore'"),
        ("lora:rang=4", "unknown key 'lora.rang'; did you mean 'rank'"),
        ("lora:rank", "tune must be a word, or word:name=value"),
        ("top:layers=0", "layers must be at least 1"),
        ("full:decay=2", "decay must be above 0 and at most 1"),
        ("gradual:over=2", "over must be a share"),
    ],
)
def test_a_word_that_is_no_method_is_named(said: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        method_of(said)


@pytest.mark.parametrize("family", toy.FAMILIES)
def test_layers_are_listed_from_the_bottom_to_the_top(family: str) -> None:
    groups = layers(model(family))
    assert sum(map(len, groups)) == len(list(model(family).named_parameters()))
    assert any("tokens" in name for name in groups[0])
    two = family in ("t5", "bart")
    assert len(groups) >= 2 + (4 if two else 2) - (family == "t5")
    in_layers = [g for g in groups if ".layers." in g[0]]
    assert len(in_layers) == (4 if two else 2)
    if two:
        assert all("encoder" in name for name in in_layers[0])
        assert all("decoder" in name for name in in_layers[-1])


def test_only_what_is_tuned_has_gradients() -> None:
    net = model()
    begin_method(Frozen(), net, 0)
    assert learning(net) == {name for name, _ in net.named_parameters() if "heads." in name}
    begin_method(BitFit(), net, 0)
    assert all(name.endswith(".bias") or "heads." in name for name in learning(net))
    assert "backbone.layers.0.attention.q.bias" in learning(net)
    begin_method(TopLayers(layers=1), net, 0)
    assert "backbone.layers.1.attention.q.weight" in learning(net)
    assert "backbone.layers.0.attention.q.weight" not in learning(net)
    begin_method(Full(), net, 0)
    assert learning(net) == {name for name, _ in net.named_parameters()}


def test_more_layers_than_there_are_cannot_be_tuned_or_drawn() -> None:
    with pytest.raises(ValueError, match="at most 2 layers of this model, got 3"):
        begin_method(TopLayers(layers=3), model(), 0)
    with pytest.raises(ValueError, match="reinitialize must be at most 2"):
        begin_method(Full(reinitialize=3), model(), 0)


def test_a_model_without_biases_has_none_to_tune() -> None:
    with pytest.raises(ValueError, match="this model has none"):
        begin_method(BitFit(), model("t5"), 0)


def test_top_layers_are_drawn_anew() -> None:
    net, before = model(), model()
    begin_method(Full(reinitialize=1), net, 5)
    changed = {
        name
        for (name, a), b in zip(net.named_parameters(), before.parameters(), strict=True)
        if not torch.equal(a, b)
    }
    assert changed
    assert all(name.startswith("backbone.layers.1.") for name in changed)
    again = model()
    begin_method(Full(reinitialize=1), again, 5)
    assert all(map(torch.equal, net.parameters(), again.parameters()))


def test_lower_layers_have_lower_rates() -> None:
    found = rates(Full(decay=0.5, head=1.0), model())
    assert found is not None
    assert found["heads.label.out.weight"] == 1
    assert found["backbone.layers.1.attention.q.weight"] == 0.5
    assert found["backbone.layers.0.attention.q.weight"] == 0.25
    assert found["backbone.tokens.weight"] == 0.125
    assert rates(Full(head=1.0), model()) is None
    paper = rates(Gradual(), model())
    assert paper is not None
    assert paper["backbone.layers.1.attention.q.weight"] == pytest.approx(1 / 2.6)  # of four groups


@pytest.mark.parametrize("method", [Full(), TopLayers()])
def test_a_head_that_labels_learns_faster(method) -> None:
    found = rates(method, model())
    assert found is not None
    for name, factor in found.items():
        assert factor == (6 if name.startswith("heads.") else 1)
    words = replace(toy.card("bert"), heads={"language": toy.card("bert").heads["language"]})
    assert rates(method, words.build()) is None, "a head that names tokens was pretrained"
    with pytest.raises(ValueError, match="head must be above 0"):
        type(method)(head=0.0)


def test_layers_are_thawed_from_the_top() -> None:
    net, method = model(), Gradual(over=0.5)
    begin_method(method, net, 0)
    sizes = []
    for step in range(1, 21):
        thaw(method, net, step, 20)
        sizes.append(len(learning(net)))
    assert sizes == sorted(sizes)
    thaw(method, net, 1, 20)
    assert all(name.startswith("heads.") for name in learning(net))
    thaw(method, net, 10, 20)
    assert learning(net) == {name for name, _ in net.named_parameters()}


def test_a_slanted_triangle_is_the_papers() -> None:
    assert schedule(Full(), 0.1) == Linear(0.1)
    assert schedule(Full(), 400.0) == Linear(400)
    assert schedule(Full(), 0.1, "inverse_square_root") == InverseSquareRoot(0.1)
    slanted = schedule(Gradual(), 0.1)
    assert isinstance(slanted, SlantedTriangle)
    rising = [slanted.rate(step, 100) for step in range(1, 11)]
    assert rising == sorted(rising)
    assert rising[-1] == 1
    assert rising[0] == pytest.approx((1 + 0.1 * 31) / 32)  # equation 3 with p = 1 / 10
    assert slanted.rate(100, 100) == pytest.approx(1 / 32, abs=0.011)


def test_smaller_parts_learn_at_higher_rates() -> None:
    assert rate_of(Full(), 1e-4) == 1e-4
    assert rate_of(LoRA(), 1e-4) > 1e-4
    assert rate_of(LoRA(), 5e-4) / rate_of(LoRA(), 5e-4 / 4) == pytest.approx(2.0)
    assert rate_of(Prompt(), 1e-3) <= 3e-2


@pytest.mark.quick("bitfit", "lora", "prefix", "gradual", "top", "mix")
@pytest.mark.parametrize("word", [w for w in METHODS if w not in ("full", "source")])
def test_every_method_moves_what_it_says_and_nothing_else(word: str, tmp_path: Path) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    train = toy.write(tmp_path / "train.tsv", toy.texts(64, 1))
    method = "top:layers=1" if word == "top" else word
    tuned = finetune(
        str(base), task="classify", train=train, dev=train, tune=method, epochs=3.0, batch=16,
        rate=3e-3, terminal=None,
    )  # fmt: skip
    before = finetune(
        str(base), task="classify", train=train, dev=train, epochs=1.0, rate=1e-30, terminal=None
    ).opened.model.weights()
    after = tuned.opened.model.weights()
    moved = {n for n, x in after.items() if not torch.allclose(x, before[n], atol=1e-12, rtol=0)}
    if word == "frozen" or is_added(method_of(word)):
        assert all(name.startswith("heads.") for name in moved)
    if word == "bitfit":
        assert all(name.startswith("heads.") or name.endswith(".bias") for name in moved)
        assert any(name.startswith("backbone.") for name in moved)
    if word == "top":
        assert not any(".layers.0." in name or ".tokens." in name for name in moved)
    assert "heads.label.out.weight" in moved


def test_a_run_ends_early_when_it_gets_no_better(tmp_path: Path) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    train = toy.write(tmp_path / "train.tsv", toy.texts(40, 1))
    tuned = finetune(
        str(base), task="classify", train=train, dev=train, epochs=50.0, batch=20, rate=1e-20,
        evaluate_every=2, patience=3, out=tmp_path / "run", terminal=None,
    )  # fmt: skip
    lines = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    last = max(json.loads(line)["step"] for line in lines)
    assert tuned.best.step + 3 * 2 == last < 100
