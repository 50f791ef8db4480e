"""A tiny job of each kind, of a few steps: from a folder of texts to a folder of its own.

Each is called with the folder of what it reads, its own folder, and whether it resumes.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from kills import Job
from toy_text import corpus

from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.methods.method import SourceEncoder, parse_method
from unmask.finetuning.run import run_finetuning as tune
from unmask.inference.open_model import load
from unmask.jobs.compress import compress
from unmask.jobs.corpus.prepare import prepare
from unmask.jobs.pretrain.pretrain import pretrain
from unmask.jobs.word_vectors.align.align import align
from unmask.preferences.config import make_prefer_config
from unmask.preferences.job.run import run_preferences
from unmask.preferences.options import PreferOptions
from unmask.studies.run_study import run_study

SMALL = (
    "architecture={d_model=16,d_ff=32,n_layers=1,n_heads=2}", "init_previous_token_heads=0",
    "vocab_size=300", "sequence_length=16", "batch_tokens=64", "log_every=1", "evaluate_every=2",
    "dev_fraction=0.1",
)  # fmt: skip
TWO_STACKS = (
    "architecture={encoder={d_model=16,d_ff=32,n_layers=1,n_heads=2,head_dim=8},"
    "decoder={d_model=16,d_ff=32,n_layers=1,n_heads=2,head_dim=8}}",
    *SMALL[1:],
)
CHARACTERS = (
    "architecture={d_model=16,d_ff=32,n_layers=1,n_heads=2,local_attention_block=16}",
    *SMALL[3:],
)
ELMO = (
    "architecture={d_model=16,embedding_size=8,d_ff=24,character_cnn={filters=[[1,8],[3,8]]}}",
    *SMALL[2:],
)
LSTM = ("architecture={d_model=16,d_ff=16,n_layers=1}", *SMALL[2:])
PICTURES = (
    "architecture={d_model=16,d_ff=16,n_layers=1,n_heads=2}", "batch_tokens=80",
    "image_size=[16,16]", "dev_fraction=0.2", "log_every=1", "evaluate_every=2",
)  # fmt: skip
WORDS = ("architecture={d_model=8}", "log_every=1")


def pretraining(name: str, *changes: str, data: str = "text.txt", **more: Any) -> Job:
    """Make a job of three steps with a checkpoint after the second."""

    def job(home: Path, out: Path, again: bool) -> object:
        long = {} if changes[-2:] == WORDS else {"steps": 3}
        return pretrain(
            name, data=home / data, out=out, quiet=True, changes=changes, threads=1,
            resume=again, **{"checkpoint_every": 2, **long, **more},
        )  # fmt: skip

    return job


def taught(home: Path, out: Path, again: bool) -> object:
    """Learn from a teacher whose scores are kept in the run's own folder."""
    return pretrain(
        "bert-tiny", data=home / "text.txt", out=out, quiet=True, threads=1, steps=3,
        changes=[c for c in SMALL if "vocab" not in c], checkpoint_every=2, resume=again,
        teacher=str(home / "bert"), distill=["soft:top_k=8", f"teacher:store={out / 'scores'}"],
    )  # fmt: skip


def tuning(base: str, task: str = "classify", **more: object) -> Job:
    def job(home: Path, out: Path, again: bool) -> object:
        rows = home / ("pairs.tsv" if task == "generate" else "rows.tsv")
        more.setdefault("epochs", 1.0)
        output = FinetuneConfig(
            base=str(home / base) if (home / base).is_dir() else base,
            task=task,
            train=str(rows),
            dev=str(rows),
            batch_size=8,
            max_length=16,
            evaluate_every=1,
            learning_rate=1e-3,
            **more,
        )
        return tune(output, output_folder=out, resume=again and out.exists(), terminal=None)

    return job


def preparing(home: Path, out: Path, again: bool) -> object:
    return prepare(home / "text.txt", out=out, vocab_size=120, quiet=True)


def aligning(home: Path, out: Path, again: bool) -> object:
    if not (out / "align.json").exists():  # it does not go on: it is whole, or made anew
        return align(home / "a.vec", home / "a.vec", identical=True, out=out)
    return None


def cleaning(home: Path, out: Path, again: bool) -> object:
    """Clean the text, and prepare what is left."""
    return prepare(
        home / "text.txt", out=out, clean="c4", deduplicate=["exact"], vocab_size=120, quiet=True
    )


def preferring(home: Path, out: Path, again: bool) -> object:
    options = PreferOptions(
        home / "gpt2", train=home / "pairs.jsonl", dev=home / "pairs.jsonl", method="dpo",
        max_length=128, max_response_length=5, batch_size=4, evaluate_every=1, dev_prompts=2,
        learning_rate=1e-2, out=out,
    )  # fmt: skip
    return run_preferences(make_prefer_config(options), out, resume=again and out.exists())


def studying(home: Path, out: Path, again: bool) -> object:
    return run_study(
        home / "rates.toml", data=home / "text.txt", out=out, threads=1, terminal=None,
        resume=again and out.exists(),
    )  # fmt: skip


