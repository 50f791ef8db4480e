"""Beam search: several hypotheses are continued side by side, and the best are kept."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from unmask.generation.decoding.branches import read_hypotheses
from unmask.generation.decoding.fused_step import FusedStep
from unmask.generation.decoding.likeliest import likeliest
from unmask.generation.settings import BeamSearch, GenerationConfig
from unmask.generation.state import GenerationState, process_logits
from unmask.heads.model import Model
from unmask.tokenizers.spec import SpecialTokenIds


@dataclass(frozen=True)
class ScoredSequence:
    """A generated text and its score."""

    token_ids: tuple[int, ...]
    """Without the end token, if it is special."""
    score: float
    """See `BeamSearch` and `BestOfN`."""


@dataclass(frozen=True)
class _Hypothesis:
    """A text that is not finished."""

    token_ids: tuple[int, ...]
    log_probability: float


@dataclass(kw_only=True)
class _BeamSearchState:
    """The search of one prompt."""

    generation_state: GenerationState
    strategy: BeamSearch
    hypotheses: list[_Hypothesis] = field(default_factory=lambda: [_Hypothesis((), 0.0)])
    """The best first."""
    finished_sequences: list[ScoredSequence] = field(default_factory=list[ScoredSequence])
    """The best first, at most as many as beams."""
    is_finished: bool = False

    def length_penalized_score(self, log_probability: float, length: int) -> float:
        return (
            log_probability
            / (length + self.generation_state.n_forced_tokens) ** self.strategy.length_penalty
        )

    def step(
        self, continuations: Sequence[tuple[float, int, int]], special_ids: SpecialTokenIds
    ) -> list[int]:
        """Take the best continuations: log-probability, index of hypothesis, token; the best first.

        Returns the indices of the hypotheses that the new ones continue.
        """
        before, hypotheses, origins = self.hypotheses, list[_Hypothesis](), list[int]()
        length = len(before[0].token_ids) + 1
        for rank, (total, origin, token) in enumerate(
            continuations[: _n_candidates(self.strategy, special_ids.ends)]
        ):
            token_ids = before[origin].token_ids + (token,) * special_ids.is_in_text(token)
            if (
                token in special_ids.ends
                or length == self.generation_state.max_new_tokens
                or self.generation_state.is_stopped_by_constraint(token_ids)
            ):
                if rank < self.strategy.beams:
                    self.finished_sequences.append(
                        ScoredSequence(token_ids, self.length_penalized_score(total, length))
                    )
            elif len(hypotheses) < self.strategy.beams:
                hypotheses.append(_Hypothesis(token_ids, total))
                origins.append(origin)
        if not continuations:  # nothing may follow
            self.finished_sequences += [
                ScoredSequence(
                    h.token_ids, self.length_penalized_score(h.log_probability, max(length - 1, 1))
                )
                for h in before
            ]
        self.finished_sequences = sorted(self.finished_sequences, key=lambda one: -one.score)[
            : self.strategy.beams
        ]
        self.hypotheses = hypotheses
        self.is_finished = not hypotheses or self._cannot_improve(hypotheses[0], length)
        return [] if self.is_finished else origins

    def _cannot_improve(self, best: _Hypothesis, length: int) -> bool:
        """Return whether no unfinished hypothesis can still become one of the best."""
        if len(self.finished_sequences) < self.strategy.beams:
            return False
        if self.strategy.early_stopping is True:
            return True
        never = self.strategy.early_stopping == "never" and self.strategy.length_penalty > 0
        return (
            self.length_penalized_score(
                best.log_probability, self.generation_state.max_new_tokens if never else length
            )
            <= self.finished_sequences[-1].score
        )


def _n_candidates(strategy: BeamSearch, end_ids: Sequence[int]) -> int:
    """Return how many continuations are looked at: enough that `beams` of them do not end."""
    return max(2, 1 + len(end_ids)) * strategy.beams


def beam_search(
    model: Model,
    states: Sequence[GenerationState],
    generation_config: GenerationConfig,
    strategy: BeamSearch,
    special_ids: SpecialTokenIds,
    step: FusedStep | None = None,
) -> list[list[ScoredSequence]]:
    """Search for the best texts after each prompt, all prompts at once; `step` as in a batch."""
    searches = [_BeamSearchState(generation_state=state, strategy=strategy) for state in states]
    active, n = list(searches), _n_candidates(strategy, special_ids.ends)
    hypotheses = read_hypotheses(
        model, [state.current_prompt() for state in states], special_ids, step
    )
    while active:
        logs = hypotheses.next_token_logits().log_softmax(-1)
        texts = [(one.generation_state, h.token_ids) for one in active for h in one.hypotheses]
        logs = process_logits(logs, texts, generation_config, special_ids)
        totals = [h.log_probability for one in active for h in one.hypotheses]
        logs = logs + torch.tensor(totals, device=logs.device)[:, None]
        best = likeliest(logs, min(n, special_ids.vocab_size))
        values, tokens = (x.tolist() for x in best)
        origins, new_tokens, first = list[list[int]](), list[list[int]](), 0
        for one in active:
            n_rows = len(one.hypotheses)
            continuations = [
                (total, i, token)
                for i in range(n_rows)
                for total, token in zip(values[first + i], tokens[first + i], strict=True)
                if total > -torch.inf
            ]
            continuations.sort(key=lambda x: -x[0])
            origins.append(one.step(continuations, special_ids))
            new_tokens.append([h.token_ids[-1] for h in one.hypotheses] if origins[-1] else [])
            first += n_rows
        active = [one for one in active if not one.is_finished]
        if active:
            hypotheses.extend(origins, new_tokens)
    return [one.finished_sequences[: strategy.n_best] for one in searches]
