"""Bottleneck adapters: a narrow residual map after some sublayers."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.hooks import RemovableHandle

from unmask.adapters.attach import Attachment, add_submodule, apply_to_rows
from unmask.adapters.tuning_method import TuningMethod
from unmask.config import check_number_fields
from unmask.heads.model import Model
from unmask.model.backbones.transformer import Block
from unmask.model.layers.feed_forward import ACTIVATIONS, Activation, OffsetRMSNorm

REDUCTION_FACTOR = 16
"""The default of d_model / bottleneck_size: AdapterHub's reduction factor
(Pfeiffer et al. 2020, arXiv:2007.07779)."""
MIN_WIDTH = 8
"""The minimum default bottleneck_size, the smallest of Houlsby et al. 2019 on GLUE (section
3.2)."""
INIT_STD = 0.01
"""Standard deviation of initial weights (Houlsby et al. 2019, section 3.6)."""

Sublayer = Literal["attention", "cross", "feed_forward"]


@dataclass(frozen=True, kw_only=True)
class HoulsbyAdapter(TuningMethod):
    """A bottleneck after each sublayer, before its residual connection, and trained norms.

    Houlsby et al. 2019, arXiv:1902.00751, section 2.1.
    """

    bottleneck_size: int | None = None
    """None: a sixteenth of d_model, 8 at least."""
    activation: Activation = "gelu"
    """Activation; the default is that of the released code."""
    train_norms: bool = True
    """Train copies of the model's norms, which replace them (section 2.1)."""

    def __post_init__(self) -> None:
        check_number_fields(self)
        _check_width(self.bottleneck_size)

    def build(self, model: Model) -> "HoulsbyAdapterModule":
        """Build the bottlenecks of a model."""
        return HoulsbyAdapterModule(self, model)


@dataclass(frozen=True, kw_only=True)
class PfeifferAdapter(TuningMethod):
    """One bottleneck per layer, from the layer's output, added to its feed-forward.

    Pfeiffer et al. 2021, arXiv:2005.00247, appendix A; released code, `PfeifferConfig`.
    """

    bottleneck_size: int | None = None
    """None: a sixteenth of d_model, 8 at least."""
    activation: Activation = "relu"

    def __post_init__(self) -> None:
        check_number_fields(self)
        _check_width(self.bottleneck_size)

    def build(self, model: Model) -> "PfeifferAdapterModule":
        """Build the bottlenecks of a model."""
        return PfeifferAdapterModule(self, model)


@dataclass(frozen=True, kw_only=True)
class AdaMix(TuningMethod):
    """A mixture of bottlenecks after each feed-forward: a random one in training.

    In inference their mean. Training runs each batch twice; see `unmask.adapters.consistency`. Wang
    et al. 2022, arXiv:2205.12410, section 3.
    """

    bottleneck_size: int | None = None
    """None: a sixteenth of d_model, 8 at least (48 for BERT-base, as in the released runs)."""
    activation: Activation = "gelu"
    n_experts: int = 4
    consistency_weight: float = 1.0
    """Weight of the consistency loss of the two forward passes."""
    shared_projection: Literal["up", "down"] | None = "up"
    """The projection shared by all experts (section 3.4); `up` in the released runs."""

    def __post_init__(self) -> None:
        check_number_fields(self)
        _check_width(self.bottleneck_size)
        if self.n_experts < 1:
            raise ValueError(f"n_experts must be at least 1, got {self.n_experts}")
        if not 0 <= self.consistency_weight < math.inf:
            raise ValueError(
                f"consistency_weight must be at least 0 and finite, got {self.consistency_weight}"
            )

    def build(self, model: Model) -> "AdaMixModule":
        """Build the experts of a model."""
        return AdaMixModule(self, model)


def _check_width(width: int | None) -> None:
    if width is not None and width < 1:
        raise ValueError(f"bottleneck_size must be at least 1, got {width}")


class MixtureOfProjections(nn.Module):
    """Linear maps: a random one in training, their mean in inference; possibly only one.

    It draws from torch's default generator, seeded before each micro-batch in training.
    """

    def __init__(self, n: int, d_in: int, d_out: int) -> None:
        super().__init__()
        self.each = nn.ModuleList(nn.Linear(d_in, d_out) for _ in range(n))

    def forward(self, x: Float[Tensor, "*b i"]) -> Float[Tensor, "*b o"]:
        """Apply one expert, or the mean of all."""
        if len(self.each) == 1:
            return self.each[0](x)
        if self.training:
            return self.each[int(torch.randint(len(self.each), ()))](x)
        return F.linear(x, self.mean("weight"), self.mean("bias"))

    def mean(self, name: Literal["weight", "bias"]) -> Tensor:
        """Average the experts' weights (Wang et al. 2022, section 3.3)."""
        return torch.stack([expert.get_parameter(name) for expert in self.each]).mean(0)


