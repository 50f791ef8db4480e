"""Pictures as rows: batches hold the pictures of a store, in an order that depends on nothing."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from unmask.batch import IGNORE_INDEX, Tokens
from unmask.batching.loader import BatchLoader
from unmask.batching.pictures import PictureObjective, PictureSource
from unmask.batching.plan import DataCursor
from unmask.heads.model import Model
from unmask.images.augmentation import ImageAugmentation, PadAndCrop
from unmask.images.preprocessing import ImagePreprocessing
from unmask.images.sources import read_images
from unmask.images.store import ImageStore, write_images
from unmask.objectives.inputs.pictures import (
    MASK_ID,
    MASKED_PATCHES,
    PictureLabels,
    Pictures,
    picture_special_ids,
)
from unmask.zoo.catalogue import MODELS

N, SIDE, PATCH = 22, 8, 4
HOW = ImagePreprocessing(resize=(SIDE, SIDE))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ImageStore:
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (N, SIDE, SIDE, 3), dtype=np.uint8)
    np.savez(folder / "noise.npz", images=images, labels=np.arange(N) % 3)
    return write_images(read_images(folder / "noise.npz"), folder / "store", HOW)


def loader(store: ImageStore, objective: PictureObjective, **changes) -> BatchLoader:
    source = PictureSource(store=store, indices=np.arange(N), n_patches=(SIDE // PATCH) ** 2)
    loader = BatchLoader(
        token_source=source,
        row_spans=source.row_spans,
        objective=objective,
        special_ids=picture_special_ids(),
        max_length=5,
        batch_tokens=20,
        max_epochs=1,
        seed=3,
    )
    return replace(loader, **changes)


MASKED = PictureObjective(objective=MASKED_PATCHES, preprocessing=HOW)
LABELED = PictureObjective(objective=PictureLabels(), preprocessing=HOW)
CHANGED = replace(LABELED, augmentation=ImageAugmentation(crop=PadAndCrop(padding=2)))


def batches(made: BatchLoader) -> list:
    return [batch for micro, _ in made for batch in micro]


def test_an_epoch_has_each_picture_once_with_its_label(store: ImageStore) -> None:
    seen: dict[bytes, int] = {}
    for batch in batches(loader(store, LABELED)):
        pixels = batch.feature(Pictures).pixels
        assert batch.visibility.document is None  # rows are equally long
        for picture, label in zip(pixels, batch.labels, strict=True):
            seen[picture.numpy().tobytes()] = int(label)
    expected = {
        HOW.normalize(store.pixels([i])[0]).tobytes(): int(store.labels[i]) for i in range(N)
    }
    assert seen == expected


def test_bytes_are_sent_and_become_numbers_where_they_are_read(store: ImageStore) -> None:
    (batch, *_) = batches(loader(store, MASKED))
    pictures = batch.feature(Pictures)
    assert pictures.stored.dtype == torch.uint8
    assert pictures.pixels.dtype == torch.float32
    assert pictures.pixels is pictures.pixels, "they are looked up once"
    some = pictures.map(lambda x: x[:2])
    assert torch.equal(some.pixels, pictures.pixels[:2])


@pytest.mark.sample(1)
@pytest.mark.parametrize("objective", [MASKED, CHANGED])
@pytest.mark.parametrize("changes", [{"n_workers": 2}, {"micro_batch_tokens": 10}])
def test_workers_and_micro_batches_change_nothing(
    store: ImageStore, objective: PictureObjective, changes: dict[str, int]
) -> None:
    def everything(made: BatchLoader) -> list[torch.Tensor]:
        some = batches(made)
        pixels = torch.cat([batch.feature(Pictures).pixels for batch in some])
        return [torch.cat([batch.inputs for batch in some]), pixels]

    plain = everything(loader(store, objective))
    other = everything(loader(store, objective, **changes))
    assert all(torch.equal(a, b) for a, b in zip(plain, other, strict=True))


def test_a_cursor_continues_the_epoch(store: ImageStore) -> None:
    whole = [(micro[0], after) for micro, after in loader(store, CHANGED)]
    cursor = whole[1][1]
    rest = batches(loader(store, CHANGED, start_cursor=cursor))
    assert len(rest) == len(whole) - 2
    for ours, (expected, _) in zip(rest, whole[2:], strict=True):
        assert torch.equal(ours.feature(Pictures).pixels, expected.feature(Pictures).pixels)


def test_augmentation_differs_between_epochs(store: ImageStore) -> None:
    first = batches(loader(store, CHANGED))
    second = batches(loader(store, CHANGED, start_cursor=DataCursor(epoch=1), max_epochs=2))

    def pictures(some: list) -> set[bytes]:
        return {x.numpy().tobytes() for b in some for x in b.feature(Pictures).pixels}

    assert len(pictures(first) & pictures(second)) < N // 2


@torch.no_grad()
def test_networks_read_the_batches(store: ImageStore) -> None:
    preset = MODELS["vit-mini"]
    a = replace(
        preset.architecture, d_model=16, n_heads=2, d_ff=16, n_layers=1, patch_size=PATCH
    ).with_image_size(SIDE, SIDE)
    model = Model(a, preset.heads).initialize(0)
    for batch in batches(loader(store, MASKED)):
        hidden = batch.inputs == MASK_ID
        assert torch.equal(hidden, batch.targets != IGNORE_INDEX)
        assert int(hidden.sum()) == 3 * len(hidden)
        assert float(model(batch).loss) > 0


def test_pictures_without_a_label_are_refused_by_number(store: ImageStore, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", images=np.zeros((2, SIDE, SIDE, 3), np.uint8))
    plain = write_images(read_images(tmp_path / "x.npz"), tmp_path / "store", HOW)
    source = PictureSource(store=plain, indices=np.array([1]), n_patches=4)
    with pytest.raises(ValueError, match="picture 1 has no label to learn"):
        LABELED(source.read_tokens(0, 4), picture_special_ids(), np.random.default_rng(0))
    with pytest.raises(ValueError, match="tokens 2 to 6 are not one of 1 pictures"):
        source.read_tokens(2, 6)
    words = Tokens(np.arange(4), np.zeros(4, np.uint8))
    with pytest.raises(TypeError, match="read from a PictureSource"):
        LABELED(words, picture_special_ids(), np.random.default_rng(0))
