"""Batches of responses that the policy writes while it learns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from unmask.batch import IGNORE_INDEX, Batch, Example
from unmask.batching.collate import example_length, group_by_length, pad_examples
from unmask.finetuning.data.batch_stream import split_micro_batches
from unmask.finetuning.formulations.conversations.instructions import InstructionFormulation
from unmask.generation.text_batches import evaluation_mode
from unmask.heads.model import Model
from unmask.preferences.data.rows import PreferenceRow
from unmask.preferences.methods import OnlineMethod
from unmask.preferences.online.estimates import WrittenBatch, estimate_advantages
from unmask.preferences.online.policy import PlainText, RolloutScore, RolloutTokens
from unmask.preferences.online.reward import Reward
from unmask.preferences.online.rollouts import Rollout, rewards_of, write_responses
from unmask.preferences.online.values import has_values, values_of
from unmask.preferences.reference import Reference
from unmask.preferences.responses import score_tokens, target_positions
from unmask.training.loop import derive_seed
from unmask.training.run import MicroBatches

_WRITING, _ORDER, _TEXT = range(3)
"""What random numbers of a step are for."""


@dataclass(frozen=True, kw_only=True)
class RolloutStream:
    """The batches of a run, each written by the policy as it is when the batch begins.

    A place in the stream is the number of steps before it. It can be taken up again only where a
    batch begins (`begins_batch`): from there all is determined by the policy and the seed.
    """

    policy: Model
    reference: Reference
    reward: Reward
    formulation: InstructionFormulation
    method: OnlineMethod
    rows: Sequence[PreferenceRow]
    prompts: Sequence[Example]
    """An example of each row."""
    batch_size: int
    """Prompts of a batch."""
    micro_batch_tokens: int
    seed: int
    cut_reward: float | None = None
    text: Sequence[Example] = ()
    """Rows of plain text, of which each step reads as many as responses."""

    @property
    def steps_per_batch(self) -> int:
        """Number of steps in which a batch of responses is learned."""
        return self.method.epochs * self.method.minibatches

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches in which each prompt is answered once; less than a batch is left."""
        return len(self.rows) // self.batch_size

    def begins_batch(self, step: int) -> bool:
        """Return whether the step after `step` steps begins a batch."""
        return step % self.steps_per_batch == 0

    def __call__(self, cursor: Any) -> Iterator[tuple[MicroBatches, Any]]:
        """Yield the micro-batches of each step after a place, and the place after it."""
        step = cursor or 0
        assert self.begins_batch(step), "a batch of responses cannot be taken up in its middle"
        while True:
            index = step // self.steps_per_batch
            examples = self._write(index)
            for epoch in range(self.method.epochs):
                dice = np.random.default_rng(derive_seed(self.seed, _ORDER, index, epoch))
                order = dice.permutation(len(examples))
                for part in np.array_split(order, self.method.minibatches):
                    chosen = [examples[i] for i in part.tolist()]
                    batches = split_micro_batches(
                        chosen, self.formulation.special_ids, self.micro_batch_tokens
                    )
                    batches += self._text_batches(step, len(chosen))
                    step += 1
                    yield batches, step

    def _write(self, index: int) -> list[Example]:
        """Write the responses of a batch; return those that are learned, with what is known."""
        epoch, block = divmod(index, self.batches_per_epoch)
        order = np.random.default_rng(derive_seed(self.seed, _ORDER, epoch)).permutation(
            len(self.rows)
        )
        chosen = order[block * self.batch_size : (block + 1) * self.batch_size].tolist()
        repeated = [i for i in chosen for _ in range(self.method.responses)]
        rollouts = write_responses(
            self.policy,
            self.formulation,
            [self.rows[i] for i in repeated],
            [self.prompts[i] for i in repeated],
            derive_seed(self.seed, _WRITING, index) >> 1,
        )
        rewards = rewards_of(rollouts, self.reward, self.cut_reward)
        written = self._score(rollouts, rewards)
        found = estimate_advantages(self.method, written)
        columns = {
            "old": written.log_probabilities, "reference": written.reference,
            "advantages": found.advantages, "values": written.values, "returns": found.returns,
        }  # fmt: skip
        return [
            rollouts[i]
            .example.with_feature(
                RolloutTokens(
                    **{n: _at_targets(rollouts[i].example, x[i]) for n, x in columns.items()}
                )
            )
            .with_feature(RolloutScore(float(rewards[i]), float(rollouts[i].is_cut)))
            for i in found.kept
        ]

    @torch.no_grad()
    def _score(self, rollouts: Sequence[Rollout], rewards: Float[np.ndarray, "n"]) -> WrittenBatch:
        """Score the tokens of responses by policy, reference and value network."""
        n, width = len(rollouts), max(one.length for one in rollouts)
        policy, reference, values = (torch.zeros(n, width) for _ in range(3))
        lengths = torch.tensor([one.length for one in rollouts])
        sizes = [example_length(one.example) for one in rollouts]
        for group in group_by_length(sizes, self.micro_batch_tokens):
            examples = [rollouts[i].example for i in group]
            batch = pad_examples(examples, self.formulation.special_ids).to(self.policy.device)
            with evaluation_mode(self.policy):
                hidden = self.policy.hidden_states(batch)
                own = score_tokens(self.policy, batch, hidden).log_probabilities
                if has_values(self.policy):
                    value = values_of(self.policy, batch, hidden).flatten()
                    _fill(values, group, lengths, value[target_positions(batch)])
            _fill(policy, group, lengths, own)
            _fill(reference, group, lengths, self.reference.score_batch(batch).log_probabilities)
        return WrittenBatch(
            rewards=torch.from_numpy(rewards).float(),
            log_probabilities=policy,
            reference=reference,
            values=values,
            mask=torch.arange(width) < lengths[:, None],
        )

    def _text_batches(self, step: int, n: int) -> list[Batch]:
        """Return rows of plain text for a step."""
        if not self.text:
            return []
        dice = np.random.default_rng(derive_seed(self.seed, _TEXT, step))
        rows = [
            self.text[i].with_feature(PlainText()) for i in dice.integers(len(self.text), size=n)
        ]
        return split_micro_batches(rows, self.formulation.special_ids, self.micro_batch_tokens)


def _fill(
    table: Float[Tensor, "n t"], rows: Sequence[int], lengths: Tensor, values: Tensor
) -> None:
    """Write the numbers of tokens, row after row, into the rows of a table."""
    for i, own in zip(rows, values.float().cpu().split(lengths[rows].tolist()), strict=True):
        table[i, : len(own)] = own


def _at_targets(example: Example, numbers: Float[Tensor, "n"]) -> Float[np.ndarray, "t"]:
    """Return numbers of the tokens of a response at the columns of their targets."""
    at = np.flatnonzero(example.targets != IGNORE_INDEX)
    found = np.zeros(len(example.targets), np.float32)
    found[at] = numbers[: len(at)].numpy()
    return found
