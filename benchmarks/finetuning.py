"""Speed of fine-tuning against transformers' Trainer, taking turns in one process.

    python benchmarks/finetuning.py [sentences] [pairs] [--rounds 4]

Same shape, same random weights, same texts, 32 a step: the Trainer as it comes (dynamic padding),
the Trainer at its best setting found here, and Unmask. Parties take turns, so that whatever else
the machine does hits all of them; the first turn of each is dropped. A turn is an epoch without its
first step: batches of texts of like length differ tenfold in time, and a part of an epoch would
compare those that happened to be drawn. What is compared are examples a second; quote ratios.
Memory is measured apart, in a process of its own for each party: the peak above what was held
before the first step.

Texts: SST-2 and MRPC from ../shared/data/glue where they are there, else sentences of the bundled
novels, and each with the next (say which in a report).
"""

import argparse
import contextlib
import io
import json
import lzma
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pretraining import resident

from unmask.checkpoints.huggingface.write import write_folder
from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.initial_model.used_tokens import shrink_embeddings
from unmask.finetuning.job.prepare import prepare_job
from unmask.finetuning.methods.method import FullFinetuning, apply_method
from unmask.finetuning.train_run import set_up_run
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.training import loop
from unmask.training.device import distributed
from unmask.training.device.distributed import World
from unmask.training.device.memory import keep_freed_memory
from unmask.zoo.catalogue import get_preset

HERE = Path(__file__).parent
SST = HERE.parent.parent / "shared" / "data" / "glue" / "SST-2" / "train.tsv.xz"
MRPC = SST.parent.parent / "MRPC" / "train.tsv.xz"
BATCH = 32
TEXTS = 2048
TEXT_COLUMNS = ("first", "second")


def columns(path: Path, *names: str) -> list[tuple[str, ...]]:
    """Read some columns of a compressed table."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        header = next(file).rstrip("\n").split("\t")
        at = [header.index(name) for name in names]
        return [tuple(line.rstrip("\n").split("\t")[i] for i in at) for line in file]


@cache
def texts() -> tuple[str, ...]:
    """Give sentences of natural length, in no order."""
    if SST.is_file():
        found = [text for (text,) in columns(SST, "sentence")]
    else:
        from unmask.bundled.demo import bundled_path
        from unmask.text.documents import read_documents
        from unmask.text.sentences import sentence_spans

        found = [
            d.text[a:b]
            for d in read_documents(bundled_path("novels"))
            for a, b in sentence_spans(d.text)[:200]
        ]
    order = np.random.default_rng(0).permutation(len(found))[:TEXTS]
    return tuple(" ".join(found[i].split()) for i in order)  # a line each


def model_folder(folder: Path) -> Path:
    """Write a random BERT of mini shape with a vocabulary of 8,192, as both libraries read it."""
    home = folder / "model"
    if not (home / "config.json").is_file():
        preset = get_preset("bert-mini")
        tokenizer = train_tokenizer(preset.tokenizer, texts())
        architecture = preset.architecture.with_vocab_size(max(tokenizer.vocab_size, 8192))
        preset = replace(preset, architecture=architecture)
        write_folder(home, preset.build().initialize(0), preset, tokenizer)
    return home


@cache
def examples(what: str) -> tuple[tuple[str, ...], ...]:
    """Give the texts of each example: one, or the two of a pair."""
    if what == "sentences":
        return tuple((text,) for text in texts())
    if MRPC.is_file():
        return tuple(columns(MRPC, "sentence1", "sentence2")[:TEXTS])
    return tuple(pairwise(texts()))


def rows(folder: Path, what: str) -> Path:
    """Write the examples with labels that nothing predicts: speed does not depend on them."""
    path = folder / f"{what}.tsv"
    if not path.is_file():
        labels = np.random.default_rng(1).integers(0, 2, len(examples(what)))
        lines = ["\t".join((*one, str(y))) for one, y in zip(examples(what), labels, strict=True)]
        header = "\t".join((*TEXT_COLUMNS[: len(examples(what)[0])], "label"))
        path.write_text("\n".join((header, *lines)) + "\n", encoding="utf-8")
    return path


class OursTuning:
    """Unmask's fine-tuning, a turn at a time."""

    def __init__(self, folder: Path, what: str) -> None:
        tuning = FinetuneConfig(
            base=str(model_folder(folder)),
            task="classify" if what == "sentences" else "pairs",
            train=str(rows(folder, what)),
            dev=str(rows(folder, what)),
            text=TEXT_COLUMNS[: len(examples(what)[0])],
            batch_size=BATCH,
            epochs=1000.0,
            learning_rate=5e-5,
            max_length=128,
            dropout=0.1,
        )
        threads = torch.get_num_threads()
        job = prepare_job(tuning, None, folder / "none", World(), threads, None)
        model = job.initial_model.build_model(0)
        apply_method(FullFinetuning(), model, 0)
        shrink_embeddings(model, job.train_examples, job.formulation.special_ids.pad)
        self.reports = loop.train(set_up_run(job, model, 0))

    def turn(self, steps: int) -> list[float]:
        keep_freed_memory(True)
        return [next(self.reports).seconds for _ in range(steps + 1)][1:]


