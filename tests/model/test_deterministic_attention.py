"""The backward of fused attention asks for one order of sums, and what surrounds it only warns."""

from collections.abc import Callable, Iterator

import pytest
import torch
from test_leak import build
from torch import Tensor

from unmask.batch import Batch, Visibility
from unmask.model.layers.attention import deterministic


@pytest.fixture
def asked_for() -> Iterator[None]:
    """Ask for deterministic kernels as training on an accelerator does."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def gradients(family: str) -> dict[str, Tensor]:
    model = build(family)
    torch.manual_seed(1)
    batch = Batch(inputs=torch.randint(0, 50, (2, 11)), visibility=Visibility(causal=True))
    model.hidden_states(batch).square().sum().backward()
    return {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


def spy_of(original: Callable[..., None], seen: list[bool]) -> Callable[..., None]:
    """Call the original, and remember whether errors are asked for after it."""

    def spy(*args: object) -> None:
        original(*args)
        seen.append(not torch.is_deterministic_algorithms_warn_only_enabled())

    return spy


@pytest.mark.usefixtures("asked_for")
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_each_layer_asks_for_it_and_gradients_stay(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    for name in ("_forbid_others", "_warn_of_others"):
        monkeypatch.setattr(deterministic, name, spy_of(getattr(deterministic, name), seen))
    ours = gradients(family)
    n_layers = build(family).architecture.n_layers
    assert seen == [True, False] * n_layers
    torch.use_deterministic_algorithms(False)
    expected = gradients(family)
    assert ours.keys() == expected.keys()
    assert all(torch.equal(ours[name], expected[name]) for name in expected)


def test_nothing_is_asked_for_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deterministic, "_forbid_others", pytest.fail)
    assert gradients("gpt2")
