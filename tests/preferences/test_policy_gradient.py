"""PPO's advantages and losses beside a float64 formula, and the leave-one-out baseline."""

import numpy as np
import pytest
import torch

from unmask.preferences.policy_gradient import (
    PPO,
    last_columns,
    leave_one_out_advantages,
    masked_mean,
    whiten,
)

B, T = 3, 6
MASK = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1], [0, 0, 1, 0, 0, 0]]).bool()
"""The last with padding on both sides."""


def draw(*names: str) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(B, T, generator=generator) for _ in names]


def test_token_rewards_have_the_score_at_the_last_token() -> None:
    policy, reference = draw("policy", "reference")
    scores = torch.tensor([1.0, -2.0, 0.5])
    found = PPO(kl_weight=0.1).token_rewards(scores, policy, reference, MASK)
    expected = -0.1 * (policy - reference) * MASK
    for row, column in ((0, 3), (1, 5), (2, 2)):
        expected[row, column] += scores[row]
    torch.testing.assert_close(found, expected)
    assert last_columns(MASK).tolist() == [3, 5, 2]


@pytest.mark.parametrize(("discount", "decay"), [(1.0, 0.95), (0.9, 0.5), (1.0, 1.0), (0.7, 0.0)])
def test_advantages_equal_the_sum_over_later_tokens(discount: float, decay: float) -> None:
    rewards, values = draw("rewards", "values")
    rewards = rewards * MASK
    found, returns = PPO(discount=discount, gae_lambda=decay).advantages(rewards, values, MASK)
    r, v = rewards.double().numpy(), values.double().numpy()
    for row in range(B):
        columns = np.flatnonzero(MASK[row].numpy())
        for k, at in enumerate(columns):
            total = 0.0
            for step, t in enumerate(columns[k:]):
                following = v[row, t + 1] if t + 1 in columns else 0.0
                delta = r[row, t] + discount * following - v[row, t]
                total += (discount * decay) ** step * delta
            assert float(found[row, at]) == pytest.approx(total, abs=1e-5)
            assert float(returns[row, at]) == pytest.approx(total + v[row, at], abs=1e-5)
    assert not found[~MASK].any()
    assert not returns[~MASK].any()


def test_padding_changes_nothing() -> None:
    rewards, values = draw("rewards", "values")
    rewards = rewards * MASK
    plain = PPO().advantages(rewards, values, MASK)
    noisy = PPO().advantages(rewards, torch.where(MASK, values, 1e6), MASK)
    for a, b in zip(plain, noisy, strict=True):
        torch.testing.assert_close(a, b)


def test_losses_equal_float64_formulas() -> None:
    new, old, advantages, values, before, returns = draw(*"abcdef")
    ppo = PPO(clip_range=0.3, value_clip_range=0.4)
    loss, share = ppo.policy_loss(new, old, advantages, MASK)
    total, clipped, errors = 0.0, 0, 0.0
    for row, column in MASK.nonzero().tolist():
        a = float(advantages[row, column])
        ratio = np.exp(float(new[row, column]) - float(old[row, column]))
        bounded = min(max(ratio, 0.7), 1.3)
        total += max(-a * ratio, -a * bounded)
        clipped += -a * bounded > -a * ratio
        v, v0 = float(values[row, column]), float(before[row, column])
        near = v0 + min(max(v - v0, -0.4), 0.4)
        goal = float(returns[row, column])
        errors += max((v - goal) ** 2, (near - goal) ** 2)
    n = int(MASK.sum())
    assert float(loss) == pytest.approx(total / n, rel=1e-5)
    assert float(share) == pytest.approx(clipped / n)
    assert float(ppo.value_loss(values, before, returns, MASK)) == pytest.approx(
        0.5 * errors / n, rel=1e-5
    )


def test_first_update_has_the_gradient_of_reinforce() -> None:
    (old, advantages) = draw("old", "advantages")
    new = old.clone().requires_grad_()
    PPO().policy_loss(new, old, advantages, MASK)[0].backward()
    torch.testing.assert_close(new.grad, -advantages * MASK / MASK.sum())


def test_whitening() -> None:
    (x,) = draw("x")
    found = whiten(3 * x + 2, MASK)[MASK]
    assert float(found.mean()) == pytest.approx(0, abs=1e-6)
    assert float(found.std()) == pytest.approx(1, abs=1e-5)
    kept = whiten(3 * x + 2, MASK, keep_mean=True)[MASK]
    assert float(kept.mean()) == pytest.approx(float((3 * x + 2)[MASK].mean()), abs=1e-5)
    assert not whiten(torch.ones(2, 3), torch.ones(2, 3).bool()).any()


def test_leave_one_out() -> None:
    found = leave_one_out_advantages(torch.tensor([[1.0, 2.0, 6.0], [0.0, 0.0, 0.0]]))
    assert found.tolist() == [[-3.0, -1.5, 4.5], [0.0, 0.0, 0.0]]
    assert found.sum(1).abs().max() < 1e-6


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="a response has no token"):
        last_columns(torch.zeros(1, 3).bool())
    with pytest.raises(ValueError, match="two responses or more, got 1"):
        leave_one_out_advantages(torch.ones(2, 1))
    with pytest.raises(ValueError, match=r"gae_lambda must be from 0 to 1, got 1\.5"):
        PPO(gae_lambda=1.5)
    with pytest.raises(ValueError, match=r"clip_range must be above 0, got 0\.0"):
        PPO(clip_range=0.0)
    assert float(masked_mean(torch.ones(2), torch.zeros(2).bool())) == 0.0
