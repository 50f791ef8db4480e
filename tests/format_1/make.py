"""How the runs of format 1 in this folder were made: by the code that wrote that format.

`python tests/format_1/make.py` from the root of a repository that still does: later code writes
another format, so that this is a record, and no part of the tests. Every path in them is relative
to this folder. What is large and not needed to open a run is removed: the tokens of its text, its
checkpoints but those of the one that was stopped, and its report.
"""

import json
import os
import random
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import torch
from asked import answers

import unmask
from unmask.checkpoints.written import FILES, written

HERE = Path(__file__).parent
RUNS = "saved"
SMALL = {"d_model": 16, "d_ff": 32, "n_layers": 2, "n_heads": 2}
HALF = SMALL | {"n_layers": 1, "head_width": 8}
PLACES = {"position": {"length": 64}}
COMMON = {
    "vocab_size": 140, "length": 32, "batch_tokens": 512, "log_every": 10, "evaluate_every": 30,
    "dev": 0.1, "precision": "float32", "rate": 0.01,
}  # fmt: skip
UNIGRAM, BYTES = {"vocab_size": 64}, {"vocab_size": 280}


def _own(architecture: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return COMMON | more | {"architecture": SMALL | (architecture or {})}


PRETRAINED: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("bert-tiny", _own(PLACES)),
    "electra": ("electra-mini", _own({"embed_width": 8, **PLACES})),
    "coco-lm": ("coco-lm-mini", _own(**UNIGRAM)),
    "modernbert": ("modernbert-mini", _own(**BYTES, objective="mlm:rate=0.3")),
    "xlnet": ("xlnet-mini", _own(memory=16, **UNIGRAM)),
    "unilm": ("unilm-mini", _own(PLACES)),
    "gpt2": (
        "gpt2-mini",
        _own(PLACES, **BYTES, optimizer={"kind": "AdamW"}, packing="pack"),
    ),
    "transformer": (
        "transformer-tiny",
        COMMON | {"vocab_size": 300, "architecture": {"encoder": HALF, "decoder": HALF}},
    ),
    "t5": ("t5-mini", COMMON | UNIGRAM | {"architecture": {"encoder": HALF, "decoder": HALF}}),
    "canine": (
        "canine-mini",
        _own(
            {"d_model": 8, "d_ff": 16, "n_layers": 1, "block": 16, "n_buckets": 64, **PLACES},
            length=64,
        ),
    ),
    "elmo": (
        "elmo-mini",
        COMMON
        | {
            "length": 96,
            "architecture": {
                "d_model": 16, "embed_width": 8, "d_ff": 24,
                "spelling": {"filters": [[1, 8], [3, 8]]},
            },
        },
    ),
    "ulmfit": ("ulmfit-mini", COMMON | BYTES | {"architecture": {"d_model": 16, "d_ff": 24}}),
    "skip-thoughts": (
        "skip-thoughts-mini", COMMON | {"length": 96, "architecture": {"d_model": 16, "d_ff": 16}},
    ),
    "word2vec": ("word2vec-skipgram-mini", {"architecture": {"d_model": 12}}),
    "fasttext": (
        "fasttext-mini",
        {"architecture": {"d_model": 8}, "objective": {"ngrams": {"buckets": 200}}},
    ),
}  # fmt: skip
"""By their folders: the card, and the recipe's differences to it."""
FINETUNED: dict[str, tuple[str, dict[str, Any]]] = {
    "lora": ("bert", {"task": "classify", "train": "text/labelled.tsv", "tune": "lora"}),
    "houlsby": ("bert", {"task": "classify", "train": "text/labelled.tsv", "tune": "houlsby"}),
    "prefix": ("gpt2", {"task": "classify", "train": "text/labelled.tsv", "tune": "prefix"}),
    "mix": ("elmo", {"task": "classify", "train": "text/labelled.tsv", "tune": "mix"}),
    "tags": ("bert", {"task": "tag", "train": "text/tagged.conll"}),
    "cloze": ("bert", {
        "task": "cloze", "train": "text/labelled.tsv", "tune": "lora",
        "options": {"pattern": "{text} [MASK]", "words": {"after": "war", "other": "night"}},
    }),
    "words": ("t5", {
        "task": "generate", "train": "text/labelled.tsv", "label": "label", "tune": "pfeiffer",
        "epochs": 12.0, "rate": 0.03,
    }),
    "vectors": ("word2vec", {"task": "classify", "train": "text/labelled.tsv"}),
}  # fmt: skip
"""By their folders: the run that each begins with, and how it is tuned."""
SUITE = """name = "toys"
[[benchmarks]]
name = "After or other"
task = "classify"
labels = ["other", "after"]
metric = "accuracy"
[[benchmarks.files]]
train = "labelled.tsv"
dev = "labelled.tsv"
test = "labelled.tsv"
text = ["text"]
label = "label"
[[benchmarks]]
name = "How long"
task = "regress"
metric = "pearson"
files = [{train = "numbers.tsv", text = ["text"], label = "score"}]
"""
ONE = SUITE.partition('[[benchmarks]]\nname = "How long"')[0].replace("toys", "one")
STUDY = """name = "rates"
asks = "How much should be hidden?"
tasks = "one.toml"
tokens = 5120
rows = 24
epochs = 1.0
seeds = 1
changes = ["architecture={d_model=16,d_ff=32,n_layers=1,n_heads=2,position={length=64}}",
  "length=32", "batch_tokens=256", "dev=0.1", "precision=float32"]
cells = [
  {name = "little", model = "bert-tiny", changes = ["objective.choose.rate=0.1"]},
  {name = "much", model = "bert-tiny", changes = ["objective.choose.rate=0.5"]},
]
"""


