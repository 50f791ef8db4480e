"""Runs whose documents are joined in another order in each epoch: `reshuffle_documents`."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_text import corpus

from unmask.batching.plan import DataCursor
from unmask.jobs.corpus.prepare import prepare
from unmask.objectives import published
from unmask.objectives.mixtures import StaticMasking
from unmask.objectives.published import ObjectiveSpec
from unmask.shards.read import TokenShards
from unmask.shards.reshuffled import EPOCH_PLACES
from unmask.training.config import Recipe
from unmask.training.data.texts import TrainingData, build_training_data
from unmask.zoo.catalogue import MODELS

LENGTH = 100
RECIPE = Recipe(
    model="roberta-mini", row_unit="corpus", dev_fraction=0.2, batch_tokens=400,
    reshuffle_documents=True,
)  # fmt: skip
STREAM = replace(RECIPE, row_unit="stream")


def prepare_shards(folder: Path, model: str, files: dict[str, int]) -> TokenShards:
    for name, n_documents in files.items():
        (folder / name).write_text(corpus(n_documents, seed=n_documents))
    named = [folder / name for name in files]
    prepare(named, out=folder / "data", model=model, vocab_size=320, quiet=True)
    return TokenShards.open(folder / "data")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> TokenShards:
    return prepare_shards(tmp_path_factory.mktemp("one"), "roberta-mini", {"text.txt": 60})


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> TokenShards:
    files = {"a.txt": 60, "b.txt": 120, "c.txt": 9}
    return prepare_shards(tmp_path_factory.mktemp("three"), "roberta-mini", files)


def make(
    shards: TokenShards, recipe: Recipe = RECIPE, objective: ObjectiveSpec = published.MASKED_LM
) -> TrainingData:
    return build_training_data(shards, recipe, objective, LENGTH)


def epochs_read(data: TrainingData, n: int) -> list[list[np.ndarray]]:
    """The texts of the rows of each of the first epochs, in the order of their places."""
    loader = data._training_loader(DataCursor())
    found: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    for task in loader._worker_tasks():
        if task.next_cursor.epoch > n:
            break
        for groups in task.micro_batches:
            for epoch, _, start, end, _ in itertools.chain.from_iterable(groups):
                if epoch < n:
                    found[epoch].append((start, end))
    read = loader.token_source.read_tokens
    return [[read(a, b).ids for a, b in sorted(rows)] for rows in found]


@pytest.mark.parametrize("recipe", [RECIPE, STREAM], ids=["corpus", "stream"])
def test_each_epoch_reads_every_document_once_beside_others(
    recipe: Recipe, shards: TokenShards
) -> None:
    data = make(shards, recipe)
    end = shards.tokenizer.special_ids.end
    plain = data.train_rows
    ids = [plain.token_source.read_tokens(a, b).ids for a, b in plain.row_spans.tolist()]
    end = shards.tokenizer.special_ids.end
    for rows in epochs_read(data, 3):
        read = np.concatenate(rows)
        if recipe.row_unit == "corpus":  # of a stream, what is left at the end is not read
            expected = np.sort(np.concatenate(ids))
            np.testing.assert_array_equal(np.sort(read[read != end]), expected[expected != end])
        assert abs(len(read) - sum(map(len, ids))) <= LENGTH + len(data.train_spans)
    assert data.epoch_rows is not None
    orders = [data.epoch_rows.documents.epoch(e).document_spans[:, 0].tolist() for e in range(3)]
    assert {tuple(sorted(order)) for order in orders} == {tuple(data.train_spans[:, 0].tolist())}
    neighbors = [{*itertools.pairwise(order)} for order in orders]
    for one, other in itertools.combinations(neighbors, 2):
        assert len(one & other) < len(one) // 4


def batches(data: TrainingData, n: int, after: Any = None) -> list[Any]:
    found = itertools.islice(data.batches(after), n)
    return [([b.inputs.tolist() for b in micro], following) for micro, following in found]


@pytest.mark.parametrize(
    ("recipe", "workers"),
    [(RECIPE, 1), (replace(RECIPE, packing="pack"), 0), (STREAM, 1),
     (replace(STREAM, sequence_length_jitter=0.1), 0)],
)  # fmt: skip
def test_batches_are_those_of_any_workers_and_after_resuming(
    recipe: Recipe, workers: int, shards: TokenShards
) -> None:
    data = make(shards, recipe)
    whole = batches(data, 60)
    assert whole[-1][1]["epoch"] >= 1
    if workers:
        assert batches(replace(data, n_workers=workers), 30) == whole[:30]
    for done in (5, 25, 41):
        assert batches(make(shards, recipe), 5, whole[done - 1][1]) == whole[done : done + 5]
    assert batches(make(shards, replace(recipe, seed=1)), 5) != whole[:5]
    two = [batches(replace(data, rank=rank, world_size=2), 30) for rank in (0, 1)]
    for step, ((both, cursor), *parts) in enumerate(zip(whole[:30], *two, strict=True)):
        assert {c["epoch"] for _, c in parts} == {cursor["epoch"]}, step
        rows = sum(len(b) for b in both)
        assert sum(len(b) for micro, _ in parts for b in micro) == rows


def test_default_keeps_the_order(shards: TokenShards) -> None:
    data = make(shards, replace(RECIPE, reshuffle_documents=False))
    assert data.epoch_rows is None
    assert data._training_loader(DataCursor()).row_spans.max() < EPOCH_PLACES


def test_second_segments_are_of_the_same_epoch(tmp_path: Path) -> None:
    shards = prepare_shards(tmp_path, "xlnet-mini", {"text.txt": 40})
    recipe = replace(STREAM, model="xlnet-mini", bidirectional_data=True)
    data = build_training_data(shards, recipe, MODELS["xlnet-mini"].objective, 32)
    whole = batches(data, 60)
    assert whole[-1][1]["epoch"] >= 1
    assert batches(data, 5, whole[40][1]) == whole[41:46]


def test_weighted_sources_are_reshuffled_in_their_shares(sources: TokenShards) -> None:
    weights = {"a": 2.0, "b": 5.0, "c": 3.0}
    recipe = replace(RECIPE, source_weights=weights, dev_fraction=0.05, steps=240)
    data = make(sources, recipe)
    loader, tokens, starts = data._training_loader(DataCursor()), np.zeros(3), set[int]()
    assert sources.sources_of_documents is not None
    for task in itertools.islice(loader._worker_tasks(), 240):
        for groups in task.micro_batches:
            for epoch, _, start, end, _ in itertools.chain.from_iterable(groups):
                text = data.epoch_rows.documents.epoch(epoch)  # pyright: ignore
                number = text.document_of(np.array([start % EPOCH_PLACES]))
                tokens[sources.sources_of_documents[1][number]] += end - start
                starts.add(start)
    assert tokens / tokens.sum() == pytest.approx([0.2, 0.5, 0.3], abs=0.01)
    assert data.source_epochs()[data.source_shares[2].name] > 10
    assert len(starts) == len({*starts}), "no row twice"
    whole = batches(data, 40)
    assert batches(data, 5, whole[29][1]) == whole[30:35]


@pytest.mark.parametrize(
    ("changes", "objective", "message"),
    [
        ({"row_unit": "document"}, published.MASKED_LM, "row_unit must be 'corpus' or 'stream'"),
        ({}, StaticMasking(published.MASKED_LM, 2), "hides the same tokens of a row in later"),
    ],
)
def test_what_cannot_be_reshuffled_is_one_line(
    changes: dict[str, Any], objective: ObjectiveSpec, message: str, shards: TokenShards
) -> None:
    with pytest.raises(ValueError, match=f"^reshuffle_documents: .*{message}") as error:
        make(shards, replace(RECIPE, **changes), objective)
    assert "\n" not in str(error.value)
