"""Prediction of adjacent sentences: by words (skip-thoughts) or contrastive (quick-thoughts)."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from unmask.batch import IGNORE_INDEX, Batch, Example, Visibility
from unmask.heads.classification.sequence_classification import check_bidirectional
from unmask.heads.language.linear_cross_entropy import linear_cross_entropy
from unmask.heads.prediction import Prediction, Term
from unmask.heads.spec import HeadSpec
from unmask.model.architecture import StackArchitecture
from unmask.model.backbones.recurrent_layers import GRULayer
from unmask.model.layers.embeddings.token_embedding import TokenEmbedding, require_embedding_table
from unmask.model.text_layout import TextLayout
from unmask.objectives.described import DescribedInputs, DescribedLoss

SentencePooling = Literal["last", "ends", "mean", "first"]
"""Pooling of a sentence: the hidden state of a token, the last outputs of both directions, or the
mean."""


@dataclass(frozen=True)
class SentenceLayout:
    """The sentences of a batch in order, each in a row of its own."""

    text_layout: TextLayout
    has_next: Bool[Tensor, "m"]
    """For each sentence but the last, whether the next one is from the same text."""

    @classmethod
    def from_batch(cls, batch: Batch) -> "SentenceLayout | None":
        """Find the sentences of a batch; None if texts are not split into sentences."""
        if batch.part_ids is None:
            return None
        texts = TextLayout.from_batch(
            replace(batch, visibility=Visibility(document=batch.part_ids))
        )
        assert texts.index is not None
        number = batch.part_ids.flatten()[texts.index[:, 0]]
        return cls(texts, number[1:] == number[:-1] + 1)  # each row counts from 0

    @property
    def with_next(self) -> Int[Tensor, "k"]:
        """Indices of the sentences whose next one is from the same text."""
        return self.has_next.nonzero().squeeze(1)

    def sentence_targets(self, targets: Int[Tensor, "b t"]) -> Int[Tensor, "n l"]:
        """Put the targets of each sentence in a row; IGNORE after its end."""
        assert self.text_layout.index is not None
        assert self.text_layout.is_token is not None
        return torch.where(
            self.text_layout.is_token, targets.flatten()[self.text_layout.index], IGNORE_INDEX
        )

    def sentence_embeddings(
        self, hidden: Float[Tensor, "b t d"], pooling: SentencePooling
    ) -> Float[Tensor, "n d"]:
        """Pool each sentence to one vector."""
        assert self.text_layout.is_token is not None
        own, n = self.text_layout.to_texts(hidden), self.text_layout.is_token.sum(1)
        if pooling == "mean":
            return self.text_layout.zero_padding(own).sum(1) / n[:, None]
        last = own[torch.arange(len(own), device=own.device), n - 1]
        if pooling == "ends":
            return torch.cat((last.chunk(2, -1)[0], own[:, 0].chunk(2, -1)[1]), -1)
        return own[:, 0] if pooling == "first" else last


@dataclass(frozen=True, kw_only=True)
class SkipThoughts(HeadSpec):
    """Each sentence's vector predicts the sentences after and before it, word by word.

    Kiros et al. 2015, arXiv:1506.06726, section 2.1. There are two decoders, GRUs that read the
    vector as an additional input at each word; they share an output matrix.

    The decoders use the token embeddings of the encoder (released code, `build_model`). Deviates
    from the released code: there the vector is only the initial state of the decoders.
    """

    required_term: ClassVar[str] = "sentences_said"
    """The term of the objective with which these are computed."""
    pooling: SentencePooling = "last"

    @property
    def terms(self) -> tuple[str, ...]:
        """The names of its losses: one for each decoder."""
        return ("following", "preceding")

    @property
    def objective_term(self) -> str:
        """The term that an objective must have for the head to be trained."""
        return self.required_term

    def describe_losses(self, example: Example) -> tuple[DescribedLoss, ...]:
        """The words of each sentence that has one before it, and of each that has one after it."""
        counts = [sum(x is not None for x in view.answers) for view in self._decoders(example)]
        return tuple(
            DescribedLoss(term=term, n=n, loss="cross-entropy of the word")
            for term, n in zip(self.terms, counts, strict=True)
        )

    def describe_inputs(
        self, example: Example, drawn: Int[np.ndarray, "t"], source: str
    ) -> tuple[DescribedInputs, ...]:
        """Return what each decoder reads, beside the vector of the neighbor, and is asked."""
        return self._decoders(example)

    @staticmethod
    def _decoders(example: Example) -> tuple[DescribedInputs, ...]:
        part = np.zeros_like(example.inputs) if example.part_ids is None else example.part_ids
        both = {"before": part > 0, "after": part < part.max(initial=0)}
        return tuple(
            DescribedInputs(
                title=f"inputs of a decoder, beside the vector of the sentence {side}",
                ids=example.inputs[where],
                answers=[None if t == IGNORE_INDEX else t for t in example.targets[where].tolist()],
                segments=part[where].tolist(),
            )
            for side, where in both.items()
        )

    @property
    def reader(self) -> str:
        """The encoder of sentences, which is asked nothing itself."""
        return "the encoder of sentences"

    @property
    def gives_perplexity(self) -> bool:
        """True: its loss is that of a language model."""
        return True

    def build(
        self, architecture: StackArchitecture, embedding_table: TokenEmbedding
    ) -> "SkipThoughtsHead":
        """Build the head of an architecture with token embeddings `embedding_table`.

        Raises:
            ValueError: the network does not support the pooling.
        """
        if self.pooling == "ends":
            check_bidirectional(architecture)
        return SkipThoughtsHead(self, architecture, require_embedding_table(embedding_table))


class SkipThoughtsHead(nn.Module):
    """Two decoders, and their output matrix."""

    def __init__(
        self, spec: SkipThoughts, a: StackArchitecture, embedding_table: nn.Embedding
    ) -> None:
        super().__init__()
        self.spec = spec
        self.following = GRULayer(a.d_embed + a.d_model, a.d_model)
        self.preceding = GRULayer(a.d_embed + a.d_model, a.d_model)
        self.out = nn.Linear(a.d_model, a.vocab_size)
        # in a tuple: a parameter of the backbone, not of this module
        self._table = (embedding_table,)

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Count the target words, separately for next and for previous sentences."""
        sentences = SentenceLayout.from_batch(batch)
        if sentences is None or batch.targets is None:
            return {}
        is_target, rows_here = (
            (sentences.sentence_targets(batch.targets) != IGNORE_INDEX).sum(1),
            sentences.with_next,
        )
        return {
            name: int(is_target[rows].sum()) for name, rows in self._decoded_sentences(rows_here)
        }

    def _decoded_sentences(self, pairs: Int[Tensor, "k"]) -> list[tuple[str, Int[Tensor, "k"]]]:
        """Return the target sentences of each decoder, given the first of each pair."""
        following, preceding = self.spec.terms
        return [(following, pairs + 1), (preceding, pairs)]

    def flops(self, length: int, target_fraction: float) -> float:
        """Count the forward FLOPs per token: nearly all tokens are predicted twice."""
        decoder = self.following.reads.weight.numel() + self.following.recalls.weight.numel()
        return target_fraction * 2 * 2 * (decoder + self.out.weight.numel())

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, return_logits: bool = False
    ) -> Prediction:
        """Predict the adjacent sentences; logits are [n v], of the target words."""
        sentences = SentenceLayout.from_batch(batch)
        if sentences is None or batch.targets is None:
            return Prediction()
        vectors = sentences.sentence_embeddings(hidden, self.spec.pooling)
        words = sentences.text_layout.to_texts(self._table[0](batch.inputs))
        answers = sentences.sentence_targets(batch.targets)
        logits, terms = dict[str, Tensor](), dict[str, Term]()
        for name, rows in self._decoded_sentences(sentences.with_next):
            neighbors = 2 * sentences.with_next + 1 - rows
            decoder = self.following if name == self.spec.terms[0] else self.preceding
            states = self._decode(decoder, words[rows], vectors[neighbors])
            is_target = answers[rows] != IGNORE_INDEX
            flat, targets = states[is_target], answers[rows][is_target]
            total, n_correct = linear_cross_entropy(flat, self.out.weight, self.out.bias, targets)
            terms[name] = Term(total, len(targets), n_correct)
            if return_logits:
                logits[name] = self.out(flat)
        return Prediction(logits, terms)

    def _decode(
        self, decoder: GRULayer, words: Float[Tensor, "k l e"], vectors: Float[Tensor, "k d"]
    ) -> Float[Tensor, "k l d"]:
        """Run a decoder over sentences, given the vectors of the adjacent ones."""
        context = vectors[:, None].expand(-1, words.shape[1], -1)
        x = torch.cat((words, context.to(words.dtype)), -1)
        return decoder(x, decoder.initial_state(x))[0] if len(x) else x[..., : vectors.shape[1]]


