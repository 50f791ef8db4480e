"""Parameters in one buffer of float32, and their gradients in another."""

from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unmask.compression.while_training import WeightTransform
from unmask.training.device.divided_tensors import divided_like, norm_over_parts, own_part

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

    With `transforms`, the model's own parameters are what they make of the masters.

    Parameters that are divided among processes (`unmask.training.device.sharding`) have masters and
    gradients that are divided alike; their own precision is float32.
    """

    def __init__(
        self,
        model: nn.Module,
        dtype: torch.dtype = torch.float32,
        transforms: Sequence[WeightTransform] = (),
    ) -> None:
        self.dtype, self.transforms = dtype, tuple(transforms)
        self.parameters: dict[str, nn.Parameter] = dict(model.named_parameters())
        self.masters: dict[str, Float[Tensor, "..."]] = {}
        for name, p in self.parameters.items():
            self.masters[name] = p.detach().float()  # in float32, the same memory
            if self._is_copied(name) or p.dtype != torch.float32:
                p.data = self.masters[name].to(dtype, copy=self._is_copied(name))
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
            size += -(-own_part(self.masters[name]).numel() // _ALIGNMENT) * _ALIGNMENT
        device = self.masters[self.trained_names[0]].device if self.trained_names else None
        flat = torch.zeros(size, dtype=torch.float32, device=device)
        views: dict[str, Tensor] = {}
        for name, start in starts.items():
            part = own_part(self.masters[name])
            view = flat[start : start + part.numel()].view(part.shape)
            views[name] = divided_like(view, self.masters[name])
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

    def _is_copied(self, name: str) -> bool:
        """Whether the model's own parameter is not the master itself."""
        return self.dtype != torch.float32 or any(name in one.names for one in self.transforms)

    def begin_step(self) -> None:
        """Forget the gradients of the step before, and what the transforms measured in it."""
        self._has_gradient = dict.fromkeys(self.trained_names, False)
        for transform in self.transforms:
            transform.begin_step()

    @property
    def has_gradient(self) -> list[bool]:
        """Which of `trained_names` have a gradient in this step."""
        return list(self._has_gradient.values())

    @property
    def has_nonzero_gradient(self) -> list[bool]:
        """Which of `trained_names` have a gradient that is not zero in the part held here."""
        parts = [own_part(self.gradients[name]) for name in self.trained_names]
        return [bool((part != 0).any()) for part in parts]

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

    def backward_through_transforms(self) -> None:
        """Turn the gradients of what the model computed with into those of the masters."""
        for transform in reversed(self.transforms):
            for name in self.trained_names:
                if self._has_gradient[name] and name in transform.names:
                    transform.backward(name, self.masters[name], self.gradients[name])

    def gradient_norm(self) -> Float[Tensor, ""]:
        """The length of the gradients of the step, as one vector."""
        if not self.trained_names:
            return torch.zeros(())
        norms = torch._foreach_norm(  # pyright: ignore[reportPrivateUsage]
            [own_part(gradient) for gradient in self.gradients.values()]
        )
        own = torch.linalg.vector_norm(torch.stack(norms))
        return norm_over_parts(own, self.masters[self.trained_names[0]])

    def clip_gradients(self, gradient_norm: float, max_grad_norm: float) -> None:
        """Scale them down to `max_grad_norm`; 0: never (Pascanu et al. 2013, arXiv:1211.5063)."""
        if 0 < max_grad_norm < gradient_norm:
            self.flat_gradient.mul_(max_grad_norm / gradient_norm)

    def update_transforms(self, step: int, n_steps: int) -> None:
        """Prepare the transforms for a step, counted from 1 to n_steps."""
        for transform in self.transforms:
            transform.update(self.masters, min(step, n_steps), n_steps)

    def step_transforms(self, learning_rate_factor: float) -> None:
        """Change what the transforms learn themselves."""
        for transform in self.transforms:
            transform.take_step(learning_rate_factor)

    def transformed(self, name: str) -> Float[Tensor, "..."]:
        """Return what the model computes with, in float32: the master, or what is made of it."""
        weight = self.masters[name]
        for transform in self.transforms:
            if name in transform.names:
                weight = transform.forward(name, weight)
        return weight

    def copy_to_model(self) -> None:
        """Copy the masters, or what the transforms make of them, to the model."""
        if self.dtype == torch.float32 and not self.transforms:
            return
        names = [name for name in self.parameters if self._is_copied(name)]
        with torch.no_grad():
            torch._foreach_copy_(  # pyright: ignore[reportPrivateUsage]
                [self.parameters[n].data for n in names], [self.transformed(n) for n in names]
            )

    def transform_state(self) -> dict[str, Tensor]:
        """Return what a checkpoint needs of the transforms."""
        return {
            f"{i}.{name}": x
            for i, transform in enumerate(self.transforms)
            for name, x in transform.state_tensors().items()
        }

    def load_transform_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `transform_state` returned.

        Raises:
            ValueError: it is of other methods.
        """
        for i, transform in enumerate(self.transforms):
            own = f"{i}."
            try:
                transform.load_state(
                    {n.removeprefix(own): x for n, x in tensors.items() if n.startswith(own)}
                )
            except KeyError as error:
                raise ValueError(
                    f"the checkpoint lacks {error.args[0]} of the compression"
                ) from None

    def restore_model(self) -> None:
        """Copy the float32 weights, as the model computes with them, and release it."""
        for hook in self._hooks:
            hook.remove()
        for name, p in self.parameters.items():
            if self._is_copied(name):
                p.data = self.transformed(name)
            self.masters[name].grad = None
