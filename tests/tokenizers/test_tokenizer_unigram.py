import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_cases import story
from tokenizers import Tokenizer, models

from unmask.tokenizers.learn import unigram
from unmask.tokenizers.learn.unigram import learn_unigram

WORDS = st.dictionaries(
    st.text(st.sampled_from("▁abé1."), min_size=1, max_size=7), st.integers(1, 20), min_size=1
)


def counted(text: str) -> dict[str, int]:
    words: dict[str, int] = {}
    for word in text.split():
        words["▁" + word] = words.get("▁" + word, 0) + 1
    return words


def cuts(word: str, score: dict[str, float]) -> list[tuple[str, ...]]:
    """List all ways to cut a word into pieces, by going through all of them."""
    found = []
    for n in range(len(word)):
        for borders in itertools.combinations(range(1, len(word)), n):
            parts = [word[a:b] for a, b in itertools.pairwise((0, *borders, len(word)))]
            if all(part in score for part in parts):
                found.append(tuple(parts))
    return found


def build_lattice(words: dict[str, int]):
    """Return the lattice of words over all their frequent substrings, and these, spelled."""
    corpus = unigram._build_corpus(words)
    letters = np.unique(corpus.text)
    corpus = unigram._Corpus(np.searchsorted(letters, corpus.text), corpus.lengths, corpus.counts)
    trie, pieces = unigram._seed_pieces(corpus, unigram._character_classes(letters), 1000)
    spelled = [
        "".join(chr(letters[c]) for c in pieces.text[a : a + n])
        for a, n in zip(pieces.start, pieces.length, strict=True)
    ]
    return corpus, trie, pieces, spelled


@settings(max_examples=60)
@given(words=WORDS, seed=st.integers(0, 99))
def test_expected_counts_equal_enumeration(words: dict[str, int], seed: int):
    corpus, trie, _, spelled = build_lattice(words)
    probability = np.random.default_rng(seed).uniform(0.01, 1, len(spelled))
    score = dict(zip(spelled, np.log(probability), strict=True))
    expected = dict.fromkeys(spelled, 0.0)
    for word, count in words.items():
        ways = {cut: math.exp(sum(score[p] for p in cut)) for cut in cuts(word, score)}
        for cut, weight in ways.items():
            for piece in cut:
                expected[piece] += count * weight / sum(ways.values())
    found = unigram._expectation(unigram._build_lattice(corpus, trie), probability)
    np.testing.assert_allclose(found, [expected[p] for p in spelled], rtol=1e-9, atol=1e-12)


@settings(max_examples=60)
@given(words=WORDS, seed=st.integers(0, 99))
def test_best_segmentation_equals_enumeration(words: dict[str, int], seed: int):
    corpus, trie, _, spelled = build_lattice(words)
    probability = np.random.default_rng(seed).uniform(0.01, 1, len(spelled))
    score = dict(zip(spelled, np.log(probability), strict=True))
    found: list[list[str]] = [[] for _ in words]
    for word, piece in unigram._viterbi_segmentations(
        unigram._build_lattice(corpus, trie), probability
    ):
        for w, p in zip(word.tolist(), piece.tolist(), strict=True):
            found[w].insert(0, spelled[p])
    order = sorted(words, key=lambda word: (-words[word], word))
    for word, cut in zip(order, found, strict=True):
        best = max(cuts(word, score), key=lambda parts: sum(score[p] for p in parts))
        assert "".join(cut) == word
        assert sum(score[p] for p in cut) == pytest.approx(sum(score[p] for p in best))


@settings(max_examples=60)
@given(words=WORDS, size=st.integers(6, 30))
def test_pieces_are_frequent_substrings_of_one_character_class(words: dict[str, int], size: int):
    pieces = learn_unigram(words, size)
    spelled = [piece for piece, _ in pieces]
    assert len(set(spelled)) == len(spelled) <= size
    assert {c for word in words for c in word} <= set(spelled)
    for piece in spelled:
        assert len(piece) == 1 or sum(w.count(piece[0]) * n for w, n in words.items()) >= 2
        bare = piece.replace("▁", "")
        assert bare.isalpha() or bare.isdecimal() or not any(c.isalnum() for c in bare)
    assert [s for _, s in pieces] == sorted((s for _, s in pieces), reverse=True)
    assert learn_unigram(dict(reversed(words.items())), size) == pieces, (
        "the order of counting is nothing"
    )


def test_characters_are_pieces_even_beyond_the_size():
    assert {piece for piece, _ in learn_unigram({"▁abc": 9, "▁abd": 3}, 2)} == set("▁abcd")


def test_frequent_words_are_pieces():
    pieces = [piece for piece, _ in learn_unigram(counted(story()), 60)]
    assert {"▁the", "▁king", "▁old", "▁silver"} <= set(pieces)
    assert len(pieces) == 60


def bits(pieces: list[tuple[str, float]], text: str) -> float:
    """Return the cost of a text: minus the log likelihood of its best cut, in bits."""
    score = dict(pieces)
    model = Tokenizer(models.Unigram([("<unk>", 0.0), *pieces], 0, False))
    total = 0.0
    for word in text.split():
        total -= sum(score[t] for t in model.encode("▁" + word).tokens)
    return total / math.log(2)


def test_pieces_are_no_worse_than_sentencepiece(tmp_path):
    import sentencepiece

    words = " ".join(c for c in story(2000).lower().split() if c.isalpha())
    (tmp_path / "text").write_text("\n".join(words.split()), "utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "text"), model_prefix=str(tmp_path / "m"), vocab_size=60,
        hard_vocab_limit=False, minloglevel=2, normalization_rule_name="identity",
        character_coverage=1.0, num_threads=1,
    )  # fmt: skip
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "m.model"))
    n = theirs.get_piece_size()
    reference = [(theirs.id_to_piece(i), theirs.get_score(i)) for i in range(3, n)]
    ours = learn_unigram(counted(words), len(reference))
    assert bits(ours, words) < 1.05 * bits(reference, words)


def test_digamma_equals_scipy():
    from scipy.special import digamma

    x = np.geomspace(0.5, 1e9, 200)
    np.testing.assert_allclose(unigram._digamma(x), digamma(x), rtol=0, atol=1e-8)


def test_long_words_are_cut_and_only_frequent_ones_used(monkeypatch: pytest.MonkeyPatch):
    pieces = dict(learn_unigram({"▁" + "ab" * 500: 3}, 10))
    assert max(map(len, pieces)) <= unigram.MAX_PIECE_CHARACTERS
    monkeypatch.setattr(unigram, "MAX_TRAINING_CHARACTERS", 8)
    pieces = dict(learn_unigram({"▁ab": 9, "▁abab": 5, "▁zz": 2}, 10))
    assert "z" not in pieces


def test_word_of_zero_probability_contributes_nothing():
    corpus, trie, _, spelled = build_lattice({"ab" * 16: 2, "a": 1})
    tiny = np.full(len(spelled), 1e-200)
    expected = unigram._expectation(unigram._build_lattice(corpus, trie), tiny)
    assert np.isfinite(expected).all()
