"""An accelerator computes what the CPU computes: `pytest -m gpu` on a machine that has one."""

import json
import math
from pathlib import Path

import pytest
import torch
from test_leak import FAMILIES, build
from toy_text import corpus

import unmask
from unmask.batch import Batch, Visibility
from unmask.generation.decode import generate
from unmask.generation.settings import generation_config
from unmask.heads.model import Model
from unmask.inference.open_model import load
from unmask.jobs.pretrain.pretrain import pretrain
from unmask.jobs.pretrain.resolve_options import preset_recipe
from unmask.model.backbones.encoder_decoder import EncoderDecoderArchitecture
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.training import log
from unmask.word_vectors.train.trainer import WordVectorMethod
from unmask.zoo.catalogue import MODELS, TEXT_MODELS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator"),
    # of recurrent networks, whose matrices are parameters of their own
    pytest.mark.filterwarnings("ignore:RNN module weights"),
]

TRAINED = [
    name
    for name, preset in TEXT_MODELS.items()
    if name.endswith(("-mini", "-tiny")) and not isinstance(preset.objective, WordVectorMethod)
]
LANGUAGES = {"mbart-mini": "en_XX="}
"""Languages for presets that read the language of each text."""
NOISE = 1e-4
"""Largest difference of float32 sums in another order, relative to the largest number."""


