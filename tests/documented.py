"""Commands of the documents, small files of a reader, and training in seconds.

A page says at its top which files are the reader's: a paragraph that begins with `Your files:`.
"""

import json
import lzma
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from toy_text import DID, WHAT, WHEN, WHO, corpus

import unmask
from unmask.cli import main as cli
from unmask.evaluation.zero_shot import ZERO_SHOT
from unmask.studies.probing.published import WHAT_LAYERS_KNOW
from unmask.studies.transfer.published import TRANSFER
from unmask.tasks.suites.bundled import SUITES
from unmask.zoo.catalogue import MODELS as PRESETS

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    path
    for pattern in ("*.md", "examples/*.md", "docs/*.md", "docs/tutorials/*.md")
    for path in sorted(ROOT.glob(pattern))
    if path.name not in ("log.md", "CHANGELOG.md")  # of what was done at its time
]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"", "sh", "bash", "python", "text", "toml", "json"}


@dataclass(frozen=True)
class Block:
    """A fenced part of a document."""

    document: Path
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A command line: its words, with the patterns that a shell would expand."""

    block: Block
    line: int
    text: str
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.block.document.relative_to(ROOT)}:{self.line}"


def blocks(documents: Sequence[Path] = DOCUMENTS) -> list[Block]:
    """Find all fenced parts of documents."""
    found: list[Block] = []
    for path in documents:
        text = path.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            line = text[: match.start()].count("\n") + 2
            found.append(Block(path, line, match[1], match[2]))
    return found


def commands(documents: Sequence[Path] = DOCUMENTS) -> list[Command]:
    """Find all command lines of documents: of `unmask`, of Python, of make and pip."""
    found: list[Command] = []
    for block in blocks(documents):
        if block.language not in ("", "sh", "bash") or "unmask/\n" in block.text:
            continue
        number, held = block.line, ""
        for i, text in enumerate(block.text.splitlines()):
            number = number if held else block.line + i
            held += text
            if held.endswith("\\"):
                held = held[:-1] + " "
                continue
            if held.strip():
                words = shlex.split(held, comments=True)
                found.append(Command(block, number, held.strip(), tuple(_bare(words))))
            held = ""
    return found


def _bare(words: list[str]) -> Iterator[str]:
    """Leave out settings before a command, what runs it, and that it runs in the background."""
    while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        words = words[1:]
    if words[:1] == ["torchrun"]:
        words = words[words.index("--no-python") + 1 :]
    yield from (word for word in words if word != "&")


# The workspace


ROWS = [(f"{who} {did} {what}", i % 2) for i, (who, did) in enumerate(zip(WHO, DID, strict=True))
        for what in WHAT[:2]]  # fmt: skip
TEXTS = [text for text, _ in ROWS]
PLACES = ("Paris", "France", "Oslo", "Norway", "king", "queen", "woman", "man", "1", "2", "3", "7")
WORDS = (*PLACES, *dict.fromkeys(" ".join((*WHO, *DID, *WHAT, *WHEN)).split()))


def put(path: Path, text: str) -> None:
    """Write a file, compressed if it is called so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode()
    path.write_bytes(lzma.compress(data) if path.suffix == ".xz" else data)


def table(path: Path, names: tuple[str, ...], rows: Iterator[tuple[Any, ...]] | list[Any]) -> None:
    """Write rows in the format of a file's name."""
    rows = list(rows)
    if ".json" in path.name:
        put(path, "".join(json.dumps(dict(zip(names, r, strict=True))) + "\n" for r in rows))
        return
    put(path, "".join("\t".join(map(str, row)) + "\n" for row in [names, *rows]))


def tagged(path: Path) -> None:
    put(path, "\n".join("\n".join(f"{w}\t{'B-PER' if w in ('king', 'fox') else 'O'}"
                                  for w in text.split()) + "\n" for text in TEXTS))  # fmt: skip


def vectors(path: Path, seed: int = 0, *, header: bool = True) -> None:
    draw = np.random.default_rng(seed)
    lines = [f"{w} {' '.join(f'{x:.4f}' for x in draw.normal(size=8))}" for w in WORDS]
    put(path, "\n".join([f"{len(WORDS)} 8"] * header + lines) + "\n")


