"""Losses of preference pairs: golden numbers, gradients' signs, and what is refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.preferences.pair_losses import (
    DPO,
    IPO,
    KTO,
    ORPO,
    HingeLoss,
    PairLogProbabilities,
    RobustDPO,
    bradley_terry_loss,
    ranking_loss,
)


def pairs(reference: bool = True, **changes: Any) -> PairLogProbabilities:
    """Return the two pairs of the golden numbers."""
    given = {
        "chosen": torch.tensor([-10.0, -20.0]), "rejected": torch.tensor([-12.0, -18.0]),
        "chosen_length": torch.tensor([5, 8]), "rejected_length": torch.tensor([4, 6]),
    }  # fmt: skip
    if reference:
        given |= {
            "reference_chosen": torch.tensor([-11.0, -19.5]),
            "reference_rejected": torch.tensor([-11.0, -19.0]),
        }
    return PairLogProbabilities(**(given | changes))


@pytest.mark.parametrize(
    ("loss", "mean"),
    [
        (DPO(), 0.684548), (HingeLoss(), 0.975), (IPO(), 24.023342), (IPO(by_token=False), 25.625),
        (DPO(flip_probability=0.1), 0.687048), (RobustDPO(), 0.681423),
        (ORPO().ratio_term, 0.037496),
    ],
    ids=["dpo", "hinge", "ipo by token", "ipo by sums", "conservative", "robust", "orpo ratio"],
)  # fmt: skip
def test_golden_numbers(loss: Callable[[PairLogProbabilities], torch.Tensor], mean: float) -> None:
    assert float(loss(pairs()).mean()) == pytest.approx(mean, abs=1e-6)


def test_golden_number_of_kto() -> None:
    log_ratios = torch.cat(pairs().log_ratios)
    is_desirable = torch.tensor([True, True, False, False])
    found = KTO()(log_ratios, is_desirable, torch.tensor(0.0))
    assert float(found.mean()) == pytest.approx(0.496880, abs=1e-6)
    weighted = KTO(desirable_weight=2.0)(log_ratios, is_desirable, torch.tensor(0.0))
    torch.testing.assert_close(weighted[:2], 2 * found[:2])
    torch.testing.assert_close(weighted[2:], found[2:])


def test_golden_number_of_bradley_terry() -> None:
    found = bradley_terry_loss(torch.tensor([1.0, 0.5]), torch.tensor([0.2, 0.9]))
    assert float(found.mean()) == pytest.approx(0.642058, abs=1e-6)
    with_margin = bradley_terry_loss(torch.tensor([1.0]), torch.tensor([0.2]), 0.3)
    torch.testing.assert_close(
        with_margin, bradley_terry_loss(torch.tensor([0.7]), torch.tensor([0.2]))
    )


def test_a_ranking_of_two_is_a_pair_and_of_more_all_pairs() -> None:
    rewards = torch.tensor([2.0, 0.5, 1.0])
    expected = bradley_terry_loss(torch.tensor([2.0, 2.0, 0.5]), torch.tensor([0.5, 1.0, 1.0]))
    torch.testing.assert_close(ranking_loss(rewards), expected.mean())
    torch.testing.assert_close(
        ranking_loss(rewards[:2]), bradley_terry_loss(rewards[:1], rewards[1:2])[0]
    )
    with pytest.raises(ValueError, match="two responses or more, got 1"):
        ranking_loss(rewards[:1])


@pytest.mark.parametrize(
    "loss", [DPO(), DPO(flip_probability=0.2), RobustDPO(), HingeLoss(), ORPO(), IPO()]
)
@settings(deadline=None)
@given(st.lists(st.floats(-30, -1), min_size=4, max_size=4))
def test_descent_prefers_the_chosen_response(loss: Any, numbers: list[float]) -> None:
    both = torch.tensor(numbers[:2], requires_grad=True)
    given = pairs(
        chosen=both[:1], rejected=both[1:], reference_chosen=torch.tensor(numbers[2:3]),
        reference_rejected=torch.tensor(numbers[3:]), chosen_length=torch.tensor([3]),
        rejected_length=torch.tensor([3]),
    )  # fmt: skip
    loss(given).sum().backward()
    assert both.grad is not None
    assert both.grad.isfinite().all()
    margin = float(given.margins.detach())
    is_wanted = isinstance(loss, IPO) and margin / 3 > 5  # beyond what IPO seeks
    if not is_wanted and not (isinstance(loss, DPO) and loss.flip_probability and margin > 10):
        assert both.grad[0] <= 0
        assert both.grad[1] >= 0


def test_odds_of_a_certain_response_are_finite() -> None:
    sure = torch.zeros(1, requires_grad=True)
    given = pairs(
        reference=False, chosen=sure, rejected=torch.tensor([-1.0]),
        chosen_length=torch.tensor([2]), rejected_length=torch.tensor([2]),
    )  # fmt: skip
    found = ORPO()(given).sum()
    found.backward()
    assert found.isfinite()
    assert sure.grad is not None
    assert sure.grad.isfinite().all()


def test_kl_estimate_has_no_gradient_and_is_not_negative() -> None:
    ratios = torch.tensor([-3.0, 1.0], requires_grad=True)
    assert float(KTO.divergence(ratios)) == 0.0
    assert not KTO.divergence(ratios + 5).requires_grad
    assert float(KTO.divergence(ratios + 5)) == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DPO(beta=0.0), "beta must be above 0, got 0.0"),
        (
            lambda: DPO(flip_probability=0.5),
            "flip_probability must be from 0 to below 0.5, got 0.5",
        ),
        (lambda: RobustDPO(flip_probability=-0.1), "got -0.1"),
        (lambda: KTO(undesirable_weight=-1.0), "undesirable_weight must be at least 0, got -1.0"),
        (lambda: DPO()(pairs(reference=False)), "needs the log-probabilities of a reference"),
        (lambda: pairs(chosen_length=torch.tensor([5, 0])), "chosen_length must be at least 1"),
        (lambda: pairs(reference_chosen=None), "are given together"),
    ],
)
def test_what_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_orpo_needs_no_reference() -> None:
    without, with_one = ORPO()(pairs(reference=False)), ORPO()(pairs())
    torch.testing.assert_close(without, with_one)
    assert [loss.needs_reference for loss in (DPO(), IPO(), ORPO())] == [True, True, False]
