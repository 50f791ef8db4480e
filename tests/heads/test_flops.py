"""FLOPs that heads report, against the matrix products that torch counts."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from unmask.heads.language.language_modeling import LanguageModeling
from unmask.heads.model import HasFlops, Model
from unmask.heads.pretraining.autoregressive_characters import (
    AutoregressiveCharacters,
    AutoregressiveCharactersHead,
)
from unmask.heads.pretraining.subword_prediction import SubwordPrediction
from unmask.model.backbones.canine import CanineArchitecture
from unmask.model.backbones.transformer import Architecture
from unmask.model.positions.learned import LearnedPositions
from unmask.zoo.catalogue import MODELS

A = Architecture(
    vocab_size=50,
    d_model=16,
    embedding_size=8,
    n_layers=1,
    n_heads=2,
    d_ff=32,
    position=LearnedPositions(8),
)
HIDDEN = torch.zeros(10, 16)


def counted(what: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter:
        what()
    return counter.get_total_flops()


@pytest.mark.parametrize(
    ("a", "spec"),
    [
        (A, LanguageModeling(transform="gelu")),
        (replace(A, embedding_size=None), LanguageModeling()),
        (replace(A, embedding_size=None), LanguageModeling(tie_embeddings=False)),
    ],
    ids=["through a map", "tied", "not tied"],
)
def test_flops_of_language_head(a: Architecture, spec: LanguageModeling) -> None:
    head = spec.build(a, nn.Embedding(50, a.d_embed))
    assert counted(lambda: head.logits(HIDDEN)) == 10 * head.flops(8, 1.0)
    assert head.flops(8, 0.5) == head.flops(8, 1.0) / 2


def test_flops_of_subword_head() -> None:
    head = SubwordPrediction(output_vocab_size=30).build(A, nn.Embedding(50, 8))
    assert counted(lambda: head.out(HIDDEN)) == 10 * head.flops(8, 1.0)


def test_flops_of_character_head() -> None:
    a = MODELS["canine-mini"].architecture
    assert isinstance(a, CanineArchitecture)
    model = Model(a, {"characters": AutoregressiveCharacters()})
    head = model.heads["characters"]
    assert isinstance(head, AutoregressiveCharactersHead)
    rows, length, n_targets = 3, 40, 10  # in each row
    y = torch.zeros(rows * n_targets, a.d_model)
    prediction_order, row = (
        torch.arange(n_targets).repeat(rows),
        torch.arange(rows).repeat_interleave(n_targets),
    )
    output = counted(
        lambda: head.out(
            head.condition_on_predicted(
                y, torch.full_like(prediction_order, 65), prediction_order, row, rows
            )
        )
    )
    assert output == pytest.approx(rows * length * head.flops(length, n_targets / length))


@pytest.mark.parametrize("name", ["bert-tiny", "gpt2", "canine-mini", "canine-s-mini", "t5-small"])
def test_model_flops_add_those_of_heads(name: str) -> None:
    with torch.device("meta"):
        model = MODELS[name].build()
    heads = [head for head in model.heads.values() if isinstance(head, HasFlops)]
    assert heads
    more = model.flops(64, 0.5) - model.flops(64, 0.0)
    assert more == pytest.approx(3 * sum(head.flops(64, 0.5) for head in heads))
