"""Losses of distillation, against their formulas written once more in float64."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import make
from torch import Tensor

from unmask.batch import IGNORE_INDEX, Batch, Visibility
from unmask.checkpoints.huggingface.read import LoadedModel, load_folder
from unmask.compression.distillation.forward import DistillationForward, mapped_layer
from unmask.compression.distillation.teacher import check_teacher
from unmask.compression.distillation.terms import (
    AttentionDistillation,
    Distillation,
    DistillationTerm,
    HiddenCosine,
    HiddenStateDistillation,
    RelationDistillation,
    SoftTargets,
)
from unmask.compression.options import CompressionOptions, distillation
from unmask.heads.classification.choice_groups import ChoiceGroups
from unmask.heads.classification.label_losses import (
    BinaryCrossEntropy,
    ChoiceCrossEntropy,
    CrossEntropy,
)
from unmask.heads.classification.sequence_classification import (
    SequenceClassification,
    TokenClassification,
)
from unmask.heads.question_answering import QuestionAnswering
from unmask.heads.spec import HeadSpec
from unmask.model.recording import record_layers

STUDENT: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
TEACHER = STUDENT | {"num_hidden_layers": 4, "hidden_size": 48}


def opened(folder: Path, kind: str = "BertForMaskedLM", **sizes: Any) -> LoadedModel:
    make("bert", folder, kind, **sizes)
    return load_folder(folder)


def batch() -> Batch:
    ids = torch.randint(5, 90, (3, 9), generator=torch.Generator().manual_seed(0))
    document = torch.zeros(3, 9, dtype=torch.long)
    document[1, 6:] = -1
    return Batch(
        inputs=ids,
        targets=ids.roll(1, 1),
        target_positions=torch.tensor([0, 3, 10, 14, 20]),
        visibility=Visibility(document=document),
    )


def forward(
    student: LoadedModel, teachers: list[LoadedModel], *terms: DistillationTerm, **more: Any
) -> DistillationForward:
    config = Distillation(teacher=("t",) * len(teachers), terms=terms, **more)
    models = [t.model for t in teachers]
    return DistillationForward(student.model.requires_grad_(True).train(), models, config)


def softmax64(x: Tensor, temperature: float) -> Tensor:
    e = (x.double() / temperature).exp()
    return e / e.sum(-1, keepdim=True)


@pytest.mark.parametrize("n_teachers", [1, 2])
def test_soft_targets_equal_hintons_loss(n_teachers: int, tmp_path: Path) -> None:
    student = opened(tmp_path / "s", **STUDENT)
    teachers = [opened(tmp_path / f"t{i}", **TEACHER) for i in range(n_teachers)]
    with torch.no_grad():
        for i, teacher in enumerate(teachers):
            for p in teacher.model.parameters():
                p.mul_(1 + i)
    b, temperature = batch(), 3.0
    soft = SoftTargets(temperature=temperature, weight=0.7)
    terms = forward(student, teachers, soft, objective_weight=0.3)(b).terms
    q = softmax64(student.model(b, return_logits=True).logits["masked"], temperature)
    p = torch.stack(
        [softmax64(t.model(b, return_logits=True).logits["masked"], temperature) for t in teachers]
    ).mean(0)
    expected = temperature**2 * (p * (p / q).log()).sum()
    term = terms["masked_soft"]
    torch.testing.assert_close(term.total.double(), expected, rtol=1e-4, atol=1e-6)
    assert (term.count, term.weight, terms["masked"].weight) == (5, 0.7, 0.3)
    plain = student.model(b).terms["masked"]
    torch.testing.assert_close(terms["masked"].total, plain.total)


def test_student_equal_to_teacher_has_zero_loss(tmp_path: Path) -> None:
    teacher = opened(tmp_path / "t", **TEACHER)
    student = load_folder(tmp_path / "t")
    terms = forward(
        student,
        [teacher],
        SoftTargets(),
        HiddenCosine(),
        HiddenStateDistillation(),
        AttentionDistillation(),
        RelationDistillation(kinds=("attention", "query", "key", "value")),
    )(batch()).terms
    assert len(terms) == 6
    for name, term in terms.items():
        if name != "masked":
            assert float(term.total.detach()) == pytest.approx(0, abs=1e-4), name


def recorded(model: LoadedModel, b: Batch) -> Any:
    with record_layers(model.model.backbone, attention=True) as (record,), torch.no_grad():
        model.model.backbone(b)
    return record


def test_tinybert_losses_equal_formula(tmp_path: Path) -> None:
    student, teacher = opened(tmp_path / "s", **STUDENT), opened(tmp_path / "t", **TEACHER)
    distill = forward(
        student, [teacher], HiddenStateDistillation(weight=2.0), AttentionDistillation()
    )
    b = batch()
    terms = distill(b).terms
    assert distill.count_targets(b) == {n: t.count for n, t in terms.items()}
    mine, theirs = recorded(student, b), recorded(teacher, b)
    maps = {n: p.detach().double() for n, p in student.model.training_modules.named_parameters()}
    real = b.visibility.document
    assert real is not None
    hidden = attention = 0.0
    for layer, (i, j) in enumerate([(0, 0), (1, 2), (2, 4)]):  # g(m) = m N / M
        w = maps[f"distillation.{'embeddings' if layer == 0 else 'hidden'}.weight"]
        a, h = mine.hidden_states[i].double(), theirs.hidden_states[j].double()
        hidden += float((((a @ w.T - h) ** 2).mean(-1))[real >= 0].sum())
    for i, j in [(0, 1), (1, 3)]:
        a, h = mine.attention[i].scores.double(), theirs.attention[j].scores.double()
        for row in range(3):
            n = int((real[row] >= 0).sum())
            attention += float(((a[row, :, :n, :n] - h[row, :, :n, :n]) ** 2).mean())
    assert float(terms["hidden_states"].total.detach()) == pytest.approx(hidden, rel=1e-4)
    assert terms["hidden_states"].count == int((real >= 0).sum())
    assert float(terms["attention_scores"].total.detach()) == pytest.approx(attention, rel=1e-4)
    assert terms["attention_scores"].count == 3


def test_minilm_relations_equal_formula(tmp_path: Path) -> None:
    student, teacher = opened(tmp_path / "s", **STUDENT), opened(tmp_path / "t", **TEACHER)
    b = batch()
    total = forward(student, [teacher], RelationDistillation())(b).terms["relations"].total
    mine, theirs = recorded(student, b).attention[-1], recorded(teacher, b).attention[-1]
    real = b.visibility.document
    assert real is not None
    expected = 0.0
    for row in range(3):
        n = int((real[row] >= 0).sum())
        for values in (False, True):
            p, q = (
                softmax64(
                    r.values[row, :, :n].double()
                    @ r.values[row, :, :n].double().mT
                    / math.sqrt(r.values.shape[-1])
                    if values
                    else r.scores[row, :, :n, :n],
                    1.0,
                )
                for r in (theirs, mine)
            )
            expected += float((p * (p / q).log()).sum(-1).mean(0).sum())
    assert float(total.detach()) == pytest.approx(expected, rel=1e-3)


def test_relation_heads_allow_different_widths(tmp_path: Path) -> None:
    student = opened(tmp_path / "s", **(STUDENT | {"num_attention_heads": 2}))
    teacher = opened(tmp_path / "t", **TEACHER)
    term = RelationDistillation(kinds=("query", "key", "value"), heads=8)
    assert float(forward(student, [teacher], term)(batch()).terms["relations"].total.detach()) > 0
    with pytest.raises(ValueError, match="the student has 2 attention heads, the teacher 4"):
        forward(student, [teacher], RelationDistillation())
    with pytest.raises(ValueError, match="7 heads do not divide"):
        forward(student, [teacher], replace(term, heads=7))


def test_hidden_state_cosine_equals_formula(tmp_path: Path) -> None:
    student = opened(tmp_path / "s", **STUDENT)
    teacher = opened(tmp_path / "t", **(TEACHER | {"hidden_size": 32}))
    b = batch()
    total = forward(student, [teacher], HiddenCosine())(b).terms["hidden_cosine"].total
    x, y = (m.model.hidden_states(b).detach().double() for m in (student, teacher))
    cosine = (x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1))
    document = b.visibility.document
    assert document is not None
    assert float(total.detach()) == pytest.approx(
        float((1 - cosine)[document >= 0].sum()), rel=1e-4
    )
    with pytest.raises(ValueError, match="32 dimensions, the teacher's 48"):
        forward(student, [opened(tmp_path / "u", **TEACHER)], HiddenCosine())


def test_soft_label_loss_equals_formula() -> None:
    generator = torch.Generator().manual_seed(0)
    student, teacher = (torch.randn(4, 3, generator=generator) for _ in range(2))
    labels = torch.tensor([0, IGNORE_INDEX, 2, 1])
    b, t = Batch(inputs=torch.zeros(4, 1, dtype=torch.long), labels=labels), 2.0
    q, p = softmax64(student, t), softmax64(teacher, t)
    losses = t**2 * (p * (p / q).log()).sum(-1)
    got = CrossEntropy().soft_target_loss(student, [teacher], b, t)
    assert float(got) == pytest.approx(float(losses[labels >= 0].sum()), rel=1e-5)

    several = replace(b, labels=torch.tensor([[1, 0, 1], [0, IGNORE_INDEX, 0]]))
    s, r = student[:2], teacher[:2]
    q, p = ((x.double() / t).sigmoid() for x in (s, r))
    losses = t**2 * (p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log())
    got = BinaryCrossEntropy().soft_target_loss(s, [r], several, t)
    assert float(got) == pytest.approx(float(losses[several.labels >= 0].sum()), rel=1e-5)

    groups = Batch(
        inputs=torch.zeros(4, 1, dtype=torch.long), labels=torch.tensor([0, 1, 1, 0])
    ).with_feature(ChoiceGroups(torch.tensor([0, 0, 1, 1])))
    s, r = student[:, :1], teacher[:, :1]
    losses64 = 0.0
    for rows in ([0, 1], [2, 3]):
        q, p = softmax64(s[rows, 0], t), softmax64(r[rows, 0], t)
        losses64 += float(t**2 * (p * (p / q).log()).sum())
    got = ChoiceCrossEntropy().soft_target_loss(s, [r], groups, t)
    assert float(got) == pytest.approx(losses64, rel=1e-5)

    numbers = replace(b, labels=torch.tensor([0.5, 1.0, 2.0, 3.0]))
    got = CrossEntropy().soft_target_loss(s, [r, r + 1], numbers, t)
    assert float(got) == pytest.approx(float((s - r - 0.5).square().sum()), rel=1e-5)


def test_soft_span_loss_equals_formula() -> None:
    generator = torch.Generator().manual_seed(0)
    student, teacher = (torch.randn(2, 5, 2, generator=generator) for _ in range(2))
    labels = torch.tensor([[IGNORE_INDEX, 1, 0, 2, 0], [IGNORE_INDEX, 0, 0, 0, 0]])
    b = Batch(inputs=torch.zeros(2, 5, dtype=torch.long), labels=labels)
    got = QuestionAnswering().soft_target_loss(student, [teacher], b, 2.0)
    expected = 0.0
    for end in (0, 1):  # of the first text; the answer of the second is not known
        q, p = softmax64(student[0, 1:, end], 2.0), softmax64(teacher[0, 1:, end], 2.0)
        expected += float(4.0 * (p * (p / q).log()).sum()) / 2
    assert float(got) == pytest.approx(expected, rel=1e-5)


def test_student_layers_map_by_depth() -> None:
    assert [mapped_layer(m, 4, 12) for m in range(5)] == [0, 3, 6, 9, 12]
    assert [mapped_layer(m, 3, 4) for m in range(4)] == [0, 1, 3, 4]
    assert [mapped_layer(m, 4, 1) for m in range(5)] == [0, 1, 1, 1, 1]


def test_incomparable_models_are_refused(tmp_path: Path) -> None:
    student, teacher = opened(tmp_path / "s", **STUDENT), opened(tmp_path / "t", **TEACHER)
    with pytest.raises(ValueError, match="several teachers: only their predictions"):
        forward(student, [teacher, teacher], HiddenStateDistillation())
    other = opened(tmp_path / "u", "BertForSequenceClassification", **TEACHER)
    with pytest.raises(ValueError, match="soft targets need a head"):
        forward(student, [other], SoftTargets())
    _, gpt2 = make("gpt2", tmp_path / "g")
    with pytest.raises(ValueError, match=r"teacher x: has another vocabulary \(\d+ tokens\)"):
        check_teacher("x", gpt2, student.tokenizer)
    with pytest.raises(ValueError, match="the task yes, no, in this order"):
        check_teacher("x", teacher, student.tokenizer, ("yes", "no"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"distill": ["soft"]}, "distill needs a teacher"),
        ({"teacher": "t", "distill": ["softer"]}, "distill must be one of soft, hard, cosine"),
        ({"teacher": "t", "distill": ["soft", "soft"]}, "must not name the same term twice"),
        ({"teacher": "t", "distill": ["soft:temperature=0"]}, "temperature must be above 0"),
        ({"teacher": "t", "distill": ["objective:weight=-1"]}, "objective_weight must be from 0"),
        ({"teacher": "t", "distill": ["teacher:precision=int8"]}, "precision must be one of"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        distillation(CompressionOptions(**options))


def test_options_become_a_distillation() -> None:
    options = CompressionOptions(
        teacher=["a", "b"],
        distill=["soft:temperature=4", "objective:weight=0.5", "teacher:precision=bfloat16"],
    )
    assert distillation(options) == Distillation(
        teacher=("a", "b"),
        terms=(SoftTargets(temperature=4.0),),
        objective_weight=0.5,
        teacher_precision="bfloat16",
    )


def test_head_of_all_layers_keeps_distilled_layers(tmp_path: Path) -> None:
    student, teacher = opened(tmp_path / "s", **STUDENT), opened(tmp_path / "t", **TEACHER)
    expected = forward(student, [teacher], HiddenStateDistillation())(batch()).terms
    student.model.remove_training_modules()
    student.model.add_head(
        "label", SequenceClassification(pooled_layers="all", pooling="mean", dense_layer=False)
    )
    found = forward(student, [teacher], HiddenStateDistillation())(batch()).terms
    torch.testing.assert_close(found["hidden_states"].total, expected["hidden_states"].total)


def test_heads_of_other_sizes_or_losses_are_refused(tmp_path: Path) -> None:
    student, teacher = opened(tmp_path / "s", **STUDENT), opened(tmp_path / "t", **TEACHER)
    wide = opened(tmp_path / "w", **(TEACHER | {"vocab_size": 128}))
    with pytest.raises(ValueError, match=r"head language has \d+ outputs, the teacher's 128"):
        forward(student, [wide], SoftTargets())
    specs: list[HeadSpec] = [
        SequenceClassification(n_labels=1),
        SequenceClassification(n_labels=2),
        SequenceClassification(n_labels=2, loss=BinaryCrossEntropy()),
        TokenClassification(term="label", n_labels=2),
    ]
    for own in specs:
        for other in specs:
            for model, spec in ((student.model, own), (teacher.model, other)):
                model.heads, model.head_specs = torch.nn.ModuleDict(), {}
                model.add_head("label", spec)
            if own is other:
                forward(student, [teacher], SoftTargets())
            else:
                with pytest.raises(ValueError, match="soft targets: the student's head label"):
                    forward(student, [teacher], SoftTargets())


def test_term_without_embeddings_has_no_embedding_projection(tmp_path: Path) -> None:
    student, teacher = opened(tmp_path / "s", **STUDENT), opened(tmp_path / "t", **TEACHER)
    forward(student, [teacher], HiddenStateDistillation(embeddings=False))
    names = [name for name, _ in student.model.training_modules.named_parameters()]
    assert names == ["distillation.hidden.weight"]
