"""Make the bundled text and task (unmask/demo) from a folder of novels, the same bytes every time.

    python scripts/demo_data.py BOOKS OUT

BOOKS has index.tsv (split, author, title, chapters, words, repository) and for each split a file
SPLIT.txt.xz: a paragraph a line, chapters parted by one blank line, books by two, in the order of
the index. The task asks of a sentence whether a character says it or the narrator tells it.
"""

import argparse
import csv
import hashlib
import lzma
import re
from pathlib import Path

NOVELS = ("David Copperfield", "Emma", "The Moonstone", "Little Women")
LABELLED = 100
"""Sentences of the training split that are kept."""

# Split: books, and sentences of each class from each. No book is pretrained on; no book or author
# is in two splits.
TASK = {
    "train": (
        ("Middlemarch", "The Adventures of Tom Sawyer", "Anne of Green Gables", "Vanity Fair"),
        100,
    ),
    "dev": (("The Secret Garden", "The Wind in the Willows"), 100),
    "test": (
        (
            "Persuasion",
            "The Picture of Dorian Gray",
            "Howards End",
            "Tess of the d’Urbervilles",
            "The Portrait of a Lady",
        ),
        400,
    ),
}
ENDS = re.compile(
    r"(?<!\bMr\.)(?<!\bMrs\.)(?<!\bDr\.)(?<!\bSt\.)(?<!\bMessrs\.)(?<!\b[A-Z]\.)"
    r"(?<=[.!?]) (?=[A-Z])"
)
# Words that give speech away. Without them verbs, tense and vocabulary must tell.
PERSONS = re.compile(
    r"\b(I|me|my|mine|myself|we|us|our|ours|ourselves"
    r"|you|your|yours|yourself|yourselves|thou|thee|thy|thine|ye)\b",
    re.IGNORECASE,
)
ATTRIBUTION = """\
novels.txt.xz ({novels}) and the
sentences of spoken/ are taken from novels in the public domain as produced by Standard Ebooks
(https://standardebooks.org), who dedicate their productions to the public domain (CC0 1.0). The
sentences and labels of spoken/ were drawn from them by program (scripts/demo_data.py).
"""


def read_books(folder: Path) -> dict[str, tuple[dict[str, str], str]]:
    """Return each book's row of the index and its text, by title."""
    with (folder / "index.tsv").open(encoding="utf-8") as file:
        index = list(csv.DictReader(file, delimiter="\t"))
    found: dict[str, tuple[dict[str, str], str]] = {}
    for split in ("train", "valid", "test"):
        with lzma.open(folder / f"{split}.txt.xz", "rt", encoding="utf-8") as file:
            texts = file.read().strip("\n").split("\n\n\n")
        rows = [row for row in index if row["split"] == split]
        found |= {row["title"]: (row, text) for row, text in zip(rows, texts, strict=True)}
    return found


def is_usable(sentence: str) -> bool:
    """Say whether nothing but its language tells who speaks."""
    return (
        8 <= len(sentence.split()) <= 24
        and sentence[0].isupper()
        and sentence.endswith(".")
        and not re.search("[“”‘\t—]", sentence)
        and not PERSONS.search(sentence)
    )


def told_and_spoken(book: str) -> tuple[list[str], list[str]]:
    """Return sentences of paragraphs without quotation marks, and sentences within marks."""
    told: dict[str, None] = {}
    spoken: dict[str, None] = {}
    for chapter in book.split("\n\n"):
        for paragraph in chapter.split("\n")[1:]:
            marks = re.findall("[“”]", paragraph)
            if not marks:
                told |= dict.fromkeys(filter(is_usable, ENDS.split(paragraph)))
            elif marks == ["“", "”"] * (len(marks) // 2):
                for quote in re.findall("“([^”]*)”", paragraph):
                    spoken |= dict.fromkeys(filter(is_usable, ENDS.split(quote)))
    return [s for s in told if s not in spoken], [s for s in spoken if s not in told]


def by_hash(text: str, salt: str = "") -> str:
    """Return what texts are sorted by to choose some of them blindly."""
    return hashlib.sha256((salt + text).encode()).hexdigest()


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("books", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    books = read_books(options.books)
    (options.out / "spoken").mkdir(parents=True, exist_ok=True)
    text = "\n\n\n".join(books[title][1] for title in NOVELS) + "\n"
    packed = lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)
    (options.out / "novels.txt.xz").write_bytes(packed)
    for split, (titles, most) in TASK.items():
        rows: list[tuple[str, str, str]] = []
        for title in titles:
            classes = told_and_spoken(books[title][1])
            n = min(most, *map(len, classes))
            for name, found in zip(("told", "spoken"), classes, strict=True):
                rows += [(s, name, title) for s in sorted(found, key=by_hash)[:n]]
        # By another hash than the one that chose, or the first rows would be lopsided.
        rows.sort(key=lambda row: by_hash(row[0], "order "))
        kept = rows[:LABELLED] if split == "train" else rows
        table = "sentence\tlabel\tbook\n" + "".join("\t".join(row) + "\n" for row in kept)
        (options.out / "spoken" / f"{split}.tsv").write_text(table, encoding="utf-8")
    used = (*NOVELS, *(title for titles, _ in TASK.values() for title in titles))
    lines = ATTRIBUTION.format(novels="; ".join(NOVELS))
    for title in used:
        row = books[title][0]
        lines += f"- {row['author']}, {title}: https://github.com/{row['repository']}\n"
    (options.out / "ATTRIBUTION").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main()
