"""Texts with blanks: files of both kinds, answers of one token, and accuracies."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import make, tokenizer

from unmask.analysis.behavior.blanks import ClozeItem, choice_likelihoods
from unmask.analysis.behavior.cloze_data import (
    count_multi_token_items,
    read_cloze,
    sample_items,
    single_token_items,
)
from unmask.analysis.behavior.cloze_scores import (
    ClozeAccuracies,
    chance_by_group,
    score_cloze,
    score_most_frequent,
)
from unmask.analysis.behavior.sentences import sentence_likelihoods

CHOICES = [{"label": "A", "text": "younger"}, {"label": "B", "text": "older"}]
QUESTION = {"stem": "He is [MASK] than her.", "choices": CHOICES}
CHOICE_ROW = {"id": "1", "question": QUESTION, "answerKey": "B"}
FACT = {"relation": "P19", "subject": "Ann", "object": "Rome", "sentence": "Ann is from [MASK]."}
OTHER_FACT = FACT | {"subject": "Bo", "object": "Kiel", "sentence": "Bo came from [MASK]."}


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_multiple_choice(tmp_path: Path) -> None:
    data = read_cloze(write(tmp_path / "age_dev.jsonl", CHOICE_ROW))
    item = ClozeItem("He is ", " than her.", ("younger", "older"), 1, "age_dev")
    assert data.items == (item,)
    assert not data.are_facts


ENTITY_ROW = {"input_prefix": "It is in ", "options": ["a box.", "a bag."], "numops": 2}


def test_options_after_a_text(tmp_path: Path) -> None:
    write(tmp_path / "regular.jsonl", ENTITY_ROW, ENTITY_ROW | {"numops": 0})
    write(tmp_path / "age.jsonl", CHOICE_ROW)
    data = read_cloze(tmp_path)
    assert not data.are_facts
    assert [one.group for one in data.items] == [
        "age", "regular, 2 operations", "regular, 0 operations",
    ]  # fmt: skip
    option = ClozeItem("It is in ", "", ("a box.", "a bag."), 0, "regular, 2 operations")
    assert data.items[1] == option


def test_options_are_scored_as_sentences_after_a_context(tmp_path: Path) -> None:
    """By a decoder and, with single tokens masked, by a masked model: as BabyLM's evaluation."""
    one = ClozeItem("the old king saw ", "", ("the gatehouse at night.", "her."), 0, "a")
    for family in ("gpt2", "bert"):
        model, known = make(family, tmp_path / family)[1].model, tokenizer(family)
        found = choice_likelihoods(model, known, [one], answer_masking="token")[0]
        expected = sentence_likelihoods(
            model, known, one.choices, contexts=[one.before.strip()] * 2, pll_masking="token"
        )
        for a, b in zip(found, expected, strict=True):
            assert a.log_likelihood == pytest.approx(b.log_likelihood, rel=1e-5)
            assert a.n_tokens == b.n_tokens
    other = choice_likelihoods(model, known, [one])[0]
    assert other[0].log_likelihood != pytest.approx(found[0].log_likelihood, abs=1e-4)


