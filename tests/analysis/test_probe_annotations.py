"""Sentences to probe for: tasks of a file, splits, pairs of words and bad files."""

from pathlib import Path

import numpy as np
import pytest
import torch

from unmask.analysis.dependencies import DependencyTree
from unmask.analysis.probes.annotations import AnnotatedSentences, read_annotated
from unmask.analysis.probes.edges import relation_words, words_without_punctuation
from unmask.analysis.probes.features import WordFeatures
from unmask.analysis.probes.spans.targets import SpanTarget

ROW = "{}\t{}\t_\t{}\t_\t_\t{}\t{}\t_\t_\n"
DOG = "".join(
    ROW.format(*row)
    for row in (
        (1, "the", "DET", 2, "det"), (2, "dog", "NOUN", 3, "nsubj"),
        (3, "barks", "VERB", 0, "root"), (4, ".", "PUNCT", 3, "punct"),
    )
)  # fmt: skip
TREE = DependencyTree(
    ("the", "dog", "barks", "."), (1, 2, -1, 2), ("det", "nsubj", "root", "punct")
)


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_tasks_of_a_file_are_those_that_its_kind_has(tmp_path: Path) -> None:
    found = read_annotated(put(tmp_path, "a.conllu", f"{DOG}\n{DOG}"))
    assert found.tasks == ("tags", "relations", "distances", "depths")
    assert found.sentences.labels == (("DET", "NOUN", "VERB", "PUNCT"),) * 2
    assert found.sentences.trees[1].heads == TREE.heads
    tags = put(tmp_path, "a.txt", "The DT B-NP\ndog NN I-NP\n\nbarks VBZ B-VP\n")
    found = read_annotated(tags)
    assert found.tasks == ("labels", "spans")
    assert found.sentences.labels == (("B-NP", "I-NP"), ("B-VP",))
    assert found.sentences.spans == ((SpanTarget((0, 2), "NP"),), (SpanTarget((0, 1), "VP"),))
    assert read_annotated(tags, ("labels",)).sentences.spans == ()
    assert read_annotated(tags, label_column=2).tasks == ("labels",)
    with pytest.raises(ValueError, match=r"a\.txt:1: spans need labels .* as B-X.* got 'DT'"):
        read_annotated(tags, ("spans",), label_column=2)
    column = read_annotated(tags, label_column=2).sentences
    assert column.words == (("The", "dog"), ("barks",))
    assert column.labels == (("DT", "NN"), ("VBZ",))


def test_parts_of_speech_need_no_tree_and_trees_need_none_of_them(tmp_path: Path) -> None:
    flat = put(tmp_path, "flat.conllu", "1\ta\t_\tDET\t_\t_\t_\t_\t_\t_\n")
    assert read_annotated(flat, ("tags",)).sentences.trees == ()
    with pytest.raises(ValueError, match=r"flat\.conllu:1: this sentence has no dependency tree"):
        read_annotated(flat, ("depths",))
    untagged = put(tmp_path, "untagged.conllu", DOG.replace("NOUN", "_"))
    assert read_annotated(untagged, ("depths",)).sentences.labels == ()
    with pytest.raises(ValueError, match=r"untagged\.conllu:1: the word 'dog' has no part of sp"):
        read_annotated(untagged)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("two.conllu", DOG.replace("2\tdet", "0\troot"), "two.conllu:1: .* make no tree"),
        ("ring.conllu", DOG.replace("3\tnsubj", "1\tnsubj"), "ring.conllu:1: .* make no tree"),
        ("empty.conllu", "", "the file is empty"),
        ("words.txt", "The\ndog\n", "one word and its labels per line .* got the columns words"),
        ("table.jsonl", '{"text": "a"}\n', "one word and its labels per line .*columns text"),
    ],
)
def test_bad_files_are_refused_by_name(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_annotated(put(tmp_path, name, text))


def test_tasks_and_columns_of_another_kind_of_file_are_refused(tmp_path: Path) -> None:
    trees, tags = put(tmp_path, "a.conllu", DOG), put(tmp_path, "a.conll", "The DT\ndog NN\n")
    with pytest.raises(ValueError, match="tasks of a file of tags are labels, spans, got 'depths'"):
        read_annotated(tags, ("depths",))
    with pytest.raises(ValueError, match=r"tasks of a CoNLL-U file are tags, .* got 'labels'"):
        read_annotated(trees, ("labels",))
    with pytest.raises(ValueError, match="label_column is of files of tags"):
        read_annotated(trees, label_column=2)
    with pytest.raises(ValueError, match="label_column must be from 2 to 2, got 9"):
        read_annotated(tags, label_column=9)


@pytest.mark.parametrize(("n", "stop"), [(2, [1]), (4, [3]), (5, [4]), (12, [4, 9])])
def test_every_fifth_sentence_stops_the_training(n: int, stop: list[int]) -> None:
    words = tuple((str(i),) for i in range(n))
    fit, other = AnnotatedSentences(words=words, labels=words).split_to_stop()
    assert [int(w[0]) for w in other.labels] == stop
    assert [int(w[0]) for w in fit.words] == [i for i in range(n) if i not in stop]
    with pytest.raises(ValueError, match="one sentence"):
        AnnotatedSentences(words=words[:1]).split_to_stop()


def test_pairs_of_words_are_a_word_and_its_head_without_root_and_punctuation() -> None:
    # the sentence of the middle was too long for the model
    words = np.array([0, 1, 2, 3, 0, 1, 2, 3])
    vectors = torch.arange(8.0)[:, None].repeat(1, 2)
    features = WordFeatures((vectors, -vectors), np.repeat([0, 2], 4), words)
    found = relation_words(features, [TREE] * 3)
    assert found.labels == ("det", "nsubj") * 2
    assert found.word_types == ("the", "dog") * 2
    wanted = torch.tensor([[0.0, 1.0], [1.0, 2.0], [4.0, 5.0], [5.0, 6.0]])
    wanted = wanted.repeat_interleave(2, 1)  # [h_word; h_head], each of width 2
    assert torch.equal(found.features.layers[0], wanted)
    assert torch.equal(found.features.layers[1], -wanted)
    assert words_without_punctuation(TREE) == (True, True, True, False)
    alone = DependencyTree(("Yes",), (-1,), ("root",))
    single = WordFeatures((vectors[:1],), np.array([0]), np.array([0]))
    with pytest.raises(ValueError, match="no word has a head"):
        relation_words(single, [alone])
