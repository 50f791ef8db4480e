"""What moves the weights: float32 masters, gradients summed over a step, and the optimizers."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim._adafactor import adafactor
from torch.optim.adamw import adamw

from unmask.training import recipe

_ALIGN = 16
"""Each tensor's part of the buffer of gradients begins at a multiple of 64 bytes, for speed."""


class Weights:
    """The float32 numbers behind a model's parameters, and where a step's gradients are added up.

    In bfloat16 the model's own parameters are copies, refreshed after each step; in float32 they
    are the masters themselves (Micikevicius et al. 2018, arXiv:1710.03740, section 3.1). Each
    backward adds its gradients, as they are made, to one float32 buffer and lets go of them: the
    sum of many micro-batches is as exact as one large batch, and a gradient in bfloat16 lives only
    for a moment. Parameters that share one tensor are one.

    A parameter that no backward of a step reached has no gradient in that step, rather than a
    gradient of zero: it is neither moved nor decayed.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        self.parameters: dict[str, nn.Parameter] = dict(model.named_parameters())
        self.masters: dict[str, Float[Tensor, "..."]] = {}
        for name, p in self.parameters.items():
            self.masters[name] = p.detach().float()  # in float32, the same memory
            p.data = self.masters[name].to(dtype)
        self.trained = [name for name, p in self.parameters.items() if p.requires_grad]
        self.gradient, self.gradients = self._buffer()
        self._reached = dict.fromkeys(self.trained, False)
        self._hooks = [
            self.parameters[n].register_post_accumulate_grad_hook(self._adder(n))
            for n in self.trained
        ]

    def _buffer(self) -> tuple[Float[Tensor, "n"], dict[str, Float[Tensor, "..."]]]:
        starts: dict[str, int] = {}
        size = 0
        for name in self.trained:
            starts[name] = size
            size += -(-self.masters[name].numel() // _ALIGN) * _ALIGN
        device = self.masters[self.trained[0]].device if self.trained else None
        flat = torch.zeros(size, dtype=torch.float32, device=device)
        views = {
            name: flat[start : start + self.masters[name].numel()].view(self.masters[name].shape)
            for name, start in starts.items()
        }
        return flat, views

    def _adder(self, name: str) -> Callable[[Tensor], None]:
        def add(p: Tensor) -> None:
            if p.grad is None:
                return
            gradient = self.gradients[name]
            if self._reached[name]:
                gradient.add_(p.grad)
            else:
                gradient.copy_(p.grad)
                self._reached[name] = True
            p.grad = None

        return add

    def begin(self) -> None:
        """Forget the gradients of the step before."""
        self._reached = dict.fromkeys(self.trained, False)

    @property
    def reached(self) -> list[bool]:
        """Which of `trained` have a gradient in this step."""
        return list(self._reached.values())

    def settle(self, reached: Sequence[bool]) -> None:
        """End a step's backwards.

        What no process reached has no gradient; what only other processes reached is zero here.
        """
        for name, here, anywhere in zip(self.trained, self.reached, reached, strict=True):
            if not here:
                self.gradients[name].zero_()
            self.masters[name].grad = self.gradients[name] if anywhere else None
            self._reached[name] = anywhere

    def norm(self) -> Float[Tensor, ""]:
        """The length of the gradients of the step, as one vector."""
        if not self.trained:
            return torch.zeros(())
        norms = torch._foreach_norm(  # pyright: ignore[reportPrivateUsage]
            list(self.gradients.values())
        )
        return torch.linalg.vector_norm(torch.stack(norms))

    def clip(self, norm: float, most: float) -> None:
        """Scale them down to length `most`; 0: never (Pascanu et al. 2013, arXiv:1211.5063)."""
        if 0 < most < norm:
            self.gradient.mul_(most / norm)

    def refresh(self) -> None:
        """Copy the masters to the model."""
        if self.dtype != torch.float32:
            names = list(self.parameters)
            with torch.no_grad():
                torch._foreach_copy_(  # pyright: ignore[reportPrivateUsage]
                    [self.parameters[n].data for n in names], [self.masters[n] for n in names]
                )

    def release(self) -> None:
        """Give the model its float32 numbers and leave it as it was found: training is over."""
        for hook in self._hooks:
            hook.remove()
        for name, p in self.parameters.items():
            p.data = self.masters[name]
            self.masters[name].grad = None


@runtime_checkable
class Optimizer(Protocol):
    """What changes masters by their gradients."""

    def step(self, rate: float) -> None:
        """Take one step at the learning rate `rate`."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """Everything that it remembers from step to step, by name."""
        ...

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Remember what `tensors` of another process said; the exact inverse."""
        ...


