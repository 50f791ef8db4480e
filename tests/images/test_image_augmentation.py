"""Augmentation: drawn by (seed, epoch, index) alone, within the ranges of the papers."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from making_pictures import gradient

from unmask.config import from_dict, to_dict
from unmask.images.augmentation import ImageAugmentation, PadAndCrop, RandomResizedCrop
from unmask.images.preprocessing import ImagePreprocessing

EDGES = st.integers(2, 200)
HOW = ImagePreprocessing(resize=(8, 8))
STEPS = [None, PadAndCrop(), PadAndCrop(fill="reflect", padding=2), RandomResizedCrop()]


@settings(deadline=None)
@given(height=EDGES, width=EDGES, seed=st.integers(0, 10**6))
def test_part_is_within_the_picture_and_the_ranges(height: int, width: int, seed: int) -> None:
    left, top, right, bottom = RandomResizedCrop().box(height, width, np.random.default_rng(seed))
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    w, h = right - left, bottom - top
    tolerance = (1 + 0.5 / max(0.5, w - 0.5)) * (1 + 0.5 / max(0.5, h - 0.5))  # of rounded edges
    assert w / h < 4 / 3 * tolerance + 0.5 / h
    assert w / h > 3 / 4 / tolerance - 0.5 / h
    assert w * h < height * width * tolerance


def test_areas_and_ratios_are_uniform() -> None:
    crop, rng = RandomResizedCrop(scale=(0.2, 0.4)), np.random.default_rng(0)
    boxes = np.array([crop.box(1000, 1000, rng) for _ in range(2000)])
    w, h = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    area, ratio = w * h / 1e6, np.log(w / h) / math.log(4 / 3)
    # of 2000 uniform draws, means are within four standard errors of those of the law
    assert abs(area.mean() - 0.3) < 4 * 0.2 / math.sqrt(12 * 2000)
    assert abs(ratio.mean()) < 4 * 2 / math.sqrt(12 * 2000)
    assert area.min() > 0.199
    assert area.max() < 0.401


def test_picture_in_which_no_part_fits_is_cut_in_the_center() -> None:
    crop = RandomResizedCrop(scale=(1.0, 1.0))
    assert crop.box(100, 10, np.random.default_rng(0)) == (0, 43, 10, 56)
    assert crop.box(10, 100, np.random.default_rng(0)) == (43, 0, 56, 10)


@pytest.mark.parametrize("crop", STEPS, ids=lambda one: type(one).__name__)
def test_draws_depend_on_the_key_alone(crop: PadAndCrop | RandomResizedCrop | None) -> None:
    augmentation, picture = ImageAugmentation(crop=crop), gradient(20, 30)
    keys = [(seed, epoch, i) for seed in range(2) for epoch in range(3) for i in range(4)]
    first = {key: augmentation.pixels(picture, HOW, np.random.default_rng(key)) for key in keys}
    for key in reversed(keys):
        again = augmentation.pixels(picture, HOW, np.random.default_rng(key))
        assert again.shape == (8, 8, 3)
        assert np.array_equal(again, first[key])
    assert len({one.tobytes() for one in first.values()}) > (1 if crop is None else 8)
    assert from_dict(ImageAugmentation, to_dict(augmentation)) == augmentation


def test_mirrored_and_shifted_pictures() -> None:
    picture = gradient(8, 8)
    mirrored = ImageAugmentation(flip=1.0).pixels(picture, HOW, np.random.default_rng((0, 0, 0)))
    assert np.array_equal(mirrored, picture[:, ::-1])
    assert np.array_equal(
        ImageAugmentation(flip=0.0).pixels(picture, HOW, np.random.default_rng((0, 0, 0))), picture
    )
    plain = ImageAugmentation(crop=PadAndCrop(padding=2), flip=0.0)
    padded = np.pad(picture, ((2, 2), (2, 2), (0, 0)))
    allowed = {padded[i : i + 8, j : j + 8].tobytes() for i in range(5) for j in range(5)}
    drawn = {
        plain.pixels(picture, HOW, np.random.default_rng((0, 0, i))).tobytes() for i in range(400)
    }
    assert drawn == allowed


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ImageAugmentation(flip=1.5), "flip must be 0 to 1, got 1.5"),
        (lambda: PadAndCrop(padding=0), "padding must be 1 to 1024 pixels, got 0"),
        (lambda: from_dict(PadAndCrop, {"fill": "edge"}), "fill must be one of"),
        (lambda: RandomResizedCrop(scale=(0.5, 0.2)), "scale must be two rising numbers"),
        (lambda: RandomResizedCrop(scale=(0.5, 2.0)), "scale must be at most 1"),
        (lambda: RandomResizedCrop(ratio=(0.0, 1.0)), "ratio must be two rising numbers"),
    ],
)
def test_other_values_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_crop_without_a_size_is_refused() -> None:
    augmentation = ImageAugmentation(crop=RandomResizedCrop())
    with pytest.raises(ValueError, match="needs a size"):
        augmentation.pixels(gradient(), ImagePreprocessing(resize=8), np.random.default_rng(0))
