"""Senses of words: WiC's files, pseudo-words, thresholds, and nearest occurrences."""

import json
import lzma
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unmask.analysis.hidden_states.senses.neighbors import nearest_occurrences
from unmask.analysis.hidden_states.senses.thresholds import (
    best_threshold,
    measure_other_words,
    measure_senses,
    sentences_of,
    split_rows,
)
from unmask.analysis.hidden_states.senses.word_pairs import (
    WordPair,
    pseudo_word_pairs,
    read_word_pairs,
    split_by_word,
)
from unmask.analysis.probes.features import WordFeatures

LINE = "bank\tN\t2-1\tBy the bank .\tMy bank closed"
ROW = {
    "word": "bank", "indices": "2-1", "sentence1": "By the bank .", "sentence2": "My bank closed",
    "label": "F",
}  # fmt: skip
PAIR = WordPair(
    word="bank", first=("By", "the", "bank", "."), second=("My", "bank", "closed"), first_index=2,
    second_index=1, same=False,
)  # fmt: skip


def test_layouts_of_files(tmp_path: Path) -> None:
    (tmp_path / "dev.data.txt").write_text(f"{LINE}\n{LINE}\n")
    (tmp_path / "dev.gold.txt").write_text("F\nT\n")
    first, second = read_word_pairs(tmp_path / "dev.data.txt")
    assert (first, second.same) == (PAIR, True)
    (tmp_path / "pairs.jsonl").write_text(json.dumps(ROW | {"label": False}))
    assert read_word_pairs(tmp_path / "pairs.jsonl") == [PAIR]
    table = "\t".join(ROW) + "\n" + "\t".join(ROW.values()) + "\n"
    packed = tmp_path / "pairs.tsv.xz"
    packed.write_bytes(lzma.compress(table.encode()))
    assert read_word_pairs(packed) == [PAIR]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"indices": "2"}, r':1: indices must be two numbers like "2-1", got'),
        ({"indices": "4-1"}, r"a sentence of 4 words has no word 4 \(the first is 0\)"),
        ({"sentence2": None}, "a sentence of 0 words has no word 1"),
        ({"label": "maybe"}, "label must be T or F, got str"),
    ],
)
def test_bad_rows_are_refused(row: dict[str, str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps(ROW | row))
    with pytest.raises(ValueError, match=message):
        read_word_pairs(path)


def test_bad_files_are_refused(tmp_path: Path) -> None:
    data = tmp_path / "dev.data.txt"
    data.write_text(f"{LINE}\n")
    with pytest.raises(FileNotFoundError, match=r"dev\.gold\.txt: no such file"):
        read_word_pairs(data)
    (tmp_path / "dev.gold.txt").write_text("F\nT\n")
    with pytest.raises(ValueError, match=r"has 1 lines and .* 2; the lines must correspond"):
        read_word_pairs(data)
    (tmp_path / "dev.gold.txt").write_text("F\n")
    data.write_text("bank\tN\t2-1\n")
    with pytest.raises(ValueError, match="got 3 fields"):
        read_word_pairs(data)
    (tmp_path / "other.jsonl").write_text('{"word": "a"}')
    with pytest.raises(ValueError, match="need a column 'indices'"):
        read_word_pairs(tmp_path / "other.jsonl")


TEXT = [("x", word, str(i), "and") for i in range(9) for word in ("door", "wind", "lamp", "king")]


def test_pseudo_words_take_two_words_for_one() -> None:
    text = [*TEXT, ("door", "door"), ("Door", "a"), ("the", "cat")]
    pairs = pseudo_word_pairs(text, n_words=2, per_word=8, seed=1)
    words = dict.fromkeys(pair.word for pair in pairs)
    assert len(words) == 2
    assert sorted(word for one in words for word in one.split("/")) == sorted(
        ["door", "king", "lamp", "wind"]
    )
    assert sum(pair.same for pair in pairs) == 8
    used: list[str] = []
    for pair in pairs:
        origins = []
        for sentence, at in ((pair.first, pair.first_index), (pair.second, pair.second_index)):
            assert sentence[at] == pair.word
            number = sentence[2]
            origin = [w for w in pair.word.split("/") if ("x", w, number, "and") in text]
            assert len(origin) == 2  # numbers do not tell words apart; the order of drawing does
            origins.append(number)
        used += [f"{pair.word} {one}" for one in origins]
    # of 8 pairs of a pseudo-word 16 occurrences, 8 of each word: none of them twice
    assert max(used.count(one) for one in used) <= 2
    assert pairs == pseudo_word_pairs(text, n_words=2, per_word=8, seed=1)
    assert pairs != pseudo_word_pairs(text, n_words=2, per_word=8, seed=2)
    with pytest.raises(ValueError, match=r"need 6 words of 4 letters or more .* got 4"):
        pseudo_word_pairs(text, n_words=3, per_word=8, seed=1)


def test_pseudo_words_have_the_sense_of_the_word_that_was_there() -> None:
    text = [(f"near_{word}", word) for _ in range(8) for word in ("door", "wind")]
    pairs = pseudo_word_pairs(text, n_words=1, per_word=8, seed=0)
    assert [pair.first[0] == pair.second[0] for pair in pairs] == [pair.same for pair in pairs]
    assert {pair.first for pair in pairs} == {
        ("near_door", pairs[0].word), ("near_wind", pairs[0].word),
    }  # fmt: skip


def test_words_are_of_one_part_only() -> None:
    pairs = pseudo_word_pairs(TEXT, n_words=2, per_word=8, seed=0)
    first, second = split_by_word(pairs)
    assert len(first) == len(second) == 8
    assert not {one.word for one in first} & {one.word for one in second}


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=12))
def test_no_threshold_is_better(pairs: list[tuple[int, bool]]) -> None:
    cosines, same = np.array([x / 6 for x, _ in pairs]), np.array([y for _, y in pairs])
    found = best_threshold(cosines, same)
    accuracy = ((cosines >= found) == same).mean()
    assert accuracy == max(
        ((cosines >= at) == same).mean() for at in np.linspace(-0.05, 1.05, 23 * 6)
    )


