"""Pretraining speed of other families, beside the same network in transformers or plain PyTorch.

    python benchmarks/families.py [CASE ...] [--rounds 3] [--steps 4] [--folder FOLDER]

What `pretraining.py` does not measure: a larger masked model, DeBERTa, ModernBERT, Longformer at
4,096 tokens, XLNet's permutation, text infilling (BART), replaced token detection (ELECTRA), LSTMs
and ELMo. The peer is the class of transformers that the preset is written for, or, where it has
none, `nn.LSTM` and the layers of a paper, in a plain loop with fused AdamW: its rows are laid out
beforehand and read from memory, and it scores all positions, as those libraries do. It runs in
float32, as it comes, and under bfloat16 autocast. All take turns of a few steps, the first of which
is dropped. Compared are medians of seconds a step, divided into the real tokens (words, of ELMo) of
a step; the peak of the machine's matrix products is printed beside them. Quote ratios.

Text: ../shared/data/wikitext-2, else the bundled novels.
"""

import argparse
import itertools
import os
import platform
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pretraining import Ours, corpus
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.checkpoints.huggingface.write import write_folder
from unmask.heads.model import Model
from unmask.jobs.pretrain.apply_recipe import apply_recipe
from unmask.objectives.published import MASKED_LM
from unmask.shards.read import TokenShards
from unmask.shards.write import write_shards
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

TOKENS = 4096
"""Of a step."""
ADAMW = AdamW(betas=(0.9, 0.999), weight_decay=0.0)
Batch = dict[str, Tensor]
Party = tuple[nn.Module, Iterator[tuple[Batch, int]]]
"""A model, and batches of its inputs with their real tokens."""
Timed = list[tuple[float, int]]
"""Seconds and real tokens of steps."""


@dataclass(frozen=True)
class Case:
    """What is trained, and what stands beside it."""

    preset: str
    peer: str
    vocab_size: int = 16_000
    length: int = 128
    architecture: dict[str, Any] = field(default_factory=dict[str, Any])


CASES = {
    "masked, 6 x 512": Case(
        "bert-mini", "masked", 30_000,
        architecture={"n_layers": 6, "d_model": 512, "n_heads": 8, "d_ff": 2048},
    ),
    "deberta": Case("deberta-mini", "masked"),
    "modernbert": Case("modernbert-mini", "masked"),
    "longformer at 4,096": Case(
        "longformer-mini", "masked", length=4096,
        architecture={"attention_window": [256], "position": {"max_positions": 4096}},
    ),
    "permutation": Case("xlnet-mini", "permutation", 4_000),
    "infilling": Case("bart-mini", "sequences"),
    "replaced tokens": Case("electra-mini", "detection"),
    "lstm": Case("lstm-mini", "lstm"),
    "elmo": Case("elmo-mini", "elmo"),
}  # fmt: skip


def recipe_of(case: Case, folder: Path) -> tuple[Recipe, Published]:
    recipe = Recipe(
        model=case.preset,
        data=(str(corpus(folder)),),
        vocab_size=case.vocab_size,
        sequence_length=case.length,
        batch_tokens=TOKENS,
        steps=100_000,
        learning_rate=5e-4,
        optimizer=ADAMW,
        objective=MASKED_LM if case.peer == "masked" else None,
        architecture=case.architecture,
    )
    return recipe, apply_recipe(get_preset(case.preset), recipe)


def shards_of(case: Case, folder: Path) -> TokenShards:
    recipe, preset = recipe_of(case, folder)
    home = folder / f"{case.preset}-{case.vocab_size}"
    if (home / "shards.json").is_file():
        return TokenShards.open(home)
    spec = resolve_tokenizer_spec(recipe, preset)
    tokenizer = train_tokenizer(spec, (d.text for d in open_documents(recipe)))
    return write_shards(open_documents(recipe), tokenizer, home)


class OurFamily(Ours):
    """Unmask's own loop of any family, a turn at a time."""

    def __init__(self, case: Case, folder: Path) -> None:
        recipe, preset = recipe_of(case, folder)
        self.shards = shards_of(case, folder)
        preset = preset.with_vocabulary(self.shards.tokenizer.special_ids)
        self.preset, self.model = preset, preset.build().initialize(recipe.seed)
        data = build_training_data(self.shards, recipe, preset.objective, case.length)
        self.rows, self.objective = data.train_rows.row_spans, preset.objective
        self.reports = loop.train(loop.start_run(recipe, self.model, data.batches))


