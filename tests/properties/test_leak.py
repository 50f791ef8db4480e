"""Leak: by gradients, an output depends on exactly the inputs that visibility allows."""

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from unmask.batch import Batch, Visibility
from unmask.model.backbones.encoder_decoder import EncoderDecoderArchitecture
from unmask.zoo.catalogue import TEXT_MODELS

T, S = 9, 6
NEITHER = {
    "word-vectors", "canine", "elmo", "bilstm", "cnn", "skip-thoughts-bi", "quick-thoughts",
}  # fmt: skip
"""They read no order; tests in tests/model/ check what they depend on."""
FAMILIES = {card.family: card for card in TEXT_MODELS.values() if card.family not in NEITHER}
"""One card a family: sizes do not change who sees whom."""
IN_ORDER = {"lstm", "awd-lstm", "skip-thoughts"}
"""They see earlier positions, whatever else a batch marks as visible."""
TWO_STACKS = [
    family
    for family, card in FAMILIES.items()
    if isinstance(card.architecture, EncoderDecoderArchitecture)
]


def tiny(a: Any, **changes: Any) -> Any:
    """Make an architecture small, in the sizes that it has."""
    sizes = {"d_model": 16, "n_heads": 2, "d_ff": 16, "n_layers": 4, "head_dim": None}
    own = {field.name for field in fields(a)}
    if "n_kv_heads" in own:
        sizes["n_kv_heads"] = a.n_kv_heads and 1
    if "dilation" in changes:
        changes["attention"] = replace(a.attention, dilation=changes.pop("dilation"))
    return replace(a, **{n: size for n, size in sizes.items() if n in own} | changes)


def build(family: str, **changes):
    """Build a tiny model; changes are of the only stack, the decoder, or both that share layers."""
    preset = FAMILIES[family]
    a = preset.architecture.with_vocab_size(50)
    if isinstance(a, EncoderDecoderArchitecture):
        of_both = changes if a.tie_encoder_decoder else {}
        a = replace(a, encoder=tiny(a.encoder, **of_both), decoder=tiny(a.decoder, **changes))
    else:
        a = tiny(a, **changes)
    model = replace(preset, architecture=a).build().eval()
    torch.manual_seed(0)
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3)
    return model


def depends(model, batch: Batch, on: str = "inputs") -> Tensor:
    """Say which of the tokens read move each output.

    The table is shared, so the call with the right ids is taken.
    """
    expected = getattr(batch, on)
    seen: list[Tensor] = []

    def keep(module, inputs, output):
        if inputs[0] is expected:
            output = output.detach().requires_grad_(True)
            seen.append(output)
        return output

    hook = model.backbone.embedding_table.register_forward_hook(keep)
    out = model.hidden_states(batch)
    hook.remove()
    direction = torch.randn(out.shape[-1])
    rows = [
        torch.autograd.grad((out[0, i] * direction).sum(), seen[0], retain_graph=True)[0][0]
        for i in range(out.shape[1])
    ]
    return torch.stack(rows).abs().sum(-1) > 1e-12


PLACE = torch.arange(T)
PERMUTED = torch.randperm(T, generator=torch.Generator().manual_seed(1))
PREFIX = (PLACE - 3).clamp(min=0)
DOCUMENT = torch.tensor([0] * 4 + [1] * 5)
PADDED = torch.tensor([0] * 6 + [-1] * 3)


def before(rank: Tensor) -> Tensor:
    return rank[None, :] <= rank[:, None]


def same(document: Tensor) -> Tensor:
    return document[None, :] == document[:, None]


CASES = {
    "everyone": (Visibility(), torch.ones(T, T, dtype=torch.bool)),
    "causal": (Visibility(causal=True), before(PLACE)),
    "prefix": (Visibility(rank=PREFIX[None]), before(PREFIX)),
    "permuted": (Visibility(rank=PERMUTED[None]), before(PERMUTED)),
    "packed": (Visibility(document=DOCUMENT[None]), same(DOCUMENT)),
    "packed and causal": (
        Visibility(causal=True, document=DOCUMENT[None]),
        before(PLACE) & same(DOCUMENT),
    ),
    "padded": (Visibility(document=PADDED[None]), same(PADDED)),
}


@pytest.mark.sample(78)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("family", FAMILIES)
def test_output_depends_on_exactly_the_visible_inputs(family: str, case: str) -> None:
    model, (visibility, visible) = build(family), CASES[case]
    if family in IN_ORDER and not visibility.causal:
        pytest.skip("reads forward")
    torch.manual_seed(1)
    batch = Batch(inputs=torch.randint(0, 50, (1, T)), visibility=visibility)
    if isinstance(model.architecture, EncoderDecoderArchitecture):
        batch = replace(batch, source=torch.randint(0, 50, (1, S)))
    assert torch.equal(depends(model, batch), visible)


@pytest.mark.parametrize("family", TWO_STACKS)
def test_decoder_reads_only_the_source_of_its_document(family: str) -> None:
    model = build(family)
    torch.manual_seed(1)
    there = torch.tensor([0, 0, 0, 1, 1, -1])
    batch = Batch(
        inputs=torch.randint(0, 50, (1, T)),
        visibility=Visibility(causal=True, document=DOCUMENT[None]),
        source=torch.randint(0, 50, (1, S)),
        source_visibility=Visibility(document=there[None]),
    )
    assert torch.equal(depends(model, batch, "source"), DOCUMENT[:, None] == there[None, :])
