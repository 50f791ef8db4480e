"""Numbers, names and settings as people read them: rounded, with units, no longer than needed."""

import math
from collections.abc import Mapping
from typing import Any

Number = int | float  # an int is no float to a type checker at run time
NARROW = "\N{NARROW NO-BREAK SPACE}"  # between a number and its unit
MINUS = "\N{MINUS SIGN}"
NOTHING = "–"  # where a number is missing
PREFIXES = tuple((1000.0**i, prefix) for i, prefix in enumerate("kMGTPEZY", 1))[::-1]
WORDS = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))
MOST_ITEMS = 8  # of a list that are written out
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def plain(value: Number, digits: int = 3) -> str:
    """Write a number with at least `digits` significant digits: 1,234 or 0.0123 or 3.1 × 10⁻⁵."""
    if not math.isfinite(value):
        return "not finite"
    if value == 0:
        return "0"
    exponent = int(f"{value:.{digits - 1}e}".split("e")[1])  # after rounding: 999.9 is 1,000
    if exponent < -3 or exponent >= 15:
        mantissa, exponent = f"{value:.1e}".replace("-", MINUS, value < 0).split("e")
        return f"{mantissa}{NARROW}×{NARROW}{power(int(exponent))}"
    return f"{value:,.{max(digits - 1 - exponent, 0)}f}".replace("-", MINUS)


def rounded(value: Number, digits: int = 3) -> str:
    """Write a number with `digits` significant digits: 24,012 is 24,000."""
    return plain(float(f"{value:.{digits}g}"), digits)


def power(exponent: int) -> str:
    """Write a power of ten: 10⁻⁴."""
    return "10" + str(exponent).translate(SUPERSCRIPT)


def percent(share: Number, after: int = 1) -> str:
    """Write a share as percent: 0.3817 is 38.2 %."""
    return f"{100 * share:.{after}f}{NARROW}%".replace("-", MINUS)


def short(value: Number) -> str:
    """Write a large number with its SI prefix (12.3 M), a small one as it is."""
    for scale, prefix in PREFIXES:
        if abs(value) >= 0.9995 * scale:
            return f"{plain(value / scale)}{NARROW}{prefix}"
    return plain(value)


def spoken(value: Number) -> str:
    """Write a large number as a sentence would (12.3 million), a small one to three digits."""
    for scale, word in WORDS:
        if abs(value) >= 0.9995 * scale:
            return f"{plain(value / scale)} {word}"
    return rounded(value)


def duration(seconds: Number) -> str:
    """Write a time in its two largest units: 8 min 12 s."""
    if seconds < 59.5:
        return f"{plain(seconds, 2)}{NARROW}s"
    total = round(seconds)
    days, hours, minutes = total // 86400, total // 3600 % 24, total // 60 % 60
    units = ((days, "d"), (hours, "h"), (minutes, "min"), (total % 60, "s"))
    first = next(i for i, (n, _) in enumerate(units) if n)
    return " ".join(f"{n}{NARROW}{unit}" for n, unit in units[first : first + 2] if n)


def memory(n_bytes: Number) -> str:
    """Write an amount of memory in binary units: 1.40 GiB."""
    for scale, unit in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if n_bytes >= scale:
            return f"{plain(n_bytes / scale)}{NARROW}{unit}"
    return f"{n_bytes:,.0f}{NARROW}bytes"


def energy(joules: Number) -> str:
    """Write an energy in watt-hours, the unit of electricity bills."""
    hours = joules / 3600
    return f"{short(hours)}{'' if hours >= 999.5 else NARROW}Wh"


def readable(name: str) -> str:
    """Write a name of the log as words: masked_accuracy as masked accuracy."""
    return name.replace("_", " ").replace(".", " ")


def cut(text: str, most: int) -> str:
    """Shorten a text, and say by how much."""
    if len(text) <= most:
        return text
    return f"{text[:most].rstrip()} … ({len(text) - most:,} more characters)"


def expression(value: Any) -> str:
    """Write plain data as in code: Hide(Words(rate=0.15), InPlace(mask=0.8, random=0.1))."""
    if value == {}:
        return "none"
    if isinstance(value, Mapping):
        inside = ", ".join(_argument(k, v) for k, v in value.items() if k != "kind")
        return f"{value.get('kind', '')}({inside})"
    if isinstance(value, list | tuple):
        more = f", … ({len(value)} in all)" if len(value) > MOST_ITEMS else ""
        return ", ".join(map(expression, value[:MOST_ITEMS])) + more if value else "none"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _argument(name: str, value: Any) -> str:
    text = expression(value)
    if isinstance(value, list | tuple):
        text = f"[{text if value else ''}]"
    return text if isinstance(value, Mapping) and "kind" in value else f"{name}={text}"
