"""How near the spaces of two languages are: whether a sentence's nearest one is its translation.

Artetxe and Schwenk 2019, arXiv:1812.10464, section 4.3 (similarity search); by layer as in Pires et
al. 2019, arXiv:1906.01502, section 5.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.evaluation.sentence_embeddings import embed
from unmask.word_vectors.alignment.retrieval import CosineRetrieval, retrieve


@dataclass(frozen=True, kw_only=True)
class LayerAlignment:
    """How near the spaces of two languages are in a layer."""

    layer: int
    """0 is the input of the first block, 1 its output, ..."""
    retrieved: float
    """Percentage of texts whose nearest translation, by the cosine of mean states, is their own."""
    retrieved_back: float
    """Percentage of translations whose nearest text is their own."""
    shuffled: float
    """The first with the translations in random order: what chance gives."""


def align_layers(
    model: LoadedModel,
    texts: Sequence[str],
    translations: Sequence[str],
    other: LoadedModel | None = None,
) -> list[LayerAlignment]:
    """Measure by layer how often a text's nearest translation is its own.

    Args:
        model: encoder of the texts; of a `Pipeline`, its `loaded_model`. With language embeddings,
            one for the language of the texts (`Pipeline.with_text_language`).
        texts: sentences of one language.
        translations: their translations, in the same order.
        other: encoder of the translations, with as many layers. None: `model`.

    Raises:
        ValueError: the lists differ in length or have fewer than two texts, a model has no
            tokenizer, or the models differ in layers.
    """
    other = model if other is None else other
    if len(texts) != len(translations) or len(texts) < 2:
        raise ValueError(
            "texts and translations must be two or more, and as many, got "
            f"{len(texts):,} and {len(translations):,}"
        )
    n, m = (one.model.backbone.n_token_layers for one in (model, other))
    if n != m:
        raise ValueError(f"both models must have as many layers, got {n} and {m}")
    order = np.random.default_rng(0).permutation(len(texts))
    return [
        _align(
            layer,
            _unit_vectors(model, texts, layer),
            _unit_vectors(other, translations, layer),
            order,
        )
        for layer in range(n + 1)
    ]


def _align(
    layer: int,
    source: Float[np.ndarray, "n d"],
    target: Float[np.ndarray, "n d"],
    order: np.ndarray,
) -> LayerAlignment:
    there, back = _nearest(source, target), _nearest(target, source)
    own = np.arange(len(source))
    return LayerAlignment(
        layer=layer,
        retrieved=100 * float((there == own).mean()),
        retrieved_back=100 * float((back == own).mean()),
        shuffled=100 * float((there == order).mean()),
    )


def _nearest(a: Float[np.ndarray, "n d"], b: Float[np.ndarray, "n d"]) -> np.ndarray:
    return retrieve(a, b, 1, CosineRetrieval().adjustment(a, b)).rows[:, 0]


def _unit_vectors(
    loaded_model: LoadedModel, texts: Sequence[str], layer: int
) -> Float[np.ndarray, "n d"]:
    """Return mean states of length 1."""
    if loaded_model.tokenizer is None:
        raise ValueError(f"{loaded_model.preset.name}: this model has no tokenizer")
    vectors = embed(loaded_model.model, loaded_model.tokenizer, texts, layer=layer)
    rows = np.asarray(vectors, np.float32)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
