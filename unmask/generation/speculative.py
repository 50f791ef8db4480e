"""A smaller model guesses the next tokens, and the larger one reads all guesses at once.

Leviathan et al. 2023, arXiv:2211.17192, algorithm 1; Chen et al. 2023, arXiv:2302.01318, algorithm
2. What is said has the distribution of the larger model alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from unmask.adapters.prefix import decoder_stack, max_text_length
from unmask.generation.decoding_batch import DecodingBatch, Prompt
from unmask.generation.settings import GenerationConfig, Greedy, Sampling
from unmask.generation.state import NO_TOKEN, GenerationState, process_logits
from unmask.generation.text_batches import evaluation_mode
from unmask.heads.model import Model
from unmask.tokenizers.spec import SpecialTokenIds


@dataclass(kw_only=True)
class DraftModel:
    """A smaller model of the same vocabulary, and how well it guessed."""

    model: Model
    draft_tokens: int = 4
    """Tokens that are guessed before the larger model reads them (gamma in Leviathan et al.)."""
    n_drafted: int = 0
    """Tokens that the larger model has judged so far."""
    n_accepted: int = 0
    """Of these, the ones it accepted."""

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        if self.draft_tokens < 1:
            raise ValueError(f"draft_tokens must be at least 1, got {self.draft_tokens}")

    @property
    def acceptance_rate(self) -> float:
        """The share of guesses that were accepted; 0 where there were none."""
        return self.n_accepted / max(self.n_drafted, 1)

    def check_compatible(self, model: Model) -> None:
        """Refuse a model for which this one cannot guess.

        Raises:
            ValueError: one of them says text by masks; this one does not generate, is an
                encoder-decoder where that is none (or the other way round), has another number of
                tokens, or fewer positions.
        """
        if model.appended_mask_generation is not None or self.model.appended_mask_generation is not None:
            raise ValueError("a model that says text by masks reads no guesses: give no draft")
        if not self.model.can_generate or type(self.model.backbone) is not type(model.backbone):
            raise ValueError("the draft must be a decoder as the model is, or an encoder-decoder")
        if self.model.vocab_size != model.vocab_size:
            raise ValueError(
                f"the draft has {self.model.vocab_size} tokens and the model {model.vocab_size}: "
                "they must have the same vocabulary"
            )
        mine, its = max_text_length(self.model, decoder_stack(self.model)), max_text_length(model, decoder_stack(model))
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
        """Return the guesses up to the first that is not accepted, and one more token.

        Args:
            draft_tokens: tokens drawn from the shares expected.
            draft_probabilities: the probabilities of all tokens in this model, for each guess.
            target_probabilities: in the larger model, for each guess and for what follows the last.
            generator: which draw.
        """
        n = 0
        while n < len(draft_tokens) and is_accepted(target_probabilities[n], draft_probabilities[n], draft_tokens[n], generator):
            n += 1
        self.n_drafted += min(n + 1, len(draft_tokens))
        self.n_accepted += n
        rest = target_probabilities[n] if n == len(draft_tokens) else residual_distribution(target_probabilities[n], draft_probabilities[n])
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
    """Say a text until it halts, and give each token; one text at a time."""
    rows, guessing = (
        DecodingBatch(one, [prompt], special_ids, max_rollback=draft.draft_tokens) for one in (model, draft.model)
    )
    while not state.is_paused:
        most = state.max_new_tokens if state.max_tokens_in_window is None else min(state.max_new_tokens, state.max_tokens_in_window)
        guesses, expected = list[int](), list[np.ndarray]()
        with evaluation_mode(draft.model):
            # One fewer than may be said: the last is the model's own.
            while len(guesses) < min(draft.draft_tokens, most - len(state.generated_ids) - 1):
                scores = guessing.next_token_logits()[:, 0]
                share = _token_probabilities(scores, [(state, [*state.generated_ids, *guesses])], generation_config, strategy, special_ids)[0]
                if not share.any():
                    break
                expected.append(share)
                guesses.append(_sample_token(share, state.generator))
                guessing.append_tokens(_as_column(guesses[-1], scores))
                if guesses[-1] == special_ids.end:
                    break
        for guess in guesses:
            rows.append_tokens(_as_column(guess, model.backbone.embedding_table.weight))
        scores = rows.next_token_logits(len(guesses) + 1)[0]
        here = [(state, [*state.generated_ids, *guesses[:n]]) for n in range(len(guesses) + 1)]
        shares = _token_probabilities(scores, here, generation_config, strategy, special_ids)
        said = draft.verify_tokens(guesses, expected, shares, state.generator)
        for token in said:
            if state.is_finished or not state.append_token(token, special_ids.end):
                break
            yield token
        if state.is_paused:
            return
        for one in (rows, guessing):
            one.crop(len(guesses) + 1 - len(said))
            one.append_tokens(_as_column(said[-1], scores))


def _as_column(token: int, reference: Tensor) -> Tensor:
    return torch.tensor([[token]], device=reference.device)


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
    share = strategy.probabilities(logits.masked_fill(stuck, 0)).masked_fill(stuck, 0).double()
    return (share / share.sum(-1, keepdim=True).clamp(min=1e-300)).cpu().numpy()


def is_accepted(
    target_probability: Float[np.ndarray, "v"],
    draft_probability: Float[np.ndarray, "v"],
    token: int,
    generator: np.random.Generator,
) -> bool:
    """Accept a token drawn from `draft_probability` with probability min(1, wanted / expected)."""
    return bool(generator.random() * draft_probability[token] < target_probability[token])


def residual_distribution(
    target_probabilities: Float[np.ndarray, "v"], draft_probabilities: Float[np.ndarray, "v"]
) -> Float[np.ndarray, "v"]:
    """Return what a token is drawn from when one was not accepted: max(0, wanted - expected)."""
    rest = np.maximum(target_probabilities - draft_probabilities, 0)
    return rest / rest.sum() if rest.sum() > 0 else target_probabilities  # rounding alone leaves nothing


def _sample_token(probabilities: Float[np.ndarray, "v"], generator: np.random.Generator) -> int:
    sums = probabilities.cumsum()
    if sums[-1] == 0:
        return NO_TOKEN
    return int(np.searchsorted(sums, (1 - generator.random()) * sums[-1]))
