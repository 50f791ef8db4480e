"""Captions that a model writes, beside those that people wrote."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from jaxtyping import UInt8

from unmask.generation.captions import picture_prompts
from unmask.generation.decode import generate
from unmask.generation.prompts import encode_prompts
from unmask.generation.settings import BeamSearch, GenerationConfig
from unmask.heads.model import Model
from unmask.images.decode import decode_images
from unmask.images.preprocessing import ImagePreprocessing
from unmask.images.records import ImageRecord
from unmask.tasks.metrics.captioning.captions import caption_metrics, diversity_metrics
from unmask.tasks.metrics.captioning.cider import cider_d_scores, document_frequencies
from unmask.tokenizers.encode import Tokenizer

PICTURES_PER_CALL = 64
CAPTIONING = GenerationConfig(strategy=BeamSearch(beams=3), max_new_tokens=30)
"""Three beams, as Vinyals et al. 2017, arXiv:1609.06647."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DescribedPicture:
    """A picture with the caption of a model and those of people."""

    name: str
    pixels: UInt8[np.ndarray, "h w c"]
    """As the network reads it, before numbers are standardized."""
    caption: str
    references: tuple[str, ...]
    cider_d: float
    """Agreement of the caption with the references, from 0 to 10."""


@dataclass(frozen=True, kw_only=True)
class CaptionEvaluation:
    """Scores of captions, and the captions."""

    metrics: dict[str, float]
    """See `unmask.tasks.metrics.captioning.captions`: those of agreement and of diversity."""
    pictures: tuple[DescribedPicture, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, without pixels."""
        captions = [
            {
                "picture": one.name,
                "caption": one.caption,
                "references": list(one.references),
                "cider_d": one.cider_d,
            }
            for one in self.pictures
        ]
        return {"pictures": len(captions), "metrics": self.metrics, "captions": captions}


def evaluate_captions(
    model: Model,
    tokenizer: Tokenizer,
    records: Iterable[ImageRecord],
    preprocessing: ImagePreprocessing,
    generation_config: GenerationConfig = CAPTIONING,
    *,
    on_progress: Callable[[int], None] | None = None,
) -> CaptionEvaluation:
    """Describe pictures, and compare the captions with those that the records have.

    Args:
        model: one that describes pictures.
        tokenizer: of its captions.
        records: of the pictures, each with a caption.
        preprocessing: of the model.
        generation_config: how captions are generated.
        on_progress: called with the number of pictures so far.

    Raises:
        ValueError: a picture cannot be read or has no caption, or there is none.
    """
    names: list[str] = []
    read: list[UInt8[np.ndarray, "h w c"]] = []
    references: list[tuple[str, ...]] = []
    captions: list[str] = []
    decoded = decode_images(records, channels=preprocessing.channels)
    while some := list(islice(decoded, PICTURES_PER_CALL)):
        for record, _ in some:
            if not record.captions:
                raise ValueError(f"{record.location}: has no caption to compare with")
        pixels = [preprocessing.pixels(found) for _, found in some]
        captions += describe_pictures(
            model, tokenizer, pixels, _without_resizing(preprocessing), generation_config
        )
        read += pixels
        names += [record.location for record, _ in some]
        references += [record.captions for record, _ in some]
        if on_progress is not None:
            on_progress(len(captions))
    if not captions:
        raise ValueError("there are no pictures to describe")
    scores = cider_d_scores(references, captions, document_frequencies(references))
    return CaptionEvaluation(
        metrics={**caption_metrics(references, captions), **diversity_metrics(captions)},
        pictures=tuple(
            DescribedPicture(name=n, pixels=x, caption=c, references=r, cider_d=float(s))
            for n, x, c, r, s in zip(names, read, captions, references, scores, strict=True)
        ),
    )


def describe_pictures(
    model: Model,
    tokenizer: Tokenizer,
    pictures: Sequence[Any],
    preprocessing: ImagePreprocessing,
    generation_config: GenerationConfig,
) -> list[str]:
    """Return the caption of each picture.

    Raises:
        ValueError: a picture cannot be read, or the model does not describe pictures.
    """
    prompts = picture_prompts(model, pictures, preprocessing)
    encoded = encode_prompts(model, tokenizer, [""] * len(prompts), stop=generation_config.stop)
    token_ids = generate(
        model, prompts, tokenizer.special_ids, generation_config, constraints=encoded.streamers
    )
    return [
        streamer.final_text(ids).strip()
        for streamer, ids in zip(encoded.streamers, token_ids, strict=True)
    ]


def _without_resizing(preprocessing: ImagePreprocessing) -> ImagePreprocessing:
    """Return the numbers of pixels that were resized and cropped before."""
    return replace(preprocessing, resize=None, crop=None)
