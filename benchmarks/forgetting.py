"""Decoding with windows: caches that forget what no token sees any more against caches of it all.

    python benchmarks/forgetting.py [--rounds 3] [--models mistral-mini] [--lengths 512,2048]

Randomly initialized models of the catalogue say texts of so many tokens after a prompt of 32,
greedily, without an end token, in float32 and one thread. In each round both take a turn, the first
of them alternately; printed are medians of new tokens a second of processor time, the median of the
ratios within rounds, the memory of keys and values in the end, and how many tokens are said before
rounding decides otherwise, as a share of all.
"""

import argparse
import platform
import statistics
import time
from unittest.mock import patch

import numpy as np
import torch

from unmask.generation.decoding.batch import DecodingBatch, Prompt
from unmask.heads.model import Model
from unmask.model.cache import Cache
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.zoo.catalogue import MODELS

SIZE, PROMPT = 4_000, 32
SPECIAL = SpecialTokenIds(vocab_size=SIZE, pad=0, start=2, end=None)


def bytes_of(cache: Cache) -> int:
    """Count the memory of keys and values."""
    held = [(layer._k, layer._v) for layer in cache.layers]  # pyright: ignore[reportPrivateUsage]
    return sum(x.numel() * x.element_size() for pair in held for x in pair if x is not None)


@torch.no_grad()
def say(model: Model, rows: int, new: int, *, forgets: bool) -> tuple[float, int, list[list[int]]]:
    """Return the seconds, the memory of the cache, and what was said."""
    generator, output = np.random.default_rng(0), list[torch.Tensor]()
    prompts = [Prompt(input_ids=generator.integers(5, SIZE, PROMPT).tolist()) for _ in range(rows)]
    start = time.process_time()
    # Where scores depend on all pairs, nothing is forgotten.
    with patch.object(type(model.backbone.position), "needs_all_keys", not forgets):
        read = DecodingBatch(model, prompts, SPECIAL)
        for _ in range(new):
            output.append(read.next_token_logits()[:, 0].argmax(-1, keepdim=True))
            read.append_tokens(output[-1])
    seconds = time.process_time() - start
    cache = read.cache
    return seconds, bytes_of(cache), torch.cat(output, 1).tolist()


def alike(some: list[list[int]], others: list[list[int]]) -> float:
    """Return the share of tokens before the first of each text that differs."""
    pairs = [np.array(x) == np.array(y) for x, y in zip(some, others, strict=True)]
    return float(np.mean([same.cumprod().mean() for same in pairs]))


def main() -> None:
    """Measure and print a table."""
    parse = argparse.ArgumentParser()
    parse.add_argument("--rounds", type=int, default=3)
    parse.add_argument("--rows", type=int, default=4)
    parse.add_argument("--models", default="mistral-mini,gemma-3-mini")
    parse.add_argument("--lengths", default="512,2048")
    args = parse.parse_args()
    torch.set_num_threads(1)
    print(f"python {platform.python_version()}, torch {torch.__version__}, {args.rows} prompts\n")
    print("| model | windows | new tokens | all: tokens/s | forgets: tokens/s | ", end="")
    print("forgets is | all: MB | forgets: MB | tokens alike |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in args.models.split(","):
        preset = MODELS[name]
        a = preset.architecture.with_vocab_size(SIZE)
        model = Model(a, {"language": preset.heads["language"]}).initialize(0).eval()
        with torch.no_grad():  # texts that differ, not one token again and again
            for weight in model.parameters():
                if weight.dim() > 1:
                    weight.normal_(std=0.1)
        for new in map(int, args.lengths.split(",")):
            found: dict[bool, list[float]] = {True: [], False: []}
            memory, output = dict[bool, int](), dict[bool, list[list[int]]]()
            for i in range(args.rounds):
                for forgets in (i % 2 == 0, i % 2 == 1):
                    seconds, memory[forgets], output[forgets] = say(
                        model, args.rows, new, forgets=forgets
                    )
                    found[forgets].append(args.rows * new / seconds)
            ratio = statistics.median(x / y for x, y in zip(found[True], found[False], strict=True))
            whole, less = (statistics.median(found[x]) for x in (False, True))
            print(
                f"| {name} | {a.attention_window} | {new} | {whole:.0f} | {less:.0f} | "
                f"{ratio:.2f}x "
                f"| {memory[False] / 1e6:.1f} | {memory[True] / 1e6:.1f} "
                f"| {alike(output[True], output[False]):.1%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