def suite(folder: Path, name: str) -> None:
    """Write the files of a suite of benchmarks, in the layout that it looks for first."""
    for one in SUITES[name].benchmarks:
        files = one.files[0]
        for path in filter(None, (files.train, files.dev, files.test)):
            if one.task == "tag":
                tagged(folder / path)
                continue
            names = (*files.text, *files.choices, files.label or "label")
            rows = [
                (*(f"{t} {n}" for n in names[:-1]), _label(one, i)) for i, t in enumerate(TEXTS)
            ]
            if ".json" not in path and (folder / path).is_file():  # two benchmarks of the same rows
                old = [line.split("\t") for line in (folder / path).read_text().splitlines()]
                new = [i for i, column in enumerate(names) if column not in old[0]]
                rows = [(*o, *(r[i] for i in new)) for o, r in zip(old[1:], rows, strict=True)]
                names = (*old[0], *(names[i] for i in new))
            table(folder / path, names, rows)


def _label(one: Any, i: int) -> Any:
    if one.task == "regress":
        return f"{i % 5}.0"
    if one.task == "generate":
        return WHAT[i % 2]
    return i % len(one.labels) if one.labels else ("no", "yes")[i % 2]


def zero_shot(folder: Path) -> None:
    """Write the files of all tasks that are done from prompts."""
    texts = {"context": "The old king saw the", "continuation": "gate"}
    pair = {"good": "he sees it .", "bad": "he see it .", "term": "agreement"}
    gaps = {"context_options": ["a", "b"], "continuation": "saw it", "gold": 1}
    own = {"lambada": texts, "blimp": pair, "winograd": gaps, "winogrande": gaps}
    for name, one in ZERO_SHOT.items():
        columns = {"query": "Who?", "context": "Who?", "choices": ["he", "she"], "gold": 1}
        row = own.get(name, columns | {"answer": 1})
        for path in {one.test[0], *getattr(one, "train", ())[:1]}:
            rows = "".join(f"{json.dumps(_nth(row, n))}\n" for n in range(6))
            put(folder / path, rows if path.endswith("jsonl") else corpus(2))


def _nth(row: Mapping[str, Any], n: int) -> dict[str, Any]:
    """Make a row like another: demonstrations must differ from the row that is predicted."""
    more = {k: f"{'so ' * n}{v}" for k, v in row.items() if isinstance(v, str) and k != "term"}
    return dict(row) | more


def own_files(document: Path) -> list[str]:
    """Return the files that a page declares as the reader's."""
    paragraph = re.search(
        r"^Your files:(.*?)(?=\n\n|\n```)",
        document.read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    return re.findall(r"`([^`]+)`", paragraph[1]) if paragraph else []


def toml_name(block: Block) -> str | None:
    """Return the file that a block of TOML is: its first line is `# NAME.toml: ...`."""
    first = re.match(r"# ([\w-]+\.toml):", block.text)
    return first[1] if first and block.language == "toml" else None


def lay(document: Path, folder: Path, made: Path) -> None:
    """Lay out the files of a page's reader, from those that `workspace` made."""
    for name in own_files(document):
        source, target = made / name, folder / name
        if name.startswith("elmo_") and not source.exists():  # what is released takes long to make
            elmo = made / "runs/elmo"
            unmask.pretrain("elmo-mini", data=made / "corpus.txt", out=elmo, quiet=True)
            cli.run(["convert", str(elmo), str(source), "--to", "elmo"])
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)


def workspace(folder: Path) -> None:
    """Write small files under all names that documents and scripts know."""
    _plain_texts(folder)
    labeled(folder)
    of_vectors(folder)
    suite(folder / "GLUE", "glue")
    for name in ("text-to-text", "as-text", "sentences"):
        suite(folder / "tasks", name)
    for name in ("imdb-few", "topics"):
        suite(folder / "data", name)
    of_studies(folder / "data")
    for name in ("data/imdb/unsup.jsonl", "unsup.jsonl"):
        put(folder / name, "".join(json.dumps({"text": t}) + "\n" for t in TEXTS))
    zero_shot(folder / "DATA")
    pictures(folder)
    probed(folder)
    for name, text in FILES.items():
        put(folder / name, text)
    shutil.copytree(ROOT / "recipes", folder / "recipes")


