"""GPTQ: weights of few bits, whose errors later columns make up for on calibration texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.batch import Batch
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.compression.config import CalibratedFormat
from unmask.compression.prune import layer_matrices
from unmask.compression.quantize import Grid, Quantize, fit_grid, group_size, round_weights
from unmask.compression.structure.low_rank import second_moments
from unmask.compression.structure.rebuild import check_no_adapters
from unmask.compression.while_training import MIN_ENCODED_WEIGHTS, encoded_names
from unmask.heads.model import Model


@dataclass(frozen=True, kw_only=True)
class GPTQ(CalibratedFormat):
    """The linear maps within the layers get codes that change their outputs on texts little.

    Frantar et al. 2022, arXiv:2210.17323, algorithm 1: columns q of W are rounded one by one, and
    what is left of W makes up for the error, W_r -= (w_q - quant(w_q)) / [H_r^-1]_qq [H_r^-1]_q,:
    (equation 2) for H = 2 X X' of the map's inputs X; rows of all H_r^-1 are those of the upper
    Cholesky factor of H^-1 (step 3). Other matrices are rounded to nearest.
    """

    damping: float = 0.01
    """Of the mean diagonal of H: what is added to the diagonal (step 3 of the algorithm: 1 %)."""
    block: int = 128
    """Number of columns whose errors are passed on to those behind them at once (step 2). Does not
    change results beyond rounding."""
    order: Literal["natural", "descending"] = "natural"
    """Order of the columns: from the first, or by descending diagonal of H (released code:
    act-order)."""

    makes_smaller: ClassVar[bool] = False
    makes_zeros: ClassVar[bool] = False
    uses_texts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.damping <= 1e6:
            raise ValueError(f"damping must be from 0 to 1e6, got {self.damping:g}")
        if self.block < 1:
            raise ValueError(f"block must be at least 1, got {self.block}")
        if self.granularity == "tensor":
            raise ValueError("granularity must be channel or group for gptq, got tensor")

    def packing(self) -> Quantize:
        """Return the codes by which the changed weights are written without loss."""
        form: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(CalibratedFormat)}
        form["clipping"] = "exact"
        return Quantize(**form)

    def restructure(self, loaded_model: LoadedModel, batches: Sequence[Batch] = ()) -> LoadedModel:
        """Return the model itself, whose matrices are values of codes now.

        H of each layer is of inputs that the layers before it compute with their codes.

        Raises:
            ValueError: there are no texts, the model has adapters or no matrices within layers,
                or H is singular.
            FloatingPointError: an activation is not finite.
        """
        if not batches:
            raise ValueError(
                "gptq needs calibration texts: --data FILE; quantize:bits=... does without"
            )
        model = loaded_model.model
        check_no_adapters(loaded_model, "gptq")
        names = quantized_names(model)
        if not names:
            raise ValueError("gptq: this model has no matrices within layers that are large enough")
        weights = dict(model.named_parameters())
        with torch.no_grad():
            for name, is_embedding in encoded_names(model).items():
                if name not in names:
                    rounded = round_weights(self, weights[name], is_embedding=is_embedding)
                    weights[name].copy_(rounded)
            for _, layer in groupby(names, _layer_of):
                self._quantize_layer(model, {name: weights[name] for name in layer}, batches)
        return loaded_model

    def _quantize_layer(
        self, model: Model, matrices: Mapping[str, Tensor], batches: Sequence[Batch]
    ) -> None:
        maps = {name.removesuffix(".weight"): w for name, w in matrices.items()}
        moments = second_moments(model, maps, batches)
        packing = self.packing()
        for name, w in maps.items():
            unused = torch.eye(w.shape[1], dtype=torch.float64)
            try:
                found = self.quantize(w, 2 * moments.get(name, unused))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
            w.copy_(round_weights(packing, found))  # with offsets as the file has them

    def quantize(
        self, weight: Float[Tensor, "o i"], hessian: Float[Tensor, "i i"]
    ) -> Float[Tensor, "o i"]:
        """Return values of codes for a map, in float32 on the CPU.

        A group has its scale by what its weights are when the first of them is rounded ("Additional
        Tricks": grouping).

        Args:
            weight: W.
            hessian: H = 2 X X' of the inputs X [i n], times any number.

        Raises:
            ValueError: weights or H are not finite, or H is singular in spite of its damping.
        """
        w = weight.detach().double().cpu()
        if not bool(w.isfinite().all() and hessian.isfinite().all()):
            raise ValueError("weights or activations that are not finite cannot be quantized")
        n = w.shape[1]
        columns = torch.arange(n)
        if self.order == "descending":
            columns = hessian.diagonal().argsort(descending=True, stable=True)
        w, factor = w[:, columns], _inverse_factor(hessian[columns][:, columns], self.damping)
        group_of = columns // group_size(self, n)
        found = torch.empty_like(w)
        grids: dict[int, Grid] = {}
        for start in range(0, n, self.block):
            end = min(start + self.block, n)
            errors = torch.zeros_like(w[:, start:end])
            for i in range(start, end):
                group = int(group_of[i])
                if group not in grids:
                    members = (group_of == group).nonzero()[:, 0]
                    current = _up_to_date(w, errors[:, : i - start], factor[start:i], members, end)
                    grids[group] = fit_grid(self, current, (w.shape[0], n))
                found[:, i] = grids[group].nearest(w[:, i])
                errors[:, i - start] = (w[:, i] - found[:, i]) / factor[i, i]
                w[:, i + 1 : end] -= errors[:, i - start, None] * factor[i, i + 1 : end]
            w[:, end:] -= errors @ factor[start:end, end:]
        return found[:, columns.argsort()].float()


def quantized_names(model: Model) -> tuple[str, ...]:
    """Return the names of the matrices that get codes by calibration texts, in their order."""
    matrices = layer_matrices(model).items()
    return tuple(name for name, w in matrices if w.numel() >= MIN_ENCODED_WEIGHTS)


def _up_to_date(
    w: Float[Tensor, "o i"],
    errors: Float[Tensor, "o k"],
    factor: Float[Tensor, "k i"],
    members: Int[Tensor, "c"],
    end: int,
) -> Float[Tensor, "o c"]:
    """Return columns of W with those errors of the block that it does not have yet.

    Args:
        w: of which columns before `end` have all errors.
        errors: of the block's columns so far.
        factor: their rows of the Cholesky factor.
        members: indices of the columns.
        end: of the block.
    """
    pending = errors @ factor[:, members]
    return w[:, members] - pending * (members >= end)


def _inverse_factor(hessian: Float[Tensor, "i i"], damping: float) -> Float[Tensor, "i i"]:
    """Return the upper Cholesky factor U of H^-1 = U' U, damped; of inputs that are 0, apart.

    The square of a pivot is what an input's second moment has left when the inputs before it have
    explained theirs. Inputs are float32: a rest below their rounding error is none, whatever its
    last bits are on this processor.

    Raises:
        ValueError: H is singular.
    """
    h = hessian.double().cpu().clone()
    diagonal = h.diagonal()
    mean = float(diagonal.mean())
    diagonal[diagonal == 0] = mean or 1.0
    diagonal += damping * mean
    lower, info = torch.linalg.cholesky_ex(h)
    rounding = len(h) * torch.finfo(torch.float32).eps
    if not int(info) and bool((lower.diagonal().square() > rounding * diagonal).all()):
        upper, info = torch.linalg.cholesky_ex(torch.cholesky_inverse(lower), upper=True)
        if not int(info):
            return upper
    raise ValueError(
        f"the inputs are linearly dependent: damping must be larger, such as 0.01, got {damping:g}"
    )


def _layer_of(name: str) -> str:
    """Return the layer of a weight: "backbone.encoder.layers.3"."""
    stack, found, within = name.partition("layers.")
    return stack + found + within.partition(".")[0]
