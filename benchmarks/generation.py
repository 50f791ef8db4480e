"""Speed of generation side by side with transformers on the same weights.

    python benchmarks/generation.py [--rounds 5] [--new-tokens 48] [--threads 2] [--case TEXT]
    python benchmarks/generation.py --quality FOLDER

Random weights of the shapes of gpt2-mini and t5-mini with 16,000 tokens, no end token; prompts of
32 tokens (in one case after a common prefix of 256), sources of 64. Of Unmask all precisions take
part; of transformers its default (float32), and what it offers for speed: weights in bfloat16, a
static cache, both. In each round all take a turn, from another one on. Printed are medians of new
tokens a second (of beams, of the best text) by wall-clock time, the median of the ratios within
rounds, of wall-clock and of the processor's time, and whether the float32 texts are the same, token
for token. "best" is the transformers setting with the shortest median. The second form says what
precisions change of a trained decoder: 16 texts of 100 tokens, which it samples, are read again
token by token.
"""

import argparse
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

import unmask
from unmask.checkpoints.huggingface.read import load_folder
from unmask.generation.decode import generate
from unmask.generation.decoding.batch import DecodingBatch, Prompt
from unmask.generation.decoding.fused_step import MIN_STEPS, fused_step
from unmask.generation.decoding.packed_linear import PACKED_LINEARS, DecodingPrecision
from unmask.generation.settings import GenerationConfig, generation_config
from unmask.generation.text_batches import evaluation_mode
from unmask.heads.model import Model
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.zoo.catalogue import MODELS

SIZE = 16_000
PROMPT, SOURCE = 32, 64
WRITTEN_TEXTS = 16
OURS = "Unmask"
SPECIAL = SpecialTokenIds(vocab_size=SIZE, pad=0, start=0, end=None)
BEST_OF = ("bfloat16", "static", "bfloat16 static")
"""Settings of transformers beside its default."""


@dataclass(frozen=True)
class Case:
    """What is generated."""

    family: str
    n_prompts: int
    ours: dict[str, Any]
    theirs: dict[str, Any]

    n_common: int = 0
    """Tokens of the common prefix of all prompts, before their own."""

    @property
    def name(self) -> str:
        how = "4 beams" if "beams" in self.ours else "top-p 0.9" if self.ours else "greedy"
        name = f"{how}, {self.family}, {self.n_prompts} prompt{'s' * (self.n_prompts > 1)}"
        return name + f", {self.n_common} tokens in common" * (self.n_common > 0)

    @property
    def prompt_length(self) -> int:
        return SOURCE if self.family == "T5 mini" else self.n_common + PROMPT

    def inputs(self) -> np.ndarray:
        draw = np.random.default_rng(self.n_prompts)
        ids = draw.integers(1, SIZE, (self.n_prompts, self.prompt_length))
        ids[:, : self.n_common] = ids[0, : self.n_common]
        return ids


BEAMS: tuple[dict[str, Any], dict[str, Any]] = ({"beams": 4}, {"num_beams": 4})
DRAWN: tuple[dict[str, Any], dict[str, Any]] = (
    {"temperature": 1.0, "top_p": 0.9},
    {"do_sample": True, "top_p": 0.9, "top_k": 0},
)
CASES = (
    Case("GPT-2 mini", 1, {}, {}),
    Case("GPT-2 mini", 16, {}, {}),
    Case("GPT-2 mini", 16, {}, {}, n_common=256),
    Case("GPT-2 mini", 8, *DRAWN),
    Case("GPT-2 mini", 8, *BEAMS),
    Case("T5 mini", 1, *BEAMS),
    Case("T5 mini", 8, *BEAMS),
)


def reference_model(family: str) -> Any:
    """Make a random model of the other library."""
    torch.manual_seed(0)
    common = {"vocab_size": SIZE, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
    if family == "GPT-2 mini":
        a: Any = MODELS["gpt2-mini"].architecture
        reference: Any = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                n_embd=a.d_model, n_layer=a.n_layers, n_head=a.n_heads, n_positions=512, **common
            )
        )
    else:
        a = MODELS["t5-mini"].architecture.decoder_stack
        reference = transformers.T5ForConditionalGeneration(
            transformers.T5Config(
                d_model=a.d_model, d_ff=a.d_ff, num_layers=a.n_layers, num_heads=a.n_heads,
                d_kv=a.d_head, decoder_start_token_id=0, **common,
            )
        )  # fmt: skip
    with torch.no_grad():  # texts that differ, not one token again and again
        for weight in reference.parameters():
            if weight.dim() > 1:
                weight.normal_(std=0.2)
    reference.generation_config.eos_token_id = None
    return reference.eval()


def ours(model: Model, case: Case, config: GenerationConfig) -> list[list[int]]:
    return generate(model, case.inputs().tolist(), SPECIAL, config)


def theirs(model: Any, case: Case, new_tokens: int, **how: Any) -> list[list[int]]:
    ids = torch.from_numpy(case.inputs())
    with torch.no_grad():
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=new_tokens,
            pad_token_id=0,
            **({"do_sample": False} | case.theirs | how),
        )
    return out[:, 1 if case.family == "T5 mini" else case.prompt_length :].tolist()


