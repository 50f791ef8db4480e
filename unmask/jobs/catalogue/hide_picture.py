"""What the objective of a network of pictures hides of a picture."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import cast

import numpy as np
from jaxtyping import Bool, UInt8

from unmask.batch import Example
from unmask.batching.collate import collate
from unmask.batching.pictures import PictureObjective, PictureTokens
from unmask.bundled.demo import bundled_pictures
from unmask.checkpoints.huggingface.preprocessing import preset_preprocessing
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.heads.vision.patch_reconstruction import PatchReconstruction
from unmask.images.decode import decode_image
from unmask.images.preprocessing import ImagePreprocessing
from unmask.images.sources import read_images
from unmask.images.terminal import PatchView
from unmask.jobs.catalogue.picture_explanation import PictureExplanation
from unmask.jobs.pretrain.held_out_pictures import reconstruct
from unmask.model.backbones.vision_transformer import VisionArchitecture
from unmask.objectives.inputs.pictures import MASK_ID, PATCH_ID, picture_special_ids
from unmask.objectives.published import ObjectiveSpec
from unmask.zoo.preset import Published

_SPECIAL = ("a class token", "a distillation token")


@dataclass(frozen=True, kw_only=True)
class _Network:
    """What is shown of a network of pictures, with weights or without."""

    preset: Published
    preprocessing: ImagePreprocessing
    loaded_model: LoadedModel | None

    @property
    def architecture(self) -> VisionArchitecture:
        """Its network."""
        return cast(VisionArchitecture, self.preset.architecture)


def hide_picture(
    preset: Published,
    source: str,
    seed: int,
    loaded_model: LoadedModel | None = None,
    *,
    number: int = 0,
) -> PictureExplanation:
    """Hide a part of a picture by a model's objective; of a source of several, of one.

    Args:
        preset: the model, with its objective.
        source: a picture, or another source of pictures (`unmask.images.sources`).
        seed: of what is hidden.
        loaded_model: the model with its weights, which reconstruct what is hidden. None: it has
            none.
        number: which picture of several, from 0.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no picture, or cannot be read.
    """
    own = None if loaded_model is None else loaded_model.preprocessing
    preprocessing = own or preset_preprocessing(preset)
    assert preprocessing is not None
    network = _Network(preset=preset, preprocessing=preprocessing, loaded_model=loaded_model)
    if "*" not in source and not Path(bundled_pictures(source)).exists():
        raise FileNotFoundError(f"{source}: no such picture, and {preset.name} reads pictures")
    record = next(islice(read_images(source), number, None), None)
    if record is None:
        raise ValueError(f"{source}: there is no picture {number + 1:,}")
    raw = decode_image(record.load(), record.location, channels=preprocessing.channels)
    pixels = preprocessing.pixels(raw)
    example = _example(network, pixels, seed)
    hidden = _grid(example.inputs == MASK_ID, network.architecture)
    everything = np.ones_like(hidden)
    views = [PatchView(title="picture", pixels=pixels, drawn=everything)]
    if hidden.any():
        views += [
            PatchView(title=title, pixels=pixels, drawn=drawn)
            for title, drawn in (("seen", ~hidden), ("asked", hidden))
        ]
        if (made := _made(network, example)) is not None:
            views.append(PatchView(title="made", pixels=made, drawn=everything))
    return PictureExplanation(
        name=record.name,
        views=tuple(views),
        hidden=tuple(map(tuple, hidden.astype(int).tolist())),
        patch_size=network.architecture.patch_size,
        loss_terms=preset.objective.loss_terms,
        notes=tuple(_notes(network, hidden)),
    )


def _example(network: _Network, pixels: UInt8[np.ndarray, "h w c"], seed: int) -> Example:
    """Apply the objective to the patches of a picture."""
    architecture = network.architecture
    n = len(architecture.picture_ids) - architecture.position.n_special
    special = picture_special_ids(distillation=architecture.has_distillation_token)
    tokens = PictureTokens(np.full(n, PATCH_ID), np.zeros(n, np.uint8), pixels=pixels, label=0)
    objective = PictureObjective(
        objective=cast(ObjectiveSpec, network.preset.objective),
        preprocessing=replace(network.preprocessing, resize=None, crop=None),
    )
    return objective(tokens, special, np.random.default_rng(seed))


def _grid(of_columns: Bool[np.ndarray, "t"], a: VisionArchitecture) -> Bool[np.ndarray, "r c"]:
    """Return what is true of each patch, in rows."""
    return of_columns[a.position.n_special :].reshape(a.position.rows, a.position.columns)


def _made(network: _Network, example: Example) -> UInt8[np.ndarray, "h w c"] | None:
    """Return the picture with what trained weights put in the place of hidden patches."""
    if network.loaded_model is None:
        return None
    special = picture_special_ids(distillation=network.architecture.has_distillation_token)
    batch = collate([[example]], special).to_batch()
    found = reconstruct(network.loaded_model, batch)
    return found[0] if found else None


def _notes(network: _Network, hidden: Bool[np.ndarray, "r c"]) -> Iterator[tuple[str, str]]:
    """Say what is read and what is asked."""
    a, n = network.architecture, int(hidden.sum())
    rows, columns = hidden.shape
    height, width = rows * a.patch_size, columns * a.patch_size
    yield (
        "inputs",
        f"a picture of {height} x {width}, {rows} x {columns} patches of {a.patch_size} x "
        f"{a.patch_size} pixels, after {' and '.join(_SPECIAL[: a.position.n_special])}",
    )
    if not n:
        yield "targets", "the label of the picture; nothing is hidden"
        return
    if a.encodes_seen_alone:
        yield (
            "encoder",
            f"reads the {hidden.size - n} patches that are seen, and no others; the decoder reads "
            "what it computed, and a vector in the place of each hidden patch",
        )
    else:
        yield "hidden patches", "are replaced by one vector; every token attends to every token"
    model = network.preset.build_without_memory()
    (spec,) = (head.spec for head in model.heads.children())
    spec = cast(PatchReconstruction, spec)
    size = a.patch_width
    error = {"l1": "absolute", "mse": "squared"}[spec.loss]
    standard = ", standardized in each patch" if spec.normalize_targets else ""
    yield (
        "targets",
        f"{n} of {hidden.size} patches: the mean {error} error of their {size} numbers{standard}",
    )
