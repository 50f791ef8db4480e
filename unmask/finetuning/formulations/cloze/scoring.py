"""Likelihoods of words of several tokens in the blanks of texts."""

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
    """Compute the log-likelihood of words at mask tokens, most confident token first.

    That token is then given while the others are predicted. A word with k tokens takes k forward
    passes, the first of which all words share: Schick and Schütze 2021, arXiv:2009.07118, section
    3.1.

    Args:
        model: an encoder with a language head.
        batch: texts whose targets are mask tokens, as many per row as each word has tokens, with
            candidates for the softmax.
        word_ids: tokens of each word.
    """
    first = _candidate_log_probabilities(model, batch)
    expanded_ids = torch.tensor(word_ids, device=first.device)[:, None].expand(-1, len(first), -1)
    return torch.stack([_score_remaining(model, batch, word, first) for word in expanded_ids], -1)


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
    positions = _target_positions(batch).reshape(b, k)
    token_positions = positions[now] + model.shifted_targets  # positions of the masked tokens
    inputs = batch.inputs.flatten().index_put((token_positions,), word_ids[now])
    batch = replace(
        batch, inputs=inputs.reshape(batch.inputs.shape), target_positions=positions[~now]
    )
    remaining_ids = word_ids[~now].reshape(b, k - 1)
    return surest + _score_remaining(
        model, batch, remaining_ids, _candidate_log_probabilities(model, batch)
    )


def score_left_to_right(model: Model, batch: Batch) -> Float[Tensor, "b"]:
    """Compute the log-likelihood of the targets of each row with a causal model."""
    assert batch.targets is not None
    logs = _candidate_log_probabilities(model, batch)
    words = batch.targets.flatten()[_target_positions(batch)].reshape(logs.shape[:2])
    return _select_words(words, batch, logs).sum(1)


def _candidate_log_probabilities(model: Model, batch: Batch) -> Float[Tensor, "b k among"]:
    """Compute the log-probabilities of candidates at the target positions, equally many per row."""
    hidden = model.hidden_states(batch).flatten(0, 1)[_target_positions(batch)]
    logs = (
        model.language_head.candidate_logits(hidden, _candidate_ids(batch)).float().log_softmax(-1)
    )
    return logs.reshape(len(batch.inputs), -1, logs.shape[-1])


def _select_words(
    word_ids: Int[Tensor, "b k"], batch: Batch, log_probabilities: Float[Tensor, "b k among"]
) -> Float[Tensor, "b k"]:
    candidate_indices = (word_ids[..., None] == _candidate_ids(batch)).int().argmax(-1)
    return log_probabilities.gather(-1, candidate_indices[..., None])[..., 0]


def _candidate_ids(batch: Batch) -> Int[Tensor, "k"]:
    candidates = batch.feature(Candidates)
    assert candidates is not None
    return candidates.ids


def _target_positions(batch: Batch) -> Int[Tensor, "n"]:
    if batch.target_positions is not None:
        return batch.target_positions
    return torch.arange(batch.inputs.numel(), device=batch.inputs.device)
