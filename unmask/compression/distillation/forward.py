"""Distillation: a student learns what its teachers predict, and what their layers compute.

The student's training loss is that of its own objective, plus terms of the differences; `loop`
takes `DistillationForward` in place of the model.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import Batch
from unmask.compression.distillation.pictures import check_same_patches
from unmask.compression.distillation.scores import HeadScores, TeacherScores
from unmask.compression.distillation.store import ScoreStore
from unmask.compression.distillation.terms import (
    AttentionDistillation,
    Distillation,
    DistillationTerm,
    HiddenCosine,
    HiddenStateDistillation,
    PredictionTerm,
    RelationDistillation,
    SoftTargets,
)
from unmask.heads.language.candidates import Candidates
from unmask.heads.language.scored_positions import ScoredPositions
from unmask.heads.model import Model
from unmask.heads.prediction import Prediction, Term
from unmask.heads.spec import HeadSpec
from unmask.model.recording import AttentionRecord, StackRecord, record_layers, recordable_stacks
from unmask.objectives.features import Recurrence, WeightedTargets

PROJECTION = "distillation"
"""Name of the projections among a student's training modules."""


class DistillationForward:
    """Computes the training loss of a student with its teachers."""

    def __init__(
        self, student: Model, teachers: Sequence[Model], distillation: Distillation, seed: int = 0
    ) -> None:
        self.student, self.teachers, self.config = student, tuple(teachers), distillation
        self.soft = distillation.soft_targets
        self.inner = [t for t in distillation.terms if t.soft_targets is None]
        self.soft_heads = {} if self.soft is None else self._soft_heads(self.soft)
        heads = {name: student.head_specs[name] for name in self.soft_heads}
        self.taught_alone = {
            term for name, term in self.soft_heads.items() if term != heads[name].term
        }
        """Terms that learn of the teachers alone: DeiT's distillation token."""
        self.scores = TeacherScores(
            teachers=self.teachers, soft=self.soft or SoftTargets(), heads=heads
        )
        if self.inner:
            self._check_layers()
            student.computes_all_columns = True
            _add_projections(student, self.teachers[0], self.inner, seed)
        for teacher in self.teachers:
            teacher.requires_grad_(False).eval()
            teacher.computes_all_columns = student.computes_all_columns

    def use_store(self, store: ScoreStore | None) -> None:
        """Read the teachers' predictions from a store where it has them, and add the others."""
        self.scores = replace(self.scores, store=store)

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Count the targets of each term in this batch."""
        counts = dict(self.student.count_targets(batch))
        if not self.student.training:
            return counts
        soft = {
            f"{term}_soft": self._count_scored(name, batch, counts[term])
            for name, term in self.soft_heads.items()
            if term in counts
        }
        counts = {term: n for term, n in counts.items() if term not in self.taught_alone}
        return counts | soft | {term.term: self._count(term, batch) for term in self.inner}

    def _count_scored(self, name: str, batch: Batch, n_targets: int) -> int:
        """Return the number of tokens or labels at which predictions are compared."""
        every = self.soft is not None and self.soft.tokens == "all"
        if every and self.student.head_specs[name].scores_vocabulary:
            return int(batch.is_token().sum())
        return n_targets

    def _count(self, term: DistillationTerm, batch: Batch) -> int:
        if term.counts_rows:
            return len(batch.inputs)
        masks = _token_masks(batch, len(self.student.backbone.stacks))
        return sum(int(mask.sum()) for mask in masks)

    def __call__(self, batch: Batch) -> Prediction:
        """Run the student and the teachers over a batch."""
        if not self.student.training:
            return self.student(batch)
        if (recurrence := batch.feature(Recurrence)) is not None and recurrence.memory is not None:
            raise ValueError("a teacher reads no memory of earlier texts: set memory_length = 0")
        if self.soft is not None and self.soft.tokens == "all":
            batch = _scored_everywhere(batch)
        names = list(self.soft_heads)
        attention = any(t.reads_attention for t in self.inner)
        with ExitStack() as recording:

            def record(model: Model) -> list[StackRecord]:
                if not self.inner:
                    return []
                return recording.enter_context(record_layers(model.backbone, attention=attention))

            own = record(self.student)
            theirs = record(self.teachers[0])
            prediction = self.student(batch, return_logits=names)
            given = self.scores(batch)
        terms = self._own_terms(prediction)
        terms |= self._soft_terms(prediction, given, batch)
        for term in self.inner:
            stacks = zip(own, theirs, _token_masks(batch, len(own)), strict=True)
            losses = [_difference(term, _Compared(self.student, *stack)) for stack in stacks]
            total = torch.stack(losses).sum()
            terms[term.term] = Term(total, self._count(term, batch), weight=term.weight)
        return Prediction(terms=terms)

    def _own_terms(self, prediction: Prediction) -> dict[str, Term]:
        """Return the terms of the student's objective, without what teachers alone teach."""
        shared = {
            self.student.head_specs[name].term
            for name, term in self.soft_heads.items()
            if term in self.taught_alone
        }
        return {
            name: replace(
                term,
                weight=self.config.objective_weight * (1.0 if name in shared else term.weight),
            )
            for name, term in prediction.terms.items()
            if name not in self.taught_alone
        }

    def _soft_terms(
        self, own: Prediction, given: Mapping[str, HeadScores], batch: Batch
    ) -> dict[str, Term]:
        terms: dict[str, Term] = {}
        for name, term in self.soft_heads.items():
            if self.soft is None or term not in own.logits or term not in own.terms:
                continue
            spec = self.student.head_specs[name]
            total = given[name].loss(spec, own.logits[term], batch, self.soft)
            assert total is not None
            n = self._count_scored(name, batch, own.terms[term].count)
            terms[f"{term}_soft"] = Term(total, n, weight=self.soft.weight)
        return terms

    def _soft_heads(self, soft: PredictionTerm) -> dict[str, str]:
        """Return the taught terms of the heads that student and every teacher have in common.

        Raises:
            ValueError: there is none, their outputs differ, or they are fewer than `top_k`.
        """
        found: dict[str, str] = {}
        for name, spec in self.student.head_specs.items():
            size = spec.output_size(self.student.decoder_architecture)
            others = [_head_of(teacher, name, spec) for teacher in self.teachers]
            if size is None or any(o is None or o.term != spec.term for o in others):
                continue
            found[name] = spec.taught_term
            for teacher, other in zip(self.teachers, others, strict=True):
                assert other is not None
                theirs = other.output_size(teacher.decoder_architecture)
                of_one_kind = type(other) is type(spec) or (spec.taught_term != spec.term)
                if (of_one_kind, theirs) != (True, size) or (
                    type(other.label_loss) is not type(spec.label_loss)
                ):
                    raise ValueError(
                        f"soft targets: the student's head {name} has {size} outputs, the "
                        f"teacher's {theirs}, or another loss"
                    )
        if not found:
            given = sorted({n for teacher in self.teachers for n in teacher.head_specs})
            raise ValueError(
                "soft targets need a head that scores tokens or labels in the student and in every "
                f"teacher; the student has {', '.join(self.student.head_specs) or 'none'}, the "
                f"teachers have {', '.join(given) or 'none'}"
            )
        if soft.hard and not all(_has_hard_labels(self.student, name) for name in found):
            raise ValueError(
                f"hard: needs a head with one label of several, got {', '.join(found)}; use soft"
            )
        self._check_vocabulary_settings(soft, found)
        if len(self.student.networks) > 1:
            raise ValueError(
                "soft targets: the inputs of this objective are made by a network of the student "
                "(ELECTRA's generator), so a teacher would see others"
            )
        return found

    def _check_vocabulary_settings(self, soft: PredictionTerm, names: Collection[str]) -> None:
        """Check what is for language models alone.

        Raises:
            ValueError: there is none, it has fewer tokens, or a store would keep all of them.
        """
        specs = [self.student.head_specs[name] for name in names]
        language_models = [spec for spec in specs if spec.scores_vocabulary]
        if language_models:
            size = self.student.vocab_size
            if soft.top_k is not None and soft.top_k > size:
                raise ValueError(
                    f"soft: top_k must be at most the {size:,} tokens of the vocabulary, got "
                    f"{soft.top_k:,}"
                )
            if soft.top_k is None and self.config.store is not None:
                raise ValueError(
                    f"store: {size:,} probabilities of each token are too many to be kept; give "
                    "soft:top_k=64 or the like"
                )
        elif soft.top_k is not None or soft.tokens != "targets":
            given = "tokens" if soft.top_k is None else "top_k"
            raise ValueError(
                f"soft: {given} is for language models; the heads here are {', '.join(names)}"
            )

    def _check_layers(self) -> None:
        """Check that layers of student and teacher can be compared.

        Raises:
            ValueError: they cannot.
        """
        teacher, *others = self.teachers
        if others:
            raise ValueError(
                "several teachers: only their predictions are averaged (soft), not their layers, "
                f"got {', '.join(t.term for t in self.inner)}"
            )
        own = recordable_stacks(self.student.backbone)
        theirs = recordable_stacks(teacher.backbone)
        if len(own) != len(theirs):
            raise ValueError(
                f"the student has {len(own)} stacks of layers, the teacher {len(theirs)}"
            )
        projected = any(t.projections for t in self.inner)
        widths = [{stack.a.d_model for stack in stacks} for stacks in (own, theirs)]
        if projected and widths[0] != widths[1] and any(len(each) > 1 for each in widths):
            raise ValueError(
                "hidden: encoder and decoder have different widths, and the teacher's others"
            )
        if any(stack.a.layer_dropout for stack in own):
            raise ValueError("layer_dropout skips layers whose states are compared: set it to 0")
        for s, t in zip(own, theirs, strict=True):
            for term in self.inner:
                term.check(s.a, t.a)
        check_same_patches(self.student, teacher)


