"""Records of pictures from folders, archives, tables, Parquet and arrays."""

import gzip
import io
import json
import lzma
import os
import pickle
import stat
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from making_pictures import encoded, gradient, write_files, write_zip

from unmask.images.decode import decode_images
from unmask.images.formats import picture_files
from unmask.images.formats.picture_files import FolderFiles, ZipFiles
from unmask.images.records import ImageColumns, ImageRecord
from unmask.images.sources import read_images

SHARED = Path(__file__).parents[3] / "shared/data"
PICTURE = encoded(gradient())
BY_CLASS = {"cat/1.png": PICTURE, "cat/b/2.JPG": PICTURE, "dog/1.png": PICTURE, "0.png": PICTURE}
LABELS = [("0.png", None), ("cat/1.png", "cat"), ("cat/b/2.JPG", "cat"), ("dog/1.png", "dog")]


def names_and_labels(records: Sequence[ImageRecord]) -> list[tuple[str, str | None]]:
    return [(record.name, record.label) for record in records]


def load_all(source: Path, columns: ImageColumns | None) -> None:
    for record in read_images(source, columns):
        record.load()


def fails(source: Path, *parts: str, columns: ImageColumns | None = None) -> None:
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        load_all(source, columns)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


# Folders and archives


def test_first_folder_is_the_label(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_files(tmp_path / "all", {**BY_CLASS, "notes.txt": b"", ".x/3.png": PICTURE})
    found = list(read_images(folder))
    assert names_and_labels(found) == LABELS
    assert found[1].location == str(folder / "cat/1.png")
    assert found[1].load() == PICTURE
    assert "no pictures are not read: 'notes.txt'" in caplog.text
    archive = write_zip(
        tmp_path / "a.zip", {**BY_CLASS, "__MACOSX/cat/1.png": b"", "notes.txt": b""}
    )
    found = list(read_images([archive]))
    assert names_and_labels(found) == LABELS
    assert found[1].location == f"{archive}: cat/1.png"
    assert found[1].load() == PICTURE
    assert len(list(read_images([folder, archive]))) == 8


def test_folder_that_holds_all_classes_of_an_archive_is_no_label(tmp_path: Path) -> None:
    wrapped = {f"set/{name}": data for name, data in BY_CLASS.items() if "/" in name}
    found = list(read_images(write_zip(tmp_path / "a.zip", wrapped)))
    assert [record.label for record in found] == ["cat", "cat", "dog"]
    found = list(read_images(write_files(tmp_path / "b", wrapped)))
    assert {record.label for record in found} == {"set"}
    one = write_zip(tmp_path / "c.zip", {"cat/1.png": PICTURE, "cat/2.png": PICTURE})
    assert {record.label for record in read_images(one)} == {"cat"}


def test_single_pictures_and_patterns(tmp_path: Path) -> None:
    write_files(tmp_path, BY_CLASS)
    assert names_and_labels(list(read_images(tmp_path / "0.png"))) == [("0.png", None)]
    assert len(list(read_images(str(tmp_path / "*/*.png")))) == 2
    for source, message in (
        ("", "no name"), ("x.png", "no such file"), ("x*.png", "no file matches"),
    ):  # fmt: skip
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            read_images(source)
    with pytest.raises(ValueError, match="no pictures were named"):
        read_images([])
    fails(tmp_path / "0.png", "has no columns", columns=ImageColumns(label="x"))
    fails(write_files(tmp_path / "e", {"a.txt": b""}) / "a.txt", "an unknown ending")
    fails(tmp_path / "e", "no picture in it", "'a.txt'")


def with_member(path: Path, info: zipfile.ZipInfo, method: int = zipfile.ZIP_STORED) -> Path:
    info.compress_type = method
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(info, PICTURE)
    return path


def test_hostile_archives_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.zip"
    for name in ("../a.png", "/a.png", "x/../../a.png", "C:/a.png"):
        fails(write_zip(path, {name: PICTURE}), f"a.zip: member '{name}' leads out of the archive")
    link = zipfile.ZipInfo("a.png")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    fails(with_member(path, link), "a.zip: a.png: a link")
    fails(with_member(path, zipfile.ZipInfo("a.png"), zipfile.ZIP_LZMA), "packed by method 14")
    data = write_zip(path, {"a.png": PICTURE}).read_bytes()
    at = data.rindex(b"PK\1\2")
    path.write_bytes(data[: at + 8] + b"\1" + data[at + 9 :])
    fails(path, "a.zip: a.png: encrypted")
    path.write_bytes(data.replace(b"a.png", b"b.png").replace(b"PK\1\2", b"PK\1\3"))
    fails(path, "a.zip: damaged, or not a zip archive")
    path.write_bytes(data[: len(data) // 2])
    fails(path, "a.zip: damaged, or not a zip archive")
    path.write_bytes(data[:60] + bytes([data[60] ^ 255]) + data[61:])
    fails(path, "a.zip: a.png: damaged")
    write_zip(path, {"a.png": PICTURE, "b.png": PICTURE})
    path.write_bytes(path.read_bytes().replace(b"b.png", b"a.png"))
    fails(path, "two members are called 'a.png'")
    monkeypatch.setattr(picture_files, "MAX_ENCODED_BYTES", 10)
    fails(write_zip(path, {"a.png": PICTURE}), "a.png: declares", "at most 10")
    fails(write_files(tmp_path / "f", {"a.png": PICTURE}), "a.png: has", "at most 10")


def test_declared_sizes_of_an_archive_are_compared(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"a.png": PICTURE}, zipfile.ZIP_STORED)
    data, at = path.read_bytes(), path.read_bytes().rindex(b"PK\1\2")
    more = struct.pack("<2I", len(PICTURE) + 500, len(PICTURE) + 500)
    path.write_bytes(data[: at + 20] + more + data[at + 28 :])
    fails(path, "its members declare", "they overlap, or it is truncated")
    less = struct.pack("<2I", len(PICTURE), len(PICTURE) + 9)
    path.write_bytes(data[: at + 20] + less + data[at + 28 :])
    fails(path, "a.zip: a.png: damaged: it has")


def test_archive_opens_anew_in_another_process(tmp_path: Path) -> None:
    files = ZipFiles(write_zip(tmp_path / "a.zip", {"a.png": PICTURE}))
    assert pickle.loads(pickle.dumps(files)).read("a.png") == PICTURE
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, b"1" if files.read("a.png") == PICTURE else b"0")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 1) == b"1"
    os.close(read)
    os.close(write)
    with pytest.raises(FileNotFoundError, match=r"no member 'b.png'"):
        files.read("b.png")
    with pytest.raises(ValueError, match="must be the name of a file within it"):
        FolderFiles(tmp_path).read("../a.png")


