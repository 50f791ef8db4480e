"""Inputs of tasks: special tokens and truncation equal the reference library's."""

from pathlib import Path

import numpy as np
import pytest
import torch
import toy_models as toy
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.batch import IGNORE_INDEX
from unmask.batching.collate import pad_examples
from unmask.finetuning.formulations.build import formulate, heads_for_task
from unmask.finetuning.formulations.classification_head import ClassificationFormulation
from unmask.finetuning.formulations.formulation import resolve_max_length, truncate_longest_first
from unmask.finetuning.formulations.text_to_text.word_labels import (
    WordLabelFormulation,
    rounded_number_labels,
)
from unmask.finetuning.formulations.token_classification_head import TokenClassificationFormulation
from unmask.tasks.task import Task, TaskColumns, TaskExample

ONE, TWO = TaskColumns(texts=("text",), label="label"), TaskColumns(texts=("a", "b"), label="label")
CLASSIFY = Task(task_kind="classify", columns=ONE, labels=("no", "yes"), task_name="classify")
PAIRS = Task(task_kind="pairs", columns=TWO, labels=("no", "yes"), task_name="pairs")
TAG = Task(task_kind="tag", columns=ONE, labels=("B", "O"), max_length=64, metric="token_accuracy")
some_text = st.lists(st.sampled_from(toy.WORDS), max_size=12).map(" ".join)


def reference_tokenizer(family: str, folder: Path):
    from transformers import AutoTokenizer

    toy.tokenizer(family).save(folder)
    return AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
@pytest.mark.parametrize("length", [6, 7, 12, 40])
def test_single_text_is_framed_and_truncated_as_reference(
    family: str, length: int, tmp_path: Path
) -> None:
    theirs = reference_tokenizer(family, tmp_path)
    formulation = formulate(
        Task(task_kind="classify", columns=ONE, max_length=length),
        toy.card(family),
        toy.tokenizer(family),
    )
    for text, _ in [*toy.texts(20, 3), ("", "")]:
        (question,) = formulation.build_inputs([TaskExample(texts=(text,))])
        expected = theirs(text, truncation=True, max_length=length)["input_ids"]
        if not expected:
            expected = [formulation.special_ids.start]  # a decoder must read something
        assert question.example.inputs.tolist() == expected
        assert question.truncated == (len(theirs(text)["input_ids"]) > length)


@pytest.mark.parametrize("length", [8, 9, 13, 40])
def test_pair_is_framed_and_truncated_as_reference(length: int, tmp_path: Path) -> None:
    theirs = reference_tokenizer("bert", tmp_path)
    formulation = formulate(
        Task(task_kind="pairs", columns=TWO, max_length=length),
        toy.card("bert"),
        toy.tokenizer("bert"),
    )
    texts = [text for text, _ in toy.texts(24, 4)]
    for a, b in [
        *zip(texts[::2], texts[1::2], strict=True),
        ("", "a cat"),
        ("a cat", ""),
        ("", ""),
    ]:
        (question,) = formulation.build_inputs([TaskExample(texts=(a, b))])
        # As a list: theirs takes one empty second text for none.
        expected = theirs([a], [b], truncation="longest_first", max_length=length)
        assert question.example.inputs.tolist() == expected["input_ids"][0]
        assert question.example.segments.tolist() == expected["token_type_ids"][0]


def test_decoder_separates_two_texts_by_its_end_token() -> None:
    tokenizer = toy.tokenizer("gpt2")
    formulation = formulate(PAIRS, toy.card("gpt2"), tokenizer)
    (question,) = formulation.build_inputs([TaskExample(texts=("a cat", "runs"))])
    a, b = (tokenizer.encode(t).ids.tolist() for t in ("a cat", "runs"))
    assert question.example.inputs.tolist() == [*a, tokenizer.special_ids.end, *b]
    assert question.example.segments.tolist() == [0] * 5 + [1] * 3


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 60))
def test_longer_text_is_truncated_first(a: int, b: int, budget: int) -> None:
    kept = truncate_longest_first([a, b], budget)
    assert sum(kept) == min(a + b, budget)
    assert all(0 <= k <= n for k, n in zip(kept, (a, b), strict=True))
    for k, n, other in ((kept[0], a, kept[1]), (kept[1], b, kept[0])):
        assert k == n or other <= k + 1  # what is cut is not the shorter one


