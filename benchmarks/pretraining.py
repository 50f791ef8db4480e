"""Pretraining speed against transformers' Trainer, taking turns in one process.

    python benchmarks/pretraining.py [masked] [paragraphs] [causal] [spans] [--rounds 4] [--steps 6]

Same shape, same text, same tokens a step. Each workload has three parties: the Trainer as it comes,
the Trainer at its best setting found here, and Unmask. They take turns of a few steps (the first of
each turn is dropped), so that whatever else the machine does hits all of them. What is compared are
medians of seconds a step, divided into the real tokens of a step; quote ratios, not seconds. Memory
is measured apart, in a process of its own for each party: the peak above what was held before the
first step.

Text: ../shared/data/wikitext-2 where it is there, else the bundled novels (say which in a report).
"""

import argparse
import contextlib
import dataclasses
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unmask.jobs.pretrain.apply_recipe import apply_recipe
from unmask.objectives.published import MASKED_LM
from unmask.shards.read import TokenShards
from unmask.shards.write import write_shards
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.training import loop
from unmask.training.config import Recipe
from unmask.training.data.sources import open_documents, resolve_tokenizer_spec
from unmask.training.data.texts import build_training_data
from unmask.training.device import distributed
from unmask.training.device.memory import keep_freed_memory
from unmask.training.optimizers.config import AdamW
from unmask.zoo.catalogue import get_preset
from unmask.zoo.preset import Published

HERE = Path(__file__).parent
WIKITEXT = HERE.parent.parent / "shared" / "data" / "wikitext-2" / "train.txt.xz"
TOKENS = 4096
"""Of a step."""


@dataclass(frozen=True)
class Workload:
    """What is trained on what."""

    card: str
    vocab_size: int
    length: int
    unit: str = "document"


WORKLOADS = {
    "masked": Workload("bert-mini", 30_000, 128),
    "paragraphs": Workload("bert-mini", 30_000, 512, "paragraph"),
    "causal": Workload("gpt2-mini", 16_000, 128),
    "spans": Workload("t5-mini", 16_000, 128),
}


def articles() -> Iterator[str]:
    """Give the articles of WikiText-2, a paragraph a line."""
    if not WIKITEXT.is_file():
        from unmask.bundled.demo import bundled_path
        from unmask.text.documents import read_documents

        yield from (d.text for d in read_documents(bundled_path("novels")))
        return
    lines: list[str] = []
    with lzma.open(WIKITEXT, "rt", encoding="utf-8") as file:
        for line in file:
            title = line.startswith(" = ") and not line.startswith(" = = ")
            if title and lines:
                yield "\n".join(lines)
                lines = []
            if line.strip():
                lines.append(line.strip())
    yield "\n".join(lines)


def corpus(folder: Path) -> Path:
    """Write the articles, parted by blank lines."""
    path = folder / "corpus.txt"
    if not path.is_file():
        path.write_text("\n\n".join(articles()), encoding="utf-8")
    return path


def recipe_of(work: Workload, folder: Path) -> tuple[Recipe, Published]:
    recipe = Recipe(
        model=work.card,
        data=(str(corpus(folder)),),
        vocab_size=work.vocab_size,
        sequence_length=work.length,
        row_unit=work.unit,  # type: ignore[arg-type]
        batch_tokens=TOKENS,
        steps=100_000,
        learning_rate=5e-4,
        optimizer=AdamW(betas=(0.9, 0.999), weight_decay=0.0),
        # the reference library has no next-sentence data any more
        objective=MASKED_LM if work.card.startswith("bert") else None,
    )
    return recipe, apply_recipe(get_preset(work.card), recipe)


def shards_of(work: Workload, folder: Path) -> TokenShards:
    recipe, preset = recipe_of(work, folder)
    home = folder / f"{work.card}-{work.vocab_size}"
    if (home / "shards.json").is_file():
        return TokenShards.open(home)
    if work.card.startswith("t5"):
        # learning 16,000 Unigram pieces takes minutes and is not what is timed
        spec = resolve_tokenizer_spec(replace(recipe, vocab_size=4_000), preset)
    else:
        spec = resolve_tokenizer_spec(recipe, preset)
    tokenizer = train_tokenizer(spec, (d.text for d in open_documents(recipe)))
    return write_shards(open_documents(recipe), tokenizer, home)


