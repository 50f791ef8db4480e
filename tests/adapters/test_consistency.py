"""Two readings of a batch: their mean loss, how far they differ, and training by both."""

from dataclasses import replace

import adapted
import pytest
import torch
from adapted import FAMILIES, batch, model, perturb_weights, same, state
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from unmask.adapters.attach import attach, freeze
from unmask.adapters.bottleneck import AdaMix
from unmask.adapters.consistency import ConsistencyTraining
from unmask.batch import IGNORE_INDEX, Batch
from unmask.heads.classification.choice_groups import ChoiceGroups
from unmask.heads.classification.label_losses import (
    BinaryCrossEntropy,
    ChoiceCrossEntropy,
    CrossEntropy,
    LabelLoss,
)
from unmask.heads.classification.sequence_classification import (
    SequenceClassification,
    TokenClassification,
)
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.heads.model import Model
from unmask.heads.prediction import Term
from unmask.model.layers.feed_forward import Dropout
from unmask.training import loop
from unmask.training.resume import find_newest_checkpoint, restore_run, save_checkpoint
from unmask.training.run import TrainingRun

over_families = pytest.mark.parametrize("family", FAMILIES)


def mixed(m: Model) -> Model:
    perturb_weights(attach(m, AdaMix(bottleneck_size=5, n_experts=3)))
    return m.train()


def both_ways(p: Tensor, q: Tensor) -> Tensor:
    """The mean of the two divergences of logarithms of shares, summed over rows."""
    there = F.kl_div(q, p, reduction="sum", log_target=True)
    back = F.kl_div(p, q, reduction="sum", log_target=True)
    return (there + back) / 2


@over_families
def test_loss_is_mean_of_two_passes_plus_consistency(family) -> None:
    m, b = mixed(model(family)), batch(family)
    torch.manual_seed(4)
    first, second = m(b, return_logits=True), m(b, return_logits=True)
    assert not torch.allclose(first.logits["label"], second.logits["label"])
    torch.manual_seed(4)
    terms = ConsistencyTraining(m, 0.5)(b).terms
    assert set(terms) == {*first.terms, "label_consistency"}
    for name, term in first.terms.items():
        mean = (term.total + second.terms[name].total) / 2
        torch.testing.assert_close(terms[name].total, mean)
        assert terms[name].count == term.count
        assert terms[name].n_correct == term.n_correct
    p, q = (x.logits["label"].log_softmax(-1) for x in (first, second))
    term = terms["label_consistency"]
    torch.testing.assert_close(term.total, both_ways(p, q))
    assert term.weight == 0.5
    assert term.count == len(b.inputs)


@over_families
def test_target_counts_equal_those_of_the_terms(family) -> None:
    m, b = mixed(model(family)), batch(family)
    both = ConsistencyTraining(m)
    for one_batch in (b, replace(b, labels=None)):
        terms = both(one_batch).terms
        assert both.count_targets(one_batch) == {name: term.count for name, term in terms.items()}
    assert not any("consistency" in name for name in terms)


def test_evaluation_runs_one_pass() -> None:
    m, b = mixed(model("bert")).eval(), batch("bert")
    both = ConsistencyTraining(m)
    assert both.count_targets(b) == m.count_targets(b)
    assert set(both(b).terms) == {"label"}
    assert torch.equal(both(b).terms["label"].total, m(b).terms["label"].total)


def test_regression_consistency_is_squared_difference() -> None:
    m = mixed(model("bert", n_labels=1))
    b = batch("bert")
    assert b.labels is not None
    b = replace(b, labels=b.labels.float())
    torch.manual_seed(4)
    first, second = (m(b, return_logits=True).logits["label"] for _ in range(2))
    torch.manual_seed(4)
    term = ConsistencyTraining(m)(b).terms["label_consistency"]
    torch.testing.assert_close(term.total, (first - second).square().sum())


def test_head_of_all_layers_receives_all_layers() -> None:
    m = mixed(
        Model(
            adapted.BERT, {"label": SequenceClassification(n_labels=3, pooled_layers="all")}
        ).initialize(1)
    )
    b = batch("bert")
    torch.manual_seed(4)
    first, second = (m(b).terms["label"].total for _ in range(2))
    torch.manual_seed(4)
    torch.testing.assert_close(ConsistencyTraining(m)(b).terms["label"].total, (first + second) / 2)


def test_tokens_without_label_are_not_compared() -> None:
    m = Model(adapted.BERT, {"tag": TokenClassification(n_labels=4)}).initialize(1)
    mixed(m)
    b = batch("bert")
    labels = torch.randint(4, b.inputs.shape)
    labels[:, ::2] = IGNORE_INDEX
    b = replace(b, labels=labels)
    torch.manual_seed(4)
    first, second = (m(b, return_logits=True).logits["token_label"] for _ in range(2))
    torch.manual_seed(4)
    term = ConsistencyTraining(m)(b).terms["token_label_consistency"]
    first, second = (x[labels != IGNORE_INDEX].log_softmax(-1) for x in (first, second))
    torch.testing.assert_close(term.total, both_ways(first, second))
    assert term.count == int((labels != IGNORE_INDEX).sum())