def texts() -> None:
    """Write what the runs learn from."""
    from toy_text import corpus  # beside the tests

    Path("text").mkdir(exist_ok=True)
    Path("text/text.txt").write_text(corpus(30))
    Path("text/held-out.txt").write_text(corpus(4, seed=3))
    whole = corpus(12, seed=2).replace("\n", " ").replace(". ", " .\n").splitlines()
    lines = [line.strip() for line in whole if line.strip()]
    random.Random(1).shuffle(lines)
    rows = [f"{line}\t{'after' if 'after' in line else 'other'}" for line in lines[:60]]
    Path("text/labelled.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    rows = [f"{line}\t{len(line.split()) / 4}" for line in lines[:60]]
    Path("text/numbers.tsv").write_text("\n".join(["text\tscore", *rows]) + "\n")
    tags = {"king": "B-WHO", "fox": "B-WHO", "brother": "B-WHO", "gate": "B-WHAT", "ring": "B-WHAT"}
    said = ["\n".join(f"{w} {tags.get(w, 'O')}" for w in line.split()) for line in lines[:60]]
    Path("text/tagged.conll").write_text("\n\n".join(said) + "\n")
    Path("text/toys.toml").write_text(SUITE)
    Path("text/one.toml").write_text(ONE)
    Path("text/rates.toml").write_text(STUDY)


def pretrain(name: str, **more: Any) -> None:
    """Make one run of 60 steps; those of word vectors have steps of their own."""
    card, changes = PRETRAINED[name]
    if "length" in changes:
        more = {"steps": 60} | more
    more = {"data": "text/text.txt", "out": f"{RUNS}/{name}", "changes": [changes]} | more
    unmask.pretrain(card, threads=1, quiet=True, **more)


def finetune(name: str) -> None:
    """Fine-tune one of them."""
    base, how = FINETUNED[name]
    usual = {"dev": how["train"], "epochs": 4.0, "batch": 8, "rate": 0.01, "precision": "float32"}
    unmask.finetune(f"{RUNS}/{base}", out=f"{RUNS}/{name}", terminal=None, **usual | how)


def stopped(name: str, out: str) -> None:
    """Make a run, and stop it once it has evaluated itself for the first time."""
    log, ended = Path(out) / "log.jsonl", threading.Event()

    def watch() -> None:
        while not ended.wait(0.001):
            if log.is_file() and "evaluation" in log.read_text():
                os.kill(os.getpid(), signal.SIGINT)
                return

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        pretrain(name, out=out)
    except KeyboardInterrupt:
        return
    finally:
        ended.set()
        watching.join()
    raise AssertionError("it had ended before")


def lighten(run: Path, *, resumable: bool = False) -> None:
    """Remove what is not needed to open a run, or to go on with it."""
    gone = () if resumable else ("checkpoints", "data", "counts")
    for name in gone:
        shutil.rmtree(run / name, ignore_errors=True)
    for path in [*run.rglob("report.html"), *run.rglob("README.md"), *run.rglob("plot.svg")]:
        path.unlink()
    for path in run.rglob(".lock"):
        path.unlink()
    if resumable:
        for old in sorted((run / "checkpoints").iterdir())[:-1]:
            shutil.rmtree(old)


def make_movable(run: Path) -> None:
    """Name the model of an adapter relative to it, as a folder beside it."""
    path, record = run / "adapter_config.json", run / "unmask.json"
    path.write_text(path.read_text().replace(str(HERE.resolve() / RUNS), ".."))
    said = json.loads(record.read_text())
    said[FILES] = {name: file for name, file in written(run).items() if name in said[FILES]}
    record.write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n")


def write(name: str, found: dict[str, Any]) -> None:
    """Keep what is expected beside the run."""
    Path(RUNS, f"{name}.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    """Make all of them."""
    os.chdir(HERE)
    shutil.rmtree(RUNS, ignore_errors=True)
    texts()
    for name in PRETRAINED:
        pretrain(name)
    for name in FINETUNED:
        finetune(name)
    make_several()
    stopped("bert", f"{RUNS}/stopped")
    whole = Path(RUNS, "bert/log.jsonl").read_text().splitlines()
    write("stopped", {"log": [json.loads(line) for line in whole]})
    for run in [path.parent for path in Path(RUNS).rglob("unmask.json")]:
        lighten(run, resumable=run.name == "stopped")
    lighten(Path(RUNS))
    for path in Path(RUNS).rglob("adapter_config.json"):
        make_movable(path.parent)
    for name in (*PRETRAINED, *FINETUNED):
        write(name, answers(f"{RUNS}/{name}", tags=name == "tags"))
    write("unmask-mini-en", answers("unmask-mini-en"))


def make_several() -> None:
    """Make a suite and a study."""
    common = {"epochs": 2.0, "batch": 8, "precision": "float32", "terminal": None, "seeds": 2}
    suite = unmask.finetune_suite(
        f"{RUNS}/bert", tasks="text/toys.toml", out=f"{RUNS}/suite", rate=0.01, **common
    )
    write("suite", {"average": suite.average, "entries": [one.name for one in suite.entries]})
    os.chdir("text")  # a study finds its suite where it is run
    study = unmask.run_study(
        "rates.toml", data="text.txt", out=f"../{RUNS}/study", threads=1, terminal=None
    )
    os.chdir(HERE)
    write("study", {"losses": {one.name: one.loss for one in study.outcomes}})


if __name__ == "__main__":
    sys.path.append(str(HERE.parent))
    torch.set_num_threads(1)
    main()
