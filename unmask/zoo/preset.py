"""Published: a model as described in its paper."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import torch
from torch import Tensor

from unmask.heads.classification.pooler import Pooler
from unmask.heads.classification.sequence_classification import (
    SequenceClassification,
    TokenClassification,
)
from unmask.heads.language.language_modeling import AppendedMaskGeneration
from unmask.heads.model import Model
from unmask.heads.question_answering import QuestionAnswering
from unmask.heads.spec import HeadSpec
from unmask.model.architecture import BackboneArchitecture
from unmask.model.backbones.transformer import Architecture
from unmask.model.backbones.vision_transformer import VisionArchitecture
from unmask.model.exchange.config_mapping import ConfigMapping
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.initialize import WithoutFilling
from unmask.objectives.published import ObjectiveSpec
from unmask.objectives.unified_lm.masked_target import MaskedTarget
from unmask.tokenizers.spec import SpecialTokenIds, TokenizerSpec
from unmask.tokenizers.vocabulary import Patches
from unmask.word_vectors.train.trainer import WordVectorMethod


def no_adjustment(model: Model) -> None:
    """Change nothing."""


@dataclass(frozen=True, kw_only=True)
class Paper:
    """The publication of a model."""

    title: str
    authors: str
    year: int
    arxiv: str | None = None
    url: str | None = None
    """URL, if there is no arXiv id."""


@dataclass(frozen=True, kw_only=True)
class FinetuningDefaults:
    """Fine-tuning settings of a paper, besides the head."""

    special_tokens: Literal["own", "added"] = "own"
    """Special tokens around texts for classification: those of the tokenizer, or new ones added to
    the vocabulary (`unmask.tokenizers.spec.TaskTokens`)."""
    lm_loss_weight: float = 0.0
    """Weight of the auxiliary language-model loss in classification."""
    schedule: Literal["linear", "inverse_square_root"] = "linear"
    """Learning-rate schedule: `unmask.training.schedules`."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Betas of AdamW (Devlin et al. 2019, appendix A.3, unless the paper has others)."""
    seq2seq_target: MaskedTarget | None = None
    """Objective for targets of sources in a model that generates by masks; None: it is not trained
    on sources, or positions predict the next token."""

    @property
    def generation(self) -> AppendedMaskGeneration | None:
        """Generation of targets by such a model."""
        if self.seq2seq_target is None:
            return None
        source, target = self.seq2seq_target.segment_ids
        return AppendedMaskGeneration(target, source_segment=source)


@dataclass(frozen=True, kw_only=True)
class Published:
    """A model as described in its paper.

    Sufficient to build it, pretrain it, and exchange its weights.
    """

    name: str
    family: str
    paper: Paper
    architecture: BackboneArchitecture
    heads: Mapping[str, HeadSpec]
    """Heads of pretraining."""
    extra_heads: Mapping[str, HeadSpec] = field(default_factory=dict[str, HeadSpec])
    """Further heads of published weights of this family."""
    classification_head: SequenceClassification | None
    """Classification head of fine-tuning; None: labels are predicted as words."""
    finetuning: FinetuningDefaults = FinetuningDefaults()
    pooling: Literal["mean", "first", "last", "ends", "projection"] = "mean"
    """Default pooling of text embeddings."""
    pooler_head: str | None = None
    """Pretraining head whose dense layer initializes `classification_head`."""
    unused_pooler: Pooler | None = None
    """Pooler over the first token in these weights that no head uses."""
    objective: ObjectiveSpec | WordVectorMethod
    tokenizer: TokenizerSpec
    sequence_length: int
    """Sequence length of pretraining in tokens, special tokens included."""
    batch_tokens: int
    """Batch size of pretraining in tokens."""
    learning_rate: float
    """Peak learning rate of pretraining."""
    training_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further recipe keys of the paper, or measured ones: {"optimizer": "Muon"}."""
    n_parameters: int
    """Number of parameters with pretraining heads; checked by a test without allocation."""
    weight_names: WeightNames
    config_mapping: ConfigMapping
    weight_converters: Mapping[str, Callable[[Model, Architecture], Model]] = field(
        default_factory=dict[str, Callable[[Model, Architecture], Model]]
    )
    """Families whose weights can initialize it, with the conversion from their model and the
    requested architecture."""
    post_build: Callable[[Model], None] = no_adjustment
    """Adjustment of the built network specific to the paper."""
    hub_id: str | None = None
    """Location of the published weights on the Hub."""
    note: str = ""
    """Differences from the paper."""

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "weight_names", self.weight_names.for_architecture(self.architecture)
        )

    @property
    def reads_pictures(self) -> bool:
        """Whether pictures are among its inputs."""
        return self.architecture.picture_stack is not None

    @property
    def reads_texts(self) -> bool:
        """Whether texts are among its inputs."""
        return self.tokenizer.vocabulary != Patches()

    def with_stored_mask_token(self, state: Mapping[str, Tensor]) -> "Published":
        """Return the preset with a vector for hidden patches if weights of theirs have one.

        Their classes have it or not, whatever the configuration says.
        """
        if self.reads_texts:
            return self
        stored = self.weight_names.external_tensor("backbone.tokens.mask_token", state)
        architecture = cast(VisionArchitecture, self.architecture)
        return replace(self, architecture=replace(architecture, mask_token=stored is not None))

    def with_vocabulary(self, special: SpecialTokenIds) -> "Published":
        """Return the preset for another vocabulary."""
        heads = {name: spec.with_vocabulary(special) for name, spec in self.heads.items()}
        return replace(self, architecture=self.architecture.with_vocabulary(special), heads=heads)

    def build(self, heads: Mapping[str, HeadSpec] | None = None) -> Model:
        """Build the network with uninitialized weights."""
        model = Model(self.architecture, self.heads if heads is None else heads, self.unused_pooler)
        self.post_build(model)
        return model

    def build_without_memory(self, heads: Mapping[str, HeadSpec] | None = None) -> Model:
        """Build the network on the meta device: the names, shapes and modules of its weights."""
        with torch.device("meta"), WithoutFilling():
            return self.build(heads)


def token_classification_head(preset: Published) -> TokenClassification:
    """Return the token-classification head of published models of this family."""
    head = preset.extra_heads.get("token_label")
    return head if isinstance(head, TokenClassification) else TokenClassification()


def question_answering_head(preset: Published) -> QuestionAnswering:
    """Return the question-answering head of published models of this family."""
    head = preset.extra_heads.get("spans")
    return head if isinstance(head, QuestionAnswering) else QuestionAnswering()
