"""A tiny model with dropout, tied tables and two terms, and toy data: milliseconds a step."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import IGNORE_INDEX, Batch
from unmask.heads.prediction import Prediction, Term
from unmask.training import loop
from unmask.training.config import Recipe
from unmask.training.resume import restore_run
from unmask.training.run import BatchStream, TrainingRun

V, D, T = 23, 16, 9


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(V, D)
        self.up = nn.Linear(D, 2 * D)
        self.down = nn.Linear(2 * D, D, bias=False)
        self.norm = nn.LayerNorm(D)
        self.unused = nn.Linear(3, 3)
        self.dropout = 0.2

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        return self.norm(
            x + self.down(F.dropout(torch.relu(self.up(x)), self.dropout, self.training))
        )


class Masked(nn.Module):
    def __init__(self, table: nn.Embedding) -> None:
        super().__init__()
        self.table = table  # tied: one parameter under two names
        self.bias = nn.Parameter(torch.zeros(V))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.table.weight, self.bias)


class Toy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = Body()
        self.heads = nn.ModuleDict(
            {"masked": Masked(self.backbone.tokens), "label": nn.Linear(D, 2)}
        )
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def count_targets(self, batch: Batch) -> dict[str, int]:
        assert batch.targets is not None
        counts = {"masked": int((batch.targets != IGNORE_INDEX).sum())}
        return counts if batch.labels is None else counts | {"label": len(batch.labels)}

    def forward(self, batch: Batch) -> Prediction:
        assert batch.targets is not None
        if self.training:
            self.seen += 1
        hidden = self.backbone(batch.inputs)
        is_target = batch.targets != IGNORE_INDEX
        scores = self.heads["masked"](hidden[is_target]).float()
        answers = batch.targets[is_target]
        total = F.cross_entropy(scores, answers, reduction="sum")
        right = (scores.argmax(-1) == answers).sum()
        terms = {"masked": Term(total, len(answers), right)}
        if batch.labels is not None:
            output = self.heads["label"](hidden.mean(1)).float()
            total = F.cross_entropy(output, batch.labels, reduction="sum")
            terms["label"] = Term(
                total, len(batch.labels), (output.argmax(-1) == batch.labels).sum()
            )
        return Prediction(terms=terms)


def model(seed: int = 0) -> Toy:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Toy()


def rows(step: int, n: int = 8) -> Batch:
    """All the texts of one step."""
    rng = np.random.default_rng([7, step])
    ids = rng.integers(0, V, (n, T))
    hidden = rng.random((n, T)) < 0.3
    return Batch(
        inputs=torch.from_numpy(np.where(hidden, 1, ids)),
        targets=torch.from_numpy(np.where(hidden, ids, IGNORE_INDEX)),
        labels=torch.from_numpy(rng.integers(0, 2, n)),
    )


def part(batch: Batch, start: int, end: int | None, step: int | None = None) -> Batch:
    at = slice(start, end, step)
    assert batch.targets is not None
    return Batch(
        inputs=batch.inputs[at],
        targets=batch.targets[at],
        labels=None if batch.labels is None else batch.labels[at],
    )


def batches(cut: tuple[int, ...] = (0, 3, 8), rank: int = 0, size: int = 1) -> BatchStream:
    """Steps of eight texts, cut at `cut`; every `size`-th text is for this process."""

    def since(cursor: Any) -> Iterator[tuple[list[Batch], Any]]:
        step = 0 if cursor is None else cursor["row"] // 8
        while True:
            # Now and then a step has one text: of two processes, one then has nothing to do.
            whole = part(rows(step, 1 if step % 5 == 4 else 8), rank, None, size)
            edges = sorted({min(edge, len(whole.inputs)) for edge in cut})
            step += 1
            yield (
                [part(whole, a, b) for a, b in pairwise(edges)],
                {"row": step * 8},
            )

    return since


def run(recipe: Recipe | None = None, **changes: Any) -> TrainingRun:
    return loop.start_run(recipe or Recipe(model="toy", **changes), model(), batches())


def resume_run(folder: Path, **changes: Any) -> TrainingRun:
    """What a new process does."""
    from unmask.checkpoints import folder as checkpoints

    new = run(**changes)
    with torch.no_grad():
        for p in new.model.parameters():
            p.fill_(3.0)  # whatever is not restored would show
    checkpoint, _ = checkpoints.newest_checkpoint(folder)
    checkpoints.truncate_logs(folder, checkpoint)
    assert checkpoint is not None
    restore_run(new, checkpoint)
    return new
