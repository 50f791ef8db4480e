"""Streams: rows that go on where those of the step before ended, and a memory of what was there."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_text import corpus

from unmask.batch import IGNORE_INDEX, Tokens
from unmask.batching.workers import draw_other_row
from unmask.checkpoints import folder as checkpoints
from unmask.jobs.corpus.prepare import prepare
from unmask.jobs.pretrain.network import build_network
from unmask.model.architecture import StackArchitecture
from unmask.model.backbones.transformer import Architecture
from unmask.objectives import published
from unmask.objectives.features import Recurrence, RecurrenceMemory
from unmask.shards.read import TokenShards
from unmask.training import loop
from unmask.training.config import Recipe
from unmask.training.data.texts import TrainingData, build_training_data
from unmask.training.resume import restore_run, save_checkpoint, trained_tensors
from unmask.training.run import TrainingRun
from unmask.zoo.catalogue import MODELS

RECIPE = Recipe(
    model="transformer-xl-mini",
    row_unit="stream",
    memory_length=24,
    dev_fraction=0.2,
    batch_tokens=64,
    steps=6,
    precision="float32",
    learning_rate=1e-2,
    log_every=4,
)
LENGTH = 16


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> TokenShards:
    folder = tmp_path_factory.mktemp("text")
    (folder / "text.txt").write_text(corpus(40, seed=3))
    prepare(
        [folder / "text.txt"], out=folder / "data", model=RECIPE.model, vocab_size=300, quiet=True
    )
    return TokenShards.open(folder / "data")


def make_training_data(shards: TokenShards, recipe: Recipe = RECIPE) -> TrainingData:
    return build_training_data(shards, recipe, MODELS[RECIPE.model].objective, LENGTH)


def start_toy_run(shards: TokenShards, recipe: Recipe = RECIPE) -> TrainingRun:
    preset = MODELS[recipe.model]
    a = preset.architecture
    assert isinstance(a, StackArchitecture)
    heads = {"n_heads": 2} if isinstance(a, Architecture) else {}
    a = replace(a, d_model=16, n_layers=2, **heads, d_ff=32, dropout=0.1, final_dropout=0.1)
    model = build_network(replace(preset, architecture=a), recipe, shards.tokenizer.special_ids)
    data = make_training_data(shards, recipe)
    return loop.start_run(recipe, model, data.batches)


@pytest.mark.thorough
def test_row_lengths_vary_by_epoch_and_streams_stay_contiguous(shards: TokenShards) -> None:
    data, plain = (
        make_training_data(shards, replace(RECIPE, sequence_length_jitter=0.2)),
        make_training_data(shards),
    )
    n_steps = len(data.train_rows.row_spans) // 4
    whole = data.train_rows.token_source.read_tokens(0, int(data.train_rows.row_spans[-1, 1])).ids
    steps = [micro[0] for micro, _ in itertools.islice(data.batches(None), 2 * n_steps)]
    lengths = []
    for epoch in (steps[:n_steps], steps[n_steps:]):
        targets = torch.cat([batch.targets for batch in epoch], 1).flatten()
        assert (targets.numpy() == whole[: len(targets)]).all(), "each token is asked once"
        assert [batch.feature(Recurrence).continues for batch in epoch] == [False] + [True] * (
            n_steps - 1
        )
        lengths.append([batch.inputs.shape[1] for batch in epoch])
    assert lengths[0] != lengths[1]
    assert min(map(min, lengths)) < LENGTH < max(map(max, lengths))
    again = itertools.islice(data.batches(None), n_steps)
    assert all(torch.equal(a.inputs, b.inputs) for a, ((b,), _) in zip(steps, again, strict=False))
    for ours, theirs in zip(data.dev_batches(), plain.dev_batches(), strict=True):
        assert torch.equal(ours.inputs, theirs.inputs), "what is held out is read as it is"


def test_rows_continue_those_of_the_previous_step(shards: TokenShards) -> None:
    data = make_training_data(shards)
    whole = data.train_rows.token_source.read_tokens(0, int(data.train_rows.row_spans[-1, 1])).ids
    n_steps = len(data.train_rows.row_spans) // 4
    reads, asks = [], []
    for i, ((batch,), _) in enumerate(itertools.islice(data.batches(None), n_steps + 1)):
        assert batch.targets is not None
        assert batch.inputs.shape == (4, LENGTH)
        assert batch.visibility.causal
        assert batch.visibility.document is None
        assert batch.feature(Recurrence).continues == (i not in (0, n_steps))
        reads.append(batch.inputs.numpy())
        asks.append(batch.targets.numpy())
    assert (reads[0] == reads[-1]).all(), "the second epoch is as the first"
    read, targets = np.concatenate(reads[:-1], 1), np.concatenate(asks[:-1], 1)
    assert (read[:, 1:] == targets[:, :-1]).all()
    assert (targets.flatten() == whole[: targets.size]).all()
    assert (read[1:, 0] == targets[:-1, -1]).all(), "a stream reads the token before it, too"
    assert read[0, 0] == shards.tokenizer.special_ids.start
    assert not (targets == IGNORE_INDEX).any()


XLNET = replace(RECIPE, model="xlnet-mini", bidirectional_data=True, batch_tokens=4 * 32)


@pytest.fixture(scope="module")
def two_segments(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    """XLNet's rows, of 32 tokens."""
    folder = tmp_path_factory.mktemp("xlnet")
    (folder / "text.txt").write_text(corpus(60, seed=4))
    prepare(
        [folder / "text.txt"], out=folder / "data", model="xlnet-mini", vocab_size=120, quiet=True
    )
    return build_training_data(TokenShards.open(folder / "data"), XLNET, published.XLNET, 32)