def test_language_model_scores_are_not_compared() -> None:
    m = mixed(Model(adapted.GPT, {"language": LanguageModeling()}).initialize(1))
    b = batch("gpt2")
    torch.manual_seed(4)
    once = m(b).terms["next_token"].total
    torch.manual_seed(4)
    terms = ConsistencyTraining(m)(replace(b, labels=None)).terms
    assert set(terms) == {"next_token"}
    assert torch.equal(terms["next_token"].total, once)


def readings(loss: LabelLoss, b: Batch, n_labels: int) -> tuple[Tensor, Tensor, Term]:
    """Return two readings' scores, and the term of their difference."""
    heads = {"label": SequenceClassification(n_labels=n_labels, loss=loss)}
    m = mixed(Model(adapted.BERT, heads).initialize(1))
    torch.manual_seed(4)
    first, second = (m(b, return_logits=True).logits["label"] for _ in range(2))
    torch.manual_seed(4)
    both = ConsistencyTraining(m)
    terms = both(b).terms
    assert both.count_targets(b) == {name: term.count for name, term in terms.items()}
    return first, second, terms["label_consistency"]


def test_multilabel_scores_are_compared_one_by_one() -> None:
    labels = torch.tensor([[1, 0], [IGNORE_INDEX, 1], [IGNORE_INDEX, IGNORE_INDEX], [0, 0]])
    b = replace(batch("bert"), labels=labels.float())
    first, second, term = readings(BinaryCrossEntropy(), b, 2)
    shares = [torch.stack((x, -x), -1)[labels != IGNORE_INDEX] for x in (first, second)]
    torch.testing.assert_close(term.total, both_ways(*(F.logsigmoid(x) for x in shares)))
    assert term.count == 5


def test_choice_scores_are_compared_within_groups() -> None:
    b = replace(
        batch("bert", (7, 4, 7, 5, 3)),
        labels=torch.tensor([0, 1, 1, 0, 0]),
        features=(
            ChoiceGroups(torch.tensor([0, 1, 0, 1, 2])),
        ),  # of the last group nothing is known
    )
    first, second, term = readings(ChoiceCrossEntropy(), b, 1)
    expected = sum(
        both_ways(*(x[rows, 0].log_softmax(0) for x in (first, second)))
        for rows in ([0, 2], [1, 3])
    )  # fmt: skip
    torch.testing.assert_close(term.total, expected)
    assert term.count == 2


@settings(max_examples=50)
@given(
    n=st.integers(1, 6),
    seed=st.integers(0, 99),
    loss=st.sampled_from([CrossEntropy(), BinaryCrossEntropy(), ChoiceCrossEntropy()]),
)
def test_divergence_is_symmetric_nonnegative_and_zero_for_equal_scores(n, seed, loss) -> None:
    generator = torch.Generator().manual_seed(seed)
    a, b = 3 * torch.randn(
        2, 4, 1 if isinstance(loss, ChoiceCrossEntropy) else n, generator=generator
    )
    labels = torch.ones(a.shape if isinstance(loss, BinaryCrossEntropy) else 4, dtype=torch.int64)
    group = torch.tensor([0, 1, 0, 1])
    one_batch = Batch(
        inputs=torch.zeros(4, 3, dtype=torch.int64), labels=labels, features=(ChoiceGroups(group),)
    )
    torch.testing.assert_close(loss.divergence(a, b, one_batch), loss.divergence(b, a, one_batch))
    assert loss.divergence(a, b, one_batch) > 0
    assert not loss.divergence(a, a, one_batch).any()


@pytest.mark.thorough
@pytest.mark.quick("float32-bert", "bfloat16-t5")
@over_families
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_run_with_consistency_resumes_exactly(family, precision, tmp_path) -> None:
    def begin() -> tuple[Model, TrainingRun]:
        m = model(family)
        attach(m, AdaMix(bottleneck_size=5, n_experts=3))
        freeze(m)
        both = ConsistencyTraining(m, 2.0)
        return m, adapted.start(m, family, 6, precision=precision, forward=both)

    whole, run = begin()
    adapter = state(whole.adapters)
    for report in loop.train(run):
        assert report.sums.n_targets["label_consistency"] == report.sums.n_targets["label"] == 6
        if report.step == 3:
            save_checkpoint(run, tmp_path)
    loop.finish_run(run)
    assert same(state(whole.backbone), state(model(family).backbone))
    assert not same(state(whole.adapters), adapter)
    resumed, run = begin()
    found, _ = find_newest_checkpoint(tmp_path, run.world)
    assert found is not None
    restore_run(run, found)
    adapted.train(run)
    assert same(state(resumed), state(whole))


def test_consistency_training_reduces_disagreement_of_experts() -> None:
    apart = []
    for weight in (0.0, 20.0):
        m = model("bert")
        for part in m.modules():
            if isinstance(part, Dropout):
                part.rate = 0.0  # nothing but the experts is drawn
        perturb_weights(attach(m, AdaMix(bottleneck_size=5, n_experts=3)), 0.5)
        freeze(m)
        both = ConsistencyTraining(m, weight)
        adapted.train(adapted.start(m, "bert", 16, forward=both))
        m.train()
        torch.manual_seed(0)
        terms = [ConsistencyTraining(m)(batch("bert", seed=s)).terms for s in range(10)]
        apart.append(sum(x["label_consistency"].total.item() for x in terms))
    assert apart[1] < apart[0] / 4
