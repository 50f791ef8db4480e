"""Sentence vectors of models and of word vectors: nearest sentences, and similarity."""

import re
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from unmask.config import check_number_fields
from unmask.evaluation.sentence_embeddings import EmbeddingPooling
from unmask.finetuning.formulations.span_head import token_span
from unmask.inference.generation import as_text_list
from unmask.inference.load_word_vectors import is_word_vectors, load_word_vectors
from unmask.inference.open_model import load
from unmask.inference.pipeline import Pipeline
from unmask.options import takes_options
from unmask.tasks.kinds.regress import READER
from unmask.tasks.metrics.regression import pearson, spearman
from unmask.tasks.readers import tables
from unmask.tasks.readers.task_reader import find_text_pair
from unmask.text.documents import read_documents
from unmask.text.lines import EncodingErrors
from unmask.word_vectors.keyed_vectors import KeyedVectors, Neighbor
from unmask.word_vectors.sentence_means import mean_word_vectors

SentenceEncoder = Callable[[Sequence[str]], Float[np.ndarray, "n d"]]


def sentence_encoder(
    model: str | Path | Pipeline | KeyedVectors,
    *,
    word: str | None = None,
    pooling: EmbeddingPooling | None = None,
    layer: int | None = None,
    limit: int | None = None,
) -> SentenceEncoder:
    """Return what turns texts into vectors: a model, or the mean of word vectors.

    Args:
        model: as for `unmask.load`, or what that returned; or word vectors, or their file.
        word: let its vector in a text stand for the text; zeros where it is not, or is cut.
        pooling: see `Pipeline.embed`. None: the preset's own.
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
    if isinstance(model, Pipeline) or not (
        isinstance(model, KeyedVectors) or is_word_vectors(model)
    ):
        if limit is not None:
            raise ValueError("limit is of word vectors; leave it out")
        pipeline = model if isinstance(model, Pipeline) else load(model)
        layer_index = -1 if layer is None else layer
        if word is not None:
            if pooling is not None:
                raise ValueError("pooling is of whole texts, and a word is compared; leave it out")
            return partial(_word_in_context_vectors, pipeline, _word_pattern(word), layer_index)
        return lambda texts: np.asarray(pipeline.embed(texts, pooling=pooling, layer=layer_index))
    if word is not None:
        raise ValueError(
            "word: in a file of word vectors it has the same one in all sentences; name a model"
        )
    if pooling not in (None, "mean") or layer is not None:
        raise ValueError(
            "word vectors: what stands for a text is the mean of its words' vectors; leave out "
            "pooling and layer"
        )
    return partial(mean_word_vectors, load_word_vectors(model, limit=limit))


def _word_pattern(word: str) -> re.Pattern[str]:
    """Return what finds a word, or words in a row, where no letter or digit adjoins it.

    Raises:
        ValueError: it is white space.
    """
    parts = [re.escape(part) for part in word.split()]
    if not parts:
        raise ValueError("word: it is empty")
    return re.compile(r"(?<!\w)" + r"\s+".join(parts) + r"(?!\w)", re.IGNORECASE)


def _word_in_context_vectors(
    pipeline: Pipeline, word_pattern: re.Pattern[str], layer: int, texts: Sequence[str]
) -> Float[np.ndarray, "n d"]:
    """Return the mean vector of a word's tokens in each text; zeros where it is not."""
    tokenizer = pipeline.tokenizer.input_tokenizer
    before, after = len(tokenizer.special_ids.prefix), len(tokenizer.special_ids.suffix)
    found = {i: use.span() for i, text in enumerate(texts) if (use := word_pattern.search(text))}
    states = pipeline.embed([texts[i] for i in found], pooling="none", layer=layer)
    vectors = np.zeros((len(texts), states[0].shape[1] if len(states) else 1), np.float32)
    for (i, span), rows in zip(found.items(), states, strict=True):
        first, last = token_span(*span, tokenizer.offset_array(texts[i]))
        if first >= 0 and last < len(rows) - before - after:  # it is read, and not cut
            vectors[i] = rows[before + first : before + last + 1].mean(0)
    return vectors


def _sentence_vectors(
    texts: tuple[str, ...], vectors: Float[np.ndarray, "n d"], word: str | None
) -> KeyedVectors:
    """Return the vectors of texts; of those that have a word, where one is asked for.

    Raises:
        ValueError: none has it.
    """
    if word is None:
        return KeyedVectors(texts, vectors)
    has = np.flatnonzero(vectors.any(1))
    if not len(has):
        raise ValueError(f"sentences: {word!r} is a word of none of {len(texts):,} sentences")
    return KeyedVectors(tuple(texts[i] for i in has), vectors[has])


@dataclass(frozen=True, kw_only=True)
class _SentenceVectorOptions:
    """How sentences become vectors."""

    pooling: EmbeddingPooling | None = None
    """See `Pipeline.embed`. None: that of the preset."""
    layer: int | None = None
    """Layer whose hidden states are used. None: the last."""
    limit: int | None = None
    """Number of words that are read of word vectors, from the first. None: all."""
    encoding_errors: EncodingErrors = "strict"
    """Handling of bytes that are not valid UTF-8."""

    def __post_init__(self) -> None:
        """Refuse values that are not numbers where numbers are expected."""
        check_number_fields(self)