def texts_of_step(data: TrainingData, step: int) -> list[Tokens]:
    """The texts of the rows of a step, every other from its end."""
    n = len(data.train_rows.row_spans) // 4
    numbers = [row * n + (n - 1 - step if row % 2 else step) for row in range(4)]
    found = [
        data.train_rows.token_source.read_tokens(*data.train_rows.row_spans[i].tolist())
        for i in numbers
    ]
    return [text.reversed() if row % 2 else text for row, text in enumerate(found)]


@pytest.mark.thorough
def test_row_is_kept_part_and_two_following_segments(two_segments: TrainingData) -> None:
    """The kept parts of a stream are its text; of the second texts, half stand there too."""
    special = two_segments.shards.tokenizer.special_ids
    sep, cls = special.suffix
    n_steps = len(two_segments.train_rows.row_spans) // 4
    everything = two_segments.train_rows.token_source.read_tokens(
        0, two_segments.train_rows.token_source.n_tokens
    ).ids.tolist()
    kept: list[list[int]] = [[], [], [], []]
    follows = total = 0
    for step, ((batch,), _) in enumerate(itertools.islice(two_segments.batches(None), n_steps)):
        assert batch.inputs.shape == (4, 32)
        recurrence = batch.feature(Recurrence)
        assert recurrence is not None
        assert recurrence.reuse_len == 16
        assert recurrence.reversed_rows is not None
        assert recurrence.reversed_rows.tolist() == [False, True, False, True]
        assert recurrence.continues == (step > 0)
        assert batch.visibility.document is None
        assert batch.visibility.rank is not None
        assert batch.segments is not None
        for row, text in enumerate(texts_of_step(two_segments, step)):
            read, whole = batch.inputs[row].tolist(), text.ids.tolist()
            kept[row] += read[:16]
            mark = read.index(sep)
            a, b = read[16:mark], read[mark + 1 : -2]
            assert a
            assert b
            assert read[-2:] == [sep, cls]
            assert [*read[:16], *a] == whole[:mark]
            output = [0] * (mark + 1) + [1] * (len(b) + 1) + [2]
            assert batch.segments[row].tolist() == output
            rank = batch.visibility.rank[row]
            assert int(rank[:16].max()) < int(rank[16:].min())
            total += 1
            if b == whole[mark:]:
                follows += 1
                continue
            forward = b[::-1] if row % 2 else b
            assert any(
                everything[i : i + len(b)] == forward for i in range(len(everything) - len(b) + 1)
            )
    assert total == 4 * n_steps > 150
    assert 0.38 < follows / total < 0.62
    for row in range(4):
        first, last = (
            two_segments.train_rows.row_spans[row * n_steps + i] for i in (0, n_steps - 1)
        )
        stream = two_segments.train_rows.token_source.read_tokens(int(first[0]), int(last[1]))
        stream = stream.reversed() if row % 2 else stream
        assert kept[row] == stream.ids[: len(kept[row])].tolist()