@runtime_checkable
class Averaging(Protocol):
    """An optimizer that may keep the mean of the weights, to be used in their place."""

    def hear(self, loss: float) -> None:
        """Take note of the loss on held-out text."""
        ...

    @property
    def means(self) -> Mapping[str, Tensor]:
        """The mean of each tensor, by name; none: it keeps none."""
        ...


def build(
    config: recipe.Optimizer,
    model: nn.Module,
    weights: Weights,
    *,
    rates: Mapping[str, float] | None = None,
) -> Optimizer:
    """Build the optimizer of a model's weights.

    Args:
        config: which, with its numbers.
        model: says which tensors are hidden matrices, for Muon.
        weights: the masters that are moved.
        rates: factors of the learning rate by parameter name, 1 for those not named (discriminative
            rates).
    """
    parts = [
        Part(
            name=name,
            master=weights.masters[name],
            decayed=decayed(name, weights.masters[name]),
            rate=1.0 if rates is None else rates.get(name, 1.0),
        )
        for name in weights.trained
    ]
    if isinstance(config, recipe.AdamW):
        return AdamW(config, parts)
    if isinstance(config, recipe.Lamb):
        return Lamb(config, parts)
    if isinstance(config, recipe.Adafactor):
        return Adafactor(config, parts)
    if isinstance(config, recipe.Sgd):
        return Sgd(config, parts)
    matrices = hidden_matrices(model)
    return Muon(
        config,
        [part for part in parts if part.name in matrices],
        AdamW(config.others, [part for part in parts if part.name not in matrices]),
        weights.dtype,
    )


@dataclass(frozen=True, kw_only=True)
class Part:
    """One tensor that an optimizer moves."""

    name: str
    master: Tensor
    decayed: bool
    rate: float
    """Factor of the learning rate."""


def decayed(name: str, tensor: Tensor) -> bool:
    """Say whether weight decay applies: to matrices and tables, not to biases, norms and vectors.

    BERT's rule (released code, `optimization.py`, `exclude_from_weight_decay`), by shape instead of
    by name.
    """
    return tensor.ndim >= 2 and name.rsplit(".", 1)[-1] != "bias"


def hidden_matrices(model: nn.Module) -> frozenset[str]:
    """Name the weights of linear maps in layers: no table, and nothing of a head but its layers."""
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    linear = {id(m.weight) for m in model.modules() if isinstance(m, nn.Linear)} - tables
    return frozenset(
        name
        for name, p in model.named_parameters()
        if id(p) in linear
        and (name.split(".", 1)[0] not in ("heads", "head") or ".layers." in name)
    )


