"""Cleaning of a corpus: the same for any number of workers and interruptions, and told."""

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from kills import check
from trials import Trials

from unmask.jobs.corpus import clean as module
from unmask.jobs.corpus import cleaned_chunks
from unmask.jobs.corpus.clean import clean_corpus, read_cleaned
from unmask.jobs.corpus.cleaning_report import cleaning_page, describe_cleaning
from unmask.jobs.corpus.prepare import prepare
from unmask.text.cleaning.rules import Cleaning, parse_cleaning
from unmask.text.documents import Document

NOUNS = ["north", "dog", "river", "stone", "wolf", "boat", "lamp", "field"]
STOP_WORDS = ["the", "of", "and", "with"]


def story(i: int) -> str:
    rng = random.Random(i)
    words = [[rng.choice(STOP_WORDS), f"{rng.choice(NOUNS)}{rng.randrange(99)}"] for _ in range(30)]
    said = [word for pair in words for word in pair]
    return "\n".join(f"{i} {' '.join(said[at : at + 20])}." for at in range(0, 60, 20))


def corpus(n: int = 60) -> Iterator[Document]:
    for i in range(n):
        yield Document(story(i) + f"\nMenu {i}", f"a.txt:{5 * i + 1}")
        if i % 10 == 3:
            yield Document(story(i - 1) + f"\nHome {i}", f"copy.txt:{i}")
        if i % 20 == 5:
            yield Document("Home\nCart", f"menu.txt:{i}")


ALL = parse_cleaning(
    ["unicode", "c4", "gopher:min_words=20"], ["exact", "near", "exact:unit=paragraph"], []
)


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if not p.name.startswith(".")}


def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_CHARACTERS", 3000)
    monkeypatch.setattr(cleaned_chunks, "CHUNK_CHARACTERS", 1000)


def cleaned(folder: Path, how: Cleaning = ALL, n_workers: int = 1):
    return clean_corpus(corpus(), how, folder, made_from={"data": "x"}, n_workers=n_workers)


def test_what_is_left_and_what_was_removed(tmp_path: Path) -> None:
    report = cleaned(tmp_path)
    assert [d.text for d in read_cleaned(tmp_path)] == [story(i) for i in range(60)]
    assert next(read_cleaned(tmp_path)).location == "a.txt:1"
    assert report.kept.documents == 60
    assert report.read.documents == 60 + 6 + 3
    removed = {reason: (one.documents, one.lines) for reason, one in report.removed.items()}
    assert removed == {
        "c4: no final mark": (0, 66),
        "c4: fewer than 3 sentences": (3, 0),
        "the same document": (6, 0),
        "nearly the same document": (0, 0),
        "the same paragraph": (0, 0),
    }
    (example, *_) = report.removed["the same document"].examples
    assert example["location"] == "copy.txt:3"
    assert example["stays"] == example["text"] == story(2)[:300]
    read = sum(len(d.text) for d in corpus())
    lost = sum(one.characters for one in report.removed.values())
    assert report.read.characters == read
    assert report.kept.characters == read - lost - 66  # line ends


@pytest.mark.parametrize("n_workers", [2, 3])
def test_workers_do_not_change_the_text(tmp_path: Path, n_workers: int, monkeypatch) -> None:
    small_parts(monkeypatch)
    cleaned(tmp_path / "one")
    cleaned(tmp_path / "more", n_workers=n_workers)
    assert len(contents(tmp_path / "one")) > 5
    assert contents(tmp_path / "one") == contents(tmp_path / "more")


def test_interrupted_cleaning_continues_to_the_same_text(tmp_path: Path, monkeypatch) -> None:
    small_parts(monkeypatch)
    cleaned(tmp_path / "whole")
    for n in (0, 1, 7, 30, 68):

        def killed(n: int = n) -> Iterator[Document]:
            for i, document in enumerate(corpus()):
                if i == n:
                    raise KeyboardInterrupt
                yield document

        folder = tmp_path / f"killed-{n}"
        with pytest.raises(KeyboardInterrupt):
            clean_corpus(killed(), ALL, folder, made_from={"data": "x"})
        assert not list(folder.glob("*.jsonl.gz"))
        cleaned(folder)
        assert contents(folder) == contents(tmp_path / "whole")
        assert not (folder / "unfinished").exists()


def test_finished_cleaning_is_not_repeated(tmp_path: Path) -> None:
    first = cleaned(tmp_path)
    again = clean_corpus(iter(()), ALL, tmp_path, made_from={"data": "x"})
    assert again == first


def test_other_text_or_rules_need_another_folder(tmp_path: Path) -> None:
    cleaned(tmp_path / "text")
    with pytest.raises(ValueError, match="its text was cleaned with another cleaning"):
        cleaned(tmp_path / "text", parse_cleaning(["c4"], [], []))
    with pytest.raises(ValueError, match="another data"):
        clean_corpus(corpus(), ALL, tmp_path / "text", made_from={"data": "y"})


def test_paragraph_of_a_removed_document_stays_where_it_is_next(tmp_path: Path) -> None:
    base = " ".join(f"word{i}" for i in range(200))
    own = " ".join(f"own{i}" for i in range(12))
    documents = [Document(base, "1"), Document(f"{base}\n{own}", "2"), Document(own, "3")]
    how = parse_cleaning([], ["near", "exact:unit=paragraph"], [])
    clean_corpus(documents, how, tmp_path, made_from={})
    assert [d.text for d in read_cleaned(tmp_path)] == [base, own]


