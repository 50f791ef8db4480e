"""Losses and measures of whole batches, beside formulas in float64 from transformers' logits."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from small_models import make, tokenizer

from unmask.batch import IGNORE_INDEX, Example
from unmask.batching.collate import pad_examples
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.heads.classification.choice_groups import ChoiceGroup
from unmask.preferences.data.encode import with_response
from unmask.preferences.methods import LeaveOneOut
from unmask.preferences.online.estimates import policy_loss_of
from unmask.preferences.online.policy import PolicyForward, RolloutScore, RolloutTokens
from unmask.preferences.online.values import add_value_network
from unmask.preferences.pair_losses import DPO, IPO, KTO, ORPO, HingeLoss, PairLoss, RobustDPO
from unmask.preferences.pair_training import Desirability, KTOForward, PairForward
from unmask.preferences.policy_gradient import PPO
from unmask.preferences.reference import FrozenCopy
from unmask.preferences.responses import score_tokens

PROMPTS = ([5, 9, 12, 7], [30], [8, 8, 41, 2, 17, 60], [99, 3])
BETTER = ([21, 22, 23], [4, 4, 4, 4, 4, 4], [77], [13, 14])
WORSE = ([50], [51, 52], [53, 54, 55, 56, 57], [58, 59])


@dataclass(frozen=True)
class Scored:
    """Numbers of responses in float64."""

    tokens: list[np.ndarray]
    entropies: list[np.ndarray]

    @property
    def sums(self) -> np.ndarray:
        return np.array([one.sum() for one in self.tokens])

    @property
    def lengths(self) -> np.ndarray:
        return np.array([len(one) for one in self.tokens])


def prompt(ids: list[int]) -> Example:
    n = len(ids)
    return Example(
        inputs=np.array(ids, np.int64), targets=np.full(n, IGNORE_INDEX), rank=np.arange(n)
    )


def responses(order: str) -> list[Example]:
    """Return pairs in two rows, each response with the token that ends it."""
    end = tokenizer("gpt2").special_ids.end
    sides = {"pairs": (BETTER, WORSE), "mismatched": (BETTER, (*BETTER[1:], BETTER[0]))}[order]
    return [
        with_response(prompt(p), list(response), end)
        .with_feature(ChoiceGroup(i))
        .with_feature(Desirability(i % 2))
        for i, (p, *both) in enumerate(zip(PROMPTS, *sides, strict=True))
        for response in both
    ]


@torch.no_grad()
def scored(model: Any, examples: list[Example], side: str) -> Scored:
    """Score responses by transformers in float64, with padding on a side."""
    width = max(len(e.inputs) for e in examples) + 2
    ids = torch.zeros(len(examples), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    at: list[slice] = []
    for row, example in enumerate(examples):
        n = len(example.inputs)
        at.append(slice(0, n) if side == "right" else slice(width - n, width))
        ids[row, at[-1]], mask[row, at[-1]] = torch.from_numpy(example.inputs), 1
    places = (mask.cumsum(1) - 1).clamp(min=0)
    logits = model(input_ids=ids, attention_mask=mask, position_ids=places).logits
    logs = logits.double().log_softmax(-1)
    tokens: list[np.ndarray] = []
    entropies: list[np.ndarray] = []
    for row, example in enumerate(examples):
        own, targets = logs[row, at[row]].numpy(), example.targets
        columns = np.flatnonzero(targets != IGNORE_INDEX)
        tokens.append(own[columns, targets[columns]])
        entropies.append(-(np.exp(own[columns]) * own[columns]).sum(1))
    return Scored(tokens, entropies)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, LoadedModel, Any, FrozenCopy]:
    """Return policy and reference, each of transformers in float64 and ours."""
    folders = [tmp_path_factory.mktemp(name) for name in ("policy", "reference")]
    policy, ours = make("gpt2", folders[0], n_positions=64)
    other, frozen = make("gpt2", folders[1], n_positions=64, n_layer=2)
    reference = FrozenCopy.of(frozen.model, torch.float32)
    ours.model.eval()
    return policy.double().eval(), ours, other.double().eval(), reference


def log_sigmoid(x: np.ndarray) -> np.ndarray:
    return -np.log1p(np.exp(-x))


def formula(name: str, own: Scored, reference: Scored) -> np.ndarray:
    """Return the losses of pairs as the papers write them."""
    ratios = own.sums - reference.sums
    margin = ratios[::2] - ratios[1::2]
    if name == "dpo":
        return -0.8 * log_sigmoid(0.3 * margin) - 0.2 * log_sigmoid(-0.3 * margin)
    if name == "robust_dpo":
        return -(0.8 * log_sigmoid(0.3 * margin) - 0.2 * log_sigmoid(-0.3 * margin)) / 0.6
    if name == "hinge":
        return np.maximum(0, 1 - 0.3 * margin)
    means = own.sums / own.lengths
    if name == "ipo":
        by_token = ratios / own.lengths
        return (by_token[::2] - by_token[1::2] - 1 / 0.6) ** 2
    odds = means - np.log(1 - np.exp(means))
    return -means[::2] - 0.3 * log_sigmoid(odds[::2] - odds[1::2])


LOSSES: dict[str, PairLoss] = {
    "dpo": DPO(beta=0.3, flip_probability=0.2),
    "robust_dpo": RobustDPO(beta=0.3, flip_probability=0.2), "hinge": HingeLoss(beta=0.3),
    "ipo": IPO(beta=0.3), "orpo": ORPO(beta=0.3),
}  # fmt: skip


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", LOSSES)
@torch.no_grad()
def test_losses_of_pairs_equal_their_formulas(
    name: str, side: str, models: tuple[Any, LoadedModel, Any, FrozenCopy]
) -> None:
    theirs, ours, their_reference, reference = models
    examples = responses("pairs")
    own, known = (scored(model, examples, side) for model in (theirs, their_reference))
    expected = formula(name, own, known)
    batch = pad_examples(examples, tokenizer("gpt2").special_ids)
    forward = PairForward(ours.model, LOSSES[name], reference)
    terms = forward(batch).terms
    assert float(terms["preference"].total) == pytest.approx(expected.sum(), rel=1e-5)
    assert terms["preference"].count == forward.count_targets(batch)["preference"] == 4
    assert {key: term.count for key, term in terms.items()} == dict(forward.count_targets(batch))
    ratios = own.sums - known.sums
    if name == "orpo":
        means = own.sums / own.lengths
        assert float(terms["margin"].total) == pytest.approx(
            (means[::2] - means[1::2]).sum(), rel=1e-4
        )
        assert "chosen" not in terms
    else:
        for key, value in (("chosen", ratios[::2]), ("rejected", ratios[1::2])):
            assert float(terms[key].total) == pytest.approx(value.sum(), rel=1e-4)
        margins = ratios[::2] - ratios[1::2]
        assert int(terms["preference"].n_correct or 0) == (margins > 0).sum()
    assert float(terms["length"].total) == own.lengths.sum() == 22 + 8
    entropy = sum(float(one.sum()) for one in own.entropies)
    assert float(terms["entropy"].total) == pytest.approx(entropy, rel=1e-5)
    assert terms["entropy"].count == own.lengths.sum()


@torch.no_grad()
def test_tokens_of_responses_equal_transformers(
    models: tuple[Any, LoadedModel, Any, FrozenCopy], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, ours, _, _ = models
    examples = responses("pairs")
    expected = scored(theirs, examples, "left")
    batch = pad_examples(examples, tokenizer("gpt2").special_ids)
    for most in (2**25, 3 * ours.model.vocab_size):  # at once, and three tokens at a time
        monkeypatch.setattr("unmask.preferences.responses.MAX_LOGITS", most)
        found = score_tokens(ours.model, batch)
        assert found.lengths.tolist() == expected.lengths.tolist()
        np.testing.assert_allclose(
            found.log_probabilities.numpy(), np.concatenate(expected.tokens), rtol=1e-5, atol=1e-5
        )
        np.testing.assert_allclose(
            found.entropy.numpy(), np.concatenate(expected.entropies), rtol=1e-5, atol=1e-5
        )


@torch.no_grad()
def test_loss_of_single_responses_equals_its_formula(
    models: tuple[Any, LoadedModel, Any, FrozenCopy],
) -> None:
    theirs, ours, their_reference, reference = models
    examples = responses("mismatched")
    own, known = (scored(model, examples, "left") for model in (theirs, their_reference))
    batch = pad_examples(examples, tokenizer("gpt2").special_ids)
    for swapped in (False, True):  # the divergence is positive of one of both
        first, second = (known, own) if swapped else (own, known)
        ratios = first.sums - second.sums
        z = max(float(ratios[1::2].mean()), 0.0)
        value = 0.1 * (ratios[::2] - z)
        sign = np.array([-1, 1, -1, 1])
        weight = np.array([0.5, 1.5, 0.5, 1.5])
        expected = weight * (1 - 1 / (1 + np.exp(-sign * value)))
        loss = KTO(beta=0.1, desirable_weight=1.5, undesirable_weight=0.5)
        both = (reference.model, FrozenCopy.of(ours.model, torch.float32))
        model, frozen = both if swapped else (ours.model, reference)
        forward = KTOForward(model, loss, frozen)
        terms = forward(batch).terms
        assert float(terms["preference"].total) == pytest.approx(expected.sum(), rel=1e-5)
        assert float(terms["divergence"].total) == pytest.approx(4 * z, rel=1e-4)
        assert {key: term.count for key, term in terms.items()} == dict(
            forward.count_targets(batch)
        )
        assert float(terms["length"].total) == own.lengths[::2].sum()


def rollouts(examples: list[Example], old: list[np.ndarray]) -> list[Example]:
    """Return responses with numbers of each token, drawn at random."""
    rng = np.random.default_rng(0)
    found: list[Example] = []
    for i, (example, own) in enumerate(zip(examples, old, strict=True)):
        columns = np.flatnonzero(example.targets != IGNORE_INDEX)
        known: dict[str, np.ndarray] = {}
        for name in RolloutTokens.column_fields:
            known[name] = np.zeros(len(example.targets), np.float32)
            known[name][columns] = rng.normal(size=len(columns))
        known["old"][columns] = own + rng.normal(scale=0.3, size=len(columns))
        tokens = RolloutTokens(**known)
        found.append(example.with_feature(tokens).with_feature(RolloutScore(float(i), i % 2)))
    return found


@torch.no_grad()
def test_losses_of_written_responses_equal_their_formulas(
    models: tuple[Any, LoadedModel, Any, FrozenCopy],
) -> None:
    theirs, ours, _, _ = models
    plain = responses("pairs")
    own = scored(theirs, plain, "right")
    examples = rollouts(plain, own.tokens)
    batch = pad_examples(examples, tokenizer("gpt2").special_ids)
    at = [np.flatnonzero(e.targets != IGNORE_INDEX) for e in examples]
    known = {
        name: [
            getattr(e.feature(RolloutTokens), name)[columns].astype(np.float64)
            for e, columns in zip(examples, at, strict=True)
        ]
        for name in RolloutTokens.column_fields
    }
    new, old = np.concatenate(own.tokens), np.concatenate(known["old"])
    advantages = np.concatenate(known["advantages"])
    forward = PolicyForward(ours.model, policy_loss_of(LeaveOneOut()))
    terms = forward(batch).terms
    n = len(new)
    assert float(terms["policy"].total) == pytest.approx(-(advantages * new).sum(), rel=1e-4)
    assert terms["policy"].count == 8
    kl = (new - np.concatenate(known["reference"])).sum()
    assert float(terms["kl"].total) == pytest.approx(kl, rel=1e-5)
    assert float(terms["reward"].total) == 28
    assert float(terms["cut"].total) == 4
    settings = PPO(clip_range=0.1, value_clip_range=0.2, value_weight=0.3)
    add_value_network(ours.model, shared=True)
    forward = PolicyForward(ours.model, policy_loss_of(settings))
    terms = forward(batch).terms
    ratio = np.exp(new - old)
    worst = np.maximum(-advantages * ratio, -advantages * ratio.clip(0.9, 1.1))
    assert float(terms["policy"].total) == pytest.approx(worst.sum(), rel=1e-4)
    clipped = -advantages * ratio.clip(0.9, 1.1) > -advantages * ratio
    assert float(terms["clipped"].total) == pytest.approx(clipped.sum())
    assert 0 < clipped.sum() < n
    values, returns = (np.concatenate(known[name]) for name in ("values", "returns"))
    near = values + (0 - values).clip(-0.2, 0.2)  # all values are 0 at first
    squares = 0.5 * np.maximum(returns**2, (near - returns) ** 2)
    assert float(terms["value"].total) == pytest.approx(squares.sum(), rel=1e-4)
    assert {key: term.count for key, term in terms.items()} == dict(forward.count_targets(batch))
    ours.model.remove_training_modules()
