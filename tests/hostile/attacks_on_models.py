"""Attacks by safetensors, configurations, adapters, shards and other files of a model's folder."""

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from attack import Attack, written

from unmask.bundled.models import BUNDLED_MODELS
from unmask.shards.manifest import folder_sha256

BUNDLED = BUNDLED_MODELS["unmask-mini-en"]
ONE = '"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}'
OVERLAP = f'{{{ONE},"b":{{"dtype":"F32","shape":[4],"data_offsets":[8,24]}}}}'
GAP = f'{{{ONE},"b":{{"dtype":"F32","shape":[1],"data_offsets":[20,24]}}}}'


def header(text: str | bytes, data: bytes = bytes(16)) -> bytes:
    """Return a safetensors file with a header and numbers."""
    encoded = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(encoded)) + encoded + data


def entry(
    shape: object = (4,), offsets: object = (0, 16), dtype: str = "F32", name: str = "a"
) -> bytes:
    """Return a safetensors file of one tensor."""
    told = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
    return header(json.dumps({name: told}))


SAFETENSORS: dict[str, bytes] = {
    "overlapping ranges": header(OVERLAP, bytes(24)),
    "a gap": header(GAP, bytes(24)),
    "one range of two tensors": header(OVERLAP.replace("[8,24]", "[0,16]")),
    "bytes after the last": entry() + bytes(100),
    "a negative size": entry([-4]),
    "a negative offset": entry(offsets=[-4, 12]),
    "offsets in the wrong order": entry(offsets=[16, 0]),
    "an offset beyond the end": entry([8], [0, 32]),
    "an overflowing size": entry([2**62, 4]),
    "an overflowing product": entry([2**32, 2**32, 4], [0, 16]),
    "a size of floats": entry([4.0]),
    "many axes": entry([1] * 100_000 + [4]),
    "an axis of zero and a huge one": entry([0, 2**63 - 1], [0, 0]),
    "an unknown type": entry(dtype="F33"),
    "a type of objects": entry(dtype="O"),
    "a name twice": header(f"{{{ONE},{ONE}}}"),
    "a key twice": header('{"a":{"dtype":"F32","dtype":"I32","shape":[4],"data_offsets":[0,16]}}'),
    "a header of a hundred million bytes": struct.pack("<Q", 10**8) + b"{}",
    "a header of 2^63 bytes": struct.pack("<Q", 2**63) + b"{}",
    "a deep header": header("[" * 100_000),
    "a header of spaces": header(" " * 10**6),
    "a header that is no text": header(b"\xff\xfe{}"),
    "a header that is a list": header("[]"),
    "metadata that is no text": header('{"__metadata__":{"unmask_checksum":3}}', b""),
    "metadata that are nested": header('{"__metadata__":{"a":{"b":"c"}}}', b""),
    "a wrong checksum": header('{"__metadata__":{"unmask_checksum":"00000001"}}', b""),
}
EMPTY_READ = ("an axis of zero and a huge one", "many axes")


def model(
    config: dict[str, Any] | str | None = None, **files: bytes | str
) -> Callable[[Path], object]:
    """Return what makes a copy of the bundled model with another configuration and other files."""

    def make(path: Path) -> object:
        folder = path.parent
        for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json"):
            (folder / name).symlink_to(BUNDLED / name)
        known = json.loads((BUNDLED / "config.json").read_text())
        text = config if isinstance(config, str) else json.dumps(known | (config or {}))
        (folder / "config.json").write_text(text)
        for name, data in files.items():
            target = folder / name.replace("__", ".")
            target.unlink(missing_ok=True)
            target.write_bytes(data.encode() if isinstance(data, str) else data)
        return folder

    return make


def _doubled_key(path: Path) -> object:
    text = (BUNDLED / "config.json").read_text().rstrip().removesuffix("}")
    return model(text + ', "hidden_size": 100000000}')(path)


