"""Initialization of heads that attend to adjacent positions."""

from dataclasses import replace

import pytest
import torch

from unmask.batch import Batch
from unmask.heads.model import Model
from unmask.jobs.pretrain.resolve_options import preset_recipe
from unmask.model.backbones.encoder_decoder import EncoderDecoder
from unmask.model.backbones.transformer import Architecture, Block, Transformer
from unmask.model.initialize import NormalInit
from unmask.model.positions.learned import LearnedPositions
from unmask.model.positions.rotary import Rotary
from unmask.model.previous_token_heads import init_previous_token_heads
from unmask.training.config import Recipe
from unmask.zoo.catalogue import MODELS
from unmask.zoo.encoder_decoders.t5 import T5_MINI
from unmask.zoo.encoders.bert_family.bert import BERT_MINI

A = Architecture(
    vocab_size=300, d_model=64, n_layers=3, n_heads=4, d_ff=64, dropout=0.0, attention_dropout=0.0,
    embedding_norm=True, position=LearnedPositions(64, offset=2), initializer=NormalInit(0.05),
)  # fmt: skip


NARROW = replace(A, embedding_size=32)


def build(a: Architecture) -> Transformer:
    torch.manual_seed(0)
    stack = Transformer(a)
    for name, module in stack.named_modules():
        a.initializer(name, module, a)
    return stack.eval()


def attention_weights(stack: Transformer, layer: int) -> torch.Tensor:
    """The attention [h t t] of a layer of a text of random tokens, that layer reading the first."""
    with torch.no_grad():
        x = stack.widen(stack.embed(Batch(inputs=torch.randint(300, (1, 40)))))
        block = stack.layers[layer]
        assert isinstance(block, Block)
        own = block.attention
        q, k = own.split_heads(own.q(x)), own.split_heads(own.k(x))
        return (own.scale * q @ k.mT).softmax(-1)[0]


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("a", [A, NARROW], ids=["as wide", "narrow"])
def test_two_heads_attend_to_adjacent_positions(a: Architecture, layer: int) -> None:
    stack = build(a)
    before = attention_weights(stack, layer)
    init_previous_token_heads([stack], 2)
    share = attention_weights(stack, layer)
    for head, step in ((0, -1), (1, 1)):
        beside = share[head].diagonal(step)
        assert beside.mean() > 0.15 > 4 * before[head].diagonal(step).mean()
        assert (
            share[head][2:-2].argmax(-1) == torch.arange(2, 38) + step
        ).float().mean() > 0.5  # by chance: 1 in 40


def test_other_layers_and_heads_are_unchanged() -> None:
    stack, other = build(A), build(A)
    init_previous_token_heads([stack], 2)
    changed = {
        name
        for (name, x), y in zip(stack.named_parameters(), other.parameters(), strict=True)
        if not torch.equal(x, y)
    }
    assert changed == {
        "position.table.weight",
        *(f"layers.{i}.attention.{part}.weight" for i in (0, 1) for part in "qk"),
    }
    width = A.d_head
    for i in (0, 1):
        ours, theirs = (s.state_dict()[f"layers.{i}.attention.q.weight"] for s in (stack, other))
        assert torch.equal(ours[2 * width :], theirs[2 * width :])


@pytest.mark.parametrize(
    ("a", "layers", "message"),
    [
        (replace(A, position=Rotary()), 1, "learned position embeddings"),
        (replace(A, embedding_size=8), 1, "as wide as a head, 16, got 8"),
        (replace(A, n_heads=1), 1, "two heads"),
        (replace(A, head_dim=5), 1, "an even head_dim, got 4 and 5"),
    ],
)
def test_unsupported_stack_is_refused(a: Architecture, layers: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        init_previous_token_heads([Transformer(a)], layers)


def attention_weights_of(
    attention, x: torch.Tensor, context: torch.Tensor, bias=0.0
) -> torch.Tensor:
    """The attention weights [h t s] of a layer."""
    with torch.no_grad():
        q, k = attention.split_heads(attention.q(x)), attention.split_heads(attention.k(context))
        return (attention.scale * q @ k.mT + bias).softmax(-1)[0]


def test_encoder_attends_to_neighbors_and_decoder_to_same_token() -> None:
    backbone = Model(T5_MINI.architecture.with_vocab_size(300), {}).initialize(0).backbone
    assert isinstance(backbone, EncoderDecoder)
    before = {name: x.clone() for name, x in backbone.named_parameters()}
    init_previous_token_heads([backbone], 2)
    changed = {n for n, x in backbone.named_parameters() if not torch.equal(x, before[n])}
    assert changed == {
        "encoder.position.table.weight", "decoder.position.table.weight",
        "decoder.layers.0.cross.q.weight", "decoder.layers.1.cross.q.weight",
    }  # fmt: skip
    ids = torch.randperm(300, generator=torch.Generator().manual_seed(0))[:40]
    x = backbone.tokens(ids)[None]
    x = x / x.square().mean(-1, keepdim=True).sqrt()
    bias = backbone.encoder.position.position_state(x, 40)
    share = attention_weights_of(backbone.encoder.layers[0].attention, x, x, bias)
    for head, step in ((0, -1), (1, 1)):
        assert share[head].diagonal(step).mean() > 0.15
        assert share[head].diagonal(-step).mean() < 0.1
    for block in backbone.decoder.layers[:2]:
        share = attention_weights_of(block.cross, x, x)
        assert share[1].diagonal().mean() > 0.8
        assert share[[0, 2, 3]].diagonal(dim1=1, dim2=2).mean() < 0.1
    bias = backbone.decoder.position.position_state(x, 40)
    share = attention_weights_of(backbone.decoder.layers[0].attention, x, x, bias)
    assert share[0].diagonal(-1).mean() > 0.15


def test_biases_shared_by_stacks_are_initialized_once() -> None:
    made = [Model(MODELS[n].architecture, {}).initialize(0) for n in ("t5-shared-mini", "t5-mini")]
    before = [one.backbone.encoder.position.table.weight.clone() for one in made]
    for one, was in zip(made, before, strict=True):
        init_previous_token_heads(one.networks, 2)
        raised = one.backbone.encoder.position.table.weight - was
        assert raised.max().item() == pytest.approx(4.0)
        assert raised.count_nonzero() == 2


def test_encoder_decoder_with_learned_positions_is_refused() -> None:
    with pytest.raises(ValueError, match="or relative position biases; use 0"):
        init_previous_token_heads(Model(MODELS["bart-mini"].architecture, {}).networks, 2)


def test_negative_number_is_refused() -> None:
    with pytest.raises(ValueError, match="init_previous_token_heads must be at least 0"):
        Recipe(model="bert-mini", init_previous_token_heads=-1)


@pytest.mark.parametrize(
    "name",
    [n for n, card in MODELS.items() if card.training_options.get("init_previous_token_heads")],
)
def test_every_preset_that_sets_it_supports_it(name: str) -> None:
    preset = MODELS[name]
    small = preset.architecture.with_vocab_size(8)
    init_previous_token_heads(
        Model(small, preset.heads).networks, preset_recipe(name).init_previous_token_heads
    )


def test_bert_mini_sets_it() -> None:
    assert preset_recipe(BERT_MINI.name).init_previous_token_heads == 2