@pytest.fixture(autouse=True)
def _exact_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolve float32 numbers in float32, as matrices are multiplied by default."""
    assert torch.get_float32_matmul_precision() == "highest"
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(corpus(60))
    return path


def assert_close(ours: torch.Tensor, expected: torch.Tensor) -> None:
    """Compare, relative to the largest number."""
    size = expected.abs().max().clamp(min=1e-6)
    assert ((ours.cpu() - expected.cpu()).abs().max() / size).item() < NOISE


def batch_of(model: Model) -> Batch:
    """Draw two rows, of which one is padded."""
    torch.manual_seed(1)
    document = torch.tensor([[0] * 11, [0] * 8 + [-1] * 3])
    more = {}
    if isinstance(model.architecture, EncoderDecoderArchitecture):
        there = torch.tensor([[0] * 6, [0] * 4 + [-1] * 2])
        more = {
            "source": torch.randint(0, 50, (2, 6)),
            "source_visibility": Visibility(document=there),
        }
    visibility = Visibility(causal=model.can_generate, document=document)
    return Batch(inputs=torch.randint(0, 50, (2, 11)), visibility=visibility, **more)


@pytest.mark.parametrize("family", FAMILIES)
def test_hidden_states_and_gradients_equal_those_of_the_cpu(family: str) -> None:
    model = build(family)
    batch = batch_of(model)
    direction = torch.randn(model.hidden_states(batch).shape)
    results = []
    for device in ("cpu", "cuda"):
        model.zero_grad()
        there = model.to(device)
        states = there.hidden_states(batch.to(torch.device(device)))
        (states * direction.to(device)).sum().backward()
        gradients = {n: p.grad.cpu() for n, p in there.named_parameters() if p.grad is not None}
        results.append((states.detach().cpu(), gradients))
    (expected, expected_gradients), (ours, our_gradients) = results
    assert_close(ours, expected)
    assert our_gradients.keys() == expected_gradients.keys()
    largest = max(g.abs().max() for g in expected_gradients.values())
    for name, gradient in our_gradients.items():
        difference = (gradient - expected_gradients[name]).abs().max()
        assert (difference / largest).item() < NOISE, name


def run(name: str, text: Path, out: Path, device: str, *changes: str, **more: object) -> Path:
    """Pretrain for a few steps."""
    length = preset_recipe(name).sequence_length or MODELS[name].sequence_length
    pretrain(
        name, data=f"{LANGUAGES.get(name, '')}{text}", out=out, quiet=True, device=device,
        changes=[
            f"batch_tokens={max(512, length)}", "log_every=1", "dev_fraction=0.1", *changes,
        ],
        **({"steps": 3} | more),
    )  # fmt: skip
    return out


def losses(folder: Path) -> list[float]:
    """Read the training loss of each step."""
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


@pytest.mark.filterwarnings("ignore")  # of three steps on a small text much may be said
@pytest.mark.parametrize("name", TRAINED)
def test_small_preset_learns_as_on_the_cpu(name: str, text: Path, tmp_path: Path) -> None:
    exact = ("dropout=0", "precision=float32", "dev_fraction=0.1")
    ours = losses(run(name, text, tmp_path / "gpu", "cuda", *exact))
    assert ours
    assert all(math.isfinite(loss) for loss in ours)
    if len(MODELS[name].build().networks) > 1:
        return  # its generator draws tokens with the random numbers of the device
    expected = losses(run(name, text, tmp_path / "cpu", "cpu", *exact))
    assert ours == pytest.approx(expected, rel=2e-3)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TRAINED)
def test_small_preset_learns_in_half_precision(name: str, text: Path, tmp_path: Path) -> None:
    out = run(name, text, tmp_path / "gpu", "cuda", "precision=bfloat16")
    assert all(math.isfinite(loss) for loss in losses(out))
    assert load(out).evaluate(f"{LANGUAGES.get(name, '')}{text}").loss


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "name", ["bert-tiny", "gpt2-mini", "t5-mini", "longformer-mini", "elmo-mini", "electra-mini"]
)
def test_resumed_run_equals_uninterrupted(
    name: str, precision: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = (f"precision={precision}",)
    whole = run(name, text, tmp_path / "whole", "cuda", *changes, steps=8, checkpoint_every=3)
    original = log.TrainingLog.__call__

    class Killed(Exception):
        pass

    def call(self: log.TrainingLog, report: object) -> None:
        original(self, report)
        if report.step == 5:
            raise Killed

    broken = tmp_path / "broken"
    with monkeypatch.context() as patch:
        patch.setattr(log.TrainingLog, "__call__", call)
        with pytest.raises(Killed):
            run(name, text, broken, "cuda", *changes, steps=8, checkpoint_every=3)
    run(name, text, broken, "cuda", *changes, steps=8, checkpoint_every=3, resume=True)
    assert losses(broken) == losses(whole)
    for file in ("model.safetensors", "log.jsonl"):
        is_equal = (broken / file).read_bytes() == (whole / file).read_bytes()
        assert is_equal, file  # without pytest's search for the first of a million differences


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_greedy_text_equals_that_of_the_cpu(family: str) -> None:
    model = build(family)
    if not (model.has_language_head and model.predicts_next_token):
        pytest.skip("does not generate")
    special = SpecialTokenIds(vocab_size=50, pad=0, start=1, end=None)
    made = [
        generate(
            build(family).to(device), [[5, 9, 7, 30, 11, 4], [8]], special,
            generation_config(max_new_tokens=6),
        )
        for device in ("cpu", "cuda")
    ]  # fmt: skip
    assert made[1] == made[0]


@pytest.mark.parametrize(
    ("base", "tune"),
    [
        ("bert-tiny", "full"), ("bert-tiny", "lora"), ("gpt2-mini", "full"), ("t5-mini", "full"),
        ("elmo-mini", "scalar_mix"), ("ulmfit-mini", "gradual"), ("canine-mini", "full"),
        ("word2vec-skipgram-mini", "full"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_model_tuned_on_an_accelerator_answers_alike_on_the_cpu(
    base: str, tune: str, text: Path, tmp_path: Path
) -> None:
    rows = [f"{w} saw the gate\t{x}" for w, x in (("the old king", "A"), ("my friend", "B")) * 8]
    table = tmp_path / "rows.tsv"
    table.write_text("text\tlabel\n" + "\n".join(rows) + "\n")
    words = isinstance(MODELS[base].objective, WordVectorMethod)
    if words:
        pretrain(base, data=text, out=tmp_path / "base", quiet=True, changes=["log_every=1"])
    else:
        run(base, text, tmp_path / "base", "cuda")
    unmask.finetune(
        tmp_path / "base", task="classify", train=table, out=tmp_path / "tuned", tune=tune,
        epochs=2.0, device="cuda",
    )  # fmt: skip
    texts = ["the old king saw him", "my friend", "the quiet house at night"]
    there, here = (load(tmp_path / "tuned").to(device).predict(texts) for device in ("cuda", "cpu"))
    for a, b in zip(there, here, strict=True):
        assert a["probabilities"] == pytest.approx(b["probabilities"], abs=2e-4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "method", ["qat:bits=4", "gradual:fraction=0.5", "movement:fraction=0.5", "soft"]
)
def test_compression_while_training_on_an_accelerator(
    method: str, text: Path, tmp_path: Path
) -> None:
    base = run("bert-tiny", text, tmp_path / "base", "cuda")
    more = {"teacher": base, "distill": [method]} if method == "soft" else {"compression": [method]}
    tuned = run("bert-tiny", text, tmp_path / "tuned", "cuda", init_from=base, **more)
    assert all(math.isfinite(loss) for loss in losses(tuned))
    assert load(tuned).evaluate(text).loss


def test_compiled_run_learns(text: Path, tmp_path: Path) -> None:
    plain = losses(run("bert-tiny", text, tmp_path / "a", "cuda", "precision=float32", "dropout=0"))
    compiled = losses(
        run("bert-tiny", text, tmp_path / "b", "cuda", "precision=float32", "dropout=0",
            "compile=true")
    )  # fmt: skip
    assert compiled == pytest.approx(plain, rel=2e-3)
