"""The analysis of attention: a network and its control, on the same sentences."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from unmask.analysis.attention.clusters import cluster_heads, head_distances
from unmask.analysis.attention.findings import AttentionView, NetworkAttention
from unmask.analysis.attention.parser import ParsedSentence, ParserScores, score_parsers
from unmask.analysis.attention.sentences import SentenceMaps, head_names, sentence_maps
from unmask.analysis.attention.statistics import measure_heads
from unmask.analysis.attention.syntax import (
    SyntaxScores,
    frequent_relations,
    predict_heads,
    score_relations,
)
from unmask.analysis.dependencies import DependencyTree
from unmask.analysis.words import SPECIAL, WordPieces, read_words
from unmask.heads.model import Model
from unmask.tokenizers.encode import Tokenizer

CLUSTERED_SENTENCES = 100
"""Sentences on which distances between heads are measured; each pair of heads costs a map."""


@dataclass(frozen=True, kw_only=True)
class AttentionSettings:
    """How much is analyzed."""

    relations: int = 25
    """Most frequent relations that are scored."""
    min_count: int = 20
    """Words of a relation, in training and in test sentences, from which it is scored."""
    parser: bool = True
    """Whether parsers that weigh heads are fitted."""


@dataclass(frozen=True)
class ParsedTexts:
    """Sentences with trees as a model reads them."""

    trees: tuple[DependencyTree, ...]
    pieces: tuple[WordPieces, ...]

    @property
    def n_words(self) -> int:
        """Number of words."""
        return sum(len(one.words) for one in self.trees)


@dataclass(frozen=True, kw_only=True)
class AttentionInputs:
    """What all networks are analyzed on."""

    train: ParsedTexts
    test: ParsedTexts
    shown: tuple[WordPieces, ...]
    """Texts whose maps are kept."""


def read_parsed_texts(
    model: Model, tokenizer: Tokenizer, trees: Sequence[DependencyTree]
) -> ParsedTexts:
    """Encode sentences with trees; those longer than the model's positions are left out.

    Raises:
        ValueError: no sentence is left, or the tokenizer reads texts backward.
    """
    pieces = read_words(model, tokenizer, [tree.words for tree in trees])
    kept = [(t, p) for t, p in zip(trees, pieces, strict=True) if p is not None]
    if not kept:
        raise ValueError(
            f"none of {len(trees):,} sentences fits the positions of this model"
            if trees
            else "no sentences with trees"
        )
    return ParsedTexts(tuple(t for t, _ in kept), tuple(p for _, p in kept))


def static_vectors(model: Model, pieces: WordPieces) -> Float[Tensor, "w d"]:
    """Return the mean of the token embeddings of each word, without context."""
    table = model.backbone.encoder_stack.embedding_table
    with torch.no_grad():
        ids = torch.from_numpy(pieces.token_ids).to(model.device)
        vectors = table(ids).float().cpu()
    words = torch.from_numpy(pieces.word_of_token)
    is_word = words != SPECIAL
    sums = torch.zeros(len(pieces.words), vectors.shape[1]).index_add(
        0, words[is_word], vectors[is_word]
    )
    return sums / torch.bincount(words[is_word], minlength=len(pieces.words))[:, None]


def analyze_network(
    name: str,
    model: Model,
    tokenizer: Tokenizer,
    inputs: AttentionInputs,
    vectors_of: Model,
    settings: AttentionSettings,
) -> NetworkAttention:
    """Measure the heads of a network; see the files beside this one for each measurement.

    Args:
        name: trained or random.
        model: the network.
        tokenizer: its tokenizer.
        inputs: sentences, the same for all networks.
        vectors_of: the network whose token embeddings the parser reads; the trained one for both,
            as Clark et al. 2019 give GloVe vectors to the random network, too.
        settings: how much is analyzed.

    Raises:
        ValueError: the network does not consist of Transformer blocks, or no relation has enough
            words.
    """
    heads = head_names(model)
    train = list(sentence_maps(model, tokenizer, inputs.train.pieces))
    test = list(sentence_maps(model, tokenizer, inputs.test.pieces))
    chosen = predict_heads(inputs.train.trees, train)
    scored = predict_heads(inputs.test.trees, test)
    relations = frequent_relations(chosen, scored, settings.relations, settings.min_count)
    syntax = score_relations(heads, chosen, scored, relations)
    distances = head_distances(test[:CLUSTERED_SENTENCES])
    parser = None
    if settings.parser:
        parser = _score_parser(inputs, train, test, vectors_of, syntax)
    return NetworkAttention(
        name=name,
        statistics=tuple(measure_heads(heads, test)),
        syntax=syntax,
        clusters=cluster_heads(heads, distances, len({one.layer for one in heads})),
        parser=parser,
        views=tuple(_views(model, tokenizer, inputs.shown)),
    )


def _score_parser(
    inputs: AttentionInputs,
    train: Sequence[SentenceMaps],
    test: Sequence[SentenceMaps],
    vectors_of: Model,
    syntax: SyntaxScores,
) -> ParserScores:
    def parsed(texts: ParsedTexts, maps: Sequence[SentenceMaps]) -> list[ParsedSentence]:
        return [
            ParsedSentence(
                texts.trees[one.index], one.words, static_vectors(vectors_of, one.pieces)
            )
            for one in maps
        ]

    best_of_all = syntax.best[0].offset
    return score_parsers(parsed(inputs.train, train), parsed(inputs.test, test), best_of_all)


def _views(model: Model, tokenizer: Tokenizer, shown: Sequence[WordPieces]) -> list[AttentionView]:
    by_index = {one.index: one for one in sentence_maps(model, tokenizer, shown)}
    return [
        AttentionView(
            tuple(pieces.labels(tokenizer.input_tokenizer)),
            tuple((pieces.word_of_group == SPECIAL).tolist()),
            np.asarray(by_index[i].groups),
        )
        for i, pieces in enumerate(shown)
    ]
