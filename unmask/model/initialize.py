"""Weight initialization: one value for each published scheme.

Each is a function of a module and its name.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from unmask.model.layers.feed_forward import AttentionDimensions, ModelDimensions, OffsetRMSNorm

_TORCH_FILLS = {
    getattr(nn.init, name)
    for name in ("constant_", "kaiming_uniform_", "normal_", "ones_", "uniform_", "zeros_")
}


class WithoutFilling(TorchFunctionMode):
    """While it is entered, torch's modules are made without values.

    For modules on the meta device, which hold none: there, too, half of the time of making a
    module goes into drawing them.
    """

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Give back the tensor that a function of `torch.nn.init` would fill."""
        given = kwargs or {}
        if func in _TORCH_FILLS:
            return args[0] if args else given["tensor"]
        return func(*args, **given)


def _init_norms_and_biases(module: nn.Module) -> None:
    """Initialize norms to the identity, biases to zero."""
    if isinstance(module, nn.LayerNorm | nn.RMSNorm) and module.elementwise_affine:
        begin = 1 - module.offset if isinstance(module, OffsetRMSNorm) else 1.0
        nn.init.constant_(module.weight, begin)
    bias = getattr(module, "bias", None)
    if isinstance(bias, nn.Parameter):
        nn.init.zeros_(bias)


@dataclass(frozen=True)
class NormalInit:
    """Every matrix from N(0, std).

    With `truncated`, cut at two standard deviations (BERT's released code).
    """

    std: float = 0.02
    truncated: bool = False
    n_residual_branches: int = 0
    """The number of residual branches n: projections into the residual stream have
    std / sqrt(n), as in GPT-2 (Radford et al. 2019, section 2.3). 0: like every other matrix."""

    def __post_init__(self) -> None:
        if not 0 <= self.std < math.inf:
            raise ValueError(f"initializer.std must be a number, at least 0, got {self.std}")

    def __call__(self, name: str, module: nn.Module, dimensions: ModelDimensions) -> None:
        """Fill the parameters that `module` itself owns."""
        _init_norms_and_biases(module)
        if not isinstance(module, nn.Linear | nn.Embedding | nn.Conv1d | nn.Conv2d):
            return
        into = name.endswith(("attention.o", "cross.o", "feed_forward.down"))
        std = (
            self.std / self.n_residual_branches**0.5
            if self.n_residual_branches and into
            else self.std
        )
        if self.truncated:
            nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
        else:
            nn.init.normal_(module.weight, std=std)


@dataclass(frozen=True)
class FanInInit:
    """Every matrix from N(0, 1/sqrt(inputs)).

    Raffel et al. 2020 do not specify it; this is Mesh TensorFlow's initializer for the released
    models.
    """

    embedding_std: float = 1.0
    scale_queries: bool = True
    """Whether query matrices are also scaled by 1/sqrt(e), as in T5, which does not scale
    scores."""

    def __call__(self, name: str, module: nn.Module, dimensions: ModelDimensions) -> None:
        """Fill the parameters that `module` itself owns."""
        _init_norms_and_biases(module)
        if isinstance(module, nn.Embedding):
            table = name.endswith(".table")
            nn.init.normal_(
                module.weight, std=dimensions.d_model**-0.5 if table else self.embedding_std
            )
        elif isinstance(module, nn.Linear):
            std = module.in_features**-0.5
            if self.scale_queries and name.endswith(".q"):
                assert isinstance(dimensions, AttentionDimensions)
                std *= dimensions.d_head**-0.5
            nn.init.normal_(module.weight, std=std)


