"""LoRA: learned low-rank updates of linear maps."""

import math
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.hooks import RemovableHandle

from unmask.adapters.attach import Attachment, add_submodule, apply_to_rows, find_linears
from unmask.adapters.tuning_method import TuningMethod
from unmask.config import check_number_fields
from unmask.heads.model import Model
from unmask.model.layers.feed_forward import Dropout


@dataclass(frozen=True, kw_only=True)
class LoRA(TuningMethod):
    """y + alpha/rank · B A x in place of y, for linear maps of the backbone.

    Hu et al. 2021, arXiv:2106.09685, section 4.1.
    """

    rank: int = 8
    alpha: float = 16.0
    """The update is scaled by alpha / rank: 16 / 8 is what PEFT's examples use."""
    dropout: float = 0.0
    """Dropout of x in training (released code)."""
    target_modules: tuple[str, ...] = ("attention.q", "attention.v")
    """Patterns of the linear maps; see `attach.find_linears`. Queries and values of self-attention
    were the best two matrices to adapt (section 7.1)."""

    def __post_init__(self) -> None:
        check_number_fields(self)
        if self.rank < 1:
            raise ValueError(f"rank must be at least 1, got {self.rank}")
        if not 0 < self.alpha < math.inf:
            raise ValueError(f"alpha must be above 0 and finite, got {self.alpha}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout}")
        if not self.target_modules:
            raise ValueError("target_modules must name linear maps, got none")

    def build(self, model: Model) -> "LoRAModule":
        """Build the matrices of a model."""
        return LoRAModule(self, model)


class LoRALayer(nn.Module):
    """The low-rank update of one linear map."""

    def __init__(self, spec: LoRA, linear: nn.Linear) -> None:
        super().__init__()
        self.scale = spec.alpha / spec.rank
        self.dropout = Dropout(spec.dropout)
        self.down = nn.Parameter(torch.empty(spec.rank, linear.in_features))
        """A of the paper."""
        self.up = nn.Parameter(torch.zeros(linear.out_features, spec.rank))
        """B of the paper, initialized to zero, so that the model is unchanged."""
        # Deviates: the paper has N(0, σ²) without a value of σ; this is the released code's, and
        # PEFT's.
        nn.init.kaiming_uniform_(self.down, a=5**0.5)

    def forward(self, y: Float[Tensor, "*b f"], x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b f"]:
        """Add to y, the output of the linear map for x."""
        inner = F.linear(self.dropout(x), self.down) * self.scale
        # one pass over memory instead of two
        total = torch.addmm(y.flatten(0, -2), inner.flatten(0, -2), self.up.T)
        return total.view(y.shape)

    def delta_weight(self) -> Float[Tensor, "f d"]:
        """Return the update of the map's matrix."""
        return self.up @ self.down * self.scale


class LoRAModule(nn.Module):
    """A LoRALayer for each linear map, under its name."""

    def __init__(self, spec: LoRA, model: Model) -> None:
        super().__init__()
        self.spec = spec
        self.attachment = Attachment()
        self.supports_row_selection = True
        for name, linear in find_linears(model, spec.target_modules).items():
            add_submodule(self, name, LoRALayer(spec, linear))

    @property
    def layers(self) -> dict[str, LoRALayer]:
        """The update of each linear map, by the map's name."""
        return {name: m for name, m in self.named_modules() if isinstance(m, LoRALayer)}

    def register_hooks(self, model: Model) -> list[RemovableHandle]:
        """Add to the outputs of the linear maps."""
        return [
            model.get_submodule(name).register_forward_hook(partial(self._add_update, part))
            for name, part in self.layers.items()
        ]

    def _add_update(
        self, part: LoRALayer, linear: nn.Module, args: tuple[Tensor, ...], out: Tensor
    ) -> Tensor:
        return apply_to_rows(self.attachment.rows, part, out, args[0])

    def merged_weights(self, model: Model) -> dict[str, Tensor]:
        """Return W + alpha/rank · B A for each linear map."""
        weights = {name: f"{name}.weight" for name in self.layers}
        return {
            key: model.get_parameter(key) + self.layers[name].delta_weight()
            for name, key in weights.items()
        }
