"""Measures of written responses: means, and what they win against earlier ones."""

import numpy as np
import pytest

from unmask.batch import IGNORE_INDEX, Example
from unmask.conversations.messages import Message
from unmask.preferences.job.evaluate import Answers
from unmask.preferences.online.rollouts import Rollout


def answers(texts: list[str], rewards: list[float], verdicts: list[float] | None) -> Answers:
    ids = np.arange(2)
    example = Example(inputs=ids, targets=np.full(2, IGNORE_INDEX), rank=ids)
    prompt = (Message("user", "Go on."),)
    rollouts = [
        Rollout(prompt=prompt, text=t, example=example, length=len(t.split()) + 1, is_cut=False)
        for t in texts
    ]
    own = None if verdicts is None else np.array(verdicts)
    return Answers(
        rollouts=rollouts, log_ratios=np.zeros(len(texts)), rewards=np.array(rewards), verdicts=own
    )


def test_the_judge_decides_who_wins() -> None:
    before = answers(["a b", "a b", "c"], [9.0, 9.0, 9.0], [0.0, 1.0, 1.0])
    after = answers(["a b c", "a", "c"], [0.0, 0.0, 0.0], [1.0, 0.0, 1.0])
    found = after.measures(before)
    assert found["win_rate"] == 0.5
    assert found["longer_wins"] == 1.0  # the first and the second pair
    assert found["sign_test_p"] == 1.0
    assert found["win_rate_low"] < 0.5 < found["win_rate_high"]
    assert found["length"] == pytest.approx(8 / 3)
    assert found["distinct_2"] == 1.0  # "a b" and "b c"
    assert "win_rate" not in after.measures()


def test_without_a_judge_the_reward_decides() -> None:
    before, after = answers(["a", "a"], [1.0, 1.0], None), answers(["a", "a"], [2.0, 1.0], None)
    found = after.measures(before)
    assert (found["win_rate"], found["length_correlation"]) == (0.75, 0.0)
    assert "longer_wins" not in found  # equal lengths
