"""How good a policy is: on held-out pairs, and by the responses that it writes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from unmask.batch import Batch, Example
from unmask.batching.collate import example_length, group_by_length, pad_examples
from unmask.finetuning.data.batch_stream import split_micro_batches
from unmask.generation.text_batches import evaluation_mode
from unmask.heads.model import Model
from unmask.preferences.job.prepare import PreferJob
from unmask.preferences.online.rollouts import Rollout, write_responses
from unmask.preferences.reference import Reference
from unmask.preferences.responses import score_tokens
from unmask.tasks.metrics.responses.diversity import distinct_n
from unmask.tasks.metrics.responses.length_bias import length_bias
from unmask.tasks.metrics.responses.win_rate import win_rate
from unmask.training.loop import derive_seed
from unmask.training.run import TrainingForward

_EVALUATION = 3
"""What random numbers are for, beside those of `unmask.preferences.online.stream`."""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Responses of a policy to development prompts."""

    rollouts: Sequence[Rollout]
    log_ratios: Float[np.ndarray, "n"]
    """log pi(y|x) - log pi_ref(y|x) of each, in nats; their mean estimates the divergence."""
    rewards: Float[np.ndarray, "n"] | None
    verdicts: Float[np.ndarray, "n"] | None
    """Rewards by the judge."""

    def measures(self, before: "Answers | None" = None) -> dict[str, float]:
        """Return means, and the share of prompts for which they are better than earlier ones.

        `win_rate`, with its 95 % interval and the p value of a sign test, is by the judge, or
        without one by the reward; beside it, what of the preference may be one of length.
        """
        texts = [one.text for one in self.rollouts]
        found = {
            "kl": float(self.log_ratios.mean()),
            "length": float(self.lengths.mean()),
            "cut": float(np.mean([one.is_cut for one in self.rollouts])),
            "distinct_2": distinct_n(texts, 2),
        }
        for name, values in (("reward", self.rewards), ("judge", self.verdicts)):
            if values is not None:
                found[name] = float(values.mean())
        return found if before is None else found | self._preferred_to(before)

    @property
    def ratings(self) -> Float[np.ndarray, "n"] | None:
        """Rewards by the judge, or without one the rewards."""
        return self.rewards if self.verdicts is None else self.verdicts

    @property
    def lengths(self) -> Int[np.ndarray, "n"]:
        """Tokens of each response."""
        return np.array([one.length for one in self.rollouts])

    def _preferred_to(self, before: "Answers") -> dict[str, float]:
        own, others = self.ratings, before.ratings
        if own is None or others is None:
            return {}
        wins = win_rate(own, others)
        bias = length_bias(own, self.lengths, others, before.lengths)
        low, high = wins.interval
        longer_wins = {} if bias.longer_wins is None else {"longer_wins": bias.longer_wins}
        return {
            "win_rate": wins.rate, "win_rate_low": low, "win_rate_high": high,
            "sign_test_p": wins.p_value, "length_correlation": bias.rank_correlation,
        } | longer_wins  # fmt: skip


def answer_prompts(job: PreferJob, model: Model, reference: Reference) -> Answers | None:
    """Write a response to each of some development prompts; None: nothing would rate them.

    The prompts and the seed are the same for every policy.
    """
    if job.reward is None and job.judge is None:
        return None
    n = len(job.dev.rows)
    n_chosen = min(n, job.config.dev_prompts)
    chosen = [i * n // n_chosen for i in range(n_chosen)]
    if not chosen:
        return None
    rollouts = write_responses(
        model,
        job.formulation,
        [job.dev.rows[i] for i in chosen],
        [job.dev.prompts[i] for i in chosen],
        derive_seed(job.config.seed, _EVALUATION) >> 1,
    )
    prompts, texts = [one.prompt for one in rollouts], [one.text for one in rollouts]
    return Answers(
        rollouts=rollouts,
        log_ratios=_log_ratios(job, model, reference, rollouts),
        rewards=None if job.reward is None else job.reward(prompts, texts),
        verdicts=None if job.judge is None else job.judge(prompts, texts),
    )


@torch.no_grad()
def _log_ratios(
    job: PreferJob, model: Model, reference: Reference, rollouts: Sequence[Rollout]
) -> Float[np.ndarray, "n"]:
    found = np.zeros(len(rollouts))
    examples = [one.example for one in rollouts]
    for group in group_by_length(list(map(example_length, examples)), job.micro_batch_tokens):
        batch = pad_examples([examples[i] for i in group], job.formulation.special_ids)
        batch = batch.to(job.world.device)
        with evaluation_mode(model):
            own = score_tokens(model, batch).row_log_probabilities
        theirs = reference.score_batch(batch).row_log_probabilities
        found[group] = (own - theirs).double().cpu().numpy()
    return found


@torch.no_grad()
def evaluate_forward(
    job: PreferJob, model: Model, forward: TrainingForward, examples: Sequence[Example]
) -> dict[str, float]:
    """Return the loss of held-out responses, the accuracy, and what else a step shows."""
    totals: dict[str, float] = {}
    counts: dict[str, int] = {}
    n_right = 0.0
    batches: list[Batch] = split_micro_batches(
        examples, job.formulation.special_ids, job.micro_batch_tokens
    )
    with evaluation_mode(model):
        for batch in batches:
            terms = forward(batch.to(job.world.device)).terms
            for name, term in terms.items():
                totals[name] = totals.get(name, 0.0) + float(term.total)
                counts[name] = counts.get(name, 0) + term.count
                n_right += 0.0 if term.n_correct is None else float(term.n_correct)
    means = {name: totals[name] / max(counts[name], 1) for name in totals}
    first = next(iter(means))
    rest = {name: value for name, value in means.items() if name != first}
    return {"loss": means[first], "accuracy": n_right / max(counts[first], 1), **rest}


def score_policy(
    job: PreferJob,
    model: Model,
    forward: TrainingForward,
    reference: Reference,
    before: Answers | None,
) -> tuple[Mapping[str, float], Answers | None]:
    """Evaluate a policy in every way there is; return the numbers and its responses."""
    found: dict[str, float] = {}
    if job.dev.examples:
        found |= evaluate_forward(job, model, forward, job.dev.examples)
    answers = answer_prompts(job, model, reference)
    if answers is not None:
        found |= {
            (f"written_{name}" if name in found else name): value
            for name, value in answers.measures(before).items()
        }
    return found, answers