REFUSED_CONFIGS: dict[str, dict[str, Any]] = {
    "a billion layers": {"num_hidden_layers": 10**9},
    "many layers": {"num_hidden_layers": 1000},
    "a negative size": {"hidden_size": -128},
    "a size of zero": {"hidden_size": 0},
    "not a number": {"hidden_size": float("nan")},
    "infinity": {"vocab_size": float("inf")},
    "a fraction": {"hidden_size": 128.5},
    "a text for a number": {"hidden_size": "128"},
    "a truth for a number": {"num_hidden_layers": True},
    "a list for a number": {"num_attention_heads": [2]},
    "a table for a number": {"num_attention_heads": {"a": 2}},
    "null for a number": {"hidden_size": None},
    "a huge integer": {"hidden_size": 10**400},
    "a huge vocabulary": {"vocab_size": 2**24},
    "a huge width": {"hidden_size": 2**24, "intermediate_size": 2**24},
    "many heads": {"num_attention_heads": 2**24},
    "long texts": {"max_position_embeddings": 2**24},
    "an unknown model": {"model_type": "../../x"},
    "a model that is no word": {"model_type": ["bert"]},
    "classes that are no words": {"architectures": {"a": 1}},
    "labels that are no numbers": {"id2label": {"__class__": "x"}},
    "an activation of Python": {"hidden_act": "__import__('os').system"},
    "a negative epsilon": {"layer_norm_eps": -1},
    "an infinite epsilon": {"layer_norm_eps": float("inf")},
    "a dropout of two": {"hidden_dropout_prob": 2},
}
CODE = {
    "auto_map": {"AutoModel": "evil--modeling.Evil", "AutoConfig": "../evil.Evil"},
    "trust_remote_code": True,
    "custom_pipelines": {"x": {"impl": "evil.Evil"}},
}
EVIL = "import os, pathlib\nos.mkdir(pathlib.Path(__file__).parent / 'pwned')\n"


def adapter(**changes: Any) -> Callable[[Path], object]:
    """Return what makes a LoRA adapter of PEFT's with other settings, for the bundled model."""
    return lambda path: _adapter(path, changes)


def _adapter(path: Path, changes: dict[str, Any]) -> object:
    name = "base_model.model.bert.encoder.layer.{}.attention.self.query.lora_{}.weight"
    shapes = {"A": (4, 192), "B": (192, 4)}
    numbers = {name.format(i, part): shape for i in range(4) for part, shape in shapes.items()}
    offset, told = 0, dict[str, Any]()
    for key, shape in numbers.items():
        end = offset + 4 * shape[0] * shape[1]
        told[key] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    config = {
        "peft_type": "LORA",
        "r": 4,
        "lora_alpha": 8,
        "target_modules": ["query"],
        "base_model_name_or_path": str(BUNDLED),
        "task_type": "FEATURE_EXTRACTION",
    }
    path.write_text(json.dumps(config | changes))
    return (path.parent / "adapter_model.safetensors").write_bytes(
        header(json.dumps(told), bytes(offset))
    )


def _pickled_adapter(path: Path) -> object:
    _adapter(path, {})
    (path.parent / "adapter_model.safetensors").rename(path.parent / "adapter_model.bin")
    return path


SLOW = r"((\w|\.)+)+$X"
IGNORED: dict[str, dict[str, Any]] = {
    "a pattern of modules that backtracks": {"target_modules": SLOW},
    "a pattern of modules that is none": {"target_modules": "("},
    "a pattern of many groups": {"target_modules": "(" * 5000 + ")" * 5000},
    "code of a stranger": {"auto_mapping": {"base_model_class": "Evil", "parent_library": "evil"}},
    "a base that leads out": {"base_model_name_or_path": "../../../../etc"},
    "a base of a device": {"base_model_name_or_path": "/dev/zero"},
}
"""What a file says beside its tensors, which alone are read."""
ADAPTERS: dict[str, dict[str, Any]] = {
    "a huge rank": {"r": 2**40},
    "a negative rank": {"r": -4},
    "a rank of floats": {"r": 4.5},
    "an infinite alpha": {"lora_alpha": float("inf")},
    "a rank by many wildcards": {"rank_pattern": {".*" * 12 + "X": 4}},
    "a rank by a pattern that is none": {"rank_pattern": {"(": 4}},
    "a rank by a counted pattern": {"rank_pattern": {"((a{1,9999}){1,9999}){1,9999}": 4}},
    "a rank by a pattern that backtracks": {"rank_pattern": {SLOW: 4}},
    "an alpha by a pattern that backtracks": {"alpha_pattern": {SLOW: 4}},
    "an unknown method": {"peft_type": "../LORA"},
    "a method that is no word": {"peft_type": ["LORA"]},
    "a prompt of billions": {"peft_type": "PROMPT_TUNING", "num_virtual_tokens": 2**40},
    "a prefix of billions": {
        "peft_type": "PREFIX_TUNING",
        "num_virtual_tokens": 2**40,
        "num_layers": 2**30,
        "token_dim": 2**30,
    },
    "layers that are no numbers": {"layers_to_transform": ["x"]},
    "a layer of billions": {"layers_to_transform": [2**70]},
}