def test_encoder_decoder_reads_the_task_and_generates_the_label() -> None:
    tokenizer = toy.tokenizer("t5")
    formulation = formulate(PAIRS, toy.card("t5"), tokenizer)
    (question,) = formulation.build_inputs([TaskExample(texts=("a cat", "runs"), label="yes")])
    end = tokenizer.special_ids.end
    source, example = question.example.source.tolist(), question.example
    assert tokenizer.decode(source) == "pairs a: a cat b: runs"
    assert source[-1] == end
    assert example.targets.tolist() == [*tokenizer.encode("yes").ids.tolist(), end]
    assert example.inputs.tolist() == [tokenizer.special_ids.start, *example.targets.tolist()[:-1]]


def test_special_tokens_are_never_truncated() -> None:
    tokenizer = toy.tokenizer("t5")
    task = Task(
        task_kind="pairs", columns=TWO, labels=("no", "yes"), task_name="pairs", max_length=24
    )
    (question,) = formulate(task, toy.card("t5"), tokenizer).build_inputs(
        [TaskExample(texts=("cat " * 50, "runs"))]
    )
    assert len(question.example.source) == 24
    assert tokenizer.decode(question.example.source.tolist()).endswith("b: runs")
    assert question.truncated


@torch.no_grad()
def test_label_likelihood_is_sum_over_its_tokens() -> None:
    preset, tokenizer = toy.card("t5"), toy.tokenizer("t5")
    labels = ("no", "yes", "very good", "0")
    task = Task(task_kind="classify", columns=ONE, labels=labels, task_name="classify")
    model = preset.build(heads_for_task(task, preset)).initialize(1).eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3, generator=torch.Generator().manual_seed(1))
    formulation = formulate(task, preset, tokenizer)
    assert isinstance(formulation, WordLabelFormulation)
    items = [TaskExample(texts=(text,)) for text, _ in toy.texts(5, 5)]
    questions = formulation.build_inputs(items)
    scores = formulation.compute_scores(
        model, pad_examples([q.example for q in questions], tokenizer.special_ids), questions
    )
    for i, item in enumerate(items):
        output = []
        for label in labels:
            (question,) = formulation.build_inputs([TaskExample(texts=item.texts, label=label)])
            batch = pad_examples([question.example], tokenizer.special_ids)
            output.append(-float(model(batch).terms["label"].total))
        expected = torch.tensor(output).log_softmax(0).numpy()
        assert np.allclose(scores[i][0], expected, atol=1e-4)  # sums of float32 logarithms


def test_labels_with_equal_tokens_are_named() -> None:
    task = Task(task_kind="classify", columns=ONE, labels=("好", "坏"))
    with pytest.raises(ValueError, match="labels '好' and '坏' have the same tokens"):
        formulate(task, toy.card("t5"), toy.tokenizer("t5"))


@pytest.mark.parametrize("family", ["bert", "gpt2"])
@settings(max_examples=40)
@given(
    words=st.lists(
        st.sampled_from([*toy.WORDS, "unheard-of", "é", "\u200b", "", " ", "x y", "1st"]),
        max_size=25,
    )
)
def test_each_word_has_one_target_in_order(family: str, words: list[str]) -> None:
    tokenizer = toy.tokenizer(family)
    task = Task(task_kind="tag", columns=ONE, labels=tuple(map(str, range(25))), max_length=12)
    formulation = formulate(task, toy.card(family), tokenizer)
    truth = tuple(str(i) for i in range(len(words)))
    questions = formulation.build_inputs([TaskExample(texts=tuple(words), label=truth)])
    output = []
    for question in questions:
        example = question.example
        assert len(example.inputs) <= 12
        assert len(example.inputs) == len(example.label)
        output += [int(x) for x in example.label if x != IGNORE_INDEX]
    assert output == list(range(len(words)))


