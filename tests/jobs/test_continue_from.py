"""Pretraining from the weights of a run: heads of the objective are continued, too."""

from pathlib import Path

import pytest
import torch
from toy_text import corpus

from unmask.inference.pipeline import Pipeline
from unmask.jobs.pretrain.pretrain import pretrain
from unmask.word_vectors.train.trainer import WordVectorMethod
from unmask.zoo.catalogue import MODELS, TEXT_MODELS

LANGUAGES = {"mbart-mini": "en_XX="}
TINY = ["architecture={d_model=32,d_ff=64,n_layers=2,n_heads=2}"]
SMALL = {
    "electra-mini": TINY, "coco-lm-mini": TINY, "bert-tiny": TINY, "spanbert-mini": TINY,
    "canine-s-mini": [
        "architecture={d_model=32,d_ff=64,n_layers=1,n_heads=2,local_attention_block=16}"
    ],
    "elmo-mini": [
        "architecture={d_model=32,embedding_size=16,d_ff=48,character_cnn={filters=[[1,8]]}}"
    ],
}  # fmt: skip
QUICK = ["electra-mini", "canine-s-mini", "elmo-mini"]
OBJECTIVES = {
    "bert-tiny": (
        "nsp", "sop", "static", "rtd", "corrective", "mlm+neighbor", "contrastive", "mlm+sbo",
        "quick-thoughts", "skip-thoughts", "clm",
    ),
    "canine-mini": ("characters", "subwords"),
}  # fmt: skip
slow = pytest.mark.slow
CARDS = [
    name for name, card in TEXT_MODELS.items()
    if name.endswith(("-mini", "-tiny")) and not isinstance(card.objective, WordVectorMethod)
]  # fmt: skip
CASES = [pytest.param(name, None, marks=() if name in QUICK else slow) for name in CARDS]
CASES += [
    pytest.param(name, one, marks=() if one == "mlm+sbo" else slow)
    for name, spec in OBJECTIVES.items()
    for one in spec
]


def train(
    name: str, folder: Path, out: str, *changes: str, objective: str | None = None,
    steps: int = 1, begin: str | None = None, **more: str | Path,
) -> Pipeline:  # fmt: skip
    length = min(MODELS[name].sequence_length, 96)
    common = [f"sequence_length={length}", f"batch_tokens={max(512, length)}", "dev_fraction=0.05"]
    return pretrain(
        name, data=f"{LANGUAGES.get(name, '')}{folder / 'text.txt'}", out=folder / out,
        steps=steps, init_from=None if begin is None else folder / begin, objective=objective,
        changes=[*common, *SMALL.get(name, []), *changes], threads=1, **more,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text(corpus())
    return tmp_path


@pytest.mark.sample(1)
@pytest.mark.parametrize(("name", "objective"), CASES)
def test_all_learned_weights_are_carried_over(
    name: str, objective: str | None, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = "vocab_size=300"
    first = train(name, folder, "first", small, "learning_rate=0.01", steps=2, objective=objective)
    had = {n: x.clone() for n, x in first.model.state_dict().items()}
    capsys.readouterr()
    second = train(name, folder, "on", "learning_rate=1e-9", begin="first", objective=objective)
    assert "newly initialized" not in capsys.readouterr().err
    assert second.model.head_specs == first.model.head_specs
    has = second.model.state_dict()
    assert has.keys() == had.keys()
    odd = [n for n, x in had.items() if not torch.allclose(x, has[n], atol=2e-5)]
    assert odd == []


@pytest.mark.thorough
def test_reinitialized_weights_are_reported_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = train("canine-s-mini", folder, "first", "vocab_size=300", quiet=True)
    train("canine-s-mini", folder, "other", "vocab_size=100", quiet=True)
    on = train("canine-s-mini", folder, "on", begin="first", tokenizer=folder / "other")
    assert on.model.head_specs["subwords"] != first.model.head_specs["subwords"]
    message = [line for line in capsys.readouterr().err.splitlines() if "newly initialized" in line]
    assert message == [
        f"newly initialized: 'subwords', whose vocabulary differs from that of {folder / 'first'}"
    ]
    train("bert-tiny", folder, "masked", quiet=True)
    train("bert-tiny", folder, "asked", begin="masked", objective="mlm+sbo")
    message = [line for line in capsys.readouterr().err.splitlines() if "newly initialized" in line]
    assert len(message) == 1
    assert "heads.boundary." in message[0]
    assert "heads.language." not in message[0]