def of_studies(folder: Path) -> None:
    """Write trees, tagged words, and as many translated captions as a study holds out and more."""
    put(folder / "ud_english_ewt/en_ewt-ud-dev.conllu", 30 * TREE)
    people = "The DT B-NP O\nfox NN I-NP B-PER\nsleeps VBZ B-VP O\n\n"
    put(folder / "conll2003/testa.txt", 30 * (people + people.replace("PER", "LOC")))
    words = [one.words[0] for one in TRANSFER.labels]
    for language in TRANSFER.languages:
        lines = (
            f"{WHO[i % len(WHO)]} , {language} {words[i // 2 % len(words)]} .\n"
            for i in range(TRANSFER.held_out + 600)
        )
        put(folder / f"multi30k/train.{language}", "".join(lines))


def _plain_texts(folder: Path) -> None:
    text = corpus(12) + "\n" + "Paris France Oslo Norway king queen woman man 1984 2001 .\n" * 20
    for name in (
        "corpus/b.txt", "corpus.txt", "held-out.txt", "wikipedia.txt",
        "wikipedia/a.txt", "domain/a.txt", "wikipedia-en/train.txt.xz", "books/train.txt.xz",
        "wikipedia-en/valid.txt.xz", "ptb/ptb.train.txt", "ptb/ptb.test.txt",
    ):  # fmt: skip
        put(folder / name, text)
    for name in ("train.de", "train.emails", "captions-test.de", "articles-test.de", "test.emails"):
        rows = "".join(json.dumps({"text": t}) + "\n" for t in TEXTS * 4)
        put(folder / f"texts/{name}.jsonl", rows)
    for name in (
        "sentences.txt",
        "texts.txt",
        "tokenized.txt",
        "turns.txt",
        "train.en.txt",
        "train.de.txt",
    ):
        put(folder / name, "".join(f"{t} and they play .\n" for t in TEXTS))
    for name in ("train.de.xz", "train.en.xz", "val.de", "val.en", "test.de", "test.en",
                 "train.de", "train.en"):  # fmt: skip
        put(folder / name, "".join(f"{t} .\n" for t in TEXTS))


def labeled(folder: Path) -> None:
    for name in ("sms.tsv", "imdb.tsv", "few.tsv", "reviews.tsv", "TREC.tsv", "test.tsv",
                 "train.tsv", "dev.tsv"):  # fmt: skip
        table(folder / name, ("text", "label"), [(t, ("ham", "spam")[y]) for t, y in ROWS])
    for name in ("train.conll", "dev.conll"):
        tagged(folder / name)
    table(folder / "mail.jsonl", ("body", "subject"), [(t, t[:9]) for t in TEXTS])
    conversations = [
        {"instruction": t, "output": t[:9], "chosen": t[:9], "rejected": t[-9:]} for t in TEXTS
    ]
    lines = "".join(json.dumps(row) + "\n" for row in conversations)
    for name in ("alpaca", "preferences", "pairs", "prompts", "held-out", "held-out-pairs"):
        put(folder / f"{name}.jsonl", lines)
    prompted = [
        {"dataset": ("quoref", "imdb")[i % 2], "prompt": t, "completion": t[:9]}
        for i, t in enumerate(TEXTS)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in prompted)
    for name in ("train.jsonl.xz", "heldout_dev.jsonl", "heldout_test.jsonl"):
        put(folder / "t0" / name, lines)
    rows = [{"answers": [t.split()[1]], "context": t, "question": f"who {t}"} for t in TEXTS]
    put(folder / "train.json", json.dumps(rows))
    columns = [(f"words={n}", t) for n, t in enumerate(TEXTS)]
    for name in ("train", "dev"):
        table(folder / f"runs/integration/{name}.jsonl", ("question", "answer"), columns)
    sick = [(f"{t} .", f"{t} again .", f"{1 + i % 5}.0") for i, t in enumerate(TEXTS)]
    table(folder / "SICK/test.tsv", ("sentence_a", "sentence_b", "relatedness"), sick)
    for name in ("STS-B/train.tsv", "STS-B/dev.tsv"):
        rows = [(t, t, f"{i % 5}.0") for i, t in enumerate(TEXTS)]
        table(folder / name, ("sentence1", "sentence2", "score"), rows)
    for name in ("SST-2/train.tsv.xz", "SST-2/dev.tsv"):
        table(folder / name, ("sentence", "label"), ROWS)


