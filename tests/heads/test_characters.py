"""Autoregressive prediction of characters by their hash buckets."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from unmask.batch import IGNORE_INDEX, Batch, Example
from unmask.batching.collate import pad_examples
from unmask.heads.model import Model
from unmask.heads.pretraining.autoregressive_characters import (
    AutoregressiveCharacters,
    AutoregressiveCharactersHead,
)
from unmask.model.positions.learned import LearnedPositions
from unmask.objectives.features import PredictionOrder
from unmask.objectives.published import CANINE_C
from unmask.tokenizers.characters import code_points
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.spec import CANINE, TokenizerSpec
from unmask.tokenizers.vocabulary import CodePoints
from unmask.zoo.encoders.bert_family.bert import BASE as BERT_BASE
from unmask.zoo.encoders.canine import BASE

SMALL = replace(
    BASE,
    d_model=16,
    n_heads=2,
    d_ff=32,
    n_layers=1,
    n_hash_buckets=64,
    local_attention_block=8,
    position=LearnedPositions(64),
)
MASK = 0xE003


def model(**changes) -> tuple[Model, AutoregressiveCharactersHead]:
    built = Model(SMALL, {"characters": AutoregressiveCharacters(**changes)}).eval()
    torch.manual_seed(0)
    for p in built.parameters():
        torch.nn.init.normal_(p, std=0.3)
    head = built.heads["characters"]
    assert isinstance(head, AutoregressiveCharactersHead)
    return built, head


def texts() -> Batch:
    def one(text: str, masked: list[int], turns: list[int]) -> Example:
        ids = np.array([ord(c) for c in text])
        targets, prediction_order = np.full(len(ids), IGNORE_INDEX), np.zeros(len(ids), np.int64)
        targets[masked], prediction_order[masked] = ids[masked], turns
        return Example(
            inputs=np.where(targets != IGNORE_INDEX, MASK, ids),
            targets=targets,
            features=(PredictionOrder(prediction_order),),
        )

    examples = [one("The old king.", [4, 5, 6, 12], [2, 0, 3, 1]), one("A 👑.", [2], [0])]
    return pad_examples([*examples, one("None", [], [])], code_points.special_code_points(CANINE))


def by_formula(
    head: AutoregressiveCharactersHead, y: torch.Tensor, ids: list[int], turns: list[int]
):
    """Scores of one text's places in float64, each from sums over the earlier turns one by one."""
    weights = {n: p.double() for n, p in head.named_parameters()}

    def linear(name: str, x):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(name: str, x):
        x = (x - x.mean()) / (x.var(unbiased=False) + 1e-12).sqrt()
        return x * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def joined(position, character: int):
        vector = head._table[0](torch.tensor(character)).double()
        both = torch.cat((vector, position))
        return norm("join_norm", torch.nn.functional.gelu(linear("join", both)))

    output = []
    for position, prediction_order in zip(y.double(), turns, strict=True):
        asking = joined(position, MASK)
        before = [
            joined(p, i)
            for p, i, t in zip(y.double(), ids, turns, strict=True)
            if t < prediction_order
        ]
        context = torch.stack([*before, asking])
        heads = []
        for h in range(2):
            part = slice(8 * h, 8 * h + 8)
            q = linear("attention.q", asking)[part]
            k, v = (linear(f"attention.{name}", context)[:, part] for name in "kv")
            heads.append((k @ q / 8**0.5).softmax(0) @ v)
        x = norm("attention_norm.after", asking + linear("attention.o", torch.cat(heads)))
        inner = linear("feed_forward.down", torch.nn.functional.gelu(linear("feed_forward.up", x)))
        output.append(linear("out", norm("feed_forward_norm.after", x + inner)))
    return torch.stack(output)


