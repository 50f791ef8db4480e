"""Distillation as a value: the teachers, and what a student is compared with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from unmask.config import check_number_fields

if TYPE_CHECKING:
    from unmask.model.backbones.block_architecture import BlockArchitecture

RelationKind = Literal["attention", "query", "key", "value"]


@dataclass(frozen=True, kw_only=True)
class _Term:
    """A term of the loss."""

    term: ClassVar[str]
    """Name of the loss."""
    counts_rows: ClassVar[bool] = False
    """Whether its mean is over the rows of a batch, otherwise over tokens."""
    reads_attention: ClassVar[bool] = False
    weight: float = 1.0
    """Weight of the term's mean in the loss."""

    def __post_init__(self) -> None:
        check_number_fields(self)
        if not 0 < self.weight <= 1e6:
            raise ValueError(f"weight must be above 0 and at most 1e6, got {self.weight:g}")

    @property
    def soft_targets(self) -> PredictionTerm | None:
        """The term itself, if it compares predictions. None: it compares layers."""
        return None

    @property
    def projections(self) -> tuple[str, ...]:
        """The names of the linear maps to the teacher's width that it may need."""
        return ()

    def check(self, student: BlockArchitecture, teacher: BlockArchitecture) -> None:
        """Check that two stacks can be compared.

        Raises:
            ValueError: they cannot.
        """


