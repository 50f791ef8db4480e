"""A pooler belongs to the model: it is kept, and a head begins with it as in transformers."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from reference import albert, bert, longformer, modernbert, roberta, saved
from safetensors.torch import load_file

from unmask.checkpoints.huggingface.read import load_folder
from unmask.checkpoints.huggingface.write import write_folder
from unmask.finetuning.initial_model.load import load_initial_model
from unmask.heads.classification.pooler import Pooler
from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.tasks.task import Task, TaskColumns
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.spec import BERT as FRAME
from unmask.tokenizers.spec import TokenizerSpec
from unmask.tokenizers.vocabulary import WordPiece
from unmask.zoo.encoders.longformer import from_roberta


def canine(kind: str = "Model") -> Any:
    import transformers as hf

    config = hf.CanineConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        num_hash_buckets=64, max_position_embeddings=64, local_transformer_stride=16,
    )  # fmt: skip
    return getattr(hf, f"Canine{kind}")(config).eval()


PLAIN: dict[str, Callable[[], Any]] = {
    "bert": lambda: bert("BertModel"),
    "roberta": lambda: roberta("Model"),
    "xlm-roberta": lambda: roberta("Model", "XLMRoberta"),
    "camembert": lambda: roberta("Model", "Camembert"),
    "albert": lambda: albert("Model"),
    "longformer": lambda: longformer("Model"),
    "canine": canine,
}
"""Each family of theirs whose plain class has a pooler, which no head here reads."""
LABELED = {
    "bert": ("BertForSequenceClassification", "bert.pooler.dense"),
    "albert": ("AlbertForSequenceClassification", "albert.pooler"),
    "canine": ("CanineForSequenceClassification", "canine.pooler.dense"),
    "roberta": ("RobertaForSequenceClassification", None),
    "longformer": ("LongformerForSequenceClassification", None),
}


@pytest.mark.parametrize("family", PLAIN)
def test_headless_base_round_trips_bitwise(family: str, tmp_path: Path) -> None:
    reference = PLAIN[family]()
    loaded = load_folder(saved(reference, tmp_path / "theirs"))
    assert (loaded.missing, loaded.unexpected) == ((), ())
    assert loaded.preset.unused_pooler == loaded.model.unused_pooler == Pooler()
    write_folder(
        tmp_path / "ours", loaded.model, loaded.preset, loaded.tokenizer, loaded.label_names
    )
    theirs, ours = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "ours"))
    assert theirs.keys() == ours.keys()
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)
    assert sum(p.numel() for p in reference.parameters()) == loaded.model.parameter_count()
    again, output = type(reference).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not output["missing_keys"]
    assert not output["unexpected_keys"]
    text = torch.tensor([[5, 6, 7, 8] * 4])
    with torch.no_grad():
        pooled = [one(text).pooler_output for one in (reference, again.eval())]
    assert torch.allclose(*pooled, atol=1e-6)  # where weights lie in memory rounds otherwise


def test_pooler_is_kept_beside_other_heads(tmp_path: Path) -> None:
    """As in `bert-base-uncased`, whose class is that of masks alone."""
    theirs = saved(bert("BertForPreTraining"), tmp_path / "theirs")
    loaded = load_folder(theirs)
    masked = load_folder(theirs, {"language": loaded.model.head_specs["language"]})
    assert masked.preset.unused_pooler == Pooler()
    write_folder(tmp_path / "ours", masked.model, masked.preset, None)
    there = load_file(tmp_path / "ours" / "model.safetensors")
    for tail in ("weight", "bias"):
        pooler = loaded.model.own_weights()[f"heads.next_sentence.dense.{tail}"]
        assert torch.equal(there[f"bert.pooler.dense.{tail}"], pooler)


def test_head_that_reads_the_pooler_contains_it(tmp_path: Path) -> None:
    folder = saved(bert("BertModel"), tmp_path)
    reading = load_folder(folder, {"label": SequenceClassification()})
    assert reading.preset.unused_pooler is None
    assert reading.model.pooler is None
    beside = load_folder(
        folder, {"label": SequenceClassification(pooling="mean", dense_layer=False)}
    )
    assert beside.preset.unused_pooler == Pooler()


@pytest.mark.parametrize("family", LABELED)
def test_fine_tuning_starts_from_the_weights_of_transformers(family: str, tmp_path: Path) -> None:
    import transformers as hf

    kind, name = LABELED[family]
    folder = saved(PLAIN[family](), tmp_path / "base")
    words = train_tokenizer(
        TokenizerSpec(WordPiece(30, lowercase=True), FRAME), ["a b c d e f g h"] * 9
    )
    columns = TaskColumns(texts=("text",), label="label")
    task = Task(task_name="t", task_kind="classify", labels=("a", "b", "c"), columns=columns)
    theirs = getattr(hf, kind).from_pretrained(folder, num_labels=3).state_dict()
    loaded = load_folder(folder)
    for source in (loaded, load_folder(folder, {"label": loaded.preset.classification_head})):
        initial = load_initial_model(replace(source, tokenizer=words), task, [])
        assert initial.preset.heads["label"].pooling == loaded.preset.classification_head.pooling
        dense = {
            n: x for n, x in initial.pretrained_weights.items() if n.startswith("heads.label.dense")
        }
        assert len(dense) == (0 if name is None else 2)
        for ours, tensor in dense.items():
            assert torch.equal(tensor, theirs[f"{name}.{ours.rpartition('.')[2]}"])
        assert (initial.unexpected == ()) == (name is not None)
        assert initial.build_model(0).pooler is None


def test_modernbert_classifier_dense_layer_comes_from_its_mlm_head(tmp_path: Path) -> None:
    """Of an opened model, too: transformers calls them alike."""
    loaded = load_folder(saved(modernbert(), tmp_path))
    words = train_tokenizer(
        TokenizerSpec(WordPiece(30, lowercase=True), FRAME), ["a b c d e f g h"] * 9
    )
    task = Task(
        task_name="t",
        task_kind="classify",
        labels=("a", "b"),
        columns=TaskColumns(texts=("t",), label="l"),
    )
    initial = load_initial_model(replace(loaded, tokenizer=words), task, [])
    there = loaded.model.own_weights()
    for part in ("dense", "norm"):
        mine = initial.pretrained_weights[f"heads.label.{part}.weight"]
        assert torch.equal(mine, there[f"heads.language.{part}.weight"])


def test_pooler_is_kept_frozen_when_vocabulary_grows(tmp_path: Path) -> None:
    short = load_folder(saved(roberta("Model"), tmp_path))
    long = load_folder(saved(longformer("Model"), tmp_path / "long"))
    grown = from_roberta(short.model, long.preset.architecture)
    assert torch.equal(grown.pooler.dense.weight, short.model.pooler.dense.weight)
    assert not any(p.requires_grad for p in grown.pooler.parameters())
