"""Speed of reading against transformers, taking turns in one process: fill, embed, zero-shot.

    python benchmarks/reading.py [fill] [embed] [blimp] [choices] [--rounds 3] [--texts 256]

Same weights, same texts, 32 texts a batch on both sides, in float32 and in bfloat16. The peer of
filling and embedding is the pipeline as it comes, and at its best setting found here: texts sorted
by length, in bfloat16. The peer of zero-shot tasks is what lm-evaluation-harness does with a causal
model (`lm_eval/models/huggingface.py`, `_loglikelihood_tokens`): each context with its continuation
is a row, the longest first, padded on the right within a batch, logits of all columns, a
log-softmax over the vocabulary in float32, and the sum over the continuation. Its default is one
row a batch, its best setting 32 rows in bfloat16.

What is compared is the time of the processor for all texts beside wall time; parties take turns, so
that whatever else the machine does hits all of them; the first turn of each is dropped, and each
ratio is the median of the ratios of turns. Before any time is taken, the answers are compared: in
float32 the candidates of blanks are the same, vectors and log-likelihoods within 1e-3.

Texts: SST-2 and ../shared/data/zero_shot where they are there, else sentences of the bundled
novels, each with a copy whose last two words are exchanged (say which in a report).
"""

import argparse
import json
import lzma
import os
import platform
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import finetuning
import numpy as np
import torch

from unmask.checkpoints.huggingface.write import write_folder
from unmask.inference.open_model import load
from unmask.inference.pipeline import Pipeline
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.training.device import distributed
from unmask.training.device.memory import keep_freed_memory
from unmask.zoo.catalogue import get_preset

DATA = finetuning.HERE.parent.parent / "shared" / "data"
BLIMP = DATA / "zero_shot" / "blimp.jsonl.xz"
CHOICES = DATA / "multiple_choice" / "siqa.jsonl.xz"
BATCH = 32
VOCAB_SIZE = 16_000
DECODER = "gpt2-mini"

Pair = tuple[str, str]
"""A context, and a continuation of it."""


def masked(n: int) -> list[str]:
    """Hide a word of each of some texts."""
    found: list[str] = []
    for i, text in enumerate(finetuning.texts()[:n]):
        words = text.split()[:60]
        words[i % len(words)] = "[MASK]"
        found.append(" ".join(words))
    return found


def lines(path: Path) -> list[dict[str, Any]]:
    """Read the lines of a compressed file."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@cache
def questions(name: str, n: int) -> tuple[Pair, ...]:
    """Return what a task asks of some items, evenly spaced in its file."""
    path = {"blimp": BLIMP, "choices": CHOICES}[name]
    if not path.is_file():
        words = [text.split() for text in finetuning.texts()[:n]]
        pairs = [(w, [*w[:-2], *w[:-3:-1]]) for w in words]
        return tuple(("", " ".join(one)) for pair in pairs for one in pair if one)
    rows = lines(path)
    rows = rows[:: max(1, len(rows) // n)][:n]
    if name == "blimp":
        return tuple(("", row[key]) for row in rows for key in ("good", "bad"))
    return tuple((row["query"], f" {choice}") for row in rows for choice in row["choices"])


def decoder_folder(folder: Path) -> Path:
    """Write a random GPT-2 of mini shape with a table of 16,000 tokens, as both libraries read."""
    home = folder / DECODER
    if not (home / "config.json").is_file():
        preset = get_preset(DECODER)
        asked = [c + t for name in ("blimp", "choices") for c, t in questions(name, 2000)]
        tokenizer = train_tokenizer(preset.tokenizer, [*finetuning.texts(), *asked])
        size = max(tokenizer.vocab_size, VOCAB_SIZE)
        preset = replace(preset, architecture=preset.architecture.with_vocab_size(size))
        write_folder(home, preset.build().initialize(0), preset, tokenizer)
    return home


@dataclass(frozen=True)
class Party:
    """One way to answer all texts; the answers are those that are compared."""

    name: str
    answer: Callable[[], Any]
    keeps_memory: bool = False


def ours(home: Path, dtype: str) -> Pipeline:
    """Open a model with the library."""
    pipeline = load(home)
    return pipeline.to("cpu", dtype="bfloat16" if dtype == "bfloat16" else "float32")


class TheirPipeline:
    """transformers' pipeline, as it comes or at its best setting."""

    def __init__(self, home: Path, task: str, *, best: bool) -> None:
        import transformers as hf

        hf.logging.set_verbosity_error()
        dtype = torch.bfloat16 if best else torch.float32
        self.pipe = hf.pipeline(task, model=str(home), device="cpu", dtype=dtype)
        self.best = best

    def __call__(self, texts: Sequence[str]) -> list[Any]:
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]) * self.best)
        found = self.pipe([texts[i] for i in order], batch_size=BATCH)
        answers: list[Any] = [None] * len(texts)
        for i, one in zip(order, found, strict=True):
            answers[i] = one
        return answers


