"""Rules of cleaning: each condition of each rule, by the paper's thresholds."""

import json

import pytest

from unmask.config import from_dict, to_dict
from unmask.text.cleaning.c4 import C4Rules
from unmask.text.cleaning.evaluation_texts import Decontamination
from unmask.text.cleaning.gopher import GopherQuality, GopherRepetition
from unmask.text.cleaning.language import LanguageFilter
from unmask.text.cleaning.rule import apply_rules
from unmask.text.cleaning.rules import RULES, Cleaning, parse_cleaning
from unmask.text.cleaning.unicode import UnicodeRepair

GOOD = (
    "The old king of the north sat by the fire and looked at the snow that fell on the hills.\n"
    "He had with him a dog, a book of songs, and a map that nobody else could read or fold.\n"
    "To be alone was all that he wanted, and for many years he had been alone with these."
)


def reasons(cleaned) -> list[str]:
    return [one.reason for one in cleaned.removals]


@pytest.mark.parametrize("name", ["c4", "gopher", "repetition", "unicode"])
def test_running_text_stays(name: str) -> None:
    cleaned = RULES[name]().clean(GOOD)
    assert (cleaned.text, cleaned.removals) == (GOOD, ())


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("Home Shop Cart", "c4: no final mark"),
        ("And so it goes on and on ...", "c4: no final mark"),
        ("He said so…", "c4: no final mark"),
        ("Too few words.", "c4: fewer than 5 words"),
        ("Please enable JavaScript in your browser now.", "c4: JavaScript"),
        ("This site uses cookies to be nice to you.", "c4: a policy"),
        ("Read this: " + "x" * 1001 + " and then some more.", "c4: a word of more than"),
    ],
)
def test_c4_removes_lines(line: str, reason: str) -> None:
    cleaned = C4Rules().clean(f"{GOOD}\n{line}")
    assert cleaned.text == GOOD
    assert cleaned.removals[0].text == line
    assert reasons(cleaned)[0].startswith(reason)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{GOOD}\nLorem ipsum dolor sit amet, he said.", "c4: lorem ipsum"),
        (f"{GOOD}\nif (x) {{ return; }}", "c4: a curly bracket"),
        ("Only one sentence is here today.", "c4: fewer than 3 sentences"),
        ("Home\nCart\nShop", "c4: fewer than 3 sentences"),
    ],
)
def test_c4_removes_documents(text: str, reason: str) -> None:
    cleaned = C4Rules().clean(text)
    assert cleaned.text == ""
    assert reasons(cleaned)[-1] == reason
    assert cleaned.removals[-1].is_document


def test_c4_counts_sentences_of_other_scripts() -> None:
    text = "राम घर गया और सो गया।\nसीता बाज़ार गई और लौटी।\nवे दोनों बहुत खुश थे आज।"
    assert C4Rules().clean(text).text == text


def test_c4_drops_citations_within_lines() -> None:
    cleaned = C4Rules().clean(GOOD.replace("snow", "snow[12]").replace("songs", "songs[edit]"))
    assert cleaned.text == GOOD


def test_c4_without_final_marks() -> None:
    text = f"{GOOD}\nA heading of five words here"
    assert C4Rules(final_mark=False).clean(text).text == text


def test_c4_bad_words(tmp_path) -> None:
    words = tmp_path / "bad.txt"
    words.write_text("snow\n\nfoo bar\n")
    assert reasons(C4Rules(bad_words=str(words)).clean(GOOD)) == ["c4: a bad word"]
    assert C4Rules(bad_words=str(words)).clean(GOOD.replace("snow", "snowy")).text
    with pytest.raises(ValueError, match="no such file"):
        C4Rules(bad_words=str(tmp_path / "none.txt"))


WORDS = [
    *("the", "cats", "and", "those", "dogs", "of", "the", "houses", "that", "they", "have", "with"),
    *("them", "to", "be", "near", "some", "trees", "until", "noon"),
]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (" ".join(WORDS[:19]), "fewer than 50 words"),
        (" ".join(["the", "and"] + ["x"] * 60), "mean word length not in 3 to 10"),
        (" ".join(["the", "and"] + ["x" * 20] * 60), "mean word length not in 3 to 10"),
        (" ".join(WORDS * 3) + " #" * 9, "more than 0.1 symbols a word"),
        (" ".join(WORDS * 3) + "..." * 9, "more than 0.1 symbols a word"),
        ("\n".join(["• " + " ".join(WORDS)] * 4), "more than 90% of lines with bullets"),
        ("\n".join([" ".join(WORDS) + "…"] * 4), "more than 30% of lines with ellipses"),
        (" ".join(WORDS * 3 + ["2024,"] * 20), "fewer than 80% of words with a letter"),
        (" ".join(["Katze", "Hund"] * 40), "fewer than 2 stop words"),
    ],
)
def test_gopher_quality(text: str, reason: str) -> None:
    cleaned = GopherQuality(min_words=20).clean(text)
    cleaned = GopherQuality().clean(text) if "50" in reason else cleaned
    assert reasons(cleaned) == [f"gopher: {reason}"]
    assert cleaned.text == ""


def test_gopher_of_other_languages_needs_no_stop_words() -> None:
    text = " ".join(["Katze", "Hund", "und", "Maus"] * 20)
    assert GopherQuality(min_stop_words=0).clean(text).text == text
    assert (
        GopherQuality(stop_words=("und", "Maus")).clean(text).text == ""
    )  # compared in lower case
    assert GopherQuality(stop_words=("und", "maus")).clean(text).text == text


