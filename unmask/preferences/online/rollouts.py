"""Responses that a policy writes, with their rewards."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from unmask.batch import Example
from unmask.conversations.messages import Message
from unmask.finetuning.formulations.conversations.instructions import InstructionFormulation
from unmask.generation.decode import generate
from unmask.generation.settings import GenerationConfig, Sampling
from unmask.heads.model import Model
from unmask.preferences.data.encode import with_response
from unmask.preferences.data.rows import PreferenceRow
from unmask.preferences.online.reward import Reward


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """A response that was written."""

    prompt: tuple[Message, ...]
    text: str
    example: Example
    """Prompt and response; the response's tokens are targets, and the token that ends it."""
    length: int
    """Number of targets."""
    is_cut: bool
    """Whether it was cut at the greatest length: it has no token that ends it."""


def write_responses(
    model: Model,
    formulation: InstructionFormulation,
    rows: Sequence[PreferenceRow],
    prompts: Sequence[Example],
    seed: int,
) -> list[Rollout]:
    """Sample a response to each prompt, at temperature 1 from all tokens; with the cache.

    A prompt that is given several times has several responses. They depend on the model, the
    prompts and the seed alone.
    """
    special = replace(formulation.special_ids, end=formulation.end_id)
    most = formulation.max_response_length
    config = GenerationConfig(strategy=Sampling(), max_new_tokens=most, seed=seed)
    prompt_ids = [formulation.prompt_ids(example).tolist() for example in prompts]
    found: list[Rollout] = []
    written = generate(model, prompt_ids, special, config)
    for row, prompt, ids in zip(rows, prompts, written, strict=True):
        is_cut = len(ids) == most
        example = with_response(prompt, ids, None if is_cut else formulation.end_id)
        shown = [i for i in ids if i not in special.all_ids]
        found.append(
            Rollout(
                prompt=row.prompt,
                text=formulation.tokenizer.decode(np.array(shown, np.int64)),
                example=example,
                length=len(ids) + (not is_cut),
                is_cut=is_cut,
            )
        )
    return found


def rewards_of(
    rollouts: Sequence[Rollout], reward: Reward, cut_reward: float | None = None
) -> Float[np.ndarray, "n"]:
    """Return the reward of each response.

    Args:
        rollouts: the responses.
        reward: gives the rewards.
        cut_reward: reward of responses that were cut (the EOS trick of Huang et al. 2024,
            arXiv:2403.17031: rated low, so that responses end). None: as of others.

    Deviates: TRL's `missing_eos_penalty` is subtracted from their reward; here they have this one.
    """
    found = reward([one.prompt for one in rollouts], [one.text for one in rollouts])
    if cut_reward is None:
        return found
    return np.where([one.is_cut for one in rollouts], cut_reward, found)
