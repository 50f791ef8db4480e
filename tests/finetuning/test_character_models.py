"""Fine-tuning, adapters and embeddings of character-level networks (CANINE)."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import toy_models as toy

import unmask
from unmask.adapters.attach import attach, detach, use_adapters
from unmask.adapters.bottleneck import AdaMix, HoulsbyAdapter, PfeifferAdapter
from unmask.adapters.ia3 import IA3
from unmask.adapters.lora import LoRA
from unmask.adapters.prefix import PrefixTuning, PromptTuning
from unmask.adapters.scalar_mix import ScalarMix
from unmask.batch import Batch, Example, Visibility
from unmask.batching.collate import pad_examples
from unmask.checkpoints.huggingface.read import load_folder
from unmask.checkpoints.huggingface.write import write_folder
from unmask.evaluation.sentence_embeddings import embed
from unmask.finetuning.results.predict import predict, read_task
from unmask.generation.fill_mask import fill
from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.model import Model
from unmask.jobs.finetune import finetune
from unmask.jobs.pretrain.pretrain import pretrain
from unmask.model.initialize import NormalInit
from unmask.model.positions.learned import LearnedPositions
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.training.optimizers.layerwise import parameters_by_layer
from unmask.zoo.encoders.canine import CANINE_MINI

SMALL = replace(
    CANINE_MINI.architecture, d_model=32, n_layers=2, n_heads=2, d_ff=64,
    n_hash_buckets=256, local_attention_block=32,
    position=LearnedPositions(256), dropout=0.0, attention_dropout=0.0, initializer=NormalInit(0.1),
)  # fmt: skip
CARD = replace(CANINE_MINI, architecture=SMALL)
TOKENIZER: Tokenizer = train_tokenizer(CARD.tokenizer, [])
SHORT = {
    "epochs": 6.0, "batch_size": 16, "learning_rate": 3e-3, "terminal": None,
    "precision": "float32", "device": "cpu",
}  # fmt: skip


@pytest.fixture
def base(tmp_path: Path) -> Path:
    write_folder(tmp_path / "base", CARD.build().initialize(7), CARD, TOKENIZER)
    return tmp_path / "base"


def files(tmp_path: Path, n: int = 240) -> dict[str, Path]:
    return {
        "train": toy.write(tmp_path / "train.tsv", toy.texts(n, 1, 1, 3)),
        "dev": toy.write(tmp_path / "dev.tsv", toy.texts(60, 2, 1, 3)),
    }


@pytest.mark.thorough
def test_pretrained_folder_opens_with_its_head_and_in_transformers(base: Path) -> None:
    import transformers as hf

    opened = load_folder(base)
    assert set(opened.model.head_specs) == {"characters"}
    assert (opened.missing, opened.unexpected) == ((), ())
    model = CARD.build().initialize(7)
    assert all(
        torch.equal(p, opened.model.own_weights()[n]) for n, p in model.own_weights().items()
    )
    tokenizer = hf.AutoTokenizer.from_pretrained(base)
    loaded, output = hf.AutoModel.from_pretrained(base, output_loading_info=True)
    assert set(output["missing_keys"]) == {"pooler.dense.weight", "pooler.dense.bias"}
    given = tokenizer(["The old king.", "A 👑"], padding="longest", return_tensors="pt")
    with torch.no_grad():
        theirs = loaded(**given).last_hidden_state
    texts = [opened.tokenizer.encode(t).ids for t in ("The old king.", "A 👑")]
    assert given["input_ids"][0, 1:-1].tolist() == texts[0].tolist()
    with torch.no_grad():
        document = given["attention_mask"] - 1
        ours = model.eval().hidden_states(
            Batch(inputs=given["input_ids"], visibility=Visibility(document=document))
        )
    real = given["attention_mask"].bool()
    assert float((ours - theirs)[real].abs().max() / theirs.abs().max()) < 1e-5


@pytest.mark.thorough
def test_classification_is_learned(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tuned = finetune(base, task="classify", out=out, **files(tmp_path), **SHORT)
    assert tuned.best_run.dev["accuracy"] > 0.9
    texts = ["the good cat runs", "a bad moon", "", "good " * 100]
    together = tuned.predict(texts)
    assert [a["label"] for a in together[:2]] == ["yes", "no"]
    again, task = load_folder(out), read_task(out)
    for text, answer in zip(texts, together, strict=True):
        (alone,) = predict(again, [text], task=task)
        assert alone["probabilities"] == pytest.approx(answer["probabilities"], abs=1e-5)
    import transformers as hf

    _, output = hf.AutoModelForSequenceClassification.from_pretrained(out, output_loading_info=True)
    assert not output["missing_keys"]
    assert not output["unexpected_keys"]


def test_folder_without_task_labels_by_its_head(tmp_path: Path) -> None:
    write_folder(tmp_path, built(), CARD, TOKENIZER, ("no", "yes"))
    (answer,) = unmask.load(tmp_path).predict(["the good cat runs"])
    assert answer["label"] in ("no", "yes")


@pytest.mark.thorough
def test_tagging_is_learned(base: Path, tmp_path: Path) -> None:
    tags = {"cat": "B-X", "house": "B-Y", "red": "I-X", "the": "O"}

    def sentences(n: int, seed: int) -> str:
        rng = np.random.default_rng(seed)
        made = [rng.choice(list(tags), rng.integers(1, 6)).tolist() for _ in range(n)]
        return "\n\n".join("\n".join(f"{word} {tags[word]}" for word in words) for words in made)

    (tmp_path / "train.conll").write_text(sentences(240, 1))
    (tmp_path / "dev.conll").write_text(sentences(50, 2))
    given = {"train": tmp_path / "train.conll", "dev": tmp_path / "dev.conll"}
    tuned = finetune(base, task="tag", **given, **SHORT)
    assert tuned.best_run.dev["entity_f1"] > 0.9
    (answer,) = tuned.predict([["the", "cat", "red", "house", "the"]])
    assert answer["labels"] == ["O", "B-X", "I-X", "B-Y", "O"]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "method", ["lora:rank=4", "houlsby", "ia3", "bitfit", "frozen", "top:n_layers=1", "gradual"]
)
def test_every_method_but_prefixes_takes_a_step(method: str, base: Path, tmp_path: Path) -> None:
    given = files(tmp_path, 32)
    tuned = finetune(base, task="classify", tune=method, **given, **(SHORT | {"epochs": 1.0}))
    assert tuned.best_run.dev["loss"] < 1


def built() -> Model:
    model = Model(SMALL, {"label": SequenceClassification(pooling="summary")}).initialize(0).eval()
    for p in model.parameters():
        if p.dim() == 1:
            torch.nn.init.normal_(p, mean=0.5, std=0.2)
    return model


def batch() -> Batch:
    texts = [TOKENIZER.encode(t).ids for t in ("The old king saw her.", "A fox.", "Who?")]
    return pad_examples([Example(inputs=ids, targets=ids) for ids in texts], TOKENIZER.special_ids)


@torch.no_grad()
@pytest.mark.parametrize(
    "spec", [LoRA(rank=2, target_modules=("all",)), LoRA(rank=2), HoulsbyAdapter(bottleneck_size=4),
             PfeifferAdapter(bottleneck_size=4), AdaMix(bottleneck_size=4, n_experts=2), IA3()],
)  # fmt: skip
def test_adapters_apply_to_selected_rows_and_detach_cleanly(spec) -> None:
    model, given = built(), replace(batch(), targets=None, target_positions=None)
    before = model(given, return_logits=True).logits["label"]
    module = attach(model, spec, "one")
    for p in module.parameters():
        torch.nn.init.normal_(p, std=0.3)
    after = model(given, return_logits=True).logits["label"]
    assert (after - before).abs().min() > 1e-4
    with use_adapters(model, ["one", None, None]):
        some = model(given, return_logits=True).logits["label"]
    torch.testing.assert_close(some[0], after[0])
    torch.testing.assert_close(some[1:], before[1:])
    with pytest.raises(ValueError, match="selected for 2 rows"), use_adapters(model, ["one", None]):
        model(given)
    detach(model, "one")
    assert torch.equal(model(given, return_logits=True).logits["label"], before)


@pytest.mark.parametrize(
    "spec", [PrefixTuning(n_virtual_tokens=2), PromptTuning(n_virtual_tokens=2), ScalarMix()]
)
def test_unsupported_adapters_are_refused(spec) -> None:
    with pytest.raises(ValueError, match=r"blocks; LoRA|cannot be mixed"):
        attach(built(), spec, "one")


def test_layers_are_grouped_from_bottom_to_top() -> None:
    groups = parameters_by_layer(built())
    assert len(groups) == 2 + SMALL.n_layers
    starts = [{n.split(".")[1] for n in group} for group in groups]
    assert starts[0] == {"tokens", "position", "segments", "embed_norm", "first", "down"}
    assert starts[1] == starts[2] == {"layers"}
    assert starts[3] == {"up", "last", "label"}
    assert sum(map(len, groups)) == len(list(built().named_parameters()))


@pytest.mark.thorough
@torch.no_grad()
def test_embeddings_do_not_depend_on_other_texts_or_batching() -> None:
    model = built()
    texts = ["", "a", "The old king saw her.", "12 quiet houses " * 5, "👑", "road " * 60]
    for layer in (0, 1, 2, -1):
        for pooling in ("mean", "first", "last"):
            together = embed(model, TOKENIZER, texts, pooling=pooling, layer=layer)
            for text, vector in zip(texts, together, strict=True):
                (alone,) = embed(model, TOKENIZER, [text], pooling=pooling, layer=layer)
                np.testing.assert_allclose(alone, vector, atol=2e-5)
    each = embed(model, TOKENIZER, texts, pooling="none")
    assert [len(rows) for rows in each] == [min(len(text) + 2, 256) for text in texts]
    with pytest.raises(ValueError, match="layer must be from -3 to 2"):
        embed(model, TOKENIZER, texts, layer=3)


def test_fill_is_refused_without_language_head() -> None:
    with pytest.raises(ValueError, match=r"no language-model head \(heads: label\)"):
        fill(built(), TOKENIZER, ["a [MASK] b"])


@pytest.mark.thorough
def test_pretrained_run_reports_its_objective(tmp_path: Path) -> None:
    text = "\n\n".join(f"The {who} saw the fox." for who in "abcdefgh")
    (tmp_path / "text.txt").write_text(text * 8)
    sizes = {"d_model": 32, "n_layers": 1, "n_heads": 2, "d_ff": 32, "local_attention_block": 16}
    run = pretrain(
        "canine-mini",
        data=tmp_path / "text.txt",
        out=tmp_path / "run",
        steps=3,
        sequence_length=32,
        changes=[*(f"architecture.{n}={x}" for n, x in sizes.items()), "batch_tokens=256"],
        quiet=True,
        device="cpu",
    )
    assert set(run.model.head_specs) == {"characters"}
    assert load_folder(tmp_path / "run").missing == ()
    result = unmask.load(tmp_path / "run").evaluate(tmp_path / "text.txt")
    assert set(result.loss) == {"characters"}
    with pytest.raises(ValueError, match="packing: canine-mini"):
        pretrain(
            "canine-mini", data=tmp_path / "text.txt", out=tmp_path / "no", steps=1,
            changes=["packing=pack"], quiet=True,
        )  # fmt: skip


@pytest.mark.thorough
def test_several_adapters_share_it_whatever_pooling(base: Path, tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("summary", "mean")}
    for name, out in folders.items():
        finetune(
            base, task="classify", tune="lora:rank=2", out=out,
            task_options={"pooling": name},
            seed=len(name), **files(tmp_path, 32),
            **(SHORT | {"epochs": 1.0, "learning_rate": 1e-2}),
        )  # fmt: skip
    several = unmask.MultiAdapter(folders)
    texts = [text for text, _ in toy.texts(9, 5, 1, 12)]
    names = [list(folders)[i % 2] for i in range(9)]
    alone = {name: unmask.load(folder) for name, folder in folders.items()}
    for text, name, answer in zip(texts, names, several.predict(texts, names), strict=True):
        expected = alone[name].predict([text])[0]["probabilities"]
        assert answer["probabilities"] == pytest.approx(expected, abs=1e-4)
