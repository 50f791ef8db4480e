"""How likely words of several tokens are in the blanks of texts, each token given others."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.batch import Batch
from unmask.heads.language.candidates import Candidates
from unmask.heads.model import Model


def score_most_confident_first(
    model: Model, batch: Batch, word_ids: Sequence[Sequence[int]]
) -> Float[Tensor, "b words"]:
    """Compute the log-likelihood of words in mask tokens, the token that is surest first.

    It is then read while the others are predicted. Of words with k tokens that takes k readings
    each, the first of which is of them all: Schick and Schütze 2021, arXiv:2009.07118, section 3.1.

    Args:
        model: an encoder with a head that names tokens.
        batch: asks at the mask tokens, of which each row has as many as each word has tokens; each
            token is likely among those of the batch.
        word_ids: as tokens.
    """
    first = _candidate_log_probabilities(model, batch)
    each = torch.tensor(word_ids, device=first.device)[:, None].expand(-1, len(first), -1)
    return torch.stack([_score_remaining(model, batch, word, first) for word in each], -1)


def _score_remaining(
    model: Model,
    batch: Batch,
    word_ids: Int[Tensor, "b k"],
    log_probabilities: Float[Tensor, "b k among"],
) -> Float[Tensor, "b"]:
    surest, at = _select_words(word_ids, batch, log_probabilities).max(1)
    b, k = word_ids.shape
    if k == 1:
        return surest
    now = torch.arange(k, device=at.device) == at[:, None]  # [b k]
    asked = _target_positions(batch).reshape(b, k)
    there = asked[now] + model.shifted_targets  # where the token is that is asked
    inputs = batch.inputs.flatten().index_put((there,), word_ids[now])
    batch = replace(batch, inputs=inputs.reshape(batch.inputs.shape), target_positions=asked[~now])
    left = word_ids[~now].reshape(b, k - 1)
    return surest + _score_remaining(model, batch, left, _candidate_log_probabilities(model, batch))


def score_left_to_right(model: Model, batch: Batch) -> Float[Tensor, "b"]:
    """Compute the log-likelihood of the targets of each row, by a model that reads forward."""
    assert batch.targets is not None
    logs = _candidate_log_probabilities(model, batch)
    words = batch.targets.flatten()[_target_positions(batch)].reshape(logs.shape[:2])
    return _select_words(words, batch, logs).sum(1)


def _candidate_log_probabilities(model: Model, batch: Batch) -> Float[Tensor, "b k among"]:
    """Compute the log-probabilities of tokens at the places asked, as many in each row."""
    hidden = model.hidden_states(batch).flatten(0, 1)[_target_positions(batch)]
    logs = (
        model.language_head.candidate_logits(hidden, _candidate_ids(batch)).float().log_softmax(-1)
    )
    return logs.reshape(len(batch.inputs), -1, logs.shape[-1])


def _select_words(
    word_ids: Int[Tensor, "b k"], batch: Batch, log_probabilities: Float[Tensor, "b k among"]
) -> Float[Tensor, "b k"]:
    which = (word_ids[..., None] == _candidate_ids(batch)).int().argmax(-1)
    return log_probabilities.gather(-1, which[..., None])[..., 0]


def _candidate_ids(batch: Batch) -> Int[Tensor, "k"]:
    candidates = batch.feature(Candidates)
    assert candidates is not None
    return candidates.ids


def _target_positions(batch: Batch) -> Int[Tensor, "n"]:
    if batch.target_positions is not None:
        return batch.target_positions
    return torch.arange(batch.inputs.numel(), device=batch.inputs.device)