def _scored_everywhere(batch: Batch) -> Batch:
    """Return a batch for which language models return logits at all tokens.

    Raises:
        ValueError: its objective weighs the targets, or scores a part of the vocabulary.
    """
    if batch.has(WeightedTargets) or batch.has(Candidates):
        raise ValueError(
            "soft: tokens=all is not available for objectives that weigh their targets, or score a "
            "part of the vocabulary"
        )
    positions = batch.is_token().flatten().nonzero()[:, 0]
    return batch.with_feature(ScoredPositions(positions))


@dataclass(frozen=True)
class _Compared:
    """What a stack of the student and the teacher's computed for a batch."""

    student_model: Model
    student: StackRecord
    teacher: StackRecord
    is_token: Bool[Tensor, "b t"]

    def sum_over_tokens(self, losses: Float[Tensor, "b t"]) -> Float[Tensor, ""]:
        """Sum losses over what is no padding."""
        return (losses * self.is_token).sum()


@singledispatch
def _difference(term: DistillationTerm, compared: _Compared) -> Float[Tensor, ""]:
    raise TypeError(f"no such term: {term}")


@_difference.register
def _(term: HiddenCosine, compared: _Compared) -> Float[Tensor, ""]:
    """Sum 1 - cos of the stacks' outputs over tokens."""
    a, b = (x.hidden_states[-1].float() for x in (compared.student, compared.teacher))
    return compared.sum_over_tokens(1 - F.cosine_similarity(a, b, dim=-1))


