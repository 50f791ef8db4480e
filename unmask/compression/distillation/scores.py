"""TeacherScores: the soft targets of a batch, from the teachers or from a store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.batch import Batch
from unmask.compression.distillation.pictures import as_teacher_reads
from unmask.compression.distillation.store import ScoreStore, batch_hash
from unmask.compression.distillation.terms import PredictionTerm
from unmask.heads.language.top_k import TopKDistribution
from unmask.heads.model import Model
from unmask.heads.spec import HeadSpec

_MAX_INT16 = 2**15
_CERTAIN = 1e4
"""Logit of a label that is certain beside others of 0: their probabilities are 0 in float32."""


@dataclass(frozen=True, kw_only=True)
class HeadScores:
    """What the teachers predict with one head."""

    logits: Sequence[Tensor] = ()
    """The logits of each teacher."""
    top_k: TopKDistribution | None = None
    """The most probable tokens of their mean instead."""

    def loss(
        self, spec: HeadSpec, student: Tensor, batch: Batch, term: PredictionTerm
    ) -> Tensor | None:
        """Sum the divergence of a student's logits over the targets; see `HeadSpec`."""
        if self.top_k is not None:
            return spec.top_k_loss(student, self.top_k, batch, term.temperature)
        logits = [_hard_logits(self.logits)] if term.hard else self.logits
        return spec.soft_target_loss(student, logits, batch, term.temperature)


def _hard_logits(teachers: Sequence[Tensor]) -> Tensor:
    """Return logits by which the most probable label of the teachers' mean is certain."""
    best = torch.stack([x.float().softmax(-1) for x in teachers]).mean(0).argmax(-1, keepdim=True)
    return torch.zeros_like(teachers[0], dtype=torch.float32).scatter_(-1, best, _CERTAIN)


@dataclass(frozen=True, kw_only=True)
class TeacherScores:
    """What the teachers predict with the heads that they share with the student."""

    teachers: Sequence[Model]
    soft: PredictionTerm
    heads: Mapping[str, HeadSpec]
    store: ScoreStore | None = None

    def __call__(self, batch: Batch) -> dict[str, HeadScores]:
        """Return the scores of each head, from the store if it has them; or add them to it."""
        if self.store is None:
            return self._compute(batch)
        key = batch_hash(batch)
        found = self.store.get(key)
        if found is not None:
            return _unpack({name: x.to(batch.inputs.device) for name, x in found.items()})
        scores = self._compute(batch)
        self.store.add(key, _pack(scores))
        return scores

    @torch.no_grad()
    def _compute(self, batch: Batch) -> dict[str, HeadScores]:
        terms = {spec.term for spec in self.heads.values()}
        given = [
            teacher(
                as_teacher_reads(teacher, batch),
                return_logits=[n for n, spec in teacher.head_specs.items() if spec.term in terms],
            )
            for teacher in self.teachers
        ]
        scores: dict[str, HeadScores] = {}
        for name, spec in self.heads.items():
            logits = [one.logits[spec.term] for one in given if spec.term in one.logits]
            if not logits:
                continue
            if self.soft.top_k is None or not spec.scores_vocabulary:
                scores[name] = HeadScores(logits=logits)
                continue
            best = TopKDistribution.of(logits, self.soft.top_k, self.soft.temperature)
            scores[name] = HeadScores(top_k=best)
        return scores


def _pack(scores: Mapping[str, HeadScores]) -> dict[str, Tensor]:
    """Return scores as tensors by name."""
    found: dict[str, Tensor] = {}
    for name, own in scores.items():
        found |= {f"{name}.{i}": logits for i, logits in enumerate(own.logits)}
        if (best := own.top_k) is not None:
            small = not best.ids.numel() or int(best.ids.max()) < _MAX_INT16
            found[f"{name}.ids"] = best.ids.to(torch.int16 if small else torch.int32)
            found[f"{name}.log_probabilities"] = best.log_probabilities
            found[f"{name}.log_rest"] = best.log_rest
    return found


def _unpack(tensors: Mapping[str, Tensor]) -> dict[str, HeadScores]:
    """Return scores from what `_pack` returned."""
    parts: dict[str, dict[str, Tensor]] = {}
    for key, x in tensors.items():
        name, _, part = key.rpartition(".")
        parts.setdefault(name, {})[part] = x
    return {name: _unpack_head(own) for name, own in parts.items()}


def _unpack_head(parts: Mapping[str, Tensor]) -> HeadScores:
    if "ids" not in parts:
        return HeadScores(logits=[parts[str(i)] for i in range(len(parts))])
    return HeadScores(
        top_k=TopKDistribution(
            ids=parts["ids"].long(),
            log_probabilities=parts["log_probabilities"],
            log_rest=parts["log_rest"],
        )
    )
