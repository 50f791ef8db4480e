"""How likely words of several tokens are in the blanks of texts, each token given others."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.batch import Batch
from unmask.heads.model import Model


def in_order(
    model: Model, batch: Batch, words: Sequence[Sequence[int]]
) -> Float[Tensor, "b words"]:
    """Compute the log-likelihood of words in mask tokens, the token that is surest first.

    It is then read while the others are predicted. Of words with k tokens that takes k readings
    each, the first of which is of them all: Schick and Schütze 2021, arXiv:2009.07118, section 3.1.

    Args:
        model: an encoder with a head that names tokens.
        batch: asks at the mask tokens, of which each row has as many as each word has tokens; each
            token is likely among those of the batch.
        words: as tokens.
    """
    first = _logs(model, batch)
    each = torch.tensor(words, device=first.device)[:, None].expand(-1, len(first), -1)
    return torch.stack([_filled(model, batch, word, first) for word in each], -1)


def _filled(
    model: Model, batch: Batch, words: Int[Tensor, "b k"], logs: Float[Tensor, "b k among"]
) -> Float[Tensor, "b"]:
    surest, at = _of(words, batch, logs).max(1)
    b, k = words.shape
    if k == 1:
        return surest
    now = torch.arange(k, device=at.device) == at[:, None]  # [b k]
    asked = _asked(batch).reshape(b, k)
    there = asked[now] + model.ahead  # where the token stands that is asked
    inputs = batch.inputs.flatten().index_put((there,), words[now])
    batch = replace(batch, inputs=inputs.reshape(batch.inputs.shape), asked=asked[~now])
    left = words[~now].reshape(b, k - 1)
    return surest + _filled(model, batch, left, _logs(model, batch))


def in_turn(model: Model, batch: Batch) -> Float[Tensor, "b"]:
    """Compute the log-likelihood of the targets of each row, by a model that reads forward."""
    assert batch.targets is not None
    logs = _logs(model, batch)
    words = batch.targets.flatten()[_asked(batch)].reshape(logs.shape[:2])
    return _of(words, batch, logs).sum(1)


def _logs(model: Model, batch: Batch) -> Float[Tensor, "b k among"]:
    """Compute the log-probabilities of tokens at the places asked, as many in each row."""
    assert batch.among is not None
    hidden = model.hidden(batch).flatten(0, 1)[_asked(batch)]
    logs = model.language.scores_among(hidden, batch.among).float().log_softmax(-1)
    return logs.reshape(len(batch.inputs), -1, logs.shape[-1])


def _of(
    words: Int[Tensor, "b k"], batch: Batch, logs: Float[Tensor, "b k among"]
) -> Float[Tensor, "b k"]:
    which = (words[..., None] == batch.among).int().argmax(-1)
    return logs.gather(-1, which[..., None])[..., 0]


def _asked(batch: Batch) -> Int[Tensor, "n"]:
    if batch.asked is not None:
        return batch.asked
    return torch.arange(batch.inputs.numel(), device=batch.inputs.device)
