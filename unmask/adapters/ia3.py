"""(IA)3: learned factors of keys, values and the feed-forward's inner activations."""

from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from unmask.adapters.attach import Attachment, add_submodule, apply_to_rows, find_linears
from unmask.adapters.tuning_method import TuningMethod
from unmask.heads.model import Model


@dataclass(frozen=True, kw_only=True)
class IA3(TuningMethod):
    """Learned factors of the outputs or inputs of linear maps.

    Liu et al. 2022, arXiv:2205.05638, section 3.3.
    """

    target_modules: tuple[str, ...] = ("k", "v")
    """Patterns of the linear maps whose outputs are scaled; see `attach.find_linears`. Default:
    keys and values of every attention."""
    feedforward_modules: tuple[str, ...] = ("feed_forward.down",)
    """Patterns of those whose inputs are scaled: the inner activations of the feed-forward."""

    def __post_init__(self) -> None:
        if not self.target_modules and not self.feedforward_modules:
            raise ValueError("target_modules or feedforward_modules must name linear maps")

    def build(self, model: Model) -> "IA3Module":
        """Build the factors of a model.

        Raises:
            ValueError: the output and the input of one linear map would be scaled.
        """
        return IA3Module(self, model)


class IA3Scaling(nn.Module):
    """The factors of one vector, initialized to ones, so that the model is unchanged."""

    def __init__(self, width: int, *, scales_input: bool) -> None:
        super().__init__()
        self.factors = nn.Parameter(torch.ones(width))
        self.scales_input = scales_input

    def forward(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        """Scale."""
        return x * self.factors


class IA3Module(nn.Module):
    """Factors of each linear map, under its name."""

    def __init__(self, spec: IA3, model: Model) -> None:
        super().__init__()
        self.spec = spec
        self.attachment = Attachment()
        self.supports_row_selection = True
        outputs, inputs = (
            find_linears(model, spec.target_modules),
            find_linears(model, spec.feedforward_modules),
        )
        if both := sorted(outputs.keys() & inputs.keys()):
            raise ValueError(f"{both[0]} is in both target_modules and feedforward_modules")
        for name, linear in outputs.items():
            add_submodule(self, name, IA3Scaling(linear.out_features, scales_input=False))
        for name, linear in inputs.items():
            add_submodule(self, name, IA3Scaling(linear.in_features, scales_input=True))

    @property
    def scalings(self) -> dict[str, IA3Scaling]:
        """The factors, by the names of the linear maps."""
        return {name: m for name, m in self.named_modules() if isinstance(m, IA3Scaling)}

    def register_hooks(self, model: Model) -> list[RemovableHandle]:
        """Scale the inputs or outputs of the linear maps."""
        hooks: list[RemovableHandle] = []
        for name, part in self.scalings.items():
            linear = model.get_submodule(name)
            if part.scales_input:
                hooks.append(linear.register_forward_pre_hook(partial(self._scale_input, part)))
            else:
                hooks.append(linear.register_forward_hook(partial(self._scale_output, part)))
        return hooks

    def _scale_input(self, part: IA3Scaling, linear: nn.Module, args: tuple[Tensor, ...]) -> Tensor:
        return apply_to_rows(self.attachment.rows, part, args[0])

    def _scale_output(
        self, part: IA3Scaling, linear: nn.Module, args: tuple[Tensor, ...], out: Tensor
    ) -> Tensor:
        return apply_to_rows(self.attachment.rows, part, out)

    def merged_weights(self, model: Model) -> dict[str, Tensor]:
        """Return weights, and biases of scaled outputs, times their factors."""
        weights: dict[str, Tensor] = {}
        for name, part in self.scalings.items():
            linear = model.get_submodule(name)
            assert isinstance(linear, nn.Linear)
            factor = part.factors
            weights[f"{name}.weight"] = linear.weight * (
                factor if part.scales_input else factor[:, None]
            )
            if "bias" in dict(linear.named_parameters()) and not part.scales_input:
                weights[f"{name}.bias"] = linear.bias * factor
        return weights
