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
from unmask.inference.open_model import load
from unmask.inference.pipeline import Pipeline
from unmask.inference.vectors.load_word_vectors import is_word_vectors, load_word_vectors
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
    """Return a function from texts to vectors: of a model, or the mean of word vectors.

    Args:
        model: a model as for `unmask.load`, loaded or not; or word vectors, or their file.
        word: use the contextual vector of this word; zeros if it is missing or truncated.
        pooling: see `Pipeline.embed`. None: that of the preset.
        layer: likewise. None: the last.
        limit: number of word vectors to read, the first ones.

    Raises:
        FileNotFoundError: there is no such model.
        ValueError: it is damaged; or pooling is "none", or given for word vectors or with `word`;
            or `word` is given for word vectors.
    """
    if pooling == "none":
        raise ValueError("pooling none gives each token a vector; a sentence has one")
    if isinstance(model, Pipeline) or not (
        isinstance(model, KeyedVectors) or is_word_vectors(model)
    ):
        if limit is not None:
            raise ValueError("limit is for word vectors; leave it out")
        pipeline = model if isinstance(model, Pipeline) else load(model)
        layer_index = -1 if layer is None else layer
        if word is not None:
            if pooling is not None:
                raise ValueError("pooling is for whole texts, not for a word; leave it out")
            return partial(_word_in_context_vectors, pipeline, _word_pattern(word), layer_index)
        return lambda texts: np.asarray(pipeline.embed(texts, pooling=pooling, layer=layer_index))
    if word is not None:
        raise ValueError("word: word vectors do not depend on the sentence; choose a model")
    if pooling not in (None, "mean") or layer is not None:
        raise ValueError(
            "word vectors: a text is the mean of its words' vectors; leave out pooling and layer"
        )
    return partial(mean_word_vectors, load_word_vectors(model, limit=limit))


def _word_pattern(word: str) -> re.Pattern[str]:
    """Return a pattern of a word, or consecutive words, without adjoining letters or digits.

    Raises:
        ValueError: it is empty or white space.
    """
    parts = [re.escape(part) for part in word.split()]
    if not parts:
        raise ValueError("word must not be empty")
    return re.compile(r"(?<!\w)" + r"\s+".join(parts) + r"(?!\w)", re.IGNORECASE)


def _word_in_context_vectors(
    pipeline: Pipeline, word_pattern: re.Pattern[str], layer: int, texts: Sequence[str]
) -> Float[np.ndarray, "n d"]:
    """Return the mean vector of a word's tokens in each text; zeros if it is missing."""
    tokenizer = pipeline.tokenizer.input_tokenizer
    before, after = len(tokenizer.special_ids.prefix), len(tokenizer.special_ids.suffix)
    spans = {i: use.span() for i, text in enumerate(texts) if (use := word_pattern.search(text))}
    states = pipeline.embed([texts[i] for i in spans], pooling="none", layer=layer)
    vectors = np.zeros((len(texts), states[0].shape[1] if len(states) else 1), np.float32)
    for (i, span), rows in zip(spans.items(), states, strict=True):
        first, last = token_span(*span, tokenizer.offset_array(texts[i]))
        if first >= 0 and last < len(rows) - before - after:  # not truncated
            vectors[i] = rows[before + first : before + last + 1].mean(0)
    return vectors


def _sentence_vectors(
    texts: tuple[str, ...], vectors: Float[np.ndarray, "n d"], word: str | None
) -> KeyedVectors:
    """Return the vectors of texts, only of those with a given word, if any.

    Raises:
        ValueError: no text has the word.
    """
    if word is None:
        return KeyedVectors(texts, vectors)
    has = np.flatnonzero(vectors.any(1))
    if not len(has):
        raise ValueError(f"sentences: none of {len(texts):,} has the word {word!r}")
    return KeyedVectors(tuple(texts[i] for i in has), vectors[has])


@dataclass(frozen=True, kw_only=True)
class _SentenceVectorOptions:
    """Settings of sentence vectors."""

    pooling: EmbeddingPooling | None = None
    """See `Pipeline.embed`. None: that of the preset."""
    layer: int | None = None
    """Layer whose hidden states are used. None: the last."""
    limit: int | None = None
    """Number of word vectors to read, the first ones. None: all."""
    encoding_errors: EncodingErrors = "strict"
    """Handling of bytes that are not valid UTF-8."""

    def __post_init__(self) -> None:
        """Reject values that are not numbers where numbers are expected."""
        check_number_fields(self)


@dataclass(frozen=True)
class NearestSentencesOptions(_SentenceVectorOptions):
    """Queries, candidate sentences, and how their vectors are computed."""

    model: str | Path | Pipeline | KeyedVectors
    """See `sentence_encoder`."""
    queries: str | Sequence[str]
    """Query sentences."""
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
    """Column with the text of a record."""


@takes_options(NearestSentencesOptions)
def nearest_sentences(options: NearestSentencesOptions) -> list[list[Neighbor]]:
    """Find the sentences whose vectors have the highest cosine with those of the queries.

    A query is not a neighbor of itself, and repeated sentences are found once. With a `word`, its
    contextual vectors are compared, to find sentences with a similar use (Peters et al. 2018,
    arXiv:1802.05365, table 4).

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
        raise ValueError("sentences must not be empty")
    vectors = encode(queries)
    for sentence, vector in zip(queries, vectors, strict=True):
        if not vector.any():
            reason = "no word of it has a vector" if word is None else f"it lacks the word {word!r}"
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
    """Correlations of the cosines of sentence vectors with human scores.

    Nothing is trained on the pairs. 0 if either side is constant.
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
    """Columns of the texts. Empty: usual names."""
    label: str | None = None
    """Column of the numbers. None: a usual name."""


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
        raise ValueError(f"similarity needs two columns of text, got only {columns.texts[0]!r}")
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
    """Return unit vectors; zeros stay zero."""
    exact = vectors.astype(np.float64)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    return exact / np.where(lengths > 0, lengths, 1)


def similarity_score_to_dict(score: SentenceSimilarityScore) -> dict[str, Any]:
    """Return a score as plain data."""
    return {{"n_pairs": "pairs"}.get(name, name): value for name, value in vars(score).items()}


def format_similarity_scores(scores: Sequence[SentenceSimilarityScore]) -> list[str]:
    """Format scores as lines."""
    width = max(len("sentence pairs"), *(len(score.name) for score in scores))
    lines = [f"{'sentence pairs':{width}}  {'pairs':>7}  Pearson  Spearman"]
    return lines + [
        f"{score.name:{width}}  {score.n_pairs:>7,}  {score.pearson:7.3f}  {score.spearman:8.3f}"
        for score in scores
    ]