@dataclass(frozen=True, kw_only=True)
class QuickThoughts(HeadSpec):
    """In-batch contrastive loss: each sentence must match the sentences before and after it.

    Logeswaran and Lee 2018, arXiv:1803.02893, section 3: the score of two sentences is the inner
    product f(s) g(s'), without other weights, so that the vectors must carry all information. Here
    f(s) is the first half of a sentence's vector, and g(s) the second. A sentence between two has
    both as targets, with probability 1/2 each (released code, `build_loss`).

    The softmax is over a micro-batch: with fewer sentences the task is easier. Deviates from the
    released code: there a sentence is also a candidate for itself, with a score of 0.
    """

    term: str = "sentences_found"
    pooling: SentencePooling = "last"

    @property
    def compares_rows(self) -> bool:
        """Whether its softmax is over the rows of a micro-batch: yes."""
        return True

    def describe_losses(self, example: Example) -> tuple[DescribedLoss, ...]:
        """Each sentence that has a neighbor: which of the batch are they?"""
        n = 0 if example.part_ids is None else len(np.unique(example.part_ids))
        loss = "cross-entropy of its neighbors among the sentences of the batch"
        return (DescribedLoss(term=self.term, n=n if n > 1 else 0, loss=loss),)

    @property
    def is_kept_after_pretraining(self) -> bool:
        """False: it has no weights."""
        return False

    def build(
        self, architecture: StackArchitecture, embedding_table: TokenEmbedding
    ) -> "QuickThoughtsHead":
        """Build the head of an architecture.

        Raises:
            ValueError: hidden states cannot be halved, or the network does not support the pooling.
        """
        if self.pooling == "ends":
            check_bidirectional(architecture)
        if architecture.d_model % 2:
            raise ValueError(f"{self.term}: halves d_model, got {architecture.d_model}")
        return QuickThoughtsHead(self)


