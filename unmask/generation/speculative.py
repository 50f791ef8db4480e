"""Speculative decoding: a smaller model drafts tokens, and the larger one verifies all at once.

Leviathan et al. 2023, arXiv:2211.17192, algorithm 1; Chen et al. 2023, arXiv:2302.01318, algorithm
2. The generated text has the distribution of the larger model alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from unmask.adapters.prefix import max_text_length
from unmask.generation.decoding.batch import DecodingBatch, Prompt
from unmask.generation.settings import GenerationConfig, Greedy, Sampling
from unmask.generation.state import NO_TOKEN, GenerationState, process_logits
from unmask.generation.text_batches import evaluation_mode
from unmask.heads.model import Model
from unmask.tokenizers.spec import SpecialTokenIds


@dataclass(kw_only=True)
class DraftModel:
    """A smaller model of the same vocabulary, and how many of its tokens were accepted."""

    model: Model
    draft_tokens: int = 4
    """Tokens that are drafted before the larger model reads them (gamma in Leviathan et al.)."""
    n_drafted: int = 0
    """Tokens that the larger model has verified so far."""
    n_accepted: int = 0
    """Of these, the accepted ones."""

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        if self.draft_tokens < 1:
            raise ValueError(f"draft_tokens must be at least 1, got {self.draft_tokens}")

    @property
    def acceptance_rate(self) -> float:
        """The share of drafted tokens that were accepted; 0 where there were none."""
        return self.n_accepted / max(self.n_drafted, 1)

    def check_compatible(self, model: Model) -> None:
        """Check that this model can draft for another.

        Raises:
            ValueError: one of them generates by appended masks; this one does not generate, is an
                encoder-decoder where that is none (or the other way round), has another number of
                tokens, or fewer positions.
        """
        if (
            model.appended_mask_generation is not None
            or self.model.appended_mask_generation is not None
        ):
            raise ValueError(
                "a model that generates by appended masks reads no draft: leave it out"
            )
        if not self.model.can_generate or type(self.model.architecture) is not type(
            model.architecture
        ):
            raise ValueError("the draft must be a decoder as the model is, or an encoder-decoder")
        if self.model.vocab_size != model.vocab_size:
            raise ValueError(
                f"the draft has {self.model.vocab_size} tokens and the model {model.vocab_size}: "
                "they must have the same vocabulary"
            )
        mine = max_text_length(self.model, self.model.backbone.decoder_stack)
        its = max_text_length(model, model.backbone.decoder_stack)
        if mine is not None and (its is None or mine < its):
            raise ValueError(
                f"the draft has {mine} positions and the model {its or 'any number'}: it must have "
                "as many"
            )

    def verify_tokens(
        self,
        draft_tokens: Sequence[int],
        draft_probabilities: Sequence[Float[np.ndarray, "v"]],
        target_probabilities: Sequence[Float[np.ndarray, "v"]] | Float[np.ndarray, "_ v"],
        generator: np.random.Generator,
    ) -> list[int]:
        """Return the drafted tokens up to the first that is not accepted, and one more token.

        Args:
            draft_tokens: tokens sampled from `draft_probabilities`.
            draft_probabilities: the probabilities of all tokens in this model, for each of them.
            target_probabilities: in the larger model, for each and for the token after the last.
            generator: random generator.
        """
        n = 0
        while n < len(draft_tokens) and is_accepted(
            target_probabilities[n], draft_probabilities[n], draft_tokens[n], generator
        ):
            n += 1
        self.n_drafted += min(n + 1, len(draft_tokens))
        self.n_accepted += n
        rest = (
            target_probabilities[n]
            if n == len(draft_tokens)
            else residual_distribution(target_probabilities[n], draft_probabilities[n])
        )
        return [*draft_tokens[:n], _sample_token(rest, generator)]


def speculative_decode(
    model: Model,
    draft: DraftModel,
    state: GenerationState,
    prompt: Prompt,
    special_ids: SpecialTokenIds,
    generation_config: GenerationConfig,
    strategy: Greedy | Sampling,
) -> Iterator[int]:
    """Generate a text until it pauses, and yield each token; one text at a time."""
    target_batch, draft_batch = (
        DecodingBatch(one, [prompt], special_ids, max_rollback=draft.draft_tokens)
        for one in (model, draft.model)
    )
    while not state.is_paused:
        limit = (
            state.max_new_tokens
            if state.max_tokens_in_window is None
            else min(state.max_new_tokens, state.max_tokens_in_window)
        )
        drafted, draft_probabilities = list[int](), list[np.ndarray]()
        with evaluation_mode(draft.model):
            # One fewer than may be generated: the last is the model's own.
            while len(drafted) < min(draft.draft_tokens, limit - len(state.generated_ids) - 1):
                logits = draft_batch.next_token_logits()[:, 0]
                probabilities = _token_probabilities(
                    logits,
                    [(state, [*state.generated_ids, *drafted])],
                    generation_config,
                    strategy,
                    special_ids,
                )[0]
                if not probabilities.any():
                    break
                draft_probabilities.append(probabilities)
                drafted.append(_sample_token(probabilities, state.generator))
                draft_batch.append_tokens(_as_column(drafted[-1], logits.device))
                if drafted[-1] in special_ids.ends:
                    break
        for token in drafted:
            target_batch.append_tokens(_as_column(token, model.device))
        logits = target_batch.next_token_logits(len(drafted) + 1)[0]
        texts = [(state, [*state.generated_ids, *drafted[:n]]) for n in range(len(drafted) + 1)]
        target_probabilities = _token_probabilities(
            logits, texts, generation_config, strategy, special_ids
        )
        tokens = draft.verify_tokens(
            drafted, draft_probabilities, target_probabilities, state.generator
        )
        for token in tokens:
            if state.is_finished or not state.append_token(token, special_ids):
                break
            yield token
        if state.is_paused:
            return
        for batch in (target_batch, draft_batch):
            batch.crop(len(drafted) + 1 - len(tokens))
            batch.append_tokens(_as_column(tokens[-1], logits.device))


def _as_column(token: int, device: torch.device) -> Tensor:
    return torch.tensor([[token]], device=device)


def _token_probabilities(
    logits: Float[Tensor, "b v"],
    states: Sequence[tuple[GenerationState, Sequence[int]]],
    generation_config: GenerationConfig,
    strategy: Greedy | Sampling,
    special_ids: SpecialTokenIds,
) -> Float[np.ndarray, "b v"]:
    """Return the probability of each token; 0 of all where none may follow."""
    logits = process_logits(logits, states, generation_config, special_ids)
    stuck = logits.amax(-1, keepdim=True) == -torch.inf
    probabilities = strategy.probabilities(logits.masked_fill(stuck, 0)).masked_fill(stuck, 0)
    probabilities = probabilities.double()
    return (probabilities / probabilities.sum(-1, keepdim=True).clamp(min=1e-300)).cpu().numpy()


def is_accepted(
    target_probability: Float[np.ndarray, "v"],
    draft_probability: Float[np.ndarray, "v"],
    token: int,
    generator: np.random.Generator,
) -> bool:
    """Accept a token sampled from the draft with probability min(1, target / draft)."""
    return bool(generator.random() * draft_probability[token] < target_probability[token])


def residual_distribution(
    target_probabilities: Float[np.ndarray, "v"], draft_probabilities: Float[np.ndarray, "v"]
) -> Float[np.ndarray, "v"]:
    """Return the normalized max(0, target - draft), to sample from after a rejected token."""
    rest = np.maximum(target_probabilities - draft_probabilities, 0)
    # Rounding alone leaves nothing.
    return rest / rest.sum() if rest.sum() > 0 else target_probabilities


def _sample_token(probabilities: Float[np.ndarray, "v"], generator: np.random.Generator) -> int:
    sums = probabilities.cumsum()
    if sums[-1] == 0:
        return NO_TOKEN
    return int(np.searchsorted(sums, (1 - generator.random()) * sums[-1]))
