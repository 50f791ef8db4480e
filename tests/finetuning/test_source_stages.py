"""Translation with a new encoder of sources before a pretrained encoder-decoder."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import toy_models as toy
from test_resume import Killed

import unmask
from unmask.checkpoints.huggingface.read import load_folder
from unmask.finetuning import train_run
from unmask.finetuning.methods.method import SourceEncoder, apply_method, parse_method
from unmask.finetuning.results.finetuned_model import FinetunedModel
from unmask.generation.prompts import encode_prompts
from unmask.heads.model import Model
from unmask.jobs.finetune import finetune

SAID = {"Katze": "a cat", "Hund": "the dog", "Haus": "a house"}
NEW = "backbone.encoder.source."
BORDER = "source_encoder:n_layers=1,vocab_size=300,first_stage_fraction=0.5"


def pairs(path: Path, n: int, seed: int, more: str = "") -> Path:
    rng = np.random.default_rng(seed)
    rows = [
        (f"{rng.choice(['eins', 'zwei', 'drei'])} {word}{more}", SAID[word])
        for word in rng.choice(list(SAID), n).tolist()
    ]
    return toy.write(path, rows, "source\ttarget")


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    location = tmp_path_factory.mktemp("files")
    return {"train": pairs(location / "train.tsv", 96, 1), "dev": pairs(location / "dev.tsv", 6, 2)}


@pytest.fixture(scope="module")
def bart(tmp_path_factory) -> Path:
    return toy.pretrained("bart", tmp_path_factory.mktemp("bart") / "base")


@pytest.fixture(scope="module")
def translator(bart: Path, files, tmp_path_factory) -> Path:
    """A run that was never killed."""
    out = tmp_path_factory.mktemp("translator") / "out"
    quick(bart, files, out=out)
    return out


def quick(base: Path, files: dict[str, Path], **more) -> FinetunedModel:
    return finetune(
        base,
        **{
            "task": "generate", "tune": BORDER, "epochs": 2.0, "batch_size": 16,
        "learning_rate": 3e-3,
            "evaluate_every": 2, "task_options": {"max_target_length": 12}, "terminal": None,
            "precision": "float32", "device": "cpu", **files, **more,
        },
    )  # fmt: skip


def moved(base: Path, tuned: FinetunedModel) -> tuple[set[str], set[str]]:
    """Name the weights of the base that are what they were, and those that are not."""
    before, after = load_folder(base).model.own_weights(), tuned.loaded_model.model.own_weights()
    assert {name for name in after if not name.startswith(NEW)} == set(before)
    same = {name for name, x in before.items() if torch.equal(x, after[name])}
    return same, set(before) - same


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["bart", "t5"])
def test_first_stage_tunes_parts_of_the_paper_and_second_all(
    family: str, files, tmp_path: Path
) -> None:
    base = toy.pretrained(family, tmp_path / "base")
    last = {"average": 0, "evaluate_every": 12}
    first = quick(
        base, files, tune="source_encoder:n_layers=1,vocab_size=300,first_stage_fraction=1", **last
    )
    _, changed = moved(base, first)
    first_layer = {f"backbone.encoder.layers.0.attention.{one}.weight" for one in "qkv"}
    assert changed == first_layer | {
        f"backbone.{stack}.position.table.weight" for stack in ("encoder", "decoder")
    }
    drawn = quick(
        base,
        files,
        tune="source_encoder:n_layers=1,vocab_size=300,first_stage_fraction=1",
        learning_rate=1e-30,
        **last,
    )
    at_first = drawn.loaded_model.model.own_weights()
    for name, x in first.loaded_model.model.own_weights().items():
        assert not name.startswith(NEW) or not torch.equal(x, at_first[name]), name
    same, _ = moved(base, quick(base, files, **last))
    assert same == set()


@pytest.mark.thorough
def test_stage_alone_determines_trainable_parameters(translator: Path) -> None:
    model, method = unmask.load(translator).model, SourceEncoder(first_stage_fraction=0.8)
    apply_method(method, model, 0)

    def learning(step: int, of: int) -> set[str]:
        method.unfreeze(model, step, of)
        return {name for name, p in model.named_parameters() if p.requires_grad}

    everything = {name for name, _ in model.named_parameters()}
    assert learning(9, 10) == learning(10, 10) == everything
    few = learning(8, 10)
    assert few == learning(1, 10) < everything
    assert {n for n in everything if n.startswith(NEW)} < few
    assert learning(1, 1) == few


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["bart", "mbart"])
def test_folder_has_both_vocabularies_and_reads_sources(family: str, files, tmp_path: Path) -> None:
    base, out = toy.pretrained(family, tmp_path / "base"), tmp_path / "out"
    more = {"source_language": "de_DE", "target_language": "en_XX"} if family == "mbart" else {}
    tuned = quick(base, files, out=out, epochs=0.3, task_options={"max_target_length": 12, **more})
    assert any("the encoder of sources (" in note for note in tuned.notes)
    facts = json.loads((out / "config.json").read_text())
    assert facts["model_type"] == f"unmask-{family}"
    assert facts["architecture"]["source_encoder"]["n_layers"] == 1
    loaded = unmask.load(out)
    for name, x in tuned.loaded_model.model.own_weights().items():
        assert torch.equal(x, loaded.model.own_weights()[name]), name
    texts = ["eins Katze", "zwei Hund zwei Hund"]
    assert loaded.predict(texts) == tuned.predict(texts)
    assert loaded.predict(texts[:1]) == loaded.predict(texts)[:1], "padding is not read"
    tokenizer, reader = tuned.loaded_model.tokenizer, loaded.tokenizer.input_tokenizer
    assert tokenizer is not None
    assert reader.pieces(range(reader.vocab_size)) == tokenizer.input_tokenizer.pieces(
        range(reader.vocab_size)
    )
    assert len(reader.encode("Katze").ids) < len(loaded.tokenizer.encode("Katze").ids)
    assert (
        loaded.tokenizer.encode("the dog").ids.tolist() == tokenizer.encode("the dog").ids.tolist()
    )
    if family == "mbart":
        text = tmp_path / "text.txt"
        text.write_text("the dog")
        with pytest.raises(ValueError, match="the objective of pretraining"):
            loaded.evaluate(f"en_XX={text}")
        loaded = loaded.with_languages("de_DE", "en_XX")
    read = encode_prompts(loaded.model, loaded.tokenizer, ["eins Katze"]).input_ids
    ids = reader.encode("eins Katze").ids.tolist()
    assert read == [[*reader.special_ids.prefix, *ids, *reader.special_ids.suffix]]
    if family == "bart":
        again = unmask.load(loaded.save(tmp_path / "again", format="unmask"))
        assert again.generate("eins Hund") == loaded.generate("eins Hund")


@pytest.mark.thorough
@pytest.mark.parametrize("at", [1, 3, 4])
def test_killed_run_resumes_across_the_stage_boundary(
    at: int, bart: Path, translator: Path, files, tmp_path: Path, monkeypatch
) -> None:
    """Twelve steps, of which six are the first step's; a checkpoint is saved each two."""
    whole, killed = unmask.load(translator).model.own_weights(), tmp_path / "killed"
    save, n = train_run._save_checkpoint, 0

    def save_and_die(*args, **options) -> None:
        nonlocal n
        save(*args, **options)
        n += 1
        if n == at:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(train_run, "_save_checkpoint", save_and_die)
        with pytest.raises(Killed):
            quick(bart, files, out=killed)
    (newest,) = sorted((killed / "checkpoints").iterdir())[-1:]
    assert newest.name == f"step-{2 * at:08}"
    again = quick(bart, files, out=killed, resume=True).loaded_model.model.own_weights()
    for name, x in whole.items():
        assert torch.equal(x, again[name]), name
    for name in ("log.jsonl", "results.json", "source/tokenizer.json", "model.safetensors"):
        assert (killed / name).read_bytes() == (translator / name).read_bytes(), name


