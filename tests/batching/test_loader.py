import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from in_memory import Buggy, Damaged, InMemory
from vocabularies import BERT, GPT, T5

from unmask.batch import IGNORE_INDEX, Visibility
from unmask.batching import workers
from unmask.batching.loader import BatchLoader
from unmask.batching.plan import BatchPlan, DataCursor, balanced_splits
from unmask.batching.workers import document_of_rows, draw_other_row
from unmask.config import from_dict, to_dict
from unmask.objectives import published
from unmask.objectives.mixtures import StaticMasking
from unmask.objectives.objective import Objective
from unmask.objectives.select import ScheduledRate, TokenMasking

SEEDS = st.integers(0, 2**63)
SIZES = st.lists(st.integers(1, 60), min_size=1, max_size=200)


@st.composite
def plans(draw: st.DrawFn) -> BatchPlan:
    sizes = np.array(draw(SIZES))
    length = draw(st.sampled_from([None, 60, 100]))
    return BatchPlan(
        lengths=sizes,
        batch_tokens=draw(st.integers(1, 400)),
        packed_length=length,
        seed=draw(SEEDS),
    )


def rows_of(n: int, least: int = 1, most: int = 30, seed: int = 0) -> np.ndarray:
    """Consecutive rows of random lengths over `n` tokens."""
    cuts = np.cumsum(np.random.default_rng(seed).integers(least, most, n))
    cuts = np.concatenate(([0], cuts[cuts < n]))
    return np.stack((cuts[:-1], cuts[1:]), 1)


def make(**changes: object) -> BatchLoader:
    plain = {
        "token_source": InMemory(3000), "row_spans": rows_of(3000),
        "objective": published.MASKED_LM,
        "special_ids": BERT, "max_length": 32, "batch_tokens": 128, "seed": 3,
    }  # fmt: skip
    return BatchLoader(**plain | changes)


def values(batch: object) -> list:
    """All that is in a batch, to compare."""
    out = []
    for value in vars(batch).values():
        if isinstance(value, Visibility):
            out.append(values(value))
        elif isinstance(value, tuple):
            out.append([(type(feature), values(feature)) for feature in value])
        else:
            out.append(value.tolist() if isinstance(value, torch.Tensor) else value)
    return out


def stream(loader: BatchLoader, steps: int) -> list:
    return [
        ([values(b) for b in micro], cursor) for micro, cursor in itertools.islice(loader, steps)
    ]


def texts_in(batches: list) -> list:
    """Inputs and targets of each row of some batches, in any order and without padding."""
    found = []
    for batch in batches:
        for row in range(len(batch.inputs)):
            end = (
                batch.inputs.shape[1]
                if batch.last_token_positions is None
                else int(batch.last_token_positions[row]) + 1
            )
            found.append((batch.inputs[row, :end].tolist(), batch.targets[row, :end].tolist()))
    return sorted(found)


# ---- the plan


@settings(max_examples=30)
@given(plans())
def test_epoch_contains_every_row_once(plan):
    steps = itertools.takewhile(lambda s: s.cursor.epoch == 0, plan.global_batches(DataCursor()))
    rows = [row for step in steps for group in step.row_groups for row in group]
    assert sorted(rows) == list(range(len(plan.lengths)))


@pytest.mark.thorough
@settings(max_examples=30)
@given(plans())
def test_batch_size_limit_holds_except_for_single_rows(plan):
    for step in itertools.islice(plan.global_batches(DataCursor()), 80):
        if plan.packed_length is None:
            assert all(len(group) == 1 for group in step.row_groups)
            width = max(plan.lengths[group[0]] for group in step.row_groups)
        else:
            width = plan.packed_length
            assert all(plan.lengths[group].sum() <= width for group in step.row_groups)
        assert len(step.row_groups) == 1 or len(step.row_groups) * width <= plan.batch_tokens


@settings(max_examples=30)
@given(plans(), st.integers(0, 60))
def test_resuming_plan_from_cursor_equals_uninterrupted(plan, n):
    steps = list(itertools.islice(plan.global_batches(DataCursor()), n + 20))
    cursor = steps[n - 1].next_cursor if n else DataCursor()
    assert list(itertools.islice(plan.global_batches(cursor), 20)) == steps[n:]
    assert all(a.next_cursor == b.cursor for a, b in itertools.pairwise(steps))