def parties(case: Case, new_tokens: int) -> dict[str, Callable[[], list[list[int]]]]:
    """Return all that take part in a case, each as a run of it."""
    reference = reference_model(case.family)
    with tempfile.TemporaryDirectory() as folder:
        reference.save_pretrained(folder)
        model = load_folder(Path(folder)).model
        rough = type(reference).from_pretrained(folder, dtype=torch.bfloat16).eval()
    rough.generation_config.eos_token_id = None
    config = generation_config(max_new_tokens=new_tokens, **case.ours)
    static = {"cache_implementation": "static", "disable_compile": True}

    def in_precision(precision: DecodingPrecision) -> Callable[[], list[list[int]]]:
        return lambda: ours(model, case, replace(config, precision=precision))

    own = {p: in_precision(p) for p, kind in PACKED_LINEARS.items() if kind.is_supported()}
    return {f"{OURS} {precision}": run for precision, run in own.items()} | {
        "default": lambda: theirs(reference, case, new_tokens),
        "bfloat16": lambda: theirs(rough, case, new_tokens),
        "static": lambda: theirs(reference, case, new_tokens, **static),
        "bfloat16 static": lambda: theirs(rough, case, new_tokens, **static),
    }


def measure(
    runs: dict[str, Callable[[], Any]], rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return the seconds of each run in each round: of the clock, and of the processor."""
    wall: dict[str, list[float]] = {name: [] for name in runs}
    cpu: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for i in range(rounds):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            start, used = time.perf_counter(), time.process_time()
            runs[name]()
            wall[name].append(time.perf_counter() - start)
            cpu[name].append(time.process_time() - used)
    return wall, cpu


def ratio(theirs: list[float], ours: list[float]) -> str:
    return f"{statistics.median(t / o for t, o in zip(theirs, ours, strict=True)):.2f}x"


def report(case: Case, new_tokens: int, rounds: int) -> None:
    """Measure a case and print its rows."""
    runs = parties(case, new_tokens)
    texts = {name: run() for name, run in runs.items()}  # and all are warm
    wall, cpu = measure(runs, rounds)
    tokens = case.n_prompts * new_tokens
    speed = {name: tokens / statistics.median(taken) for name, taken in wall.items()}
    best = min(("default", *BEST_OF), key=lambda name: statistics.median(wall[name]))
    same = str(texts[f"{OURS} float32"] == texts["default"])
    same = "drawn" if "do_sample" in case.theirs else same
    for name in (name for name in runs if name.startswith(OURS)):
        cells = [
            f"{case.name}: {name}", f"{speed[name]:,.0f}", f"{speed['default']:,.0f}",
            f"{speed[best]:,.0f} ({best})",
            *(
                ratio(taken[peer], taken[name])
                for peer in ("default", best) for taken in (wall, cpu)
            ),
            same if name.endswith("float32") else "",
        ]  # fmt: skip
        print("| " + " | ".join(cells) + " |", flush=True)


def step_logits(model: Model, texts: Tensor, precision: DecodingPrecision) -> Tensor:
    """Return the logits of all tokens but the first, each read in a step of its own [t b v]."""
    step = fused_step(model, MIN_STEPS, precision)
    with evaluation_mode(model):
        prompts = [Prompt(input_ids=row) for row in texts[:, :1].tolist()]
        special = replace(SPECIAL, vocab_size=model.vocab_size)
        batch = DecodingBatch(model, prompts, special, step=step)
        found = [batch.next_token_logits()[:, 0]]
        for column in texts[:, 1:-1].T:
            batch.append_tokens(column[:, None])
            found.append(batch.next_token_logits()[:, 0])
    return torch.stack(found)


def quality(folder: Path) -> None:
    """Print what precisions change of a trained decoder, on texts that it wrote itself."""
    pipeline = unmask.load(folder)
    model, special = pipeline.model, replace(pipeline.tokenizer.special_ids, end=None)
    config = generation_config(max_new_tokens=100, temperature=1.0)
    written = generate(model, [[special.start]] * WRITTEN_TEXTS, special, config)
    texts = torch.tensor([[special.start, *ids] for ids in written])
    exact = step_logits(model, texts, "float32").log_softmax(-1)
    print("| precision | loss, nats a token | the same likeliest token | divergence, nats |")
    print("| --- | ---: | ---: | ---: |")
    for precision in PACKED_LINEARS:
        logs = step_logits(model, texts, precision).log_softmax(-1)
        loss = -logs.gather(-1, texts[:, 1:].T[..., None]).mean()
        same = (logs.argmax(-1) == exact.argmax(-1)).float().mean()
        divergence = (exact.exp() * (exact - logs)).sum(-1).mean()
        print(f"| {precision} | {loss:.4f} | {same:.2%} | {divergence:.1e} |", flush=True)


def main() -> None:
    """Measure the cases."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--case", default="", help="only cases whose names have this text")
    parser.add_argument("--quality", type=Path, help="a trained decoder to be compared, no speed")
    given = parser.parse_args()
    if given.quality is not None:
        quality(given.quality)
        return
    torch.set_num_threads(given.threads)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    print(
        f"torch {torch.__version__}, transformers {transformers.__version__}, "
        f"Python {platform.python_version()}, threads: {given.threads}, rounds: {given.rounds}"
    )
    print("| case | Unmask | default | best | wall | CPU | wall, best | CPU, best | same text |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    for case in CASES:
        if given.case in case.name:
            report(case, given.new_tokens, given.rounds)


if __name__ == "__main__":
    main()