class TheirLikelihoods:
    """Log-likelihoods of continuations, as lm-evaluation-harness computes them."""

    def __init__(self, home: Path, *, best: bool) -> None:
        import transformers as hf

        hf.logging.set_verbosity_error()
        dtype = torch.bfloat16 if best else torch.float32
        self.model = hf.AutoModelForCausalLM.from_pretrained(home, dtype=dtype).eval()
        self.batch, self.special = (BATCH if best else 1), load(home).tokenizer.special_ids
        self.tokenizer = hf.AutoTokenizer.from_pretrained(home)

    def _encode(self, pair: Pair) -> tuple[list[int], list[int]]:
        context, continuation = pair
        both = self.tokenizer(context + continuation, add_special_tokens=False)["input_ids"]
        first = self.tokenizer(context, add_special_tokens=False)["input_ids"]
        return first or [self.special.start], both[len(first) :]

    @torch.no_grad()
    def __call__(self, pairs: Sequence[Pair]) -> list[float]:
        rows = [self._encode(pair) for pair in pairs]
        order = sorted(range(len(rows)), key=lambda i: -len(rows[i][0]) - len(rows[i][1]))
        found = [0.0] * len(rows)
        for start in range(0, len(order), self.batch):
            some = order[start : start + self.batch]
            read = [torch.tensor((rows[i][0] + rows[i][1])[:-1]) for i in some]
            ids = torch.nn.utils.rnn.pad_sequence(read, batch_first=True)
            logs = self.model(ids).logits.float().log_softmax(-1)
            for i, own, n in zip(some, logs, map(len, read), strict=True):
                targets = torch.tensor(rows[i][1])
                of_targets = own[n - len(targets) : n]
                found[i] = float(of_targets.gather(-1, targets[:, None]).sum())
        return found


def fill_parties(folder: Path, n: int) -> list[Party]:
    """Fill a blank of each text with the likeliest token.

    The pipeline also has the ids that no token fills, whose strings are empty.
    """
    home, texts = finetuning.model_folder(folder), masked(n)

    def mine(pipeline: Pipeline) -> list[str]:
        return [one.blanks[0][0].text for one in pipeline.fill(texts)]

    def theirs(pipeline: TheirPipeline) -> list[str]:
        found = [[c["token_str"] for c in one] for one in pipeline(texts)]
        return [next(filter(None, some), "") for some in found]

    task = "fill-mask"
    return _parties(
        [lambda d=d: mine(d) for d in (ours(home, "float32"), ours(home, "bfloat16"))],
        [lambda b=b: theirs(b) for b in (TheirPipeline(home, task, best=x) for x in (False, True))],
    )


def embed_parties(folder: Path, n: int) -> list[Party]:
    """Return the mean over tokens of each text.

    The pipeline also returns vectors of padding; how many tokens a text has is known beforehand.
    """
    home, texts = finetuning.model_folder(folder), list(finetuning.texts()[:n])
    special = load(home).tokenizer.special_ids
    n_special = len(special.prefix) + len(special.suffix)
    lengths = [len(ids) + n_special for ids in load(home).tokenizer.encode_ids_batch(texts)]

    def theirs(pipeline: TheirPipeline) -> np.ndarray:
        found = zip(pipeline(texts), lengths, strict=True)
        return np.stack([np.asarray(one[0][:n], np.float32).mean(0) for one, n in found])

    task = "feature-extraction"
    return _parties(
        [lambda d=d: d.embed(texts) for d in (ours(home, "float32"), ours(home, "bfloat16"))],
        [lambda b=b: theirs(b) for b in (TheirPipeline(home, task, best=x) for x in (False, True))],
    )


