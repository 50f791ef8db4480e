"""One encoder by torch and by onnxruntime, in float32 and 8 bits: time, size and masked loss.

    python benchmarks/onnx_export.py [MODEL] [--threads 2] [--rounds 15] [--texts 200]

Speed: hidden states of texts of 128 tokens, batches of 1 and 32. The ways take turns, round after
round, so that whatever else the machine does slows all alike; a time is the median of the rounds, a
ratio the median of the ratios within a round. `unmask embed` computes the same hidden states.

Quality: the mean negative log-likelihood of masked tokens in held-out articles, the same 15 % for
each way, all of them shown as the mask, and the share that is predicted right.

Data: ../shared/data/wikipedia-en (valid).
"""

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

import unmask
from unmask.batch import Batch
from unmask.generation.text_batches import evaluation_mode, pad_texts
from unmask.inference.pipeline import Pipeline
from unmask.text.documents import read_documents

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
LENGTH, BATCHES, MASKED = 128, (1, 32), 0.15


def rows(pipeline: Pipeline, n: int) -> list[np.ndarray]:
    """Read the first 128 tokens of articles that no run has seen, special ones included."""
    special, found = pipeline.tokenizer.special_ids, list[np.ndarray]()
    for document in read_documents([DATA / "wikipedia-en" / "valid.txt.xz"]):
        ids = pipeline.tokenizer.encode(document.text[:4000]).ids
        room = LENGTH - len(special.prefix) - len(special.suffix)
        if len(ids) >= room:
            found.append(np.array([*special.prefix, *ids[:room], *special.suffix], np.int64))
        if len(found) == n:
            break
    return found


def masked_loss(pipeline: Pipeline, texts: list[np.ndarray]) -> tuple[float, float]:
    """Return the mean loss of masked tokens in nats, and the share that is predicted right."""
    special, draw = pipeline.tokenizer.special_ids, np.random.default_rng(0)
    losses, right = list[float](), list[bool]()
    assert special.mask is not None
    with evaluation_mode(pipeline.model):
        for i in range(0, len(texts), 8):
            batch = pad_texts(texts[i : i + 8], special)
            chosen = torch.from_numpy(draw.random(batch.inputs.shape) < MASKED)
            chosen &= ~torch.isin(batch.inputs, torch.tensor(sorted(special.all_ids)))
            masked = batch.inputs.masked_fill(chosen, special.mask)
            logits = pipeline.model.logits_at(replace(batch, inputs=masked), chosen)
            targets = batch.inputs[chosen]
            losses += (-logits.log_softmax(-1).gather(1, targets[:, None])[:, 0]).tolist()
            right += (logits.argmax(-1) == targets).tolist()
    return statistics.fmean(losses), statistics.fmean(right)


def seconds(run: Callable[[], object], at_least: float = 0.05) -> float:
    """Return the mean time of a run, repeated for a while."""
    start, n = time.perf_counter(), 0
    while (spent := time.perf_counter() - start) < at_least or not n:
        run()
        n += 1
    return spent / n


def compare_speed(ways: dict[str, Pipeline], texts: list[np.ndarray], rounds: int) -> None:
    """Print the time of each way, and how many times faster than the first it is."""
    first, *_ = ways
    for size in BATCHES:
        batch: Batch = pad_texts(texts[:size], ways[first].tokenizer.special_ids)
        times: dict[str, list[float]] = {name: [] for name in ways}
        for i in range(rounds + 2):
            for name, pipeline in ways.items():
                with evaluation_mode(pipeline.model):
                    spent = seconds(partial(pipeline.model.backbone, batch))
                if i > 1:  # the first rounds warm up
                    times[name].append(spent)
        for name, own in times.items():
            ratio = statistics.median(a / b for a, b in zip(times[first], own, strict=True))
            print(
                f"batch {size:2d}  {name:12s} {1000 * statistics.median(own):8.2f} ms  "
                f"{ratio:5.2f} x  (fastest {1000 * min(own):.2f} ms)"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="unmask-mini-en")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--texts", type=int, default=200)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    torch_model = unmask.load(given.model)
    texts = rows(torch_model, given.texts)
    with tempfile.TemporaryDirectory() as name:
        ways = {"torch": torch_model}
        for int8 in (False, True):
            kind = "onnx int8" if int8 else "onnx float32"
            folder = torch_model.save(Path(name) / kind, format="onnx", int8=int8)
            ways[kind] = unmask.load(folder)
            size = (folder / "model.onnx").stat().st_size
            print(f"{kind}: {size / 1e6:.1f} MB")
        compare_speed(ways, texts, given.rounds)
        for kind, pipeline in ways.items():
            loss, right = masked_loss(pipeline, texts)
            print(f"{kind:12s}  masked loss {loss:.4f} nats, {right:.2%} right, {len(texts)} texts")
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
