"""Picture classifiers that begin with a masked autoencoder, or learn of a teacher."""

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from PIL import Image

import unmask
from unmask.checkpoints.huggingface.read import LoadedModel, load_folder
from unmask.compression.distillation.forward import DistillationForward
from unmask.compression.distillation.pictures import read_as_student
from unmask.compression.distillation.terms import (
    Distillation,
    HardTargets,
    HiddenStateDistillation,
    SoftTargets,
)
from unmask.finetuning.results.report import THUMBNAIL_EDGE
from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.model import Model
from unmask.heads.vision.distilled_classification import DistilledClassification
from unmask.images.preprocessing import ImagePreprocessing
from unmask.model.backbones.vision_transformer import VisionArchitecture, picture_batch
from unmask.zoo.catalogue import get_preset

EDGE, N_LABELS = 8, 3
SIZES = {"d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 32}
CHANGES = [f"architecture.{name}={value}" for name, value in SIZES.items()]
LABELS = ("0", "1", "2")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noise, brighter for a larger label."""
    rng, labels = np.random.default_rng(0), np.arange(36) % N_LABELS
    noise = rng.integers(0, 80, (36, EDGE, EDGE, 3)) + labels[:, None, None, None] * 80
    path = tmp_path_factory.mktemp("pictures") / "pictures.npz"
    np.savez(path, images=noise.astype(np.uint8), labels=labels)
    return path


@pytest.fixture(scope="module")
def pretrained(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the run of a small network of a family."""
    root = tmp_path_factory.mktemp("runs")

    def run(name: str) -> Path:
        if not (root / name).exists():
            unmask.pretrain(
                name, data=pictures, out=root / name, steps=2, quiet=True,
                changes=[*CHANGES, f"image_size=[{EDGE},{EDGE}]", "batch_tokens=66"],
            )  # fmt: skip
        return root / name

    return run


def tune(base: Path | str, pictures: Path, **options: Any) -> Any:
    given: dict[str, Any] = {
        "epochs": 1.0, "batch_size": 6, "learning_rate": 3e-3, "terminal": None, **options,
    }  # fmt: skip
    return unmask.finetune(base, task="classify", train=pictures, dev=pictures, **given)


def test_a_masked_autoencoders_encoder_is_kept(
    pretrained: Callable[[str], Path], pictures: Path, tmp_path: Path
) -> None:
    tuned = tune(pretrained("mae-mini"), pictures, learning_rate=1e-9, out=tmp_path / "run")
    before = load_folder(pretrained("mae-mini")).model.own_weights()
    after = tuned.loaded_model.model.own_weights()
    kept = [name for name in after if name.startswith("backbone.")]
    assert kept
    assert all(torch.allclose(before[n], after[n], atol=1e-6) for n in kept)
    assert any("unused weights" in note and "decoder" in note for note in tuned.notes)
    again = unmask.load(tmp_path / "run").predict([np.zeros((EDGE, EDGE, 3), np.uint8)])
    assert again[0]["label"] in LABELS


def test_the_encoder_of_a_folder_of_transformers_is_kept(pictures: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTMAEConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        image_size=EDGE, patch_size=4, decoder_hidden_size=8, decoder_num_hidden_layers=1,
        decoder_num_attention_heads=2, decoder_intermediate_size=16,
    )  # fmt: skip
    theirs = transformers.ViTMAEForPreTraining(config)
    theirs.save_pretrained(tmp_path / "theirs")
    transformers.ViTImageProcessorPil(size={"height": EDGE, "width": EDGE}).save_pretrained(
        tmp_path / "theirs"
    )
    tuned = tune(tmp_path / "theirs", pictures, learning_rate=1e-9)
    own = tuned.loaded_model.model.backbone.patches.projection.weight
    assert torch.allclose(own, theirs.vit.embeddings.patch_embeddings.projection.weight, atol=1e-6)


def test_the_mean_of_all_tokens_is_read_again(
    pretrained: Callable[[str], Path], pictures: Path, tmp_path: Path
) -> None:
    tuned = tune(
        pretrained("vit-mini"), pictures, out=tmp_path / "run", task_options={"pooling": "mean"}
    )
    assert tuned.loaded_model.model.head_specs["label"].pooling == "mean"
    picture = [np.full((EDGE, EDGE, 3), 200, np.uint8)]
    (first,), (again,) = tuned.predict(picture), unmask.load(tmp_path / "run").predict(picture)
    assert again["probability"] == pytest.approx(first["probability"], rel=1e-6)


def _new_deit(folder: Path) -> Path:
    """Write a small DeiT of random weights, as transformers does."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.DeiTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        image_size=EDGE, patch_size=4,
    )  # fmt: skip
    transformers.DeiTModel(config).save_pretrained(folder)
    size = {"height": EDGE, "width": EDGE}
    transformers.ViTImageProcessorPil(size=size).save_pretrained(folder)
    return folder


@pytest.mark.sample(1)
@pytest.mark.parametrize("term", ["soft:temperature=3", "hard"])
def test_a_distillation_token_learns_of_a_teacher(
    term: str, pretrained: Callable[[str], Path], pictures: Path, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    teacher = tune(pretrained("vit-mini"), pictures, out=tmp_path / "teacher", epochs=6.0)
    assert teacher.best_run.dev["accuracy"] > 0.9
    student = tune(
        _new_deit(tmp_path / "deit"), pictures, teacher=tmp_path / "teacher", distill=[term],
        epochs=12.0, out=tmp_path / "student",
    )  # fmt: skip
    assert student.best_run.dev["accuracy"] > 0.9
    model = student.loaded_model.model
    assert isinstance(model.head_specs["distilled"], DistilledClassification)
    theirs = transformers.DeiTForImageClassificationWithTeacher.from_pretrained(
        tmp_path / "student"
    )
    pixels = torch.randn(2, 3, EDGE, EDGE)
    with torch.no_grad():
        expected = theirs.eval()(pixels).logits
        batch = picture_batch(pixels, cast(VisionArchitecture, model.architecture))
        found = model.eval()(batch, return_logits=True).logits["label"]
    assert torch.allclose(found, expected, atol=1e-5)
    again = unmask.load(tmp_path / "student").predict([np.full((EDGE, EDGE, 3), 200, np.uint8)])
    assert again[0]["label"] == "2"


def _network(name: str, head: str, spec: Any, seed: int) -> Model:
    architecture = replace(
        cast(VisionArchitecture, get_preset(name).architecture), **SIZES
    ).with_image_size(EDGE, EDGE)
    return replace(get_preset(name), architecture=architecture, heads={head: spec}).build(
    ).initialize(seed)  # fmt: skip


def _pair() -> tuple[Model, Model]:
    student = _network("deit-mini", "distilled", DistilledClassification(n_labels=N_LABELS), 0)
    plain = SequenceClassification(n_labels=N_LABELS, dense_layer=False, dropout=0.0)
    return student, _network("vit-mini", "label", plain, 1)


@pytest.mark.parametrize("hard", [True, False])
def test_losses_are_those_of_the_paper(hard: bool) -> None:
    """Touvron et al. 2021, section 4: equations 2 and 3, by the two tokens."""
    student, teacher = _pair()
    term = HardTargets(weight=0.5) if hard else SoftTargets(temperature=3.0, weight=0.1)
    given = Distillation(teacher=("t",), terms=(term,), objective_weight=0.5 if hard else 0.9)
    forward = DistillationForward(student.train(), [teacher], given)
    pixels, labels = torch.randn(4, 3, EDGE, EDGE), torch.tensor([0, 2, 1, 1])
    batch = picture_batch(pixels, cast(VisionArchitecture, student.architecture), labels=labels)
    found = forward(batch)
    assert {n: t.count for n, t in found.terms.items()} == forward.count_targets(batch)
    hidden = student.hidden_states(batch)
    head = cast(Any, student.heads["distilled"])
    own, taught = head.out(hidden[:, 0]), head.distillation(hidden[:, 1])
    seen = picture_batch(pixels, cast(VisionArchitecture, teacher.architecture))
    theirs = teacher(seen, return_logits=True).logits["label"]
    entropy = torch.nn.functional.cross_entropy
    if hard:
        expected = (entropy(own, labels) + entropy(taught, theirs.argmax(-1))) / 2
    else:
        p, q = (theirs / 3).log_softmax(-1), (taught / 3).log_softmax(-1)
        divergence = 9 * (p.exp() * (p - q)).sum(-1).mean()
        expected = 0.9 * entropy(own, labels) + 0.1 * divergence
    assert found.loss.item() == pytest.approx(expected.item(), rel=1e-5)


def _opened(model: Model, how: ImagePreprocessing) -> LoadedModel:
    return LoadedModel(
        preset=get_preset("vit-mini"),
        model=model,
        tokenizer=None,
        preprocessing=how,
        label_names=LABELS,
        missing=(),
        unexpected=(),
    )


def test_a_teacher_with_another_normalization_predicts_the_same() -> None:
    own = ImagePreprocessing(resize=(EDGE, EDGE))
    other = replace(own, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    raw = np.random.default_rng(0).integers(0, 256, (4, EDGE, EDGE, 3), np.uint8)

    def logits(model: Model, how: ImagePreprocessing) -> torch.Tensor:
        pixels = torch.from_numpy(how.normalize(raw))
        batch = picture_batch(pixels, cast(VisionArchitecture, model.architecture))
        with torch.no_grad():
            return model.eval()(batch, return_logits=True).logits["label"]

    teacher = _pair()[1]
    expected = logits(teacher, other)
    read_as_student("teacher", _opened(teacher, other), own)
    assert torch.allclose(logits(teacher, own), expected, atol=1e-5)
    large = replace(other, resize=(16, 16))
    with pytest.raises(ValueError, match=r"reads pictures of 16 x 16 x 3, the student of 8 x 8"):
        read_as_student("teacher", _opened(teacher, large), own)


def test_what_cannot_be_compared_is_one_line() -> None:
    student, teacher = _pair()
    inner = Distillation(teacher=("t",), terms=(HiddenStateDistillation(),))
    with pytest.raises(ValueError, match="reads a picture as 6 tokens, the teacher as 5"):
        DistillationForward(student, [teacher], inner)
    regression = SequenceClassification(n_labels=1, dense_layer=False)
    one = _network("vit-mini", "label", regression, 0)
    hard = Distillation(teacher=("t",), terms=(HardTargets(),))
    with pytest.raises(ValueError, match="hard: needs a head with one label of several"):
        DistillationForward(one, [one], hard)
    with pytest.raises(ValueError, match="name one"):
        Distillation(teacher=("t",), terms=(HardTargets(), SoftTargets()))


def test_wrong_pictures_are_shown_small(
    pretrained: Callable[[str], Path], pictures: Path, tmp_path: Path
) -> None:
    tune(
        pretrained("vit-mini"), pictures, learning_rate=1e-9, out=tmp_path / "run",
        task_options={"image_size": 100},
    )  # fmt: skip
    errors = json.loads((tmp_path / "run/results.json").read_text())["errors"]
    assert errors
    for error in errors:
        shown = Image.open(BytesIO(base64.b64decode(error["picture"])))
        assert max(shown.size) == THUMBNAIL_EDGE
    page = unmask.write_report(tmp_path / "run").read_text()
    assert page.count("data:image/png;base64,") == len(errors)
    assert f'<b title="{errors[0]["truth"]}">' in page
