"""Bundled pictures: whole, small, licensed, and read by name wherever pictures are."""

import csv
import io
import zipfile
from collections import Counter
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from unmask.bundled.demo import BUNDLED_PICTURES, bundled_pictures
from unmask.cli import main as cli
from unmask.images.decode import decode_images
from unmask.images.records import ImageColumns
from unmask.images.sources import read_images

NAMES = sorted(BUNDLED_PICTURES)


@pytest.mark.parametrize("name", NAMES)
def test_all_are_read_and_small(name: str) -> None:
    path = Path(bundled_pictures(f"demo:{name}"))
    assert path.stat().st_size < 600_000
    decoded = list(decode_images(read_images(f"demo:{name}")))
    assert len(decoded) == 360
    assert {pixels.shape for _, pixels in decoded} == {(32, 32, 3)}
    assert all(len(record.captions) == 1 and record.captions[0] for record, _ in decoded)
    assert len({record.captions for record, _ in decoded}) == 360
    assert len({pixels.tobytes() for _, pixels in decoded}) == 360
    labels = Counter(record.label for record, _ in decoded)
    assert labels == dict.fromkeys(
        ("smileys", "nature", "food", "places", "activities", "objects"), 60
    )
    corners = np.stack([pixels[0, 0] for _, pixels in decoded])
    assert (corners == 255).all(1).mean() > 0.9, "they are drawn on white"


@pytest.mark.parametrize(
    ("language", "name"),
    [("de", "Trauben"), ("fr", "raisin"), ("es", "uvas"), ("caption", "grapes")],
)
def test_names_are_in_four_languages(language: str, name: str) -> None:
    records = read_images("demo:emoji", ImageColumns(captions=(language,)))
    grapes = next(record for record in records if record.name.endswith("1f347.png"))
    assert grapes.captions == (name,)
    assert grapes.label == "food"


def test_a_fifth_of_each_group_is_for_testing() -> None:
    with zipfile.ZipFile(bundled_pictures("demo:emoji")) as archive:
        table = io.StringIO(archive.read("metadata.csv").decode())
    splits = Counter((row["label"], row["split"]) for row in csv.DictReader(table))
    assert set(splits.values()) == {48, 12}
    some = list(read_images("demo:emoji", ImageColumns(where={"split": "test"})))
    assert len(some) == 72


def test_licenses_are_beside_them() -> None:
    text = (files("unmask.bundled.demo") / "LICENSE-emoji").read_text(encoding="utf-8")
    assert "Copyright (c) Microsoft Corporation" in text
    assert "UNICODE LICENSE V3" in text


def test_other_names_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    status = cli.run(["pretrain", "vit-mini", "--data", "demo:dogs", "--out", str(out)])
    assert status == 2
    assert capsys.readouterr().err == (
        "unmask: demo:dogs: no such bundled pictures, only demo:emoji\n"
    )
    assert not out.exists()
