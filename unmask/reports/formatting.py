"""Numbers, names and settings as people read them: rounded, with units, no longer than needed."""

import math
from collections.abc import Mapping
from typing import Any

RealNumber = int | float  # an int is no float to a type checker at run time
NARROW_SPACE = "\N{NARROW NO-BREAK SPACE}"  # between a number and its unit
MINUS_SIGN = "\N{MINUS SIGN}"
MISSING_VALUE = "–"  # where a number is missing
SI_PREFIXES = tuple((1000.0**i, prefix) for i, prefix in enumerate("kMGTPEZY", 1))[::-1]
NUMBER_WORDS = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))
MAX_LIST_ITEMS = 8  # of a list that are written out
SUPERSCRIPT_DIGITS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def format_number(value: RealNumber, n_digits: int = 3) -> str:
    """Write a number with at least `n_digits` significant digits: 1,234 or 0.0123 or 3.1 × 10⁻⁵."""
    if not math.isfinite(value):
        return "not finite"
    if value == 0:
        return "0"
    exponent = int(f"{value:.{n_digits - 1}e}".split("e")[1])  # after rounding: 999.9 is 1,000
    if exponent < -3 or exponent >= 15:
        mantissa, exponent = f"{value:.1e}".replace("-", MINUS_SIGN, value < 0).split("e")
        return f"{mantissa}{NARROW_SPACE}×{NARROW_SPACE}{format_power_of_ten(int(exponent))}"
    return f"{value:,.{max(n_digits - 1 - exponent, 0)}f}".replace("-", MINUS_SIGN)


def format_rounded(value: RealNumber, n_digits: int = 3) -> str:
    """Write a number with `n_digits` significant digits: 24,012 is 24,000."""
    return format_number(float(f"{value:.{n_digits}g}"), n_digits)


def format_power_of_ten(exponent: int) -> str:
    """Write a power of ten: 10⁻⁴."""
    return "10" + str(exponent).translate(SUPERSCRIPT_DIGITS)


def format_percent(fraction: RealNumber, n_decimals: int = 1) -> str:
    """Write a share as percent: 0.3817 is 38.2 %."""
    return f"{100 * fraction:.{n_decimals}f}{NARROW_SPACE}%".replace("-", MINUS_SIGN)


def format_si(value: RealNumber) -> str:
    """Write a large number with its SI prefix (12.3 M), a small one as it is."""
    for scale, prefix in SI_PREFIXES:
        if abs(value) >= 0.9995 * scale:
            return f"{format_number(value / scale)}{NARROW_SPACE}{prefix}"
    return format_number(value)


def format_in_words(value: RealNumber) -> str:
    """Write a large number as a sentence would (12.3 million), a small one to three digits."""
    for scale, word in NUMBER_WORDS:
        if abs(value) >= 0.9995 * scale:
            return f"{format_number(value / scale)} {word}"
    return format_rounded(value)


def format_seconds(seconds: RealNumber) -> str:
    """Write a time in its two largest units: 8 min 12 s."""
    if seconds < 59.5:
        return f"{format_number(seconds, 2)}{NARROW_SPACE}s"
    total = round(seconds)
    days, hours, minutes = total // 86400, total // 3600 % 24, total // 60 % 60
    units = ((days, "d"), (hours, "h"), (minutes, "min"), (total % 60, "s"))
    first = next(i for i, (n, _) in enumerate(units) if n)
    return " ".join(f"{n}{NARROW_SPACE}{unit}" for n, unit in units[first : first + 2] if n)


def format_bytes(n_bytes: RealNumber) -> str:
    """Write an amount of memory in binary units: 1.40 GiB."""
    for scale, unit in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if n_bytes >= scale:
            return f"{format_number(n_bytes / scale)}{NARROW_SPACE}{unit}"
    return f"{n_bytes:,.0f}{NARROW_SPACE}bytes"


def format_energy(joules: RealNumber) -> str:
    """Write an energy in watt-hours, the unit of electricity bills."""
    hours = joules / 3600
    return f"{format_si(hours)}{'' if hours >= 999.5 else NARROW_SPACE}Wh"


def humanize_name(name: str) -> str:
    """Write a name of the log as words: masked_accuracy as masked accuracy."""
    return name.replace("_", " ").replace(".", " ")


def truncate_text(text: str, max_characters: int) -> str:
    """Shorten a text, and say by how much."""
    if len(text) <= max_characters:
        return text
    return f"{text[:max_characters].rstrip()} … ({len(text) - max_characters:,} more characters)"


def format_expression(value: Any) -> str:
    """Write plain data as in code: Objective(WholeWordMasking(rate=0.15), CausalLM())."""
    if value == {}:
        return "none"
    if isinstance(value, Mapping):
        inside = ", ".join(_format_argument(k, v) for k, v in value.items() if k != "kind")
        return f"{value.get('kind', '')}({inside})"
    if isinstance(value, list | tuple):
        more = f", … ({len(value)} in all)" if len(value) > MAX_LIST_ITEMS else ""
        return ", ".join(map(format_expression, value[:MAX_LIST_ITEMS])) + more if value else "none"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _format_argument(name: str, value: Any) -> str:
    text = format_expression(value)
    if isinstance(value, list | tuple):
        text = f"[{text if value else ''}]"
    return text if isinstance(value, Mapping) and "kind" in value else f"{name}={text}"
