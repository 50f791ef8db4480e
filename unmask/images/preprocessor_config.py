"""`preprocessor_config.json` of the Hub <-> `ImagePreprocessing`.

Read are the files of ViT, DeiT, CLIP and SigLIP, also those of earlier versions of transformers
(feature extractors, sizes as one number). A key that would change a number of the result and is
not understood is an error; keys that change nothing are passed over.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from unmask.config import unknown_key_message
from unmask.files import read_json_object, write_atomically
from unmask.images.preprocessing import (
    CLIP_MEAN,
    CLIP_STD,
    ImagePreprocessing,
    Resampling,
)

CONFIG_FILE = "preprocessor_config.json"

_BILINEAR, _BICUBIC = 2, 3  # Pillow's numbers of filters
_FILTERS: dict[object, Resampling] = {_BILINEAR: "bilinear", _BICUBIC: "bicubic"}
_HALF = [0.5, 0.5, 0.5]
_SQUARE_224 = {"height": 224, "width": 224}


@dataclass(frozen=True, kw_only=True)
class _Processor:
    """What transformers assumes where the file of a class says nothing."""

    values: Mapping[str, Any]
    square: bool = True
    """Whether a size of one number is a square, not a shortest edge."""


_COMMON = {
    "do_resize": True, "do_center_crop": False, "do_rescale": True, "do_normalize": True,
    "rescale_factor": 1 / 255, "image_mean": _HALF, "image_std": _HALF, "resample": _BILINEAR,
    "size": _SQUARE_224, "crop_size": _SQUARE_224,
}  # fmt: skip
_PROCESSORS = {
    "ViT": _Processor(values=_COMMON),
    "DeiT": _Processor(
        values=_COMMON
        | {"do_center_crop": True, "resample": _BICUBIC, "size": {"height": 256, "width": 256}}
    ),
    "CLIP": _Processor(
        values=_COMMON
        | {
            "do_center_crop": True, "resample": _BICUBIC, "size": {"shortest_edge": 224},
            "image_mean": list(CLIP_MEAN), "image_std": list(CLIP_STD),
        },
        square=False,
    ),
    "Siglip": _Processor(values=_COMMON | {"resample": _BICUBIC}, square=False),
}  # fmt: skip
_ENDINGS = ("ImageProcessor", "ImageProcessorFast", "ImageProcessorPil", "FeatureExtractor")
_NO_EFFECT = {
    "image_processor_type", "feature_extractor_type", "processor_class", "_valid_processor_keys",
    "do_convert_rgb", "return_tensors", "device", "disable_grouping", "auto_map",
    "transformers_version", "image_seq_length", "num_channels",
}  # fmt: skip
"""`do_convert_rgb`: pictures are decoded to the channels that mean and std have."""
_ONLY = {"data_format": "channels_first", "input_data_format": None}


def read_preprocessor_config(path: Path) -> ImagePreprocessing:
    """Read how a published model's pictures are preprocessed.

    Args:
        path: the file, or the folder in which it is called `preprocessor_config.json`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is damaged, of another class of processors, or has a key that would change
            the result and is not supported; the key is named.
    """
    path = path / CONFIG_FILE if path.is_dir() else path
    data = read_json_object(path)
    try:
        return _parse(data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def write_preprocessor_config(preprocessing: ImagePreprocessing, path: Path) -> None:
    """Write a file that transformers reads as the same preprocessing.

    The class is `ViTImageProcessor` where pictures are squeezed, `DeiTImageProcessor` where the
    center of the squeezed picture is cut out, and `CLIPImageProcessor` where the shortest edge is
    resized, or nothing is.

    Args:
        preprocessing: what is written.
        path: the file.
    """
    write_atomically(path, json.dumps(to_preprocessor_config(preprocessing), indent=2) + "\n")


def to_preprocessor_config(preprocessing: ImagePreprocessing) -> dict[str, Any]:
    """Return the keys and values of the file."""
    resize, crop = preprocessing.resize, preprocessing.crop
    squeezed = isinstance(resize, tuple)
    name = "CLIP" if not squeezed else "ViT" if crop is None else "DeiT"
    size: dict[str, int] = dict(_SQUARE_224)  # where nothing is resized, it is not read
    if isinstance(resize, tuple):
        size = {"height": resize[0], "width": resize[1]}
    elif resize is not None:
        size = {"shortest_edge": resize}
    config: dict[str, Any] = {
        "image_processor_type": f"{name}ImageProcessor",
        "do_convert_rgb": preprocessing.channels == 3,
        "do_resize": resize is not None,
        "size": size,
        "resample": {name: number for number, name in _FILTERS.items()}[preprocessing.resampling],
        "do_rescale": preprocessing.rescale != 1,
        "rescale_factor": preprocessing.rescale,
        "do_normalize": preprocessing.mean is not None,
    }
    if crop is not None or name != "ViT":
        config["do_center_crop"] = crop is not None
    if crop is not None:
        config["crop_size"] = {"height": crop[0], "width": crop[1]}
    if preprocessing.mean is not None and preprocessing.std is not None:
        config["image_mean"] = list(preprocessing.mean)
        config["image_std"] = list(preprocessing.std)
    elif preprocessing.channels == 1:
        config["num_channels"] = 1
    return config


def _parse(data: Mapping[str, Any]) -> ImagePreprocessing:
    processor = _processor_of(data)
    known = processor.values.keys() | _NO_EFFECT | _ONLY.keys()
    for key, value in data.items():
        if key in _ONLY and value not in (None, _ONLY[key]):
            raise ValueError(f"{key!r} = {value!r} is not supported; only {_ONLY[key]!r} is")
        if key not in known and value not in (None, False):
            raise ValueError(
                f"{key!r} = {value!r:.60} is not supported: {unknown_key_message(key, known)}"
            )
    values = {**processor.values, **{k: v for k, v in data.items() if v is not None}}
    flags = {key: _flag(key, values[key]) for key in processor.values if key.startswith("do_")}
    mean, std = _statistics(values, data) if flags["do_normalize"] else (None, None)
    channels = len(mean) if mean else data.get("num_channels", 3)
    if channels not in (1, 3):
        raise ValueError(f"pictures of {channels} channels are not supported; 1 and 3 are")
    return ImagePreprocessing(
        resize=_resize(values["size"], processor.square) if flags["do_resize"] else None,
        crop=_rectangle("crop_size", values["crop_size"]) if flags["do_center_crop"] else None,
        resampling=_filter(values["resample"]),
        channels=channels,
        rescale=_number("rescale_factor", values["rescale_factor"]) if flags["do_rescale"] else 1.0,
        mean=mean,
        std=std,
    )


def _processor_of(data: Mapping[str, Any]) -> _Processor:
    """Find the class of processors; files that name none are ViT's.

    Raises:
        ValueError: it is another one.
    """
    name = data.get("image_processor_type") or data.get("feature_extractor_type")
    if name is None:
        return _PROCESSORS["ViT"]
    known = {f"{kind}{ending}": one for kind, one in _PROCESSORS.items() for ending in _ENDINGS}
    if not isinstance(name, str) or name not in known:
        kinds = ", ".join(f"{kind}ImageProcessor" for kind in _PROCESSORS)
        raise ValueError(f"'image_processor_type' must be one of {kinds}, got {name!r:.60}")
    return known[name]


def _flag(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{key!r} must be true or false, got {value!r:.60}")
    return value


def _filter(value: object) -> Resampling:
    if isinstance(value, bool) or not isinstance(value, int) or value not in _FILTERS:
        raise ValueError(
            f"'resample' = {value!r:.60} is not supported; {_BILINEAR} (bilinear) and {_BICUBIC} "
            "(bicubic) are"
        )
    return _FILTERS[value]


def _number(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{key!r} must be a number, got {value!r:.60}")
    return float(value)


def _edge(key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{key!r} must be whole numbers of pixels, got {value!r:.60}")
    return value


def _rectangle(key: str, value: object) -> tuple[int, int]:
    """Read [height, width]: of a table, a list, or a square of one number."""
    if isinstance(value, dict):
        sides = cast("dict[str, object]", value)
        if sides.keys() != {"height", "width"}:
            raise ValueError(f"{key!r} must have height and width, got {sides!r:.60}")
        return _edge(key, sides["height"]), _edge(key, sides["width"])
    if isinstance(value, list) and len(pair := cast("list[object]", value)) == 2:
        return _edge(key, pair[0]), _edge(key, pair[1])
    return _edge(key, value), _edge(key, value)


def _resize(value: object, square: bool) -> tuple[int, int] | int:
    if isinstance(value, dict):
        sides = cast("dict[str, object]", value)
        if sides.keys() == {"shortest_edge"}:
            return _edge("size", sides["shortest_edge"])
        if sides.keys() != {"height", "width"}:
            raise ValueError(
                f"'size' = {sides!r:.60} is not supported; height and width, or shortest_edge, are"
            )
    elif not square and not isinstance(value, list):
        return _edge("size", value)
    return _rectangle("size", value)


def _statistics(
    values: Mapping[str, Any], data: Mapping[str, Any]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Read mean and std, which may be one number for all channels."""
    read: list[tuple[float, ...]] = []
    for key in ("image_mean", "image_std"):
        value = values[key]
        if isinstance(value, Sequence) and not isinstance(value, str):
            read.append(tuple(_number(key, one) for one in cast("Sequence[object]", value)))
        else:
            n = data.get("num_channels", 3)
            read.append((_number(key, value),) * (n if n in (1, 3) else 3))
    return read[0], read[1]
