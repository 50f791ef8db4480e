"""Source encoder with a vocabulary of its own, before that of an encoder-decoder."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from unmask.batch import Batch, Visibility
from unmask.heads.model import Model
from unmask.model.backbones.encoder_decoder import (
    EncoderDecoder,
    EncoderDecoderArchitecture,
    source_encoder_of,
)
from unmask.model.backbones.transformer import Architecture, SourceEncodedTransformer, Transformer
from unmask.training.device.activation_memory import activation_bytes_per_token
from unmask.zoo.catalogue import MODELS

FAMILIES = ("bart-mini", "t5-mini")
ROWS = 11


def architecture(name: str = "bart-mini") -> EncoderDecoderArchitecture:
    a = MODELS[name].architecture
    assert isinstance(a, EncoderDecoderArchitecture)

    def small(one: Architecture) -> Architecture:
        sizes = {"d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 24, "head_dim": None}
        return replace(one, vocab_size=40, **sizes)

    encoder = small(a.encoder)
    return replace(
        a, encoder=encoder, decoder=small(a.decoder),
        source_encoder=replace(encoder, n_layers=3, vocab_size=ROWS),
    )  # fmt: skip


def network(name: str = "bart-mini") -> EncoderDecoder:
    model = Model(architecture(name), {}).initialize(3).double().eval()
    backbone = model.backbone
    assert isinstance(backbone, EncoderDecoder)
    for p in backbone.parameters():  # norms and biases that are not one and zero
        torch.nn.init.normal_(p, std=0.3, generator=torch.Generator().manual_seed(p.numel()))
    return backbone


def batch(source: Tensor, lengths: tuple[int, ...]) -> Batch:
    document = torch.full(source.shape, -1)
    for row, n in enumerate(lengths):
        document[row, :n] = 0
    return Batch(
        inputs=torch.tensor([[0, 5]]).expand(len(source), -1),
        visibility=Visibility(causal=True),
        source=source,
        source_visibility=Visibility(document=document),
    )


def first_layer_input(backbone: EncoderDecoder, some: Batch) -> Tensor:
    """Record what the first layer of the encoder reads."""
    seen: list[Tensor] = []
    first = backbone.encoder.layers[0]
    hook = first.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    backbone.encode(some)
    hook.remove()
    (found,) = seen
    return found


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_first_layer_input_is_the_source_encoder_output(name: str) -> None:
    backbone = network(name)
    encoder, source = backbone.encoder, source_encoder_of(architecture(name))
    assert isinstance(encoder, SourceEncodedTransformer)
    assert source is not None
    alone = Transformer(source).double().eval()
    alone.load_state_dict(encoder.source.state_dict())
    ids = torch.tensor([[1, 10, 7, 7, 2]])
    some = batch(ids, (5,))
    output = alone(Batch(inputs=ids, visibility=some.source_visibility))
    if name == "bart-mini":
        positions = dict(encoder.position.named_parameters())["table.weight"][2 : 2 + 5]
        norm = dict(encoder.embed_norm.named_parameters())
        expected = F.layer_norm(output + positions, (16,), norm["weight"], norm["bias"], 1e-5)
    else:  # distances, which each layer's scores know of; nothing is added
        expected = output
    assert first_layer_input(backbone, some) == pytest.approx(expected, abs=1e-12)
    plain = replace(some, source=torch.tensor([[1, 10, 7, 8, 2]]))
    assert not torch.allclose(first_layer_input(backbone, plain), expected)


@pytest.mark.parametrize("name", FAMILIES)
def test_source_affects_only_its_own_text_and_no_padding(name: str) -> None:
    backbone = network(name)
    ids = torch.tensor([[1, 10, 7, 2, 9], [3, 4, 5, 6, 8]])
    both = backbone.encode(batch(ids, (3, 5)))
    one = backbone.encode(batch(ids[:1, :3], (3,)))
    torch.testing.assert_close(both[0, :3], one[0], rtol=0, atol=1e-12)
    table = backbone.get_parameter("encoder.source.tokens.weight")
    backbone(batch(ids, (3, 5)))[0].sum().backward()
    assert table.grad is not None
    reached = table.grad.abs().sum(-1).nonzero().flatten().tolist()
    assert reached == [1, 7, 10]
    own = backbone.tokens.weight.grad
    assert own is not None
    assert own.abs().sum(-1).nonzero().flatten().tolist() == [0, 5], "the decoder's alone"


def test_incompatible_source_encoder_is_refused() -> None:
    a = architecture()
    assert a.source_encoder is not None
    for wrong in (replace(a.source_encoder, d_model=8), replace(a.source_encoder, causal=True)):
        with pytest.raises(ValueError, match="causal = False and d_model = 16"):
            replace(a, source_encoder=wrong)
    assert source_encoder_of(replace(a, source_encoder=None)) is None
    assert source_encoder_of(a.encoder) is None


def test_source_encoder_is_counted_and_has_dropout() -> None:
    a = architecture()
    assert a.source_encoder is not None
    dropping = source_encoder_of(a.with_dropout(0.25))
    assert dropping is not None
    assert dropping.dropout == 0.25
    without = EncoderDecoder(replace(a, source_encoder=None))
    more = EncoderDecoder(a).flops(9) - without.flops(9)
    assert more == pytest.approx(Transformer(a.source_encoder).flops(9) / 2)
    kept = [
        activation_bytes_per_token(one, 8, torch.float32)
        for one in (a, replace(a, source_encoder=None))
    ]
    assert kept[0] - kept[1] == activation_bytes_per_token(a.source_encoder, 8, torch.float32)
