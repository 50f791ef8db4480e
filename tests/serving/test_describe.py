"""What there is to know of a model."""

import pytest

from unmask.published.catalogue import MODELS
from unmask.serving.describe import card_facts, card_line, describe, text


def test_a_card_is_described_with_its_costs() -> None:
    facts = describe("bert-base-uncased")
    assert facts["parameters"] == 110_106_428
    assert facts["memory_bytes"]["inference_float32"] == 4 * 110_106_428
    # Kaplan et al. 2020: six for each of the 85 million weights of the blocks, and the rest more.
    assert 6 * 85e6 < facts["flops_per_token"] < 6 * 130e6


def test_memory_of_training_counts_what_is_not_kept() -> None:
    facts = describe("canine-s-mini")
    scores = 8192 * (256 + 1)
    assert facts["memory_bytes"]["training"] == 18 * (facts["parameters"] + scores)


@pytest.mark.parametrize("name", MODELS)
def test_every_card_has_a_line_and_a_page(name: str) -> None:
    card = MODELS[name]
    assert card_line(card).startswith(f"{name} ")
    assert len(card_line(card)) < 80
    facts = describe(name)
    assert facts.keys() > card_facts(card).keys()
    lines = list(text(facts))
    assert lines[0] == name
    assert f"{card.parameters:,}" in "\n".join(lines)
    assert not any("\u202f" in line for line in lines)


def test_an_unknown_name_is_refused_and_the_nearest_named() -> None:
    with pytest.raises(ValueError, match=r"unknown model 'gpt2-midi'; did you mean 'gpt2-mini'\?"):
        describe("gpt2-midi")
    with pytest.raises(FileNotFoundError, match="runs/none: no such folder"):
        describe("runs/none")
