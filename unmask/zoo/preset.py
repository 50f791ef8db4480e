"""Published: everything a paper says about a model, as a value."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch

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
from unmask.model.exchange.config_mapping import ConfigMapping
from unmask.model.exchange.weight_names import WeightNames
from unmask.model.initialize import WithoutFilling
from unmask.objectives.published import ObjectiveSpec
from unmask.objectives.unified_lm.masked_target import MaskedTarget
from unmask.tokenizers.spec import SpecialTokenIds, TokenizerSpec
from unmask.word_vectors.train.trainer import WordVectorMethod


def no_adjustment(model: Model) -> None:
    """Change nothing."""


@dataclass(frozen=True, kw_only=True)
class Paper:
    """Where a model was published."""

    title: str
    authors: str
    year: int
    arxiv: str | None = None
    url: str | None = None
    """Where there is no arXiv id."""


@dataclass(frozen=True, kw_only=True)
class FinetuningDefaults:
    """What a paper does in fine-tuning, beside the head."""

    special_tokens: Literal["own", "added"] = "own"
    """What is around texts that get a label as a whole: the tokens that the tokenizer puts there,
    or new ones that are added to the vocabulary (`unmask.tokenizers.spec.TaskTokens`)."""
    lm_loss_weight: float = 0.0
    """Weight of the language model's loss beside the task's, where that labels whole texts."""
    schedule: Literal["linear", "inverse_square_root"] = "linear"
    """How the rate changes after its warm-up: `unmask.training.schedules`."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Of AdamW (Devlin et al. 2019, appendix A.3, unless the paper says others)."""
    seq2seq_target: MaskedTarget | None = None
    """How the target of a source is learned by a model that says text by masks; None: it learned no
    sources, or each place names the token after its own."""

    @property
    def generation(self) -> AppendedMaskGeneration | None:
        """How such a model then says a target."""
        if self.seq2seq_target is None:
            return None
        source, target = self.seq2seq_target.segment_ids
        return AppendedMaskGeneration(target, source_segment=source)


@dataclass(frozen=True, kw_only=True)
class Published:
    """A model as its paper describes it.

    Enough to build it, pretrain it, and exchange its weights.
    """

    name: str
    family: str
    paper: Paper
    architecture: BackboneArchitecture
    heads: Mapping[str, HeadSpec]
    """What the model is pretrained with."""
    extra_heads: Mapping[str, HeadSpec] = field(default_factory=dict[str, HeadSpec])
    """Heads that published weights of this family may have besides."""
    classification_head: SequenceClassification | None
    """The head that fine-tuning puts on for a whole text's label; None: the label is said in
    words."""
    finetuning: FinetuningDefaults = FinetuningDefaults()
    pooling: Literal["mean", "first", "last", "ends"] = "mean"
    """What stands for a text that is embedded, unless something else is asked for."""
    pooler_head: str | None = None
    """The pretraining head whose layer before the logits `classification_head` begins with."""
    unused_pooler: Pooler | None = None
    """A map above the first token that these weights have, and no head here reads."""
    objective: ObjectiveSpec | WordVectorMethod
    tokenizer: TokenizerSpec
    sequence_length: int
    """Tokens of a row in pretraining, special ones included."""
    batch_tokens: int
    """Tokens of a step in pretraining."""
    learning_rate: float
    """Peak learning rate of pretraining."""
    training_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What else of a recipe the paper says, or was measured: {"optimizer": "Muon"}."""
    n_parameters: int
    """Of the model with its pretraining heads, as counted; a test counts again without
    allocating a weight."""
    weight_names: WeightNames
    config_mapping: ConfigMapping
    weight_converters: Mapping[str, Callable[[Model, Architecture], Model]] = field(
        default_factory=dict[str, Callable[[Model, Architecture], Model]]
    )
    """Families whose weights it can begin with: from one of their models, and the architecture that
    is wanted, to one of its own."""
    post_build: Callable[[Model], None] = no_adjustment
    """The paper's one oddity, done to the built network."""
    hub_id: str | None = None
    """Where the Hub has the published weights."""
    note: str = ""
    """What a reader should know who compares this preset with the paper."""

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "weight_names", self.weight_names.for_architecture(self.architecture)
        )

    def with_vocabulary(self, special: SpecialTokenIds) -> "Published":
        """Return the preset for another vocabulary."""
        heads = {name: spec.with_vocabulary(special) for name, spec in self.heads.items()}
        return replace(
            self, architecture=with_special_tokens(self.architecture, special), heads=heads
        )

    def build(self, heads: Mapping[str, HeadSpec] | None = None) -> Model:
        """Build the network, its weights not yet filled."""
        model = Model(self.architecture, self.heads if heads is None else heads, self.unused_pooler)
        self.post_build(model)
        return model

    def build_without_memory(self, heads: Mapping[str, HeadSpec] | None = None) -> Model:
        """Build the network on the meta device: the names, shapes and modules of its weights."""
        with torch.device("meta"), WithoutFilling():
            return self.build(heads)


def token_classification_head(preset: Published) -> TokenClassification:
    """Return the head that labels tokens as published models of this family have it."""
    found = preset.extra_heads.get("token_label")
    return found if isinstance(found, TokenClassification) else TokenClassification()


def question_answering_head(preset: Published) -> QuestionAnswering:
    """Return the head that marks parts of a text as published models of this family have it."""
    found = preset.extra_heads.get("spans")
    return found if isinstance(found, QuestionAnswering) else QuestionAnswering()


def with_special_tokens(
    architecture: BackboneArchitecture, special: SpecialTokenIds
) -> BackboneArchitecture:
    """Return the architecture with the token vectors of a vocabulary.

    Where places are not counted from 0, they are counted from the padding's id + 1.
    """
    a = architecture.with_vocab_size(special.vocab_size)
    if isinstance(a, Architecture):
        return replace(a, position=a.position.with_padding_id(special.pad))
    return a
