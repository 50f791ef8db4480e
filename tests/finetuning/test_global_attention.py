"""Tokens with global attention (Longformer) in each task, and outputs of transformers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import toy_models as toy

from unmask.adapters.attach import attach
from unmask.adapters.prefix import PrefixTuning, PromptTuning
from unmask.batch import Batch
from unmask.batching.collate import pad_examples
from unmask.checkpoints.huggingface.write import write_folder
from unmask.finetuning.formulations.build import formulate, heads_for_task
from unmask.finetuning.formulations.formulation import TaskFormulation
from unmask.model.layers.attention import attention
from unmask.model.layers.attention.block_local_mask import GlobalTokens
from unmask.tasks.task import Task, TaskColumns, TaskExample

ONE, TWO = TaskColumns(texts=("text",), label="label"), TaskColumns(texts=("a", "b"), label="label")
LABELS = ("no", "yes")
TASKS = {
    "classify": Task(task_kind="classify", columns=ONE, labels=LABELS),
    "pairs": Task(task_kind="pairs", columns=TWO, labels=LABELS),
    "compare": Task(task_kind="pairs", columns=TWO, labels=LABELS, options={"pooling": "compare"}),
    "multilabel": Task(task_kind="multilabel", columns=ONE, labels=LABELS),
    "regress": Task(task_kind="regress", columns=ONE),
    "answer": Task(
        task_kind="answer",
        columns=TaskColumns(texts=("question", "context"), label="answers"),
        max_length=40,
        options={"window_overlap": 4, "allow_no_answer": True},
        metric="answer_f1",
    ),
    "choose": Task(task_kind="choose", columns=ONE, labels=()),
    "tag": Task(task_kind="tag", columns=ONE, labels=("B", "O"), metric="token_accuracy"),
}


def item(kind: str) -> TaskExample:
    if kind == "choose":
        return TaskExample(texts=("the cat runs",), choices=("red dog", "sun"), label=0)
    if kind in ("pairs", "compare", "answer"):
        return TaskExample(texts=("the cat runs", "a red dog walks . the sun is very blue"))
    return TaskExample(texts=("the cat runs",))


def make_formulation(name: str, family: str = "longformer") -> TaskFormulation:
    return formulate(TASKS[name], toy.card(family), toy.tokenizer(family))


def model(name: str):
    preset = toy.card("longformer", attention_window=(4,))
    preset = replace(preset, heads=heads_for_task(TASKS[name], preset))
    return preset, preset.build().initialize(1).eval()


@pytest.mark.parametrize("name", TASKS)
def test_global_tokens_depend_on_the_task(name: str) -> None:
    formulation = make_formulation(name)
    for question in formulation.build_inputs([item(name)]):
        example, special = question.example, formulation.special_ids
        n = [len(x) for x in toy.tokenizer("longformer").encode_ids_batch(list(item(name).texts))]
        found = example.feature(GlobalTokens)
        wide = None if found is None else found.positions.tolist()
        first = len(special.prefix)
        if name == "tag":
            assert wide is None
        elif name == "compare":
            assert wide == [0, first + n[0] + len(special.suffix)]
            assert example.part_ids is not None
            assert example.part_ids[wide].tolist() == [0, 1]
        elif name == "answer":
            assert wide == list(range(first + n[0]))
        elif name == "choose":
            assert wide == [0, *range(first + n[0] + len(special.separator), len(example.inputs))]
        else:
            assert wide == [0]


@pytest.mark.parametrize("name", TASKS)
def test_models_without_global_attention_get_none(name: str) -> None:
    questions = make_formulation(name, "bert").build_inputs([item(name)])
    assert not any(q.example.has(GlobalTokens) for q in questions)


@pytest.mark.parametrize("banded", [True, False])
@pytest.mark.parametrize("name", ["classify", "answer"])
@torch.no_grad()
def test_outputs_equal_reference(name, banded, tmp_path: Path, monkeypatch):
    """It makes the same tokens global by itself."""
    import transformers as hf

    monkeypatch.setattr(attention, "BLOCK_LOCAL_MIN_KEYS", -1000 if banded else 1000)
    preset, ours = model(name)
    write_folder(tmp_path, ours, preset, toy.tokenizer("longformer"), TASKS[name].labels)
    kind = {"classify": "SequenceClassification", "answer": "QuestionAnswering"}[name]
    theirs = getattr(hf, f"LongformerFor{kind}").from_pretrained(tmp_path).eval()
    formulation = make_formulation(name)
    first = item(name)
    second = replace(first, texts=tuple(f"{t} one two three . four" for t in first.texts))
    questions = formulation.build_inputs([first, second])
    batch = pad_examples([q.example for q in questions], formulation.special_ids)
    real = batch.inputs != formulation.special_ids.pad
    out = theirs(input_ids=batch.inputs, attention_mask=real.long())
    logits = ours(replace(batch, labels=None), return_logits=True).logits
    if name == "classify":
        assert torch.allclose(logits["label"], out.logits, atol=1e-5)
        assert not torch.allclose(
            ours(batch.without(GlobalTokens), return_logits=True).logits["label"],
            out.logits,
            atol=1e-5,
        )
        return
    expected = torch.stack((out.start_logits, out.end_logits), -1)
    assert torch.allclose(logits["span"][real], expected[real], atol=1e-5)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize(
    "spec", [PrefixTuning(n_virtual_tokens=3), PromptTuning(n_virtual_tokens=3)], ids=str
)
def test_virtual_tokens_keep_positions_of_global_tokens(name, spec) -> None:
    """A text gives equal outputs alone and in a batch, and global tokens change the output."""
    torch.manual_seed(0)
    _, made = model(name)
    module = attach(made, spec)
    for weight in module.parameters():
        torch.nn.init.normal_(weight, std=0.7)
    first = item(name)
    second = replace(first, texts=tuple(f"{t} one two three . four" for t in first.texts))
    formulation = make_formulation(name)
    questions = formulation.build_inputs([first, second])
    together = made.hidden_states(
        pad_examples([q.example for q in questions], formulation.special_ids)
    )
    for row, question in zip(together, questions, strict=True):
        alone = made.hidden_states(pad_examples([question.example], formulation.special_ids))[0]
        n = len(question.example.inputs)
        assert alone.shape[0] == n
        assert torch.allclose(row[:n], alone, atol=1e-4)
    found = questions[0].example.feature(GlobalTokens)
    column = 0 if found is None else int(found.positions[0])
    (gradient,) = torch.autograd.grad(together[0, column].square().sum(), module.parameters())
    assert gradient.abs().max() > 0
    assert np.isfinite(together.detach().numpy()).all()


@pytest.mark.parametrize("name", ["classify", "answer"])
@torch.no_grad()
def test_prompt_tokens_are_global_and_text_keeps_its_own(name: str) -> None:
    """A prompt of three tokens' vectors is those tokens before the text."""
    _, made = model(name)
    formulation, ids = make_formulation(name), [5, 6, 7]
    batch = pad_examples(
        [q.example for q in formulation.build_inputs([item(name)])], formulation.special_ids
    )
    found = batch.feature(GlobalTokens)
    assert found is not None
    columns = torch.cat((torch.tensor([[0, 1, 2]]), found.positions + 3), 1)
    before = Batch(
        inputs=torch.cat((torch.tensor([ids]), batch.inputs), 1),
        features=(GlobalTokens(columns),),
    )
    expected = made.hidden_states(before)[:, 4:]
    module = attach(made, PromptTuning(n_virtual_tokens=3))
    module.initialize_from(made, ids)
    assert torch.allclose(made.hidden_states(batch)[:, 1:], expected, atol=1e-5)
