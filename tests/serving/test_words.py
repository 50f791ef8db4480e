import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.serving.words import (
    cut,
    duration,
    energy,
    expression,
    memory,
    percent,
    plain,
    rounded,
    short,
    spoken,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (3.14159, "3.14"), (0.0123456, "0.0123"), (1234.5, "1,234"), (-2.5, "−2.50"),
        (0.000031, "3.1 × 10⁻⁵"), (float("nan"), "not finite"), (float("inf"), "not finite"),
    ],
)  # fmt: skip
def test_plain_numbers_have_three_digits(value, text):
    assert plain(value).replace("\u202f", " ") == text


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (percent, 0.38172, "38.2 %"), (percent, -0.5, "−50.0 %"), (rounded, 24_012, "24,000"),
        (short, 12_345_678, "12.3 M"), (short, 999_999, "1.00 M"), (short, 12, "12.0"),
        (short, 3.1e24, "3.10 Y"), (spoken, 11_170_560, "11.2 million"), (spoken, 950, "950"),
        (duration, 0.25, "0.25 s"), (duration, 59.7, "1 min"), (duration, 492, "8 min 12 s"),
        (duration, 3600, "1 h"), (duration, 90_061, "1 d 1 h"), (memory, 3 * 2**29, "1.50 GiB"),
        (memory, 12, "12 bytes"), (energy, 36_000, "10.0 Wh"), (energy, 7.2e6, "2.00 kWh"),
    ],
)  # fmt: skip
def test_quantities_have_their_units(write, value, text):
    assert write(value).replace("\u202f", " ") == text


@given(st.floats(0, 1e9))
def test_a_duration_is_never_empty(seconds):
    assert duration(seconds)


def test_settings_read_like_code():
    choose = {"kind": "Words", "rate": 0.15}
    hide = {"kind": "Hide", "choose": choose, "conceal": {"kind": "Future"}}
    assert expression(hide) == "Hide(Words(rate=0.15), Future())"
    assert expression({"kind": "AdamW", "betas": [0.9, 0.98], "a": []}) == (
        "AdamW(betas=[0.9, 0.98], a=[])"
    )
    assert expression({}) == "none"
    assert expression([1, 20_000, True, None, 1e-12]) == "1, 20,000, true, none, 1e-12"
    assert expression(["a"] * 20) == ", ".join(["a"] * 8) + ", … (20 in all)"


def test_what_is_cut_says_how_much():
    assert cut("abc", 3) == "abc"
    assert cut("a" * 10, 4) == "aaaa … (6 more characters)"
