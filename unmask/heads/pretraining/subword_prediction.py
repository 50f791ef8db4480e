"""Prediction of masked subwords from characters, each at the position of one (CANINE-S)."""

from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.heads.language.linear_cross_entropy import linear_cross_entropy
from unmask.heads.prediction import Prediction, Term
from unmask.heads.spec import HeadSpec
from unmask.model.architecture import StackArchitecture
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding
from unmask.tokenizers.spec import SpecialTokenIds


@dataclass(frozen=True, kw_only=True)
class SubwordPrediction(HeadSpec):
    """The head that predicts masked subwords of an output vocabulary.

    Clark et al. 2022, arXiv:2103.06874, section 3.2.2: a softmax over all subwords, whose
    embeddings belong to this head alone and are discarded after pretraining.
    """

    output_vocab_size: int
    """Size of the output vocabulary of subwords."""
    term: str = "subwords"

    def __post_init__(self) -> None:
        if self.output_vocab_size < 1:
            raise ValueError(f"output_vocab_size must be at least 1, got {self.output_vocab_size}")

    def with_vocabulary(self, special: SpecialTokenIds) -> "SubwordPrediction":
        """Return the head for a tokenizer's output vocabulary of subwords."""
        vocabulary = special.output_vocabulary
        return (
            self
            if vocabulary is None
            else replace(self, output_vocab_size=vocabulary.special_ids.vocab_size)
        )

    @property
    def loss_description(self) -> str:
        """A whole subword at one of its characters."""
        return "cross-entropy of the subword, at one of its characters"

    @property
    def is_kept_after_pretraining(self) -> bool:
        """False: it is used for pretraining only."""
        return False

    def build(
        self, architecture: StackArchitecture, embedding_table: TokenEmbedding
    ) -> "SubwordPredictionHead":
        """Build the head of an architecture."""
        return SubwordPredictionHead(self, architecture)


class SubwordPredictionHead(nn.Module):
    """Logits of subwords at the targets, and their cross-entropy."""

    def __init__(self, spec: SubwordPrediction, a: StackArchitecture) -> None:
        super().__init__()
        self.spec = spec
        self.out = nn.Linear(a.d_model, spec.output_vocab_size)

    def flops(self, length: int, target_fraction: float) -> float:
        """Count the forward FLOPs per token: of the output layer."""
        return target_fraction * 2 * self.out.weight.numel()

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Count the targets, without reading a tensor."""
        if batch.targets is None:
            return {}
        n = (
            batch.targets.numel()
            if batch.target_positions is None
            else batch.target_positions.numel()
        )
        return {self.spec.term: n}

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, return_logits: bool = False
    ) -> Prediction:
        """Score the positions whose target is not IGNORE; with `return_logits`, return logits."""
        if batch.targets is None:
            return Prediction()
        flat, targets = hidden.flatten(0, 1), batch.targets.flatten()
        if batch.target_positions is not None:
            flat, targets = flat[batch.target_positions], targets[batch.target_positions]
        total, n_correct = linear_cross_entropy(flat, self.out.weight, self.out.bias, targets)
        logits = {self.spec.term: self.out(flat)} if return_logits else {}
        return Prediction(logits, {self.spec.term: Term(total, targets.numel(), n_correct)})