@torch.no_grad()
def test_scores_and_loss_equal_formula() -> None:
    whole, head = model()
    batch = texts()
    prediction = whole(batch, return_logits=True)
    hidden = whole.hidden_states(batch)
    first = by_formula(head, hidden[0, [4, 5, 6, 12]], [ord(c) for c in "old."], [2, 0, 3, 1])
    second = by_formula(head, hidden[1, [2]], [0x1F451], [0])
    expected = torch.cat((first, second))
    logits = prediction.logits["characters"].double()
    assert float((logits - expected).abs().max() / expected.abs().max()) < 1e-5
    buckets = torch.tensor([ord(c) % 64 for c in "old."] + [0x1F451 % 64])
    loss = torch.nn.functional.cross_entropy(expected, buckets)
    assert float(prediction.loss) == pytest.approx(float(loss), rel=1e-5)
    assert whole.count_targets(batch) == {"characters": 5}
    assert prediction.terms["characters"].count == 5


def test_position_sees_only_characters_earlier_in_prediction_order() -> None:
    _, head = model()
    n, prediction_order = 5, torch.tensor([3, 0, 4, 1, 2])
    y, characters = torch.randn(n, 16), torch.arange(n) + 97
    output = head.condition_on_predicted(
        y, characters, prediction_order, torch.zeros(n, dtype=torch.long), 1
    )
    for changed in range(n):
        other = characters.clone()
        other[changed] += 20
        again = head.condition_on_predicted(
            y, other, prediction_order, torch.zeros(n, dtype=torch.long), 1
        )
        moved = (output - again).abs().sum(-1) > 1e-6
        assert torch.equal(moved, prediction_order > prediction_order[changed])


@torch.no_grad()
def test_texts_in_a_row_are_independent() -> None:
    whole, _ = model()
    batch = texts()
    logits = whole(batch, return_logits=True).logits["characters"]
    targets = batch.targets.clone()
    targets[1, 2] = ord("x")
    again = whole(replace(batch, targets=targets), return_logits=True).logits["characters"]
    assert torch.equal(logits, again)


@pytest.mark.trials("numbers")
def test_no_targets_give_no_loss() -> None:
    whole, _ = model()
    batch = texts()
    nothing = replace(
        batch,
        targets=torch.full_like(batch.inputs, IGNORE_INDEX),
        target_positions=torch.zeros(0, dtype=torch.long),
    )
    prediction = whole(nothing)
    assert prediction.terms["characters"].count == 0
    assert prediction.loss.item() == 0
    prediction.loss.backward()
    assert whole(replace(batch, targets=None, target_positions=None)).terms == {}


def test_gradients_reach_network_and_character_embeddings() -> None:
    whole, _ = model()
    whole(texts()).loss.backward()
    assert [n for n, p in whole.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_number_of_buckets_can_be_reduced() -> None:
    whole, head = model(n_buckets=7)
    assert head.out.out_features == 7
    assert whole(texts(), return_logits=True).logits["characters"].shape == (5, 7)


@pytest.mark.thorough
def test_head_needs_prediction_order_and_hash_embeddings() -> None:
    whole, _ = model()
    with pytest.raises(ValueError, match="let its objective hide `AutoregressiveMasking`"):
        whole(texts().without(PredictionOrder))
    with pytest.raises(ValueError, match="hashes characters"):
        Model(BERT_BASE, {"characters": AutoregressiveCharacters()})


@pytest.mark.thorough
def test_few_texts_are_memorized() -> None:
    tokenizer = train_tokenizer(TokenizerSpec(CodePoints(), CANINE), [])
    rows = [tokenizer.encode(f"The {who} saw 👑 in the {where}.") for who, where in PLACES]
    architecture = replace(SMALL, d_model=32, dropout=0.0, attention_dropout=0.0)
    whole = Model(architecture, {"characters": AutoregressiveCharacters()}).initialize(0).train()
    optimizer = torch.optim.AdamW(whole.parameters(), 3e-3)
    losses = []
    for step in range(150):
        drawn = np.random.default_rng(step)
        batch = pad_examples(
            [CANINE_C(row, tokenizer.special_ids, drawn) for row in rows], tokenizer.special_ids
        )
        loss = whole(batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    # Which of the words it was may be hidden with all that tells it: chance remains there.
    assert np.mean(losses[-20:]) < 0.4 < 2.5 < np.mean(losses[:5])


PLACES = [("king", "house"), ("fox", "wood"), ("girl", "street"), ("crow", "sky")]
