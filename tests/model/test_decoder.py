"""The mask decoder against section 3.2 and appendix A.8 of its paper, in float64."""

import math
from dataclasses import replace
from typing import cast

import pytest
import torch
from torch import Tensor

from unmask.adapters.attach import attach
from unmask.adapters.prefix import PrefixTuning, PromptTuning
from unmask.batch import IGNORE_INDEX, Batch, Visibility
from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.heads.model import Model
from unmask.model.architecture import PRE_NORM
from unmask.model.backbones.transformer import Architecture, Block
from unmask.model.initialize import NormalInit
from unmask.model.layers.attention.query_stream import EnhancedMaskDecoder
from unmask.model.layers.feed_forward import LayerNorm
from unmask.model.positions.disentangled import DisentangledAttention
from unmask.model.positions.learned import LearnedPositions
from unmask.model.requested_states import RequestedStates

T, H, D, REACH = 7, 2, 8, 3
A = Architecture(
    vocab_size=13,
    d_model=D,
    n_layers=3,
    n_heads=H,
    d_ff=12,
    position=DisentangledAttention(REACH, 20),
    norm=LayerNorm(1e-7),
    embedding_norm=True,
    initializer=NormalInit(0.5),
)
HEADS = {
    "language": LanguageModeling(
        term="masked", transform="gelu", bias=True, query_stream=EnhancedMaskDecoder(20)
    ),
}
TEXT = torch.tensor([[3, 1, 4, 1, 5, 9, 2]])


def built(a: Architecture = A, **heads) -> Model:
    model = Model(a, HEADS | heads).initialize(1).double().eval()
    torch.manual_seed(0)
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.5)
    return model


def attended(block: Block, table: Tensor, asking: Tensor, read: Tensor) -> Tensor:
    """Equation 4: queries of `asking`, keys and values of `read`; see `DisentangledAttention`."""
    attention, e = block.attention, D // H

    def heads(x: Tensor) -> Tensor:
        return x.unflatten(-1, (H, e)).transpose(0, 1)  # [h t e]

    q, k, v = heads(attention.q(asking)), heads(attention.k(read)), heads(attention.v(read))
    r_k, r_q = heads(attention.place.k(table)), heads(attention.place.q(table))
    row = torch.tensor([[min(max(i - j + REACH, 0), 2 * REACH - 1) for j in range(len(read))]
                        for i in range(len(asking))])  # fmt: skip
    scores = torch.einsum("hie,hje->hij", q, k)
    scores = scores + torch.einsum("hie,hije->hij", q, r_k[:, row])
    scores = scores + torch.einsum("hje,hije->hij", k, r_q[:, row])
    output = (scores / math.sqrt(3 * e)).softmax(-1) @ v
    return attention.o(output.transpose(0, 1).flatten(1))


@pytest.mark.parametrize("times", [1, 2, 3])
@torch.no_grad()
def test_position_queries_attend_to_the_previous_layer(times: int) -> None:
    head = replace(HEADS["language"], query_stream=EnhancedMaskDecoder(20, times))
    model = built(language=head)
    below = model.backbone(Batch(inputs=TEXT, features=(RequestedStates(all_layers=True),)))[
        0, :, 2 * D : 3 * D
    ]
    last = cast(Block, model.backbone.layers[2])
    asking = below + model.heads["language"].decoder.table.weight[:T]
    for _ in range(times):
        y = attended(last, model.backbone.position.table.weight, asking, below)
        y = last.attention_norm.after(asking + y)
        asking = last.feed_forward_norm.after(y + last.feed_forward(y[None])[0])
    hidden = model.hidden_states(Batch(inputs=TEXT))[0]
    torch.testing.assert_close(hidden, asking, rtol=1e-12, atol=1e-12)
    targets = torch.full_like(TEXT, IGNORE_INDEX)
    targets[0, 2], columns = 8, torch.tensor([2])
    prediction = model(
        Batch(inputs=TEXT, targets=targets, target_positions=columns), return_logits=True
    )
    expected = model.language_head.logits(asking[2])
    torch.testing.assert_close(prediction.logits["masked"][0], expected)
    loss = torch.nn.functional.cross_entropy(expected[None], torch.tensor([8]))
    torch.testing.assert_close(prediction.loss, loss, check_dtype=False)