@_difference.register
def _(term: HiddenStateDistillation, compared: _Compared) -> Float[Tensor, ""]:
    """Sum the mean squared differences of mapped layers over tokens."""
    own, theirs = compared.student.hidden_states, compared.teacher.hidden_states
    n, n_theirs = len(own) - 1, len(theirs) - 1
    losses: list[Tensor] = []
    for i in range(0 if term.embeddings else 1, n + 1):
        projection = _projection(compared.student_model, "embeddings" if i == 0 else "hidden")
        a, b = own[i], theirs[mapped_layer(i, n, n_theirs)]
        a = a if projection is None else projection(a)
        losses.append(compared.sum_over_tokens((a.float() - b.float()).square().mean(-1)))
    return torch.stack(losses).sum()


@_difference.register
def _(term: AttentionDistillation, compared: _Compared) -> Float[Tensor, ""]:
    """Sum the mean squared difference of scores over rows of the batch and mapped layers."""
    own, theirs = compared.student.attention, compared.teacher.attention
    losses: list[Tensor] = []
    for i, a in enumerate(own, 1):
        b = theirs[mapped_layer(i, len(own), len(theirs)) - 1]
        visible = _visible_pairs(a, compared.is_token)
        squared = (a.scores.float() - b.scores.float()).square().mean(1) * visible
        losses.append((squared.sum((1, 2)) / visible.sum((1, 2)).clamp_min(1)).sum())
    return torch.stack(losses).sum()


