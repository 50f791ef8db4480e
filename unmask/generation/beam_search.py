"""Beam search: several texts are followed side by side, and the best are kept."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from unmask.generation.decoding_batch import DecodingBatch
from unmask.generation.settings import BeamSearch, GenerationConfig
from unmask.generation.state import GenerationState, process_logits
from unmask.heads.model import Model
from unmask.tokenizers.spec import SpecialTokenIds


@dataclass(frozen=True)
class ScoredSequence:
    """A text, and how likely it is."""

    token_ids: tuple[int, ...]
    """Without the end token."""
    score: float
    """See `BeamSearch` and `BestOfN`."""


@dataclass(frozen=True)
class _Hypothesis:
    """A text that may go on."""

    token_ids: tuple[int, ...]
    log_probability: float
    """Its log-probability."""


@dataclass(kw_only=True)
class _BeamSearchState:
    """What is known of one prompt."""

    generation_state: GenerationState
    strategy: BeamSearch
    hypotheses: list[_Hypothesis] = field(default_factory=lambda: [_Hypothesis((), 0.0)])
    """The best first."""
    finished_sequences: list[ScoredSequence] = field(default_factory=list[ScoredSequence])
    """The best first, at most as many as beams."""
    is_finished: bool = False

    def length_penalized_score(self, log_probability: float, length: int) -> float:
        return log_probability / (length + self.generation_state.n_forced_tokens) ** self.strategy.length_penalty

    def step(self, continuations: Sequence[tuple[float, int, int]], end_id: int | None) -> list[int]:
        """Take the best continuations: log-probability, which text, token; the best first.

        Returns which texts the ones followed now go on from.
        """
        before, on, origins = self.hypotheses, list[_Hypothesis](), list[int]()
        length = len(before[0].token_ids) + 1
        for rank, (total, origin, token) in enumerate(continuations[: 2 * self.strategy.beams]):
            said = (*before[origin].token_ids, *(() if token == end_id else (token,)))
            if token == end_id or length == self.generation_state.max_new_tokens or self.generation_state.is_stopped_by_constraint(said):
                if rank < self.strategy.beams:
                    self.finished_sequences.append(ScoredSequence(said, self.length_penalized_score(total, length)))
            elif len(on) < self.strategy.beams:
                on.append(_Hypothesis(said, total))
                origins.append(origin)
        if not continuations:  # nothing may follow
            self.finished_sequences += [ScoredSequence(f.token_ids, self.length_penalized_score(f.log_probability, max(length - 1, 1))) for f in before]
        self.finished_sequences = sorted(self.finished_sequences, key=lambda one: -one.score)[: self.strategy.beams]
        self.hypotheses, self.is_finished = on, not on or self._cannot_improve(on[0], length)
        return [] if self.is_finished else origins

    def _cannot_improve(self, best: _Hypothesis, length: int) -> bool:
        """Say whether no text that goes on could be among the best."""
        if len(self.finished_sequences) < self.strategy.beams:
            return False
        if self.strategy.early_stopping is True:
            return True
        never = self.strategy.early_stopping == "never" and self.strategy.length_penalty > 0
        return self.length_penalized_score(best.log_probability, self.generation_state.max_new_tokens if never else length) <= self.finished_sequences[-1].score


def beam_search(
    model: Model,
    states: Sequence[GenerationState],
    generation_config: GenerationConfig,
    strategy: BeamSearch,
    special_ids: SpecialTokenIds,
) -> list[list[ScoredSequence]]:
    """Search for the best texts after each prompt, all at once."""
    searches = [_BeamSearchState(generation_state=text, strategy=strategy) for text in states]
    going, rows = list(searches), DecodingBatch(model, [text.current_prompt() for text in states], special_ids)
    while True:
        logs = rows.next_token_logits()[:, 0].log_softmax(-1)
        followed = [(one.generation_state, f.token_ids) for one in going for f in one.hypotheses]
        logs = process_logits(logs, followed, generation_config, special_ids)
        totals = [f.log_probability for one in going for f in one.hypotheses]
        logs = logs + torch.tensor(totals, device=logs.device)[:, None]
        best = logs.topk(min(2 * strategy.beams, special_ids.vocab_size))
        values, tokens = best.values.tolist(), best.indices.tolist()
        kept, said, first = list[int](), list[int](), 0
        for one in going:
            n = len(one.hypotheses)
            found = [
                (total, i, token)
                for i in range(n)
                for total, token in zip(values[first + i], tokens[first + i], strict=True)
                if total > -torch.inf
            ]
            found.sort(key=lambda x: -x[0])
            kept += [first + origin for origin in one.step(found, special_ids.end)]
            said += [f.token_ids[-1] for f in one.hypotheses if not one.is_finished]
            first += n
        going = [one for one in going if not one.is_finished]
        if not going:
            break
        if kept != list(range(first)):
            rows.select_rows(torch.tensor(kept, dtype=torch.long, device=logs.device))
        rows.append_tokens(torch.tensor(said, dtype=torch.long, device=logs.device)[:, None])
    return [one.finished_sequences[: strategy.n_best] for one in searches]
