"""Statistics, relations, clusters and parsers of heads whose attention is known."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from small_models import make, tokenizer

from unmask.analysis.attention.analyze import static_vectors
from unmask.analysis.attention.clusters import cluster_heads, head_distances
from unmask.analysis.attention.parser import ParsedSentence, score_parsers
from unmask.analysis.attention.sentences import (
    HeadName,
    SentenceMaps,
    head_names,
    sentence_maps,
)
from unmask.analysis.attention.statistics import measure_heads
from unmask.analysis.attention.syntax import (
    ALL_RELATIONS,
    DIRECTIONS,
    adjust_p_values,
    most_attended,
    predict_heads,
    score_relations,
)
from unmask.analysis.dependencies import ROOT, DependencyTree
from unmask.analysis.words import SPECIAL, WordPieces, merge_to_words, read_words, split_words

HEADS = (HeadName(1, 1), HeadName(1, 2))


def pieces(*word_of_token: int) -> WordPieces:
    words = tuple(f"w{i}" for i in range(max(word_of_token) + 1))
    return WordPieces(words, np.arange(len(word_of_token)), np.array(word_of_token))


def random_tree(rng: np.random.Generator, n: int) -> DependencyTree:
    """Draw a tree of n words whose root is the first."""
    heads = [ROOT, *(int(rng.integers(0, i)) for i in range(1, n))]
    relations = ["root", *rng.choice(["det", "obj"], n - 1).tolist()]
    return DependencyTree(tuple(f"w{i}" for i in range(n)), tuple(heads), tuple(relations))


def maps_of(tree: DependencyTree, index: int, rng: np.random.Generator) -> SentenceMaps:
    """Make two heads: dependents attend to their heads; and nothing is to be learned."""
    n = len(tree.words)
    found = torch.full((n, n), 0.01)
    for i, head in enumerate(tree.heads):
        found[i, max(head, 0)] = 1
    both = torch.stack((found, torch.tensor(rng.random((n, n)), dtype=torch.float32)))
    both = both / both.sum(-1, keepdim=True)
    return SentenceMaps(index, pieces(*range(n)), both, both)


def corpus(seed: int, n: int = 30) -> tuple[list[DependencyTree], list[SentenceMaps]]:
    rng = np.random.default_rng(seed)
    trees = [random_tree(rng, int(rng.integers(4, 9))) for _ in range(n)]
    return trees, [maps_of(tree, i, rng) for i, tree in enumerate(trees)]


def test_attention_to_a_word_is_summed_and_from_a_word_averaged() -> None:
    text = pieces(SPECIAL, 0, 1, 1, SPECIAL)
    assert text.group_of_token.tolist() == [0, 1, 2, 2, 3]
    assert text.word_of_group.tolist() == [SPECIAL, 0, 1, SPECIAL]
    tokens = torch.rand(3, 5, 5).softmax(-1)
    merged = merge_to_words(tokens, text)
    assert merged.shape == (3, 4, 4)
    torch.testing.assert_close(merged.sum(-1), torch.ones(3, 4))
    torch.testing.assert_close(merged[:, 1, 2], tokens[:, 1, 2:4].sum(1))
    torch.testing.assert_close(merged[:, 2, 1], tokens[:, 2:4, 1].mean(1))


def test_adjacent_special_tokens_are_groups_of_their_own() -> None:
    assert pieces(SPECIAL, SPECIAL, 0, 0).group_of_token.tolist() == [0, 1, 2, 2]


def test_words_are_encoded_with_the_special_tokens_of_a_text() -> None:
    known = tokenizer("bert")
    text, missing = split_words(known, [["the", "x\u200by", "dog"], ["the"] * 9], 8)
    assert text is not None
    assert missing is None
    assert text.word_of_token[[0, -1]].tolist() == [SPECIAL, SPECIAL]
    assert sorted(set(text.word_of_token.tolist())) == [SPECIAL, 0, 1, 2]
    assert text.labels(known)[0] == "[CLS]"
    assert text.labels(known)[1] == "the"


def test_statistics_of_a_known_map() -> None:
    text = pieces(SPECIAL, 0, 1, SPECIAL)
    rows = torch.tensor([[0.25] * 4, [0.5, 0.5, 0, 0], [0, 0.2, 0.3, 0.5], [0.25] * 4])
    (found,) = measure_heads(HEADS[:1], [SentenceMaps(0, text, rows[None], rows[None])])
    entropy = (np.log(2) - 0.2 * np.log(0.2) - 0.3 * np.log(0.3) - 0.5 * np.log(0.5)) / 2
    assert found.entropy == pytest.approx(entropy, abs=1e-6)
    assert found.special == pytest.approx(0.5)
    assert found.separator == pytest.approx(0.25)
    assert found.first == pytest.approx(0.25)
    assert found.itself == pytest.approx(0.4)
    assert found.previous == pytest.approx(0.1)
    assert found.following == pytest.approx(0)


def test_a_head_that_finds_heads_is_chosen_and_scored() -> None:
    train, test = (predict_heads(*corpus(seed)) for seed in (0, 1))
    scores = score_relations(HEADS, train, test, (ALL_RELATIONS, "det", "obj"))
    for one in scores.best:
        assert (one.head, one.direction) == (HEADS[0], DIRECTIONS[0])
        assert one.accuracy == 1
        assert one.offset_accuracy < 0.7
        assert one.beats_offset
    assert scores.n_above_offset == 2
    assert scores.accuracies.shape == (2, 2, 3)
    assert scores.accuracies[0, 1, 0] < 0.5


def test_attention_of_the_head_is_the_other_direction() -> None:
    trees, maps = corpus(0)
    turned = [SentenceMaps(m.index, m.pieces, m.tokens, m.groups.mT) for m in maps]
    predictions = predict_heads(trees, turned)
    assert predictions.by_head[1, 0].all()
    assert not predictions.by_head[0, 0].all()


def test_a_word_that_attends_to_no_other_has_no_prediction() -> None:
    causal = torch.tensor([[[1.0, 0, 0], [0.5, 0.5, 0], [0.1, 0.2, 0.7]]])
    assert most_attended(causal).tolist() == [[-1, 0, 1]]


def test_roots_and_punctuation_are_not_scored() -> None:
    tree = DependencyTree(("a", "b", "."), (ROOT, 0, 0), ("root", "obj", "punct"))
    assert tree.scored == [1]


def test_p_values_are_adjusted_by_holm() -> None:
    assert adjust_p_values([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert adjust_p_values([]) == []


def test_distances_equal_scipy() -> None:
    _, maps = corpus(2, n=3)
    distances = head_distances(maps)
    rows = [(one.groups[0][i], one.groups[1][i]) for one in maps for i in range(len(one.groups[0]))]
    wanted = np.mean([jensenshannon(p, q) ** 2 for p, q in rows])
    assert float(distances[0, 1]) == pytest.approx(wanted, abs=1e-6)
    clusters = cluster_heads(HEADS, distances, 2)
    assert sorted(clusters.clusters.tolist()) == [1, 2]
    gap = np.linalg.norm(clusters.positions[0] - clusters.positions[1])
    assert gap == pytest.approx(float(distances[0, 1]), abs=1e-6)
    assert clusters.within_layers == pytest.approx(float(distances[0, 1]))


def test_a_parser_that_weighs_heads_finds_the_one_that_knows() -> None:
    rng = np.random.default_rng(0)

    def parsed(seed: int) -> list[ParsedSentence]:
        trees, maps = corpus(seed)
        return [
            ParsedSentence(t, m.words, torch.tensor(rng.normal(size=(len(t.words), 3))).float())
            for t, m in zip(trees, maps, strict=True)
        ]

    scores = score_parsers(parsed(0), parsed(1), -1)
    assert scores.attention == 1
    assert scores.attention_and_vectors > 0.95
    assert scores.offset < 0.7


def test_maps_of_a_model_are_those_of_its_sentences_alone(tmp_path) -> None:
    _, loaded = make("bert", tmp_path)
    assert loaded.tokenizer is not None
    sentences = [["the", "dog", "sees"], ["a", "cat"], ["the", "old", "house", "falls", "down"]]
    read = [one for one in read_words(loaded.model, loaded.tokenizer, sentences) if one is not None]
    found = {one.index: one for one in sentence_maps(loaded.model, loaded.tokenizer, read)}
    assert sorted(found) == [0, 1, 2]
    assert len(head_names(loaded.model)) == 12
    (alone,) = sentence_maps(loaded.model, loaded.tokenizer, read[1:2])
    torch.testing.assert_close(found[1].groups, alone.groups, atol=1e-5, rtol=1e-4)
    assert found[2].words.shape == (12, 5, 5)
    assert static_vectors(loaded.model, read[0]).shape == (3, 32)