@_difference.register
def _(term: RelationDistillation, compared: _Compared) -> Float[Tensor, ""]:
    """Sum the divergence of the last layers' relations over tokens, as a mean over heads."""
    layer = -1 if term.teacher_layer is None else term.teacher_layer - 1
    a, b = compared.student.attention[-1], compared.teacher.attention[layer]
    visible = _visible_pairs(a, compared.is_token)[:, None]
    losses: list[Tensor] = []
    for kind in term.kinds:
        q, p = (_log_relation(r, kind, term.heads) for r in (a, b))
        divergence = (p.exp() * (p - q)).masked_fill(~visible, 0.0).sum(-1).mean(1)
        losses.append(compared.sum_over_tokens(divergence))
    return torch.stack(losses).sum()


def mapped_layer(layer: int, n_layers: int, n_teacher_layers: int) -> int:
    """Return the teacher's layer for a student's, at the same relative depth; 0: the embeddings.

    Jiao et al. 2020, arXiv:1909.10351, section 4.1: the uniform strategy, g(m) = m N / M.
    """
    return max(round(layer * n_teacher_layers / n_layers), min(layer, 1))


def _log_relation(record: AttentionRecord, kind: str, heads: int | None) -> Tensor:
    """Return the logarithms of a relation between tokens [b h t t]."""
    if kind == "attention":
        return record.log_softmax(record.scores.float())
    x = {"query": record.queries, "key": record.keys, "value": record.values}[kind].float()
    if heads is not None:
        x = x.transpose(1, 2).flatten(2).unflatten(-1, (heads, -1)).transpose(1, 2)
    return record.log_softmax(x @ x.mT * x.shape[-1] ** -0.5)


def _visible_pairs(record: AttentionRecord, tokens: Bool[Tensor, "b t"]) -> Bool[Tensor, "b t t"]:
    """Return the pairs of tokens of which one attends to the other."""
    pairs = tokens[:, :, None] & tokens[:, None]
    return pairs if record.mask is None else pairs & record.mask[:, 0]


def _head_of(teacher: Model, name: str, spec: HeadSpec) -> HeadSpec | None:
    """Return a teacher's head of this name; for a head of texts' or pictures' labels, any such."""
    alike = (s for s in teacher.head_specs.values() if s.term == spec.term)
    return teacher.head_specs.get(name) or (next(alike, None) if spec.labels_texts else None)


def _has_hard_labels(student: Model, name: str) -> bool:
    """Return whether one of several labels is true."""
    spec = student.head_specs[name]
    size, loss = spec.output_size(student.decoder_architecture), spec.label_loss
    return spec.has_label_names and loss is not None and not loss.multi_label and size != 1


def _token_masks(batch: Batch, n_stacks: int) -> list[Bool[Tensor, "b t"]]:
    """Return which columns are no padding, for each stack: the encoder's first."""
    if n_stacks == 1:
        return [batch.is_token()]
    assert batch.source is not None
    source = Batch(inputs=batch.source, visibility=batch.source_visibility)
    return [source.is_token(), batch.is_token()]


def _add_projections(
    student: Model, teacher: Model, terms: Sequence[DistillationTerm], seed: int
) -> None:
    """Add linear maps to the teacher's width where the student's differs (TinyBERT's W_h, W_e)."""
    width, theirs = student.backbone.width, teacher.backbone.width
    names = [name for term in terms for name in term.projections]
    if not names or width == theirs:
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        maps = {name: nn.Linear(width, theirs, bias=False) for name in names}
    student.training_modules[PROJECTION] = nn.ModuleDict(maps).to(student.device)


def _projection(student: Model, name: str) -> Any:
    if PROJECTION not in student.training_modules:
        return None
    return student.training_modules.get_submodule(f"{PROJECTION}.{name}")
