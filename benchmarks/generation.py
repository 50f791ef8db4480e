"""Tokens a second of generation, side by side with transformers on the same weights.

    python benchmarks/generation.py [--rounds 5] [--new-tokens 32]

A randomly initialized GPT-2 of the shape of gpt2-mini goes on from random prompts of 32 tokens,
with a cache, no end token, in float32 and one thread. In each round both libraries take a turn, the
first of them alternately. Time is that of the processor, so that what else runs on the machine
counts less. Printed are medians of new tokens a second (of beams, of the best text), the median of
the ratios within rounds, and whether both say the same.
"""

import argparse
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from unmask.checkpoints.huggingface.read import load_folder
from unmask.generation.decode import generate
from unmask.generation.settings import generation_config
from unmask.heads.model import Model
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.zoo.catalogue import MODELS

SIZE = 16_000
PROMPT = 32
CASES: dict[str, tuple[int, dict[str, Any], dict[str, Any]]] = {
    "greedy, 1 prompt": (1, {}, {"do_sample": False}),
    "greedy, 8 prompts": (8, {}, {"do_sample": False}),
    "drawn (top-p 0.9), 8 prompts": (
        8,
        {"temperature": 1.0, "top_p": 0.9},
        {"do_sample": True, "top_p": 0.9, "top_k": 0},
    ),
    "4 beams, 1 prompt": (1, {"beams": 4}, {"do_sample": False, "num_beams": 4}),
    "4 beams, 8 prompts": (8, {"beams": 4}, {"do_sample": False, "num_beams": 4}),
}


def models(folder: Path) -> tuple[Model, Any]:
    """Make the same random model in both libraries."""
    a = MODELS["gpt2-mini"].architecture.with_vocab_size(SIZE)
    config = transformers.GPT2Config(
        vocab_size=SIZE, n_embd=a.d_model, n_layer=a.n_layers, n_head=a.n_heads,
        n_positions=512, bos_token_id=0, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    reference = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():  # texts that differ, not one token again and again
        for weight in reference.parameters():
            if weight.dim() > 1:
                weight.normal_(std=0.2)
    reference.save_pretrained(folder)
    reference.generation_config.eos_token_id = None
    return load_folder(folder).model, reference


def seconds(run: Callable[[], Any]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--new-tokens", type=int, default=32)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"torch {torch.__version__}, transformers {transformers.__version__}, "
        f"Python {platform.python_version()}, one thread"
    )
    special = SpecialTokenIds(vocab_size=SIZE, pad=0, start=0, end=None)
    with tempfile.TemporaryDirectory() as folder:
        model, reference = models(Path(folder))
    print("| | unmask tokens/s | transformers tokens/s | unmask is | rounds |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, (n, ours, theirs) in CASES.items():
        rng = np.random.default_rng(n)
        prompts = rng.integers(1, SIZE, (n, PROMPT))
        ids = torch.from_numpy(prompts)
        config = generation_config(max_new_tokens=given.new_tokens, **ours)

        def mine(prompts: Any = prompts, config: Any = config) -> list[list[int]]:
            return generate(model, prompts.tolist(), special, config)

        def its(ids: Any = ids, theirs: Any = theirs) -> list[list[int]]:
            with torch.no_grad():
                out = reference.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    max_new_tokens=given.new_tokens,
                    pad_token_id=0,
                    **theirs,
                )
            return out[:, PROMPT:].tolist()

        same = mine() == its()  # and both are warm
        taken = []
        for i in range(given.rounds):
            order = (mine, its) if i % 2 else (its, mine)
            one = {run: seconds(run) for run in order}
            taken.append((one[mine], one[its]))
        tokens = n * given.new_tokens
        a, b = (tokens / statistics.median(side) for side in zip(*taken, strict=True))
        ratio = statistics.median(t / m for m, t in taken)
        output = "" if theirs["do_sample"] else ", the same text" if same else ", OTHER TEXT"
        print(f"| {name}{output} | {a:,.0f} | {b:,.0f} | {ratio:.2f}x | {len(taken)} |", flush=True)


if __name__ == "__main__":
    main()
