"""What a run reads where rows are of several documents: `unit = "corpus"`."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from toy_text import corpus

from unmask.batch import IGNORE
from unmask.hiding import objectives
from unmask.hiding.beside import Apart, Pair
from unmask.hiding.loader import Cursor
from unmask.hiding.mixture import Mixture, Static
from unmask.hiding.objectives import Objective
from unmask.hiding.questions import SentenceOrder
from unmask.published.catalogue import MODELS
from unmask.serving.prepare import prepare
from unmask.tokens.shards import Shards
from unmask.training.data import Data, Part, lay_out, sources_of
from unmask.training.recipe import Recipe

LENGTH = 100
RECIPE = Recipe(model="roberta-mini", unit="corpus", dev=0.2, batch_tokens=400)
OF_ONE_TEXT: dict[str, Objective] = {
    name: getattr(value, "objective", value) if isinstance(value, Pair) else value
    for name, value in vars(objectives).items()
    if isinstance(value, Objective)
    and {"masked", "characters"} & {*value.asks}
    and not isinstance(value, Mixture)
} | {"STATIC": Static(objectives.MASKED, 2)}
"""Objectives that hide in place, those of pairs without their question."""


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    return made(tmp_path_factory.mktemp("text"), "roberta-mini", {"text.txt": 60})


def made(folder: Path, model: str, files: dict[str, int]) -> Shards:
    for name, n_documents in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(corpus(n_documents, seed=n_documents))
    named = [folder / name for name in files]
    prepare(named, out=folder / "data", model=model, vocab_size=320, quiet=True)
    return Shards.open(folder / "data")


def read(part: Part, end: int) -> list[int]:
    """What all rows have, one after the other, without separators."""
    ids = [part.texts.text(a, b).ids for a, b in part.rows.tolist()]
    return [x for x in np.concatenate(ids).tolist() if x != end]


def documents_read(part: Part) -> set[int]:
    places = np.concatenate([np.arange(a, b) for a, b in part.rows])
    return set(part.texts.document_of(places).tolist())


def test_rows_have_all_text_once_and_training_and_held_out_text_apart(shards: Shards) -> None:
    data = lay_out(shards, RECIPE, objectives.MASKED, LENGTH)
    end = shards.tokenizer.special.end
    assert end is not None
    assert documents_read(data.train).isdisjoint(documents_read(data.dev))
    for part, spans in (
        (data.train, shards.held_out(0.2, RECIPE.seed)[0]),
        (data.dev, shards.held_out(0.2, RECIPE.seed)[1]),
    ):
        assert read(part, end) == [x for a, b in spans for x in shards.text(a, b).ids.tolist()]
        assert part.sizes.max() <= LENGTH - 2
        apart = [(part.texts.text(a, b).ids == end).sum() for a, b in part.rows.tolist()]
        assert sum(apart) > len(spans) // 3, "most documents end within a row"


@pytest.mark.parametrize("name", OF_ONE_TEXT)
def test_separators_are_read_and_never_hidden_nor_asked(name: str, shards: Shards) -> None:
    data = lay_out(shards, RECIPE, OF_ONE_TEXT[name], LENGTH)
    special, beside = shards.tokenizer.special, set[int]()
    texts = (data.train.texts.text(a, b) for a, b in data.train.rows.tolist())
    with_some = (text for text in texts if (text.ids == special.end).any())
    for i, text in enumerate(itertools.islice(with_some, 20)):
        between = len(special.before) + np.flatnonzero(text.ids == special.end)
        for seed in range(5):
            example = data.objective(text, special, np.random.default_rng([i, seed]))
            assert len(example.inputs) <= LENGTH
            assert (example.inputs[between] == special.end).all()
            assert (example.targets[between] == IGNORE).all()
            beside |= {at for at in (-1, 1) if (example.targets[between + at] != IGNORE).any()}
    assert beside == {-1, 1}, "what is beside them is hidden"


def test_all_of_a_row_sees_all_of_it(shards: Shards) -> None:
    data = lay_out(shards, RECIPE, objectives.MASKED, LENGTH)
    special, several = shards.tokenizer.special, 0
    for micro, _ in itertools.islice(data.loader(data.train, Cursor()), 20):
        for batch in micro:
            several += int((batch.inputs == special.end).sum(1).gt(1).sum())
            if batch.visibility.document is not None:
                assert set(batch.visibility.document[batch.read()].tolist()) == {0}
            assert batch.place is None
    assert several > 10


def batches(data: Data, n: int, cursor: Any = None) -> list[Any]:
    return [
        ([(b.inputs.tolist(), None if b.targets is None else b.targets.tolist()) for b in micro], c)
        for micro, c in itertools.islice(data.batches(cursor), n)
    ]


@pytest.mark.parametrize(("packing", "workers"), [("bucket", 1), ("pack", 0)])
def test_batches_are_the_same_for_any_workers_and_after_resuming(
    packing: Literal["bucket", "pack"], workers: int, shards: Shards
) -> None:
    recipe = replace(RECIPE, packing=packing)
    data = lay_out(shards, recipe, objectives.MASKED, LENGTH)
    whole = batches(data, 30)
    assert batches(replace(data, workers=workers), 8) == whole[:8]
    assert batches(data, 10, whole[19][1]) == whole[20:]
    assert (
        batches(lay_out(shards, replace(recipe, seed=1), objectives.MASKED, LENGTH), 8)
        != (whole[:8])
    )


def test_rows_do_not_go_from_one_source_to_another(tmp_path: Path) -> None:
    shards = made(tmp_path, "roberta-mini", {"en/a.txt": 40, "fr/a.txt": 8})
    recipe = replace(RECIPE, sampling=0.3)
    data = lay_out(shards, recipe, objectives.MASKED, LENGTH)
    assert shards.sources is not None
    for part in (data.train, data.dev):
        last = part.texts.document_of(part.rows[:, 1] - 1)
        assert (shards.sources[1][last] == sources_of(shards, part)).all()
        assert (last > part.documents).any()
    plan = data.loader(data.train, Cursor(), sampled=True).plan
    rows = plan.order(0) % len(data.train.rows)
    got = np.bincount(sources_of(shards, data.train)[rows], data.train.sizes[rows])
    assert got / got.sum() == pytest.approx([share.gets for share in data.shares], abs=0.05)
    assert set(sources_of(shards, data.dev).tolist()) == {0, 1}


@pytest.mark.parametrize("model", ["gpt2-mini", "t5-mini"])
def test_where_documents_have_an_end_or_the_paper_joins_them_bare_nothing_is_put_between(
    model: str, tmp_path: Path
) -> None:
    shards = made(tmp_path, model, {"text.txt": 20})
    objective = MODELS[model].objective
    data = lay_out(shards, replace(RECIPE, model=model), objective, LENGTH)
    ids = [data.train.texts.text(a, b).ids for a, b in data.train.rows.tolist()]
    spans = shards.held_out(0.2, RECIPE.seed)[0]
    np.testing.assert_array_equal(
        np.concatenate(ids), np.concatenate([shards.text(a, b).ids for a, b in spans])
    )
    for micro, _ in itertools.islice(data.loader(data.train, Cursor()), 10):
        for batch in micro:
            read = batch.inputs if batch.source is None else batch.source
            assert read.shape[1] <= LENGTH


@pytest.mark.parametrize(
    ("objective", "asks"),
    [
        (objectives.BERT, "next_sentence"),
        (objectives.ALBERT, "sentence_order"),
        (Apart(objectives.MASKED), "neighbor"),
        (Static(Pair(objectives.MASKED, SentenceOrder())), "sentence_order"),
        (Mixture(((0.5, objectives.MASKED), (0.5, objectives.BERT))), "next_sentence"),
    ],
)
def test_a_question_about_a_document_is_not_asked_of_several(
    objective: Objective, asks: str, shards: Shards
) -> None:
    with pytest.raises(ValueError, match=rf"^unit = corpus: .*{asks} is asked about one") as error:
        lay_out(shards, RECIPE, objective, LENGTH)
    assert "\n" not in str(error.value)
    lay_out(shards, replace(RECIPE, unit="document"), objective, LENGTH)
