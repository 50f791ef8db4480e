"""Where the sentences of a paragraph are: a few rules, no model.

Made for pretraining, where a sentence missed or cut now and then does no harm. The rules know the
abbreviations of English well and those of other European languages a little; the stops of Chinese,
Japanese, Hindi, Arabic, Urdu, Armenian and Amharic; and nothing of Thai, which has no stops. German
ordinals ("am 3. Oktober") are taken for ends.
"""

import re
from collections.abc import Iterable

_UNCONDITIONAL_STOPS = (
    "。！？｡．।॥؟۔։።"  # these end a sentence whatever follows, white space or not
)
_STOPS = f".!?…{_UNCONDITIONAL_STOPS}"
_CLOSING_MARKS = "\"'”’“‘»›«‹)\\]}」』）】》〉〟*_"
_OPENING_MARKS = "\"'“‘„‚«‹»(\\[{¿¡「『（【《〈*_–—―-"
# Quotes and brackets, reference marks ("[12]"), the French quote after a space ("Oui. »").
_CLOSING_PATTERN = f"((?:[{_CLOSING_MARKS}]|\\[[0-9]{{1,3}}\\]|\\s»(?=\\s|\\Z))*+)"

# It begins where no stop is before it, and gives nothing back: a million stops take linear time.
_STOP = re.compile(
    f"(?<![{_STOPS}])(?:(?=[.!?…]*+[{_UNCONDITIONAL_STOPS}])([{_STOPS}]++){_CLOSING_PATTERN}|([.!?…]++){_CLOSING_PATTERN}(?=\\s))"
)
_STOPS_TOGETHER = re.compile(f"[{_STOPS}]++")
_NEXT_WORD = re.compile(rf"[\s{_OPENING_MARKS}]*+(?:(\w++(?:['’]\w++)?+)(\.?))?")
_SPACE = re.compile(r"\s*+")
_WORD = re.compile(r"[^\W_]")
_SEARCH_BEFORE = 2**5  # characters searched for the word before a stop
_ROMAN = re.compile("[IVXLC]+")


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_NEVER_FINAL = _set(  # no sentence ends after these
    """mr mrs ms mx dr prof rev hon gen brig col maj capt cmdr lt sgt cpl pvt adm gov sen rep supt
    insp messrs mme mlle mgr sra srta dra fr hr mt ft vs viz cf approx esp ca e.g i.e eg ie
    z.b d.h u.a p.ex par.ex bzw ggf vgl г ул им"""
)
_NOT_FINAL_BEFORE_NUMBERS = _set(  # nor after these when a number follows
    """no nos nr n fig figs eq eqs p pp s vol vols ch chap sec sect art para ver v op ed bd tab
    abb jan feb mar apr jun jul aug sep sept oct nov dec стр"""
)
_SOMETIMES_FINAL = _set(  # and after these only before a word that begins sentences more than names
    "st inc corp co ltd bros jr sr etc usw al dept univ assn ave blvd rd esq llc plc gmbh др"
)
_SENTENCE_STARTERS = _set(
    """the a an he she it they we you i this that these those there here his her its their our my
    in on at by for from with to of as if when while after before since until during under
    but and or so yet then now however although because though despite
    what who how why where which some many most all both each every one no not yes"""
)

ABBREVIATIONS = _NEVER_FINAL | _NOT_FINAL_BEFORE_NUMBERS | _SOMETIMES_FINAL
"""Words, in lower case, behind which a full stop may not end a sentence."""
STOPS, CLOSING_QUOTES = _STOPS, "\"'\u201d\u2019)"
"""What sentences may end with, and some of what may follow it."""


def sentence_spans(paragraph: str) -> list[tuple[int, int]]:
    """Return the spans (start, end) of a paragraph's sentences, in order.

    Together they cover all but white space; each begins and ends with something else.
    """
    return spans_between(paragraph, ((m.start(), 0) for m in _STOPS_TOGETHER.finditer(paragraph)))


def spans_between(paragraph: str, stops: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the spans of a paragraph's sentences by its stops.

    Args:
        paragraph: the paragraph.
        stops: where each is, the first of several in a row; and where the next sentence starts if
            it is certain that one ends here, a character before that. 0: it must be found out.
    """
    spans: list[tuple[int, int]] = []
    start = looked = _skip_space(paragraph, 0)  # from `looked` on the sentence has no letter yet
    lowercase = paragraph.islower()  # then case tells nothing
    for at, following in stops:
        if following:
            spans.append((start, following - 1))
            start = looked = following
            continue
        stop = _STOP.match(paragraph, at)
        if stop is None:
            continue
        end = stop.end()
        if _WORD.search(paragraph, looked, end) is None:
            looked = end
        elif not _continues(paragraph, stop, start, lowercase):
            spans.append((start, end))
            start = looked = _skip_space(paragraph, end)
    end = len(paragraph.rstrip())
    if start < end:
        spans.append((start, end))
    return spans


def _skip_space(paragraph: str, at: int) -> int:
    space = _SPACE.match(paragraph, at)
    return at if space is None else space.end()


def _continues(paragraph: str, stop: re.Match[str], start: int, lowercase: bool) -> bool:
    """Return whether the sentence continues after a stop."""
    always, closed_always, stops, closed = stop.groups()
    following = _NEXT_WORD.match(paragraph, stop.end())
    assert following is not None  # it matches nothing, too
    word, dot = following[1] or "", following[2]
    at = following.start(1) if word else following.end()
    first = paragraph[at : at + 1]
    if not first or first in ",;:、，；：)" or first in _STOPS:
        return True
    if always:
        quoted = bool(closed_always) and first in "とっ"  # Japanese: 「…。」と言った
        return quoted or (always == "．" and first.isdecimal())
    if first.islower() and not lowercase:
        return True
    if stops != "." or closed:
        return False
    before = paragraph[max(start, stop.start() - _SEARCH_BEFORE) : stop.start()]
    alone = stop.start() - len(before) == start
    return _is_abbreviation(before, alone, word, initial=bool(dot) and len(word) == 1)


def _is_abbreviation(
    before: str, is_whole_sentence: bool, following: str, *, initial: bool
) -> bool:
    """Return whether a full stop belongs to the word before it.

    Args:
        before: what is before the stop.
        is_whole_sentence: it is all of the sentence so far.
        following: the word after the stop.
        initial: that word is a letter with a full stop.
    """
    if before[-1:].isspace():
        return False  # tokenized text sets its stops apart
    parts = before.rsplit(None, 1)
    word = parts[-1].strip("\"'“‘„«([{—–-")
    key = word.lower()
    counts = _ROMAN.fullmatch(word) or (word.isdecimal() and len(word) <= 3)
    if key in _NEVER_FINAL or (counts and is_whole_sentence and len(parts) == 1):
        return True  # "1. The", "IV. The"
    if key in _NOT_FINAL_BEFORE_NUMBERS and _is_number(
        following, roman=key not in ("no", "art", "sec")
    ):
        return True
    if "." in word or key in _SOMETIMES_FINAL or (len(word) == 1 and word.isalpha()):
        return initial or following.lower() not in _SENTENCE_STARTERS
    return False


def _is_number(following: str, *, roman: bool) -> bool:
    return following[:1].isdecimal() or (roman and _ROMAN.fullmatch(following) is not None)
