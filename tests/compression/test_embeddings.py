"""The table of tokens in two factors: exact at full rank, the best approximation below."""

from pathlib import Path
from typing import Any

import pytest
import torch
import toy_models as toy
from small_models import make
from torch import Tensor

import unmask
from unmask.batch import Batch, Visibility
from unmask.checkpoints.huggingface.read import LoadedModel, load_folder
from unmask.cli.main import run as run_command
from unmask.compression.structure.embeddings import EmbeddingLowRank
from unmask.compression.structure.layers import keep_layers
from unmask.compression.structure.whole import to_whole
from unmask.heads.model import Model
from unmask.jobs.compress import compress
from unmask.jobs.finetune import finetune
from unmask.model.layers.per_layer import FactorizedEmbedding

KINDS = {"bert": "BertForMaskedLM", "gpt2": "GPT2LMHeadModel"}


def opened(family: str, folder: Path) -> LoadedModel:
    return make(family, folder, KINDS[family])[1]


@torch.no_grad()
def logits(model: Model) -> Tensor:
    ids = torch.randint(5, 90, (3, 9), generator=torch.Generator().manual_seed(1))
    model.eval()
    batch = Batch(inputs=ids, targets=ids, visibility=Visibility())
    return model.logits_at(batch, torch.ones_like(ids, dtype=torch.bool))


@pytest.mark.parametrize("family", KINDS)
def test_full_rank_is_exact(family: str, tmp_path: Path) -> None:
    whole = opened(family, tmp_path / "model")
    table = whole.model.backbone.embedding_table
    small = EmbeddingLowRank(rank=min(table.weight.shape)).restructure(whole)
    assert isinstance(small.model.backbone.embedding_table, FactorizedEmbedding)
    # Factors are rounded to float32.
    torch.testing.assert_close(logits(small.model), logits(whole.model), rtol=1e-4, atol=1e-4)


def test_error_equals_that_of_dropped_singular_values(tmp_path: Path) -> None:
    whole = opened("bert", tmp_path / "model")
    table = whole.model.backbone.embedding_table.weight.detach().double()
    small = EmbeddingLowRank(rank=3).restructure(whole).model.backbone.embedding_table
    assert isinstance(small, FactorizedEmbedding)
    assert [tuple(p.shape) for p in small.parameters()] == [(len(table), 3), (table.shape[1], 3)]
    error = (small.weight.detach().double() - table).square().sum()
    expected = torch.linalg.svdvals(table)[3:].square().sum()
    torch.testing.assert_close(error, expected, rtol=1e-5, atol=0)
    ids = torch.tensor([[1, 5, 7]])
    torch.testing.assert_close(small(ids), small.weight[ids])


@pytest.mark.sample(1)
@pytest.mark.parametrize("family", KINDS)
def test_saved_opened_and_converted_models_compute_the_same(family: str, tmp_path: Path) -> None:
    opened(family, tmp_path / "model")
    result = compress(tmp_path / "model", method=["embeddings:rank=4"], out=tmp_path / "small")
    assert result.bytes_after < result.bytes_before
    small = load_folder(tmp_path / "small")
    assert isinstance(small.model.backbone.embedding_table, FactorizedEmbedding)
    whole = to_whole(small)
    assert not isinstance(whole.model.backbone.embedding_table, FactorizedEmbedding)
    torch.testing.assert_close(logits(whole.model), logits(small.model), rtol=1e-4, atol=1e-5)
    unmask.load(tmp_path / "small").save(tmp_path / "exported")
    exported = load_folder(tmp_path / "exported")
    assert not exported.preset.config_mapping.model_type.startswith("unmask-")
    torch.testing.assert_close(logits(exported.model), logits(small.model), rtol=1e-4, atol=1e-5)
    fewer = keep_layers(small, [0])
    assert isinstance(fewer.model.backbone.embedding_table, FactorizedEmbedding)
    codes = compress(tmp_path / "small", method=["int8"], out=tmp_path / "codes")
    assert codes.bytes_after < result.bytes_after


def test_an_untied_output_layer_stays_whole(tmp_path: Path) -> None:
    make("gpt2", tmp_path / "model", KINDS["gpt2"], tie_word_embeddings=False)
    compress(tmp_path / "model", method=["embeddings:rank=4"], out=tmp_path / "small")
    whole, small = (load_folder(tmp_path / name).model for name in ("model", "small"))
    assert not small.head_specs["language"].ties_output_embeddings
    name = "heads.language.out.weight"
    assert torch.equal(small.own_weights()[name], whole.own_weights()[name])


@pytest.mark.thorough
def test_factors_are_trained(tmp_path: Path) -> None:
    toy.pretrained("bert", tmp_path / "base")
    compress(tmp_path / "base", method=["embeddings:rank=8"], out=tmp_path / "small")
    train = toy.write(tmp_path / "train.tsv", toy.texts(32, 1))
    tuned = finetune(
        tmp_path / "small", task="classify", train=train, dev=train, epochs=1.0, terminal=None,
        out=tmp_path / "run", device="cpu", learning_rate=1e-2,
    )  # fmt: skip
    before, after = (
        load_folder(tmp_path / name).model.backbone.embedding_table for name in ("small", "run")
    )
    assert isinstance(after, FactorizedEmbedding)
    for a, b in zip(before.parameters(), after.parameters(), strict=True):
        assert not torch.equal(a, b)
    some = [text for text, _ in toy.texts(3, 2)]
    assert tuned.predict(some) == unmask.load(tmp_path / "run").predict(some)


@pytest.mark.parametrize(
    ("family", "element", "message"),
    [
        ("bert", "embeddings", "embeddings lacks rank"),
        ("bert", "embeddings:rank=0", "rank must be at least 1, got 0"),
        ("bert", "embeddings:rank=1000", "embeddings: rank must be at most"),
        ("t5", "embeddings:rank=4", "embeddings: only one stack of Transformer blocks"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    family: str, element: str, message: str, tmp_path: Path, capsys: Any
) -> None:
    make(family, tmp_path / "model")
    folder, out = str(tmp_path / "model"), tmp_path / "small"
    assert run_command(["compress", folder, "--method", element, "--out", str(out)]) == 2
    (line,) = [x for x in capsys.readouterr().err.splitlines() if "shards" not in x and x.strip()]
    assert message in line
    assert not out.exists()


def test_a_table_is_factorized_once(tmp_path: Path) -> None:
    method = EmbeddingLowRank(rank=4)
    small = method.restructure(opened("bert", tmp_path / "model"))
    with pytest.raises(ValueError, match="with FactorizedEmbedding"):
        method.restructure(small)
