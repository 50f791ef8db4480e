"""A small valid file for each reader of `readers.BY_READER`, to be damaged."""

import gzip
import io
import json
import lzma
import struct
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import attacks_on_models as models
import attacks_on_texts as texts
import attacks_on_tokenizers as tokenizers
import numpy as np
import pickles
import torch
from attack import written
from PIL import Image
from safetensors.torch import save

Make = Callable[[Path], object]
ROWS = [{"text": f"the king {i}", "label": ("a", "b")[i % 2]} for i in range(6)]
CSV = "text,label\n" + "".join(f'"the, ""king"" {i}",{"ab"[i % 2]}\n' for i in range(6))
JSONL = "".join(json.dumps(row) + "\n" for row in ROWS)
CONLL = (
    "# id = 1\n1\tthe\tthe\tDET\t_\t_\t2\tdet\t_\t_\n2\tking\tking\tNOUN\t_\t_\t0\troot\t_\t_\n\n"
    * 3
)
WORDS = "the O\nking B-PER\n\nher O\nsea B-LOC\n\n"
VECTORS = "3 4\nthe 1 2 3 4\nking 0.5 -1 2e-3 1\nsea 4 3 2 1\n"
TOML = 'model = "bert-tiny"\nvocab_size = 400\n[architecture]\nd_model = 16\n'
FILES = 'files = [{train = "a.tsv", text = ["t"], label = "l"}]\n'
SUITE = f'[[benchmarks]]\nname = "a"\ntask = "classify"\n{FILES}'
TENSORS = {"a": torch.arange(4.0), "b.weight": torch.ones(2, 3)}


def _torch(path: Path) -> object:
    return torch.save(TENSORS, path)


def _zstd(data: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor().compress(data)


def _parquet(path: Path) -> object:
    import pyarrow
    from pyarrow import parquet

    file = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), file)
    data = file.getvalue()
    return path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def _picture(kind: str) -> bytes:
    file = io.BytesIO()
    pixels = np.arange(16 * 16 * 3, dtype=np.uint8).reshape(16, 16, 3)
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def _picture_zip(path: Path) -> object:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("a/1.png", "b/2.png"):
            archive.writestr(name, _picture("PNG"))
    return path


def _picture_parquet(path: Path) -> object:
    import pyarrow
    from pyarrow import parquet

    rows = [{"image": {"bytes": _picture("PNG"), "path": "a.png"}, "label": i} for i in range(3)]
    return parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def _picture_table(text: str, path: Path) -> object:
    (path.parent / "a.png").write_bytes(_picture("PNG"))
    return path.write_text(text)


def _npz(path: Path) -> object:
    images = np.zeros((3, 8, 8), np.uint8)
    return np.savez_compressed(path, images=images, labels=np.arange(3))


def _idx() -> bytes:
    return struct.pack(">4I", 2051, 2, 4, 4) + bytes(32)


def _word2vec() -> bytes:
    rows = b"".join(
        word + b" " + struct.pack("<4f", 1, 2, 3, 4) + b"\n" for word in (b"the", b"king", b"sea")
    )
    return b"3 4\n" + rows


def _fasttext() -> bytes:
    """Return a model of two words, four dimensions and eight buckets."""
    head = struct.pack("<2i12id", 793712314, 12, 4, 5, 5, 1, 5, 1, 1, 2, 8, 3, 6, 100, 1e-4)
    words = b"".join(word + b"\0" + struct.pack("<qb", 5, 0) for word in (b"the", b"king"))
    table = struct.pack("<3i2q", 2, 2, 0, 10, -1) + words
    inputs = b"\0" + struct.pack("<2q", 10, 4) + np.ones((10, 4), "<f4").tobytes()
    return head + table + inputs + b"\0" + struct.pack("<2q", 2, 4) + bytes(32)


def _llama() -> bytes:
    width, hidden, layers, rows, length = 4, 8, 1, 5, 4
    n = rows * width + layers * (2 * width + 4 * width**2 + 3 * width * hidden) + width + length * 2
    return struct.pack("<7i", width, hidden, layers, 2, 2, rows, length) + bytes(4 * n)


def _elmo(path: Path) -> object:
    import h5py

    with h5py.File(path.parent / "weights.hdf5", "w") as file:
        file.create_dataset("char_embed", (261, 4), "f4")
    return path.write_text(json.dumps(models.ELMO))


def _merges(path: Path) -> object:
    from unmask.tokenizers.pipeline import byte_characters

    pieces = [*byte_characters(), "th", "the", "<|endoftext|>"]
    (path.parent / "vocab.json").write_text(json.dumps({p: i for i, p in enumerate(pieces)}))
    return path.write_text("#version: 0.2\nt h\nth e\n")


def _index(path: Path) -> object:
    (path.parent / "x.safetensors").write_bytes(save(TENSORS))
    return path.write_bytes(models.index(dict.fromkeys(TENSORS, "x.safetensors")))


