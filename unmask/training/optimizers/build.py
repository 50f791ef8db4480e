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

from unmask.training import config as training_config

_ALIGNMENT = 16
"""Each tensor's part of the buffer of gradients begins at a multiple of 64 bytes, for speed."""


class MasterWeights:
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
        self.trained_names = [name for name, p in self.parameters.items() if p.requires_grad]
        self.flat_gradient, self.gradients = self._gradient_buffer()
        self._has_gradient = dict.fromkeys(self.trained_names, False)
        self._hooks = [
            self.parameters[n].register_post_accumulate_grad_hook(self._gradient_hook(n))
            for n in self.trained_names
        ]

    def _gradient_buffer(self) -> tuple[Float[Tensor, "n"], dict[str, Float[Tensor, "..."]]]:
        starts: dict[str, int] = {}
        size = 0
        for name in self.trained_names:
            starts[name] = size
            size += -(-self.masters[name].numel() // _ALIGNMENT) * _ALIGNMENT
        device = self.masters[self.trained_names[0]].device if self.trained_names else None
        flat = torch.zeros(size, dtype=torch.float32, device=device)
        views = {
            name: flat[start : start + self.masters[name].numel()].view(self.masters[name].shape)
            for name, start in starts.items()
        }
        return flat, views

    def _gradient_hook(self, name: str) -> Callable[[Tensor], None]:
        def add(p: Tensor) -> None:
            if p.grad is None:
                return
            gradient = self.gradients[name]
            if self._has_gradient[name]:
                gradient.add_(p.grad)
            else:
                gradient.copy_(p.grad)
                self._has_gradient[name] = True
            p.grad = None

        return add

    def begin_step(self) -> None:
        """Forget the gradients of the step before."""
        self._has_gradient = dict.fromkeys(self.trained_names, False)

    @property
    def has_gradient(self) -> list[bool]:
        """Which of `trained_names` have a gradient in this step."""
        return list(self._has_gradient.values())

    def finish_backward(self, has_gradient_anywhere: Sequence[bool]) -> None:
        """End a step's backwards.

        What no process reached has no gradient; what only other processes reached is zero here.
        """
        for name, here, anywhere in zip(
            self.trained_names, self.has_gradient, has_gradient_anywhere, strict=True
        ):
            if not here:
                self.gradients[name].zero_()
            self.masters[name].grad = self.gradients[name] if anywhere else None
            self._has_gradient[name] = anywhere

    def gradient_norm(self) -> Float[Tensor, ""]:
        """The length of the gradients of the step, as one vector."""
        if not self.trained_names:
            return torch.zeros(())
        norms = torch._foreach_norm(  # pyright: ignore[reportPrivateUsage]
            list(self.gradients.values())
        )
        return torch.linalg.vector_norm(torch.stack(norms))

    def clip_gradients(self, gradient_norm: float, max_grad_norm: float) -> None:
        """Scale them down to `max_grad_norm`; 0: never (Pascanu et al. 2013, arXiv:1211.5063)."""
        if 0 < max_grad_norm < gradient_norm:
            self.flat_gradient.mul_(max_grad_norm / gradient_norm)

    def copy_to_model(self) -> None:
        """Copy the masters to the model."""
        if self.dtype != torch.float32:
            names = list(self.parameters)
            with torch.no_grad():
                torch._foreach_copy_(  # pyright: ignore[reportPrivateUsage]
                    [self.parameters[n].data for n in names], [self.masters[n] for n in names]
                )

    def restore_model(self) -> None:
        """Give the model its float32 numbers and leave it as it was found: training is over."""
        for hook in self._hooks:
            hook.remove()
        for name, p in self.parameters.items():
            p.data = self.masters[name]
            self.masters[name].grad = None


@runtime_checkable
class Optimizer(Protocol):
    """What changes masters by their gradients."""

    def step(self, learning_rate: float) -> None:
        """Take one step at the learning rate `learning_rate`."""
        ...

    def state_tensors(self) -> dict[str, Tensor]:
        """Everything that it remembers from step to step, by name."""
        ...

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Remember what `state_tensors` of another process said; the exact inverse."""
        ...


@runtime_checkable
class AveragingOptimizer(Protocol):
    """An optimizer that may keep the mean of the weights, to be used in their place."""

    def update_dev_loss(self, loss: float) -> None:
        """Take note of the loss on held-out text."""
        ...

    @property
    def averaged_weights(self) -> Mapping[str, Tensor]:
        """The mean of each tensor, by name; none: it keeps none."""
        ...


def build_optimizer(
    config: training_config.OptimizerConfig,
    model: nn.Module,
    weights: MasterWeights,
    *,
    learning_rate_factors: Mapping[str, float] | None = None,
) -> Optimizer:
    """Build the optimizer of a model's weights.

    Args:
        config: which, with its numbers.
        model: says which tensors are hidden matrices, for Muon.
        weights: the masters that are moved.
        learning_rate_factors: factors of the learning rate by parameter name, 1 for those not
            named (discriminative rates).
    """
    parts = [
        OptimizedTensor(
            name=name,
            master=weights.masters[name],
            has_weight_decay=uses_weight_decay(name, weights.masters[name]),
            learning_rate_factor=1.0
            if learning_rate_factors is None
            else learning_rate_factors.get(name, 1.0),
        )
        for name in weights.trained_names
    ]
    if isinstance(config, training_config.AdamW):
        return AdamWOptimizer(config, parts)
    if isinstance(config, training_config.LAMB):
        return LAMBOptimizer(config, parts)
    if isinstance(config, training_config.Adafactor):
        return AdafactorOptimizer(config, parts)
    if isinstance(config, training_config.SGD):
        return SGDOptimizer(config, parts)
    matrices = hidden_matrix_names(model)
    return MuonOptimizer(
        config,
        [part for part in parts if part.name in matrices],
        AdamWOptimizer(
            config.other_parameters, [part for part in parts if part.name not in matrices]
        ),
        weights.dtype,
    )


@dataclass(frozen=True, kw_only=True)
class OptimizedTensor:
    """One tensor that an optimizer moves."""

    name: str
    master: Tensor
    has_weight_decay: bool
    learning_rate_factor: float
    """Factor of the learning rate."""


def uses_weight_decay(name: str, tensor: Tensor) -> bool:
    """Say whether weight decay applies: to matrices and tables, not to biases, norms and vectors.

    BERT's rule (released code, `optimization.py`, `exclude_from_weight_decay`), by shape instead of
    by name.
    """
    return tensor.ndim >= 2 and name.rsplit(".", 1)[-1] != "bias"


def hidden_matrix_names(model: nn.Module) -> frozenset[str]:
    """Name the weights of linear maps in layers: no table, and nothing of a head but its layers."""
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    linear = {id(m.weight) for m in model.modules() if isinstance(m, nn.Linear)} - tables
    return frozenset(
        name
        for name, p in model.named_parameters()
        if id(p) in linear
        and (name.split(".", 1)[0] not in ("heads", "head") or ".layers." in name)
    )


class OptimizerState:
    """What an optimizer remembers from step to step of each tensor that it has ever moved."""

    def __init__(
        self, optimized_tensors: Iterable[OptimizedTensor], state_names: tuple[str, ...]
    ) -> None:
        self.optimized_tensors, self._state_names = list(optimized_tensors), state_names
        self._state: dict[str, dict[str, Tensor]] = {}

    def state_of(self, optimized: OptimizedTensor) -> dict[str, Tensor]:
        """Everything of one tensor; zeros at first: see `_initial_state`."""
        if optimized.name not in self._state:
            self._state[optimized.name] = {
                key: _initial_state(key, optimized.master) for key in self._state_names
            }
        return self._state[optimized.name]

    def state_tensors(self) -> dict[str, Tensor]:
        """Everything, by name."""
        return {f"{name}.{key}": t for name, kept in self._state.items() for key, t in kept.items()}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Remember what `state_tensors` said, copied into memory that is aligned as all of ours is.

        Raises:
            ValueError: this is another optimizer's memory, or another model's.
        """
        self._state = {}
        known = {
            f"{part.name}.{key}": (part, key)
            for part in self.optimized_tensors
            for key in self._state_names
        }
        for name, tensor in tensors.items():
            if name not in known:
                raise ValueError(
                    f"the optimizer's memory does not fit this model and optimizer: {name!r}"
                )
            part, key = known[name]
            mine = self.state_of(part)[key]
            if mine.shape != tensor.shape:
                raise ValueError(
                    f"the optimizer's memory does not fit this model: {name!r} has shape "
                    f"{list(tensor.shape)}, not {list(mine.shape)}"
                )
            mine.copy_(tensor)


def _initial_state(key: str, like: Tensor) -> Tensor:
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


class AdamWOptimizer:
    """torch's fused AdamW."""

    def __init__(
        self, config: training_config.AdamW, optimized_tensors: Iterable[OptimizedTensor]
    ) -> None:
        self._config = config
        self._state = OptimizerState(optimized_tensors, ("step", "mean", "square"))
        self._groups: dict[tuple[bool, float], list[OptimizedTensor]] = {}
        for part in self._state.optimized_tensors:
            self._groups.setdefault((part.has_weight_decay, part.learning_rate_factor), []).append(
                part
            )

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Take one step at the learning rate `learning_rate`."""
        for (decays, factor), parts in self._groups.items():
            reached = [part for part in parts if part.master.grad is not None]
            memories = [self._state.state_of(part) for part in reached]
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
                lr=learning_rate * factor,
                weight_decay=self._config.weight_decay if decays else 0.0,
                eps=self._config.eps,
                maximize=False,
            )

    def state_tensors(self) -> dict[str, Tensor]:
        """Both moments and the number of steps of each tensor that was ever moved."""
        return self._state.state_tensors()

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Remember what `state_tensors` said."""
        self._state.load_state(tensors)


class LAMBOptimizer:
    """LAMB: You et al. 2020, algorithm 2, with the norm itself as phi and Adam's bias correction.

    Biases, norms and other vectors are neither decayed nor scaled to their norm (released code,
    `LAMBOptimizer`).
    """

    def __init__(
        self, config: training_config.LAMB, optimized_tensors: Iterable[OptimizedTensor]
    ) -> None:
        self._config = config
        self._state = OptimizerState(optimized_tensors, ("step", "mean", "square"))

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Take one step at the learning rate `learning_rate`."""
        for part in self._state.optimized_tensors:
            if part.master.grad is not None:
                self._update(part, part.master.grad, learning_rate * part.learning_rate_factor)

    def _update(self, optimized: OptimizedTensor, gradient: Tensor, learning_rate: float) -> None:
        beta1, beta2 = self._config.betas
        memory = self._state.state_of(optimized)
        n = memory["step"].add_(1).double()
        mean = memory["mean"].mul_(beta1).add_(gradient, alpha=1 - beta1)
        square = memory["square"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        scale = (square / (1 - beta2**n)).sqrt_().add_(self._config.eps)
        update = (mean / (1 - beta1**n)).div_(scale)
        if not optimized.has_weight_decay:
            optimized.master.add_(update, alpha=-learning_rate)
            return
        update.add_(optimized.master, alpha=self._config.weight_decay)
        long, wide = torch.linalg.vector_norm(optimized.master), torch.linalg.vector_norm(update)
        trust = torch.where((long > 0) & (wide > 0), long / wide, torch.ones_like(long))
        optimized.master.sub_(update.mul_(trust * learning_rate))

    def state_tensors(self) -> dict[str, Tensor]:
        """Both moments and the number of steps of each tensor that was ever moved."""
        return self._state.state_tensors()

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Remember what `state_tensors` said."""
        self._state.load_state(tensors)


class AdafactorOptimizer:
    """torch's Adafactor: what is remembered of a matrix is as long as its sides together."""

    def __init__(
        self, config: training_config.Adafactor, optimized_tensors: Iterable[OptimizedTensor]
    ) -> None:
        self._config, optimized_tensors = config, list(optimized_tensors)
        self._matrix_state = OptimizerState(
            [p for p in optimized_tensors if p.master.ndim > 1], _MATRIX_STATE_NAMES
        )
        self._vector_state = OptimizerState(
            [p for p in optimized_tensors if p.master.ndim <= 1], ("count", "square")
        )

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Take one step at the relative rate `learning_rate`."""
        for memory in (self._matrix_state, self._vector_state):
            groups: dict[tuple[bool, float], list[OptimizedTensor]] = {}
            for part in memory.optimized_tensors:
                if part.master.grad is not None:
                    groups.setdefault(
                        (part.has_weight_decay, part.learning_rate_factor), []
                    ).append(part)
            for (decays, factor), reached in groups.items():
                self._update(
                    memory,
                    reached,
                    learning_rate * factor,
                    self._config.weight_decay if decays else 0.0,
                )

    def _update(
        self,
        state: OptimizerState,
        optimized_tensors: list[OptimizedTensor],
        learning_rate: float,
        weight_decay: float,
    ) -> None:
        kept = [state.state_of(part) for part in optimized_tensors]
        # The function behind torch.optim.Adafactor, as with AdamW.
        adafactor(
            [part.master for part in optimized_tensors],
            [part.master.grad for part in optimized_tensors if part.master.grad is not None],
            [one.get("rows") for one in kept],
            [one.get("columns") for one in kept],
            [one.get("square") for one in kept],
            [one["count"] for one in kept],
            d=self._config.clip_threshold,
            lr=learning_rate,
            beta2_decay=-self._config.decay_rate,
            weight_decay=weight_decay,
            eps1=self._config.eps,
            eps2=self._config.min_parameter_scale,
            maximize=False,
        )

    def state_tensors(self) -> dict[str, Tensor]:
        """Sums of squares and the number of steps of each tensor that was ever moved."""
        return self._matrix_state.state_tensors() | self._vector_state.state_tensors()

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Remember what `state_tensors` said."""
        names = tuple(f"{part.name}." for part in self._vector_state.optimized_tensors)
        vectors = {name: t for name, t in tensors.items() if name.startswith(names)}
        self._vector_state.load_state(vectors)
        self._matrix_state.load_state(
            {name: t for name, t in tensors.items() if name not in vectors}
        )


_MATRIX_STATE_NAMES = ("count", "rows", "columns")


class SGDOptimizer:
    """Gradient descent, with the mean of the weights once evaluations no longer get better."""

    def __init__(
        self, config: training_config.SGD, optimized_tensors: Iterable[OptimizedTensor]
    ) -> None:
        self._config, optimized_tensors = config, list(optimized_tensors)
        self._momentum_state = OptimizerState(
            optimized_tensors, ("velocity",) if config.momentum else ()
        )
        self._average_state = OptimizerState(optimized_tensors, ("mean",))
        self._dev_losses: list[float] = []
        self._n_averaged_steps: int | None = None
        """Steps whose weights are in the mean; None: there is none yet."""

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Take one step at the learning rate `learning_rate`."""
        for part in self._momentum_state.optimized_tensors:
            if part.master.grad is not None:
                self._update(part, part.master.grad, learning_rate * part.learning_rate_factor)
        if self._n_averaged_steps is not None:
            self._n_averaged_steps += 1
            for part in self._average_state.optimized_tensors:
                self._average_state.state_of(part)["mean"].lerp_(
                    part.master, 1 / self._n_averaged_steps
                )

    def _update(self, optimized: OptimizedTensor, gradient: Tensor, learning_rate: float) -> None:
        if self._config.momentum:
            velocity = self._momentum_state.state_of(optimized)["velocity"]
            gradient = velocity.mul_(self._config.momentum).add_(gradient)
        if optimized.has_weight_decay:
            optimized.master.mul_(1 - learning_rate * self._config.weight_decay)
        optimized.master.add_(gradient, alpha=-learning_rate)

    def update_dev_loss(self, loss: float) -> None:
        """Take note of the loss on held-out text; begin the mean where it is time to."""
        patience = self._config.averaging_patience
        if patience is None:
            return
        before = self._dev_losses[:-patience]
        if self._n_averaged_steps is None and before and loss > min(before):
            self._n_averaged_steps = 0
        self._dev_losses.append(loss)

    @property
    def averaged_weights(self) -> Mapping[str, Tensor]:
        """The mean of each tensor over the steps since evaluations no longer got better."""
        if not self._n_averaged_steps:
            return {}
        return {
            part.name: self._average_state.state_of(part)["mean"]
            for part in self._average_state.optimized_tensors
        }

    def state_tensors(self) -> dict[str, Tensor]:
        """What each tensor was moved by, its mean, the losses heard and the steps averaged."""
        said = torch.tensor(self._dev_losses, dtype=torch.float64)
        taken = torch.tensor(-1 if self._n_averaged_steps is None else self._n_averaged_steps)
        own = (
            {_DEV_LOSSES_KEY: said, _N_AVERAGED_KEY: taken}
            if self._config.averaging_patience
            else {}
        )
        return self._momentum_state.state_tensors() | self._average_state.state_tensors() | own

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Remember what `state_tensors` said."""
        left = dict(tensors)
        if self._config.averaging_patience:
            self._dev_losses = left.pop(_DEV_LOSSES_KEY, torch.zeros(0)).tolist()
            taken = int(left.pop(_N_AVERAGED_KEY, torch.tensor(-1)))
            self._n_averaged_steps = None if taken < 0 else taken
        means = {name: t for name, t in left.items() if name.endswith(".mean")}
        self._average_state.load_state(means)
        self._momentum_state.load_state({name: t for name, t in left.items() if name not in means})


_DEV_LOSSES_KEY, _N_AVERAGED_KEY = "heard", "taken"


class MuonOptimizer:
    """Muon for hidden matrices, AdamW for the rest.

    An update is Nesterov momentum, made near-orthogonal (Jordan et al. 2024), times
    0.2 sqrt(max(rows, columns)), so that its root mean square is AdamW's (Liu et al. 2025,
    equation 4).
    """

    def __init__(
        self,
        config: training_config.Muon,
        optimized_tensors: Iterable[OptimizedTensor],
        other_optimizer: AdamWOptimizer,
        dtype: torch.dtype,
    ) -> None:
        self._config, self._other_optimizer, self._dtype = config, other_optimizer, dtype
        self._state = OptimizerState(optimized_tensors, ("momentum",))

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Take one step at the learning rate `learning_rate`."""
        for part in self._state.optimized_tensors:
            if part.master.grad is not None:
                self._update(part, part.master.grad, learning_rate * part.learning_rate_factor)
        self._other_optimizer.step(learning_rate)

    def _update(self, optimized: OptimizedTensor, gradient: Tensor, learning_rate: float) -> None:
        beta = self._config.momentum
        momentum = self._state.state_of(optimized)["momentum"].mul_(beta).add_(gradient)
        update = orthogonalize(torch.add(gradient, momentum, alpha=beta), self._dtype)
        optimized.master.mul_(1 - learning_rate * self._config.weight_decay)
        optimized.master.add_(
            update, alpha=-learning_rate * 0.2 * math.sqrt(max(optimized.master.shape))
        )

    def state_tensors(self) -> dict[str, Tensor]:
        """The momentum of each matrix, and what AdamW remembers of the rest."""
        return self._state.state_tensors() | self._other_optimizer.state_tensors()

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Remember what `state_tensors` said."""
        mine = {name: t for name, t in tensors.items() if name.endswith(".momentum")}
        self._state.load_state(mine)
        self._other_optimizer.load_state(
            {name: t for name, t in tensors.items() if name not in mine}
        )


def orthogonalize(
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