@dataclass(frozen=True)
class SmallInit:
    """Every matrix from N(0, sqrt(2 / (5 d))), d = d_model, truncated at twice that.

    Nguyen and Salazar 2019, arXiv:1910.05895, section 2.2 (SmallInit). Those of the feed-forward of
    layer i, from 1, are divided by sqrt(2 i) (Bajaj et al. 2022, arXiv:2204.06644; Samuel et al.
    2023, arXiv:2303.09859).
    """

    def __call__(self, name: str, module: nn.Module, dimensions: ModelDimensions) -> None:
        """Fill the parameters that `module` itself owns."""
        _init_norms_and_biases(module)
        if not isinstance(module, nn.Linear | nn.Embedding | nn.Conv1d | nn.Conv2d):
            return
        std = (2 / (5 * dimensions.d_model)) ** 0.5
        nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
        layer = re.search(r"layers\.(\d+)\.feed_forward\.\w+$", name)
        if layer is not None:
            with torch.no_grad():
                module.weight.div_((2 * (1 + int(layer[1]))) ** 0.5)


@dataclass(frozen=True)
class GlorotInit:
    """Every matrix uniform, its variance 2 / (inputs + outputs); vectors from N(0, 1/sqrt(d)).

    Glorot and Bengio 2010, proceedings.mlr.press/v9/glorot10a, equation 16. Vaswani et al. 2017 do
    not specify it; this is their released code's (`uniform_unit_scaling` with a gain of 1), whose
    token embeddings are then scaled to 1 by the square root of d.
    """

    def __call__(self, name: str, module: nn.Module, dimensions: ModelDimensions) -> None:
        """Fill the parameters that `module` itself owns."""
        _init_norms_and_biases(module)
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=dimensions.d_embed**-0.5)
        elif isinstance(module, nn.Linear | nn.Conv1d):
            nn.init.xavier_uniform_(module.weight)


@dataclass(frozen=True)
class UniformInit:
    """Every matrix of an LSTM uniform within 1/sqrt(cells), as in torch, embeddings within 0.1.

    Merity et al. 2018, arXiv:1708.02182, section 5. With `bound`, all within it, biases zero
    (Zaremba et al. 2014, arXiv:1409.2329, section 4.1). With `orthogonal`, the recurrent weights of
    each gate are (Saxe et al. 2014, arXiv:1312.6120).
    """

    bound: float | None = None
    orthogonal: bool = False

    def __call__(self, name: str, module: nn.Module, dimensions: ModelDimensions) -> None:
        """Fill the parameters that `module` itself owns."""
        _init_norms_and_biases(module)
        if not isinstance(module, nn.Linear | nn.Embedding | nn.Conv1d | nn.Conv2d):
            return
        if self.orthogonal and name.endswith(".recalls"):
            for gate in module.weight.split(module.weight.shape[1]):
                nn.init.orthogonal_(gate)
            return
        bound = self.bound
        if bound is None and name.endswith((".reads", ".recalls")):
            bound = (module.weight.shape[0] // 4) ** -0.5
            if isinstance(module.bias, nn.Parameter):
                nn.init.uniform_(module.bias, -bound, bound)
        bound = bound or 0.1
        nn.init.uniform_(module.weight, -bound, bound)


@dataclass(frozen=True)
class ElmoInit:
    """As in ELMo's released code: LSTMs as `GlorotInit`, with forget gates' biases 1.

    Character embeddings are uniform within 1, filters within 0.05; other matrices from
    N(0, 1/sqrt(inputs)), and gate biases of highway layers are -2.
    """

    def __call__(self, name: str, module: nn.Module, dimensions: ModelDimensions) -> None:
        """Fill the parameters that `module` itself owns."""
        _init_norms_and_biases(module)
        if isinstance(module, nn.Embedding):
            if name.endswith(".characters"):
                nn.init.uniform_(module.weight, -1, 1)
            else:
                nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
        elif isinstance(module, nn.Conv1d):
            nn.init.uniform_(module.weight, -0.05, 0.05)
        elif isinstance(module, nn.Linear) and name.endswith((".reads", ".recalls", ".projects")):
            nn.init.xavier_uniform_(module.weight)
            if isinstance(module.bias, nn.Parameter):
                nn.init.ones_(module.bias.detach().chunk(4)[1])
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
            if name.endswith(".carries"):
                nn.init.constant_(module.bias, -2.0)


Initializer = NormalInit | FanInInit | SmallInit | GlorotInit | UniformInit | ElmoInit
