"""HeadSpec: a head as a value, which builds its module."""

from abc import abstractmethod
from collections.abc import Mapping

from torch import nn

from unmask.config import OpenUnion
from unmask.heads.classification.label_losses import LabelLoss
from unmask.model.architecture import StackArchitecture
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding
from unmask.tokenizers.spec import SpecialTokenIds


class HeadSpec(OpenUnion):
    """A head as a value: a frozen dataclass that builds its module.

    Whatever other code needs to know of a head is a property here, with the answer of most heads;
    a head that differs has its own. Nothing else lists all heads but the table of those that files
    may name.
    """

    term: str
    """The name of its loss; of a head with several, see `terms`."""

    @classmethod
    def kind_modules(cls) -> Mapping[str, str]:
        """Return where the heads are defined that a file may name."""
        return _MODULES

    @abstractmethod
    def build(self, architecture: StackArchitecture, embedding_table: TokenEmbedding) -> nn.Module:
        """Build the head of an architecture, whose token embeddings it may be tied to.

        Raises:
            ValueError: the network does not support the head.
        """

    @property
    def terms(self) -> tuple[str, ...]:
        """The names of its losses over targets."""
        return (self.term,)

    @property
    def objective_term(self) -> str:
        """The term that an objective must have for the head to be trained."""
        return self.term

    @property
    def is_kept_after_pretraining(self) -> bool:
        """Whether a trained model is saved with it: not with one for pretraining alone."""
        return True

    @property
    def gives_perplexity(self) -> bool:
        """Whether its losses per target are reported as perplexities, too."""
        return False

    @property
    def ties_output_embeddings(self) -> bool:
        """Whether it scores tokens by the token embeddings."""
        return False

    @property
    def labels_texts(self) -> bool:
        """Whether it scores labels of whole texts."""
        return False

    @property
    def labels_tokens(self) -> bool:
        """Whether it scores labels of tokens."""
        return False

    @property
    def label_loss(self) -> LabelLoss | None:
        """The loss of the labels that a classification head scores."""
        return None

    @property
    def has_label_names(self) -> bool:
        """Whether the labels that it scores have names."""
        return False

    @property
    def uses_all_layers(self) -> bool:
        """Whether it reads the hidden states of all layers, not of the last one alone."""
        return False

    @property
    def uses_summary(self) -> bool:
        """Whether it reads the network's own vector of the whole text."""
        return False

    def with_vocabulary(self, special: SpecialTokenIds) -> "HeadSpec":
        """Return the head for another vocabulary."""
        return self

    def with_dropout(self, rate: float) -> "HeadSpec":
        """Return the head with another dropout, if it has its own."""
        return self

    def with_label_weights(self, weights: tuple[float, ...]) -> "HeadSpec":
        """Return the head with weights of its labels in training, if it has as many labels."""
        return self

    def as_causal(self) -> "HeadSpec":
        """Return the head as a causal network has it."""
        return self


_MODULES = {
    "LanguageModeling": "unmask.heads.language.language_modeling",
    "SequenceClassification": "unmask.heads.classification.sequence_classification",
    "TokenClassification": "unmask.heads.classification.sequence_classification",
    "BiLSTMCRF": "unmask.heads.tagging.bilstm_crf",
    "QuestionAnswering": "unmask.heads.question_answering",
    "ContrastiveLoss": "unmask.heads.pretraining.contrastive",
    "SkipThoughts": "unmask.heads.pretraining.sentence_reconstruction",
    "QuickThoughts": "unmask.heads.pretraining.sentence_reconstruction",
    "SpanBoundaryObjective": "unmask.heads.pretraining.span_boundary",
    "Generator": "unmask.heads.pretraining.generator",
    "ReplacedTokenDetection": "unmask.heads.pretraining.replaced_token_detection",
    "CorrectiveLM": "unmask.heads.pretraining.corrective_lm",
    "AutoregressiveCharacters": "unmask.heads.pretraining.autoregressive_characters",
    "SubwordPrediction": "unmask.heads.pretraining.subword_prediction",
    "BidirectionalLM": "unmask.heads.pretraining.bidirectional_lm",
    "ActivationRegularization": "unmask.heads.pretraining.activation_regularization",
}
"""The heads that a file may name, and the modules that define them: no other code is read."""
