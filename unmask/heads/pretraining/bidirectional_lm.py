"""ELMo's bidirectional language model: each direction predicts the word between its contexts."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unmask.batch import Batch, Example
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.heads.prediction import Prediction, Term
from unmask.heads.spec import HeadSpec
from unmask.model.architecture import StackArchitecture
from unmask.model.backbones.transformer import Architecture
from unmask.model.layers.embeddings.adaptive import AdaptiveInput
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding
from unmask.objectives.described import DescribedLoss, count_targets
from unmask.objectives.features import TwoStream
from unmask.tokenizers.spec import SpecialTokenIds


@dataclass(frozen=True, kw_only=True)
class BidirectionalLM(HeadSpec):
    """The head of a forward and a backward language model, which share output embeddings.

    Peters et al. 2018, arXiv:1802.05365, section 3.1. The loss is the mean of both.
    """

    output_vocab_size: int
    """Size of the output vocabulary of words."""
    cutoffs: tuple[int, ...] = ()
    """First ids of the clusters of rare words in an adaptive softmax, for large vocabularies
    (`unmask.model.layers.embeddings.adaptive`). Deviates: the released code samples 8,192 negatives
    per step."""
    term: str = "both_sides"

    def __post_init__(self) -> None:
        if self.output_vocab_size < 1:
            raise ValueError(f"output_vocab_size must be at least 1, got {self.output_vocab_size}")

    def with_vocabulary(self, special: SpecialTokenIds) -> "BidirectionalLM":
        """Return the head for a tokenizer's output vocabulary of words."""
        vocabulary = special.output_vocabulary
        return (
            self
            if vocabulary is None
            else replace(self, output_vocab_size=vocabulary.special_ids.vocab_size)
        )

    def describe_losses(self, example: Example) -> tuple[DescribedLoss, ...]:
        """Each word twice, once from either side."""
        loss = "cross-entropy of the word, from those before it and again from those after it"
        return (DescribedLoss(term=self.term, n=2 * count_targets(example), loss=loss),)

    @property
    def gives_perplexity(self) -> bool:
        """True: its loss is that of a language model."""
        return True

    def build(
        self, architecture: StackArchitecture, embedding_table: TokenEmbedding
    ) -> "BidirectionalLMHead":
        """Build the head of a stack whose hidden states are two directions, side by side."""
        return BidirectionalLMHead(self, architecture)


class BidirectionalLMHead(nn.Module):
    """Logits of words from each half of the hidden states, and their cross-entropy."""

    def __init__(self, spec: BidirectionalLM, a: StackArchitecture) -> None:
        super().__init__()
        self.spec = spec
        words = Architecture(
            vocab_size=spec.output_vocab_size,
            d_model=a.d_model // 2,
            n_layers=1,
            n_heads=1,
            d_ff=1,
            adaptive_input=AdaptiveInput(spec.cutoffs) if spec.cutoffs else None,
        )
        self.table = words.build_embedding_table()
        self.names = LanguageModeling(bias=True).build(words, self.table)

    def flops(self, length: int, target_fraction: float) -> float:
        """Count the forward FLOPs per token of both output layers."""
        return 2 * self.names.flops(length, target_fraction)

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Count the predictions, two for each target, without reading a tensor."""
        if batch.targets is None:
            return {}
        n = (
            batch.targets.numel()
            if batch.target_positions is None
            else batch.target_positions.numel()
        )
        return {self.spec.term: 2 * n}

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, return_logits: bool = False
    ) -> Prediction:
        """Score the positions whose target is not IGNORE; with `return_logits`, return logits.

        Predictions of the forward direction come first, then those of the backward direction.

        Raises:
            ValueError: the batch has no `TwoStream`, so that hidden states would see the targets.
        """
        if batch.targets is None:
            return Prediction()
        if not batch.has(TwoStream):
            raise ValueError(
                "BidirectionalLM needs hidden states that do not see the targets: TwoStream"
            )
        flat, targets = hidden.flatten(0, 1), batch.targets.flatten()
        if batch.target_positions is not None:
            flat, targets = flat[batch.target_positions], targets[batch.target_positions]
        both = torch.cat(flat.chunk(2, -1))  # [2n d/2]
        total, n_correct = self.names.loss(both, targets.repeat(2))
        logits = {self.spec.term: self.names.logits(both)} if return_logits else {}
        return Prediction(logits, {self.spec.term: Term(total, len(both), n_correct)})
