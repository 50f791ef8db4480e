"""Cross-entropy of a linear output layer, without the logits of all rows in memory."""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from unmask.batch import IGNORE_INDEX

ROWS_PER_CHUNK = 1024
"""Rows whose logits are in memory at the same time: enough for full speed, and few enough to reuse
the memory."""
CPU_CHUNK_LOGITS = 2**20
"""Logits that go through the softmax at the same time on a CPU: 4 MiB in float32."""


class _LinearCrossEntropy(torch.autograd.Function):
    """Cross-entropy of `hidden @ weight.T + bias`, optionally softcapped, in chunks of rows.

    The logits of all rows never exist at the same time: with a vocabulary of 30,000 they would be
    the largest tensor of the step, and on a CPU allocating them would take most of the time. The
    gradients need the logits, too, so they are computed in the forward pass (as in Hsu et al. 2024,
    Liger kernels, arXiv:2410.10989, section 3.2).
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        softcap: float | None,
        label_smoothing: float,
    ) -> tuple[Tensor, Tensor]:
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        n_correct = torch.zeros((), dtype=torch.int64, device=hidden.device)
        needs_gradient = any(ctx.needs_input_grad)
        d_hidden = torch.empty_like(hidden) if needs_gradient else None
        d_weight: Tensor | None = None
        d_bias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        for h, y, d_h in _chunks(hidden, targets, d_hidden):
            if softcap is None:
                scores = F.linear(h, weight)
                loss, correct = cross_entropy_gradient_(scores, y, bias, d_bias, label_smoothing)
            else:
                scores = F.linear(h, weight, bias)
                steep = _softcap_(scores, softcap)
                loss, correct = cross_entropy_gradient_(scores, y, None, None, label_smoothing)
                scores *= steep
                d_bias = None if d_bias is None else d_bias + scores.float().sum(0)
            total += loss
            n_correct += correct
            if d_h is None:
                continue
            torch.mm(scores, weight, out=d_h)
            part = scores.T @ h
            d_weight = part if d_weight is None else d_weight.add_(part)
        if needs_gradient:
            ctx.save_for_backward(d_hidden, d_weight, d_bias)
        return total, n_correct

    @staticmethod
    def backward(
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None, None]:
        d_hidden, d_weight, d_bias = ctx.saved_tensors
        scale = grads[0]
        return (
            d_hidden * scale.to(d_hidden.dtype),
            None if d_weight is None else d_weight * scale.to(d_weight.dtype),
            None if d_bias is None else (d_bias * scale).to(d_hidden.dtype),
            None,
            None,
            None,
        )


def _softcap_(logits: Float[Tensor, "n v"], softcap: float) -> Float[Tensor, "n v"]:
    """Softcap logits in place, and return the derivative at each."""
    share = logits.div_(softcap).tanh_()
    steep = 1 - share.square()
    logits.mul_(softcap)
    return steep


def _chunks(
    hidden: Tensor, targets: Tensor, d_hidden: Tensor | None
) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    for start in range(0, len(hidden), ROWS_PER_CHUNK):
        rows = slice(start, start + ROWS_PER_CHUNK)
        yield hidden[rows], targets[rows], None if d_hidden is None else d_hidden[rows]


def cross_entropy_gradient_(
    logits: Float[Tensor, "n v"],
    targets: Int[Tensor, "n"],
    bias: Float[Tensor, "v"] | None = None,
    d_bias: Float[Tensor, "v"] | None = None,
    label_smoothing: float = 0.0,
) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
    """Turn logits into the gradient of their summed cross-entropy, in place.

    Return that sum and the number of correct predictions. On a CPU, rows are processed in chunks
    whose float32 copy fits into the cache.

    Args:
        logits: without the bias.
        targets: one a row.
        bias: added to each row here, which on a CPU costs less than in the matrix product, and is
            not rounded. None: no bias.
        d_bias: the gradient of the bias, in float32, to which that of these rows is added.
        label_smoothing: fraction of each target that is distributed uniformly.
    """
    total = torch.zeros((), dtype=torch.float32, device=logits.device)
    n_correct = torch.zeros((), dtype=torch.int64, device=logits.device)
    n, v = logits.shape
    step = _rows_in_cache(logits)
    offset = None if bias is None else bias.float()
    for start in range(0, n, step):
        block, y = logits[start : start + step], targets[start : start + step, None]
        exact = block.float()
        if offset is not None:
            exact += offset
        own = exact.gather(1, y)
        highest, correct = _highest_logits(exact, own, y)
        n_correct += correct
        total += (1 - label_smoothing) * (highest - own).sum()
        if label_smoothing:
            total += label_smoothing / v * (highest - exact).sum()
        shares = exact.softmax(-1)
        total -= shares.amax(-1).log().sum()  # that of the highest is 1 / sum exp(logit - highest)
        shares.scatter_add_(1, y, torch.full_like(own, label_smoothing - 1))
        if label_smoothing:
            shares -= label_smoothing / v
        block.copy_(shares)
        if d_bias is not None:
            d_bias += shares.sum(0)
    return total, n_correct


def _rows_in_cache(logits: Float[Tensor, "n v"]) -> int:
    """Return how many rows go through a softmax at the same time: on other devices all."""
    n, v = logits.shape
    return max(1, CPU_CHUNK_LOGITS // v if logits.device.type == "cpu" else n)


def _highest_logits(
    logits: Float[Tensor, "n v"], own: Float[Tensor, "n 1"], targets: Int[Tensor, "n 1"]
) -> tuple[Float[Tensor, "n 1"], Int[Tensor, ""]]:
    """Return the highest logit of each row, and in how many it is the target's.

    Of equal ones the first counts. On a CPU the place of a maximum takes 15 times as long as its
    value, and is looked up only where a target's logit equals the highest of the others.
    """
    if logits.device.type != "cpu":
        highest, best = logits.max(-1, keepdim=True)
        return highest, (best == targets).sum()
    others = logits.scatter_(1, targets, -torch.inf).amax(-1, keepdim=True)
    logits.scatter_(1, targets, own)
    tied = (own == others).squeeze(1)
    n_correct = (own > others).sum()
    if tied.any():
        n_correct += (logits[tied].argmax(-1, keepdim=True) == targets[tied]).sum()
    return torch.maximum(own, others), n_correct


def log_probabilities_at(
    logits: Float[Tensor, "n v"], rows: Int[Tensor, "m"], tokens: Int[Tensor, "m"]
) -> tuple[Float[Tensor, "m"], Bool[Tensor, "m"]]:
    """Return the log-probabilities of some tokens, and whether each is its row's likeliest.

    Of equally likely ones the first is. On a CPU, some rows at a time.

    Args:
        logits: one row for each position.
        rows: that of each token, in order; each row has at least one.
        tokens: whose log-probabilities are returned.
    """
    step = _rows_in_cache(logits)
    counts = (rows // step).bincount().tolist()
    found: list[Tensor] = []
    is_likeliest: list[Tensor] = []
    parts = zip(logits.split(step), rows.split(counts), tokens.split(counts), strict=True)
    for i, (block, some, token) in enumerate(parts):
        logs, row = block.float().log_softmax(-1), some - i * step
        own = logs[row, token]
        is_highest = own == logs.amax(-1)[row]
        equal = is_highest.nonzero().squeeze(1)
        is_highest[equal] = logs[row[equal]].argmax(-1) == token[equal]
        found.append(own)
        is_likeliest.append(is_highest)
    return torch.cat(found), torch.cat(is_likeliest)


def linear_cross_entropy(
    hidden: Float[Tensor, "n d"],
    weight: Float[Tensor, "v d"],
    bias: Float[Tensor, "v"] | None,
    targets: Int[Tensor, "n"],
    *,
    softcap: float | None = None,
    label_smoothing: float = 0.0,
) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
    """Sum the cross-entropy of linear logits, optionally softcapped, and count correct predictions.

    The sum is in nats. With `label_smoothing`, that fraction of each target is distributed
    uniformly over the vocabulary.

    Raises:
        ValueError: a target is IGNORE.
    """
    if targets.device.type == "cpu" and targets.numel() and int(targets.min()) == IGNORE_INDEX:
        raise ValueError(
            "a position without a target is scored; `target_positions` must name the others"
        )
    return _LinearCrossEntropy.apply(hidden, weight, bias, targets, softcap, label_smoothing)  # pyright: ignore[reportReturnType]
