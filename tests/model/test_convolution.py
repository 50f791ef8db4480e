"""The convolution beside the first layer, token by token, in float64."""

from dataclasses import replace

import pytest
import torch

from unmask.batch import Batch, Visibility
from unmask.model.backbones.transformer import Architecture, Transformer
from unmask.model.layers.convolution import NgramInputEncoding
from unmask.model.variants import LayerVariants

B, T, D = 2, 7, 4
A = Architecture(vocab_size=9, d_model=D, n_layers=2, n_heads=2, d_ff=8, dropout=0.0)
DOCUMENT = torch.tensor([[0, 0, 0, 1, 1, -1, -1], [0] * 7])
RANK = torch.tensor([[0, 0, 2, 1, 3, 4, 5], [6, 5, 4, 3, 2, 1, 0]])
CASES = {
    "all": Visibility(),
    "documents": Visibility(document=DOCUMENT),
    "causal": Visibility(causal=True),
    "ranks": Visibility(rank=RANK),
    "ranks and documents": Visibility(rank=RANK, document=DOCUMENT),
}

NGRAMS = LayerVariants(ngram_encoding=NgramInputEncoding(3))


def sees(v: Visibility, b: int, i: int, j: int) -> bool:
    together = v.document is None or bool(v.document[b, i] == v.document[b, j])
    before = (not v.causal or j <= i) and (v.rank is None or bool(v.rank[b, j] <= v.rank[b, i]))
    return together and before


@pytest.mark.parametrize("width", [1, 3, 5, 17])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_each_token_reads_its_visible_neighbors(case: str, groups: int, width: int) -> None:
    torch.manual_seed(0)
    module = NgramInputEncoding(width, "tanh", groups).build(A).double()
    before, after = torch.randn(2, B, T, D, dtype=torch.float64)
    output = module(before, after, CASES[case])
    weight, share = module.kernel.weight, D // groups
    for b in range(B):
        for i in range(T):
            sums = module.kernel.bias.clone()
            for tap in range(width):
                j = i + tap - width // 2
                if 0 <= j < T and sees(CASES[case], b, i, j):
                    for d in range(D):
                        g = d // share
                        sums[d] += weight[d, :, tap] @ before[b, j, g * share : (g + 1) * share]
            expected = module.norm(after[b, i] + sums.tanh())
            torch.testing.assert_close(output[b, i], expected, rtol=1e-11, atol=1e-11)


def test_only_the_first_layer_has_the_convolution() -> None:
    torch.manual_seed(0)
    stack = Transformer(replace(A, layers=NGRAMS)).eval()
    seen: dict[str, torch.Tensor] = {}
    for name in ("layers.0", "convolution", "layers.1"):
        stack.get_submodule(name).register_forward_hook(
            lambda m, given, out, name=name: seen.update({name: given[0], f"{name} out": out})
        )
    stack(Batch(inputs=torch.tensor([[1, 2, 3]])))
    assert torch.equal(seen["convolution"], seen["layers.0"])
    assert torch.equal(seen["layers.1"], seen["convolution out"])


def test_invalid_kernels_are_refused() -> None:
    with pytest.raises(ValueError, match="kernel_size must be odd and at least 1, got 2"):
        NgramInputEncoding(2)
    stack = Transformer(replace(A, layers=NGRAMS, causal=True)).eval()
    cache, causal = stack.new_cache(), Visibility(causal=True)
    stack(Batch(inputs=torch.tensor([[1, 2]]), visibility=causal), cache)
    with pytest.raises(ValueError, match="it has no cache"):
        stack(Batch(inputs=torch.tensor([[3]]), visibility=causal), cache)


def test_its_products_are_counted() -> None:
    beside = replace(A, layers=LayerVariants(ngram_encoding=NgramInputEncoding(5, groups=2)))
    assert beside.flops(10) - A.flops(10) == 2 * D * D * 5 / 2