def pictures(folder: Path) -> None:
    """Write pictures of two colors, in folders by label, in tables and in an array."""
    draw = np.random.default_rng(0)

    def noise(n: int) -> np.ndarray:
        return draw.integers(0, 256, (n, 28, 28), dtype=np.uint8)

    def picture(name: str, i: int, size: int = 40) -> None:
        pixels = draw.integers(0, 60, (size, size, 3), dtype=np.uint8)
        pixels[..., i % 2] += 150
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / name)

    for part, n in (("train", 12), ("dev", 6), ("test", 6)):
        for i in range(n):
            picture(f"photos/{part}/{('cat', 'dog')[i % 2]}/{i}.png", i)
    for i in range(4):
        picture(f"animals/{('cat', 'dog')[i % 2]}/{i}.png", i)
    picture("picture.jpg", 0)
    for i in range(2):
        picture(f"more-pictures/{i}.png", i)
    named = [(f"photos/train/{('cat', 'dog')[i % 2]}/{i}.png", i) for i in range(12)]
    rows = [f"{name},{('cat', 'dog')[i % 2]}\n" for name, i in named]
    put(folder / "photos.csv", "".join(["image,label\n", *rows, "missing.png,cat\n"]))
    rows = [f"{name},{TEXTS[i]},{'train' if i < 8 else 'test'}\n" for name, i in named]
    put(folder / "captions.csv", "".join(["image,caption,split\n", *rows]))
    np.savez(folder / "digits.npz", images=noise(12), labels=np.arange(12) % 2)


def probed(folder: Path) -> None:
    """Write published sets of questions, a few rows each."""

    def rows(name: str, row: Mapping[str, Any], n: int = 12) -> None:
        lines = (
            json.dumps({k: f(i) if callable(f) else f for k, f in row.items()}) for i in range(n)
        )
        put(folder / name, "\n".join(lines) + "\n")

    pair = {
        "sentence_good": lambda i: f"{TEXTS[i]} .",
        "sentence_bad": lambda i: f"the {TEXTS[i]} .",
    }
    for name in ("blimp.jsonl.xz", "blimp_filtered/a.jsonl"):
        rows(name, pair | {"UID": "articles", "linguistics_term": "syntax"})
    choices = [{"label": "A", "text": "cat"}, {"label": "B", "text": "dog"}]
    question = {"stem": "The [MASK] sleeps .", "choices": choices}
    rows("olmpics/a.jsonl", {"question": question, "answerKey": lambda i: "AB"[i % 2]})
    fact = {
        "relation": "place",
        "subject": lambda i: WHO[i % 4],
        "object": lambda i: ("house", "sea")[i % 2],
    }
    rows("facts.jsonl.xz", fact | {"sentence": lambda i: f"{WHO[i % 4]} was at the [MASK] ."})
    rows("relations.jsonl", {"relation": "place", "template": "[X] was at the [Y] ."}, 1)
    rows("wug_adj_nominalization/a.jsonl", {
        "sentences": lambda i: f"{TEXTS[i]} -ity\t{TEXTS[i]} -ness", "ratio": lambda i: i / 12
    })  # fmt: skip
    target = {"span1": [1, 2], "span2": [0, 1]}
    header = "item,word,Subtlex_log10,length,context_length,prev_item,prev_word,prev_length"
    measures = "RTfirstfix,RTfirstpass,RTgopast,RTrightbound,self_paced_reading_time,N400,P600"
    lines = [f"{w},{v},{3 + len(v) % 5 / 7},{len(v)},{i},{w},{w},{len(w)}" + f",{i % 9}" * 7
             for i, (w, v) in enumerate(pairwise(WORDS))]  # fmt: skip
    put(folder / "reading_data.csv", "\n".join([f"{header},{measures}", *lines]) + "\n")
    rows("roles.jsonl", {
        "text": lambda i: TEXTS[i % 12], "targets": lambda i: [target | {"label": f"A{i % 2}"}]
    }, 24)  # fmt: skip
    for name in ("train", "dev"):
        lines = [f"play\tN\t1-1\tA play {t}\tThe play {t}" for t in TEXTS[:12]]
        put(folder / f"{name}.data.txt", "\n".join(lines) + "\n")
        put(folder / f"{name}.gold.txt", "T\nF\n" * 6)