def compressing(home: Path, out: Path, again: bool) -> object:
    if not (out / "config.json").exists():
        return compress(home / "electra", method=["prune:fraction=0.5", "int8"], out=out)
    return None


def converting(home: Path, out: Path, again: bool) -> object:
    if not (out / "config.json").exists():
        return load(home / "electra").save(out)
    return None


JOBS: dict[str, Job] = {
    "pretrain electra": pretraining("electra-mini", *SMALL),
    "pretrain bert": pretraining("bert-tiny", *SMALL),
    "pretrain taught": taught,
    "pretrain gpt2": pretraining("gpt2-mini", *SMALL),
    "pretrain coco-lm": pretraining("coco-lm-mini", *SMALL),
    "pretrain bart": pretraining("bart-mini", *TWO_STACKS),
    "pretrain t5": pretraining("t5-mini", *TWO_STACKS),
    "pretrain canine": pretraining("canine-mini", *CHARACTERS),
    "pretrain elmo": pretraining("elmo-mini", *ELMO),
    "pretrain lstm": pretraining("ulmfit-mini", *LSTM),
    "pretrain pictures": pretraining("vit-mini", *PICTURES, data="noise.npz"),
    "fasttext": pretraining(
        "fasttext-mini", "objective.phrase_detection={}", "dev_fraction=0.0", *WORDS
    ),
    "glove": pretraining("glove-mini", *WORDS),
    "lsa": pretraining("lsa-mini", *WORDS),
    "tune": tuning("electra"),
    "tune seeds": tuning("electra", seeds=2, baseline=True),
    "tune lora": tuning("electra", tune=parse_method("lora")),
    "tune mean": tuning("electra", epochs=2.0, average=2),
    "tune source": tuning("bart", "generate", tune=SourceEncoder(n_layers=1, vocab_size=300)),
    "prefer": preferring,
    "prepare": preparing,
    "prepare cleaned": cleaning,
    "compress": compressing,
    "align": aligning,
    "convert": converting,
    "study": studying,
}


TASKS = """
name = "toys"
[[benchmarks]]
name = "Day or night"
task = "classify"
files = [{train = "rows.tsv", dev = "rows.tsv", text = ["text"], label = "label"}]
[[benchmarks]]
name = "Absent columns"
task = "classify"
files = [{train = "rows.tsv", text = ["spam"], label = "label"}]
[[benchmarks]]
name = "How long"
task = "regress"
files = [{train = "numbers.tsv", text = ["text"], label = "n"}]
"""
STUDY = """
question = "How much should be hidden?"
tasks = "toys.toml"
tokens = 128
rows = 12
epochs = 1
seeds = 1
changes = ["batch_tokens=64", "sequence_length=16", "dev_fraction=0.1", "log_every=1",
    "architecture={d_model=16,d_ff=32,n_layers=1,n_heads=2}"]
cells = [
    {name = "little", model = "bert-tiny"},
    {name = "on", model = "bert-tiny", init_from = "little"},
    {name = "none", model = "bert-tiny", token_factor = 0.0},
]
"""


def texts(home: Path) -> None:
    """Write texts, labeled rows, pairs, word vectors, pictures, a suite and a study."""
    (home / "text.txt").write_text(corpus(12))
    sentences = corpus(6).replace("\n", " ").split(". ")[:24]
    rows = [f"{s}\t{'night' if 'night' in s else 'day'}" for s in sentences]
    (home / "rows.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    pairs = [f"{s}\t{' '.join(s.split()[:2])}" for s in sentences]
    (home / "pairs.tsv").write_text("\n".join(["source\ttarget", *pairs]) + "\n")
    words = sorted({w for s in sentences for w in s.split()})
    vectors = [f"{w} {' '.join(str((i * k) % 7 - 3) for k in range(1, 5))}" for i, w in
               enumerate(words, 1)]  # fmt: skip
    (home / "a.vec").write_text("\n".join([f"{len(words)} 4", *vectors]) + "\n")
    numbers = [f"{text}\t{len(text)}" for text in sentences]
    (home / "numbers.tsv").write_text("\n".join(["text\tn", *numbers]) + "\n")
    chosen = [{"prompt": s[:20], "chosen": s[20:40], "rejected": s[8:20]} for s in sentences[:8]]
    (home / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chosen))
    noise = np.random.default_rng(0).integers(0, 256, (30, 16, 16, 3), np.uint8)
    np.savez(home / "noise.npz", images=noise)
    (home / "toys.toml").write_text(TASKS)
    (home / "rates.toml").write_text(STUDY)


BASES = {
    "pretrain taught": "bert", "tune": "electra", "tune seeds": "electra", "tune lora": "electra",
    "tune mean": "electra", "tune source": "bart", "prefer": "gpt2", "compress": "electra",
    "convert": "electra",
}  # fmt: skip
"""Jobs -> the runs that they begin from."""


def ready(name: str, home: Path) -> Job:
    """Give a job, with the run that it begins from."""
    base = BASES.get(name)
    if base is not None and not (home / base).exists():
        JOBS[f"pretrain {base}"](home, home / base, False)
    return JOBS[name]