@pytest.mark.thorough
def test_source_vocabulary_is_learned_from_training_sources_only(
    bart: Path, files, tmp_path: Path
) -> None:
    dev = pairs(tmp_path / "other.tsv", 6, 3, more=" Zebra Zebra Zebra Zebra")
    tokenizer = quick(bart, files | {"dev": dev}, epochs=0.1).loaded_model.tokenizer
    assert tokenizer is not None
    pieces = set(tokenizer.input_tokenizer.pieces(range(tokenizer.input_tokenizer.vocab_size)))
    assert {" Katze", " Haus"} <= pieces
    assert not pieces & {" Zebra", "Zebra", "Ze", " house", " dog"}


@pytest.mark.parametrize(
    ("family", "more", "message"),
    [
        (
            "gpt2",
            {},
            "source_encoder puts a new encoder before that of an encoder-decoder, and base is",
        ),
        (
            "bart",
            {"task": "classify"},
            "tune = source_encoder is for task = generate, got 'classify'",
        ),
        ("bart", {"tune": "source_encoder:n_layers=0"}, "n_layers must be at least 1"),
        (
            "bart",
            {"tune": "source_encoder:first_stage_fraction=2"},
            "first_stage_fraction must be a share of the steps",
        ),
        ("bart", {"tune": "source_encoder:vocab_size=5"}, "a vocabulary of 5 is too small"),
    ],
)
def test_unsuitable_setups_are_refused(
    family: str, more, message: str, files, tmp_path: Path
) -> None:
    base = toy.pretrained(family, tmp_path / "base")
    with pytest.raises(ValueError, match=message):
        quick(base, files, **more)