def test_nothing_left_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nothing is left .* most went by: c4: fewer than 3"):
        clean_corpus(
            [Document("Home\nCart", "1")], parse_cleaning(["c4"], [], []), tmp_path, made_from={}
        )


def test_sources_and_odd_characters_stay(tmp_path: Path) -> None:
    odd = "a\u2028b \u202e \U0001f600 \x1b[31m <b>"
    documents = [Document(odd, "x:1", "de"), Document("plain", "y:1")]
    how = parse_cleaning([], ["exact"], [])
    clean_corpus(documents, how, tmp_path, made_from={})
    assert list(read_cleaned(tmp_path)) == documents


def test_report_escapes_what_comes_from_text(tmp_path: Path) -> None:
    script = "<script>alert(1)</script> \x1b[31m" + story(0)
    documents = [Document(script, "<b>:1"), Document(script, "<b>:2")]
    how = parse_cleaning([], ["exact"], [])
    report = clean_corpus(documents, how, tmp_path, made_from={})
    page = cleaning_page(report, how)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert "\x1b" not in page
    assert next(iter(describe_cleaning(report))).startswith("cleaned: 1 of 2 documents are left")


def test_prepare_cleans_before_it_tokenizes(tmp_path: Path) -> None:
    text = tmp_path / "a.txt"
    text.write_text("\n\n".join(d.text for d in corpus()))
    how = {"clean": ["c4"], "deduplicate": "exact", "vocab_size": 200, "quiet": True}
    shards = prepare(text, out=tmp_path / "out", **how)
    assert shards.n_documents == 60
    told = json.loads((tmp_path / "out/text/cleaning.json").read_text())
    assert told["report"]["kept"]["documents"] == 60
    assert "What cleaning left" in (tmp_path / "out/text/report.html").read_text()
    with gzip.open(tmp_path / "out/text/00000.jsonl.gz", "rt") as file:
        assert json.loads(next(file))["text"] == story(0)
    assert prepare(text, out=tmp_path / "out", **how).n_tokens == shards.n_tokens
    with pytest.raises(ValueError, match="other values of clean, deduplicate or decontaminate"):
        prepare(text, out=tmp_path / "out", vocab_size=200, quiet=True)
    plain = prepare(
        tmp_path / "out/text/00000.jsonl.gz", out=tmp_path / "plain", vocab_size=200, quiet=True
    )
    assert plain.n_tokens == shards.n_tokens


@pytest.mark.thorough
def test_preparation_killed_at_any_write_ends_as_uninterrupted(
    tmp_path: Path, monkeypatch, trials: Trials
) -> None:
    small_parts(monkeypatch)
    (tmp_path / "a.txt").write_text("\n\n".join(d.text for d in corpus(20)))

    def job(home: Path, out: Path, is_resumed: bool) -> None:
        prepare(
            home / "a.txt", out=out, clean="c4", deduplicate=["exact", "exact:unit=paragraph"],
            vocab_size=200, quiet=True,
        )  # fmt: skip

    check(job, tmp_path, tmp_path / "run", lambda events: set(range(len(events))), trials)


@pytest.mark.parametrize("name", ["notes.txt", "00000.jsonl.gz"])
def test_folder_of_somebody_else_is_not_written_to(tmp_path: Path, name: str) -> None:
    text = tmp_path / "a.txt"
    text.write_text("\n\n".join(d.text for d in corpus()))
    (tmp_path / "out/text").mkdir(parents=True)
    (tmp_path / "out/text" / name).write_text("mine")
    with pytest.raises(FileExistsError, match="holds files, but no prepared tokens"):
        prepare(text, out=tmp_path / "out", clean="c4", vocab_size=200, quiet=True)
    assert (tmp_path / "out/text" / name).read_text() == "mine"


def test_evaluation_files_that_changed_need_another_folder(tmp_path: Path) -> None:
    text, file = tmp_path / "a.txt", tmp_path / "test.jsonl"
    text.write_text("\n\n".join(d.text for d in corpus()))
    file.write_text(json.dumps({"q": story(0).split("\n")[1]}) + "\n")
    how = {"decontaminate": file, "vocab_size": 200, "quiet": True}
    prepare(text, out=tmp_path / "out", **how)
    kept = [d.text for d in read_cleaned(tmp_path / "out/text")]
    assert story(0) not in kept[0]
    assert len(kept) == 60 + 6 + 3
    file.write_text(json.dumps({"q": story(1)}) + "\n")
    with pytest.raises(ValueError, match="name another folder"):
        prepare(text, out=tmp_path / "out", **how)


def test_translation_pairs_cannot_be_cleaned(tmp_path: Path) -> None:
    for name in ("de", "en"):
        (tmp_path / f"a.{name}").write_text("a b c\n" * 50)
    pair = f"de={tmp_path}/a.de+en={tmp_path}/a.en"
    with pytest.raises(ValueError, match="translation pairs cannot be cleaned"):
        prepare(pair, out=tmp_path / "out", clean=["c4"], quiet=True, model="xlm-mini")
