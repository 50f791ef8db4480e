"""(IA)3: learned factors of keys, values and the feed-forward's inner activations."""

from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from unmask.adapters.attach import Attachment, linears, on_rows, put
from unmask.heads.model import Model


@dataclass(frozen=True, kw_only=True)
class IA3:
    """A factor for each number that some linear maps return, or read.

    Liu et al. 2022, arXiv:2205.05638, section 3.3.
    """

    where: tuple[str, ...] = ("k", "v")
    """Patterns of the linear maps whose outputs are scaled; see `attach.linears`. Keys and values
    of every attention."""
    inputs: tuple[str, ...] = ("feed_forward.down",)
    """Patterns of those whose inputs are: the inner activations of the feed-forward."""

    def __post_init__(self) -> None:
        if not self.where and not self.inputs:
            raise ValueError("where and inputs name no linear map; one of them must")

    def build(self, model: Model) -> "IA3Module":
        """Build the factors of a model.

        Raises:
            ValueError: the output and the input of one linear map would be scaled.
        """
        return IA3Module(self, model)


class Factors(nn.Module):
    """The factors of one vector: ones at first, so that nothing is changed."""

    def __init__(self, width: int, *, of_input: bool) -> None:
        super().__init__()
        self.factors = nn.Parameter(torch.ones(width))
        self.of_input = of_input

    def forward(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        """Scale."""
        return x * self.factors


class IA3Module(nn.Module):
    """Factors for each linear map, under the map's own name."""

    def __init__(self, spec: IA3, model: Model) -> None:
        super().__init__()
        self.spec = spec
        self.attachment = Attachment()
        self.mixes = True
        outputs, inputs = linears(model, spec.where), linears(model, spec.inputs)
        if both := sorted(outputs.keys() & inputs.keys()):
            raise ValueError(f"{both[0]} is in both `where` and `inputs`; scale one side of it")
        for name, linear in outputs.items():
            put(self, name, Factors(linear.out_features, of_input=False))
        for name, linear in inputs.items():
            put(self, name, Factors(linear.in_features, of_input=True))

    @property
    def parts(self) -> dict[str, Factors]:
        """The factors, by the names of the linear maps."""
        return {name: m for name, m in self.named_modules() if isinstance(m, Factors)}

    def hook(self, model: Model) -> list[RemovableHandle]:
        """Scale what the linear maps read or return."""
        hooks: list[RemovableHandle] = []
        for name, part in self.parts.items():
            linear = model.get_submodule(name)
            if part.of_input:
                hooks.append(linear.register_forward_pre_hook(partial(self._before, part)))
            else:
                hooks.append(linear.register_forward_hook(partial(self._after, part)))
        return hooks

    def _before(self, part: Factors, linear: nn.Module, args: tuple[Tensor, ...]) -> Tensor:
        return on_rows(self.attachment.rows, part, args[0])

    def _after(
        self, part: Factors, linear: nn.Module, args: tuple[Tensor, ...], out: Tensor
    ) -> Tensor:
        return on_rows(self.attachment.rows, part, out)

    def merged(self, model: Model) -> dict[str, Tensor]:
        """Return weights, and biases of scaled outputs, times their factors."""
        found: dict[str, Tensor] = {}
        for name, part in self.parts.items():
            linear = model.get_submodule(name)
            assert isinstance(linear, nn.Linear)
            by = part.factors
            found[f"{name}.weight"] = linear.weight * (by if part.of_input else by[:, None])
            if "bias" in dict(linear.named_parameters()) and not part.of_input:
                found[f"{name}.bias"] = linear.bias * by
        return found
