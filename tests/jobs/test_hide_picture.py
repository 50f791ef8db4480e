"""`unmask hide` of a picture: what is seen, and what is asked."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import unmask
from unmask.cli.main import run
from unmask.images.terminal import GRAYS, PatchView, view_rows
from unmask.jobs.catalogue import hide as module
from unmask.jobs.catalogue.hide import hide
from unmask.jobs.catalogue.picture_explanation import PictureExplanation


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("picture") / "noise.png"
    noise = np.random.default_rng(0).integers(0, 256, (40, 48, 3), np.uint8)
    Image.fromarray(noise).save(path)
    return str(path)


def shown(model: str, picture: str, **more: object) -> PictureExplanation:
    found = hide(model, picture, **more)
    assert isinstance(found, PictureExplanation)
    return found


@pytest.mark.parametrize(("model", "n_hidden"), [("vit-mini", 39), ("mae-mini", 49)])
def test_seen_and_asked_are_the_picture(model: str, n_hidden: int, picture: str) -> None:
    found = shown(model, picture)
    whole, seen, asked = found.views
    assert whole.pixels.shape == (32, 32, 3)
    assert (seen.drawn ^ asked.drawn).all()
    assert int(asked.drawn.sum()) == n_hidden == sum(map(sum, found.hidden))
    assert shown(model, picture).hidden == found.hidden
    assert shown(model, picture, seed=1).hidden != found.hidden
    assert any(f"{n_hidden} of 64 patches" in text for _, text in found.notes)


def test_settings_of_the_objective_are_changed(picture: str) -> None:
    found = shown("vit-mini", picture, changes=["select.rate=0.2"])
    assert sum(map(sum, found.hidden)) == 13


def test_labels_hide_nothing(picture: str) -> None:
    found = shown("vit-base-patch16-224", picture)
    assert [view.title for view in found.views] == ["picture"]
    assert ("targets", "the label of the picture; nothing is hidden") in found.notes


@pytest.mark.parametrize("name", ["vit-mini", "mae-mini"])
def test_weights_make_what_is_hidden(name: str, picture: str, tmp_path: Path) -> None:
    sizes = ("d_model=16", "n_layers=1", "n_heads=2", "d_ff=32")
    changes = [f"architecture.{size}" for size in sizes]
    noise = np.random.default_rng(1).integers(0, 256, (20, 16, 16, 3), np.uint8)
    np.savez(tmp_path / "noise.npz", images=noise)
    unmask.pretrain(
        name, data=tmp_path / "noise.npz", out=tmp_path / "run", steps=2, quiet=True,
        changes=[*changes, "image_size=[16,16]", "batch_tokens=68"],
    )  # fmt: skip
    found = shown(str(tmp_path / "run"), picture)
    whole, seen, _, made = found.views
    is_seen = seen.drawn_pixels()
    assert np.array_equal(made.pixels[is_seen], whole.pixels[is_seen])
    assert not np.array_equal(made.pixels, whole.pixels)


def test_terminal_fits_and_leaves_hidden_patches_blank() -> None:
    drawn = np.array([[True, False], [False, True]])
    pixels = np.full((8, 8, 1), 255, np.uint8)
    pixels[4:] = 0
    view = PatchView(title="seen", pixels=pixels, drawn=drawn)
    ((title, *lines),) = view_rows([view], 80, color=False)
    assert title[0][0].strip() == "seen"
    light, dark = GRAYS[-1] * 4, GRAYS[0] * 4
    assert ["".join(text for text, _ in line) for line in lines] == [
        f"{light}    ", f"{light}    ", f"    {dark}", f"    {dark}",
    ]  # fmt: skip
    ((_, first, *_),) = view_rows([view], 80, color=True)
    assert first[0] == ("▀", "#ffffff on #ffffff")
    assert first[-1] == (" ", "")
    for width in (2, 10, 24, 50, 80, 200):
        for row in view_rows([view] * 3, width):
            assert all(sum(len(text) for text, _ in line) <= width for line in row)


def test_odd_patches_share_a_cell() -> None:
    drawn = np.array([[True], [False], [True]])
    color = PatchView(title="x", pixels=np.full((3, 1, 3), 7, np.uint8), drawn=drawn)
    ((_, first, second),) = view_rows([color], 80)
    assert [first, second] == [[("▀", "#070707")], [("▀", "#070707")]]
    below = PatchView(title="x", pixels=color.pixels, drawn=~drawn)
    ((_, first, second),) = view_rows([below], 80)
    assert [first, second] == [[("▄", "#070707")], [(" ", "")]]


def test_command_prints_lines_json_and_a_page(
    picture: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert run(["hide", "mae-mini", picture, "--page", str(page)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["picture", "seen", "asked"]
    assert max(map(len, lines)) <= 80
    html = page.read_text()
    assert html.count("data:image/png;base64,") == 3
    assert "reads the 15 patches that are seen" in html
    assert run(["hide", "mae-mini", picture, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["patch_size"] == 4
    assert np.sum(record["hidden"]) == 49


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("vit-gpt2-mini", "each token attends to all patches of the picture, too"),
        ("clip-mini", "text label its picture, among those of the batch"),
    ],
)
def test_captions_say_what_their_picture_is(
    model: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(module, "TOKENIZER_SAMPLE_CHARACTERS", 50_000)
    monkeypatch.setattr(module, "MAX_SAMPLE_VOCAB_SIZE", 600)
    assert message in " ".join(hide(model, "a dog runs").to_text().split())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["vit-mini", "a dog"], "a dog: no such picture, and vit-mini reads pictures"),
        (["bert-mini", "a dog", "--page", "x.html"], "page shows pictures, and bert-mini reads"),
        (["vit-gpt2-mini", "PICTURE"], "nothing of a picture is hidden; give a caption"),
        (["vit-mini", "PICTURE", "--language", "de"], "vit-mini reads pictures, not texts"),
    ],
)
def test_what_is_no_picture_of_the_model_is_one_line(
    line: list[str], message: str, picture: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [picture if word == "PICTURE" else word for word in line]
    assert run(["hide", *given]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert "\n" not in error
