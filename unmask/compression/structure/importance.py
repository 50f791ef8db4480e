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
        with _masked(modules, _ones(masks)), evaluating(model, seed), torch.enable_grad():
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


def masked_loss(
    model: Model,
    modules: Mapping[str, tuple[nn.Module, int]],
    masks: Mapping[str, Float[Tensor, "n"]],
    batches: Sequence[Batch],
) -> float:
    """Return the mean loss of a target, in nats, while masks multiply the inputs of some modules.

    Args:
        model: with a head for the batches' targets; it computes without dropout.
        modules: by a name: the module, whose inputs [b t n*w] consist of n parts, and n.
        masks: of some of the modules, by their names.
        batches: texts.

    Raises:
        ValueError: there are no targets.
    """
    sums: dict[str, tuple[float, float, int]] = {}
    chosen = {name: modules[name] for name in masks}

    def mask_of(name: str, x: Tensor, _: int) -> Tensor:
        return masks[name].to(x)[None]

    for seed, batch in enumerate(batches):
        with _masked(chosen, mask_of), evaluating(model, seed), torch.no_grad():
            for name, term in model(batch.to(model.device)).terms.items():
                _, total, count = sums.get(name, (0.0, 0.0, 0))
                sums[name] = term.weight, total + float(term.total), count + term.count
    if not any(count for _, _, count in sums.values()):
        raise ValueError("the texts have no targets for this model's heads")
    return sum(weight * total / count for weight, total, count in sums.values() if count)


@contextmanager
def _masked(
    modules: Mapping[str, tuple[nn.Module, int]], mask_of: Callable[[str, Tensor, int], Tensor]
) -> Generator[None]:
    """Multiply the inputs of modules by masks [1 n] or [b n], given a name, the input and n."""

    def hook_of(name: str, n: int) -> Callable[..., tuple[Tensor, ...]]:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            x, *others = inputs
            parts = x.unflatten(-1, (n, -1)) * mask_of(name, x, n)[:, None, :, None]
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


def _ones(masks: dict[str, Tensor]) -> Callable[[str, Tensor, int], Tensor]:
    """Return masks of ones, one for each row; `masks` holds those that were used."""

    def mask_of(name: str, x: Tensor, n: int) -> Tensor:
        if name not in masks or len(masks[name]) != len(x):
            masks[name] = x.new_ones(len(x), n).requires_grad_()
        return masks[name]

    return mask_of


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