class Ours:
    """Unmask's own loop, a turn at a time."""

    def __init__(self, work: Workload, folder: Path) -> None:
        recipe, preset = recipe_of(work, folder)
        shards = shards_of(work, folder)
        architecture = preset.architecture.with_vocab_size(
            max(shards.tokenizer.vocab_size, work.vocab_size)
        )
        model = replace(preset, architecture=architecture).build().initialize(recipe.seed)
        data = build_training_data(shards, recipe, preset.objective, work.length)
        self.reports = loop.train(loop.start_run(recipe, model, data.batches))

    def turn(self, steps: int) -> list[tuple[float, int]]:
        """Take some steps; return seconds and real tokens of each but the first."""
        keep_freed_memory(True)
        reports = [next(self.reports) for _ in range(steps + 1)]
        return [(r.seconds, r.step_tokens) for r in reports[1:]]


class Theirs:
    """transformers' Trainer with its own collator, a turn at a time."""

    def __init__(
        self, work: Workload, folder: Path, *, bf16: bool = False, group: bool = False
    ) -> None:
        import transformers as hf

        hf.logging.set_verbosity_error()
        self.work, self.bf16, self.group = work, bf16, group
        self.folder = folder / "trainer"
        shards = shards_of(work, folder)
        tokenizer = shards.tokenizer
        home = folder / f"{work.card}-tokenizer"
        tokenizer.save(home)
        self.tokenizer = hf.AutoTokenizer.from_pretrained(home)
        size = max(tokenizer.vocab_size, work.vocab_size)
        self.model, self.collator = self._model_and_collator(hf, size)
        self.rows = self._rows(shards, tokenizer)

    def _model_and_collator(self, hf: Any, size: int) -> tuple[Any, Any]:
        if self.work.card.startswith("bert"):
            config = hf.BertConfig(
                vocab_size=size,
                hidden_size=256,
                num_hidden_layers=4,
                num_attention_heads=4,
                intermediate_size=1024,
            )
            return hf.BertForMaskedLM(config), hf.DataCollatorForLanguageModeling(self.tokenizer)
        if self.work.card.startswith("gpt2"):
            config = hf.GPT2Config(
                vocab_size=size, n_embd=256, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0
            )
            return hf.GPT2LMHeadModel(config), hf.default_data_collator
        config = hf.T5Config(
            vocab_size=size,
            d_model=256,
            d_kv=64,
            d_ff=1024,
            num_layers=4,
            num_heads=4,
            decoder_start_token_id=0,
        )
        model = hf.T5ForConditionalGeneration(config)
        return model, hf.DataCollatorForSeq2Seq(self.tokenizer, model=model)

    def _rows(self, shards: TokenShards, tokenizer: Tokenizer) -> list[dict[str, Any]]:
        """Lay the text out as the library's own examples do.

        That is run_mlm's grouping, its line by line, run_clm's blocks.
        """
        special, length = tokenizer.special_ids, self.work.length
        if self.work.unit == "paragraph":
            spans = shards.row_spans(length - 2, "paragraph")
            texts = [shards.read_tokens(int(a), int(b)).ids for a, b in spans]
            return [{"input_ids": [*special.prefix, *t.tolist(), *special.suffix]} for t in texts]
        parts = [
            np.concatenate(
                (special.prefix, shards.read_tokens(int(a), int(b)).ids, special.suffix)
            ).astype(np.int64)
            for a, b in shards.document_spans
        ]
        blocks = np.concatenate(parts)
        blocks = blocks[: len(blocks) // length * length].reshape(-1, length)
        if self.work.card.startswith("gpt2"):
            return [{"input_ids": b, "labels": b} for b in torch.from_numpy(blocks)]
        if self.work.card.startswith("bert"):
            return [{"input_ids": b.tolist()} for b in blocks]
        recipe, preset = recipe_of(self.work, shards.folder.parent)
        data = build_training_data(shards, recipe, preset.objective, length)
        examples = []
        for i, (a, b) in enumerate(data.train_rows.row_spans[:4000]):
            e = preset.objective(
                shards.read_tokens(int(a), int(b)), special, np.random.default_rng(i)
            )
            examples.append({"input_ids": e.source.tolist(), "labels": e.targets.tolist()})
        return examples

    def turn(self, steps: int) -> list[tuple[float, int]]:
        """Take some steps; return seconds and real tokens of each but the first."""
        import transformers as hf

        keep_freed_memory(False)
        mean = statistics.mean(len(r["input_ids"]) for r in self.rows[:2000])
        times: list[float] = []
        tokens: list[int] = []
        collate = self.collator

        def counting(rows: list[dict[str, Any]]) -> Any:
            tokens.append(
                sum(
                    len(r["input_ids"])
                    + (len(r["labels"]) if self.work.card.startswith("t5") else 0)
                    for r in rows
                )
            )
            return collate(rows)

        class Clock(hf.TrainerCallback):
            def on_step_end(self, *args: Any, **kwargs: Any) -> None:
                times.append(time.perf_counter())

        batch = 16 if self.work.unit == "paragraph" else max(1, round(TOKENS / mean))
        arguments = hf.TrainingArguments(
            output_dir=str(self.folder),
            max_steps=steps + 1,
            per_device_train_batch_size=batch,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            learning_rate=5e-4,
            bf16=self.bf16,
            seed=int(time.time()),
            **({"train_sampling_strategy": "group_by_length"} if self.group else {}),
        )
        trainer = hf.Trainer(
            self.model,
            arguments,
            train_dataset=self.rows,
            data_collator=counting,
            callbacks=[Clock()],
        )
        with contextlib.redirect_stdout(io.StringIO()):  # it prints a line of totals
            trainer.train()
        return [(b - a, n) for a, b, n in zip(times, times[1:], tokens[1:], strict=False)]


def parties(name: str, folder: Path) -> dict[str, Callable[[], Any]]:
    work = WORKLOADS[name]
    found: dict[str, Callable[[], Any]] = {
        "Trainer": lambda: Theirs(work, folder),
        "Trainer, bf16": lambda: Theirs(work, folder, bf16=True),
    }
    if name == "paragraphs":
        found["Trainer, bf16, grouped by length"] = lambda: Theirs(
            work, folder, bf16=True, group=True
        )
    found["Unmask"] = lambda: Ours(work, folder)
    return found


def compare(name: str, folder: Path, rounds: int, steps: int) -> dict[str, float]:
    """Let the parties take turns; return real tokens a second of each."""
    made = {party: make() for party, make in parties(name, folder).items()}
    seen: dict[str, list[tuple[float, int]]] = {party: [] for party in made}
    for round_index in range(rounds + 1):
        for party, runner in made.items():
            found = runner.turn(steps)
            if round_index:  # the first round warms up
                seen[party] += found
    return {
        p: sum(n for _, n in x) / len(x) / statistics.median(t for t, _ in x)
        for p, x in seen.items()
    }


def memory(name: str, party: str, folder: Path) -> int:
    """Measure the peak of memory above what is held before the first step, in this process."""
    runner = parties(name, folder)[party]()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = resident("VmRSS")
    runner.turn(4)
    return resident("VmHWM") - before


def resident(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {key}")


def main() -> None:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when transformers is imported, in a party
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workloads", nargs="*", default=[], choices=[*WORKLOADS, []])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "unmask-benchmark"
    )
    parser.add_argument("--measure-memory", nargs=2, metavar=("WORKLOAD", "PARTY"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)))
    if options.measure_memory:
        print(json.dumps({"bytes": memory(*options.measure_memory, options.folder)}))
        return
    print(f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}, "
          f"bfloat16 in hardware: {distributed.has_native_bfloat16(torch.device('cpu'))}, "
          f"text: {'WikiText-2' if WIKITEXT.is_file() else 'bundled novels'}")  # fmt: skip
    for name in options.workloads or list(WORKLOADS):
        speeds = compare(name, options.folder, options.rounds, options.steps)
        print(f"\n{name}: {dataclasses.asdict(WORKLOADS[name])}", flush=True)
        print(f"{'':34} {'tokens/s':>10} {'Unmask is':>10} {'peak MB':>9}")
        for party, speed in speeds.items():
            used = ""
            if not options.no_memory and sys.platform == "linux":
                command = [
                    sys.executable,
                    __file__,
                    "--folder",
                    options.folder,
                    "--measure-memory",
                    name,
                    party,
                ]
                stdout = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                used = f"{json.loads(stdout.splitlines()[-1])['bytes'] / 2**20:9.0f}"
            print(f"{party:34} {speed:10.0f} {speeds['Unmask'] / speed:9.2f}x {used}", flush=True)


if __name__ == "__main__":
    main()