class Memory:
    """What an optimizer remembers from step to step of each tensor that it has ever moved."""

    def __init__(self, parts: Iterable[Part], keys: tuple[str, ...]) -> None:
        self.parts, self._keys = list(parts), keys
        self._kept: dict[str, dict[str, Tensor]] = {}

    def of(self, part: Part) -> dict[str, Tensor]:
        """Everything of one tensor; zeros at first: see `_zeros`."""
        if part.name not in self._kept:
            self._kept[part.name] = {key: _zeros(key, part.master) for key in self._keys}
        return self._kept[part.name]

    def tensors(self) -> dict[str, Tensor]:
        """Everything, by name."""
        return {f"{name}.{key}": t for name, kept in self._kept.items() for key, t in kept.items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Remember what `tensors` said, copied into memory that is aligned as all of ours is.

        Raises:
            ValueError: this is another optimizer's memory, or another model's.
        """
        self._kept = {}
        known = {f"{part.name}.{key}": (part, key) for part in self.parts for key in self._keys}
        for name, tensor in tensors.items():
            if name not in known:
                raise ValueError(
                    f"the optimizer's memory does not fit this model and optimizer: {name!r}"
                )
            part, key = known[name]
            mine = self.of(part)[key]
            if mine.shape != tensor.shape:
                raise ValueError(
                    f"the optimizer's memory does not fit this model: {name!r} has shape "
                    f"{list(tensor.shape)}, not {list(mine.shape)}"
                )
            mine.copy_(tensor)


def _zeros(key: str, like: Tensor) -> Tensor:
    """Begin what is remembered of a tensor.

    "step" is a single number, "count" one that is read each step, "rows" and "columns" are one for
    each row or column of a matrix; all else is as large as the tensor.
    """
    if key == "count":
        return torch.zeros(())
    shape = {
        "step": (),
        "rows": (*like.shape[:-1], 1),
        "columns": (*like.shape[:-2], 1, *like.shape[-1:]),
    }
    return like.new_zeros(shape.get(key, like.shape))


class AdamW:
    """torch's fused AdamW."""

    def __init__(self, config: recipe.AdamW, parts: Iterable[Part]) -> None:
        self._config = config
        self._memory = Memory(parts, ("step", "mean", "square"))
        self._groups: dict[tuple[bool, float], list[Part]] = {}
        for part in self._memory.parts:
            self._groups.setdefault((part.decayed, part.rate), []).append(part)

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Take one step at the learning rate `rate`."""
        for (decays, factor), parts in self._groups.items():
            reached = [part for part in parts if part.master.grad is not None]
            memories = [self._memory.of(part) for part in reached]
            # The function behind torch.optim.AdamW: the class takes a second to load torch's
            # compiler, and hides its memory.
            adamw(
                [part.master for part in reached],
                [part.master.grad for part in reached if part.master.grad is not None],
                [memory["mean"] for memory in memories],
                [memory["square"] for memory in memories],
                [],
                [memory["step"] for memory in memories],
                fused=True,
                amsgrad=False,
                beta1=self._config.betas[0],
                beta2=self._config.betas[1],
                lr=rate * factor,
                weight_decay=self._config.weight_decay if decays else 0.0,
                eps=self._config.eps,
                maximize=False,
            )

    def tensors(self) -> dict[str, Tensor]:
        """Both moments and the number of steps of each tensor that was ever moved."""
        return self._memory.tensors()

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Remember what `tensors` said."""
        self._memory.load(tensors)


class Lamb:
    """LAMB: You et al. 2020, algorithm 2, with the norm itself as phi and Adam's bias correction.

    Biases, norms and other vectors are neither decayed nor scaled to their norm (released code,
    `LAMBOptimizer`).
    """

    def __init__(self, config: recipe.Lamb, parts: Iterable[Part]) -> None:
        self._config = config
        self._memory = Memory(parts, ("step", "mean", "square"))

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Take one step at the learning rate `rate`."""
        for part in self._memory.parts:
            if part.master.grad is not None:
                self._move(part, part.master.grad, rate * part.rate)

    def _move(self, part: Part, gradient: Tensor, rate: float) -> None:
        beta1, beta2 = self._config.betas
        memory = self._memory.of(part)
        n = memory["step"].add_(1).double()
        mean = memory["mean"].mul_(beta1).add_(gradient, alpha=1 - beta1)
        square = memory["square"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        scale = (square / (1 - beta2**n)).sqrt_().add_(self._config.eps)
        update = (mean / (1 - beta1**n)).div_(scale)
        if not part.decayed:
            part.master.add_(update, alpha=-rate)
            return
        update.add_(part.master, alpha=self._config.weight_decay)
        long, wide = torch.linalg.vector_norm(part.master), torch.linalg.vector_norm(update)
        trust = torch.where((long > 0) & (wide > 0), long / wide, torch.ones_like(long))
        part.master.sub_(update.mul_(trust * rate))

    def tensors(self) -> dict[str, Tensor]:
        """Both moments and the number of steps of each tensor that was ever moved."""
        return self._memory.tensors()

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Remember what `tensors` said."""
        self._memory.load(tensors)


class Adafactor:
    """torch's Adafactor: what is remembered of a matrix is as long as its sides together."""

    def __init__(self, config: recipe.Adafactor, parts: Iterable[Part]) -> None:
        self._config, parts = config, list(parts)
        self._matrices = Memory([p for p in parts if p.master.ndim > 1], _OF_MATRIX)
        self._vectors = Memory([p for p in parts if p.master.ndim <= 1], ("count", "square"))

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Take one step at the relative rate `rate`."""
        for memory in (self._matrices, self._vectors):
            groups: dict[tuple[bool, float], list[Part]] = {}
            for part in memory.parts:
                if part.master.grad is not None:
                    groups.setdefault((part.decayed, part.rate), []).append(part)
            for (decays, factor), reached in groups.items():
                self._move(
                    memory, reached, rate * factor, self._config.weight_decay if decays else 0.0
                )

    def _move(self, memory: Memory, parts: list[Part], rate: float, decay: float) -> None:
        kept = [memory.of(part) for part in parts]
        # The function behind torch.optim.Adafactor, as with AdamW.
        adafactor(
            [part.master for part in parts],
            [part.master.grad for part in parts if part.master.grad is not None],
            [one.get("rows") for one in kept],
            [one.get("columns") for one in kept],
            [one.get("square") for one in kept],
            [one["count"] for one in kept],
            d=self._config.most,
            lr=rate,
            beta2_decay=-self._config.decay,
            weight_decay=decay,
            eps1=self._config.eps,
            eps2=self._config.least,
            maximize=False,
        )

    def tensors(self) -> dict[str, Tensor]:
        """Sums of squares and the number of steps of each tensor that was ever moved."""
        return self._matrices.tensors() | self._vectors.tensors()

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Remember what `tensors` said."""
        names = tuple(f"{part.name}." for part in self._vectors.parts)
        vectors = {name: t for name, t in tensors.items() if name.startswith(names)}
        self._vectors.load(vectors)
        self._matrices.load({name: t for name, t in tensors.items() if name not in vectors})


_OF_MATRIX = ("count", "rows", "columns")


class Sgd:
    """Gradient descent, with the mean of the weights once evaluations no longer get better."""

    def __init__(self, config: recipe.Sgd, parts: Iterable[Part]) -> None:
        self._config, parts = config, list(parts)
        self._memory = Memory(parts, ("velocity",) if config.momentum else ())
        self._means = Memory(parts, ("mean",))
        self._heard: list[float] = []
        self._taken: int | None = None
        """Steps whose weights are in the mean; None: there is none yet."""

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Take one step at the learning rate `rate`."""
        for part in self._memory.parts:
            if part.master.grad is not None:
                self._move(part, part.master.grad, rate * part.rate)
        if self._taken is not None:
            self._taken += 1
            for part in self._means.parts:
                self._means.of(part)["mean"].lerp_(part.master, 1 / self._taken)

    def _move(self, part: Part, gradient: Tensor, rate: float) -> None:
        if self._config.momentum:
            velocity = self._memory.of(part)["velocity"]
            gradient = velocity.mul_(self._config.momentum).add_(gradient)
        if part.decayed:
            part.master.mul_(1 - rate * self._config.weight_decay)
        part.master.add_(gradient, alpha=-rate)

    def hear(self, loss: float) -> None:
        """Take note of the loss on held-out text; begin the mean where it is time to."""
        patience = self._config.patience
        if patience is None:
            return
        before = self._heard[:-patience]
        if self._taken is None and before and loss > min(before):
            self._taken = 0
        self._heard.append(loss)

    @property
    def means(self) -> Mapping[str, Tensor]:
        """The mean of each tensor over the steps since evaluations no longer got better."""
        if not self._taken:
            return {}
        return {part.name: self._means.of(part)["mean"] for part in self._means.parts}

    def tensors(self) -> dict[str, Tensor]:
        """What each tensor was moved by, its mean, the losses heard and the steps averaged."""
        said = torch.tensor(self._heard, dtype=torch.float64)
        taken = torch.tensor(-1 if self._taken is None else self._taken)
        own = {_HEARD: said, _TAKEN: taken} if self._config.patience else {}
        return self._memory.tensors() | self._means.tensors() | own

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Remember what `tensors` said."""
        left = dict(tensors)
        if self._config.patience:
            self._heard = left.pop(_HEARD, torch.zeros(0)).tolist()
            taken = int(left.pop(_TAKEN, torch.tensor(-1)))
            self._taken = None if taken < 0 else taken
        means = {name: t for name, t in left.items() if name.endswith(".mean")}
        self._means.load(means)
        self._memory.load({name: t for name, t in left.items() if name not in means})


_HEARD, _TAKEN = "heard", "taken"


class Muon:
    """Muon for hidden matrices, AdamW for the rest.

    An update is Nesterov momentum, made near-orthogonal (Jordan et al. 2024), times
    0.2 sqrt(max(rows, columns)), so that its root mean square is AdamW's (Liu et al. 2025,
    equation 4).
    """

    def __init__(
        self, config: recipe.Muon, parts: Iterable[Part], others: AdamW, dtype: torch.dtype
    ) -> None:
        self._config, self._others, self._dtype = config, others, dtype
        self._memory = Memory(parts, ("momentum",))

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Take one step at the learning rate `rate`."""
        for part in self._memory.parts:
            if part.master.grad is not None:
                self._move(part, part.master.grad, rate * part.rate)
        self._others.step(rate)

    def _move(self, part: Part, gradient: Tensor, rate: float) -> None:
        beta = self._config.momentum
        momentum = self._memory.of(part)["momentum"].mul_(beta).add_(gradient)
        update = orthogonal(torch.add(gradient, momentum, alpha=beta), self._dtype)
        part.master.mul_(1 - rate * self._config.weight_decay)
        part.master.add_(update, alpha=-rate * 0.2 * math.sqrt(max(part.master.shape)))

    def tensors(self) -> dict[str, Tensor]:
        """The momentum of each matrix, and what AdamW remembers of the rest."""
        return self._memory.tensors() | self._others.tensors()

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Remember what `tensors` said."""
        mine = {name: t for name, t in tensors.items() if name.endswith(".momentum")}
        self._memory.load(mine)
        self._others.load({name: t for name, t in tensors.items() if name not in mine})


def orthogonal(
    matrix: Float[Tensor, "m n"], dtype: torch.dtype = torch.float32
) -> Float[Tensor, "m n"]:
    """Bring a matrix's singular values near 1 (0.7 to 1.2) by five Newton-Schulz steps.

    The coefficients are Jordan et al. 2024's: the steepest at zero for which the iteration stays
    near 1. They bear bfloat16, so the products are made in the precision of the model.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix.to(dtype)
    tall = x.shape[0] > x.shape[1]
    x = x.mT if tall else x
    x = x / (torch.linalg.vector_norm(x) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return (x.mT if tall else x).float()