def distinct(n: int, start: int = 0) -> str:
    return " ".join(f"word{i}" for i in range(start, start + n))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("\n".join([distinct(20), distinct(20), distinct(20, 50)]), "30% of lines twice"),
        (
            "\n".join([distinct(20), distinct(20), "a b", "c d", "e f", "g h"]),
            "20% of characters in lines twice",
        ),
        (distinct(60) + " big cat" * 40, "characters in one 2-gram"),
        (distinct(60) + " one big red cat x y z w" * 5, "6-grams twice"),
        (f"{distinct(30)} {distinct(100, 200)} {distinct(30)}", "5-grams twice"),
        (f"{distinct(13, 100)} {distinct(94, 200)} {distinct(13, 100)}", "10-grams twice"),
    ],
)
def test_gopher_repetition(text: str, reason: str) -> None:
    cleaned = GopherRepetition().clean(text)
    assert len(cleaned.removals) == 1
    assert cleaned.removals[0].is_document
    assert reason in reasons(cleaned)[0]
    assert GopherRepetition(scale=10).clean(text).text == text


def test_gopher_repetition_thresholds_are_those_of_the_paper() -> None:
    """Characters that were there before: 15 % of them in 5-grams may be, not more."""
    for n_repeated, removed in ((14, False), (16, True)):
        text = f"{distinct(n_repeated, 100)} {distinct(100 - 2 * n_repeated, 200)} "
        text += distinct(n_repeated, 100)  # n of 100 words were there before, of equal length
        reason = reasons(GopherRepetition().clean(text))
        assert (reason == ["repetition: more than 15% of characters in 5-grams twice"]) == removed


def test_unicode_repair() -> None:
    broken = "sch\u00c3\u00b6n &amp; gut\u0007 caf\u0065\u0301  fine\n\u0007\n“curly” ﬁne"
    cleaned = UnicodeRepair().clean(broken)
    assert cleaned.text == "schön & gut café fine\n“curly” ﬁne"
    assert [one.is_change for one in cleaned.removals] == [True, True]
    assert UnicodeRepair().clean("cafe\u0301").removals == ()  # composed, which looks the same


def test_language() -> None:
    german = "Der alte König saß am Feuer und sah dem Schnee zu, der auf die Hügel fiel."
    rule = LanguageFilter(codes=("de",))
    assert rule.clean(german).text == german
    assert reasons(rule.clean(GOOD)) == ["language: en"]
    assert LanguageFilter(codes=("de", "en"), min_probability=0.9).clean(GOOD).text == GOOD
    with pytest.raises(ValueError, match="klingon: not one of"):
        LanguageFilter(codes=("klingon",))


EVALUATION = "which of these planets is the largest one that circles around our sun at night"


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv", "a.txt"])
def test_decontamination_finds_13_words_in_a_row(tmp_path, name: str) -> None:
    file = tmp_path / name
    rows = {
        "a.jsonl": f'{{"q": ["x", "{EVALUATION}"]}}\n',
        "a.csv": f'id,q\n1,"{EVALUATION}"\n',
        "a.tsv": f"id\tq\n1\t{EVALUATION}\n",
        "a.txt": f"{EVALUATION}\n",
    }
    file.write_text(rows[name])
    rule = Decontamination((str(file),))
    rule.check()
    words = EVALUATION.split()
    upper = " ".join(words[:13]).upper() + "?!"
    assert rule.clean(f"{GOOD}\nAsked: {upper}\nThe end.").text == f"{GOOD}\nThe end."
    assert rule.clean(" ".join(words[:12])).text
    across = f"{GOOD}\n{' '.join(words[:7])}\n{' '.join(words[7:])}"
    assert rule.clean(across).text == GOOD


def test_decontamination_names_files_that_cannot_be_looked_for(tmp_path) -> None:
    short = tmp_path / "short.txt"
    short.write_text("only a few words\n")
    with pytest.raises(ValueError, match=r"short\.txt: no text of 13 words"):
        Decontamination((str(short),)).check()
    with pytest.raises(FileNotFoundError, match="no such file"):
        Decontamination((str(tmp_path / "none.txt"),)).check()
    other = tmp_path / "a.parquet"
    other.write_text("x")
    with pytest.raises(ValueError, match=r"must be \.jsonl"):
        Decontamination((str(other),)).check()


def test_words_of_options_are_parsed_and_kept() -> None:
    made = parse_cleaning(
        ["gopher:min_words=20", "language:codes=de+en"], ["near:unit=paragraph", "exact"], ["x.txt"]
    )
    assert made.rules[0] == GopherQuality(min_words=20)
    assert [one.unit for one in made.deduplications] == ["document", "paragraph"]
    assert from_dict(Cleaning, json.loads(json.dumps(to_dict(made)))) == made
    assert to_dict(made.rules[1])["codes"] == ["de", "en"]


@pytest.mark.parametrize(
    ("rules", "kinds", "message"),
    [
        (["x"], [], "clean must be one of unicode, c4, gopher, repetition, language, got 'x'"),
        (["c4:min_sentences=-1"], [], "must not be negative"),
        (["c4:x=1"], [], "clean: c4:x=1: "),
        (["repetition:scale=0"], [], "scale must be above 0"),
        ([], ["fuzzy"], "deduplicate must be one of exact, near, got 'fuzzy'"),
        ([], ["near:unit=word"], "unit"),
        ([], ["near:bands=0"], "bands must be 1 to 1,000"),
    ],
)
def test_wrong_words_are_named(rules: list[str], kinds: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_cleaning(rules, kinds, [])


def test_rules_end_where_nothing_is_left() -> None:
    cleaned = apply_rules([C4Rules(), GopherQuality()], "Home")
    assert cleaned.text == ""
    assert len(cleaned.removals) == 1
