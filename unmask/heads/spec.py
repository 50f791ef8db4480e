"""HeadSpec: the base class of heads as values, which build their modules."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Int
from torch import Tensor, nn

from unmask.batch import Batch, Example
from unmask.config import OpenUnion
from unmask.heads.classification.label_losses import LabelLoss
from unmask.heads.language.top_k import TopKDistribution
from unmask.model.architecture import StackArchitecture
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding
from unmask.objectives.described import DescribedInputs, DescribedLoss, count_targets
from unmask.tokenizers.spec import SpecialTokenIds


class HeadSpec(OpenUnion):
    """A head as a value: a frozen dataclass that builds its module.

    Properties of heads that other code uses are defined here with the most common value; a head
    that differs overrides them. The only list of heads is the table of those that files may name.
    """

    term: str
    """Name of the loss; for a head with several, see `terms`."""

    @classmethod
    def kind_modules(cls) -> Mapping[str, str]:
        """Return the modules of the heads that a file may name."""
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

    def describe_losses(self, example: Example) -> tuple[DescribedLoss, ...]:
        """Say which losses an example has, and over how many predictions: here, of its targets."""
        weight = float(getattr(self, "weight", 1.0))
        n = count_targets(example)
        return (DescribedLoss(term=self.term, n=n, loss=self.loss_description, weight=weight),)

    @property
    def loss_description(self) -> str:
        """The loss of one prediction, in words."""
        return "cross-entropy of the token"

    @property
    def reader(self) -> str | None:
        """What reads the inputs of an example first, if it is not the model itself."""
        return None

    @property
    def draws_inputs(self) -> bool:
        """Whether the model reads inputs whose masked tokens this head has drawn."""
        return False

    def describe_inputs(
        self, example: Example, drawn: Int[np.ndarray, "t"], source: str
    ) -> tuple[DescribedInputs, ...]:
        """Return further inputs that are read, and what is asked of them.

        Args:
            example: the example.
            drawn: its inputs with masked tokens drawn (`draws_inputs`).
            source: by what they were drawn.
        """
        return ()

    @property
    def objective_term(self) -> str:
        """The term that an objective must have for the head to be trained."""
        return self.term

    @property
    def is_kept_after_pretraining(self) -> bool:
        """Whether a trained model keeps the head: not if only pretraining uses it."""
        return True

    @property
    def gives_perplexity(self) -> bool:
        """Whether its mean losses are also reported as perplexities."""
        return False

    @property
    def scores_vocabulary(self) -> bool:
        """Whether its logits are those of the tokens of the vocabulary."""
        return False

    @property
    def ties_output_embeddings(self) -> bool:
        """Whether its output matrix is the token embedding matrix."""
        return False

    @property
    def compares_rows(self) -> bool:
        """Whether its softmax is over the rows of a micro-batch, so that fewer are easier."""
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
        """Whether it reads the hidden states of all layers, not only of the last one."""
        return False

    @property
    def uses_summary(self) -> bool:
        """Whether it reads the network's own vector of the whole text."""
        return False

    @property
    def taught_term(self) -> str:
        """Name of the logits that a teacher teaches."""
        return self.term

    def read_share(self, target_fraction: float) -> float:
        """Return the share of the tokens that the network computes in training: here all."""
        return 1.0

    def own_stack(self, architecture: StackArchitecture) -> StackArchitecture | None:
        """Return a stack of blocks of the head's own, over all tokens. None: it has none."""
        return None

    def output_size(self, architecture: StackArchitecture) -> int | None:
        """Return the number of outputs of a target. None: it has no `soft_target_loss`."""
        return None

    def soft_target_loss(
        self, student: Tensor, teachers: Sequence[Tensor], batch: Batch, temperature: float
    ) -> Tensor | None:
        """Sum the divergence of a student's logits from the teachers' mean over the targets.

        With softmax outputs, it is the Kullback-Leibler divergence at a temperature, multiplied by
        the temperature's square (Hinton et al. 2015, arXiv:1503.02531, section 2). None: the head
        has no such loss.
        """
        return None

    def top_k_loss(
        self, student: Tensor, teacher: TopKDistribution, batch: Batch, temperature: float
    ) -> Tensor | None:
        """Return the same for the most probable tokens of the teachers.

        None: the head does not score a vocabulary.
        """
        return None

    def with_vocabulary(self, special: SpecialTokenIds) -> "HeadSpec":
        """Return the head for another vocabulary."""
        return self

    def with_dropout(self, rate: float) -> "HeadSpec":
        """Return the head with another dropout, if it has its own."""
        return self

    def with_label_weights(self, weights: tuple[float, ...]) -> "HeadSpec":
        """Return the head with weights of its labels in training, if it has as many labels."""
        return self

    def with_n_labels(self, n: int) -> "HeadSpec":
        """Return the head for another number of named labels, if it has such."""
        return self

    def as_causal(self) -> "HeadSpec":
        """Return the head for a causal network."""
        return self


_MODULES = {
    "LanguageModeling": "unmask.heads.language.language_modeling",
    "PictureTextContrast": "unmask.heads.vision.picture_text_contrast",
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
    "PatchReconstruction": "unmask.heads.vision.patch_reconstruction",
    "MaskedAutoencoding": "unmask.heads.vision.masked_autoencoding",
    "DistilledClassification": "unmask.heads.vision.distilled_classification",
    "DoublyStochasticAttention": "unmask.heads.vision.doubly_stochastic_attention",
    "ActivationRegularization": "unmask.heads.pretraining.activation_regularization",
}
"""The heads that a file may name, and their modules; no other code is imported for a file."""