def of_vectors(folder: Path) -> None:
    pairs = [(w, w, 5.0 + i / 10) for i, w in enumerate(WORDS)]
    for name in ("WS-353.tsv", "word_similarity/WS-353.tsv"):
        table(folder / name, ("word1", "word2", "score"), pairs)
    for name in ("questions-words.txt", "questions-words.txt.xz"):
        put(folder / name, ": capitals\nParis France Oslo Norway\nOslo Norway Paris France\n")
    for i, name in enumerate(("vectors", "en", "de", "1850", "1990")):
        vectors(folder / f"{name}.vec", i)
    vectors(folder / "vectors.txt", header=False)
    vectors(folder / "glove.840B.300d.txt", header=False)
    for name in ("vectors.bin", "GoogleNews-vectors-negative300.bin"):
        unmask.convert_word_vectors(str(folder / "vectors.vec"), str(folder / name))
    for name in ("pairs.tsv", "en-de.train.5k.tsv", "en-de.test.2k.tsv"):
        put(folder / name, "source\ttarget\n" + "".join(f"{w}\t{w}\n" for w in WORDS))


TREE = "".join(
    f"{i}\t{word}\t_\t{tag}\t_\t_\t{head}\t{relation}\t_\t_\n"
    for i, word, tag, head, relation in (
        (1, "the", "DET", 2, "det"), (2, "dog", "NOUN", 3, "nsubj"),
        (3, "sleeps", "VERB", 0, "root"), (4, "in", "ADP", 6, "case"),
        (5, "the", "DET", 6, "det"), (6, "house", "NOUN", 3, "obl"),
    )
) + "\n"  # fmt: skip
STOP_WORDS = ("the", "and", "with", "of", "to", "that", "have", "be")
VARIED = "\n\n".join(
    "\n".join(
        " ".join(
            f"{stop} {chr(97 + i % 26)}{chr(97 + j)}{WORDS[(i + k) % len(WORDS)]}{'ness' * (k % 2)}"
            for k, stop in enumerate(STOP_WORDS[j:] + STOP_WORDS[:j])
        )
        + "."
        for j in range(4)
    )
    for i in range(40)
)
"""Documents that rules of cleaning leave."""
NUMBERED = "text\tlabel\n" + "".join(f"{t}\t{y}\n" for t, y in ROWS)
LINES = "".join(f"{t} .\n" for t in TEXTS)
PAIRS = "".join(f"{w}\t{w}\n" for w in WORDS)
LETTERS = "bdfghjklmnprstvz"
NAMES = ("bank", "state", *(f"{a}a{b}o" for a in LETTERS[:6] for b in LETTERS))
NLI = "premise\thypothesis\tlabel\tlanguage\n" + "".join(
    f"{t}\t{t[::-1]}\t{y}\t{('de', 'fr')[i // 2 % 2]}\n" for i, (t, y) in enumerate(ROWS)
)
FILES: Mapping[str, str] = {
    "mine.toml": 'model = "bert-mini"\nsteps = 1000\n',
    "corpus/a.txt": VARIED,
    "articles.txt": "".join(
        f"{TEXTS[i % 12]} of the {name} .\n" for name in NAMES for i in range(24)
    ),
    "data/a.jsonl": "".join(json.dumps({"text": t}) + "\n" for t in VARIED.split("\n\n")),
    "test.jsonl": json.dumps({"text": VARIED.split("\n")[0]}) + "\n",
    **dict.fromkeys(("train-pairs.tsv", "test-pairs.tsv", "de-en.tsv"), PAIRS),
    **{f"{code}.txt": corpus(12, seed) for seed, code in enumerate(("en", "de", "fr", "own"))},
    **dict.fromkeys(("pairs.de", "pairs.en"), LINES),
    **dict.fromkeys(("train.conllu", "dev.conllu", "test.conllu"), 30 * TREE),
    **dict.fromkeys(("reviews.en.tsv", "test.en.tsv", "test.de.tsv"), NUMBERED),
    **dict.fromkeys(("test-reviews.tsv", "train-reviews.tsv"), NUMBERED),
    **dict.fromkeys(("nli.en.tsv", "nli.others.tsv"), NLI),
    "chunks.txt": 30 * "the DT B-NP\ndog NN I-NP\nsleeps VBZ B-VP\n\n",
    **dict.fromkeys(
        ("train.jsonl", "dev.jsonl"),
        "".join(f"{json.dumps({'document': t, 'summary': t[:9]})}\n" for t in TEXTS),
    ),
}
"""Files of readers as they are, by name."""


