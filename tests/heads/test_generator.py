"""Samples of a generator, and targets of the discriminator that reads them."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from unmask.batch import IGNORE_INDEX, Batch, Visibility
from unmask.heads.model import Model
from unmask.heads.pretraining.corrective_lm import CorrectiveLM
from unmask.heads.pretraining.generator import Generator
from unmask.heads.pretraining.generator_inputs import GeneratorInputs
from unmask.heads.pretraining.replaced_token_detection import ReplacedTokenDetection
from unmask.model.backbones.transformer import Architecture
from unmask.model.positions.learned import LearnedPositions

V = 40
A = Architecture(
    vocab_size=V,
    d_model=16,
    n_layers=2,
    n_heads=4,
    d_ff=32,
    n_segments=2,
    position=LearnedPositions(20),
    embedding_norm=True,
    dropout=0.0,
    attention_dropout=0.0,
)
SHARINGS = ("all", "tokens", "none", "disentangled")


def batch(b: int = 3, t: int = 12) -> Batch:
    torch.manual_seed(5)
    inputs = torch.randint(5, V, (b, t))
    document = torch.where(torch.arange(t)[None] < torch.tensor([t, t - 3, 4])[:, None], 0, -1)
    hidden = (torch.rand(b, t) < 0.4) & (document >= 0)
    targets = torch.where(hidden, inputs, IGNORE_INDEX)
    inputs = torch.where(hidden, 4, inputs)
    is_target = (targets.flatten() != IGNORE_INDEX).nonzero()[:, 0]
    visibility = Visibility(document=document)
    return Batch(inputs=inputs, visibility=visibility, targets=targets, target_positions=is_target)


def model(sharing: str = "all", **heads) -> Model:
    specs = {
        "generator": Generator(width_factor=0.5, embedding_sharing=sharing),
        "replaced": ReplacedTokenDetection(),
        **heads,
    }
    return Model(A, specs).initialize(3).train()


def test_only_masked_positions_are_replaced_and_inputs_are_kept() -> None:
    m, b = model(), batch()
    read, guessed = m.heads["generator"].corrupt(b)
    text = torch.where(b.targets == IGNORE_INDEX, b.inputs, b.targets)
    assert torch.equal(read.feature(GeneratorInputs).original_ids, text)
    assert torch.equal(read.inputs[b.targets == IGNORE_INDEX], b.inputs[b.targets == IGNORE_INDEX])
    assert not torch.equal(read.inputs, b.inputs)
    assert guessed.terms["masked"].count == len(b.target_positions)


def test_samples_follow_generator_probabilities() -> None:
    head = model().heads["generator"]
    head.language.bias.data[:] = torch.randn(V)
    hidden = torch.randn(1, head.network.a.d_model)
    probabilities = head.language.logits(hidden).softmax(-1)[0].detach()
    drawn = head._sample_tokens(hidden.expand(40_000, -1))
    seen = torch.bincount(drawn, minlength=V) / 40_000
    assert float((seen - probabilities).abs().max()) < 0.01


def test_correct_sample_is_not_a_replacement() -> None:
    m, b = model(), batch()
    m.heads["generator"]._sample_tokens = lambda hidden: b.targets.flatten()[b.target_positions]
    prediction = m(b, return_logits=True)
    scores, real = prediction.logits["replaced"], b.visibility.document >= 0
    expected = F.softplus(scores.double())[real].sum()  # nothing is replaced
    torch.testing.assert_close(prediction.terms["replaced"].total.double(), expected)


def test_loss_equals_paper() -> None:
    m, b = model(), batch()
    torch.manual_seed(1)
    prediction = m(b, return_logits=True)
    torch.manual_seed(1)
    read, _ = m.heads["generator"].corrupt(b)
    total = right = 0.0
    for row in range(3):
        for position in range(b.inputs.shape[1]):
            if b.visibility.document[row, position] < 0:
                continue
            x = prediction.logits["replaced"][row, position].item()
            fake = bool(
                read.inputs[row, position]
                != read.feature(GeneratorInputs).original_ids[row, position]
            )
            p = 1 / (1 + math.exp(-x))
            total -= math.log(p if fake else 1 - p)
            right += (x > 0) == fake
    term = prediction.terms["replaced"]
    assert term.total.item() == pytest.approx(total, rel=1e-5)
    assert (term.count, int(term.n_correct)) == (12 + 9 + 4, right)
    assert m.count_targets(b) == {name: t.count for name, t in prediction.terms.items()}
    masked = F.cross_entropy(
        prediction.logits["masked"].double(), b.targets.flatten()[b.target_positions]
    )
    torch.testing.assert_close(prediction.loss.double(), masked + 50 * total / 25)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_gradients_reach_shared_weights_but_not_through_samples(sharing) -> None:
    m, b = model(sharing), batch()
    generator = m.heads["generator"].network
    m(b).terms["replaced"].total.backward()
    own = [p for n, p in generator.layers.named_parameters()]
    assert all(p.grad is None for p in own)  # the model's loss does not move the generator
    assert m.backbone.tokens.weight.grad.abs().sum() > 0
    alone = generator.tokens is not m.backbone.tokens
    assert alone == (sharing in ("none", "disentangled"))
    if alone:
        assert generator.tokens.weight.grad is None
    m.zero_grad()
    torch.manual_seed(1)
    m.heads["generator"].corrupt(b)[1].terms["masked"].total.backward()
    assert all(p.grad is not None for p in own)
    assert (m.backbone.tokens.weight.grad is None) == alone
    shared = m.backbone.position.table.weight.grad is not None
    assert shared == (sharing == "all")


def test_disentangled_embeddings_are_generators_plus_difference() -> None:
    m, b = model("disentangled"), batch()
    plain = Model(A, {"replaced": ReplacedTokenDetection()})
    plain.load_state_dict({n: x for n, x in m.trained_weights().items()}, strict=False)
    assert not m.backbone.tokens.weight.any()  # it begins with no difference
    m.backbone.tokens.weight.data.normal_()
    plain.backbone.tokens.weight.data = m.trained_weights()["backbone.tokens.weight"]
    torch.testing.assert_close(m.hidden_states(b), plain.hidden_states(b))
    whole = m.trained_weights()["backbone.tokens.weight"].clone()
    m.backbone.tokens.weight.data = whole.clone()
    m.heads["generator"].to_embedding_difference()
    torch.testing.assert_close(m.trained_weights()["backbone.tokens.weight"], whole)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_model_is_saved_without_generator(sharing) -> None:
    m = model(sharing)
    plain = Model(A, {"replaced": ReplacedTokenDetection()})
    assert m.trained_weights().keys() == plain.own_weights().keys()
    assert m.parameter_count() == plain.parameter_count()
    assert m.flops(12, 0.15) > plain.flops(12, 0.15)


def test_nothing_is_sampled_without_masked_positions() -> None:
    m, b = model(), replace(batch(), targets=None, target_positions=None)
    assert m(b).terms == {}
    assert m.count_targets(b) == {}
    assert m(b, return_logits=True).logits["replaced"].shape == b.inputs.shape


def test_corrective_lm_equals_paper() -> None:
    specs = {"generator": Generator(width_factor=0.5), "corrected": CorrectiveLM()}
    m, b = Model(A, specs).initialize(3).train(), batch()
    torch.manual_seed(1)
    prediction = m(b, return_logits=True)
    torch.manual_seed(1)
    read, _ = m.heads["generator"].corrupt(b)
    copy = m.heads["corrected"].copy(m.hidden_states(read))[..., 0].double().sigmoid()
    probabilities = prediction.logits["corrected"].double().softmax(-1)
    there = read.inputs == read.feature(GeneratorInputs).original_ids
    lost = 0.0
    for n, position in enumerate(b.target_positions.tolist()):
        row, column = divmod(position, b.inputs.shape[1])
        c, x = copy[row, column], int(read.feature(GeneratorInputs).original_ids[row, column])
        lost -= torch.log(c * float(there[row, column]) + (1 - c) * probabilities[n, x]).item()
    assert prediction.terms["corrected"].total.item() == pytest.approx(lost, rel=1e-5)
    real = b.visibility.document >= 0
    chance = torch.where(there, copy, 1 - copy)[real]
    assert prediction.terms["copied"].total.item() == pytest.approx(
        -chance.log().sum().item(), rel=1e-5
    )
    assert m.count_targets(b) == {name: t.count for name, t in prediction.terms.items()}


def test_language_loss_does_not_change_copy_probability() -> None:
    specs = {"generator": Generator(width_factor=0.5), "corrected": CorrectiveLM()}
    m, b = Model(A, specs).initialize(3).train(), batch()
    m(b).terms["corrected"].total.backward()
    assert m.heads["corrected"].copy.weight.grad is None
