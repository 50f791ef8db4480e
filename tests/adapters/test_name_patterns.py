"""Patterns of names in adapters of others: those that PEFT's users write, and those that hang."""

import re
import time

import pytest

from unmask.adapters.peft_format.patterns import name_pattern

NAME = "encoder.layer.10.attention.self.query"


@pytest.mark.parametrize(
    "pattern",
    [
        "query", r"layer\.10\.attention\.self\.query", r"layer\.\d+\..*query", ".*query",
        r"layer\.(9|10)\..*\.(query|key)", r"(?:.*)(?:query|value)", r"layer\.[0-9]{1,2}\..*?query",
        r".*\.[^.]*self[^*+.]*\.query", r"(?P<last>query)", r"\(?\*?query",
    ],
)  # fmt: skip
def test_patterns_of_adapters_match_as_re_does(pattern: str) -> None:
    expected = re.match(rf"(.*\.)?({pattern})$", NAME)
    assert bool(name_pattern(pattern).match(NAME)) == bool(expected) is True


@pytest.mark.parametrize(
    "pattern",
    [
        r"((\w|\.)+)+$X", "(a+)+", "(a|a)*b", "(?:a?a?)*b", "(a*)*b", "(.*)+x", "((a{1,9}){1,9})+",
        ".*" * 12 + "X", r"(\w+\.?)+X", "(?i:a+)+", "(a+?)+?", "(?=(a+)+)", "([a]+|b)*", "(", "*",
        "(" * 5000 + ")" * 5000, "a{99999999999}", "[", "(?P<", "\\",
    ],
)  # fmt: skip
def test_patterns_that_hang_or_are_none_are_refused(pattern: str) -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match=r"could take years|is not a pattern of names") as error:
        name_pattern(pattern)
    assert time.process_time() - began < 1
    assert "\n" not in str(error.value)
