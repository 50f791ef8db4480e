"""Sentences as vectors, whatever makes these: the nearest ones, and how alike two are."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float

from unmask.evaluation.embed import Pooling
from unmask.finetuning.by_span import tokens_of
from unmask.finetuning.kinds.regress import FILES
from unmask.serving.pipeline import Pipeline, listed, load
from unmask.serving.spaces import is_vectors, open_space
from unmask.tasks.metrics.regression import pearson, spearman
from unmask.tasks.readers import tables
from unmask.tasks.readers.task_files import find_pair
from unmask.text.corpus import documents
from unmask.text.lines import EncodingErrors
from unmask.vectors.sentences import mean_vectors
from unmask.vectors.space import Neighbor, Space

Encode = Callable[[Sequence[str]], Float[np.ndarray, "n d"]]


def encoder(
    model: str | Path | Pipeline | Space,
    *,
    word: str | None = None,
    pooling: Pooling | None = None,
    layer: int | None = None,
    limit: int | None = None,
) -> Encode:
    """Return what turns texts into vectors: a model, or the mean of word vectors.

    Args:
        model: as for `unmask.load`, or what that returned; or word vectors, or their file.
        word: let its vector in a text stand for the text; zeros where it is not, or is cut.
        pooling: see `Pipeline.embed`. None: the card's own.
        layer: likewise. None: the last.
        limit: of word vectors, only the first `limit` words.

    Raises:
        FileNotFoundError: there is no such model.
        ValueError: it is damaged; or a text is to have several vectors, or word vectors are to be
            pooled otherwise; or a word of it is asked for where it has one vector in all texts, or
            is to be pooled otherwise than by its mean.
    """
    if pooling == "none":
        raise ValueError("pooling none gives each token a vector; a sentence has one")
    if isinstance(model, Pipeline) or not (isinstance(model, Space) or is_vectors(model)):
        if limit is not None:
            raise ValueError("limit is of word vectors; leave it out")
        pipeline = model if isinstance(model, Pipeline) else load(model)
        at = -1 if layer is None else layer
        if word is not None:
            if pooling is not None:
                raise ValueError("pooling is of whole texts, and a word is compared; leave it out")
            return partial(_in_use, pipeline, _finder(word), at)
        return lambda texts: np.asarray(pipeline.embed(texts, pooling=pooling, layer=at))
    if word is not None:
        raise ValueError(
            "word: in a file of word vectors it has the same one in all sentences; name a model"
        )
    if pooling not in (None, "mean") or layer is not None:
        raise ValueError(
            "word vectors: what stands for a text is the mean of its words' vectors; leave out "
            "pooling and layer"
        )
    return partial(mean_vectors, open_space(model, limit=limit))


def _finder(word: str) -> re.Pattern[str]:
    """Return what finds a word, or words in a row, where no letter or digit adjoins it.

    Raises:
        ValueError: it is white space.
    """
    parts = [re.escape(part) for part in word.split()]
    if not parts:
        raise ValueError("word: it is empty")
    return re.compile(r"(?<!\w)" + r"\s+".join(parts) + r"(?!\w)", re.IGNORECASE)


def _in_use(
    pipeline: Pipeline, finder: re.Pattern[str], layer: int, texts: Sequence[str]
) -> Float[np.ndarray, "n d"]:
    """Return the mean vector of a word's tokens in each text; zeros where it is not."""
    tokenizer = pipeline.tokenizer.reader
    before, after = len(tokenizer.special.before), len(tokenizer.special.after)
    found = {i: use.span() for i, text in enumerate(texts) if (use := finder.search(text))}
    states = pipeline.embed([texts[i] for i in found], pooling="none", layer=layer)
    vectors = np.zeros((len(texts), states[0].shape[1] if len(states) else 1), np.float32)
    for (i, span), rows in zip(found.items(), states, strict=True):
        first, last = tokens_of(*span, tokenizer.spans(texts[i]))
        if first >= 0 and last < len(rows) - before - after:  # it is read, and not cut
            vectors[i] = rows[before + first : before + last + 1].mean(0)
    return vectors


def _space(texts: tuple[str, ...], vectors: Float[np.ndarray, "n d"], word: str | None) -> Space:
    """Return the vectors of texts; of those that have a word, where one is asked for.

    Raises:
        ValueError: none has it.
    """
    if word is None:
        return Space(texts, vectors)
    has = np.flatnonzero(vectors.any(1))
    if not len(has):
        raise ValueError(f"among: {word!r} is a word of none of {len(texts):,} sentences")
    return Space(tuple(texts[i] for i in has), vectors[has])