# Tables


CAPTIONS = (
    "image\tsplit\tn\tcaption\na.png\ttrain\t0\tone cat\nb.png\tdev\t0\ta dog\n"
    "a.png\ttrain\t1\ttwo\n"
)


def test_rows_of_a_picture_are_its_captions(tmp_path: Path) -> None:
    pictures = {"a.png": PICTURE, "b.png": encoded(gradient(seed=1))}
    write_files(tmp_path, {"t.tsv.xz": lzma.compress(CAPTIONS.encode())})
    write_zip(tmp_path / "x.zip", pictures)
    write_zip(tmp_path / "other.zip", {"c.png": PICTURE})
    a, b = read_images(tmp_path / "t.tsv.xz")
    assert (a.name, a.captions, a.label) == ("a.png", ("one cat", "two"), None)
    assert a.columns == {"split": "train"}
    assert b.columns == {"split": "dev", "n": "0"}
    assert a.location == f"{tmp_path / 'x.zip'}: a.png"
    assert b.load() == pictures["b.png"]
    where = ImageColumns(where={"split": "dev"})
    assert [r.name for r in read_images(tmp_path / "t.tsv.xz", where)] == ["b.png"]
    fails(
        tmp_path / "t.tsv.xz",
        "no row with split = 'x'",
        columns=ImageColumns(where={"split": "x"}),
    )
    write_zip(tmp_path / "y.zip", pictures)
    fails(tmp_path / "t.tsv.xz", "'a.png' is in x.zip and y.zip", "(pictures)")
    found = read_images(tmp_path / "t.tsv.xz", pictures=tmp_path / "y.zip")
    assert next(found).location == f"{tmp_path / 'y.zip'}: a.png"
    write_files(tmp_path, pictures)
    assert next(read_images(tmp_path / "t.tsv.xz")).location == str(tmp_path / "a.png")


