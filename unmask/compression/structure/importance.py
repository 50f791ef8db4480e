"""Importance of heads and feed-forward columns: by the weights, or by gradients on texts."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from unmask.batch import Batch
from unmask.heads.model import Model


def mask_gradients(
    model: Model, modules: Mapping[str, tuple[nn.Module, int]], batches: Sequence[Batch]
) -> dict[str, Float[Tensor, "n"]]:
    """Return E_x |dL(x) / dm| of masks m = 1 that multiply the inputs of some modules.

    The expected sensitivity to a mask of Michel et al. 2019, arXiv:1905.10650, equation 2: for one
    mask of a head's output z it is E_x |z . dL(x)/dz|. L(x) is the sum of the losses of a text's
    targets, without dropout.

    Args:
        model: with a head for the batches' targets.
        modules: by a name: the module, whose inputs [b t n*w] consist of n parts, and n.
        batches: texts, one in each row.

    Raises:
        ValueError: there are no targets.
        FloatingPointError: a gradient is not finite.
    """
    sums = {name: torch.zeros(n, dtype=torch.float64) for name, (_, n) in modules.items()}
    n_texts, n_targets = 0, 0
    for seed, batch in enumerate(batches):
        masks: dict[str, Tensor] = {}
        with _masked(modules, masks), evaluating(model, seed), torch.enable_grad():
            terms = model(batch.to(model.device)).terms.values()
            count = sum(term.count for term in terms)
            if count:
                loss = torch.stack([term.weight * term.total for term in terms]).sum()
                names = list(masks)
                found = torch.autograd.grad(loss, [masks[n] for n in names], materialize_grads=True)
                for name, gradient in zip(names, found, strict=True):
                    sums[name] += gradient.abs().sum(0).double().cpu()
        n_texts, n_targets = n_texts + len(batch.inputs), n_targets + count
    if not n_targets:
        raise ValueError("the calibration texts have no targets for this model's heads")
    if not all(bool(x.isfinite().all()) for x in sums.values()):
        raise FloatingPointError("a gradient is not finite: the weights are damaged")
    return {name: x / n_texts for name, x in sums.items()}


@contextmanager
def _masked(
    modules: Mapping[str, tuple[nn.Module, int]], masks: dict[str, Tensor]
) -> Generator[None]:
    """Multiply inputs by masks of ones, one for each row; `masks` holds those that were used."""

    def hook_of(name: str, n: int) -> Callable[..., tuple[Tensor, ...]]:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            x, *others = inputs
            if name not in masks or len(masks[name]) != len(x):
                masks[name] = x.new_ones(len(x), n).requires_grad_()
            parts = x.unflatten(-1, (n, -1)) * masks[name][:, None, :, None]
            return (parts.flatten(-2), *others)

        return hook

    handles: list[RemovableHandle] = [
        module.register_forward_pre_hook(hook_of(name, n)) for name, (module, n) in modules.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def evaluating(model: Model, seed: int) -> Generator[None]:
    """Let a model compute without dropout, and without gradients of its own weights.

    What a generator beside it samples is drawn with the seed.
    """
    was_training = model.training
    trained = [p for p in model.parameters() if p.requires_grad]
    model.eval()
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        model.train(was_training)
        for parameter in trained:
            parameter.requires_grad_(True)


def normalized(scores: Mapping[str, Float[Tensor, "n"]]) -> dict[str, Float[Tensor, "n"]]:
    """Divide the scores of each layer by their Euclidean norm (Michel et al. 2019, section 2.3).

    So that layers can be compared (Molchanov et al. 2017, arXiv:1611.06440).
    """
    return {name: x / max(float(x.norm()), torch.finfo(x.dtype).tiny) for name, x in scores.items()}