def test_preset_name_without_weights_is_refused(files) -> None:
    with pytest.raises(ValueError, match="bart-mini has no weights"):
        quick(Path("bart-mini"), files)


def test_model_without_source_encoder_is_refused() -> None:
    preset = toy.card("bart")
    model = Model(preset.architecture, preset.heads)
    with pytest.raises(ValueError, match="this model has none"):
        apply_method(parse_method("source_encoder"), model, 0)


@pytest.mark.thorough
def test_translator_is_tuned_further_but_not_with_second_source_encoder(
    translator: Path, files, tmp_path: Path
) -> None:
    out = translator
    with pytest.raises(ValueError, match="out has an encoder of sources already"):
        quick(out, files)
    with pytest.raises(ValueError, match="does not support a model with a source encoder"):
        quick(out, files, tune="prompt")
    for tune in ("full", "lora:rank=2"):
        more = quick(out, files, tune=tune, epochs=0.1, out=tmp_path / tune[:4])
        texts = ["eins Katze", "zwei Haus"]
        assert unmask.load(tmp_path / tune[:4]).predict(texts) == more.predict(texts)


def test_methods_of_a_single_vocabulary_are_refused(
    bart: Path, translator: Path, files, tmp_path: Path
) -> None:
    out = translator
    model, text = unmask.load(out), tmp_path / "text.txt"
    text.write_text("the cat runs\n" * 50)
    refused = "this model has separate vocabularies"
    with pytest.raises(ValueError, match=refused):
        model.fill("the [MASK] runs")
    with pytest.raises(ValueError, match=refused):
        model.likelihood("eins", "one")
    with pytest.raises(ValueError, match=refused):
        model.evaluate(text)
    with pytest.raises(ValueError, match=refused):
        quick(
            out, {one: toy.write(tmp_path / f"{one}.tsv", toy.texts(32, 1)) for one in files},
            task="classify", tune="full", task_options={},
        )  # fmt: skip
    with pytest.raises(ValueError, match=refused):
        unmask.pretrain(
            "bart-mini", data=text, out=tmp_path / "on", init_from=out, steps=1, device="cpu",
            quiet=True,
        )  # fmt: skip
    with pytest.raises(ValueError, match="another vocabulary"):
        unmask.load(bart).draft(model)
    assert model.draft(model).draft_tokens == 4