class TheirTuning:
    """transformers' Trainer on BertForSequenceClassification."""

    def __init__(self, folder: Path, what: str, *, bf16: bool = False, group: bool = False) -> None:
        import transformers as hf

        hf.logging.set_verbosity_error()
        home = model_folder(folder)
        self.tokenizer = hf.AutoTokenizer.from_pretrained(home)
        self.model = hf.AutoModelForSequenceClassification.from_pretrained(home)
        self.folder, self.bf16, self.group = folder / "trainer", bf16, group
        sides = [list(side) for side in zip(*examples(what), strict=True)]
        read = self.tokenizer(*sides, truncation=True, max_length=128)
        self.rows = [
            {**{name: column[i] for name, column in read.items()}, "labels": i % 2}
            for i in range(len(sides[0]))
        ]

    def turn(self, steps: int) -> list[float]:
        import transformers as hf

        keep_freed_memory(False)
        times: list[float] = []

        class Clock(hf.TrainerCallback):
            def on_step_end(self, *args: Any, **kwargs: Any) -> None:
                times.append(time.perf_counter())

        arguments = hf.TrainingArguments(
            output_dir=str(self.folder), max_steps=steps + 1, per_device_train_batch_size=BATCH,
            use_cpu=True, report_to="none", save_strategy="no", logging_strategy="no",
            disable_tqdm=True, learning_rate=5e-5, bf16=self.bf16, seed=int(time.time()),
            **({"train_sampling_strategy": "group_by_length"} if self.group else {}),
        )  # fmt: skip
        trainer = hf.Trainer(
            self.model, arguments, train_dataset=self.rows, callbacks=[Clock()],
            data_collator=hf.DataCollatorWithPadding(self.tokenizer),
        )  # fmt: skip
        with contextlib.redirect_stdout(io.StringIO()):  # it prints a line of totals
            trainer.train()
        return [b - a for a, b in pairwise(times)]


PARTIES: dict[str, Callable[[Path, str], OursTuning | TheirTuning]] = {
    "Trainer": TheirTuning,
    "Trainer, grouped by length": lambda f, w: TheirTuning(f, w, group=True),
    "Trainer, bf16": lambda f, w: TheirTuning(f, w, bf16=True),
    "Trainer, bf16, grouped by length": lambda f, w: TheirTuning(f, w, bf16=True, group=True),
    "Unmask": OursTuning,
}
KINDS = ("sentences", "pairs")


def compare(name: str, folder: Path, rounds: int, amount: int) -> dict[str, float]:
    """Let the parties take turns; return examples a second of each."""
    made = {party: make(folder, name) for party, make in PARTIES.items()}
    seen: dict[str, list[float]] = {party: [] for party in made}
    for round_index in range(rounds + 1):
        for party, runner in made.items():
            found = runner.turn(amount)
            if round_index:  # the first round warms up
                seen[party] += found
    # The mean, since steps differ in length.
    return {party: BATCH / statistics.mean(times) for party, times in seen.items()}


def memory(name: str, party: str, folder: Path) -> int:
    """Measure the peak of memory above what is held before the first turn, in this process."""
    runner = PARTIES[party](folder, name)
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    runner.turn(8)
    return resident("VmHWM") - before


def measured(name: str, party: str, folder: Path) -> str:
    """Measure the megabytes of a party in a process of its own."""
    command = [sys.executable, __file__, "--folder", folder, "--measure-memory", name, party]
    stdout = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return f"{json.loads(stdout.splitlines()[-1])['bytes'] / 2**20:.0f}"


def main() -> None:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", default=[], choices=[*KINDS, []])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=TEXTS // BATCH - 1, help="of a turn")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "unmask-benchmark-finetuning"
    )
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--measure-memory", nargs=2, metavar=("WHAT", "PARTY"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)))
    if options.measure_memory:
        print(json.dumps({"bytes": memory(*options.measure_memory, options.folder)}))
        return
    print(f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}, "
          f"bfloat16 in hardware: {distributed.has_native_bfloat16(torch.device('cpu'))}, "
          f"texts: {'SST-2' if SST.is_file() else 'bundled novels'}")  # fmt: skip
    for name in options.what or KINDS:
        speeds = compare(name, options.folder, options.rounds, options.steps)
        print(f"\n{name}\n{'':34} {'examples/s':>10} {'Unmask is':>10} {'peak MB':>9}", flush=True)
        for party, speed in speeds.items():
            used = "" if options.no_memory else measured(name, party, options.folder)
            print(f"{party:34} {speed:10.1f} {speeds['Unmask'] / speed:9.2f}x {used:>9}")


if __name__ == "__main__":
    main()