@pytest.mark.parametrize("length", [None, 64])
def test_epochs_and_seeds_differ(length):
    sizes = np.random.default_rng(0).integers(5, 60, 300)
    plan = BatchPlan(lengths=sizes, batch_tokens=256, packed_length=length)
    first = list(itertools.islice(plan.global_batches(DataCursor()), 20))
    again = list(itertools.islice(plan.global_batches(DataCursor()), 20))
    assert first == again
    next_epoch = list(itertools.islice(plan.global_batches(DataCursor(1)), 20))
    other_seed = list(itertools.islice(replace(plan, seed=1).global_batches(DataCursor()), 20))
    assert [s.row_groups for s in next_epoch] != [s.row_groups for s in first]
    assert [s.row_groups for s in other_seed] != [s.row_groups for s in first]


def test_row_order_of_each_epoch_is_random():
    plan = BatchPlan(lengths=np.full(1000, 7), batch_tokens=70, packed_length=None, seed=5)
    for epoch in range(3):
        order = plan.row_order(epoch)
        assert sorted(order) == list(range(1000))
        for other in (np.arange(1000), plan.row_order(epoch + 1)):
            assert abs(np.corrcoef(order, other)[0, 1]) < 0.15  # five standard deviations


def test_batches_group_similar_lengths_in_random_order():
    sizes = np.random.default_rng(0).integers(3, 512, 20_000)
    plan = BatchPlan(lengths=sizes, batch_tokens=8192)
    steps = list(
        itertools.takewhile(lambda s: s.cursor.epoch == 0, plan.global_batches(DataCursor()))
    )
    longest = [max(sizes[g[0]] for g in s.row_groups) for s in steps]
    padded = sum(w * len(s.row_groups) for w, s in zip(longest, steps, strict=True))
    assert sizes.sum() / padded > 0.97
    assert 0.93 < sizes.sum() / 8192 / len(steps) <= 1
    assert 50 < len(steps) / plan.n_windows < 80
    assert abs(np.corrcoef(np.arange(len(longest)), longest)[0, 1]) < 0.1


def test_packed_rows_are_nearly_full():
    sizes = np.random.default_rng(0).integers(3, 200, 10_000)
    plan = BatchPlan(lengths=sizes, batch_tokens=8192, packed_length=512)
    steps = list(
        itertools.takewhile(lambda s: s.cursor.epoch == 0, plan.global_batches(DataCursor()))
    )
    assert sizes.sum() / (512 * sum(len(s.row_groups) for s in steps)) > 0.97


