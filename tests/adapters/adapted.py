"""Tiny models of four kinds whose every number matters, batches for them, and a short training."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unmask.adapters.bottleneck import AdaMix, HoulsbyAdapter, PfeifferAdapter
from unmask.adapters.ia3 import IA3
from unmask.adapters.lora import LoRA
from unmask.batch import Batch, Example
from unmask.batching.collate import pad_examples
from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.heads.model import Model
from unmask.heads.spec import HeadSpec
from unmask.model.architecture import PRE_NORM
from unmask.model.backbones.transformer import Architecture
from unmask.model.initialize import NormalInit
from unmask.model.positions.learned import LearnedPositions
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.training import loop
from unmask.training.config import Recipe
from unmask.training.run import TrainingRun
from unmask.training.schedules import Linear
from unmask.zoo.encoder_decoders import bart, t5, transformer

V, D, INNER, N = 30, 16, 24, 2
SPECIAL = SpecialTokenIds(vocab_size=V, pad=0, start=2, end=3)
BERT = Architecture(
    vocab_size=V, d_model=D, n_layers=N, n_heads=2, d_ff=INNER, n_segments=2,
    position=LearnedPositions(24), embedding_norm=True, initializer=NormalInit(0.3), dropout=0.1,
)  # fmt: skip
GPT = replace(
    BERT,
    n_segments=0,
    embedding_norm=False,
    norm_placement=PRE_NORM,
    final_norm=True,
    causal=True,
    n_kv_heads=1,
)
T5 = t5.encoder_decoder(
    replace(t5.ENCODER, vocab_size=V, d_model=D, n_layers=N, n_heads=2, d_ff=INNER, head_dim=8)
)
BART = transformer.encoder_decoder(
    replace(
        bart.ENCODER, vocab_size=V, d_model=D, n_layers=N, n_heads=2, d_ff=INNER,
        position=LearnedPositions(24, bart.OFFSET), initializer=NormalInit(0.3),
    )
)  # fmt: skip
MODELS = {"bert": BERT, "gpt2": GPT, "t5": T5, "bart": BART}
TWO_STACKS = ("t5", "bart")
FAMILIES = tuple(MODELS)
IDENTITIES = {
    "lora": LoRA(rank=3, alpha=6.0),
    "lora, everywhere": LoRA(rank=2, alpha=8.0, target_modules=("all",)),
    "houlsby": HoulsbyAdapter(bottleneck_size=5),
    "houlsby, without norms": HoulsbyAdapter(bottleneck_size=5, train_norms=False),
    "pfeiffer": PfeifferAdapter(bottleneck_size=5),
    "adamix": AdaMix(bottleneck_size=5, n_experts=3),
    "adamix, shared down": AdaMix(bottleneck_size=5, n_experts=3, shared_projection="down"),
    "adamix, nothing shared": AdaMix(bottleneck_size=5, n_experts=2, shared_projection=None),
    "ia3": IA3(),
}
"""Adapters that change nothing before they have learned."""


def model(family: str, seed: int = 0, n_labels: int = 3) -> Model:
    """Build a model in which norms and biases are not at rest either."""
    pool = "last" if family == "gpt2" else "first"
    heads: dict[str, HeadSpec] = {"label": SequenceClassification(n_labels=n_labels, pooling=pool)}
    if family != "bert":
        heads["language"] = LanguageModeling()
    made = Model(MODELS[family], heads).initialize(seed)
    perturb_weights(made, 0.05, seed)
    return made.eval()


@torch.no_grad()
def perturb_weights(module: torch.nn.Module, std: float = 0.3, seed: int = 1) -> None:
    """Move every weight, as if it had learned."""
    generator = torch.Generator().manual_seed(seed)
    for weight in module.parameters():
        weight += std * torch.randn(weight.shape, generator=generator)


def batch(family: str, lengths: tuple[int, ...] = (7, 4, 7, 5), seed: int = 0) -> Batch:
    """Lay random texts of these lengths into a padded batch, each with a label."""
    rng = np.random.default_rng(seed)
    examples = []
    for n in lengths:
        ids = rng.integers(5, V, n + 1)
        source = rng.integers(5, V, n) if family in TWO_STACKS else None
        targets = np.full(n, -100) if family == "bert" else ids[1:]
        label = int(rng.integers(3))
        rank = None if family == "bert" else np.arange(n)
        examples.append(
            Example(inputs=ids[:-1], targets=targets, rank=rank, source=source, label=label)
        )
    made = pad_examples(examples, SPECIAL)
    return replace(made, targets=None, target_positions=None) if family == "bert" else made


def hidden(of: Model, batch: Batch) -> Tensor:
    with torch.no_grad():
        return of.hidden_states(batch)


def real(batch: Batch, row: int) -> int:
    """Count the tokens of a row that are not padding."""
    return (
        batch.inputs.shape[1]
        if batch.last_token_positions is None
        else int(batch.last_token_positions[row]) + 1
    )


def state(of: torch.nn.Module) -> dict[str, Tensor]:
    return {name: x.clone() for name, x in of.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def start(of: Model, family: str, steps: int = 5, **changes: Any) -> TrainingRun:
    """Begin a run of `steps` steps of two micro-batches."""

    def batches(cursor: Any) -> Iterator[tuple[list[Batch], Any]]:
        step = cursor or 0
        while True:
            step += 1
            yield [batch(family, seed=step), batch(family, (6, 3), seed=step + 100)], step

    forward = changes.pop("forward", None)
    recipe = Recipe(
        model="tiny", steps=steps, learning_rate=0.05, schedule=Linear(warmup=0), **changes
    )
    return loop.start_run(recipe, of, batches, forward=forward)


def train(run: TrainingRun) -> list[Any]:
    reports = list(loop.train(run))
    loop.finish_run(run)
    return reports
