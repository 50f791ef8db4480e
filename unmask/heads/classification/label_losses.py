"""Losses for single-label, multi-label and multiple-choice classification."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from unmask.batch import IGNORE_INDEX, Batch
from unmask.heads.classification.choice_groups import ChoiceGroups, RewardMargins
from unmask.heads.prediction import Term


@dataclass(frozen=True, kw_only=True)
class CrossEntropy:
    """Single-label classification: a softmax over the labels. With one label: regression."""

    label_weights: tuple[float, ...] = ()
    """Weight of each label in training; empty: all 1."""

    @property
    def multi_label(self) -> bool:
        """False: one label is true."""
        return False

    def with_label_weights(self, weights: tuple[float, ...]) -> "CrossEntropy":
        """Return the loss with weights of its labels in training."""
        return CrossEntropy(label_weights=weights)

    def count_targets(self, batch: Batch) -> int:
        """Count the labels that are not IGNORE."""
        return _count_known(batch.labels)

    def divergence(
        self, a: Float[Tensor, "b *t labels"], b: Float[Tensor, "b *t labels"], batch: Batch
    ) -> Float[Tensor, ""]:
        """Sum the mean of both Kullback-Leibler divergences, or the squared difference, at targets.

        Wang et al. 2022, arXiv:2205.12410, section 3.2.
        """
        if a.shape[-1] == 1:
            difference = (a - b).square().squeeze(-1)
        else:
            p, q = F.log_softmax(a, -1), F.log_softmax(b, -1)
            difference = ((p.exp() - q.exp()) * (p - q)).sum(-1) / 2
        return (difference * (_require(batch.labels) != IGNORE_INDEX)).sum()

    def soft_target_loss(
        self,
        student: Float[Tensor, "b *t labels"],
        teachers: Sequence[Tensor],
        batch: Batch,
        temperature: float,
    ) -> Float[Tensor, ""]:
        """Sum the divergence from the teachers, or with one label the squared difference."""
        if student.shape[-1] == 1:
            losses = (student - torch.stack(list(teachers)).mean(0)).square().squeeze(-1)
        else:
            q, *p = ((x / temperature).log_softmax(-1) for x in (student, *teachers))
            losses = temperature**2 * kl_divergence(q, p).sum(-1)
        return (losses * (_require(batch.labels) != IGNORE_INDEX)).sum()

    def term(
        self, logits: Float[Tensor, "b *t labels"], batch: Batch, *, training: bool = False
    ) -> Term:
        """Sum the cross-entropy, or with one label the squared error.

        With weights, the mean still divides by the number of labels, where torch divides by the sum
        of weights; the weights have a mean of 1 over the training data (see
        `unmask.finetuning.data.class_weights`).
        """
        labels, n = _require(batch.labels), _count_known(batch.labels)
        if logits.shape[-1] == 1:
            return Term(F.mse_loss(logits[..., 0], labels.float(), reduction="sum"), n)
        weights = logits.new_tensor(self.label_weights) if training and self.label_weights else None
        total = F.cross_entropy(
            logits.flatten(0, -2),
            labels.flatten(),
            weights,
            reduction="sum",
            ignore_index=IGNORE_INDEX,
        )
        return Term(total, n, (logits.argmax(-1) == labels).sum())


@dataclass(frozen=True)
class BinaryCrossEntropy:
    """Multi-label classification: a sigmoid per label, and the mean of their cross-entropies."""

    @property
    def multi_label(self) -> bool:
        """True: any number of labels may be true."""
        return True

    def with_label_weights(self, weights: tuple[float, ...]) -> "BinaryCrossEntropy":
        """Return the loss as it is: it has no weights of labels."""
        return self

    def count_targets(self, batch: Batch) -> int:
        """Count the known labels of all texts."""
        return _count_known(batch.labels)

    def divergence(
        self, a: Float[Tensor, "b labels"], b: Float[Tensor, "b labels"], batch: Batch
    ) -> Float[Tensor, ""]:
        """Sum the mean of both Kullback-Leibler divergences of each label, at targets."""
        # log p - log(1 - p) is the logit itself
        difference = (a.sigmoid() - b.sigmoid()) * (a - b) / 2
        return (difference * (_require(batch.labels) != IGNORE_INDEX)).sum()

    def soft_target_loss(
        self,
        student: Float[Tensor, "b labels"],
        teachers: Sequence[Tensor],
        batch: Batch,
        temperature: float,
    ) -> Float[Tensor, ""]:
        """Sum the divergence from the teachers over texts and labels."""
        losses = torch.zeros_like(student)
        for sign in (1, -1):  # that a label is true, and that it is not
            q, *p = (F.logsigmoid(sign * x / temperature) for x in (student, *teachers))
            losses = losses + temperature**2 * kl_divergence(q, p)
        return (losses * (_require(batch.labels) != IGNORE_INDEX)).sum()

    def term(
        self, logits: Float[Tensor, "b labels"], batch: Batch, *, training: bool = False
    ) -> Term:
        """Sum the cross-entropy over texts and labels."""
        labels = _require(batch.labels)
        is_target = labels != IGNORE_INDEX
        losses = F.binary_cross_entropy_with_logits(logits, labels.clamp(min=0), reduction="none")
        correct = ((logits > 0) == (labels > 0)) & is_target
        return Term((losses * is_target).sum(), _count_known(labels), correct.sum())


CORRECT = 1
"""Label of the correct row of a group; other rows have 0."""


@dataclass(frozen=True)
class ChoiceCrossEntropy:
    """Multiple choice: a softmax over the rows of a group, each with one logit.

    Radford et al. 2018, section 3.3; Devlin et al. 2019, section 4.4.
    """

    @property
    def multi_label(self) -> bool:
        """False: one row is correct."""
        return False

    def with_label_weights(self, weights: tuple[float, ...]) -> "ChoiceCrossEntropy":
        """Return the loss as it is: it has no weights of labels."""
        return self

    def count_targets(self, batch: Batch) -> int:
        """Count the groups whose correct row is known."""
        return int((_require(batch.labels) == CORRECT).sum())

    def divergence(
        self, a: Float[Tensor, "b 1"], b: Float[Tensor, "b 1"], batch: Batch
    ) -> Float[Tensor, ""]:
        """Sum the mean of both Kullback-Leibler divergences over groups whose label is known."""
        labels, number = _require(batch.labels), _require(ChoiceGroups.numbers_of(batch))
        has_label = torch.zeros_like(labels).scatter_add(0, number, (labels == CORRECT).long())
        p, q = (group_log_softmax(logits[:, 0], number)[0] for logits in (a, b))
        return ((p.exp() - q.exp()) * (p - q) * has_label[number]).sum() / 2

    def soft_target_loss(
        self,
        student: Float[Tensor, "b 1"],
        teachers: Sequence[Tensor],
        batch: Batch,
        temperature: float,
    ) -> Float[Tensor, ""]:
        """Sum the divergence from the teachers over groups whose label is known."""
        labels, number = _require(batch.labels), _require(ChoiceGroups.numbers_of(batch))
        has_label = torch.zeros_like(labels).scatter_add(0, number, (labels == CORRECT).long())
        q, *p = (group_log_softmax(x[:, 0] / temperature, number)[0] for x in (student, *teachers))
        return (temperature**2 * kl_divergence(q, p) * has_label[number]).sum()

    def term(self, logits: Float[Tensor, "b 1"], batch: Batch, *, training: bool = False) -> Term:
        """Sum the cross-entropy over groups; a tie with another row is not correct."""
        labels = _require(batch.labels)
        groups = _require(ChoiceGroups.numbers_of(batch))
        logs, best = group_log_softmax(logits[:, 0], groups)
        is_correct = labels == CORRECT
        return Term(-(logs * is_correct).sum(), int(is_correct.sum()), (is_correct & best).sum())


@dataclass(frozen=True)
class PairwiseRanking(ChoiceCrossEntropy):
    """-log sigmoid(better - worse - margin), a mean over all pairs of a group of responses.

    Of two responses the loss of Bradley and Terry 1952, doi:10.2307/2334029; of k, Ouyang et al.
    2022, arXiv:2203.02155, equation 1, where all pairs of a prompt are one element of a batch. The
    label of the best response is CORRECT, that of each later one less by 1.
    """

    margin: float = 0.0
    """Difference that is sought (Touvron et al. 2023, arXiv:2307.09288, equation 2), in batches
    without `RewardMargins`."""

    def term(self, logits: Float[Tensor, "b 1"], batch: Batch, *, training: bool = False) -> Term:
        """Sum the loss over groups; a group is right if its best response has the only maximum."""
        labels, groups = batch.labels, ChoiceGroups.numbers_of(batch)
        assert labels is not None
        assert groups is not None
        rewards = logits[:, 0].float()
        is_pair = (groups[:, None] == groups) & (labels[:, None] > labels)
        n_pairs = torch.zeros_like(rewards).scatter_add(0, groups, is_pair.sum(1).float())
        difference = rewards[:, None] - rewards
        if training:
            own = batch.feature(RewardMargins)
            difference = difference - (self.margin if own is None else own.values[:, None])
        weights = is_pair / n_pairs[groups].clamp(min=1)[:, None]
        is_best = labels == CORRECT
        beaten = ((rewards[:, None] > rewards) | ~is_pair).all(1)
        total = (-F.logsigmoid(difference) * weights).sum()
        return Term(total, int(is_best.sum()), (is_best & beaten).sum())


def kl_divergence(
    student: Float[Tensor, "*n"], teachers: Sequence[Float[Tensor, "*n"]]
) -> Float[Tensor, "*n"]:
    """Return p (log p - log q) of log-probabilities; p is the mean of the teachers'."""
    p = torch.stack([teacher.exp() for teacher in teachers]).mean(0)
    return p * (p.clamp_min(torch.finfo(p.dtype).tiny).log() - student)


LabelLoss = CrossEntropy | BinaryCrossEntropy | ChoiceCrossEntropy | PairwiseRanking


def group_log_softmax(
    logits: Float[Tensor, "b"], group: Int[Tensor, "b"]
) -> tuple[Float[Tensor, "b"], Bool[Tensor, "b"]]:
    """Return the log-probability of each row in its group, and whether it is the unique best.

    Groups may be of any size, and their rows in any order.
    """
    lowest = logits.new_full(logits.shape, -torch.inf)  # at most as many groups as rows
    top = lowest.scatter_reduce(0, group, logits.detach(), "amax")
    mass = torch.zeros_like(logits).scatter_add(0, group, (logits - top[group]).exp())
    logs = logits - top[group] - mass[group].log()
    best = logits == top[group]
    n_best = torch.zeros_like(group).scatter_add(0, group, best.long())
    return logs, best & (n_best[group] == 1)


def _count_known(labels: Shaped[Tensor, "b ..."] | None) -> int:
    return int((_require(labels) != IGNORE_INDEX).sum())


def _require(tensor: Tensor | None) -> Tensor:
    assert tensor is not None, "a batch without labels, or whose rows are in no groups"
    return tensor
