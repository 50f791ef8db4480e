"""A text while it is said: what was read before, what may follow, and when it is over."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.generation.decoding_batch import Prompt
from unmask.generation.settings import GenerationConfig, Greedy, Sampling
from unmask.tokenizers.spec import SpecialTokenIds

NO_TOKEN = -1
"""In place of a token where none may follow."""


@runtime_checkable
class GenerationConstraint(Protocol):
    """What follows a text while it is said."""

    def is_finished(self, generated_ids: Sequence[int]) -> bool:
        """Say whether the text ends here, whatever the model would say next."""
        ...

    def allowed_tokens(self, generated_ids: Sequence[int]) -> Sequence[int] | None:
        """List the tokens that may follow; None: any."""
        ...


@dataclass(kw_only=True)
class GenerationState:
    """What becomes of a prompt."""

    prompt_ids: list[int]
    """Before anything is said, by the decoder or the only stack there is: at least one token."""
    source_ids: list[int] | None = None
    """What the encoder reads, where there is one."""
    n_source_tokens: int = 0
    """So many of `prompt_ids`, the first, are a source that is seen as a whole."""
    max_new_tokens: int
    """Tokens that are said at most."""
    max_length: int | None = None
    """Tokens that are read at a time at most; None: any number."""
    n_forced_tokens: int = 0
    """So many of `prompt_ids`, the last, count where lengths are compared: in transformers they are said,
    by force."""
    n_prefix_tokens: int = 0
    """Tokens at the beginning that are read again wherever the text is cut."""
    generator: np.random.Generator
    """Its own, so that what is drawn does not depend on the texts beside it."""
    constraint: GenerationConstraint | None = None
    generated_ids: list[int] = field(default_factory=list[int])
    log_probability: float = 0.0
    """The log-probability of what was said, the end token included, where that is counted."""
    is_finished: bool = False
    max_tokens_in_window: int | None = None
    """Tokens that may be said before the positions end; None: they do not."""

    def current_prompt(self) -> Prompt:
        """Return what is to be read before more is said: all, or the last of it."""
        ids = [*self.prompt_ids, *self.generated_ids]
        if self.max_length is not None:
            if len(ids) > self.max_length:
                left = self.max_new_tokens - len(self.generated_ids)
                n = max(self.max_length // 2, self.max_length + 1 - left) - self.n_prefix_tokens
                ids = [*ids[: self.n_prefix_tokens], *ids[len(ids) - max(n, 1) :]]
            self.max_tokens_in_window = len(self.generated_ids) + self.max_length + 1 - len(ids)
        return Prompt(input_ids=ids, source_ids=self.source_ids, n_source_tokens=self.n_source_tokens)

    @property
    def is_paused(self) -> bool:
        """Whether it is over, or must be read anew."""
        return self.is_finished or len(self.generated_ids) == self.max_tokens_in_window

    def append_token(self, token: int, end_id: int | None) -> bool:
        """Add a token, unless it is the end or NOTHING; say whether it was added."""
        if token in (end_id, NO_TOKEN):
            self.is_finished = True
            return False
        self.generated_ids.append(token)
        self.is_finished = len(self.generated_ids) == self.max_new_tokens or self.is_stopped_by_constraint(self.generated_ids)
        return True

    def is_stopped_by_constraint(self, generated_ids: Sequence[int]) -> bool:
        """Say whether the guide ends a text here."""
        return self.constraint is not None and self.constraint.is_finished(generated_ids)


def process_logits(
    logits: Float[Tensor, "b v"],
    states: Sequence[tuple[GenerationState, Sequence[int]]],
    generation_config: GenerationConfig,
    special_ids: SpecialTokenIds,
) -> Float[Tensor, "b v"]:
    """Change the scores of tokens that were said before, and forbid others: these have -inf.

    In the order of transformers: repetition penalty, n-grams, the end token, the guide.

    Args:
        logits: of the next token; of beams, log-probabilities.
        states: of each row the text and what is said of it.
        generation_config: which tokens it may not have.
        special_ids: whose end token is forbidden at first.
    """
    if all(text.constraint is None for text, _ in states) and not (
        generation_config.repetition_penalty != 1 or generation_config.no_repeat_ngram_size or generation_config.min_new_tokens
    ):
        return logits
    logits = logits.clone()
    for row, (text, said) in zip(logits, states, strict=True):
        known = [*text.prompt_ids, *said]
        if generation_config.repetition_penalty != 1:
            seen = torch.tensor(sorted({t for t in known if t < special_ids.vocab_size}), device=row.device)
            old, factor = row[seen], generation_config.repetition_penalty
            row[seen] = torch.where(old < 0, old * factor, old / factor)
        if generation_config.no_repeat_ngram_size is not None:
            _forbid_tokens(row, (t for t in _tokens_repeating_ngram(known, generation_config.no_repeat_ngram_size) if t < special_ids.vocab_size))
        if len(said) < generation_config.min_new_tokens and special_ids.end is not None:
            row[special_ids.end] = -torch.inf
        allowed = None if text.constraint is None else text.constraint.allowed_tokens(said)
        if allowed is not None:
            some = torch.tensor(list(allowed), dtype=torch.long, device=row.device)
            kept = row[some]
            row.fill_(-torch.inf)
            row[some] = kept
    return logits


def _forbid_tokens(logits: Float[Tensor, "v"], tokens: Iterator[int]) -> None:
    gone = torch.tensor(list(tokens), dtype=torch.long, device=logits.device)
    logits[gone] = -torch.inf


def _tokens_repeating_ngram(token_ids: Sequence[int], ngram_size: int) -> Iterator[int]:
    """List the tokens with which the last n - 1 were followed before."""
    last = token_ids[len(token_ids) - ngram_size + 1 :] if ngram_size > 1 else []
    for i in range(len(token_ids) - ngram_size + 1):
        if token_ids[i : i + ngram_size - 1] == last:
            yield token_ids[i + ngram_size - 1]


def select_tokens(
    logits: Float[Tensor, "b v"], strategy: Greedy | Sampling, generators: Sequence[np.random.Generator]
) -> Int[Tensor, "b"]:
    """Pick one token a row: the likeliest, or one drawn with the row's own generator.

    Where all scores are -inf it is NOTHING.
    """
    highest, best = logits.max(-1)
    if isinstance(strategy, Greedy):
        picked = best
    else:
        share = strategy.probabilities(logits.masked_fill(highest[:, None] == -torch.inf, 0.0))
        sums = share.double().cumsum(-1)
        drawn = torch.tensor([1 - d.random() for d in generators], dtype=torch.float64)
        # Above 0 and at most the sum of all, so that a token without probability is never picked.
        chosen = drawn.to(logits.device)[:, None] * sums[:, -1:]
        picked = torch.searchsorted(sums, chosen)[:, 0]
    return torch.where(highest == -torch.inf, NO_TOKEN, picked)