def nearest_sentences(
    model: str | Path | Pipeline | Space,
    sentences: str | Sequence[str],
    among: str | Path | Sequence[str],
    k: int = 10,
    *,
    word: str | None = None,
    pooling: Pooling | None = None,
    layer: int | None = None,
    limit: int | None = None,
    text: str | None = None,
    encoding_errors: EncodingErrors = "strict",
) -> list[list[Neighbor]]:
    """Find the sentences whose vectors are nearest to those of others, by cosine.

    A sentence that is looked for is no neighbor of itself; one that stands there several times is
    found once. With a `word`, what is compared is its vector in each sentence, so that those are
    found in which it is used alike (Peters et al. 2018, arXiv:1802.05365, table 4).

    Args:
        model: see `encoder`.
        sentences: those that are looked for.
        among: sentences, or a file of them: a line each, or records.
        k: at most so many of each.
        word: a word of each sentence that is looked for, or several in a row, in capitals or not;
            sentences without it are not found. Its vector is the mean over its tokens, where it
            stands first.
        pooling: see `encoder`.
        layer: likewise.
        limit: likewise.
        text: the column of records that holds the text.
        encoding_errors: what becomes of bytes of the file that are not UTF-8.

    Raises:
        FileNotFoundError: there is no such file or model.
        ValueError: there is no text in the file, or no word of a sentence has a vector; a sentence
            that is looked for has no such `word`, or none of the others has; see `encoder`.
    """
    asked = listed(sentences, "sentences")
    encode = encoder(model, word=word, pooling=pooling, layer=layer, limit=limit)
    if isinstance(among, str | Path):
        read = documents(among, document="line", text=text, encoding_errors=encoding_errors)
        among = [document.text for document in read]
    there = tuple(dict.fromkeys(listed(among, "among")))
    if not there:
        raise ValueError("among: there is no sentence to be found")
    vectors = encode(asked)
    for sentence, vector in zip(asked, vectors, strict=True):
        if not vector.any():
            what = "no word of it has a vector" if word is None else f"{word!r} is no word of it"
            raise ValueError(f"{sentence!r}: {what}")
    space = _space(there, encode(there), word)
    return [
        space.neighbors(vector[None], k, [sentence] if sentence in space else [])[0]
        for sentence, vector in zip(asked, vectors, strict=True)
    ]


@dataclass(frozen=True, kw_only=True)
class SimilarityScore:
    """How well the cosines of sentences' vectors follow what people say of the pairs.

    Nothing is learned from the pairs. 0 where either side is always the same.
    """

    name: str
    pairs: int
    pearson: float
    spearman: float


def evaluate_similarity(
    model: str | Path | Pipeline | Space,
    data: str | Path,
    *,
    text: Sequence[str] = (),
    label: str | None = None,
    pooling: Pooling | None = None,
    layer: int | None = None,
    limit: int | None = None,
    encoding_errors: EncodingErrors = "strict",
) -> SimilarityScore:
    """Correlate the cosines of pairs of sentences with people's scores (SICK, STS).

    Args:
        model: see `encoder`.
        data: a file of rows with two texts and a number: .tsv, .csv, .jsonl, .parquet.
        text: the columns of the texts. None named: customary ones.
        label: the column of the numbers. None: a customary one.
        pooling: see `encoder`.
        layer: likewise.
        limit: likewise.
        encoding_errors: what becomes of bytes of the file that are not UTF-8.

    Raises:
        FileNotFoundError: there is no such file or model.
        ValueError: it has no such columns, or a value is no text or no number, with file and line;
            see `encoder`.
    """
    table = tables.read(data, errors=encoding_errors)
    columns = FILES.columns(table, tuple(text) or find_pair(table), label, ())
    if len(columns.texts) != 2:
        raise ValueError(f"similarity is of two columns of text, got {columns.texts[0]!r} alone")
    items = FILES.items(table, columns, encoding_errors, known=True, options={})
    truth = np.array([item.truth for item in items], np.float64)
    sides = list(zip(*(item.texts for item in items), strict=True))
    encode = encoder(model, pooling=pooling, layer=layer, limit=limit)
    texts = list(dict.fromkeys(t for side in sides for t in side))
    unit = dict(zip(texts, _directions(encode(texts)), strict=True))
    said = np.array([unit[a] @ unit[b] for a, b in zip(*sides, strict=True)])
    return SimilarityScore(
        name=Path(data).name,
        pairs=len(items),
        pearson=pearson(truth, said),
        spearman=spearman(truth, said),
    )


def _directions(vectors: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Return vectors of length 1; one of zeros stays so."""
    wide = vectors.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return wide / np.where(lengths > 0, lengths, 1)


def table(scores: Sequence[SimilarityScore]) -> list[str]:
    """Write scores in lines."""
    wide = max(len("sentence pairs"), *(len(one.name) for one in scores))
    lines = [f"{'sentence pairs':{wide}}  {'pairs':>7}  Pearson  Spearman"]
    return lines + [
        f"{one.name:{wide}}  {one.pairs:>7,}  {one.pearson:7.3f}  {one.spearman:8.3f}"
        for one in scores
    ]
