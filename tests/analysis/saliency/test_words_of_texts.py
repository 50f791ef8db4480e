"""Which tokens are of which word: of texts, pairs, texts that are cut, and sources with a frame."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_models import make, tokenizer

from unmask.analysis.saliency.labels import label_decisions, split_text
from unmask.analysis.words import SPECIAL
from unmask.finetuning.results.predict import infer_task, make_items
from unmask.tasks.task import Task, TaskColumns

TEXT = "  the  cat sees\tthe dog ."


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_tokens_of_a_word_spell_it(family: str) -> None:
    known = tokenizer(family)
    split = split_text(known, TEXT)
    ids = known.encode(TEXT).ids
    assert len(split.word_of_token) == len(ids)
    assert (np.diff(split.word_of_token) >= 0).all()
    for i, word in enumerate(split.words):
        assert known.decode(ids[split.word_of_token == i]).strip().replace(" ", "") == word
    assert split.words == tuple(TEXT.split())


def test_a_text_without_words_has_none() -> None:
    assert split_text(tokenizer("bert"), " \n ").words == ()


def test_pairs_that_are_cut_keep_words_and_tokens_together(tmp_path: Path) -> None:
    _, loaded = make("bert", tmp_path, "BertForSequenceClassification")
    known = tokenizer("bert")
    task = replace(infer_task(loaded), max_length=12)
    pair = ("the cat sees the dog . " * 4, "the dog sees . " * 3)
    (decision,) = label_decisions(loaded, task, make_items(task, [pair]))
    assert decision is not None
    pieces = decision.pieces
    assert len(pieces.token_ids) == 12
    special = set(known.special_ids.all_ids)
    is_special = np.isin(pieces.token_ids, list(special))
    assert ((pieces.word_of_token == SPECIAL) == is_special).all()
    assert sorted(set(pieces.word_of_token[~is_special])) == list(range(len(pieces.words)))
    for i, word in enumerate(pieces.words[:2]):
        assert known.decode(pieces.token_ids[pieces.word_of_token == i]).replace(" ", "") == word
    labels = pieces.labels(known)
    assert labels[0] == "[CLS]"
    assert labels.count("[SEP]") == 2


def test_words_around_a_text_are_not_its_words(tmp_path: Path) -> None:
    _, loaded = make("t5", tmp_path)
    columns = TaskColumns(texts=("text",), label="label")
    task = Task(task_kind="classify", columns=columns, labels=("good", "bad"), task_name="cat")
    (decision,) = label_decisions(loaded, task, make_items(task, ["the dog sees the cat"]))
    assert decision is not None
    assert decision.pieces.words == ("the", "dog", "sees", "the", "cat")
    known = tokenizer("t5")
    own = decision.pieces.token_ids[decision.pieces.word_of_token != SPECIAL]
    assert known.decode(own) == "the dog sees the cat"
    assert known.decode(decision.pieces.token_ids).startswith("cat text the dog")


def test_a_text_without_a_word_has_no_decision(tmp_path: Path) -> None:
    _, loaded = make("bert", tmp_path, "BertForSequenceClassification")
    task = infer_task(loaded)
    found = label_decisions(loaded, task, make_items(task, ["the cat", " "]))
    assert [one is None for one in found] == [False, True]
