"""Sentences that are found at once are those that are found one by one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_cases import story

from unmask.text import sentence_starts as sentence_starts_module
from unmask.text.sentence_starts import sentence_starts
from unmask.text.sentences import sentence_spans

BITS = (
    "|".join(
        [
            ".|.|!|?|\u2026|\u3002|\uff0e|\"|'|\u201d|\u2019|\xbb|\xab|)|(|[1]|_|*|,|-|\u2014",
            " | | |  |\t|\xa0|\n|\n|\n\n|A|a|The|the|no|No|Mr|messrs|etc|St|IV|I|3|12|U.S|e.g",
            "king|KING|King|approximately|xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx|\xc8|\xe9|\u0131|\u4e2d",
            "\u0438|\xaa|\u0345|\u2163|\xb2|\u0663|\U0001d400|\ud800",
        ]
    )
).split("|")


def one_by_one(text: str) -> tuple[list[int], list[int]]:
    sentences, paragraphs, index = list[int](), list[int](), 0
    for paragraph in text.split("\n"):
        starts = [index + start for start, _ in sentence_spans(paragraph)]
        sentences += starts
        paragraphs += starts[:1]
        index += len(paragraph) + 1
    return sentences, paragraphs


def check(text: str) -> None:
    sentences, paragraphs = sentence_starts(text)
    assert (sentences.tolist(), paragraphs.tolist()) == one_by_one(text)


@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(BITS), max_size=30).map("".join)))
@settings(max_examples=300, deadline=None)
def test_starts_are_those_of_the_spans_of_paragraphs(text: str) -> None:
    check(text)


def test_starts_of_prose(monkeypatch: pytest.MonkeyPatch) -> None:
    check(story())
    monkeypatch.setattr(sentence_starts_module, "_PART_CHARACTERS", 300)
    check(story().replace(". ", '." ').replace(", ", "! ").replace(" the ", "\nMr. "))
