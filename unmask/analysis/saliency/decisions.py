"""Decisions to be explained: the text that a model reads, and the output that is asked about."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unmask.analysis.saliency.embeddings import record_embeddings, replace_embeddings
from unmask.analysis.words import SPECIAL, WordPieces
from unmask.batch import Batch
from unmask.generation.text_batches import evaluation_mode
from unmask.heads.model import Model

ROW_TOKENS = 4096
"""Tokens that go through the model at once."""


@dataclass(frozen=True)
class OutputScore:
    """How much an output speaks for a decision, in each row of a batch."""

    log_odds: Float[Tensor, "b"]
    """log p - log(1 - p) of the predicted label or token, which does not saturate as p does; of a
    regression, the number."""
    probability: Float[Tensor, "b"]
    """p; of a regression, the number."""


OutputFunction = Callable[[Model, Batch], OutputScore]
"""Runs a model over a batch and scores the output of a decision."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A text as a model reads it, and the output that is explained."""

    pieces: WordPieces
    columns: tuple[Int[np.ndarray, "_"], ...]
    """Of each table of embeddings that the forward pass reads, in order: the index into `pieces` of
    the token in each column; `SPECIAL` where it is another token."""
    make_batch: Callable[[int], Batch]
    """Returns the text in so many equal rows."""
    score: OutputFunction
    pooled: Int[np.ndarray, "_"]
    """Tokens of `pieces` whose last hidden states the output reads."""
    predicted: str
    """The predicted label, token or number."""
    target: str | None = None
    """The right one; None: unknown."""


class EmbeddedDecision:
    """A decision as a function of token embeddings.

    It has the embeddings x of the text, and those of a baseline x' in which all words are removed:
    their tokens have the embedding `removed`. Special tokens keep theirs, so that nothing is
    attributed to them.
    """

    def __init__(self, model: Model, decision: Decision, removed: Float[Tensor, "d"]) -> None:
        self.model, self.decision = model, decision
        with evaluation_mode(model), record_embeddings(model) as tables:
            scored = decision.score(model, self._batch(1))
        self.log_odds, self.probability = float(scored.log_odds), float(scored.probability)
        self.embeddings = tuple(table[:1] for table in tables[: len(decision.columns)])
        """Of each table [1 t d]."""
        self.words = tuple(map(self._words_of, decision.columns, self.embeddings))
        """The word of each column of a table; `SPECIAL` for special tokens and padding."""
        if any(x.shape[-1] != len(removed) for x in self.embeddings):
            raise ValueError("saliency needs embeddings of one width in both stacks")
        self._removed = removed.to(self.embeddings[0])
        self.baseline = self.with_words(torch.zeros(1, self.n_words, dtype=torch.bool))
        """Of each table [1 t d]."""

    @property
    def n_words(self) -> int:
        """Number of words of the text."""
        return len(self.decision.pieces.words)

    @property
    def max_rows(self) -> int:
        """Rows that go through the model at once."""
        return max(ROW_TOKENS // sum(map(len, self.words)), 1)

    def with_words(self, kept: Bool[Tensor, "k w"]) -> tuple[Float[Tensor, "k t d"], ...]:
        """Return the embeddings of each table where only some words are kept, in each row."""
        kept = torch.nn.functional.pad(kept, (0, 1), value=True).to(self.model.device)
        return tuple(
            torch.where(kept[:, words, None], x, self._removed)  # the last column is of `SPECIAL`
            for words, x in zip(self.words, self.embeddings, strict=True)
        )

    def score(self, embeddings: Sequence[Float[Tensor, "k t d"]]) -> OutputScore:
        """Score the output for other embeddings, in each row; with a gradient where it is on."""
        batch = self._batch(len(embeddings[0]))
        with replace_embeddings(self.model, embeddings):
            return self.decision.score(self.model, batch)

    def score_kept(self, kept: Bool[Tensor, "k w"]) -> OutputScore:
        """Score the output where only some words are kept, in each row; without a gradient."""
        with evaluation_mode(self.model):
            parts = [self.score(self.with_words(some)) for some in kept.split(self.max_rows)]
        return OutputScore(
            torch.cat([part.log_odds for part in parts]).cpu(),
            torch.cat([part.probability for part in parts]).cpu(),
        )

    def sum_by_word(self, by_table: Sequence[Float[Tensor, "t"]]) -> Float[np.ndarray, "w"]:
        """Add what columns have, table by table, for each word."""
        sums = torch.zeros(self.n_words + 1, dtype=torch.float64)  # the last is of `SPECIAL`
        for words, values in zip(self.words, by_table, strict=True):
            at = torch.where(words == SPECIAL, self.n_words, words).cpu()
            sums.index_add_(0, at, values.detach().double().cpu())
        return sums[: self.n_words].numpy()

    def _batch(self, n_rows: int) -> Batch:
        return self.decision.make_batch(n_rows).to(self.model.device)

    def _words_of(
        self, columns: Int[np.ndarray, "n"], embeddings: Float[Tensor, "1 t d"]
    ) -> Int[Tensor, "t"]:
        n_padding = embeddings.shape[1] - len(columns)  # of networks that pad each text
        if n_padding < 0:
            raise ValueError(
                f"this model reads {len(columns)} tokens by {embeddings.shape[1]} embeddings: "
                "outputs are not attributed to its words"
            )
        words = np.where(columns == SPECIAL, SPECIAL, self.decision.pieces.word_of_token[columns])
        padded = np.pad(words, (0, n_padding), constant_values=SPECIAL)
        return torch.from_numpy(padded).to(self.model.device)
