"""Bytes that are not UTF-8 -> the encoding that they are probably in."""

import codecs
import re
import unicodedata
from collections.abc import Sequence

SAMPLE_BYTES = 400_000
"""Of a file, from its beginning, by which the encoding is guessed."""
_MAX_WORDS = 3_000
_WORD = re.compile(rb"[^\x00-\x20]*[\x80-\xff][^\x00-\x20]*")
"""A word with bytes that are not ASCII."""
_OF_LANGUAGES = {
    "windows-1250": "pl cs sk hu ro sl hr bs sq",
    "windows-1251": "ru uk bg be mk sr kk",
    "windows-1253": "el",
    "windows-1254": "tr az",
    "windows-1255": "he yi",
    "windows-1256": "ar fa ur",
    "windows-1257": "et lv lt",
    "windows-1258": "vi",
    "windows-874": "th",
    "shift_jis": "ja",
    "gb18030": "zh",
    "euc-kr": "ko",
}
"""What spreadsheet programs write on machines of these languages (ISO 639)."""
_ENCODINGS = (
    "windows-1252", "windows-1250", "windows-1251", "windows-1253", "windows-1254", "windows-1257",
    "windows-1255", "windows-1256", "iso-8859-2", "koi8-r", "ibm852", "ibm866", "ibm850",
    "macintosh", "mac_latin2",
)  # fmt: skip
"""In the order in which the first of equally good ones is taken."""
_MOST_ACCENTED = 4
"""Accented Latin letters in a row, as in "żółć"; Cyrillic read as Latin has more."""
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_PYTHON_NAMES = {"windows-874": "cp874", "shift_jis": "cp932", "euc-kr": "cp949"}


def guess_encoding(data: bytes, languages: Sequence[str] = ()) -> str:
    """Return the encoding in which bytes make the fewest odd words.

    Odd are signs within words (Polish read as Western European: "by³o"), capitals after small
    letters, letters of two scripts in a word, and more than four accented letters in a row. Of
    equally good ones, that of the reader's languages is taken.

    Args:
        data: the bytes of a text; a character may be cut at the end.
        languages: tags such as "pl" and "de-AT", the most preferred first.

    >>> guess_encoding("Było już późno".encode("windows-1250"))
    'windows-1250'
    """
    for mark, name in _BYTE_ORDER_MARKS.items():
        if data.startswith(mark):
            return name
    sample = data[:SAMPLE_BYTES]
    if _is_utf8(sample):
        return "utf-8"
    if (order := _byte_order(sample)) is not None:
        return order
    wanted = [name for one in languages for name in _encodings_of(one)]
    words = b" ".join(
        one[0] for _, one in zip(range(_MAX_WORDS), _WORD.finditer(sample), strict=False)
    )
    scores = {name: _oddness(words, name) for name in dict.fromkeys((*wanted, *_ENCODINGS))}
    return min(scores, key=lambda name: scores[name])


def decode(data: bytes, encoding: str) -> str:
    """Decode bytes.

    Raises:
        ValueError: there is no such encoding of texts, or the bytes are not in it.
    """
    try:
        return data.decode(_PYTHON_NAMES.get(encoding, encoding))
    except UnicodeDecodeError as error:
        raise ValueError(f"not {encoding} at byte {error.start + 1:,}") from None
    except LookupError:
        raise ValueError(f"there is no encoding {encoding!r:.100}") from None


def _encodings_of(language: str) -> list[str]:
    code = language.lower().partition("-")[0]
    return [name for name, codes in _OF_LANGUAGES.items() if code in codes.split()]


def _is_utf8(sample: bytes) -> bool:
    """Return whether bytes are UTF-8, but for a character that is cut at the end."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return False
    return True


def _byte_order(sample: bytes) -> str | None:
    """Return UTF-16 with its byte order, of bytes of which every second is 0; else None."""
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    if max(even, odd) * 5 < len(sample):
        return None
    return "utf-16-le" if odd > even else "utf-16-be"


def _oddness(sample: bytes, encoding: str) -> float:
    """Return how odd the words are that an encoding makes of bytes: a count, less is better."""
    name = _PYTHON_NAMES.get(encoding, encoding)
    text = codecs.getincrementaldecoder(name)("replace").decode(sample)
    odd = 0.0
    script = before = ""
    n_accented = 0
    for character in text:
        if character.isascii():
            now = "LATIN" if character.isalpha() else ""
            n_accented = 0
        else:
            kind = unicodedata.category(character)
            now = unicodedata.name(character, "").partition(" ")[0] if kind[0] in "LM" else ""
            n_accented = n_accented + 1 if now == "LATIN" else 0
            odd += _odd_character(character, kind, before) + (n_accented > _MOST_ACCENTED)
        odd += bool(script and now and script != now)
        script, before = now, character
    return odd


def _odd_character(character: str, kind: str, before: str) -> float:
    if kind in ("Cc", "Co", "Cn") or character == "\ufffd":
        return 4.0
    in_word = before.isalpha() or unicodedata.category(before or " ")[0] == "M"
    if kind[0] == "M":
        return float(not in_word)
    if kind[0] == "L":
        return float(kind == "Lu" and before.islower())
    return float(in_word and kind in ("So", "Sk", "Sm", "Sc", "No", "Cf", "Lo"))
