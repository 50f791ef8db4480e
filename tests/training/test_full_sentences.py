"""What a run reads where rows are of several documents: `row_unit = "corpus"`."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from toy_text import corpus

from unmask.batch import IGNORE_INDEX
from unmask.batching.plan import DataCursor
from unmask.jobs.corpus.prepare import prepare
from unmask.objectives import published
from unmask.objectives.mixtures import ObjectiveMixture, StaticMasking
from unmask.objectives.published import ObjectiveSpec
from unmask.objectives.sentence_pairs.pairs import SentencePairObjective, SplitTextObjective
from unmask.objectives.sentence_pairs.tasks import SentenceOrderPrediction
from unmask.shards.read import TokenShards
from unmask.training.config import Recipe
from unmask.training.data.texts import CorpusRows, TrainingData, build_training_data, source_of_rows
from unmask.zoo.catalogue import MODELS

LENGTH = 100
RECIPE = Recipe(model="roberta-mini", row_unit="corpus", dev_fraction=0.2, batch_tokens=400)
OF_ONE_TEXT: dict[str, ObjectiveSpec] = {
    name: getattr(value, "objective", value) if isinstance(value, SentencePairObjective) else value
    for name, value in vars(published).items()
    if isinstance(value, ObjectiveSpec)
    and {"masked", "characters"} & {*value.loss_terms}
    and not isinstance(value, ObjectiveMixture)
} | {"STATIC": StaticMasking(published.MASKED_LM, 2)}
"""Objectives that hide in place, those of pairs without their question."""


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> TokenShards:
    return prepare_shards(tmp_path_factory.mktemp("text"), "roberta-mini", {"text.txt": 60})


def prepare_shards(folder: Path, model: str, files: dict[str, int]) -> TokenShards:
    for name, n_documents in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(corpus(n_documents, seed=n_documents))
    named = [folder / name for name in files]
    prepare(named, out=folder / "data", model=model, vocab_size=320, quiet=True)
    return TokenShards.open(folder / "data")


def read(part: CorpusRows, end: int) -> list[int]:
    """What all rows have, one after the other, without separators."""
    ids = [part.token_source.read_tokens(a, b).ids for a, b in part.row_spans.tolist()]
    return [x for x in np.concatenate(ids).tolist() if x != end]


def documents_read(part: CorpusRows) -> set[int]:
    positions = np.concatenate([np.arange(a, b) for a, b in part.row_spans])
    return set(part.token_source.document_of(positions).tolist())


def test_rows_cover_all_text_once_and_split_train_from_held_out(shards: TokenShards) -> None:
    data = build_training_data(shards, RECIPE, published.MASKED_LM, LENGTH)
    end = shards.tokenizer.special_ids.end
    assert end is not None
    assert documents_read(data.train_rows).isdisjoint(documents_read(data.dev_rows))
    for part, spans in (
        (data.train_rows, shards.split_held_out(0.2, RECIPE.seed)[0]),
        (data.dev_rows, shards.split_held_out(0.2, RECIPE.seed)[1]),
    ):
        assert read(part, end) == [
            x for a, b in spans for x in shards.read_tokens(a, b).ids.tolist()
        ]
        assert part.row_lengths.max() <= LENGTH - 2
        apart = [
            (part.token_source.read_tokens(a, b).ids == end).sum()
            for a, b in part.row_spans.tolist()
        ]
        assert sum(apart) > len(spans) // 3, "most documents end within a row"


@pytest.mark.parametrize("name", OF_ONE_TEXT)
def test_separators_are_inputs_but_never_masked(name: str, shards: TokenShards) -> None:
    data = build_training_data(shards, RECIPE, OF_ONE_TEXT[name], LENGTH)
    special, beside = shards.tokenizer.special_ids, set[int]()
    texts = (
        data.train_rows.token_source.read_tokens(a, b)
        for a, b in data.train_rows.row_spans.tolist()
    )
    with_some = (text for text in texts if (text.ids == special.end).any())
    for i, text in enumerate(itertools.islice(with_some, 20)):
        between = len(special.prefix) + np.flatnonzero(text.ids == special.end)
        for seed in range(5):
            example = data.objective(text, special, np.random.default_rng([i, seed]))
            assert len(example.inputs) <= LENGTH
            assert (example.inputs[between] == special.end).all()
            assert (example.targets[between] == IGNORE_INDEX).all()
            beside |= {
                at for at in (-1, 1) if (example.targets[between + at] != IGNORE_INDEX).any()
            }
    assert beside == {-1, 1}, "what is beside them is hidden"


def test_whole_row_attends_to_itself(shards: TokenShards) -> None:
    data = build_training_data(shards, RECIPE, published.MASKED_LM, LENGTH)
    special, several = shards.tokenizer.special_ids, 0
    for micro, _ in itertools.islice(data.make_loader(data.train_rows, DataCursor()), 20):
        for batch in micro:
            several += int((batch.inputs == special.end).sum(1).gt(1).sum())
            if batch.visibility.document is not None:
                assert set(batch.visibility.document[batch.is_token()].tolist()) == {0}
            assert batch.position_ids is None
    assert several > 10


def batches(data: TrainingData, n: int, cursor: Any = None) -> list[Any]:
    return [
        ([(b.inputs.tolist(), None if b.targets is None else b.targets.tolist()) for b in micro], c)
        for micro, c in itertools.islice(data.batches(cursor), n)
    ]


@pytest.mark.thorough
@pytest.mark.parametrize(("packing", "workers"), [("bucket", 1), ("pack", 0)])
def test_batches_are_equal_for_any_workers_and_after_resuming(
    packing: Literal["bucket", "pack"], workers: int, shards: TokenShards
) -> None:
    recipe = replace(RECIPE, packing=packing)
    data = build_training_data(shards, recipe, published.MASKED_LM, LENGTH)
    whole = batches(data, 30)
    assert batches(replace(data, n_workers=workers), 8) == whole[:8]
    assert batches(data, 10, whole[19][1]) == whole[20:]
    assert (
        batches(
            build_training_data(shards, replace(recipe, seed=1), published.MASKED_LM, LENGTH), 8
        )
        != (whole[:8])
    )


def test_rows_do_not_cross_sources(tmp_path: Path) -> None:
    shards = prepare_shards(tmp_path, "roberta-mini", {"en/a.txt": 40, "fr/a.txt": 8})
    recipe = replace(RECIPE, sampling_exponent=0.3)
    data = build_training_data(shards, recipe, published.MASKED_LM, LENGTH)
    assert shards.sources_of_documents is not None
    for part in (data.train_rows, data.dev_rows):
        last = part.token_source.document_of(part.row_spans[:, 1] - 1)
        assert (shards.sources_of_documents[1][last] == source_of_rows(shards, part)).all()
        assert (last > part.document_of_row).any()
    plan = data.make_loader(data.train_rows, DataCursor(), sample_sources=True).plan
    rows = plan.row_order(0) % len(data.train_rows.row_spans)
    got = np.bincount(
        source_of_rows(shards, data.train_rows)[rows], data.train_rows.row_lengths[rows]
    )
    assert got / got.sum() == pytest.approx(
        [share.sampling_share for share in data.source_shares], abs=0.05
    )
    assert set(source_of_rows(shards, data.dev_rows).tolist()) == {0, 1}


@pytest.mark.parametrize("model", ["gpt2-mini", "t5-mini"])
def test_no_separator_is_added_where_documents_end_or_are_joined(
    model: str, tmp_path: Path
) -> None:
    shards = prepare_shards(tmp_path, model, {"text.txt": 20})
    objective = MODELS[model].objective
    data = build_training_data(shards, replace(RECIPE, model=model), objective, LENGTH)
    ids = [
        data.train_rows.token_source.read_tokens(a, b).ids
        for a, b in data.train_rows.row_spans.tolist()
    ]
    spans = shards.split_held_out(0.2, RECIPE.seed)[0]
    np.testing.assert_array_equal(
        np.concatenate(ids), np.concatenate([shards.read_tokens(a, b).ids for a, b in spans])
    )
    for micro, _ in itertools.islice(data.make_loader(data.train_rows, DataCursor()), 10):
        for batch in micro:
            read = batch.inputs if batch.source is None else batch.source
            assert read.shape[1] <= LENGTH


@pytest.mark.parametrize(
    ("objective", "asks"),
    [
        (published.BERT, "next_sentence"),
        (published.ALBERT, "sentence_order"),
        (SplitTextObjective(published.MASKED_LM), "neighbor"),
        (
            StaticMasking(SentencePairObjective(published.MASKED_LM, SentenceOrderPrediction())),
            "sentence_order",
        ),
        (ObjectiveMixture(((0.5, published.MASKED_LM), (0.5, published.BERT))), "next_sentence"),
    ],
)
def test_document_level_objectives_refuse_joined_rows(
    objective: ObjectiveSpec, asks: str, shards: TokenShards
) -> None:
    with pytest.raises(
        ValueError, match=rf"^row_unit = corpus: .*{asks} is asked about one"
    ) as error:
        build_training_data(shards, RECIPE, objective, LENGTH)
    assert "\n" not in str(error.value)
    build_training_data(shards, replace(RECIPE, row_unit="document"), objective, LENGTH)
