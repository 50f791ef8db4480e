"""The head that marks an answer: the reference library's scores and loss, and what is left out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference import V, bert, gpt2, saved

from unmask.batch import IGNORE_INDEX, Batch, Visibility
from unmask.checkpoints.huggingface.read import load_folder
from unmask.checkpoints.huggingface.write import to_external_config, write_folder
from unmask.heads.model import Model
from unmask.heads.question_answering import END, START, QuestionAnswering, QuestionAnsweringHead
from unmask.model.backbones.transformer import Architecture

KINDS = {"BertForQuestionAnswering": bert, "GPT2ForQuestionAnswering": gpt2}


def opened(kind: str, folder: Path) -> tuple[Any, Model]:
    reference = KINDS[kind](kind)
    found = load_folder(saved(reference, folder))
    assert found.missing == found.unexpected == found.label_names == ()
    return reference, found.model


def texts(b: int, t: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(5, V, (b, t)))


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_scores_and_loss_equal_reference(kind: str, tmp_path: Path) -> None:
    reference, ours = opened(kind, tmp_path)
    ids, starts, ends = texts(3, 9), torch.tensor([0, 4, 8]), torch.tensor([2, 4, 8])
    labels = torch.zeros_like(ids)
    for row, start, end in zip(labels, starts.tolist(), ends.tolist(), strict=True):
        row[start] |= START
        row[end] |= END
    visibility = Visibility(causal=kind.startswith("GPT2"))
    batch = Batch(inputs=ids, visibility=visibility, labels=labels)
    out = reference(input_ids=ids, start_positions=starts, end_positions=ends)
    prediction = ours(batch, return_logits=True)
    torch.testing.assert_close(
        prediction.logits["span"][..., 0], out.start_logits, rtol=0, atol=1e-4
    )
    torch.testing.assert_close(prediction.logits["span"][..., 1], out.end_logits, rtol=0, atol=1e-4)
    torch.testing.assert_close(prediction.terms["span"].loss, out.loss, rtol=1e-5, atol=0)
    both = (out.start_logits.argmax(1) == starts) & (out.end_logits.argmax(1) == ends)
    assert int(prediction.terms["span"].n_correct) == int(both.sum())
    assert ours.count_targets(batch) == {"span": 3}


@pytest.mark.parametrize("kind", KINDS)
def test_reference_reads_written_weights(kind: str, tmp_path: Path) -> None:
    import transformers

    reference, ours = opened(kind, tmp_path / "theirs")
    preset = load_folder(tmp_path / "theirs").preset
    assert to_external_config(ours, preset)["architectures"] == [kind]
    write_folder(tmp_path / "ours", ours, preset, None)
    again = getattr(transformers, kind).from_pretrained(tmp_path / "ours")
    for name, tensor in reference.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


TINY = Architecture(vocab_size=9, d_model=4, n_layers=1, n_heads=2, d_ff=8, dropout=0.0)
S, E, N, X = START, END, 0, IGNORE_INDEX


def make_case(labels: list[list[int]]) -> tuple[QuestionAnsweringHead, torch.Tensor, Batch]:
    torch.manual_seed(0)
    head = QuestionAnswering().build(TINY, torch.nn.Embedding(9, 4))
    label = torch.tensor(labels)
    hidden = torch.randn(*label.shape, 4, requires_grad=True)
    return head, hidden, Batch(inputs=torch.zeros_like(label), labels=label)


def test_only_allowed_tokens_are_compared() -> None:
    head, hidden, batch = make_case([[N, X, S, E, N, X], [S | E, X, N, X, X, X]])
    prediction = head(hidden, batch, return_logits=True)
    scores = prediction.logits["span"].detach()
    expected = 0.0
    for row, may, start, end in ((0, [0, 2, 3, 4], 1, 2), (1, [0, 2], 0, 0)):
        logs = scores[row, may].log_softmax(0)
        expected -= float(logs[start, 0] + logs[end, 1]) / 2
    assert float(prediction.terms["span"].total.detach()) == pytest.approx(expected, rel=1e-5)
    prediction.terms["span"].total.backward()
    assert hidden.grad is not None
    assert bool((hidden.grad[batch.labels == IGNORE_INDEX] == 0).all())
    assert bool((hidden.grad[batch.labels != IGNORE_INDEX] != 0).any(-1).all())


def test_text_without_known_answer_gives_no_gradient() -> None:
    known, some = [N, S, E], [[N, S, E], [N, N, N], [X, X, X]]
    head, hidden, batch = make_case(some)
    output = head(hidden, batch)
    alone = head(hidden[:1], Batch(inputs=batch.inputs[:1], labels=torch.tensor([known])))
    assert head.count_targets(batch) == {"span": 1}
    assert output.terms["span"].count == 1
    torch.testing.assert_close(output.terms["span"].total, alone.terms["span"].total)
    output.terms["span"].total.backward()
    assert hidden.grad is not None
    assert bool((hidden.grad[1:] == 0).all())


def test_span_is_correct_if_start_and_end_are() -> None:
    head, hidden, batch = make_case([[N, S, E]])
    with torch.no_grad():
        head.out.weight.copy_(torch.eye(2, 4))
        head.out.bias.zero_()
    for start, end, right in ((1, 2, 1), (1, 1, 0), (0, 2, 0)):
        x = torch.zeros_like(hidden)
        x[0, start, 0] = x[0, end, 1] = 1.0
        assert int(head(x, batch).terms["span"].n_correct) == right
