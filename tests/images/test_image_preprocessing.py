"""Preprocessing equals transformers' image processors, and their files mean the same."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making_pictures import encoded, gradient

from unmask.config import from_dict, to_dict
from unmask.images.preprocessing import (
    CLIP_MEAN,
    CLIP_STD,
    IMAGENET_MEAN,
    IMAGENET_STD,
    ImagePreprocessing,
    crop_center,
    shortest_edge_size,
)
from unmask.images.preprocessor_config import (
    read_preprocessor_config,
    to_preprocessor_config,
    write_preprocessor_config,
)

SIZES = ((40, 60), (61, 33), (24, 24), (7, 90))
VIT = ImagePreprocessing(resize=(24, 24))
DEIT = ImagePreprocessing(
    resize=(28, 30), crop=(24, 25), resampling="bicubic", mean=IMAGENET_MEAN, std=IMAGENET_STD
)
CLIP = ImagePreprocessing(
    resize=24, crop=(24, 24), resampling="bicubic", mean=CLIP_MEAN, std=CLIP_STD
)
PLAIN = ImagePreprocessing(resize=None, crop=(30, 31), mean=None, std=None, rescale=1.0)
ALL = {"ViT": VIT, "DeiT": DEIT, "CLIP": CLIP, "plain": PLAIN}


def reference(path: Path) -> Any:
    """Return the processor of transformers that a file names, computed with Pillow."""
    transformers = pytest.importorskip("transformers")
    data = json.loads(path.read_text())
    return getattr(transformers, f"{data['image_processor_type']}Pil")(**data)


@pytest.mark.parametrize("name", ALL)
def test_results_equal_those_of_transformers(name: str, tmp_path: Path) -> None:
    preprocessing, path = ALL[name], tmp_path / "preprocessor_config.json"
    write_preprocessor_config(preprocessing, path)
    assert read_preprocessor_config(path) == read_preprocessor_config(tmp_path) == preprocessing
    theirs = reference(path)
    for i, (height, width) in enumerate(SIZES):
        picture = gradient(height, width, seed=i)
        (wanted,) = theirs(picture, return_tensors="np", input_data_format="channels_last")[
            "pixel_values"
        ]
        found = preprocessing(picture)
        assert found.dtype == np.float32
        assert found.shape == wanted.shape == (3, *(preprocessing.size or ()))
        # the same arithmetic in the same order: no difference at all
        assert np.array_equal(found, wanted.astype(np.float32))


def test_defaults_of_transformers_are_read_from_files_that_say_nothing(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    path = tmp_path / "preprocessor_config.json"
    for name in ("ViT", "DeiT", "CLIP", "Siglip"):
        path.write_text(json.dumps({"image_processor_type": f"{name}ImageProcessor"}))
        short = read_preprocessor_config(path)
        theirs = getattr(transformers, f"{name}ImageProcessorPil")()
        path.write_text(theirs.to_json_string())
        assert read_preprocessor_config(path) == short, name
        assert np.array_equal(
            short(gradient(300, 260)), theirs(gradient(300, 260))["pixel_values"][0]
        )


def test_files_of_earlier_versions(tmp_path: Path) -> None:
    path = tmp_path / "preprocessor_config.json"
    half = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    path.write_text(json.dumps({"do_normalize": True, "do_resize": True, "size": 224, **half}))
    assert read_preprocessor_config(path) == ImagePreprocessing()
    old = {"feature_extractor_type": "CLIPFeatureExtractor", "size": 336, "crop_size": 336}
    path.write_text(json.dumps({**old, "resample": 3, "do_center_crop": True}))
    read = read_preprocessor_config(path)
    assert (read.resize, read.crop, read.mean) == (336, (336, 336), CLIP_MEAN)
    gray = {"do_normalize": False, "num_channels": 1, "size": [20, 30], "do_pad": False}
    path.write_text(json.dumps(gray))
    read = read_preprocessor_config(path)
    assert (read.channels, read.mean, read.size) == (1, None, (20, 30))


REFUSED = (
    ({"crop_pct": 0.875}, "'crop_pct' = 0.875 is not supported"),
    ({"do_pad": True}, "'do_pad' = True is not supported"),
    ({"resample": 1}, "'resample' = 1 is not supported; 2 (bilinear) and 3 (bicubic) are"),
    ({"size": {"shortest_edge": 9, "longest_edge": 99}}, "'size' = {'shortest_edge': 9"),
    ({"size": {"max_height": 9, "max_width": 9}}, "'size' = {'max_height': 9"),
    ({"size": "large"}, "'size' must be whole numbers of pixels, got 'large'"),
    ({"size": 0}, "resize must be 1 to 16384 pixels, got 0"),
    ({"image_processor_type": "BeitImageProcessor"}, "must be one of ViTImageProcessor, "),
    ({"data_format": "channels_last"}, "'data_format' = 'channels_last' is not supported"),
    ({"do_resize": 1}, "'do_resize' must be true or false, got 1"),
    ({"image_mean": [0.5, 0.5]}, "pictures of 2 channels are not supported"),
    ({"image_mean": ["a", 0, 0]}, "'image_mean' must be a number, got 'a'"),
    ({"image_std": [1.0, 0.0, 1.0]}, "std must be above 0"),
    ({"do_center_crop": True, "crop_size": {"height": 9}}, "'crop_size' must have height"),
)  # fmt: skip


@pytest.mark.parametrize(("keys", "message"), REFUSED)
def test_key_that_is_not_supported_is_named(
    keys: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps({"image_processor_type": "ViTImageProcessor", **keys}))
    with pytest.raises(ValueError, match=r"preprocessor_config\.json: ") as caught:
        read_preprocessor_config(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ALL)
def test_preprocessing_is_plain_data(name: str) -> None:
    plain = json.loads(json.dumps(to_dict(ALL[name])))
    assert from_dict(ImagePreprocessing, plain) == ALL[name]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"resampling": "lanczos"}, "resampling must be one of"),
        ({"channels": 1}, "mean must be 1 finite numbers"),
        ({"mean": None}, "mean and std are given together"),
        ({"std": (1.0, float("nan"), 1.0)}, "std must be 3 finite numbers"),
        ({"crop": (0, 3)}, "crop must be 1 to 16384 pixels, got 0"),
        ({"rescale": 0.0}, "rescale must be above 0"),
    ],
)
def test_other_values_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_dict(ImagePreprocessing, changes)


def test_batches_gray_and_files() -> None:
    batch = np.stack([gradient(9, 8, seed=i) for i in range(3)])
    assert np.array_equal(VIT.normalize(batch), np.stack([VIT.normalize(one) for one in batch]))
    gray = ImagePreprocessing(resize=(6, 5), channels=1, mean=(0.1307,), std=(0.3081,))
    out = gray(gradient(30, 40)[:, :, :1])
    assert out.shape == (1, 6, 5)
    assert gray.decode(encoded(gradient(30, 40)), "a.png").shape == (1, 6, 5)
    with pytest.raises(ValueError, match="must have 1 channels in their last axis"):
        gray(gradient())
    with pytest.raises(ValueError, match="2 x 9000 pixels becomes 16,384 x 73,728,000"):
        ImagePreprocessing(resize=16384)(gradient(9000, 2))
    assert to_preprocessor_config(gray)["image_processor_type"] == "ViTImageProcessor"


def test_center_is_cut_as_transformers_does() -> None:
    transforms = pytest.importorskip("transformers.image_transforms")
    for height, width, h, w in itertools.product(range(1, 5), repeat=4):
        picture = gradient(height, width)
        kind: dict[str, Any] = dict.fromkeys(("data_format", "input_data_format"), "channels_last")
        wanted = transforms.center_crop(picture, (h, w), **kind)
        assert np.array_equal(crop_center(picture, (h, w)), wanted)
    assert shortest_edge_size(30, 50, 7) == (7, 11)
    assert shortest_edge_size(50, 30, 7) == (11, 7)
