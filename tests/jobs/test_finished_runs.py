"""A finished run that is resumed is finished: the command ends well and changes no byte of it."""

from pathlib import Path

import pytest
from kills import tree
from toy_text import corpus

from unmask.cli.main import run
from unmask.word_vectors.train.trainer import WordVectorMethod
from unmask.zoo.catalogue import MODELS, TEXT_MODELS

ONE_STACK = "architecture={d_model=16,d_ff=32,n_layers=1,n_heads=2}"
STACK = "{d_model=16,d_ff=32,n_layers=1,n_heads=2,head_dim=8}"
SIZES: dict[str, str] = {
    "electra-mini": ONE_STACK,
    "coco-lm-mini": ONE_STACK,
    "t5-mini": f"architecture={{encoder={STACK},decoder={STACK}}}",
    "elmo-mini": "architecture={d_model=16,embedding_size=8,d_ff=24,"
    "character_cnn={filters=[[1,8],[3,8]]}}",
    "canine-s-mini": "architecture={d_model=16,d_ff=32,n_layers=1,n_heads=2,"
    "local_attention_block=16}",
    "word2vec-skipgram-mini": "architecture.d_model=8",
    "lsa-mini": "architecture.d_model=8",
    "svd-ppmi-mini": "architecture.d_model=8",
    "skip-thoughts-bi": "architecture={d_model=16,embedding_size=8}",
}
QUICK = ("electra-mini", "coco-lm-mini", "t5-mini", "elmo-mini", "canine-s-mini", "lsa-mini")
CARDS = [name for name in TEXT_MODELS if name.endswith(("-mini", "-tiny"))] + ["skip-thoughts-bi"]


def test_every_family_has_a_preset_here() -> None:
    own = {preset.family for preset in TEXT_MODELS.values()}
    assert own == {MODELS[name].family for name in CARDS}


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in CARDS]
)
@pytest.mark.filterwarnings("ignore")  # of two steps on a small text much may be said
def test_resuming_a_finished_run_changes_nothing(name: str, tmp_path: Path) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "run"
    text.write_text(corpus(40))
    language = "en_XX=" if name == "mbart-mini" else ""
    given = ["pretrain", name, "--data", f"{language}{text}", "--out", str(out), "--quiet"]
    given += [word for size in [SIZES.get(name)] if size for word in ("--set", size)]
    if not isinstance(MODELS[name].objective, WordVectorMethod):
        given += ["--steps", "2", "--set", f"batch_tokens={1024 if 'longformer' in name else 512}"]
    assert run(given) == 0
    finished = tree(out)
    assert run(["pretrain", "--resume", "--out", str(out), "--quiet"]) == 0
    again = tree(out)
    names = {*finished, *again} - {"report.html"}  # the minute at which it was written stands there
    assert not [n for n in names if finished.get(n, b"?") != again.get(n, b"?")]
