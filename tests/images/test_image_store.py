"""The store: what is written is read, in any order; a part of one is refused."""

import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from making_pictures import encoded, gradient, write_files

from unmask.images.decode import DecodeSummary
from unmask.images.preprocessing import ImagePreprocessing
from unmask.images.records import ImageRecord
from unmask.images.sources import read_images
from unmask.images.store import ImageStore, sorted_labels, write_images

AS_IS = ImagePreprocessing(resize=None)


@pytest.fixture(autouse=True)
def _without_flushing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only for speed: what a killed process has written is there, flushed or not."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def records(n: int, height: int = 4, width: int = 5) -> list[ImageRecord]:
    return [
        ImageRecord(
            location=f"x:{i}",
            name=f"näme {i}",
            load=lambda i=i: encoded(gradient(height, width, seed=i)),
            label=(None, "10", "9")[i % 3],
            captions=("a", "zwei")[: i % 3],
            columns={"split": "train"},
        )
        for i in range(n)
    ]


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(n=st.integers(1, 9), per_file=st.integers(1, 4), data=st.data())
def test_pictures_are_read_in_any_order(
    n: int, per_file: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    out = tmp_path_factory.mktemp("store") / "out"
    store = write_images(records(n), out, AS_IS, file_bytes=per_file * 60)
    assert len(store) == n
    assert len(list(out.glob("*.pixels"))) == -(-n // per_file)
    order = data.draw(st.lists(st.integers(0, n - 1), max_size=12))
    wanted = [gradient(4, 5, seed=i) for i in order]
    assert np.array_equal(store.pixels(order), np.array(wanted).reshape(-1, 4, 5, 3))
    for i in order:
        one, record = store[i], records(n)[i]
        assert np.array_equal(one.pixels, gradient(4, 5, seed=i))
        assert (one.name, one.label, one.captions) == (record.name, record.label, record.captions)
        assert one.columns == {"split": "train"}
        assert store.captions(i) == record.captions
    assert [store.label_names[i] if i >= 0 else None for i in store.labels] == [
        record.label for record in records(n)
    ]


def test_store_is_a_sequence_that_can_be_sent(tmp_path: Path) -> None:
    store = write_images(records(4), tmp_path / "a/out", AS_IS)
    assert store.label_names == ("9", "10")
    assert [one.name for one in store] == [f"näme {i}" for i in range(4)]
    assert store[-1].name == "näme 3"
    again = pickle.loads(pickle.dumps(store))
    assert np.array_equal(again.pixels([3]), store.pixels([3]))
    assert repr(store).endswith("4 pictures (4, 5, 3))")
    for wrong in ([4], [-1]):
        with pytest.raises(IndexError, match="which has 4"):
            store.pixels(wrong)
    with pytest.raises(IndexError, match="picture 4 of 4"):
        store[4]
    assert store.pixels([]).shape == (0, 4, 5, 3)


def test_pictures_are_resized_and_of_one_size(tmp_path: Path) -> None:
    how = ImagePreprocessing(resize=6, crop=(6, 6), channels=1, mean=None, std=None)
    mixed = [*records(2, 9, 20), *records(2, 30, 7)]
    store = write_images(mixed, tmp_path / "a", how)
    assert store.pixels([0, 3]).shape == (2, 6, 6, 1)
    assert store.manifest.preprocessing == how
    with pytest.raises(ValueError, match="x:0: 7 x 30 pixels, but the first picture has 20 x 9"):
        write_images(mixed, tmp_path / "b", AS_IS)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_folder_appears_when_it_is_whole(tmp_path: Path) -> None:
    def interrupted() -> Iterator[ImageRecord]:
        yield from records(3)
        assert not (tmp_path / "out").exists()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_images(interrupted(), tmp_path / "out", AS_IS)
    with pytest.raises(ValueError, match="there are no pictures to write"):
        write_images([], tmp_path / "out", AS_IS)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError, match=r"out holds no stored pictures.*images\.json"):
        ImageStore.open(tmp_path / "out")


def test_finished_folder_is_used_again_only_for_the_same(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_images(records(3), out, AS_IS, made_from="three")
    assert len(write_images([], out, AS_IS, made_from="three")) == 3
    for words, how in (("four", AS_IS), ("three", ImagePreprocessing()), ("", AS_IS)):
        with pytest.raises(FileExistsError, match="is there already"):
            write_images(records(3), out, how, made_from=words)


def test_bad_pictures_are_counted(tmp_path: Path) -> None:
    bad = ImageRecord(location="bad.png", name="bad.png", load=lambda: b"no")
    with pytest.raises(ValueError, match=r"bad\.png: damaged"):
        write_images([*records(2), bad], tmp_path / "out", AS_IS)
    summary = DecodeSummary()
    store = write_images(
        [bad, *records(2)], tmp_path / "out", AS_IS, skip_bad=True, summary=summary
    )
    assert (len(store), store.manifest.n_skipped, summary.n_bad) == (2, 1, 1)


@pytest.mark.parametrize("name", ["00000.pixels", "labels", "records", "offsets", "images.json"])
def test_missing_truncated_or_changed_file_is_refused(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_images(records(3), out, AS_IS)
    ImageStore.open(out, verify_contents=True)
    path = out / name
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(ValueError, match=rf"{name}.* is damaged"):
        ImageStore.open(out, verify_contents=True)
    path.write_bytes(data[:-1] if name != "images.json" else data[:-5])
    with pytest.raises(ValueError, match=rf"{name}.* damaged"):
        ImageStore.open(out)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=name):
        ImageStore.open(out)


@pytest.mark.parametrize(
    "changes",
    [
        {"n_images": 10**9}, {"height": 9}, {"images_per_file": 0}, {"format": 99}, {"n_images": 0},
        {"width": 2**40}, {"pixels": []}, {"channels": 2}, {"more": 1},
    ],
)  # fmt: skip
def test_manifest_that_disagrees_is_refused_before_anything_is_built(
    changes: dict[str, object], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    write_images(records(3), out, AS_IS)
    path = out / "images.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(ValueError, match=r"images\.json"):
        ImageStore.open(out)


def test_damaged_labels_and_records_are_refused_when_read(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_images(records(3), out, AS_IS)
    (out / "labels").write_bytes(np.array([0, 7, 0], "<i4").tobytes())
    (out / "offsets").write_bytes(np.array([0, 10**9, 5, 9], "<i8").tobytes())
    store = ImageStore.open(out)
    with pytest.raises(ValueError, match="labels is damaged: labels from 0 to 7"):
        _ = store.labels
    with pytest.raises(ValueError, match="record 0 is damaged: it is from byte 0 to 1000000000"):
        store.captions(0)


def test_labels_of_folders_are_sorted(tmp_path: Path) -> None:
    files = {f"{name}/a.png": encoded(gradient()) for name in ("dog", "cat", "ant")}
    store = write_images(read_images(write_files(tmp_path / "in", files)), tmp_path / "out", AS_IS)
    assert store.label_names == ("ant", "cat", "dog")
    assert store.labels.tolist() == [0, 1, 2]
    assert sorted_labels(["10", "9", "-1"]) == ["-1", "9", "10"]
    assert sorted_labels(["10", "9", "a"]) == ["10", "9", "a"]