@pytest.mark.parametrize(("family", "first"), [("bert", True), ("gpt2", False)])
def test_encoder_labels_first_piece_and_decoder_last(family: str, first: bool) -> None:
    tokenizer = toy.tokenizer(family)
    formulation = formulate(TAG, toy.card(family), tokenizer)
    words = ("the", "housestone", "runs")
    (question,) = formulation.build_inputs([TaskExample(texts=words, label=("O", "B", "O"))])
    ids, label = question.example.inputs.tolist(), question.example.label
    sizes = [len(tokenizer.encode(t).ids) for t in ("the", " housestone", " runs")]
    assert sizes[1] > 1
    lead = len(tokenizer.special_ids.prefix)
    starts = lead + np.cumsum([0, *sizes[:-1]])
    positions = starts if first else starts + np.array(sizes) - 1
    assert np.flatnonzero(label != IGNORE_INDEX).tolist() == positions.tolist()
    assert len(ids) == lead + sum(sizes) + len(tokenizer.special_ids.suffix)


def test_example_without_label_has_no_targets() -> None:
    formulation = formulate(CLASSIFY, toy.card("bert"), toy.tokenizer("bert"))
    assert isinstance(formulation, ClassificationFormulation)
    (question,) = formulation.build_inputs([TaskExample(texts=("a cat",))])
    assert question.example.label is None


def test_impossible_tasks_and_lengths_are_named() -> None:
    with pytest.raises(ValueError, match="cannot label each word"):
        heads_for_task(TAG, toy.card("t5"))
    with pytest.raises(ValueError, match="max_length must be at most 512"):
        resolve_max_length(toy.card("bert"), 513)
    assert resolve_max_length(toy.card("t5"), 5000) == 5000
    for family in toy.FAMILIES:
        task = Task(
            task_kind="pairs", columns=TWO, labels=("no", "yes"), task_name="pairs", max_length=2
        )
        with pytest.raises(ValueError, match="max_length must be at least"):
            formulate(task, toy.card(family), toy.tokenizer(family)).build_inputs(
                [TaskExample(texts=("a", "b"))]
            )


def test_number_labels_are_those_of_the_paper() -> None:
    output = rounded_number_labels([0.0, 5.0, 2.6])
    assert output == tuple(f"{i / 5:.1f}" for i in range(26))  # section 2.4: increments of 0.2
    assert rounded_number_labels([1.0, 5.0])[:3] == ("1.0", "1.2", "1.4")
    assert rounded_number_labels([-1.0, 1.0])[0] == "-1.0"
    assert rounded_number_labels([0.0, 100.0])[1] == "5"
    with pytest.raises(ValueError, match="nothing to learn"):
        rounded_number_labels([3.0, 3.0])


@given(
    st.lists(st.floats(-1e9, 1e9).map(lambda x: round(x, 2)), min_size=2, max_size=9, unique=True)
)
def test_every_number_is_near_a_label(numbers: list[float]) -> None:
    output = rounded_number_labels(numbers)
    values = np.array([float(s) for s in output])
    step = (max(numbers) - min(numbers)) / 25
    assert 8 <= len(output) <= 60
    assert len(set(output)) == len(output)
    assert (np.diff(values) > 0).all()
    assert all(np.abs(values - x).min() <= 1.01 * step for x in numbers)


@settings(max_examples=20)
@given(texts=st.lists(some_text, min_size=1, max_size=4))
def test_words_and_text_give_the_same_tokens(texts: list[str]) -> None:
    """A sentence of words is read as the text that the words make."""
    for family in ("bert", "gpt2"):
        formulation = formulate(TAG, toy.card(family), toy.tokenizer(family))
        assert isinstance(formulation, TokenClassificationFormulation)
        for text in texts:
            (question,) = formulation.build_inputs([TaskExample(texts=tuple(text.split()))])
            s = formulation.special_ids
            expected = [*s.prefix, *toy.tokenizer(family).encode(text).ids.tolist(), *s.suffix]
            assert question.example.inputs.tolist() == (expected or [s.start])