@torch.no_grad()
def test_prenorm_normalizes_both_queries_and_keys() -> None:
    model = built(replace(A, norm_placement=PRE_NORM))
    below = model.backbone(Batch(inputs=TEXT, features=(RequestedStates(all_layers=True),)))[
        0, :, 2 * D : 3 * D
    ]
    last = cast(Block, model.backbone.layers[2])
    asking = below + model.heads["language"].decoder.table.weight[:T]
    for _ in range(2):
        into = last.attention_norm.into
        y = asking + attended(last, model.backbone.position.table.weight, into(asking), into(below))
        asking = y + last.feed_forward(last.feed_forward_norm.into(y)[None])[0]
    torch.testing.assert_close(model.hidden_states(Batch(inputs=TEXT))[0], asking)


@torch.no_grad()
def test_packed_and_padded_texts_equal_texts_alone() -> None:
    model = built()
    first, second = TEXT[:, :3], TEXT[:, 3:]
    packed = Batch(
        inputs=torch.cat((TEXT, torch.zeros(1, 2, dtype=torch.long)), 1),
        visibility=Visibility(document=torch.tensor([[0, 0, 0, 1, 1, 1, 1, -1, -1]])),
        position_ids=torch.tensor([[0, 1, 2, 0, 1, 2, 3, 0, 0]]),
    )
    hidden = model.hidden_states(packed)
    torch.testing.assert_close(hidden[:, :3], model.hidden_states(Batch(inputs=first)))
    torch.testing.assert_close(hidden[:, 3:7], model.hidden_states(Batch(inputs=second)))
    counted = replace(
        packed, position_ids=torch.arange(9)[None]
    )  # the second text stands elsewhere
    assert not torch.allclose(model.hidden_states(counted)[:, 3:7], hidden[:, 3:7])


@torch.no_grad()
def test_other_heads_read_the_plain_backbone() -> None:
    model = built(label=SequenceClassification())
    batch = Batch(inputs=TEXT, labels=torch.tensor([1]), targets=TEXT)
    prediction, label = model(batch, return_logits=True), model.heads["label"]
    plain = model.backbone(batch)
    torch.testing.assert_close(prediction.logits["label"], label.logits(plain, batch).float())
    expected = model.language_head.logits(model.hidden_states(batch)[0])
    torch.testing.assert_close(prediction.logits["masked"], expected)
    assert not torch.allclose(plain, model.hidden_states(batch))


def test_last_layer_and_positions_receive_gradients() -> None:
    model = built().train()
    model(Batch(inputs=TEXT, targets=TEXT)).loss.backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in model.parameters())


@torch.no_grad()
def test_cached_columns_are_queried_again_but_not_read_twice() -> None:
    model, batch = built(), Batch(inputs=TEXT)
    cache = model.backbone.new_cache()
    output = model.backbone(batch, cache, query_stream=model.query_stream)
    assert [layer.length for layer in cache.layers] == [T, T, T]
    torch.testing.assert_close(output, model.hidden_states(batch))


@pytest.mark.parametrize(
    "adapter", [PrefixTuning(n_virtual_tokens=2), PromptTuning(n_virtual_tokens=2)]
)
@torch.no_grad()
def test_virtual_tokens_precede_decoded_texts(adapter) -> None:
    model = built()
    before = model.hidden_states(Batch(inputs=TEXT))
    attach(model, adapter).double()
    after = model.hidden_states(Batch(inputs=TEXT))
    assert after.shape == before.shape
    assert not torch.allclose(after, before)


def test_decoder_does_not_support_last_only() -> None:
    assert not built(replace(A, position=LearnedPositions(20))).supports_last_only


def test_each_further_pass_costs_one_layer() -> None:
    plain = Model(A, {"language": replace(HEADS["language"], query_stream=None)})
    once = built(language=replace(HEADS["language"], query_stream=EnhancedMaskDecoder(20, 1)))
    assert once.flops(T, 0.1) == plain.flops(T, 0.1)
    assert built().flops(T, 0.0) == pytest.approx(plain.flops(T, 0.0) * 4 / 3)


def test_impossible_decoders_are_refused() -> None:
    with pytest.raises(ValueError, match="n_passes must be at least 1, got 0"):
        EnhancedMaskDecoder(n_passes=0)
    with pytest.raises(ValueError, match="hidden states of size 8, but"):
        Model(replace(A, embedding_size=4), HEADS)
    with pytest.raises(ValueError, match="a text of 21 tokens is longer than the model's 20"):
        built().hidden_states(Batch(inputs=torch.zeros(1, 21, dtype=torch.long)))
