"""Captions beside those of people: scores, attention over the picture, and the page."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small_models import tokenizer

from unmask.analysis.attention.captions import attention_over_picture
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.cli import main as cli
from unmask.evaluation.captions import CaptionEvaluation, DescribedPicture
from unmask.images.preprocessing import ImagePreprocessing
from unmask.images.records import ImageColumns
from unmask.inference.pipeline import Pipeline
from unmask.jobs.evaluate import write_captions_page
from unmask.reports.analysis.captions_page import lit, shown_pictures
from unmask.tasks.metrics.captioning.captions import caption_metrics
from unmask.zoo.catalogue import MODELS


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
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


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captioned")
    rows = ["image,split,caption"]
    for i in range(4):
        Image.new("RGB", (30, 20), (i * 60, 0, 0)).save(folder / f"{i}.png")
        split = "train" if i == 3 else "test"
        rows += [f"{i}.png,{split},the old king {i}", f"{i}.png,{split},a king"]
    (folder / "captions.csv").write_text("\n".join(rows) + "\n")
    return folder / "captions.csv"


def test_scores_are_those_of_the_captions(pipeline: Pipeline, table: Path) -> None:
    found = pipeline.evaluate_captions(table, ImageColumns(where={"split": "test"}))
    assert len(found.pictures) == 3
    assert found.pictures[1].references == ("the old king 1", "a king")
    references = [one.references for one in found.pictures]
    captions = [one.caption for one in found.pictures]
    assert (
        captions[0] == pipeline.generate(table.parent / "0.png", beams=3, max_new_tokens=30).strip()
    )
    expected = caption_metrics(references, captions)
    assert expected.items() <= found.metrics.items()
    mean = sum(one.cider_d for one in found.pictures) / 3
    assert mean == pytest.approx(found.metrics["cider_d"])
    assert "pixels" not in str(found.to_dict())


def test_attention_is_of_the_network(pipeline: Pipeline) -> None:
    pixels = np.zeros((3, 96, 96), np.float32)
    words = attention_over_picture(pipeline.model, pipeline.tokenizer, pixels, "the old king")
    assert [word for word, _ in words] == ["the", "old", "king"]
    for _, grid in words:
        assert grid.shape == (8, 8)
        assert 0 < grid.sum() <= 1 + 1e-5
    assert not np.allclose(words[0][1], words[2][1])


def test_dark_is_where_no_attention_is() -> None:
    white = np.full((4, 4, 3), 255, np.uint8)
    grid = np.array([[1.0, 0.0], [0.5, 0.0]])
    out = lit(white, grid)
    assert out[0, 0, 0] == 255
    assert out[0, 3, 0] == 64
    assert 64 < out[3, 0, 0] < 255


def test_the_worst_captions_are_shown() -> None:
    pixels = np.zeros((2, 2, 3), np.uint8)
    pictures = tuple(
        DescribedPicture(
            name=f"{i}", pixels=pixels, caption="", references=("x",), cider_d=float(i)
        )
        for i in range(40)
    )
    shown = shown_pictures(CaptionEvaluation(metrics={}, pictures=pictures))
    names = [one.name for one in shown]
    assert names[:5] == ["0", "1", "2", "3", "4"]
    assert names[-1] == "39"
    assert len(names) == 10
    few = shown_pictures(CaptionEvaluation(metrics={}, pictures=pictures[:3]))
    assert len(few) == 3


def test_command_prints_scores_and_writes_a_page(
    pipeline: Pipeline, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline.save(tmp_path / "model")
    page = tmp_path / "page.html"
    arguments = ["evaluate", str(tmp_path / "model"), "--data", str(table), "--where", "split=test"]
    status = cli.run([*arguments, "--page", str(page)])
    out, error = capsys.readouterr()
    assert status == 0, error
    assert out.startswith("3 pictures\nbleu1 ")
    assert "cider_d" in out
    text = page.read_text()
    assert text.count("data:image/png;base64,") > 3
    assert "Person: the old king 0" in text
    assert cli.run([*arguments[:-1], "split"]) != 0
    assert "--where must be COLUMN=VALUE, got 'split'" in capsys.readouterr().err
    assert cli.run(["evaluate", "unmask-mini-en", "--data", str(table), "--page", str(page)]) != 0
    assert "applies to models that describe pictures" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "panels"), [("show-and-tell-mini", 1), ("show-attend-and-tell-mini", 3)]
)
def test_page_of_lstms_has_their_attention_if_any(
    name: str, panels: int, pipeline: Pipeline, tmp_path: Path
) -> None:
    words = pipeline.tokenizer
    preset = MODELS[name].with_vocabulary(words.special_ids)
    model = preset.build().initialize(0).eval()
    other = Pipeline(replace(pipeline.loaded_model, preset=preset, model=model))
    one = DescribedPicture(
        name="a", pixels=np.zeros((96, 96, 3), np.uint8), caption="a king", references=("x",),
        cider_d=0.0,
    )  # fmt: skip
    write_captions_page(other, CaptionEvaluation(metrics={}, pictures=(one,)), tmp_path / "a.html")
    assert (tmp_path / "a.html").read_text().count("data:image/png;base64,") == panels


def test_models_that_describe_nothing_are_refused(tmp_path: Path, table: Path) -> None:
    import unmask

    other = unmask.load("unmask-mini-en")
    with pytest.raises(ValueError, match="does not describe pictures"):
        other.evaluate_captions(table)
    empty = CaptionEvaluation(metrics={}, pictures=())
    with pytest.raises(ValueError, match="does not describe pictures"):
        write_captions_page(other, empty, tmp_path / "page.html")