class Peer:
    """A model of another library in a plain loop, a turn at a time."""

    def __init__(
        self, model: nn.Module, batches: Iterator[tuple[Batch, int]], *, bfloat16: bool
    ) -> None:
        self.model, self.batches, self.bfloat16 = model.train(), batches, bfloat16
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=5e-4, weight_decay=0.0, fused=True
        )

    def turn(self, steps: int) -> Timed:
        """Take some steps; return seconds and real tokens of each but the first."""
        keep_freed_memory(False)
        return [self._step() for _ in range(steps + 1)][1:]

    def _step(self) -> tuple[float, int]:
        start = time.perf_counter()
        batch, n_tokens = next(self.batches)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bfloat16):
            loss = self.model(**batch)
        loss = loss if isinstance(loss, Tensor) else loss.loss
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return time.perf_counter() - start, n_tokens


def blocks_of(ours: OurFamily, length: int) -> Tensor:
    """Lay the text out in rows of one length, without a gap."""
    special = ours.shards.tokenizer.special_ids
    parts = [
        np.concatenate(
            (special.prefix, ours.shards.read_tokens(int(a), int(b)).ids, special.suffix)
        ).astype(np.int64)
        for a, b in ours.shards.document_spans
    ]
    ids = np.concatenate(parts)
    return torch.from_numpy(ids[: len(ids) // length * length].reshape(-1, length))


def rows_in_turn(rows: Tensor) -> Iterator[Tensor]:
    """Give some rows at a time, in random order, for ever."""
    n = max(1, TOKENS // rows.shape[1])
    while True:
        for some in torch.randperm(len(rows)).split(n):
            yield rows[some]


def their_tokenizer(ours: OurFamily, folder: Path) -> Any:
    import transformers as hf

    home = folder / f"{ours.preset.name}-tokenizer"
    ours.shards.tokenizer.save(home)
    return hf.AutoTokenizer.from_pretrained(home)


def same_network(ours: OurFamily, kind: str, folder: Path) -> nn.Module:
    """Open our network, as it is now, in transformers."""
    import transformers as hf

    model: Model = ours.model
    home = folder / f"{ours.preset.name}-network"
    write_folder(home, model, ours.preset, None)
    return getattr(hf, kind).from_pretrained(home).float()


def masked(ours: OurFamily, case: Case, folder: Path) -> Party:
    import transformers as hf

    collate = hf.DataCollatorForLanguageModeling(their_tokenizer(ours, folder))

    def batches() -> Iterator[tuple[Batch, int]]:
        for rows in rows_in_turn(blocks_of(ours, case.length)):
            yield dict(collate([{"input_ids": row} for row in rows])), rows.numel()

    return same_network(ours, "AutoModelForMaskedLM", folder), batches()


def permutation(ours: OurFamily, case: Case, folder: Path) -> Party:
    import transformers as hf

    tokenizer = their_tokenizer(ours, folder)
    collate = hf.DataCollatorForPermutationLanguageModeling(tokenizer, plm_probability=1 / 6)

    def batches() -> Iterator[tuple[Batch, int]]:
        for rows in rows_in_turn(blocks_of(ours, case.length)):
            yield dict(collate([{"input_ids": row.tolist()} for row in rows])), rows.numel()

    return same_network(ours, "XLNetLMHeadModel", folder), batches()


def sequences(ours: OurFamily, case: Case, folder: Path) -> Party:
    """Sequences to be restored, which our objective has corrupted beforehand."""
    special = ours.shards.tokenizer.special_ids
    examples = list[tuple[Tensor, Tensor]]()
    for i, (a, b) in enumerate(ours.rows[:2000]):
        tokens = ours.shards.read_tokens(int(a), int(b))
        one = ours.objective(tokens, special, np.random.default_rng(i))
        examples.append((torch.from_numpy(one.source).long(), torch.from_numpy(one.targets).long()))

    def batches() -> Iterator[tuple[Batch, int]]:
        pad = nn.utils.rnn.pad_sequence
        mean = statistics.mean(len(x) for x, _ in examples)
        while True:
            for some in torch.randperm(len(examples)).split(max(1, round(TOKENS / mean))):
                x, y = zip(*(examples[i] for i in some.tolist()), strict=True)
                inputs = pad(x, batch_first=True, padding_value=special.pad or 0)
                shown = pad([torch.ones_like(one) for one in x], batch_first=True)
                batch = {
                    "input_ids": inputs,
                    "attention_mask": shown,
                    "labels": pad(y, batch_first=True, padding_value=-100),
                }
                yield batch, int(shown.sum()) + sum(map(len, y))

    return same_network(ours, "AutoModelForSeq2SeqLM", folder), batches()


class Detection(nn.Module):
    """ELECTRA's generator and discriminator, which share their tables (Clark et al. 2020)."""

    def __init__(self, ours: OurFamily, folder: Path) -> None:
        super().__init__()
        import transformers as hf

        self.discriminator: Any = same_network(ours, "ElectraForPreTraining", folder)
        config = self.discriminator.config.to_dict()
        head: Any = ours.preset.heads["generator"]
        for name in ("hidden_size", "intermediate_size", "num_attention_heads"):
            config[name] = max(1, round(config[name] * head.width_factor))
        self.generator: Any = hf.ElectraForMaskedLM(hf.ElectraConfig(**config))
        self.generator.electra.embeddings = self.discriminator.electra.embeddings
        self.generator.tie_weights()

    def forward(self, input_ids: Tensor, labels: Tensor, original: Tensor) -> Tensor:
        """Compute both losses; the second counts 50 times."""
        output = self.generator(input_ids=input_ids, labels=labels)
        with torch.no_grad():
            noise = -torch.empty_like(output.logits, dtype=torch.float32).exponential_().log()
            drawn = (output.logits.float() + noise).argmax(-1)
            corrupted = torch.where(labels == -100, original, drawn)
        found = self.discriminator(input_ids=corrupted, labels=(corrupted != original).long())
        return output.loss + 50 * found.loss


def detection(ours: OurFamily, case: Case, folder: Path) -> Party:
    import transformers as hf

    collate = hf.DataCollatorForLanguageModeling(
        their_tokenizer(ours, folder), mask_replace_prob=0.85, random_replace_prob=0.0
    )

    def batches() -> Iterator[tuple[Batch, int]]:
        for rows in rows_in_turn(blocks_of(ours, case.length)):
            batch = collate([{"input_ids": row} for row in rows])
            wanted = {name: batch[name] for name in ("input_ids", "labels")}
            yield {**wanted, "original": rows}, rows.numel()

    return Detection(ours, folder), batches()


class PlainLSTM(nn.Module):
    """A language model of `nn.LSTM` with tied tables (Merity et al. 2018, without its dropout)."""

    def __init__(self, ours: OurFamily) -> None:
        super().__init__()
        a: Any = ours.preset.architecture
        self.table = nn.Embedding(a.vocab_size, a.d_model)
        widths = [a.d_model, *[a.d_ff] * (a.n_layers - 1), a.d_model]
        pairs = itertools.pairwise(widths)
        self.layers = nn.ModuleList(nn.LSTM(n, m, batch_first=True) for n, m in pairs)
        self.bias = nn.Parameter(torch.zeros(a.vocab_size))

    def forward(self, ids: Tensor) -> Tensor:
        """Compute the mean loss of each next token."""
        x = self.table(ids)
        for layer in self.layers:
            x, _ = layer(x)
        scores = F.linear(x[:, :-1], self.table.weight, self.bias)
        return F.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten())


def lstm(ours: OurFamily, case: Case, folder: Path) -> Party:
    rows = rows_in_turn(blocks_of(ours, case.length))
    return PlainLSTM(ours), (({"ids": some}, some.numel()) for some in rows)


class PlainElmo(nn.Module):
    """ELMo's network in PyTorch's own layers (Peters et al. 2018, section 3), adaptive softmax."""

    def __init__(self, ours: OurFamily, n_words: int) -> None:
        super().__init__()
        a: Any = ours.preset.architecture
        cnn, width = a.character_cnn, a.d_embed
        self.characters = nn.Embedding(262, cnn.character_embedding_size)
        self.filters = nn.ModuleList(
            nn.Conv1d(cnn.character_embedding_size, n, size) for size, n in cnn.filters
        )
        n_filters = sum(n for _, n in cnn.filters)
        self.highway = nn.Linear(n_filters, 2 * n_filters)
        self.projection = nn.Linear(n_filters, width)
        self.lstms = nn.ModuleList(
            nn.LSTM(width, a.d_ff, batch_first=True, proj_size=width) for _ in range(2 * a.n_layers)
        )
        head: Any = ours.preset.heads["both_sides"]
        self.loss = nn.AdaptiveLogSoftmaxWithLoss(
            width,
            n_words,
            [n for n in head.cutoffs if n < n_words] or [n_words // 2],
            div_value=1.0,
        )

    def forward(self, characters: Tensor, words: Tensor) -> Tensor:
        """Compute the mean loss of each next and each previous word; characters are [b t c]."""
        x = self.characters(characters.flatten(0, 1)).transpose(1, 2)
        x = torch.cat([conv(x).amax(-1).relu() for conv in self.filters], -1)
        new, gate = self.highway(x).chunk(2, -1)
        x = self.projection(torch.lerp(x, new.relu(), gate.sigmoid())).view(*words.shape, -1)
        return (self._direction(x, words, 0) + self._direction(x.flip(1), words.flip(1), 1)) / 2

    def _direction(self, x: Tensor, words: Tensor, which: int) -> Tensor:
        for i, layer in enumerate(self.lstms[which::2]):
            y, _ = layer(x)
            x = x + y if i else y
        return self.loss(x[:, :-1].flatten(0, 1), words[:, 1:].flatten()).loss


def elmo(ours: OurFamily, case: Case, folder: Path) -> Party:
    """Words as characters, at most 50, in rows of as many bytes as ours."""
    texts = " ".join(corpus(folder).read_text(encoding="utf-8").split()).split(" ")
    texts = texts[: 40 * TOKENS]
    known = {word: i for i, word in enumerate(dict.fromkeys(texts))}
    head: Any = ours.preset.heads["both_sides"]
    n_words = min(len(known) + 1, head.output_vocab_size)
    longest, n_bytes = 50, sum(len(word.encode()) + 1 for word in texts)
    table = np.full((len(texts), longest + 2), 261)
    for i, word in enumerate(texts):
        letters = [258, *word.encode()[:longest], 259]
        table[i, : len(letters)] = letters
    length = max(2, round(case.length * len(texts) / n_bytes))
    n = len(texts) // length * length
    characters = torch.from_numpy(table[:n].reshape(-1, length, longest + 2))
    ids = torch.tensor([min(known[word], n_words - 1) for word in texts[:n]]).view(-1, length)
    n_rows = max(1, TOKENS // case.length)

    def batches() -> Iterator[tuple[Batch, int]]:
        while True:
            for some in torch.randperm(len(ids)).split(n_rows):
                used = int((characters[some] != 261).sum(-1).amax())
                batch = {"characters": characters[some][..., :used], "words": ids[some]}
                yield batch, round(ids[some].numel() * n_bytes / len(texts))

    return PlainElmo(ours, n_words), batches()


PEERS: dict[str, Callable[[OurFamily, Case, Path], Party]] = {
    "masked": masked,
    "permutation": permutation,
    "sequences": sequences,
    "detection": detection,
    "lstm": lstm,
    "elmo": elmo,
}


def compare(case: Case, folder: Path, rounds: int, steps: int) -> dict[str, float]:
    """Let the parties take turns; return real tokens a second of each."""
    ours = OurFamily(case, folder)
    parties: dict[str, OurFamily | Peer] = {
        name: Peer(*PEERS[case.peer](ours, case, folder), bfloat16=bfloat16)
        for name, bfloat16 in (("peer", False), ("peer, bfloat16", True))
    }
    parties["Unmask"] = ours
    seen: dict[str, Timed] = {name: [] for name in parties}
    for round_index in range(rounds + 1):
        for name, party in list(parties.items()):
            try:
                found = party.turn(steps)
            except RuntimeError as error:  # a network that does not run under autocast
                print(f"{name}: {error}", file=sys.stderr)
                del parties[name]
                continue
            seen[name] += found if round_index else []  # the first round warms up
    return {
        name: sum(n for _, n in seen[name])
        / len(seen[name])
        / statistics.median(t for t, _ in seen[name])
        for name in parties
    }


def main() -> int:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when transformers is imported, in a peer
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cases", nargs="*", default=[], choices=[*CASES, []])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "unmask-benchmark"
    )
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    distributed.set_threads(None)
    cpu = torch.device("cpu")
    peaks = [distributed.matmul_peak_flops(d, cpu) / 1e9 for d in (torch.float32, torch.bfloat16)]
    print(
        f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}; "
        f"products: {peaks[0]:.0f} GFLOP/s in float32, {peaks[1]:.0f} in bfloat16"
    )
    print("| case | Unmask, tokens/s | peer | Unmask is | peer, bfloat16 | Unmask is |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    n_failed = 0
    for name in given.cases or CASES:
        try:
            speeds = compare(CASES[name], given.folder, given.rounds, given.steps)
        except Exception as error:  # the others are measured nonetheless
            n_failed += 1
            print(f"| {name} | does not run: {' '.join(str(error).split())} |", flush=True)
            continue
        cells = [f"{speeds['Unmask']:,.0f}"]
        for party in ("peer", "peer, bfloat16"):
            ratio = f"**{speeds['Unmask'] / speeds[party]:.2f}x**" if party in speeds else ""
            cells += [f"{speeds[party]:,.0f}" if party in speeds else "does not run", ratio]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)

    return int(n_failed > 0)


if __name__ == "__main__":
    sys.exit(main())