def test_labels_and_captions_of_other_tables(tmp_path: Path) -> None:
    rows = [
        {"file_name": "s/a.png", "class": 3, "captions": ["x", " ", "y"]},
        {"file_name": "b.png", "class": 3.0, "captions": []},
        {"file_name": "c.png", "class": None, "captions": None},
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    files = {"s/a.png": PICTURE, "b.png": PICTURE, "c.png": PICTURE, "metadata.jsonl": lines}
    for source in (write_files(tmp_path / "f", files), write_zip(tmp_path / "a.zip", files)):
        found = list(read_images(source))
        assert [(r.label, r.captions) for r in found] == [("3", ("x", "y")), ("3", ()), (None, ())]
        assert all(record.load() == PICTURE for record in found)
    inner = write_zip(tmp_path / "b.zip", {f"top/{name}": data for name, data in files.items()})
    assert [r.name for r in read_images(inner)] == ["top/s/a.png", "top/b.png", "top/c.png"]
    table = "path,caption_0,caption_1,kind\nb.png,one,two,big\n"
    path = write_files(tmp_path / "f", {"t.csv": table.encode()}) / "t.csv"
    (record,) = read_images(path)
    assert (record.captions, record.columns) == (("one", "two"), {"kind": "big"})
    named = ImageColumns(image="path", label="kind", captions=("caption_1",))
    (record,) = read_images(path, named)
    assert (record.captions, record.label) == (("two",), "big")


TABLES = {
    "x,y\n1,2\n": "which column names the picture? None is called 'image'",
    "image,label,label\na.png,1,2\n": "several columns 'label'",
    "image,label\na.png,1\na.png,2\n": "t.csv:3: 'a.png' has the label '2', and '1' at line 2",
    "image,label\n,1\n": "t.csv:2: 'image' must be the name of a picture, got str ''",
    "image\n": "no row names a picture",
    "image\nno.png\n": "no picture 'no.png' in",
    "image\n../a.png\n": "no picture '../a.png' in",
    "image\na.png\n../a.png\n": "'../a.png' must be the name of a file within it",
    "image\na.png\nno.png\n": "no.png: no such file",
}


@pytest.mark.parametrize("table", TABLES)
def test_mistake_of_a_table_is_named_with_its_line(table: str, tmp_path: Path) -> None:
    write_files(tmp_path / "f", {"a.png": PICTURE, "t.csv": table.encode()})
    write_files(tmp_path, {"a.png": PICTURE})
    fails(tmp_path / "f/t.csv", TABLES[table])


def test_mistake_of_a_table_in_an_archive_names_both(tmp_path: Path) -> None:
    files = {"a.png": PICTURE, "t.csv": b"image,label\na.png\n"}
    fails(write_zip(tmp_path / "a.zip", files), f"{tmp_path / 'a.zip'}: t.csv:2: 1 field")
    files |= {"u.csv": b""}
    fails(write_zip(tmp_path / "a.zip", files), "several tables", "'t.csv', 'u.csv'")
    assert ImageColumns(label="no") != ImageColumns()
    path = write_files(tmp_path / "f", {"a.png": PICTURE, "t.csv": b"image\na.png\n"}) / "t.csv"
    fails(path, "no column 'no', only 'image'", columns=ImageColumns(label="no"))


# Parquet


def test_parquet_of_the_hub(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    image = [{"bytes": PICTURE, "path": "a.png"}, {"bytes": None, "path": "/etc/passwd"}]
    features = {
        "image": {"_type": "Image"},
        "label": {"_type": "ClassLabel", "names": ["cat", "dog"]},
    }
    meta = {"huggingface": json.dumps({"info": {"features": features}})}
    table = pyarrow.table(
        {"id": [5, 6], "image": image, "label": [1, -1], "caption": [["x", "y"], []]}
    )
    path = tmp_path / "train-00000.parquet"
    parquet.write_table(table.replace_schema_metadata(meta), path)
    for source in (path, tmp_path, str(tmp_path / "*.parquet")):
        a, b = read_images(source)
        assert (a.label, a.captions, a.load()) == ("dog", ("x", "y"), PICTURE)
        assert (a.name, a.location) == ("a.png", f"{path}:1: a.png")
        assert (b.label, b.captions) == (None, ())
        with pytest.raises(
            ValueError, match=r"train-00000.parquet:2: no bytes of a picture, got None"
        ):
            b.load()
    columns = ImageColumns(where={"id": "5"})
    assert [r.columns for r in read_images(path, columns)] == [{"id": "5"}]
    parquet.write_table(pyarrow.table({"img": [PICTURE], "n": [1]}), path)
    (record,) = read_images(path)
    assert record.load() == PICTURE
    fails(
        path, "column 'n' must be a struct with 'bytes', or binary", columns=ImageColumns(image="n")
    )
    parquet.write_table(pyarrow.table({"image": ["a.png"]}), path)
    fails(path, "no column of pictures")
    path.write_bytes(b"PAR1 and more that is none")
    fails(path, "damaged, or not Parquet")


# Arrays


def idx(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


PIXELS = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_and_their_labels(packed: bool, tmp_path: Path) -> None:
    pack, end = (gzip.compress, ".gz") if packed else (bytes, "")
    path = tmp_path / f"t10k-images-idx3-ubyte{end}"
    path.write_bytes(pack(idx(PIXELS)))
    assert [record.label for record in read_images(path)] == [None, None]
    labels = tmp_path / f"t10k-labels-idx1-ubyte{end}"
    labels.write_bytes(pack(idx(np.array([7, 0], np.uint8))))
    found = list(read_images(path))
    assert [(r.label, r.location) for r in found] == [("7", f"{path}:1"), ("0", f"{path}:2")]
    assert [np.array_equal(r.load(), PIXELS[i]) for i, r in enumerate(found)] == [True, True]
    labels.write_bytes(pack(idx(np.zeros(3, np.uint8))))
    fails(path, "3 labels, but", "has 2 pictures")
    labels.unlink()
    for data, message in (
        (idx(PIXELS)[:-1], "truncated"), (idx(PIXELS) + b"x", "damaged"), (b"", "not an IDX file"),
        (b"\0\0\x0d\3" + idx(PIXELS)[4:], "not an IDX file"), (idx(PIXELS)[:9], "truncated"),
        (b"\0\0\x08\3" + b"\xff" * 12, "truncated or damaged"),
        (idx(PIXELS[:0]), "it holds nothing"),
        (idx(np.zeros((2, 0, 9), np.uint8)), "it holds nothing"),
    ):  # fmt: skip
        path.write_bytes(pack(data))
        fails(path, str(path), message)


def npz(path: Path, **arrays: np.ndarray) -> Path:
    np.savez_compressed(path, **arrays)  # pyright: ignore
    return path


def test_npz_of_pictures_and_labels(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    npz(path, images=PIXELS, labels=np.array([[3], [1]]))
    found = list(read_images(path))
    assert [record.label for record in found] == ["3", "1"]
    assert [np.array_equal(r.load(), PIXELS[i]) for i, r in enumerate(found)] == [True, True]
    npz(path, x_train=PIXELS, y_train=np.array(["cat", "dog"]))
    named = ImageColumns(image="x_train", label="y_train")
    assert [record.label for record in read_images(path, named)] == ["cat", "dog"]
    fails(path, "which array holds the pictures? None is called 'images', only 'x_train'")
    fails(path, "no array 'z'", columns=ImageColumns(image="z"))
    fails(path, "no captions", columns=ImageColumns(captions=("z",)))


def test_other_arrays_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    for arrays, message in (
        ({"images": PIXELS.astype(float)}, "pictures must be uint8"),
        ({"images": PIXELS[0]}, "pictures must be uint8"),
        ({"images": PIXELS[:0]}, "pictures must be uint8"),
        ({"images": np.array([{}, {}])}, "holds objects"),
        ({"images": np.asfortranarray(PIXELS)}, "Fortran order"),
        ({"images": PIXELS, "labels": np.zeros(3, int)}, "3 labels in 'labels', but 2 pictures"),
        ({"images": PIXELS, "labels": np.zeros(2)}, "labels must be whole numbers or strings"),
    ):
        fails(npz(path, **arrays), "a.npz", message)
    file = io.BytesIO()
    np.save(file, PIXELS)
    for data, message in (
        (file.getvalue()[:-1], "truncated or damaged"),
        (file.getvalue().replace(b"(2, 3, 4)", b"(9, 3, 4)"), "truncated or damaged"),
        (b"\x93NUMPY\x01\0v\0{'descr': ", "damaged"),
        (b"", "damaged"),
    ):
        fails(write_zip(path, {"images.npy": data}), "a.npz: array 'images'", message)
    path.write_bytes(b"\x80\x04\x95")
    fails(path, "a.npz: damaged, or not a zip archive")


# Public data


def shared(name: str) -> Path:
    if not (SHARED / name).exists():
        pytest.skip("needs ../shared")
    return SHARED / name


def test_flickr8k_has_five_captions_a_picture() -> None:
    table = shared("flickr8k_images/captions.tsv.xz")
    found = list(read_images(table, ImageColumns(where={"split": "test"})))
    assert len(found) == 1000
    assert {len(record.captions) for record in found} == {5}
    _, pixels = next(decode_images(found))
    assert pixels.shape == (96, 96, 3)
    archive = table.parent / "images_96.zip"
    assert sum(1 for _ in read_images(archive)) == 8091


def test_mnist_and_cifar_have_ten_classes() -> None:
    images = shared("mnist_test/t10k-images-idx3-ubyte.gz")
    found = [(r.label, np.asarray(r.load()).shape) for r in read_images(images)]
    assert len(found) == 10_000
    assert found[:3] == [("7", (28, 28)), ("2", (28, 28)), ("1", (28, 28))]
    records = list(read_images(shared("cifar10_sample/test.npz")))
    assert len(records) == 1000
    assert {record.label for record in records} == {str(i) for i in range(10)}