def index(weight_map: object) -> bytes:
    """Return an index of weights in several files."""
    return json.dumps({"metadata": {"total_size": -1}, "weight_map": weight_map}).encode()


def _link(target: str) -> Callable[[Path], object]:
    def make(path: Path) -> object:
        (path.parent / "x.safetensors").symlink_to(target)
        return path.write_bytes(index({"a": "x.safetensors"}))

    return make


INDEXES: dict[str, object] = {
    "a path that leads out": {"a": "../../../etc/passwd"},
    "an absolute path": {"a": "/etc/passwd"},
    "a device": {"a": "/dev/zero"},
    "a backslash": {"a": "..\\..\\x.safetensors"},
    "the folder itself": {"a": "."},
    "a NUL": {"a": "x\0.safetensors"},
    "a long name": {"a": "x" * 5000},
    "a missing file": {"a": "y.safetensors"},
    "a list": ["a"],
    "a number": {"a": 3},
    "itself": {"a": "model.safetensors.index.json"},
}


def packed(record: object) -> Callable[[Path], object]:
    """Return what makes weights of few bits with a record of them."""

    def make(path: Path) -> object:
        path.write_text(json.dumps(record))
        told = {
            "a:codes": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]},
            "a:scale": {"dtype": "F32", "shape": [4, 1], "data_offsets": [8, 24]},
        }
        data = header(json.dumps(told), bytes(24))
        return (path.parent / "model.packed.safetensors").write_bytes(data)

    return make


def _packed(**changes: Any) -> Callable[[Path], object]:
    one = {"kind": "IntegerEncoding", "shape": [4, 4], "levels": 16} | changes
    return packed({"tensors": {"a": one}})