class QuickThoughtsHead(nn.Module):
    """Inner products of sentences, and no weights."""

    def __init__(self, spec: QuickThoughts) -> None:
        super().__init__()
        self.spec = spec

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Count the sentences that have an adjacent one."""
        sentences = SentenceLayout.from_batch(batch)
        if sentences is None:
            return {}
        return {self.spec.term: int(_adjacent(sentences.has_next).any(1).sum())}

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, return_logits: bool = False
    ) -> Prediction:
        """Score all sentences as neighbors of each; logits are [n n]."""
        sentences = SentenceLayout.from_batch(batch)
        if sentences is None:
            return Prediction()
        f, g = sentences.sentence_embeddings(hidden, self.spec.pooling).float().chunk(2, -1)
        logits = (f @ g.T).fill_diagonal_(-torch.inf)
        beside = _adjacent(sentences.has_next)
        has_neighbor = beside.any(1)
        is_neighbor = beside[has_neighbor]
        logs = logits[has_neighbor].log_softmax(-1).masked_fill(~is_neighbor, 0)
        total = -(logs.sum(1) / is_neighbor.sum(1)).sum()
        hits = is_neighbor.gather(1, logits[has_neighbor].argmax(-1, keepdim=True)).sum()
        returned_logits = {self.spec.term: logits} if return_logits else {}
        return Prediction(returned_logits, {self.spec.term: Term(total, len(is_neighbor), hits)})


def _adjacent(has_next: Bool[Tensor, "m"]) -> Bool[Tensor, "n n"]:
    """Return which pairs of sentences are adjacent."""
    return torch.diag(has_next, 1) | torch.diag(has_next, -1)
