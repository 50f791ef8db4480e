import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.text.sentences import sentence_spans


def split(paragraph: str) -> list[str]:
    return [paragraph[start:end] for start, end in sentence_spans(paragraph)]


CASES = {
    "plain": ["The cat sat.", "Did it?", "It did!"],
    "one": ["No stop at all"],
    "titles": ["Mr. Smith met Dr. Jones and Mrs. Hall.", "They talked."],
    "initials": ["J. R. R. Tolkien wrote it.", "So did C. S. Lewis."],
    "initial before a starter": ["He lived through World War I.", "He fought."],
    "country": ["The U.S. Government is in the U.S.", "The rest is not."],
    "latin": ["Take fruit, e.g. Apples, i.e. Food.", "Eat."],
    "sometimes": ["He works at Apple Inc. in Ohio.", "She sold Ford Motor Co.", "The end."],
    "et al.": ["Smith et al. Showed it.", "See Lee et al.", "They agree."],
    "decimals": ["Pi is 3.14 or so.", "Version 2.0.1 is out."],
    "domains": ["See www.example.com or Node.js for more.", "Good."],
    "numbers follow": ["See Fig. 3 and Vol. II, No. 5, p. 7 of it.", "No.", "I will not."],
    "months": ["Born on Jan. 5, 1990 it was.", "It left in Oct. 2019 again."],
    "list": ["1. First point.", "2. Second point.", "IV. Fourth."],
    "year": ["That was in 1990.", "Then came more."],
    "ellipsis goes on": ["Well... maybe… not."],
    "ellipsis ends": ["He waited…", "Nobody came...", "Silence."],
    "quotes": ['"Go!" he said.', '"No."', "“Why?”", "‘Because.’", "Done."],
    "question in quotes": ["“Who is it?” asked the man.", "Nobody."],
    "brackets": ["He left.)", "(She stayed.)", "[All did.]", "End."],
    "references": ["It is so.[3]", "And so.[12][13]", "Yes."],
    "repeated": ["What?!", "No!!!", "Yes."],
    "lowercase text": ["hi there.", "how are you?", "see e.g. this.", "fine"],
    "lowercase word": ["Ask Yahoo! about it or eat at Joe. after six."],
    "tokenized": ["He had a role in 2000 .", "It was followed by another .", "So be it ."],
    "spaced ellipsis": ["And so . . . he went .", "Then he stopped ."],
    "spanish": ["¿Qué?", "¡No!", "Sí, Sr. Gómez."],
    "french": ["« Oui ! »", "Elle reste.", "M. Dupont part."],
    "german": ["»Nein.«", "„Da.“", "Das gilt z. B. hier."],
    "russian": ["Это А. С. Пушкин.", "Он поэт."],
    "greek": ["Ναι.", "Όχι."],
}


@pytest.mark.parametrize("expected", CASES.values(), ids=CASES.keys())
def test_sentences_separated_by_spaces_are_found(expected: list[str]):
    assert split(" ".join(expected)) == expected


UNSPACED = {
    "chinese": ["今天下雨。", "带伞吧！", "好吗？", "好"],
    "chinese quote": ["他说：“你好。”", "我走了。"],
    "comma after a quote": ["“你好！”，他说。", "好。"],
    "japanese quote": ["「そうだ。」と言った。", "終わり。"],
    "fullwidth": ["３．１４です．", "次です．"],
    "hindi": ["यह एक वाक्य है।", "यह दूसरा है॥", "बस"],
    "arabic": ["هل أنت هنا؟", "نعم"],
    "urdu": ["یہ ایک جملہ ہے۔", "دوسرا۔"],
    "armenian": ["Բարեւ։", "Այո։"],
    "several stops": ["何！？", "はい……。", "うん。"],
}


@pytest.mark.parametrize("expected", UNSPACED.values(), ids=UNSPACED.keys())
def test_stops_without_spaces_are_found(expected: list[str]):
    assert split("".join(expected)) == expected


@pytest.mark.parametrize("text", ["", " ", "\t\u3000\n"])
def test_white_space_has_no_sentences(text: str):
    assert sentence_spans(text) == []


def test_stops_without_words_are_no_sentence():
    assert split("... And then?") == ["... And then?"]
    assert split("! ? .") == ["! ? ."]


def test_white_space_around_the_paragraph_is_excluded():
    assert sentence_spans("  A cat. \u00a0 A dog.\t") == [(2, 8), (11, 17)]


PIECES = st.sampled_from(
    [*".!?…。？！।؟\" '”»«)(]", "Mr.", "e.g.", "U.S.", "[1]", "the", "The", "I", "3.14", "No", "と"]
)


@given(st.one_of(st.text(), st.lists(PIECES, max_size=30).map(" ".join),
                 st.lists(PIECES, max_size=30).map("".join)))  # fmt: skip
def test_spans_cover_all_but_white_space_in_order(text: str):
    at = 0
    for start, end in sentence_spans(text):
        assert start < end
        assert not text[at:start].strip()
        assert not text[start].isspace()
        assert not text[end - 1].isspace()
        at = end
    assert not text[at:].strip()


@given(st.lists(PIECES, max_size=30).map("".join))
def test_splitting_does_not_depend_on_surrounding_space(text: str):
    inside = [(start + 3, end + 3) for start, end in sentence_spans(text)]
    assert sentence_spans(f" \t {text}  ") == inside


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "unit", [".", ". ", ".) $ ", '." ', "a. ", "。", "…。x", ".[1]", "'a", " »"]
)
def test_time_grows_linearly_with_length(unit: str):
    # 40 times as long would take 1600 times as long were any rule quadratic: minutes, not a moment.
    text = unit * (200_000 // len(unit))
    assert sentence_spans(text)[-1][1] == len(text.rstrip())


TREEBANK = Path(__file__).parents[3] / "shared/data/ud_english_ewt/en_ewt-ud-dev.conllu.xz"


@pytest.mark.skipif(not TREEBANK.exists(), reason="the English Web Treebank is not here")
def test_boundaries_agree_with_the_treebank():
    paragraphs: list[list[str]] = [[]]
    with lzma.open(TREEBANK, "rt", encoding="utf-8") as file:
        for line in file:
            if line.startswith(("# newpar", "# newdoc")):
                paragraphs.append([])
            elif line.startswith("# text = "):
                paragraphs[-1].append(line.removeprefix("# text = ").strip())
    right = wrong = stops = found = 0
    for gold in filter(None, paragraphs):
        text, ends, at = " ".join(gold), set[int](), 0
        for sentence in gold[:-1]:
            at += len(sentence)
            ends.add(at)
            at += 1
        got = {end for _, end in sentence_spans(text)[:-1]}
        right, wrong = right + len(got & ends), wrong + len(got - ends)
        stopped = {end for end in ends if text[end - 1] in ".!?" and not text[end + 1].islower()}
        stops, found = stops + len(stopped), found + len(stopped & got)
    # The treebank is web text: half of what ends without a stop is a heading, an address or a date.
    assert right / (right + wrong) > 0.98
    assert found / stops > 0.95
