"""Words of captions: clitics, hyphens, numbers and punctuation; stems and n-grams."""

import importlib.util

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.tasks.metrics.captioning import words as module
from unmask.tasks.metrics.captioning.words import caption_words, count_ngrams, porter_stem


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A man , in a blue shirt .", "a man in a blue shirt"),
        ("Girls' dogs; the man's hat", "girls dogs the man 's hat"),
        ("don\N{RIGHT SINGLE QUOTATION MARK}t, can't, WON'T run", "do n't ca n't wo n't run"),
        ("a t-shirt - and -- a black-and-white cap-", "a t-shirt and a black-and-white cap"),
        ("1,000 people, 3.5 m; no.12", "1,000 people 3.5 m no 12"),
        ("(two) \"big\" dogs & #1", "two big dogs 1"),
        ("Ein Fußgänger läuft", "ein fußgänger läuft"),
        ("they 're n't 'S", "they 're n't 's"),
        (" .,!? ", ""),
    ],
)  # fmt: skip
def test_words(text, words) -> None:
    assert caption_words(text) == words.split()


@given(st.text(max_size=30))
def test_words_of_words_are_the_same(text) -> None:
    words = caption_words(text)
    assert caption_words(" ".join(words)) == words
    assert all(word and not word.isspace() for word in words)


def test_stems_are_of_the_algorithm_of_1980() -> None:
    # examples of the steps in the paper
    stems = {
        "caresses": "caress", "ponies": "poni", "plastered": "plaster", "hopping": "hop",
        "relational": "relat", "formalize": "formal", "adjustable": "adjust", "rate": "rate",
    }  # fmt: skip
    assert {word: porter_stem(word) for word in stems} == stems


def test_missing_library_is_named(monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    module._porter_stemmer.cache_clear()
    with pytest.raises(ImportError, match=r"stems need nltk: pip install 'unmask\[text-metrics\]'"):
        porter_stem("never seen before")


def test_ngrams() -> None:
    assert count_ngrams(["a", "b", "a", "b"], 2) == {("a", "b"): 2, ("b", "a"): 1}
    assert count_ngrams(["a"], 2) == {}
