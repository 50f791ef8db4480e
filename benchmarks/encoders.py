"""Every encoder pretrained from scratch on the same text, and what it has learned, as a table.

    python benchmarks/encoders.py --out FOLDER [--models bert-mini,electra-mini] [--tokens 12000000]
        [--threads 1]
    python benchmarks/encoders.py --out FOLDER --table

Each model is a run of `unmask pretrain` in FOLDER, with its own objective, tokenizer and defaults,
as many tokens (padding included) for all; a run that was interrupted goes on where it was. The
bigram table is told the true token before each that is asked. Tokens of different tokenizers are
not the same text: bytes a token stand beside them. What the runs are worth in fine-tuning, beside
random weights: `python benchmarks/methods.py FOLDER/RUN --methods full [--random]`.

Data: ../shared/data/wikipedia-en.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from unmask.serving.record import Record, read_record
from unmask.tokens.shards import Shards

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "wikipedia-en"
MODELS = (
    "bert-mini", "roberta-mini", "spanbert-mini", "albert-mini", "electra-mini", "deberta-mini",
    "deberta-v3-mini", "coco-lm-mini", "distilbert-mini", "modernbert-mini", "longformer-mini",
    "canine-mini",
)  # fmt: skip


def pretrain(model: str, out: Path, tokens: int, threads: int) -> int:
    """Run `unmask pretrain`, or go on with it; return its exit status."""
    run = out / model
    if (run / "config.json").is_file():
        return 0
    command = [sys.executable, "-m", "unmask.cli", "pretrain"]
    if (run / "unmask.json").is_file():
        command += ["--out", str(run), "--resume"]
    else:
        command += [
            model, "--data", str(DATA / "train.txt.xz"), "--out", str(run),
            "--tokens", str(tokens), "--checkpoint-every", "200", "--set", "evaluate_every=500",
        ]  # fmt: skip
    return subprocess.run([*command, "--threads", str(threads)], check=False).returncode


def row(run: Path) -> str:
    """Say what a run reached on its held-out text."""
    record = read_record(run)
    shards = Shards.open(run / "data")
    said = [
        f"{_percent(record, 'masked_accuracy')}",
        f"{_percent(record, 'replaced_accuracy')}",
        _baseline(record),
    ]
    speed = record.timing.median("tokens_per_second") or 0
    loss = record.evaluation.last("loss")
    return " | ".join(
        [
            f"| {run.name}",
            f"{record.training.last('tokens') or 0:,.0f}",
            "" if loss is None else f"{loss:.2f}",
            *said,
            f"{shards.n_bytes / shards.n_tokens:.2f}",
            f"{speed:,.0f} |",
        ]
    )


def _percent(record: Record, name: str) -> str:
    value = record.evaluation.last(name)
    return "" if value is None else f"{100 * value:.1f}"


def _baseline(record: Record) -> str:
    found = record.baselines.get("masked_accuracy", {}).get("bigram")
    return "" if found is None else f"{100 * found:.1f}"


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--tokens", type=int, default=12_000_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    if asked.table:
        print(
            "| model | tokens | loss | masked, % | replaced, % | bigram, % | bytes a token | "
            "tokens/s |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
        )
        for model in asked.models.split(","):
            if (asked.out / model / "data" / "shards.json").is_file():
                print(row(asked.out / model))
        return 0
    asked.out.mkdir(parents=True, exist_ok=True)
    failed = [
        m for m in asked.models.split(",") if pretrain(m, asked.out, asked.tokens, asked.threads)
    ]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
