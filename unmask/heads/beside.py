"""Hidden states of sentences -> those beside each: said word by word, or found among all."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from unmask.batch import IGNORE, Batch, Visibility
from unmask.heads.labels import check_ends
from unmask.heads.language import next_loss
from unmask.heads.prediction import Prediction, Term
from unmask.model.architecture import Architecture
from unmask.model.canine import Table, embedding
from unmask.model.recurrent import Gru
from unmask.model.texts import Texts

OfSentence = Literal["last", "ends", "mean", "first"]
"""What stands for a sentence: the hidden state of a token, what both directions say where each
ends, or the mean of all."""


@dataclass(frozen=True)
class Sentences:
    """The sentences of a batch, one after the other, each in a row of its own."""

    texts: Texts
    followed: Bool[Tensor, "m"]
    """Of all but the last, whether the next one follows it in the same text."""

    @classmethod
    def of(cls, batch: Batch) -> "Sentences | None":
        """Find the sentences of a batch; None where texts are whole."""
        if batch.parts is None:
            return None
        texts = Texts.of(replace(batch, visibility=Visibility(document=batch.parts)))
        assert texts.index is not None
        number = batch.parts.flatten()[texts.index[:, 0]]
        return cls(texts, number[1:] == number[:-1] + 1)  # each row counts from 0

    @property
    def pairs(self) -> Int[Tensor, "k"]:
        """Which sentences are followed by the next one."""
        return self.followed.nonzero().squeeze(1)

    def answers(self, targets: Int[Tensor, "b t"]) -> Int[Tensor, "n l"]:
        """Lay out what is asked of each sentence; IGNORE behind its end."""
        assert self.texts.index is not None
        assert self.texts.real is not None
        return torch.where(self.texts.real, targets.flatten()[self.texts.index], IGNORE)

    def vectors(self, hidden: Float[Tensor, "b t d"], how: OfSentence) -> Float[Tensor, "n d"]:
        """Let one vector stand for each sentence."""
        assert self.texts.real is not None
        own, n = self.texts.apart(hidden), self.texts.real.sum(1)
        if how == "mean":
            return self.texts.clean(own).sum(1) / n[:, None]
        last = own[torch.arange(len(own), device=own.device), n - 1]
        if how == "ends":
            return torch.cat((last.chunk(2, -1)[0], own[:, 0].chunk(2, -1)[1]), -1)
        return own[:, 0] if how == "first" else last


@dataclass(frozen=True, kw_only=True)
class SentencesSaid:
    """Each sentence's vector is asked for the sentences after and before it, word by word.

    Kiros et al. 2015, arXiv:1506.06726, section 2.1: two decoders, GRUs whose gates and new state
    read the vector beside each word; what they say is scored by one matrix.

    The decoders' token vectors are the encoder's (released code, `build_model`). Deviates from the
    released code: there the vector is where decoders begin, and is not read at each word.
    """

    asked_by: ClassVar[str] = "sentences_said"
    """What an objective asks for this to be asked."""
    terms: ClassVar[tuple[str, str]] = ("following", "preceding")
    """Of the loss."""
    pool: OfSentence = "last"

    def build(self, architecture: Architecture, table: Table) -> "SentencesSaidHead":
        """Build the head of a stack whose token table is `table`.

        Raises:
            ValueError: it does not make what stands for a sentence.
        """
        if self.pool == "ends":
            check_ends(architecture)
        return SentencesSaidHead(self, architecture, embedding(table))


class SentencesSaidHead(nn.Module):
    """Two decoders, and the matrix of their scores."""

    def __init__(self, spec: SentencesSaid, a: Architecture, table: nn.Embedding) -> None:
        super().__init__()
        self.spec = spec
        self.following = Gru(a.d_embed + a.d_model, a.d_model)
        self.preceding = Gru(a.d_embed + a.d_model, a.d_model)
        self.out = nn.Linear(a.d_model, a.vocab_size)
        # in a tuple: the backbone's parameter, not one more of this module's
        self._table = (table,)

    def count(self, batch: Batch) -> dict[str, int]:
        """Count the words asked: of sentences that follow one, and of those that one follows."""
        sentences = Sentences.of(batch)
        if sentences is None or batch.targets is None:
            return {}
        asked, here = (sentences.answers(batch.targets) != IGNORE).sum(1), sentences.pairs
        return {name: int(asked[rows].sum()) for name, rows in self._asked(here)}

    def _asked(self, pairs: Int[Tensor, "k"]) -> list[tuple[str, Int[Tensor, "k"]]]:
        """Return which sentences each decoder says, given the first of each pair."""
        following, preceding = self.spec.terms
        return [(following, pairs + 1), (preceding, pairs)]

    def flops(self, length: int, asked: float) -> float:
        """Count the forward's FLOPs a token: nearly all are said twice."""
        decoder = self.following.reads.weight.numel() + self.following.recalls.weight.numel()
        return asked * 2 * 2 * (decoder + self.out.weight.numel())

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, scores: bool = False
    ) -> Prediction:
        """Ask each sentence for those beside it; scores are [n v], of the words asked."""
        sentences = Sentences.of(batch)
        if sentences is None or batch.targets is None:
            return Prediction()
        vectors = sentences.vectors(hidden, self.spec.pool)
        words = sentences.texts.apart(self._table[0](batch.inputs))
        answers = sentences.answers(batch.targets)
        said, terms = dict[str, Tensor](), dict[str, Term]()
        for name, rows in self._asked(sentences.pairs):
            others = 2 * sentences.pairs + 1 - rows
            decoder = self.following if name == self.spec.terms[0] else self.preceding
            states = self._states(decoder, words[rows], vectors[others])
            asked = answers[rows] != IGNORE
            flat, targets = states[asked], answers[rows][asked]
            total, right = next_loss(flat, self.out.weight, self.out.bias, targets)
            terms[name] = Term(total, len(targets), right)
            if scores:
                said[name] = self.out(flat)
        return Prediction(said, terms)

    def _states(
        self, decoder: Gru, words: Float[Tensor, "k l e"], vectors: Float[Tensor, "k d"]
    ) -> Float[Tensor, "k l d"]:
        """Run a decoder over sentences, each of which is told of the one beside it."""
        told = vectors[:, None].expand(-1, words.shape[1], -1)
        x = torch.cat((words, told.to(words.dtype)), -1)
        return decoder(x, decoder.begin(x))[0] if len(x) else x[..., : vectors.shape[1]]


