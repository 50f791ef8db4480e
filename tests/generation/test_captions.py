"""Texts about pictures: those of transformers, whatever the picture is given as."""

from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from reference import saved, vision_encoder_decoder
from small_models import tokenizer

from unmask.checkpoints.huggingface.read import LoadedModel, load_folder
from unmask.cli import main as cli
from unmask.generation.captions import picture_prompts, read_picture
from unmask.generation.decode import generate
from unmask.generation.settings import GenerationConfig, Sampling, generation_config
from unmask.images.preprocessing import ImagePreprocessing
from unmask.inference.pipeline import Pipeline
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.zoo.catalogue import MODELS

SIDE = 24
PIXELS = np.random.default_rng(0).integers(0, 256, (5, SIDE, SIDE, 3), np.uint8)
PIXELS[1:3] //= 8
HOW = ImagePreprocessing(resize=(SIDE, SIDE))
SPECIAL = SpecialTokenIds(vocab_size=99, pad=0, start=0, end=0, all_ids=frozenset({0}))


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    """Make a captioner whose tokens are words."""
    words = tokenizer("gpt2")
    preset = MODELS["vit-gpt2-mini"].with_vocabulary(words.special_ids)
    model = preset.build().initialize(0)
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    loaded = LoadedModel(
        preset=preset, model=model.eval(), tokenizer=words, label_names=(), missing=(),
        unexpected=(), preprocessing=ImagePreprocessing(resize=(96, 96)),
    )  # fmt: skip
    return Pipeline(loaded)


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "settings",
    [{}, {"beams": 1}, {"beams": 4}, {"beams": 3, "length_penalty": 0.5, "early_stopping": True},
     {"no_repeat_ngram_size": 2, "min_new_tokens": 3}],
)  # fmt: skip
@pytest.mark.parametrize("decoder", ["gpt2", "bert", "roberta"])
@torch.no_grad()
def test_captions_equal_reference(settings: dict, decoder: str, tmp_path: Path) -> None:
    reference = vision_encoder_decoder(decoder={"model_type": decoder})
    model = load_folder(saved(reference, tmp_path)).model
    prompts = picture_prompts(model, list(PIXELS), HOW)
    config = generation_config(max_new_tokens=12, **settings)
    found = generate(model, prompts, SPECIAL, config)
    pixels = torch.from_numpy(HOW.normalize(PIXELS))
    names = {"beams": "num_beams"}
    theirs = reference.generate(
        pixel_values=pixels, max_new_tokens=12, decoder_start_token_id=0, do_sample=False,
        eos_token_id=0, pad_token_id=0, **{names.get(k, k): x for k, x in settings.items()},
    )  # fmt: skip
    expected = [[*row[1:], 0] for row in theirs.tolist()]
    assert found == [row[: row.index(0)] for row in expected]


def test_captions_of_one_picture_do_not_depend_on_others(tmp_path: Path) -> None:
    model = load_folder(saved(vision_encoder_decoder(), tmp_path)).model
    for config in (
        GenerationConfig(max_new_tokens=9),
        GenerationConfig(max_new_tokens=9, strategy=Sampling()),
    ):
        together = generate(model, picture_prompts(model, list(PIXELS), HOW), SPECIAL, config)
        alone = [
            generate(model, picture_prompts(model, [x], HOW), SPECIAL, config)[0] for x in PIXELS
        ]
        assert together == alone
    assert len({tuple(caption) for caption in together}) > 1, "captions depend on pictures"


def test_pictures_are_read_from_all_that_holds_them(pipeline: Pipeline, tmp_path: Path) -> None:
    image = Image.fromarray(PIXELS[0])
    path = tmp_path / "a.png"
    image.save(path)
    given = [path, str(path), path.read_bytes(), image, PIXELS[0]]
    texts = pipeline.generate(given, max_new_tokens=5)
    assert texts == [pipeline.generate(path, max_new_tokens=5)] * 5
    assert pipeline.generate(image, max_new_tokens=5) == texts[0]
    assert "".join(pipeline.stream(path, max_new_tokens=5)) == texts[0]
    best = pipeline.generate_candidates(path, beams=3, n_best=2, max_new_tokens=5)
    assert len(best) == 2
    begun = pipeline.generate(path, output_prefix="the", max_new_tokens=5)
    assert begun.startswith("the")


def test_transparency_is_put_on_white() -> None:
    clear = Image.new("RGBA", (SIDE, SIDE), (0, 0, 0, 0))
    buffer = BytesIO()
    clear.save(buffer, "PNG")
    for picture in (clear, buffer.getvalue()):
        assert (read_picture(picture, HOW, "picture 1") == 1).all()


def test_what_is_no_picture_is_one_line(pipeline: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"bad\.png: damaged, or in no format"):
        pipeline.generate(tmp_path / "bad.png")
    with pytest.raises(FileNotFoundError, match="a dog: no such picture; this model describes"):
        pipeline.generate("a dog")
    with pytest.raises(TypeError, match=r"picture 2 must be a path|violates type hint"):
        pipeline.generate([PIXELS[0], 3])
    with pytest.raises(ValueError, match="does not describe pictures"):
        picture_prompts(MODELS["vit-mini"].build(), [PIXELS[0]], HOW)


def test_command_describes_pictures(
    pipeline: Pipeline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, folder = tmp_path / "model", tmp_path / "pictures"
    pipeline.save(model)
    folder.mkdir()
    for i in range(2):
        Image.fromarray(PIXELS[i]).save(folder / f"{i}.png")
    one = str(folder / "0.png")

    def run(*arguments: str) -> tuple[int, str, str]:
        status = cli.run(["generate", *arguments])
        return status, *capsys.readouterr()

    status, out, error = run(str(model), str(folder), "--max-new-tokens", "4")
    assert status == 0, error
    names = [line.split("\t")[0] for line in out.splitlines()]
    assert names == [str(folder / f"{i}.png") for i in range(2)]
    status, out, error = run(str(model), one, "--beams", "3", "--n-best", "2", "--json")
    assert status == 0, error
    assert out.count('"score"') == 2
    for arguments, message in (
        ([str(model)], "describes pictures: give their files"),
        ([str(model), one, "--prompt", "x"], "--prompt is for models that read texts"),
        (["unmask-mini-en", one], "reads texts"),
    ):
        status, _, error = run(*arguments)
        assert status != 0
        assert message in error


def test_preset_of_pictures_alone_has_no_prompt(pipeline: Pipeline) -> None:
    loaded = replace(pipeline.loaded_model, preprocessing=None)
    with pytest.raises(ValueError, match="describes pictures, and the batch has none"):
        Pipeline(loaded).generate("a text")