# What is scaled


SMALL = ("batch_tokens=64", "sequence_length=32")
CARDS = {"bert-base-uncased": "bert-tiny", "elmo": "elmo-mini", "glove": "glove-mini",
         "gpt2-xl": "gpt2-mini",
         "word2vec-skipgram": "word2vec-skipgram-mini"}  # fmt: skip
"""Cards of which a run would take a machine of its own, and what stands for them."""


READS_PICTURES = {name for name, card in PRESETS.items() if card.reads_pictures}
"""Cards of which a picture is longer than the rows of texts here."""


CELLS = {
    "bart-noises": ("masking",),
    "t5-objectives": ("bert_style",),
    "ulmfit-stages": ("no-domain",),
    "smaller": ("whole", "int8", "distilbert"),
    "what-layers-know": ("masked",),
    "transfer": ("english",),
}
"""The cells of a study that are run where a command names none."""


def scale(patch: pytest.MonkeyPatch) -> None:
    """Limit training to two steps of few tokens, and a few rows, whatever the options."""
    pretrain, finetune, run_study = unmask.pretrain, unmask.finetune, unmask.run_study
    several = unmask.finetune_suite

    def small_pretrain(model: Any = None, **given: Any) -> Any:
        given |= {"minutes": None, "tokens": None}
        if not given.get("resume"):
            given["steps"] = 2
            preset = CARDS.get(str(model), model)
            of_vectors = re.match(r"word2vec|fasttext|glove|svd|lsa", str(preset)) is not None
            epochs = re.match(r"word2vec|fasttext", str(preset)) is not None
            small = (("objective.epochs=1",) if epochs else ()) if of_vectors else SMALL
            given["steps"] = None if of_vectors else 2
            if preset in READS_PICTURES:
                small = ("batch_tokens=2048",)
            given["changes"] = [*given.get("changes", ()), *small]
            given["sequence_length"] = None
            model = preset
        return pretrain(model, threads=1, **{k: v for k, v in given.items() if k != "threads"})

    def fewer(given: dict[str, Any]) -> dict[str, Any]:
        given |= {"epochs": 1.0, "seeds": 1, "average": 0, "warmup": 0.1}
        given["rows"] = min(given.get("rows") or 8, 8)
        if given.get("batch_tokens") is None:
            given["batch_size"] = 4
        return given

    def small_finetune(base: Any, **given: Any) -> Any:
        return finetune(base, **fewer(given))

    def small_suite(base: Any, **given: Any) -> Any:
        return several(base, **fewer(given))

    def small_study(study: Any, **given: Any) -> Any:
        given |= {"tokens": 8192, "rows": 12, "epochs": 1.0, "threads": 1}
        if study != WHAT_LAYERS_KNOW.name:  # nothing is fine-tuned
            given["seeds"] = 1
        given["cells"] = given.get("cells") or CELLS.get(study, ())
        return run_study(study, **given)

    patch.setattr(unmask, "pretrain", small_pretrain, raising=False)
    patch.setattr(unmask, "finetune", small_finetune, raising=False)
    patch.setattr(unmask, "finetune_suite", small_suite, raising=False)
    patch.setattr(unmask, "run_study", small_study, raising=False)