@dataclass(frozen=True, kw_only=True)
class SentencesFound:
    """Each sentence is to find those before and after it among all other sentences of the batch.

    Logeswaran and Lee 2018, arXiv:1803.02893, section 3: the score of two sentences is the inner
    product f(s) g(s'), and nothing else is learned, so that what is known must be in the vectors.
    Here f(s) is the first half of what stands for a sentence, and g(s) the second. Of a sentence
    between two both are right, half each (released code, `build_loss`).

    The batch is what goes through the model at once: of fewer sentences the question is easier.
    Deviates from the released code: there a sentence may choose itself, by a score of 0.
    """

    term: str = "sentences_found"
    pool: OfSentence = "last"

    def build(self, architecture: Architecture, table: Table) -> "SentencesFoundHead":
        """Build the head of a stack.

        Raises:
            ValueError: hidden states cannot be halved, or it does not make what stands for a
                sentence.
        """
        if self.pool == "ends":
            check_ends(architecture)
        if architecture.d_model % 2:
            raise ValueError(f"{self.term}: halves d_model, got {architecture.d_model}")
        return SentencesFoundHead(self)


class SentencesFoundHead(nn.Module):
    """Inner products of sentences, and no weights."""

    def __init__(self, spec: SentencesFound) -> None:
        super().__init__()
        self.spec = spec

    def count(self, batch: Batch) -> dict[str, int]:
        """Count the sentences that have one beside them."""
        sentences = Sentences.of(batch)
        if sentences is None:
            return {}
        return {self.spec.term: int(_beside(sentences.followed).any(1).sum())}

    def forward(
        self, hidden: Float[Tensor, "b t d"], batch: Batch, *, scores: bool = False
    ) -> Prediction:
        """Ask each sentence for those beside it; scores are [n n], of all sentences by all."""
        sentences = Sentences.of(batch)
        if sentences is None:
            return Prediction()
        f, g = sentences.vectors(hidden, self.spec.pool).float().chunk(2, -1)
        said = (f @ g.T).fill_diagonal_(-torch.inf)
        beside = _beside(sentences.followed)
        asked = beside.any(1)
        right = beside[asked]
        logs = said[asked].log_softmax(-1).masked_fill(~right, 0)
        lost = -(logs.sum(1) / right.sum(1)).sum()
        hits = right.gather(1, said[asked].argmax(-1, keepdim=True)).sum()
        kept = {self.spec.term: said} if scores else {}
        return Prediction(kept, {self.spec.term: Term(lost, len(right), hits)})


def _beside(followed: Bool[Tensor, "m"]) -> Bool[Tensor, "n n"]:
    """Say of all sentences which are beside which."""
    return torch.diag(followed, 1) | torch.diag(followed, -1)