def test_facts_from_sentences_and_templates(tmp_path: Path) -> None:
    path = write(tmp_path / "facts.jsonl", FACT, OTHER_FACT)
    data = read_cloze(path)
    both = ("Rome", "Kiel")
    assert data.are_facts
    assert data.items == (
        ClozeItem("Ann is from ", ".", both, 0, "P19"),
        ClozeItem("Bo came from ", ".", both, 1, "P19"),
    )
    templates = write(
        tmp_path / "relations.jsonl",
        {"relation": "P19", "template": "[X] was born in [Y] .", "label": "place of birth"},
    )
    named = read_cloze(path, templates)
    assert named.items[1] == ClozeItem("Bo was born in ", " .", both, 1, "P19 place of birth")
    original = {"predicate_id": "P19", "sub_label": "Ann", "obj_label": "Rome"}
    lama = read_cloze(write(tmp_path / "P19.jsonl", original), templates)
    assert lama.items == (ClozeItem("Ann was born in ", " .", ("Rome",), 0, "P19 place of birth"),)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (CHOICE_ROW | {"answerKey": "C"}, r"answerKey must be one of two or more labels \(A, B\)"),
        (CHOICE_ROW | {"question": "He is?"}, "question must have a stem and choices"),
        (CHOICE_ROW | {"question": QUESTION | {"choices": ["a"]}}, "a choice must have a label"),
        (CHOICE_ROW | {"question": QUESTION | {"stem": "He?"}}, r"must have one \[MASK\], got 0"),
        ({"question": QUESTION}, "no column 'answerKey'"),
        (ENTITY_ROW | {"options": ["a"]}, r"options \(two or more texts\)"),
        (ENTITY_ROW | {"options": ["a", 1]}, "entity tracking needs input_prefix"),
        (ENTITY_ROW | {"numops": "two"}, "numops"),
        ({"text": "a"}, "there is no relation or predicate_id"),
        (FACT | {"sentence": "[MASK] [MASK]"}, r"must have one \[MASK\], got 2"),
        (FACT | {"object": None}, "object must be a text"),
    ],
)
def test_bad_rows_are_refused(row: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        read_cloze(write(tmp_path / "rows.jsonl", row))


def test_bad_templates_are_refused(tmp_path: Path) -> None:
    facts, choices = (
        write(tmp_path / f"{i}.jsonl", row) for i, row in enumerate((FACT, CHOICE_ROW))
    )
    bad = write(tmp_path / "bad.jsonl", {"relation": "P19", "template": "[X] was born"})
    other = write(tmp_path / "other.jsonl", {"relation": "P1", "template": "[X] in [Y]"})
    with pytest.raises(ValueError, match=r"template must have one \[X\] and one \[Y\]"):
        read_cloze(facts, bad)
    with pytest.raises(ValueError, match="no template of relation 'P19'"):
        read_cloze(facts, other)
    with pytest.raises(ValueError, match="are for facts, got multiple choice"):
        read_cloze(choices, other)
    folder = tmp_path / "both"
    folder.mkdir()
    write(folder / "a.jsonl", FACT)
    write(folder / "b.jsonl", CHOICE_ROW)
    with pytest.raises(ValueError, match="must be in different folders"):
        read_cloze(folder)


def test_facts_are_restricted_to_answers_of_one_token() -> None:
    known = tokenizer("bert")
    assert [len(known.encode(word)) for word in ("the", "sea")] == [1, 1]
    assert len(known.encode("gatehouse")) > 1
    choices = ("the", "gatehouse", "The", "sea")
    items = [ClozeItem("he ", ".", choices, i, "a") for i in (0, 1, 2, 3, 0)]
    items.append(ClozeItem("he ", ".", ("the",), 0, "alone"))
    found = single_token_items(known, items)
    same_token = known.encode("the").ids.tolist() == known.encode("The").ids.tolist()
    assert same_token
    assert [(one.choices, one.target) for one in found] == [
        (("the", "sea"), 0), (("the", "sea"), 0), (("the", "sea"), 1), (("the", "sea"), 0),
    ]  # fmt: skip
    assert count_multi_token_items(known, items) == 5
    assert count_multi_token_items(known, found) == 0


def item(group: str, target: int, choices: tuple[str, ...] = ("x", "y")) -> ClozeItem:
    return ClozeItem("", "", choices, target, group)


def test_samples_and_chance_by_group() -> None:
    items = [item("a", 0) for _ in range(6)] + [item("b", 1, ("x", "y", "z", "w"))]
    assert sample_items(items, 2) == [items[0], items[3], items[6]]
    assert chance_by_group(items) == ((0.5, 0.25), pytest.approx((6 * 0.5 + 0.25) / 7))


def test_most_frequent_answer_is_counted_in_the_other_half() -> None:
    items = [item("a", target) for target in (0, 0, 1, 0, 0, 1)] + [item("b", 1)]
    # even places are 0, 1, 0 (x, y, x) and odd ones 0, 0, 1: both halves say x; "b" has no other
    found = score_most_frequent(items)
    assert [one.accuracy for one in found.by_group] == [pytest.approx(4 / 6), 0.5]
    assert found.first_by_group is None


def test_means_over_groups() -> None:
    items = [item("a", 0), item("a", 0), item("b", 0)]
    first = np.array([1.0, 0.0, 0.0])
    found = ClozeAccuracies.of("trained", items, np.array([1.0, 1.0, 0.5]), first)
    assert found.overall.accuracy == pytest.approx(2.5 / 3)
    assert (found.group_mean, found.first_mean) == (0.75, 0.25)


def test_decoders_read_on_for_choices_and_not_for_facts(tmp_path: Path) -> None:
    model, known = make("gpt2", tmp_path)[1].model, tokenizer("gpt2")
    answers = ("sea", "gate", "night", "ring", "road")
    texts = [("the old king saw the ", f" {a} {b}") for a in answers for b in answers]
    items = [ClozeItem(before, after, answers, 0, "a") for before, after in texts]
    for are_facts in (False, True):
        found = score_cloze("trained", model, known, items, are_facts=are_facts)
        each = choice_likelihoods(model, known, items, reads_on=not are_facts)
        right = [max(one, key=lambda x: x.log_likelihood) is one[0] for one in each]
        assert found.overall.accuracy == pytest.approx(np.mean(right))
        assert (found.first_by_group is None) is not are_facts
    # facts have one text before the blank, so one answer
    assert found.overall.accuracy in (0, 1)
