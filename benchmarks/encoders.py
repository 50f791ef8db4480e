"""Every encoder pretrained from scratch on the same text, and what it has learned, as a table.

    python benchmarks/encoders.py --out FOLDER [--models bert-mini,electra-mini] [--tokens 8000000]
        [--threads 1] [--size tiny]
    python benchmarks/encoders.py --out FOLDER --tune [--models ...]
    python benchmarks/encoders.py --out FOLDER --table

Each model is a run of `unmask pretrain` in FOLDER, with its own objective, tokenizer and defaults,
as many tokens (padding included) for all; a run that was interrupted goes on where it was. The
bigram table is told the true token before each that is asked. Tokens of different tokenizers are
not the same text: bytes a token stand beside them; CANINE, whose tokens are characters, reads four
times as many. Size tiny is the width and depth of BERT-tiny (Turc et al. 2019, arXiv:1908.08962) at
2,048 tokens a step: on a core or two, many small steps teach more than few of a larger network.
Speed is the greatest that was seen: runs share the machine.

With --tune, each run and the same network from random weights are tuned whole on 1,000 rows of four
tasks, 5 epochs, three seeds, by benchmarks/methods.py with the same heads for all (`--means`);
scores are of the dev file after the last epoch.

Data: ../shared/data/wikipedia-en, ../shared/data/glue, conll2003, ud_english_ewt.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from unmask.jobs.pretrain.resolve_options import preset_recipe
from unmask.reports.report_data import ReportData, read_report_data
from unmask.shards.read import TokenShards

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "wikipedia-en"
MODELS = (
    "bert-mini", "roberta-mini", "spanbert-mini", "albert-mini", "electra-mini", "deberta-mini",
    "deberta-v3-mini", "coco-lm-mini", "distilbert-mini", "modernbert-mini", "longformer-mini",
    "canine-mini",
)  # fmt: skip

TINY = {"d_model": 128, "n_layers": 2, "n_heads": 2, "d_ff": 512}
OWN = {
    "albert-mini": {"embedding_size": 64},
    "electra-mini": {"embedding_size": 64, "n_heads": 4},  # two of them for its generator
    "modernbert-mini": {"d_ff": 192},  # gated: three matrices
}
TASKS = ("sst2", "mrpc", "conll", "pos")
CHARACTERS = {"canine-mini": 4}
"""How many times as many tokens make as much text."""


def size(model: str, name: str) -> list[str]:
    """Say in the words of the command line what differs from the card."""
    if name == "mini":
        return []
    found = TINY | OWN.get(model, {})
    sets = [f"architecture.{key}={value}" for key, value in found.items()]
    if preset_recipe(model).init_previous_token_heads:
        sets.append("init_previous_token_heads=1")
    return [
        part
        for text in (*sets, f"batch_tokens={2048 * CHARACTERS.get(model, 1)}")
        for part in ("--set", text)
    ]


def pretrain(
    model: str, out: Path, tokens: int, threads: int, shape: str, more: Sequence[str] = ()
) -> int:
    """Run `unmask pretrain`, with `more` options, or go on with it; return its exit status."""
    run = out / model
    if (run / "config.json").is_file():
        return 0
    command = [sys.executable, "-m", "unmask.cli", "pretrain"]
    if (run / "unmask.json").is_file():
        command += ["--out", str(run), "--resume"]
    else:
        command += [
            model, "--data", str(DATA / "train.txt.xz"), "--out", str(run),
            "--tokens", str(tokens * CHARACTERS.get(model, 1)),
            "--checkpoint-every", "400", "--set", "evaluate_every=1000",
            *size(model, shape), *more,
        ]  # fmt: skip
    return subprocess.run([*command, "--threads", str(threads)], check=False).returncode


def row(run: Path) -> str:
    """Say what a run reached on its held-out text."""
    record = read_report_data(run)
    shards = TokenShards.open(run / "data")
    output = [
        f"{_percent(record, 'masked_accuracy')}",
        f"{_percent(record, 'replaced_accuracy')}",
        _baseline(record),
    ]
    speed = record.timing_log.maximum("tokens_per_second") or 0
    loss = record.evaluation_log.last("loss")
    return " | ".join(
        [
            f"| {run.name}",
            f"{record.training_log.last('tokens') or 0:,.0f}",
            "" if loss is None else f"{loss:.2f}",
            *output,
            f"{shards.n_bytes / shards.n_tokens:.2f}",
            f"{speed:,.0f} |",
        ]
    )


def tune(model: str, out: Path) -> int:
    """Tune a run, and the same network from random weights; return the exit status."""
    command = [
        sys.executable, str(Path(__file__).with_name("methods.py")), str(out / model),
        "--out", str(out / "tuned"), "--tasks", ",".join(TASKS), "--methods", "full",
        "--rows", "1000", "--epochs", "5", "--seeds", "3", "--means",
    ]  # fmt: skip
    return max(subprocess.run([*command, *r], check=False).returncode for r in ([], ["--random"]))


def tuned_table(out: Path, models: Sequence[str]) -> str:
    """Say what the tuned runs scored, as a table."""
    each = " | ".join(f"{task} | {task}, random" for task in TASKS)
    head = f"\n| model | {each} |\n| --- |{' ---: |' * 2 * len(TASKS)}"
    return "\n".join([head, *tuned_rows(out, models)])


def tuned_rows(out: Path, models: Sequence[str]) -> Iterator[str]:
    """Say what the tuned runs scored, mean and spread, and what random weights did."""
    path = out / "tuned" / "runs.jsonl"
    runs = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    for model in models:
        cells = list[str]()
        for task in TASKS:
            for start in (None, "random"):
                found = [
                    100 * r["score"]
                    for r in runs
                    if Path(r["base"]).name == model
                    and (r["task"], r.get("initialize")) == (task, start)
                ]
                spread = f" ± {statistics.stdev(found):.1f}" if len(found) > 1 else ""
                cells.append(f"{statistics.mean(found):.1f}{spread}" if found else "")
        if any(cells):
            yield f"| {model} | {' | '.join(cells)} |"


def _percent(record: ReportData, name: str) -> str:
    value = record.evaluation_log.last(name)
    return "" if value is None else f"{100 * value:.1f}"


def _baseline(record: ReportData) -> str:
    found = record.baselines.get("masked_accuracy", {}).get("bigram")
    return "" if found is None else f"{100 * found:.1f}"


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--tokens", type=int, default=8_000_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--size", choices=("tiny", "mini"), default="tiny")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--tune", action="store_true")
    args = parser.parse_args()
    if args.tune:
        return max(tune(model, args.out) for model in args.models.split(","))
    if args.table:
        print(
            "| model | tokens | loss | masked, % | replaced, % | bigram, % | bytes a token | "
            "tokens/s |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
        )
        for model in args.models.split(","):
            if (args.out / model / "data" / "shards.json").is_file():
                print(row(args.out / model))
        print(tuned_table(args.out, args.models.split(",")))
        return 0
    args.out.mkdir(parents=True, exist_ok=True)
    failed = [
        m
        for m in args.models.split(",")
        if pretrain(m, args.out, args.tokens, args.threads, args.size)
    ]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
