"""Make the bundled pictures (unmask/bundled/demo/emoji.zip), the same bytes every time.

    npm pack @iconify-json/fluent-emoji-flat@1.2.6 unicode-emoji-json@0.9.0
    npm pack cldr-annotations-full@48.2.0    # then unpack each in PACKAGES/NAME-VERSION
    pip install resvg_py==0.5.0 pillow
    python scripts/emoji_data.py PACKAGES OUT

Pictures are Microsoft's Fluent Emoji (flat) of 32 x 32 pixels on white, labels the groups of
Unicode, captions the names of Unicode's CLDR in English, German, French and Spanish.
"""

import argparse
import csv
import io
import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SIDE = 32
GROUPS = {
    "Smileys & Emotion": "smileys",
    "Animals & Nature": "nature",
    "Food & Drink": "food",
    "Travel & Places": "places",
    "Activities": "activities",
    "Objects": "objects",
}
"""Of Unicode, and the labels here. People, symbols and flags are left out."""
PER_GROUP = 60
"""At most; evenly spaced in the order of Unicode."""
EVERY_NTH_IS_TEST = 5
LANGUAGES = ("en", "de", "fr", "es")
ALIKE = re.compile(r"o’clock|thirty|moon|file|mailbox|calendar|heart|sun with|circle")
"""English names of which there are many that look alike."""
DATE = (2020, 1, 1, 0, 0, 0)
"""Of all members of the archive: its bytes do not depend on the day."""


@dataclass(frozen=True)
class Emoji:
    """One emoji: its code point, group and names."""

    code: str
    group: str
    names: tuple[str, ...]
    svg: str


def read_emoji(packages: Path) -> Iterator[Emoji]:
    """Yield all emoji of one code point that have a picture and a name in each language."""
    icons = _json(packages, "iconify-json-fluent-emoji-flat", "icons.json")
    codes = _json(packages, "iconify-json-fluent-emoji-flat", "chars.json")
    groups = _json(packages, "unicode-emoji-json", "data-by-emoji.json")
    names = [_names(packages, language) for language in LANGUAGES]
    for character, facts in groups.items():
        bare = character.removesuffix("\ufe0f")
        if len(bare) != 1 or facts["group"] not in GROUPS:
            continue
        icon = codes.get(f"{ord(bare):x}") or codes.get(f"{ord(bare):x}-fe0f")
        icon = icons["aliases"].get(icon, {}).get("parent", icon)
        own = [table.get(bare) or table.get(character) for table in names]
        if icon in icons["icons"] and all(own) and not ALIKE.search(own[0]):
            size = f'viewBox="0 0 {SIDE} {SIDE}" width="{SIDE}" height="{SIDE}"'
            body = icons["icons"][icon]["body"]
            svg = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{body}</svg>'
            yield Emoji(f"{ord(bare):x}", GROUPS[facts["group"]], tuple(own), svg)


def _names(packages: Path, language: str) -> dict[str, str]:
    found = _json(packages, "cldr-annotations-full", f"annotations/{language}/annotations.json")
    table = found["annotations"]["annotations"]
    return {character: facts["tts"][0] for character, facts in table.items() if "tts" in facts}


def _json(packages: Path, package: str, name: str) -> Any:
    (folder,) = packages.glob(f"{package}-[0-9]*/package")
    return json.loads((folder / name).read_text(encoding="utf-8"))


def chosen(emoji: list[Emoji]) -> list[Emoji]:
    """Return evenly spaced emoji of each group, all with English names of their own."""
    out: list[Emoji] = []
    for group in GROUPS.values():
        own = list({one.names[0]: one for one in emoji if one.group == group}.values())
        n = min(PER_GROUP, len(own))
        out += [own[i * len(own) // n] for i in range(n)]
    return out


def to_png(svg: str) -> bytes:
    """Draw a picture in RGB on white."""
    import resvg_py
    from PIL import Image

    drawn = resvg_py.svg_to_bytes(svg_string=svg, background="#ffffff", skip_system_fonts=True)
    picture = Image.open(io.BytesIO(bytes(drawn))).convert("RGB")
    assert picture.size == (SIDE, SIDE)
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def write(emoji: list[Emoji], path: Path) -> None:
    """Write the archive: a table, and a picture for each row."""
    table = io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow(("file_name", "label", "caption", *LANGUAGES[1:], "split"))
    with zipfile.ZipFile(path, "w") as archive:
        for i, one in enumerate(emoji):
            name = f"{one.group}/{one.code}.png"
            _add(archive, name, to_png(one.svg), zipfile.ZIP_STORED)
            split = "train" if (i + 1) % EVERY_NTH_IS_TEST else "test"
            rows.writerow((name, one.group, *one.names, split))
        _add(archive, "metadata.csv", table.getvalue().encode(), zipfile.ZIP_DEFLATED)


def _add(archive: zipfile.ZipFile, name: str, data: bytes, packing: int) -> None:
    info = zipfile.ZipInfo(name, DATE)
    info.external_attr = 0o644 << 16
    archive.writestr(info, data, packing)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("packages", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    write(chosen(list(read_emoji(args.packages))), args.out / "emoji.zip")
