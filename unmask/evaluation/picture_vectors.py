"""Embeddings of pictures, beside those of texts where a network has one space for both."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

from unmask.config import check_word
from unmask.evaluation.sentence_embeddings import EmbeddingPooling, embed
from unmask.generation.text_batches import check_vectors, evaluation_mode
from unmask.heads.classification.sequence_classification import pool_hidden_states
from unmask.heads.model import Model
from unmask.heads.vision.picture_text_contrast import PictureTextContrastHead
from unmask.images.decode import decode_images
from unmask.images.preprocessing import ImagePreprocessing
from unmask.images.records import ImageRecord
from unmask.model.backbones.captioning.two_towers import (
    TwoTowers,
    check_joint_space,
    zero_shot_weights,
)
from unmask.model.backbones.vision_transformer import VisionArchitecture, picture_batch
from unmask.tasks.metrics.retrieval import RetrievalScores, retrieval_scores
from unmask.tokenizers.encode import Tokenizer

PICTURES_PER_BATCH = 64
MAX_COMPARISONS = 2**28
"""Pictures times captions of a retrieval: their scores have 2 GB."""
DEFAULT_TEMPLATE = "A photo of a {}."
"""Of class names: Radford et al. 2021, arXiv:2103.00020, section 3.1.4."""


def embed_pictures(
    model: Model,
    preprocessing: ImagePreprocessing,
    records: Iterable[ImageRecord],
    *,
    pooling: EmbeddingPooling = "first",
) -> Float[np.ndarray, "n d"]:
    """Return a vector for each picture; none depends on the others.

    Args:
        model: one that reads pictures; of an encoder-decoder the encoder's vectors.
        preprocessing: of the model.
        records: of the pictures.
        pooling: of the hidden states: the class token (first), the mean of all, the last patch; or
            the network's own projection.

    Raises:
        FileNotFoundError: a picture is missing.
        ValueError: a picture cannot be read, or the pooling is none of these.
        FloatingPointError: a value is not finite.
    """
    check_word("pooling", pooling, EmbeddingPooling)
    if model.architecture.picture_stack is None:
        raise ValueError("this model reads no pictures")
    if pooling == "projection":
        check_joint_space(model.architecture)
    if pooling in ("none", "ends"):
        raise ValueError(f"pooling of pictures must be first, mean or last, got {pooling!r}")
    decoded = decode_images(records, channels=preprocessing.channels)
    vectors: list[Float[np.ndarray, "b d"]] = []
    with evaluation_mode(model):
        while some := list(islice(decoded, PICTURES_PER_BATCH)):
            for pixels in _equal_sizes([preprocessing(pixels) for _, pixels in some]):
                found = _vectors(model, torch.from_numpy(pixels).to(model.device), pooling)
                check_vectors(found)
                vectors.append(found.float().cpu().numpy())
    return np.concatenate(vectors) if vectors else np.zeros((0, model.backbone.width), np.float32)


def _equal_sizes(
    pictures: list[Float32[np.ndarray, "..."]],
) -> list[Float32[np.ndarray, "b c h w"]]:
    """Stack pictures that have one size; where sizes differ each is a stack of its own."""
    if len({x.shape for x in pictures}) == 1:
        return [np.stack(pictures)]
    return [x[None] for x in pictures]


def _vectors(
    model: Model, pixels: Float[Tensor, "b c h w"], pooling: EmbeddingPooling
) -> Float[Tensor, "b d"]:
    dtype = next(model.parameters()).dtype
    if pooling == "projection":
        return cast(TwoTowers, model.backbone).picture_embeddings(pixels.to(dtype))
    stack = cast(VisionArchitecture, model.architecture.picture_stack)
    batch = picture_batch(pixels.to(dtype), stack.with_image_size(*pixels.shape[2:]))
    hidden = model.backbone.encoder_stack(batch).float()
    return pool_hidden_states(hidden, batch, cast(Any, pooling))


@dataclass(frozen=True, kw_only=True)
class RetrievalEvaluation:
    """How well pictures and captions find each other."""

    scores: RetrievalScores

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "pictures": self.scores.image_to_caption.n_queries,
            "captions": self.scores.caption_to_image.n_queries,
            "metrics": self.scores.to_metrics(),
        }


def evaluate_retrieval(
    model: Model,
    tokenizer: Tokenizer,
    preprocessing: ImagePreprocessing,
    records: Iterable[ImageRecord],
    seed: int = 0,
) -> RetrievalEvaluation:
    """Find the caption of each picture among all captions, and the picture of each caption.

    Args:
        model: one with one space for pictures and texts.
        tokenizer: of its texts.
        preprocessing: of its pictures.
        records: pictures, each with a caption.
        seed: of the bootstrap intervals.

    Raises:
        ValueError: a picture cannot be read or has no caption, or there are none or too many.
    """
    captions: list[str] = []
    picture_of_caption: list[int] = []

    def with_captions() -> Iterable[ImageRecord]:
        for i, record in enumerate(records):
            if not record.captions:
                raise ValueError(f"{record.location}: has no caption to be found by")
            captions.extend(record.captions)
            picture_of_caption.extend([i] * len(record.captions))
            if (i + 1) * len(captions) > MAX_COMPARISONS:
                raise ValueError(
                    f"{record.location}: {i + 1:,} pictures and {len(captions):,} captions are "
                    f"more than {MAX_COMPARISONS:,} pairs; evaluate fewer at a time"
                )
            yield record

    pictures = embed_pictures(model, preprocessing, with_captions(), pooling="projection")
    if not captions:
        raise ValueError("there are no pictures to find")
    texts = cast(np.ndarray, embed(model, tokenizer, captions, pooling="projection"))
    owners = np.array(picture_of_caption)
    scores = _cosines(pictures, texts)
    return RetrievalEvaluation(scores=retrieval_scores(scores, owners, np.random.default_rng(seed)))


def _cosines(
    first: Float[np.ndarray, "n p"], second: Float[np.ndarray, "m p"]
) -> Float[np.ndarray, "n m"]:
    lengths = [np.linalg.norm(x, axis=-1, keepdims=True) for x in (first, second)]
    return (first / np.maximum(lengths[0], 1e-12)) @ (second / np.maximum(lengths[1], 1e-12)).T


def class_probabilities(
    model: Model,
    tokenizer: Tokenizer,
    pictures: Float[np.ndarray, "n p"],
    class_names: Iterable[str],
    templates: Iterable[str] = (DEFAULT_TEMPLATE,),
) -> Float[np.ndarray, "n classes"]:
    """Return the probability of each class from its name alone: zero-shot classification.

    Radford et al. 2021, arXiv:2103.00020, section 3.1.4: a class is the mean of the normalized
    embeddings of its name in all templates, and scores are divided by the learned temperature.

    Args:
        model: one with one space for pictures and texts.
        tokenizer: of its texts.
        pictures: their projections.
        class_names: two or more.
        templates: texts with {} in the place of the name.

    Raises:
        ValueError: there are fewer than two classes, two are equal, or a template has no {}.
    """
    check_joint_space(model.architecture)
    names, templates = list(class_names), list(templates)
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError(f"class names must be two or more that differ, got {names}")
    for template in templates:
        if template.count("{}") != 1:
            raise ValueError(f"a template must have {{}} for the class name once, got {template!r}")
    if not templates:
        raise ValueError("there must be a template for class names")
    texts = [template.replace("{}", name) for name in names for template in templates]
    vectors = torch.from_numpy(embed(model, tokenizer, texts, pooling="projection"))
    directions = zero_shot_weights(vectors.unflatten(0, (len(names), len(templates))))
    head = cast(PictureTextContrastHead, model.heads["contrast"])
    with evaluation_mode(model):
        device = model.device
        scores = head.scores(directions.to(device), torch.from_numpy(pictures).to(device))
        return scores.softmax(-1).cpu().numpy()


def zero_shot_accuracy(
    probabilities: Float[np.ndarray, "n classes"], labels: Int[np.ndarray, "n"]
) -> dict[str, float]:
    """Return how often the most probable class, and the five most probable ones, are right."""
    order = np.argsort(-probabilities, axis=1, kind="stable")
    is_right = order == labels[:, None]
    top5 = {"top_5_accuracy": float(is_right[:, :5].any(1).mean())}
    return {"accuracy": float(is_right[:, 0].mean())} | (top5 if order.shape[1] > 5 else {})