class BottleneckLayer(nn.Module):
    """The residual branch of a bottleneck.

    Deviates: `up` is initialized to zero, so that the model is unchanged; Houlsby et al. 2019
    initialize both from N(0, 0.01) truncated at two standard deviations, as `down` is here.
    """

    def __init__(
        self,
        d_model: int,
        bottleneck_size: int | None,
        activation: Activation,
        *,
        n_down_experts: int,
        n_up_experts: int,
    ) -> None:
        super().__init__()
        if bottleneck_size is None:
            bottleneck_size = max(MIN_WIDTH, d_model // REDUCTION_FACTOR)
        self.down, self.up = (
            MixtureOfProjections(n_down_experts, d_model, bottleneck_size),
            MixtureOfProjections(n_up_experts, bottleneck_size, d_model),
        )
        self.activation = ACTIVATIONS[activation]
        for name, weight in self.named_parameters():
            if name.startswith("down.") and weight.dim() == 2:
                nn.init.trunc_normal_(weight, std=INIT_STD, a=-2 * INIT_STD, b=2 * INIT_STD)
            else:
                nn.init.zeros_(weight)

    def forward(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        """Project each vector down, and up again."""
        return self.up(self.activation(self.down(x)))


def _bottlenecks(tree: nn.Module) -> dict[str, BottleneckLayer]:
    return {name: m for name, m in tree.named_modules() if isinstance(m, BottleneckLayer)}


def _add_bottlenecks(
    tree: nn.Module,
    model: Model,
    after: tuple[Sublayer, ...],
    spec: HoulsbyAdapter | PfeifferAdapter | AdaMix,
    *,
    downs: int = 1,
    ups: int = 1,
) -> None:
    """Build a bottleneck for each of these sublayers, under the sublayer's name."""
    for name, block in model.named_modules():
        if isinstance(block, Block):
            for sublayer in after:
                if sublayer != "cross" or block.cross is not None:
                    width = block.feed_forward.down.out_features
                    part = BottleneckLayer(
                        width,
                        spec.bottleneck_size,
                        spec.activation,
                        n_down_experts=downs,
                        n_up_experts=ups,
                    )
                    add_submodule(tree, f"{name}.{sublayer}", part)


class HoulsbyAdapterModule(nn.Module):
    """Bottlenecks and norms, under the names of the sublayers and norms."""

    def __init__(self, spec: HoulsbyAdapter, model: Model) -> None:
        super().__init__()
        self.spec = spec
        self.attachment = Attachment()
        self.supports_row_selection = True
        _add_bottlenecks(self, model, ("attention", "cross", "feed_forward"), spec)
        if spec.train_norms:
            for name, norm in model.named_modules():
                if name.startswith("backbone.") and isinstance(norm, nn.LayerNorm | nn.RMSNorm):
                    add_submodule(self, name, _copy_norm(norm))

    def register_hooks(self, model: Model) -> list[RemovableHandle]:
        """Act after the sublayers' dropout, as in the released code, and replace the norms."""
        hooks = [
            model.get_submodule(f"{name}_norm.dropout").register_forward_hook(
                partial(self._add, part)
            )
            for name, part in _bottlenecks(self).items()
        ]
        for name, norm in self.named_modules():
            if isinstance(norm, nn.LayerNorm | nn.RMSNorm):
                hook = partial(self._norm, norm)
                hooks.append(model.get_submodule(name).register_forward_hook(hook))
        return hooks

    def _add(
        self, part: BottleneckLayer, dropout: nn.Module, args: tuple[Tensor, ...], out: Tensor
    ) -> Tensor:
        return apply_to_rows(self.attachment.rows, lambda y: y + part(y), out)

    def _norm(
        self, own: nn.Module, norm: nn.Module, args: tuple[Tensor, ...], out: Tensor
    ) -> Tensor:
        return apply_to_rows(self.attachment.rows, lambda _, x: own(x), out, args[0])


def _copy_norm(norm: nn.LayerNorm | nn.RMSNorm) -> nn.Module:
    if isinstance(norm, nn.LayerNorm):
        bias = "bias" in dict(norm.named_parameters())
        new = nn.LayerNorm(list(norm.normalized_shape), norm.eps, bias=bias)
    elif isinstance(norm, OffsetRMSNorm):
        new = OffsetRMSNorm(norm.weight.numel(), norm.eps or 0.0, norm.offset)
    else:
        new = nn.RMSNorm(list(norm.normalized_shape), norm.eps)
    new.load_state_dict(norm.state_dict())
    return new


class PfeifferAdapterModule(nn.Module):
    """Bottlenecks, under the names of the feed-forwards."""

    def __init__(self, spec: PfeifferAdapter, model: Model) -> None:
        super().__init__()
        self.spec = spec
        self.attachment = Attachment()
        self.supports_row_selection = True
        _add_bottlenecks(self, model, ("feed_forward",), spec)

    def register_hooks(self, model: Model) -> list[RemovableHandle]:
        """Add to the input of the layer's last norm, if it has one, from its output."""
        return [
            model.get_submodule(f"{name}_norm.after").register_forward_hook(
                partial(self._add_bottleneck, part)
            )
            for name, part in _bottlenecks(self).items()
        ]

    def _add_bottleneck(
        self, part: BottleneckLayer, norm: nn.Module, args: tuple[Tensor, ...], out: Tensor
    ) -> Tensor:
        # forward, not a call: the norm's hooks are running
        return apply_to_rows(
            self.attachment.rows, lambda y, x: norm.forward(x + part(y)), out, args[0]
        )


class AdaMixModule(nn.Module):
    """Bottlenecks of experts, under the names of the feed-forwards."""

    def __init__(self, spec: AdaMix, model: Model) -> None:
        super().__init__()
        self.spec = spec
        self.attachment = Attachment()
        self.supports_row_selection = True
        downs = 1 if spec.shared_projection == "down" else spec.n_experts
        ups = 1 if spec.shared_projection == "up" else spec.n_experts
        _add_bottlenecks(self, model, ("feed_forward",), spec, downs=downs, ups=ups)

    def register_hooks(self, model: Model) -> list[RemovableHandle]:
        """Act after the feed-forwards, before dropout, as in the released code."""
        return [
            model.get_submodule(f"{name}.down").register_forward_hook(partial(self._add, part))
            for name, part in _bottlenecks(self).items()
        ]

    def _add(
        self, part: BottleneckLayer, linear: nn.Module, args: tuple[Tensor, ...], out: Tensor
    ) -> Tensor:
        return apply_to_rows(self.attachment.rows, lambda y: y + part(y), out)
