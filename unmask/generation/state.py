"""The state of a text while it is generated: its prompt, which tokens may follow, its end."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.batch import Feature
from unmask.generation.decoding.batch import Prompt
from unmask.generation.decoding.likeliest import likeliest
from unmask.generation.settings import GenerationConfig, Greedy, Sampling
from unmask.tokenizers.spec import SpecialTokenIds

NO_TOKEN = -1
"""In place of a token where none may follow."""


@runtime_checkable
class GenerationConstraint(Protocol):
    """Follows a text while it is generated; may end it, or restrict its tokens."""

    def is_finished(self, generated_ids: Sequence[int]) -> bool:
        """Return whether the text ends here, before the model is called again."""
        ...

    def allowed_tokens(self, generated_ids: Sequence[int]) -> Sequence[int] | None:
        """List the tokens that may follow; None: any."""
        ...


@dataclass(kw_only=True)
class GenerationState:
    """A prompt and its generated tokens."""

    prompt_ids: list[int]
    """Input of the decoder or the only stack before generation: at least one token."""
    source_ids: list[int] | None = None
    """Input of the encoder, where there is one."""
    features: tuple[Feature, ...] = ()
    """What the encoder reads beside `source_ids`, such as a picture."""
    n_source_tokens: int = 0
    """Number of leading `prompt_ids` that are a source, read in both directions."""
    max_new_tokens: int
    """Maximum number of new tokens."""
    max_length: int | None = None
    """Maximum number of tokens that are read together; None: any number."""
    n_forced_tokens: int = 0
    """Number of trailing `prompt_ids` that count toward the length; in transformers they are forced
    tokens."""
    n_prefix_tokens: int = 0
    """Tokens at the beginning that are read again wherever the text is cut."""
    generator: np.random.Generator
    """Its own, so that sampling does not depend on the other texts of a batch."""
    constraint: GenerationConstraint | None = None
    generated_ids: list[int] = field(default_factory=list[int])
    log_probability: float = 0.0
    """Sum over the new tokens, the end token included, where it is tracked."""
    is_finished: bool = False
    max_tokens_in_window: int | None = None
    """New tokens before the positions end; None: they do not."""

    def current_prompt(self) -> Prompt:
        """Return the tokens to be read before generation continues: all, or the last of them."""
        ids = [*self.prompt_ids, *self.generated_ids]
        if self.max_length is not None:
            if len(ids) > self.max_length:
                left = self.max_new_tokens - len(self.generated_ids)
                n = max(self.max_length // 2, self.max_length + 1 - left) - self.n_prefix_tokens
                ids = [*ids[: self.n_prefix_tokens], *ids[len(ids) - max(n, 1) :]]
            self.max_tokens_in_window = len(self.generated_ids) + self.max_length + 1 - len(ids)
        return Prompt(
            input_ids=ids,
            source_ids=self.source_ids,
            n_source_tokens=self.n_source_tokens,
            features=self.features,
        )

    @property
    def is_paused(self) -> bool:
        """Whether it is finished, or must be read anew."""
        return self.is_finished or len(self.generated_ids) == self.max_tokens_in_window

    def append_token(self, token: int, special_ids: SpecialTokenIds) -> bool:
        """Add a token, unless it is a special end or NO_TOKEN; say whether it was added."""
        if is_added := token != NO_TOKEN and special_ids.is_in_text(token):
            self.generated_ids.append(token)
        self.is_finished = (
            not is_added
            or token in special_ids.ends
            or len(self.generated_ids) == self.max_new_tokens
            or self.is_stopped_by_constraint(self.generated_ids)
        )
        return is_added

    def is_stopped_by_constraint(self, generated_ids: Sequence[int]) -> bool:
        """Return whether the constraint ends a text here."""
        return self.constraint is not None and self.constraint.is_finished(generated_ids)


StepObserver: TypeAlias = Callable[
    [Sequence[GenerationState], Float[Tensor, "b v"], Int[Tensor, "b"]], None
]
"""What sees each step of decoding: the texts, the logits after penalties, the selected tokens."""


def process_logits(
    logits: Float[Tensor, "b v"],
    states: Sequence[tuple[GenerationState, Sequence[int]]],
    generation_config: GenerationConfig,
    special_ids: SpecialTokenIds,
) -> Float[Tensor, "b v"]:
    """Penalize the logits of tokens that occurred before, and set those of forbidden ones to -inf.

    In the order of transformers: repetition penalty, n-grams, forbidden tokens, the end tokens, the
    constraint, the last token.

    Args:
        logits: of the next token; of beams, log-probabilities.
        states: of each row the text and its generated tokens.
        generation_config: which tokens are penalized and forbidden.
        special_ids: whose end tokens are forbidden before the minimum length.
    """
    restricts_tokens = generation_config.restricts_tokens
    if not restricts_tokens and all(state.constraint is None for state, _ in states):
        return logits
    logits = logits.clone()
    for row, (state, generated_ids) in zip(logits, states, strict=True):
        ids = [*state.prompt_ids, *generated_ids]
        if generation_config.repetition_penalty != 1:
            seen = torch.tensor(
                sorted({t for t in ids if t < special_ids.vocab_size}), device=row.device
            )
            old, factor = row[seen], generation_config.repetition_penalty
            row[seen] = torch.where(old < 0, old * factor, old / factor)
        if restricts_tokens:
            forbidden = _forbidden_tokens(state, generated_ids, generation_config, special_ids.ends)
            row[[t for t in forbidden if 0 <= t < special_ids.vocab_size]] = -torch.inf
        constraint = state.constraint
        allowed = None if constraint is None else constraint.allowed_tokens(generated_ids)
        if allowed is not None:
            tokens = torch.tensor(list(allowed), dtype=torch.long, device=row.device)
            allowed_logits = row[tokens]
            row.fill_(-torch.inf)
            row[tokens] = allowed_logits
        last_token = generation_config.last_token
        if last_token is not None and len(generated_ids) + 1 == state.max_new_tokens:
            row.fill_(-torch.inf)
            row[last_token] = 0
    return logits


def _forbidden_tokens(
    state: GenerationState,
    generated_ids: Sequence[int],
    generation_config: GenerationConfig,
    end_ids: Sequence[int],
) -> Iterator[int]:
    """Yield the tokens that settings forbid next."""
    ids = [*state.prompt_ids, *generated_ids]
    if generation_config.no_repeat_ngram_size is not None:
        yield from _tokens_repeating_ngram(ids, generation_config.no_repeat_ngram_size)
    for *before, last in generation_config.forbidden:
        if ids[len(ids) - len(before) :] == before:
            yield last
    if not generated_ids:
        yield from generation_config.forbidden_first
    if (
        len(generated_ids) < generation_config.min_new_tokens
        or len(ids) < generation_config.min_length
    ):
        yield from end_ids


def _tokens_repeating_ngram(token_ids: Sequence[int], ngram_size: int) -> Iterator[int]:
    """Yield the tokens that followed the last n - 1 tokens before."""
    last = token_ids[len(token_ids) - ngram_size + 1 :] if ngram_size > 1 else []
    for i in range(len(token_ids) - ngram_size + 1):
        if token_ids[i : i + ngram_size - 1] == last:
            yield token_ids[i + ngram_size - 1]


def select_tokens(
    logits: Float[Tensor, "b v"],
    strategy: Greedy | Sampling,
    generators: Sequence[np.random.Generator],
) -> Int[Tensor, "b"]:
    """Select one token a row: the likeliest, or one sampled with the row's own generator.

    Where all logits are -inf it is NO_TOKEN.
    """
    highest, best = (x[:, 0] for x in likeliest(logits, 1))
    if isinstance(strategy, Greedy):
        selected = best
    else:
        stuck = highest[:, None] == -torch.inf
        probabilities = strategy.probabilities(logits.masked_fill(stuck, 0.0))
        sums = probabilities.double().cumsum(-1)
        drawn = torch.tensor([1 - g.random() for g in generators], dtype=torch.float64)
        # Above 0 and at most the sum of all: a token without probability is never selected.
        thresholds = drawn.to(logits.device)[:, None] * sums[:, -1:]
        selected = torch.searchsorted(sums, thresholds)[:, 0]
    return torch.where(highest == -torch.inf, NO_TOKEN, selected)