@dataclass(frozen=True, kw_only=True)
class SoftTargets(_Term):
    """The teachers' predictions: T^2 KL(p_T || q_T) of softmaxes at a temperature T.

    Hinton et al. 2015, arXiv:1503.02531, section 2; of several teachers, the mean of their
    probabilities. With one output (regression), the squared difference.
    """

    term: ClassVar[str] = "soft"
    hard: ClassVar[bool] = False
    """Whether the teachers' most probable label is the target."""
    temperature: float = 2.0
    """Temperature, above 0 (Sanh et al. 2019, arXiv:1910.01108, released code: 2)."""
    top_k: int | None = None
    """Number of the most probable tokens whose probabilities are compared, of a language model; all
    others are one. None: all tokens."""
    tokens: Literal["targets", "all"] = "targets"
    """Tokens at which a language model is compared: its targets, or also those that are not masked
    (Sanh et al. 2019, released code)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {self.top_k}")
        if not 0 < self.temperature <= 1e3:
            raise ValueError(
                f"temperature must be above 0 and at most 1000, got {self.temperature:g}"
            )

    @property
    def soft_targets(self) -> SoftTargets:
        """The term itself."""
        return self


@dataclass(frozen=True, kw_only=True)
class HardTargets(_Term):
    """The teachers' labels: -log q(argmax p), with p the mean of their probabilities.

    Touvron et al. 2021, arXiv:2012.12877, section 4, equation 3.
    """

    term: ClassVar[str] = "hard"
    hard: ClassVar[bool] = True
    temperature: ClassVar[float] = 1.0
    top_k: ClassVar[int | None] = None
    tokens: ClassVar[Literal["targets", "all"]] = "targets"

    @property
    def soft_targets(self) -> HardTargets:
        """The term itself."""
        return self


PredictionTerm = SoftTargets | HardTargets
"""A term that compares predictions."""


@dataclass(frozen=True, kw_only=True)
class HiddenCosine(_Term):
    """1 - cos of the last hidden states of each token (Sanh et al. 2019, section 2)."""

    term: ClassVar[str] = "hidden_cosine"

    def check(self, student: BlockArchitecture, teacher: BlockArchitecture) -> None:
        """Check that both have the same width."""
        if student.d_model != teacher.d_model:
            raise ValueError(
                f"cosine: the student's hidden states have {student.d_model} dimensions, the "
                f"teacher's {teacher.d_model}; `hidden` projects them"
            )


@dataclass(frozen=True, kw_only=True)
class HiddenStateDistillation(_Term):
    """Mean squared differences of hidden states and embeddings, of layers at the same depth.

    Jiao et al. 2020, arXiv:1909.10351, equations 8 and 9: where the widths differ, the student's
    are multiplied by a learned matrix first.
    """

    term: ClassVar[str] = "hidden_states"
    embeddings: bool = True
    """Whether the inputs of the first layers are compared, too."""

    @property
    def projections(self) -> tuple[str, ...]:
        """The maps of hidden states and, if compared, of embeddings."""
        return ("hidden", "embeddings") if self.embeddings else ("hidden",)


@dataclass(frozen=True, kw_only=True)
class AttentionDistillation(_Term):
    """Mean squared differences of attention scores before the softmax (ibid., equation 7)."""

    term: ClassVar[str] = "attention_scores"
    counts_rows: ClassVar[bool] = True
    reads_attention: ClassVar[bool] = True

    def check(self, student: BlockArchitecture, teacher: BlockArchitecture) -> None:
        """Check that both have the same number of heads."""
        _check_heads("attention", student, teacher)


@dataclass(frozen=True, kw_only=True)
class RelationDistillation(_Term):
    """Divergences of the last layers' self-attention relations, whatever the widths.

    MiniLM: attention weights and relations between values (Wang et al. 2020, arXiv:2002.10957,
    equations 2 to 6); with `heads`, relations of queries, keys and values in as many heads
    (MiniLMv2: Wang et al. 2021, arXiv:2012.15828, equations 6 to 8).
    """

    term: ClassVar[str] = "relations"
    reads_attention: ClassVar[bool] = True
    kinds: tuple[RelationKind, ...] = ("attention", "value")
    """Relations that are compared: attention, query, key, value."""
    heads: int | None = None
    """Number of relation heads, into which queries, keys and values of all heads are split. None:
    the attention heads, of which both must have as many."""
    teacher_layer: int | None = None
    """Number of the teacher's layer, from 1. None: the last one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.kinds:
            raise ValueError("kinds must name one or more of attention, query, key, value")
        for name in ("heads", "teacher_layer"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")

    def check(self, student: BlockArchitecture, teacher: BlockArchitecture) -> None:
        """Check that heads and layers can be compared."""
        if self.heads is None or "attention" in self.kinds:
            _check_heads("relations", student, teacher)
        for a in (student, teacher):
            widths = {a.n_heads * a.d_head, a.n_key_value_heads * a.d_head}
            if self.heads is not None and any(width % self.heads for width in widths):
                raise ValueError(
                    f"relations: {self.heads} heads do not divide {max(widths)} dimensions"
                )
        if self.teacher_layer is not None and self.teacher_layer > teacher.n_layers:
            raise ValueError(
                f"relations: teacher_layer must be at most {teacher.n_layers}, got "
                f"{self.teacher_layer}"
            )


DistillationTerm = (
    SoftTargets
    | HardTargets
    | HiddenCosine
    | HiddenStateDistillation
    | AttentionDistillation
    | RelationDistillation
)
DISTILLATION_TERMS: dict[str, type[DistillationTerm]] = {
    "soft": SoftTargets,
    "hard": HardTargets,
    "cosine": HiddenCosine,
    "hidden": HiddenStateDistillation,
    "attention": AttentionDistillation,
    "relations": RelationDistillation,
}
"""By their words."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveWeight:
    """The factor of the student's own loss, among the terms that options name."""

    weight: float = 1.0

    def __post_init__(self) -> None:
        check_number_fields(self)

    def add_to(self, given: Distillation) -> Distillation:
        """Return a distillation with this weight of the student's own loss."""
        return replace(given, objective_weight=self.weight)


@dataclass(frozen=True, kw_only=True)
class TeacherSettings:
    """How the teachers are run, likewise."""

    precision: Literal["float32", "bfloat16"] = "float32"
    store: str | None = None

    def add_to(self, given: Distillation) -> Distillation:
        """Return a distillation whose teachers are run so."""
        return replace(given, teacher_precision=self.precision, store=self.store)


@dataclass(frozen=True, kw_only=True)
class Distillation:
    """The teachers of a run, and what their student learns of them beside its objective."""

    teacher: tuple[str, ...]
    """Teachers: run folders, folders in the Hugging Face layout, `hf:owner/name` or the bundled
    model; all with the student's tokenizer."""
    terms: tuple[DistillationTerm, ...] = (SoftTargets(),)
    """Terms of the loss."""
    objective_weight: float = 1.0
    """Factor of the loss of the student's own objective; 0: teachers alone."""
    teacher_precision: Literal["float32", "bfloat16"] = "float32"
    """Floating-point precision of the teachers' weights and activations."""
    store: str | None = None
    """Folder with the teachers' predictions for the batches of the run, which is made, or used
    where it is there. None: they are not kept."""

    @property
    def soft_targets(self) -> PredictionTerm | None:
        """The term that compares predictions, if there is one."""
        return next((soft for term in self.terms if (soft := term.soft_targets)), None)

    def __post_init__(self) -> None:
        check_number_fields(self)
        if not self.teacher:
            raise ValueError("teacher must name one or more models")
        if not self.terms:
            raise ValueError(f"terms must be one or more of {', '.join(DISTILLATION_TERMS)}")
        if len({type(term) for term in self.terms}) < len(self.terms):
            raise ValueError("terms must not name the same term twice")
        if len([term for term in self.terms if term.soft_targets]) > 1:
            raise ValueError("terms: soft and hard are two uses of one prediction; name one")
        if not 0 <= self.objective_weight <= 1e6:
            raise ValueError(
                f"objective_weight must be from 0 to 1e6, got {self.objective_weight:g}"
            )
        others = [term.term for term in self.terms if term.soft_targets is None]
        if self.store is not None and others:
            raise ValueError(
                f"store keeps predictions (soft), not what layers compute, got {others[0]}"
            )


def _check_heads(word: str, student: BlockArchitecture, teacher: BlockArchitecture) -> None:
    if student.n_heads != teacher.n_heads:
        raise ValueError(
            f"{word}: the student has {student.n_heads} attention heads, the teacher "
            f"{teacher.n_heads}; relations:kinds=query+key+value,heads=N compares them"
        )
