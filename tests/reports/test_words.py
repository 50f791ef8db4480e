import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.reports.formatting import (
    format_bytes,
    format_energy,
    format_expression,
    format_in_words,
    format_number,
    format_percent,
    format_rounded,
    format_seconds,
    format_si,
    truncate_text,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (3.14159, "3.14"), (0.0123456, "0.0123"), (1234.5, "1,234"), (-2.5, "−2.50"),
        (0.000031, "3.1 × 10⁻⁵"), (float("nan"), "not finite"), (float("inf"), "not finite"),
    ],
)  # fmt: skip
def test_plain_numbers_have_three_digits(value, text):
    assert format_number(value).replace("\u202f", " ") == text


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (format_percent, 0.38172, "38.2 %"), (format_percent, -0.5, "−50.0 %"),
        (format_rounded, 24_012, "24,000"), (format_si, 12_345_678, "12.3 M"),
        (format_si, 999_999, "1.00 M"), (format_si, 12, "12.0"), (format_si, 3.1e24, "3.10 Y"),
        (format_in_words, 11_170_560, "11.2 million"), (format_in_words, 950, "950"),
        (format_seconds, 0.25, "0.25 s"), (format_seconds, 59.7, "1 min"),
        (format_seconds, 492, "8 min 12 s"), (format_seconds, 3600, "1 h"),
        (format_seconds, 90_061, "1 d 1 h"), (format_bytes, 3 * 2**29, "1.50 GiB"),
        (format_bytes, 12, "12 bytes"), (format_energy, 36_000, "10.0 Wh"),
        (format_energy, 7.2e6, "2.00 kWh"),
    ],
)  # fmt: skip
def test_quantities_have_units(write, value, text):
    assert write(value).replace("\u202f", " ") == text


@given(st.floats(0, 1e9))
def test_duration_is_never_empty(seconds):
    assert format_seconds(seconds)


def test_settings_are_formatted_as_code():
    select = {"kind": "WholeWordMasking", "rate": 0.15}
    hide = {"kind": "Objective", "select": select, "corrupt": {"kind": "CausalLM"}}
    assert format_expression(hide) == "Objective(WholeWordMasking(rate=0.15), CausalLM())"
    assert format_expression({"kind": "AdamW", "betas": [0.9, 0.98], "a": []}) == (
        "AdamW(betas=[0.9, 0.98], a=[])"
    )
    assert format_expression({}) == "none"
    assert format_expression([1, 20_000, True, None, 1e-12]) == "1, 20,000, true, none, 1e-12"
    assert format_expression(["a"] * 20) == ", ".join(["a"] * 8) + ", … (20 in all)"


def test_truncation_states_what_is_omitted():
    assert truncate_text("abc", 3) == "abc"
    assert truncate_text("a" * 10, 4) == "aaaa … (6 more characters)"
