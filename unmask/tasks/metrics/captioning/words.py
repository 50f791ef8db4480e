"""The words of captions, their stems and n-grams, for all metrics of captions."""

import functools
import importlib.util
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

MAX_ORDER = 4
"""The longest n-grams of BLEU-4 and CIDEr."""

Ngram = tuple[str, ...]

_APOSTROPHES = str.maketrans("\N{RIGHT SINGLE QUOTATION MARK}\N{MODIFIER LETTER APOSTROPHE}", "''")
_WORD = re.compile(
    r"n't\b|'(?:s|m|d|re|ve|ll)\b"  # clitics
    r"|\w+?(?=n't\b)"
    r"|\w+(?:-\w+|(?<=\d)[.,]\d+)*"
)


def caption_words(text: str) -> list[str]:
    """Split a caption into words in lower case, without punctuation.

    A word is a run of letters, digits and underscores; hyphens within it stay ("t-shirt"), as do
    points and commas between digits ("1,000"). English clitics are words of their own ("man 's",
    "do n't"). All else is left out.

    Deviates: coco-caption has the tokenizer of Stanford CoreNLP 3.4.1, in Java. It keeps symbols
    ("&", "#"), brackets as "-lrb-", and points of abbreviations ("mr."), and splits "cannot".
    Of the 40,455 captions of Flickr8k, 44 differ.

    Example:
        >>> caption_words("Two girls' dogs don't chase the man's T-shirt .")
        ['two', 'girls', 'dogs', 'do', "n't", 'chase', 'the', 'man', "'s", 't-shirt']
    """
    return _WORD.findall(text.translate(_APOSTROPHES).lower())


def porter_stem(word: str) -> str:
    """Remove the suffixes of an English word (Porter 1980, doi:10.1108/eb046814), by NLTK.

    Raises:
        ImportError: NLTK is not installed.
    """
    return _stem(word)


@functools.lru_cache(maxsize=100_000)
def _stem(word: str) -> str:
    return _porter_stemmer().stem(word)


@functools.cache
def _porter_stemmer() -> Any:
    if importlib.util.find_spec("nltk") is None:
        raise ImportError("Porter's stems need nltk: pip install 'unmask[text-metrics]'")
    from nltk.stem.porter import PorterStemmer

    return PorterStemmer(PorterStemmer.ORIGINAL_ALGORITHM)


def count_ngrams(words: Sequence[str], n: int) -> Counter[Ngram]:
    """Count the runs of n words."""
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