@dataclass(frozen=True)
class NearestSentencesOptions(_SentenceVectorOptions):
    """Queries, candidate sentences, and how their vectors are computed."""

    model: str | Path | Pipeline | KeyedVectors
    """See `sentence_encoder`."""
    queries: str | Sequence[str]
    """Sentences whose neighbors are searched for."""
    sentences: str | Path | Sequence[str]
    """Candidate sentences, or a file of them: one per line, or records."""
    top_k: int = 10
    """Maximum number of neighbors of each query."""
    _: KW_ONLY
    word: str | None = None
    """Word of each query, or several consecutive ones, in any case. The vectors of its first
    occurrence in each sentence, the mean over its tokens, are compared; sentences without it are
    not candidates."""
    text_column: str | None = None
    """Column of records that holds the text."""


@takes_options(NearestSentencesOptions)
def nearest_sentences(options: NearestSentencesOptions) -> list[list[Neighbor]]:
    """Find the sentences whose vectors have the highest cosine with those of the queries.

    A query is not a neighbor of itself, and repeated sentences are found once. With a `word`, its
    contextual vectors are compared, so that sentences are found in which it is used alike (Peters
    et al. 2018, arXiv:1802.05365, table 4).

    The fields of `NearestSentencesOptions` are its keywords.

    Raises:
        FileNotFoundError: there is no such file or model.
        ValueError: the file has no text; no word of a sentence has a vector; `word` is not in a
            query or in any candidate; see also `sentence_encoder`.
    """
    queries = as_text_list(options.queries, "queries")
    word, sentences = options.word, options.sentences
    encode = sentence_encoder(
        options.model,
        word=word,
        pooling=options.pooling,
        layer=options.layer,
        limit=options.limit,
    )
    if isinstance(sentences, str | Path):
        documents = read_documents(
            sentences,
            document_separator="line",
            text_column=options.text_column,
            encoding_errors=options.encoding_errors,
        )
        sentences = [document.text for document in documents]
    texts = tuple(dict.fromkeys(as_text_list(sentences, "sentences")))
    if not texts:
        raise ValueError("sentences: there are none")
    vectors = encode(queries)
    for sentence, vector in zip(queries, vectors, strict=True):
        if not vector.any():
            reason = "no word of it has a vector" if word is None else f"{word!r} is no word of it"
            raise ValueError(f"{sentence!r}: {reason}")
    candidates = _sentence_vectors(texts, encode(texts), word)
    return [
        candidates.neighbors(
            vector[None], options.top_k, [sentence] if sentence in candidates else []
        )[0]
        for sentence, vector in zip(queries, vectors, strict=True)
    ]


@dataclass(frozen=True, kw_only=True)
class SentenceSimilarityScore:
    """How well the cosines of sentences' vectors follow what people say of the pairs.

    Nothing is learned from the pairs. 0 where either side is always the same.
    """

    name: str
    n_pairs: int
    pearson: float
    spearman: float


@dataclass(frozen=True)
class SentenceSimilarityOptions(_SentenceVectorOptions):
    """Pairs of sentences with human scores, and how vectors are computed."""

    model: str | Path | Pipeline | KeyedVectors
    """See `sentence_encoder`."""
    data: str | Path
    """File of rows with two texts and a number: .tsv, .csv, .jsonl, .parquet."""
    _: KW_ONLY
    text: Sequence[str] = ()
    """Columns of the texts. Empty: customary names."""
    label: str | None = None
    """Column of the numbers. None: a customary name."""


@takes_options(SentenceSimilarityOptions)
def evaluate_sentence_similarity(options: SentenceSimilarityOptions) -> SentenceSimilarityScore:
    """Correlate the cosines of sentence pairs with human scores (SICK, STS).

    The fields of `SentenceSimilarityOptions` are its keywords.

    Raises:
        FileNotFoundError: there is no such file or model.
        ValueError: the file lacks columns, or a value is not a text or a number, with file and
            line; see also `sentence_encoder`.
    """
    table = tables.read_table(options.data, encoding_errors=options.encoding_errors)
    columns = READER.find_columns(
        table, tuple(options.text) or find_text_pair(table), options.label, ()
    )
    if len(columns.texts) != 2:
        raise ValueError(f"similarity is of two columns of text, got {columns.texts[0]!r} alone")
    items = READER.read_examples(
        table, columns, options.encoding_errors, has_labels=True, options={}
    )
    labels = np.array([item.label for item in items], np.float64)
    sides = list(zip(*(item.texts for item in items), strict=True))
    encode = sentence_encoder(
        options.model, pooling=options.pooling, layer=options.layer, limit=options.limit
    )
    texts = list(dict.fromkeys(t for side in sides for t in side))
    unit = dict(zip(texts, _normalize_rows(encode(texts)), strict=True))
    cosines = np.array([unit[a] @ unit[b] for a, b in zip(*sides, strict=True)])
    return SentenceSimilarityScore(
        name=Path(options.data).name,
        n_pairs=len(items),
        pearson=pearson(labels, cosines),
        spearman=spearman(labels, cosines),
    )


def _normalize_rows(vectors: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Return vectors of length 1; one of zeros stays so."""
    exact = vectors.astype(np.float64)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    return exact / np.where(lengths > 0, lengths, 1)


def similarity_score_to_dict(score: SentenceSimilarityScore) -> dict[str, Any]:
    """Return a score as plain data."""
    return {{"n_pairs": "pairs"}.get(name, name): value for name, value in vars(score).items()}


def format_similarity_scores(scores: Sequence[SentenceSimilarityScore]) -> list[str]:
    """Write scores in lines."""
    width = max(len("sentence pairs"), *(len(one.name) for one in scores))
    lines = [f"{'sentence pairs':{width}}  {'pairs':>7}  Pearson  Spearman"]
    return lines + [
        f"{one.name:{width}}  {one.n_pairs:>7,}  {one.pearson:7.3f}  {one.spearman:8.3f}"
        for one in scores
    ]