def test_random_second_segment_is_of_another_document(two_segments: TrainingData) -> None:
    rows, numbers = two_segments.train_rows.row_spans, two_segments.train_rows.document_of_row
    for row in range(len(rows)):
        drawn = draw_other_row(row, rows, numbers, np.random.default_rng(row))
        assert drawn is not None
        start, end = drawn
        assert end <= rows[row, 0] or start >= rows[row, 1]
        assert numbers[rows[:, 0].searchsorted(start)] != numbers[row]


@pytest.mark.thorough
def test_segment_rows_are_equal_for_any_workers_and_after_resuming(
    two_segments: TrainingData,
) -> None:
    def batches_of(data: TrainingData, n: int, cursor: object = None) -> list[object]:
        return [
            (
                b.inputs.tolist(),
                b.targets.tolist(),
                b.segments.tolist(),
                b.feature(Recurrence).reuse_len,
                after,
            )
            for (b,), after in itertools.islice(data.batches(cursor), n)
        ]

    n_steps = len(two_segments.train_rows.row_spans) // 4
    whole = batches_of(two_segments, n_steps + 4)
    assert batches_of(replace(two_segments, n_workers=1), 5) == whole[:5]
    assert batches_of(two_segments, 6, whole[n_steps - 3][-1]) == whole[n_steps - 2 :], (
        "into the next epoch"
    )
    assert whole[0][:2] != whole[n_steps][:2], "hidden anew, and other second texts"


@pytest.mark.thorough
@torch.no_grad()
def test_memory_holds_no_targets_of_the_next_row(two_segments: TrainingData) -> None:
    """Whatever stood behind the kept part, the memory is the same; and not, whatever it was."""
    preset = MODELS["xlnet-mini"]
    a = preset.architecture
    assert isinstance(a, Architecture)
    a = replace(a, d_model=16, n_layers=3, n_heads=2, d_ff=32)
    model = build_network(
        replace(preset, architecture=a), XLNET, two_segments.shards.tokenizer.special_ids
    ).eval()
    ((first,), _), ((second,), _) = itertools.islice(two_segments.batches(None), 2)

    def remembered(column: int | None) -> list[torch.Tensor]:
        memory, inputs = RecurrenceMemory(24), first.inputs.clone()
        if column is not None:
            inputs[:, column] = (inputs[:, column] + 1) % 100
        for ids, batch in ((inputs, first), (second.inputs, second)):
            recurrence = replace(batch.feature(Recurrence), memory=memory)
            model.hidden_states(replace(batch, inputs=ids).with_feature(recurrence))
        assert len(memory) == 24
        return memory.hidden_states

    before = remembered(None)
    for column in range(32):
        same = [torch.equal(x, y) for x, y in zip(remembered(column), before, strict=True)]
        assert all(same) == (column >= 16)


def test_batches_are_equal_for_any_workers_and_after_resuming(shards: TokenShards) -> None:
    def batches_of(data: TrainingData, n: int, cursor: object = None) -> list[object]:
        return [
            ([(b.inputs.tolist(), b.feature(Recurrence).continues) for b in micro], after)
            for micro, after in itertools.islice(data.batches(cursor), n)
        ]

    data = make_training_data(shards)
    whole = batches_of(data, 12)
    assert batches_of(replace(data, n_workers=1), 5) == whole[:5]
    assert batches_of(data, 5, whole[6][1]) == whole[7:]


STATES = {"transformer-xl-mini": 2, "lstm-mini": 4, "awd-lstm": 4}
"""Memory of two layers: inputs of each, or outputs of each and the cell states."""


@pytest.mark.parametrize("model", STATES)
def test_memory_equals_the_whole_past(shards: TokenShards, model: str) -> None:
    """Without learning and dropout, a row's output is that after all of its past."""
    run = start_toy_run(shards, replace(RECIPE, model=model, memory_length=10_000))
    model = run.model.eval()
    micro = [batch for (batch,), _ in itertools.islice(run.batches(None), 4)]
    parts = [model(run.memories.attach(0, b), return_logits=True).logits for b in micro]
    names = ("inputs", "targets")
    joined = {name: torch.cat([getattr(b, name) for b in micro], 1) for name in names}
    whole = replace(micro[0], **joined, features=())
    ours = torch.cat([next(iter(s.values())).unflatten(0, (4, -1)) for s in parts], 1)
    theirs = next(iter(model(whole, return_logits=True).logits.values())).unflatten(0, (4, -1))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("model", STATES)