def likelihood_parties(folder: Path, name: str, n: int) -> list[Party]:
    """Return the log-likelihood of each continuation."""
    home, pairs = decoder_folder(folder), questions(name, n)
    contexts, continuations = [a for a, _ in pairs], [b for _, b in pairs]

    def mine(pipeline: Pipeline) -> list[float]:
        found = pipeline.likelihood(contexts, continuations)
        return [one.log_likelihood for one in found]

    return _parties(
        [lambda d=d: mine(d) for d in (ours(home, "float32"), ours(home, "bfloat16"))],
        [lambda b=b: b(pairs) for b in (TheirLikelihoods(home, best=x) for x in (False, True))],
    )


def _parties(mine: Sequence[Callable[[], Any]], theirs: Sequence[Callable[[], Any]]) -> list[Party]:
    return [
        Party("transformers, default", theirs[0]),
        Party("transformers, best", theirs[1]),
        Party("Unmask, float32", mine[0], keeps_memory=True),
        Party("Unmask, bfloat16", mine[1], keeps_memory=True),
    ]


PARTIES: dict[str, Callable[[Path, int], list[Party]]] = {
    "fill": fill_parties,
    "embed": embed_parties,
    "blimp": lambda folder, n: likelihood_parties(folder, "blimp", n),
    "choices": lambda folder, n: likelihood_parties(folder, "choices", n),
}


def check_equal(name: str, expected: Any, found: Any) -> str:
    """Compare the answers of two parties in float32; say how far apart they are.

    Raises:
        AssertionError: they are no rounding apart.
    """
    if name == "fill":
        known = [(a.strip(), b.strip()) for a, b in zip(expected, found, strict=True) if a]
        same = sum(a == b for a, b in known)
        assert same >= 0.99 * len(known), f"{same} of {len(known)} blanks"  # logits may be equal
        return f"{same} of {len(known)} blanks filled alike"
    apart = float(np.abs(np.asarray(expected) - np.asarray(found)).max())
    assert apart < 1e-3, f"{name}: {apart} apart"
    return f"at most {apart:.1e} apart"


def compare(parties: Sequence[Party], rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Let the parties take turns; return seconds of the processor and of the wall of each turn."""
    seconds: dict[str, list[tuple[float, float]]] = {party.name: [] for party in parties}
    for round_index in range(rounds + 1):
        for party in parties:
            keep_freed_memory(party.keeps_memory)
            before = time.process_time(), time.perf_counter()
            party.answer()
            turn = time.process_time() - before[0], time.perf_counter() - before[1]
            if round_index:  # the first round warms up
                seconds[party.name].append(turn)
    return seconds


def show(parties: Sequence[Party], seconds: dict[str, list[tuple[float, float]]]) -> None:
    """Print the times, and how many times faster the library is than both settings of the peer."""
    print(f"{'':24} {'CPU s':>8} {'wall s':>8}   times the default   times the best (CPU; wall)")
    for party in parties:
        turns = seconds[party.name]
        cells: list[str] = []
        for peer in parties[:2]:
            ratios = [
                statistics.median(
                    a[k] / b[k] for a, b in zip(seconds[peer.name], turns, strict=True)
                )
                for k in (0, 1)
            ]
            cells.append(f"{ratios[0]:8.2f}; {ratios[1]:5.2f}")
        cpu, wall = (statistics.median(turn[k] for turn in turns) for k in (0, 1))
        print(f"{party.name:24} {cpu:8.2f} {wall:8.2f}   {cells[0]:17}   {cells[1]}", flush=True)


def main() -> None:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", default=[], choices=[*PARTIES, []])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--texts", type=int, default=256, help="of a turn; of tasks: items")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "unmask-benchmark-reading"
    )
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)))
    print(f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}, "
          f"bfloat16 in hardware: {distributed.has_native_bfloat16(torch.device('cpu'))}, "
          f"texts: {'SST-2, zero-shot tasks' if BLIMP.is_file() else 'novels'}")  # fmt: skip
    for name in options.what or list(PARTIES):
        parties = PARTIES[name](options.folder, options.texts)
        equal = check_equal(name, parties[0].answer(), parties[2].answer())
        print(f"\n{name}, {options.texts} texts or items; {equal}")
        show(parties, compare(parties, options.rounds))


if __name__ == "__main__":
    main()