PAIRS = {"prompt": "the king", "chosen": "is old", "rejected": "sea"}
LOG = '{"step": 1, "loss": 3.5}\n{"step": 2, "loss": 3.25, "evaluation": {"loss": 3}}\n'
PROCESSOR = {
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5] * 3,
    "size": {"height": 8, "width": 8},
    "do_resize": True,
    "do_normalize": True,
    "resample": 2,
    "rescale_factor": 1 / 255,
}
TEMPLATE = "{% for m in messages %}<{{ m['role'] }}>{{ m['content']|trim }}</s>{% endfor %}"
VALID: dict[str, Make] = {
    "rows of .tsv": written("text\tlabel\nthe king\ta\nthe sea\tb\n"),
    "rows of .csv": written(CSV),
    "rows of .json": written(json.dumps(ROWS)),
    "rows of .jsonl": written(JSONL),
    "rows of .ndjson": written(JSONL),
    "rows of .parquet": _parquet,
    "rows of .txt": written("a\tb\n1\t2\n"),
    "rows of .conll": written(WORDS),
    "rows of .conllu": written(CONLL),
    "rows of .tsv.gz": written(gzip.compress(b"a\tb\n1\t2\n")),
    "rows of .csv.xz": written(lzma.compress(CSV.encode())),
    "rows of .jsonl.zst": lambda path: path.write_bytes(_zstd(JSONL.encode())),
    "rows of .parquet.gz": _parquet,
    "tagged rows": written(WORDS),
    "documents of .tsv": written("text\tlabel\nthe king\ta\n"),
    "documents of .csv": written(CSV),
    "documents of .jsonl": written(JSONL),
    "documents of .parquet": _parquet,
    "documents of .txt": written("the king\n\nthe sea é中😀\n"),
    "documents of .txt.gz": written(gzip.compress(b"the king\n\nthe sea\n")),
    "documents of .txt.xz": written(lzma.compress(b"the king\n\nthe sea\n")),
    "documents of .txt.zst": lambda path: path.write_bytes(_zstd(b"the king\n\nthe sea\n")),
    "documents of .parquet.gz": _parquet,
    "pictures of .png": written(_picture("PNG")),
    "pictures of .jpg": written(_picture("JPEG")),
    "pictures of .tif": written(_picture("TIFF")),
    "pictures of .zip": _picture_zip,
    "pictures of .csv": partial(_picture_table, "file_name,label\na.png,a\n"),
    "pictures of .jsonl": partial(_picture_table, '{"file_name": "a.png", "label": "a"}\n'),
    "pictures of .parquet": _picture_parquet,
    "pictures of .npz": _npz,
    "pictures of -images-idx3-ubyte": written(_idx()),
    "pictures of -images-idx3-ubyte.gz": written(gzip.compress(_idx())),
    "preprocessing": written(json.dumps(PROCESSOR)),
    "JSON": written(json.dumps(ROWS)),
    "object": written(json.dumps(ROWS[0])),
    "TOML": written(TOML),
    "suite": written(SUITE),
    "recipe": written(TOML),
    "checkpoint": written('{"format": 2, "files": {}}'),
    "progress": written('{"step": 3}'),
    "tensors": written(save(TENSORS)),
    "pickled tensors": _torch,
    "array": partial(np.save, arr=np.arange(9.0)),
    "vectors": written(VECTORS),
    "packed vectors": written(gzip.compress(VECTORS.encode())),
    "fastText": written(_fasttext()),
    "dictionary": written("the le\nking roi\n"),
    "word pairs": written("the king 3.0\nking sea 2.0\n"),
    "ELMo's options": _elmo,
    "llama2.c": written(_llama()),
    "llama2.c weights": written(_llama()),
    "tokenizer": tokenizers.tokenizer("version", to="1.0"),
    "vocabulary": written("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\nking\n"),
    "merges": _merges,
    "SentencePiece": tokenizers.sentencepiece(tokenizers.message(*tokenizers.BASIC)),
    "model": models.model(),
    "weights index": _index,
    "packed weights": models.ATTACKS["packed, none"].make,
    "adapter": models.adapter(),
    "shards": models.shards(),
    "chat template": written(TEMPLATE),
    "spreadsheet of .xlsx": written(texts.spreadsheet(rows=texts.CELL.format("a") * 3)),
    "spreadsheet of .ods": written(
        texts.ods(texts.TABLE.format(texts.ROW.format(2, texts.ODS_CELL.format(2, "a"))))
    ),
    "preferences": written(json.dumps(PAIRS) + "\n"),
    "log": written(LOG),
    "series": written(LOG),
}
WORD2VEC = written(_word2vec())
LEGACY = written(
    pickles.legacy(pickles.table(pickles.tensor(pickles.storage(4, legacy=True), (4,), (1,))))
)
