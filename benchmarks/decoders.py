"""Decoders, and bidirectional models that decode, pretrained from scratch on the same text.

    python benchmarks/decoders.py --out FOLDER [--models gpt2-mini,transformer-xl-mini]
        [--tokens 8000000] [--threads 1] [--size tiny]
    python benchmarks/decoders.py --out FOLDER --tune [--models ...]
    python benchmarks/decoders.py --out FOLDER --table [--minimal-pairs 67]
    python benchmarks/decoders.py --out FOLDER --memory 0,128,512

Each model is a run of `unmask pretrain` in FOLDER, as in benchmarks/encoders.py, as many tokens
for all. Bits per byte are of held-out text that no run has seen, pieces of as many tokens as in
training, each read on its own; Transformer-XL goes on with its memory. XLNet and GPT-BERT are
asked in the order of the text; UniLM, which hides a part of it in any order, is not. With --tune,
each run and the same network from random weights are tuned as benchmarks/encoders.py does it.

With --memory, Transformer-XL is asked with memories of these lengths, and beside that by reading a
window anew for each token, which sees as much: bits per byte, and seconds for a token.

Data: ../shared/data/wikipedia-en, zero_shot, and those of benchmarks/encoders.py --tune.
"""

import argparse
import math
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import torch
from encoders import DATA, pretrain, tune, tuned_table

import unmask
from unmask.batch import Batch, Visibility
from unmask.evaluation.perplexity import HeldOutConfig, evaluate
from unmask.heads.model import Model
from unmask.objectives.corrupt import PermutationLM
from unmask.objectives.objective import AnyObjective, Objective
from unmask.objectives.published import components_of
from unmask.objectives.select import AllTokens
from unmask.reports.report_data import read_report_data
from unmask.text.documents import Document, read_documents
from unmask.zoo.preset import Published

MODELS = (
    "gpt2-mini", "llama-mini", "transformer-xl-mini", "xlnet-mini", "unilm-mini", "gpt-bert-mini",
)  # fmt: skip
OWN = {
    "llama-mini": {"d_ff": 344, "n_kv_heads": 1},  # gated: three matrices
    "gpt-bert-mini": {"d_ff": 344},
}


def options(model: str, shape: str) -> list[str]:
    """Say what differs from the card besides, in the words of the command line."""
    own = OWN.get(model, {}) if shape == "tiny" else {}
    sets = ("sequence_length=128", *(f"architecture.{key}={value}" for key, value in own.items()))
    return [part for text in sets for part in ("--set", text)]


def forward(preset: Published) -> AnyObjective:
    """Return what asks for each token of a text, told from those before it."""
    objective = preset.objective
    if objective.causal:
        return objective
    for part in components_of(objective).values():
        if part.causal:
            return part
    return Objective(AllTokens(), PermutationLM(random_order=False))


def held_out(n: int) -> list[Document]:
    """Return the first documents of the text that no run has seen."""
    return [*islice(read_documents([DATA / "valid.txt.xz"]), n)]


def row(run: Path, pairs: int, texts: Sequence[Document]) -> str:
    """Say what a run reached."""
    loaded, record = unmask.load(run), read_report_data(run)
    memory = (
        int(loaded.preset.training_options.get("memory_length", 0))
        if loaded.preset.objective.causal
        else 0
    )
    length = min(loaded.preset.sequence_length, 128)
    found = evaluate(
        loaded.model,
        loaded.tokenizer,
        forward(loaded.preset),
        texts,
        HeldOutConfig(sequence_length=length, memory_length=memory),
    )
    (blimp,) = unmask.evaluate_tasks(loaded, "blimp", data=DATA.parent, rows=pairs, terminal=None)
    speed = record.timing_log.maximum("tokens_per_second") or 0
    bits = "" if found.bits_per_byte is None else f"{found.bits_per_byte:.3f}"
    return (
        f"| {run.name} | {record.training_log.last('tokens') or 0:,.0f} | {bits} | "
        f"{100 * blimp.score.value:.1f} | {speed:,.0f} |"
    )


def memories(run: Path, lengths: Sequence[int], texts: Sequence[Document]) -> None:
    """Ask with memories of several lengths, and by reading windows anew."""
    loaded = unmask.load(run)
    length = min(loaded.preset.sequence_length, 128)
    print(
        "| seen before a piece | bits per byte | seconds a token | window anew: seconds | times |"
    )
    print("| ---: | ---: | ---: | ---: | ---: |")
    for n in lengths:
        start, objective = time.process_time(), loaded.preset.objective
        found = evaluate(
            loaded.model,
            loaded.tokenizer,
            objective,
            texts,
            HeldOutConfig(sequence_length=length, memory_length=n),
        )
        each = (time.process_time() - start) / found.tokens
        anew = window(loaded.model, n + length)
        print(
            f"| {n} | {found.bits_per_byte:.3f} | {each:.2e} | {anew:.2e} | {anew / each:.0f} |",
            flush=True,
        )


@torch.no_grad()
def window(model: Model, length: int, times: int = 20) -> float:
    """Measure the seconds that it takes to read a window for one token more."""
    ids = torch.randint(5, min(1000, model.vocab_size), (1, length))
    batch = Batch(inputs=ids, visibility=Visibility(causal=True))
    best = math.inf
    for _ in range(times):
        start = time.process_time()
        model.language_head.logits(model.hidden_states(batch)[:, -1])
        best = min(best, time.process_time() - start)
    return best


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--tokens", type=int, default=8_000_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--size", choices=("tiny", "mini"), default="tiny")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--minimal-pairs", type=int, default=6_700)
    parser.add_argument("--documents", type=int, default=100, help="of held-out text")
    parser.add_argument("--memory")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.memory:
        lengths = [int(n) for n in args.memory.split(",")]
        memories(args.out / "transformer-xl-mini", lengths, held_out(args.documents))
        return 0
    if args.tune:
        return max(tune(model, args.out) for model in args.models.split(","))
    if args.table:
        print("| model | tokens | bits per byte | BLiMP | tokens/s |")
        print(f"| --- |{' ---: |' * 4}")
        for model in args.models.split(","):
            if (args.out / model / "config.json").is_file():
                texts = held_out(args.documents)
                print(row(args.out / model, args.minimal_pairs, texts), flush=True)
        print(tuned_table(args.out, args.models.split(",")))
        return 0
    args.out.mkdir(parents=True, exist_ok=True)
    failed = [
        m
        for m in args.models.split(",")
        if pretrain(m, args.out, args.tokens, args.threads, args.size, options(m, args.size))
    ]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
