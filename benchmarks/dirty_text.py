"""Dirt of the web, put on real text in stated proportions.

`dirty(articles, data, seed)` gives documents like those of a crawl: articles with menus and notices
around them, some damaged, some twice, and between them documents that are no text at all. Each kind
is made the way it comes about: mojibake by the wrong decoding, code and other languages from real
files, templates and spam by programs that fill in words. All is a function of the seed.
"""

import json
import lzma
import random
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MENU = 0.6
"""Share of the articles with menus, buttons and notices before, within and after the text."""
MOJIBAKE = 0.08
"""Share of the articles whose UTF-8 was read as Windows-1252."""
COPIES = 0.15
"""Copies of articles as they are, by articles."""
EDITED_COPIES = 0.15
"""Copies in which one word in a hundred is another, by articles."""
OTHER_DOCUMENTS = {"template": 0.25, "spam": 0.15, "code": 0.2, "language": 0.15, "lorem": 0.05}
"""Characters of documents that are no English text, by those of the articles."""

_MENU_LINES = (
    "Home | About us | Products | Contact | Log in", "Skip to content", "Toggle navigation",
    "Share this on Facebook", "Tweet", "Click here to read more", "0 comments", "Leave a reply",
    "Please enable JavaScript to view the comments.", "Terms of use and privacy policy",
    "This site uses cookies. By browsing it you accept our use of cookies.",
    "Copyright {year} {word}.com - All rights reserved", "Posted on {month} {day}, {year} by admin",
    "Tags: {word}, {word}, {word}", "Related articles: {word} {word}; {word} {word} {word}",
    "Subscribe to our newsletter", "Previous | 1 | 2 | 3 | 4 | 5 | Next", "Print this page",
    "Sign up today and get {day} % off your first {word}!", "{day} people like this",
)  # fmt: skip
_TEMPLATES = (
    "Buy {word} {word} online at the best price. We have {number} kinds of {word} in stock. "
    "Free shipping on all orders of {word} over ${number}. Rated {day} of 31 by our customers.",
    "The weather in {Word} on {month} {day}: {day} degrees, wind from the west at {day} km/h. "
    "Tomorrow in {Word}: {day} degrees. Hotels in {Word} from ${number} a night.",
    "{Word} {Word} lives in {Word}. Look up {Word} {Word}'s phone number, address and {number} "
    "public records. People also searched for {Word} {Word} and {Word} {Word}.",
    "Driver download for {Word} {number} - {word}.zip ({number} KB). Downloads: {number}. "
    "Click the button below to download the {Word} {number} driver. Version {day}.{day}.",
)
_LOREM = (
    "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut "
    "labore et dolore magna aliqua ut enim ad minim veniam quis nostrud exercitation ullamco "
    "laboris nisi ut aliquip ex ea commodo consequat duis aute irure dolor in reprehenderit"
)
_MONTHS = ("January", "March", "April", "June", "July", "August", "October", "November")


@dataclass(frozen=True)
class Dirt:
    """Makes dirt of the words of the articles."""

    words: Sequence[str]
    data: Path
    draw: random.Random

    def fill(self, text: str) -> str:
        """Fill in the blanks of a template."""
        makers: dict[str, Callable[[], str]] = {
            "{word}": lambda: self.draw.choice(self.words).lower(),
            "{Word}": lambda: self.draw.choice(self.words).capitalize(),
            "{number}": lambda: str(self.draw.randrange(1, 5000)),
            "{day}": lambda: str(self.draw.randrange(1, 32)),
            "{year}": lambda: str(self.draw.randrange(1998, 2026)),
            "{month}": lambda: self.draw.choice(_MONTHS),
        }
        for blank, make in makers.items():
            while blank in text:
                text = text.replace(blank, make(), 1)
        return text

    def menu(self, text: str) -> str:
        """Put lines of a page around and between the paragraphs of a text."""

        def some(n: int) -> list[str]:
            return [self.fill(line) for line in self.draw.sample(_MENU_LINES, n)]

        lines = text.split("\n")
        at = self.draw.randrange(len(lines) + 1)
        return "\n".join([*some(4), *lines[:at], *some(2), *lines[at:], *some(6)])

    def edited(self, text: str) -> str:
        """Replace one word in a hundred."""
        return "\n".join(
            " ".join(
                self.draw.choice(self.words) if self.draw.random() < 0.01 else word
                for word in line.split(" ")
            )
            for line in text.split("\n")
        )

    def template(self) -> Iterator[str]:
        """Yield pages of a shop, a weather service, a directory, a download site."""
        while True:
            one = self.draw.choice(_TEMPLATES)
            yield "\n".join(self.fill(one) for _ in range(self.draw.randrange(3, 9)))

    def spam(self) -> Iterator[str]:
        """Yield lists of words, some of them again and again."""
        while True:
            keys = self.draw.choices(self.words, k=5)
            words = self.draw.choices([*keys * 40, *self.draw.choices(self.words, k=200)], k=400)
            yield "\n".join(" ".join(words[i : i + 40]) for i in range(0, 400, 40))

    def lorem(self) -> Iterator[str]:
        """Yield text of typesetters."""
        while True:
            words = self.draw.choices(_LOREM.split(), k=self.draw.randrange(100, 300))
            yield f"Lorem ipsum {' '.join(words)}."

    def code(self) -> Iterator[str]:
        """Yield pieces of the standard library."""
        files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
        while True:
            lines = self.draw.choice(files).read_text("utf-8", "replace").replace("\0", "")
            kept = [line for line in lines.split("\n") if line.strip()]
            at = self.draw.randrange(max(1, len(kept) - 60))
            yield "\n".join(kept[at : at + 60])

    def language(self) -> Iterator[str]:
        """Yield German and Spanish paragraphs, and German and French captions."""
        texts = list[str]()
        for path in sorted(self.data.glob("xquad/xquad.[de][es].json.xz")):
            with lzma.open(path, "rt", encoding="utf-8") as file:
                articles = json.load(file)["data"]
            texts += [p["context"] for article in articles for p in article["paragraphs"]]
        for path in sorted(self.data.glob("multi30k/train.[df][er].xz")):
            with lzma.open(path, "rt", encoding="utf-8") as file:
                lines = file.read().splitlines()
            texts += ["\n".join(lines[i : i + 8]) for i in range(0, len(lines), 8)]
        while True:
            yield from self.draw.sample(texts, len(texts))


def dirty(articles: Sequence[str], data: Path, seed: int = 0) -> list[str]:
    """Return the documents of a crawl in which these articles are."""
    draw = random.Random(seed)
    words = [w for text in articles[:500] for w in text.split() if w.isalpha() and len(w) > 3]
    dirt = Dirt(words, data, draw)
    copies = [t for t in articles if draw.random() < COPIES]
    edited = [dirt.edited(t) for t in articles if draw.random() < EDITED_COPIES]
    texts = [
        dirt.menu(text) if draw.random() < MENU else text for text in [*articles, *copies, *edited]
    ]
    texts = [
        t.encode().decode("cp1252", "replace") if draw.random() < MOJIBAKE else t for t in texts
    ]
    size = sum(map(len, articles))
    for kind, share in OTHER_DOCUMENTS.items():
        left = share * size
        for text in getattr(dirt, kind)():
            if left <= 0:
                break
            texts.append(text)
            left -= len(text)
    draw.shuffle(texts)
    return texts