@given(SIZES, st.integers(1, 300))
def test_balanced_splits_are_fewest_and_most_even(sizes, limit):
    rows = np.sort(np.array(sizes))[::-1]

    def greedy(limit: int) -> int:
        n = end = 0
        while end < len(rows):
            end += max(1, limit // rows[end])
            n += 1
        return n

    ends = balanced_splits(rows, limit)
    parts = np.split(rows, ends[:-1])
    assert ends[-1] == len(rows)
    assert all(len(p) == 1 or len(p) * p[0] <= limit for p in parts)
    assert len(parts) == greedy(limit)
    largest = max((len(p) * p[0] for p in parts if len(p) > 1), default=0)
    assert largest == 0 or greedy(int(largest) - 1) > len(parts)


def test_last_batch_of_a_window_is_not_a_single_row():
    assert balanced_splits(np.full(9, 10), 80) == [5, 9]
    assert balanced_splits(np.array([500, 10, 10]), 100) == [1, 3]


@pytest.mark.parametrize(
    "cursor", [DataCursor(0, 1, 0), DataCursor(0, 0, 999), DataCursor(-1), DataCursor(0, -1)]
)
def test_cursor_of_other_data_is_refused(cursor):
    plan = BatchPlan(lengths=np.full(10, 5), batch_tokens=20)
    with pytest.raises(ValueError, match="no batch at DataCursor"):
        next(plan.global_batches(cursor))


def test_cursor_round_trips_as_plain_data():
    assert from_dict(DataCursor, to_dict(DataCursor(3, 2, 1))) == DataCursor(3, 2, 1)


def test_row_longer_than_batch_is_a_batch_of_one():
    plan = BatchPlan(lengths=np.full(300, 512), batch_tokens=1)
    steps = list(itertools.islice(plan.global_batches(DataCursor()), 300))
    assert all(len(s.row_groups) == 1 for s in steps)
    assert steps[-1].next_cursor == DataCursor(1)


# ---- the loader


@pytest.mark.sample(2)
@pytest.mark.trials("data and workers")
@pytest.mark.parametrize(
    ("objective", "special", "strategy"),
    [
        (published.BERT, BERT, "bucket"),
        (published.MASKED_LM, BERT, "pack"),
        (published.T5, T5, "pack"),
        (published.CAUSAL_LM, GPT, "bucket"),
    ],
)
def test_batches_are_equal_for_0_1_or_3_workers(objective, special, strategy):
    loader = make(
        objective=objective, special_ids=special, strategy=strategy, micro_batch_tokens=70
    )
    expected = stream(loader, 12)
    for n_workers in (1, 3):
        assert stream(replace(loader, n_workers=n_workers), 12) == expected


@pytest.mark.trials("data and workers")
@settings(max_examples=10)
@given(st.integers(0, 60), SEEDS, st.sampled_from(["bucket", "pack"]))
def test_resuming_at_any_cursor_equals_uninterrupted(n, seed, strategy):
    loader = make(seed=seed, strategy=strategy, row_spans=rows_of(1500))
    whole = stream(loader, n + 5)
    cursor = whole[n - 1][1] if n else DataCursor()
    resumed = replace(loader, start_cursor=from_dict(DataCursor, to_dict(cursor)))
    assert stream(resumed, 5) == whole[n:]


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("strategy", ["bucket", "pack"])
def test_processes_share_the_same_global_batch(world, strategy):
    alone = make(strategy=strategy)
    shared = [replace(alone, rank=r, world_size=world) for r in range(world)]
    for one, *others in itertools.islice(zip(alone, *shared, strict=True), 20):
        together = [batch for micro, _ in others for batch in micro]
        assert {cursor for _, cursor in others} == {one[1]}
        if strategy == "bucket":
            assert texts_in(together) == texts_in(one[0])
        else:
            rows = [tuple(row) for batch in together for row in batch.inputs.tolist()]
            assert sorted(rows) == sorted(tuple(r) for b in one[0] for r in b.inputs.tolist())


def test_process_without_rows_still_takes_the_step():
    shared = [make(batch_tokens=1, rank=r, world_size=2) for r in range(2)]
    for (one, a), (none, b) in itertools.islice(zip(*shared, strict=True), 5):
        assert [len(batch.inputs) for batch in one] == [1]
        assert none == []
        assert a == b


@pytest.mark.parametrize("strategy", ["bucket", "pack"])
def test_micro_batches_partition_the_batch(strategy):
    whole = make(strategy=strategy)
    cut = replace(whole, micro_batch_tokens=40)
    for (one, a), (some, b) in itertools.islice(zip(whole, cut, strict=True), 20):
        assert a == b
        assert all(batch.inputs.numel() <= 40 or len(batch.inputs) == 1 for batch in some)
        assert texts_in(some) == texts_in(one)


def test_example_depends_on_row_and_epoch_only():
    def examples(**changes: object) -> list:
        return texts_in([b for micro, _ in make(max_epochs=1, **changes) for b in micro])

    assert examples() == examples(batch_tokens=999) == examples(micro_batch_tokens=33)
    assert examples() != examples(seed=4)


def epoch_of(loader: BatchLoader, epoch: int) -> list:
    started = replace(loader, start_cursor=DataCursor(epoch), max_epochs=epoch + 1)
    return texts_in([b for micro, _ in started for b in micro])


def test_masking_changes_each_epoch():
    loader = make()
    assert epoch_of(loader, 0) != epoch_of(loader, 1)


@pytest.mark.thorough
def test_static_masking_repeats_its_masks():
    loader = make(objective=StaticMasking(published.MASKED_LM, 2))
    assert epoch_of(loader, 0) == epoch_of(make(), 0)
    assert epoch_of(loader, 0) == epoch_of(loader, 2) != epoch_of(loader, 1)
    assert epoch_of(loader, 1) == epoch_of(loader, 3)


FALLING = Objective(ScheduledRate(0.9, TokenMasking(0.1)), published.MASKED_LM.corrupt)


def share_asked(micro: list) -> float:
    is_target = sum(int((batch.targets != IGNORE_INDEX).sum()) for batch in micro)
    return is_target / sum(batch.inputs.numel() for batch in micro)


def test_scheduled_masking_rate_follows_training_steps():
    rows = np.stack((np.arange(0, 2970, 30), np.arange(30, 3000, 30)), 1)
    loader = make(objective=FALLING, row_spans=rows, batch_tokens=1024, total_steps=20)
    shares = [share_asked(micro) for micro, _ in itertools.islice(loader, 30)]
    line = [max(0.9 - 0.8 * step / 20, 0.1) for step in range(30)]
    assert np.abs(np.array(shares) - line).max() < 0.02
    for micro, _ in itertools.islice(replace(loader, total_steps=None), 5):
        assert abs(share_asked(micro) - 0.1) < 0.02


def test_scheduled_masking_rate_resumes_also_in_workers():
    loader = make(objective=FALLING, total_steps=20)
    whole = stream(loader, 15)
    cursor = from_dict(DataCursor, to_dict(whole[8][1]))
    assert stream(replace(loader, start_cursor=cursor), 6) == whole[9:]
    assert stream(replace(loader, n_workers=2), 15) == whole
    assert [cursor.n_batches for _, cursor in whole] == list(range(1, 16))


def test_epoch_ends_after_its_last_batch():
    loader = make(max_epochs=2)
    cursors = [cursor for _, cursor in loader]
    assert cursors[-1] == DataCursor(2)
    assert [c for c in cursors[:-1] if c.epoch >= 2] == []
    assert list(replace(loader, start_cursor=DataCursor(2))) == []


def test_padding_is_small_and_batch_size_near_target():
    loader = make(
        row_spans=rows_of(30_000, 3, 30),
        token_source=InMemory(30_000),
        batch_tokens=512,
        max_epochs=1,
    )
    batches = [b for micro, _ in loader for b in micro]
    sizes = [b.inputs.numel() for b in batches]
    real = sum(len(t) for t, _ in texts_in(batches))
    assert max(sizes) <= 512
    assert min(sizes) > 400
    assert real / sum(sizes) > 0.95


def test_packed_batches_are_full_rows():
    for micro, _ in itertools.islice(make(strategy="pack"), 20):
        assert all(batch.inputs.shape[1] == 32 for batch in micro)


def test_other_text_is_of_another_document():
    rows = np.stack((np.arange(10), np.arange(1, 11)), 1)
    documents = np.array([0, 0, 0, 1, 2, 2, 2, 2, 3, 3])
    for row in range(10):
        rng = np.random.default_rng(0)
        drawn = [draw_other_row(row, rows, documents, rng)[0] for _ in range(600)]
        allowed = np.flatnonzero(documents != documents[row])
        counts = np.bincount(drawn, minlength=10)
        assert set(drawn) == set(allowed.tolist())
        assert counts[allowed].min() > 0.6 * 600 / len(allowed)


def test_other_text_of_a_single_document_is_another_row():
    rows = np.stack((np.arange(4), np.arange(1, 5)), 1)
    rng = np.random.default_rng(0)
    drawn = {draw_other_row(2, rows, np.zeros(4, np.int64), rng) for _ in range(100)}
    assert drawn == {(0, 1), (1, 2), (3, 4)}
    assert {draw_other_row(2, rows, None, rng) for _ in range(100)} == drawn
    assert draw_other_row(0, rows[:1], np.zeros(1, np.int64), rng) is None


def test_rows_are_numbered_by_document():
    documents = np.array([[0, 10], [10, 12], [12, 30]])
    rows = np.array([[0, 8], [8, 10], [10, 12], [12, 20], [20, 28], [28, 30]])
    assert document_of_rows(rows, documents).tolist() == [0, 0, 1, 2, 2, 2]


def test_sentence_pairs_are_of_two_documents():
    rows = np.array([[0, 40], [40, 80], [80, 120]])
    texts = InMemory(120)
    loader = make(
        objective=published.BERT, row_spans=rows, token_source=texts, max_length=64,
        batch_tokens=300, document_of_row=np.array([0, 0, 1]),
    )  # fmt: skip
    labels = [micro[0].labels for micro, _ in itertools.islice(loader, 60)]
    is_target = [label for label in torch.cat(labels).tolist() if label != IGNORE_INDEX]
    assert 0.35 < np.mean(is_target) < 0.65
    lonely = replace(loader, row_spans=rows[:1], document_of_row=None)
    assert {int(m[0].labels[0]) for m, _ in itertools.islice(lonely, 20)} <= {0, IGNORE_INDEX}


# ---- processes


def test_worker_error_is_raised_unchanged():
    here = make(token_source=Damaged(3000))
    for loader in (here, replace(here, n_workers=2)):
        with pytest.raises(ValueError, match="its checksum is not the one") as error:
            list(itertools.islice(loader, 200))
        assert str(error.value) == "00003.tokens: its checksum is not the one recorded"


def test_worker_bug_is_raised_with_traceback():
    with pytest.raises(ZeroDivisionError, match="worker process 0"):
        next(iter(make(token_source=Buggy(3000), n_workers=1)))


@pytest.mark.thorough
def test_workers_leave_global_generator_unchanged():
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    stream(make(n_workers=1), 2)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.thorough
def test_workers_end_with_the_iteration():
    import multiprocessing

    before = set(multiprocessing.active_children())  # another test's may be about to end
    iterator = iter(make(n_workers=2))
    next(iterator)
    mine = set(multiprocessing.active_children()) - before
    assert len(mine) == 2
    iterator.close()
    for worker in mine:
        worker.join(20)
        assert not worker.is_alive()


def ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


@pytest.mark.trials("data and workers")
@pytest.mark.thorough
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to look at processes")
def test_workers_do_not_rerun_the_script_and_end_when_it_is_killed():
    folder = Path(__file__).parent
    paths = (folder.parent.parent, folder.parent / "objectives")
    process = subprocess.Popen(
        [sys.executable, folder / "trains_without_a_guard.py"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "OMP_NUM_THREADS": "2"},
    )  # fmt: skip
    assert process.stdout is not None
    workers = [int(pid) for pid in process.stdout.readline().split()]
    assert len(workers) == 2
    assert not any(ended(pid) for pid in workers)
    process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while not all(ended(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert all(ended(pid) for pid in workers)
    out, _ = process.communicate()
    assert out == ""


def children(loader: BatchLoader, after: int, act) -> list:
    """Take some steps of a loader with workers, do something to these, and take the others."""
    before = set(multiprocessing.active_children())
    made = itertools.islice(loader, 12)
    some = list(itertools.islice(made, after))
    act([p for p in multiprocessing.active_children() if p not in before])
    return [([values(b) for b in micro], cursor) for micro, cursor in [*some, *made]]


@pytest.mark.trials("data and workers")
@pytest.mark.thorough
def test_killed_worker_is_replaced_and_batches_are_equal(caplog):
    def kill(workers):
        os.kill(workers[0].pid, signal.SIGKILL)

    assert children(make(n_workers=2), 3, kill) == stream(make(), 12)
    assert "the run goes on with new ones" in caplog.text


@pytest.mark.trials("data and workers")
def test_repeatedly_lost_workers_are_reported_in_one_line(monkeypatch):
    def lost(*_: object):
        yield from ()
        raise RuntimeError("DataLoader worker (pid(s) 1) exited unexpectedly")

    class Results:
        _workers = ()

        def __iter__(self):
            return lost()

    monkeypatch.setattr(workers, "_start_workers", lambda *_: Results())
    with pytest.raises(ChildProcessError, match="ended 3 times before their work was done"):
        list(make(n_workers=1))


@pytest.mark.thorough
@pytest.mark.skipif(workers._START_METHOD != "forkserver", reason="has no fork server")
def test_process_ends_with_its_fork_server_stopped(monkeypatch):
    from multiprocessing import forkserver

    monkeypatch.setattr(workers, "_WORKER_EXIT_SECONDS", 1.0)

    def stop(_):
        os.kill(forkserver._forkserver._forkserver_pid, signal.SIGSTOP)

    before = set(multiprocessing.active_children())
    children(make(n_workers=1), 1, stop)
    assert (
        set(multiprocessing.active_children()) <= before
    )  # else it would be waited for at the end
    assert stream(make(n_workers=1), 3) == stream(make(), 3)


def test_workers_are_not_forked_from_a_threaded_process():
    assert workers._START_METHOD != "fork"


# ---- mistakes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_length": 0}, "max_length must be at least 1, got 0"),
        ({"batch_tokens": 0}, "batch_tokens must be at least 1, got 0"),
        ({"micro_batch_tokens": 0}, "micro_batch_tokens must be at least 1, got 0"),
        ({"n_workers": -1}, "n_workers must be at least 0, got -1"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"world_size": 2, "rank": 2}, "rank must be between 0 and 1, got 2"),
        ({"max_epochs": 0}, "max_epochs must be at least 1, got 0"),
        ({"row_spans": np.empty((0, 2), np.int64)}, "there are no rows"),
        ({"row_spans": np.array([[0, 3], [3, 3]])}, "row 1 has no tokens"),
        ({"max_length": 20}, r"row \d+ has 29 tokens; at most 18 fit an example of 20"),
        ({"objective": published.BERT, "max_length": 64, "strategy": "pack"}, "cannot be packed"),
        ({"document_of_row": np.arange(189)[::-1]}, "in ascending order"),
    ],
)
def test_invalid_loader_settings_are_refused_in_one_line(changes, message):
    with pytest.raises(ValueError, match=message) as error:
        make(**changes)
    assert "\n" not in str(error.value)