def shards(
    tokens: bytes = bytes(8), documents: tuple[int, ...] = (0, 4), **changes: Any
) -> Callable[[Path], object]:
    """Return what makes a folder of shards, with other values in its manifest."""

    def make(path: Path) -> object:
        folder = path.parent
        ends = np.array(documents, "<i8").tobytes()
        data = {"tokens": tokens, "marks": bytes(len(tokens) // 2), "documents": ends}
        for kind, content in data.items():
            (folder / f"00000.{kind}").write_bytes(content)
        shard: dict[str, Any] = {k: {"size": len(x), "sha256": ""} for k, x in data.items()}
        n, m = len(tokens) // 2, len(documents) - 1
        shard |= {
            "n_tokens": n,
            "n_documents": m,
            "n_bytes": 9,
            "n_documents_read": m,
            "source_sha256": "",
        }
        shard |= changes.pop("shard", {})
        (folder / "tokenizer").mkdir()
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(BUNDLED / name, folder / "tokenizer")
        manifest = {
            "format": 2,
            "tokenizer_sha256": folder_sha256(folder / "tokenizer"),
            "vocab_size": 100,
            "dtype": "uint16",
            "shard_tokens": 100,
            "n_tokens": n,
            "n_documents": m,
            "n_bytes": 9,
            "shards": [shard],
        }
        return path.write_text(json.dumps(manifest | changes))

    return make


def _pipe_for_a_tokenizer(path: Path) -> object:
    shards()(path)
    return os.mkfifo(path.parent / "tokenizer" / "vocab.txt")


def _tokenizer_elsewhere(path: Path) -> object:
    shards()(path)
    shutil.rmtree(path.parent / "tokenizer")
    return (path.parent / "tokenizer").symlink_to("/proc")


SHARDS = {
    "more tokens than bytes": shards(shard={"n_tokens": 2**62}, n_tokens=2**62),
    "negative counts": shards(shard={"n_tokens": -4}, n_tokens=-4),
    "documents that overlap": shards(documents=(0, 3, 2, 4)),
    "documents beyond the end": shards(documents=(0, 2**62)),
    "documents that overflow": shards(documents=(0, -(2**63), 2**63 - 1, 4)),
    "an unknown type": shards(dtype="object"),
    "a type of 2^70": shards(dtype=2**70),
    "shards that are no list": shards(shards={"a": 1}),
    "a vocabulary of billions": shards(vocab_size=2**70),
    "a tokenizer elsewhere": _tokenizer_elsewhere,
    "a tokenizer of a pipe": _pipe_for_a_tokenizer,
    "ids beyond the vocabulary": shards(tokens=b"\xff" * 8),
}


def _hdf5(path: Path) -> object:
    import h5py

    (path.parent / "options.json").write_text(json.dumps(ELMO))
    with h5py.File(path.parent / "weights.hdf5", "w") as file:
        file.create_dataset(
            "char_embed", (10**6, 10**6), "f4", chunks=(1000, 1000), compression="gzip"
        )
    return path


ELMO = {
    "lstm": {
        "dim": 32,
        "projection_dim": 8,
        "n_layers": 2,
        "cell_clip": 3,
        "proj_clip": 3,
        "use_skip_connections": True,
    },
    "char_cnn": {
        "embedding": {"dim": 4},
        "filters": [[1, 4], [2, 8]],
        "n_highway": 1,
        "activation": "relu",
        "n_characters": 262,
        "max_characters_per_token": 50,
    },
}


def _elmo(**changes: Any) -> Callable[[Path], object]:
    def make(path: Path) -> object:
        _hdf5(path)
        sizes = {key: value | changes.get(key, {}) for key, value in ELMO.items()}
        return path.write_text(json.dumps(sizes))

    return make


def _llama(*sizes: int) -> bytes:
    return struct.pack("<7i", *sizes)


def _many_layers(path: Path) -> object:
    """Make a file of llama2.c with a million layers of one number each, which is whole."""
    width, layers, vocab = 2, 2**20, 1
    n = vocab * width + layers * (2 * width + 4 * width * width + 3 * width) + width + 2 * 1 * 1
    return path.write_bytes(_llama(width, 1, layers, 1, 1, vocab, 1) + bytes(4 * n))


ATTACKS: dict[str, Attack] = {
    **{
        f"safetensors, {n}": Attack("tensors", written(x), harmless=n in EMPTY_READ)
        for n, x in SAFETENSORS.items()
    },
    **{f"config, {name}": Attack("model", model(x)) for name, x in REFUSED_CONFIGS.items()},
    "config, code of a stranger": Attack("model", model(CODE, modeling__py=EVIL), harmless=True),
    "config, a key twice": Attack("model", _doubled_key),
    "config, deep": Attack("model", model({"x": json.loads("[" * 199 + "]" * 199)}), harmless=True),
    "config, too deep": Attack("model", model('{"model_type":"bert","x":' + "[" * 9**6 + "}")),
    "config, many keys": Attack("model", model({f"k{i}": i for i in range(10**5)}), harmless=True),
    "config, a prototype": Attack(
        "model", model({"__proto__": {"x": 1}, "__class__": "x"}), harmless=True
    ),
    "model, weights of another": Attack("model", model(model__safetensors=SAFETENSORS["a gap"])),
    "model, a tokenizer of another": Attack("model", model(tokenizer__json='{"version":"1.0"}')),
    "adapter, none": Attack("adapter", adapter(), harmless=True),
    **{f"adapter, {n}": Attack("adapter", adapter(**x), harmless=True) for n, x in IGNORED.items()},
    "shards, none": Attack("shards", shards(), harmless=True),
    **{f"adapter, {name}": Attack("adapter", adapter(**x)) for name, x in ADAPTERS.items()},
    "adapter, pickled": Attack("adapter", _pickled_adapter),
    **{f"index, {n}": Attack("weights index", written(index(x))) for n, x in INDEXES.items()},
    "index, a link that loops": Attack("weights index", _link("x.safetensors")),
    "index, a link to a device": Attack("weights index", _link("/dev/zero")),
    "packed, none": Attack("packed weights", _packed(), harmless=True),
    "packed, a huge shape": Attack("packed weights", _packed(shape=[2**40, 2**20])),
    "packed, a negative shape": Attack("packed weights", _packed(shape=[-4, 4])),
    "packed, unknown levels": Attack("packed weights", _packed(levels=5)),
    "packed, a huge group": Attack("packed weights", _packed(group=2**70)),
    "packed, many zeros": Attack(
        "packed weights",
        packed(
            {"tensors": {"a": {"kind": "SparseEncoding", "n_kept": 0, "shape": [2**20, 2**20]}}}
        ),
    ),
    **{f"shards, {name}": Attack("shards", make) for name, make in SHARDS.items()},
    "HDF5, an array that is not there": Attack("ELMo", _hdf5),
    "HDF5, many layers": Attack("ELMo", _elmo(lstm={"n_layers": 10**9})),
    "HDF5, a huge width": Attack("ELMo", _elmo(lstm={"dim": 2**62, "projection_dim": 2**60})),
    "llama2.c, negative": Attack("llama2.c", written(_llama(-4, 1, 1, 1, 1, 1, 1)), harmless=True),
    "llama2.c, overflowing": Attack(
        "llama2.c", written(_llama(2**20, 2**20, 2**20, 1, 1, 2**20, 2**20)), harmless=True
    ),
    "llama2.c, many layers": Attack("llama2.c weights", _many_layers),
}