def test_resumed_run_restores_its_memory(shards: TokenShards, tmp_path: Path, model: str) -> None:
    for precision in ("float32", "bfloat16"):
        recipe = replace(RECIPE, model=model, precision=precision, micro_batch_tokens=32)
        straight = start_toy_run(shards, recipe)
        assert len(list(loop.train(straight))) == 6
        folder = tmp_path / precision
        folder.mkdir()
        broken = start_toy_run(shards, recipe)
        for report in loop.train(broken):
            if report.step == 3:
                break
        save_checkpoint(broken, folder)
        again = start_toy_run(shards, recipe)
        found = checkpoints.newest_checkpoint(folder)[0]
        assert found is not None
        restore_run(again, found)
        assert set(again.memories.tensors()) == {
            f"{i}.{j}" for i in (0, 1) for j in range(STATES[model])
        }
        list(loop.train(again))
        ours, theirs = trained_tensors(straight), trained_tensors(again)
        assert [n for n in ours if not torch.equal(ours[n], theirs[n])] == []
        forgetful = start_toy_run(shards, recipe)
        restore_run(forgetful, found)
        forgetful.memories.reset()
        list(loop.train(forgetful))
        theirs = trained_tensors(forgetful)
        assert [n for n in ours if not torch.equal(ours[n], theirs[n])]


def test_step_estimation_restores_the_memory(shards: TokenShards) -> None:
    run, straight = start_toy_run(shards), start_toy_run(shards)
    loop.estimate_steps(run, 0.001, max_trial_steps=2)
    list(loop.train(run))
    list(loop.train(straight))
    ours, theirs = trained_tensors(run), trained_tensors(straight)
    assert [n for n in ours if not torch.equal(ours[n], theirs[n])] == []


def test_skipped_step_does_not_update_the_memory(shards: TokenShards) -> None:
    run = start_toy_run(shards)
    steps = loop.train(run)
    next(steps)
    for states in run.memories.tensors().values():
        states.fill_(float("nan"))
    assert next(steps).was_skipped
    assert run.memories.tensors() == {}
    assert not next(steps).was_skipped


def test_held_out_text_is_evaluated_with_memory(shards: TokenShards) -> None:
    run = start_toy_run(shards)
    batches = make_training_data(shards).dev_batches()
    assert [b.feature(Recurrence).continues for b in batches] == [False] + [True] * (
        len(batches) - 1
    )
    with_memory = loop.evaluate_batches(run.model, batches, memory_length=24)
    assert with_memory == loop.evaluate_batches(run.model, batches, memory_length=24)
    assert with_memory["loss"] != loop.evaluate_batches(run.model, batches)["loss"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"row_unit": "document"},
            "memory_length = 24 .* row_unit must be 'stream', got 'document'",
        ),
        ({"memory_length": -1}, "memory_length must be at least 0, got -1"),
        (
            {"bidirectional_data": True, "memory_length": 0, "row_unit": "corpus"},
            "bidirectional_data: row_unit must be 'stream'",
        ),
    ],
)
def test_impossible_recipe_is_refused(changes: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        replace(RECIPE, **changes)


@pytest.mark.parametrize(
    ("changes", "objective", "says"),
    [
        ({"packing": "pack"}, published.CAUSAL_LM, "cannot be packed"),
        ({"sampling_exponent": 0.5}, published.CAUSAL_LM, "keeps the order of the text"),
        ({}, published.BERT, "next_sentence is asked about one"),
        ({"bidirectional_data": True}, published.CAUSAL_LM, "this objective is causal"),
    ],
)
def test_objectives_unsuited_to_streams_are_refused(
    changes: dict, objective: published.ObjectiveSpec, says: str, shards: TokenShards
) -> None:
    with pytest.raises(ValueError, match=says):
        build_training_data(shards, replace(RECIPE, **changes), objective, LENGTH)


def test_model_without_memory_is_refused(shards: TokenShards) -> None:
    with pytest.raises(ValueError, match="LearnedPositions positions do not extend over a memory"):
        start_toy_run(shards, replace(RECIPE, model="gpt2-mini"))
    with pytest.raises(ValueError, match="only a model of one stack"):
        MODELS["t5-mini"].build().check_supports_memory()
