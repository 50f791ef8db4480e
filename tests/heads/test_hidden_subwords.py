"""Hidden subwords: a softmax over all of them at one place of each, which is not kept."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from unmask.batch import IGNORE_INDEX, Batch, Example
from unmask.batching.collate import pad_examples
from unmask.heads.model import Model
from unmask.heads.pretraining.subword_prediction import SubwordPrediction, SubwordPredictionHead
from unmask.model.positions.learned import LearnedPositions
from unmask.objectives.published import CANINE_S
from unmask.tokenizers.characters import code_points
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.spec import CANINE, TokenizerSpec
from unmask.tokenizers.vocabulary import CodePoints, CodePointsWithSubwords
from unmask.zoo.encoders.canine import BASE, CANINE_S_MINI

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


def model() -> tuple[Model, SubwordPredictionHead]:
    built = Model(SMALL, {"subwords": SubwordPrediction(output_vocab_size=11)}).eval()
    torch.manual_seed(0)
    for p in built.parameters():
        torch.nn.init.normal_(p, std=0.3)
    head = built.heads["subwords"]
    assert isinstance(head, SubwordPredictionHead)
    return built, head


def texts() -> Batch:
    def one(text: str, answers: dict[int, int]) -> Example:
        ids = np.array([ord(c) for c in text])
        targets = np.full(len(ids), IGNORE_INDEX)
        targets[list(answers)] = [*answers.values()]
        return Example(inputs=ids, targets=targets)

    examples = [one("The old king.", {5: 7, 12: 3}), one("A 👑.", {2: 10}), one("None", {})]
    return pad_examples(examples, code_points.special_code_points(CANINE))


@torch.no_grad()
def test_scores_and_loss_equal_formula() -> None:
    whole, head = model()
    batch = texts()
    prediction = whole(batch, return_logits=True)
    y = whole.hidden_states(batch).double()[[0, 0, 1], [5, 12, 2]]
    expected = y @ head.out.weight.double().T + head.out.bias.double()
    logits = prediction.logits["subwords"].double()
    assert float((logits - expected).abs().max() / expected.abs().max()) < 1e-5
    likely = expected.exp() / expected.exp().sum(-1, keepdim=True)
    loss = -likely[[0, 1, 2], [7, 3, 10]].log().mean()
    assert float(prediction.loss) == pytest.approx(float(loss), rel=1e-5)
    term = prediction.terms["subwords"]
    assert whole.count_targets(batch) == {"subwords": 3}
    assert (term.count, int(term.n_correct)) == (
        3, int((expected.argmax(-1) == torch.tensor([7, 3, 10])).sum()),
    )  # fmt: skip


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
    assert prediction.terms["subwords"].count == 0
    assert prediction.loss.item() == 0
    prediction.loss.backward()
    assert whole(replace(batch, targets=None, target_positions=None)).terms == {}
    assert whole.count_targets(replace(batch, targets=None, target_positions=None)) == {}


def test_gradients_reach_the_whole_network() -> None:
    whole, _ = model()
    whole(texts()).loss.backward()
    assert [n for n, p in whole.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_subword_table_has_one_row_per_subword_and_is_not_saved() -> None:
    whole, head = model()
    assert whole.parameter_count() == sum(p.numel() for p in whole.backbone.parameters())
    assert not any(name.startswith("heads.") for name in whole.trained_weights())
    assert head.out.weight.shape == (11, 16)
    tokenizer = train_tokenizer(
        TokenizerSpec(CodePointsWithSubwords(20), CANINE), ["abc abd ab"]
    ).special_ids
    assert tokenizer.output_vocabulary is not None
    fitted = CANINE_S_MINI.with_vocabulary(tokenizer)
    assert fitted.heads == {
        "subwords": SubwordPrediction(
            output_vocab_size=tokenizer.output_vocabulary.special_ids.vocab_size
        )
    }
    plain = train_tokenizer(TokenizerSpec(CodePoints(), CANINE), []).special_ids
    assert CANINE_S_MINI.with_vocabulary(plain).heads == CANINE_S_MINI.heads
    with pytest.raises(ValueError, match="size must be at least 1, got 0"):
        SubwordPrediction(output_vocab_size=0)


@pytest.mark.thorough
def test_few_texts_are_memorized() -> None:
    positions = [("king", "house"), ("fox", "wood"), ("girl", "street"), ("crow", "sky")]
    output = [f"The {who} saw 👑 in the {where}." for who, where in positions]
    tokenizer = train_tokenizer(TokenizerSpec(CodePointsWithSubwords(75), CANINE), output * 4)
    rows = [tokenizer.encode(text) for text in output]
    architecture = replace(SMALL, d_model=32, dropout=0.0, attention_dropout=0.0)
    heads = CANINE_S_MINI.with_vocabulary(tokenizer.special_ids).heads
    whole = Model(architecture, heads).initialize(0).train()
    optimizer = torch.optim.AdamW(whole.parameters(), 3e-3)
    losses = []
    for step in range(80):
        drawn = np.random.default_rng(step)
        batch = pad_examples(
            [CANINE_S(row, tokenizer.special_ids, drawn) for row in rows], tokenizer.special_ids
        )
        loss = whole(batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert np.mean(losses[-20:]) < 1.5 < 3 < np.mean(losses[:3])