def made(vectors: list[list[float]], pairs: list[WordPair]) -> WordFeatures:
    places = [(i, k) for i, one in enumerate(sentences_of(pairs)) for k in range(len(one))]
    sentences, words = (np.array(column) for column in zip(*places, strict=True))
    return WordFeatures((torch.tensor(vectors),), sentences, words)


def two_words(same: bool) -> WordPair:
    return WordPair(
        word="b", first=("a", "b"), second=("a", "b"), first_index=1, second_index=1, same=same
    )


def test_cosines_of_the_words_and_of_the_others() -> None:
    train = [two_words(True), two_words(False)]
    east, north, west = [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]
    features = made(
        [
            *(east, east, east, east, east, east, east, north),
            *(north, east, north, east, east, west, north, east),
        ],
        [*train, *train],
    )  # words of one sense are alike in both sets; the others are alike in the first pair of each
    rows = split_rows(features, train, train)
    (layer,) = measure_senses(features, rows)
    assert (layer.threshold, layer.train_accuracy) == (0.5, 1)
    assert layer.scored.accuracy == 1
    assert (layer.same_cosine, layer.different_cosine) == (1, -1)
    others = measure_other_words(features, [*train, *train], rows)
    assert (others.same_cosine, others.different_cosine) == (1, 0)
    assert others.train_accuracy == 0.5  # all others are equal there: no threshold tells them apart


def test_pairs_that_do_not_fit_are_counted() -> None:
    pairs = [two_words(True), two_words(False), two_words(True)]
    features = made([[1.0, 0.0]] * 20, [*pairs, *pairs[:2]])
    kept = features.sentences != 1
    short = WordFeatures(
        (features.layers[0][torch.from_numpy(kept)],), features.sentences[kept],
        features.words[kept],
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"1 pairs fit .* and must have both labels"):
        split_rows(short, pairs[:2], pairs[1:])
    found = split_rows(short, pairs, pairs[:2])
    assert found.n_skipped == 1
    assert found.train.same.tolist() == [False, True]


def test_nearest_occurrences_are_of_other_sentences() -> None:
    sentences = [("Bank", "money"), ("bank", "river"), ("a", "bank", "money")]
    east, north = [1.0, 0.0], [0.0, 1.0]
    vectors = [east, east, north, north, [0.9, 0.8], [0.9, 0.2], [0.8, 0.1]]
    places = [(i, k) for i, one in enumerate(sentences) for k in range(len(one))]
    columns = [np.array(column) for column in zip(*places, strict=True)]
    features = WordFeatures((torch.tensor(vectors),), columns[0], columns[1])
    first, second, _ = nearest_occurrences(features, sentences, "bank", 0, 3, 1)
    assert first.occurrence.word == "Bank"
    ((near, cosine),) = first.same_word
    assert (near.before, near.word, near.after) == ("a", "bank", "money")
    assert cosine == pytest.approx(0.9 / np.hypot(0.9, 0.2))
    assert first.other_words[0][0] == "money"
    assert second.other_words[0][0] == "a"
    with pytest.raises(ValueError, match="'river' in fewer than two sentences"):
        nearest_occurrences(features, sentences, "river", 0, 3, 1)
