"""Read and write the released layout of ELMo: options.json, and weights in an HDF5 file.

Its names and orders are those of bilm-tf (`bilm/model.py`, `bilm/training.py`; Peters et al. 2018,
arXiv:1802.05365). Nothing in an HDF5 file is executed, and external links are not followed.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from unmask.checkpoints.tensors import read_json_file
from unmask.config import to_dict
from unmask.files import parser_errors_as_value_error
from unmask.model.backbones.elmo import ElmoArchitecture
from unmask.model.layers.embeddings.character_cnn import N_CHARACTERS, CharacterCNN
from unmask.model.layers.feed_forward import ACTIVATIONS
from unmask.saved_format import write_record
from unmask.tokenizers.characters.byte_pipelines import word_byte_pipeline
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.spec import ELMO

if TYPE_CHECKING:
    import h5py

OPTIONS_FILE, WEIGHTS_FILE = "options.json", "lm_weights.hdf5"
MODEL_TYPE = "elmo"
_ACTIVATIONS = ("relu", "tanh")


def find_weights(folder: Path) -> Path | None:
    """Return the only .hdf5 file of a folder with an options.json of ELMo, or None.

    Of several, the one whose name ends in "weights.hdf5".
    """
    if not (folder / OPTIONS_FILE).is_file():
        return None
    paths = sorted(path for path in folder.glob("*.hdf5") if path.is_file())
    if len(paths) > 1:
        paths = [path for path in paths if path.name.endswith("weights.hdf5")]
    return paths[0] if len(paths) == 1 else None


def read_config(path: Path) -> dict[str, Any]:
    """Return the configuration of options.json in Unmask's format; there is no head.

    Raises:
        ValueError: it is damaged or unsupported.
    """
    options = path.parent / OPTIONS_FILE
    try:
        a = _parse_architecture(read_json_file(options))
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{options}: {reason} is missing or not a number") from None
    except ValueError as error:
        raise ValueError(f"{options}: {str(error).removeprefix(f'{options}: ')}") from None
    return {
        "model_type": MODEL_TYPE,
        "architectures": [MODEL_TYPE],
        "architecture": write_record(to_dict(a)),
    }


def read_weights(path: Path, architecture: ElmoArchitecture) -> dict[str, Tensor]:
    """Read the weights, by internal names.

    Raises:
        ModuleNotFoundError: h5py is not installed.
        ValueError: the file is damaged, or does not match its options.
    """
    with parser_errors_as_value_error(f"{path}: truncated or damaged", *_H5PY_ERRORS):
        file = _h5py().File(path, "r")
    with file:
        return {
            name: torch.from_numpy(x)
            for names, external_name, kind in _name_table(architecture)
            for name, x in zip(
                names, _to_internal(_read_array(file, external_name, path, kind), kind), strict=True
            )
        }


def elmo_tokenizer() -> Tokenizer:
    """Return the tokenizer of released weights: words separated by white space.

    The training texts had separated punctuation.
    """
    return Tokenizer(word_byte_pipeline(ELMO, split_punctuation=False), ELMO)


def write_elmo(folder: Path, architecture: ElmoArchitecture, weights: Mapping[str, Tensor]) -> None:
    """Write options.json and the weights to a folder; the caller makes it atomic.

    Raises:
        ModuleNotFoundError: h5py is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_format_options(architecture), indent=2)
    (folder / OPTIONS_FILE).write_text(text + "\n", encoding="utf-8")
    with _h5py().File(folder / WEIGHTS_FILE, "w") as file:
        for names, external_name, kind in _name_table(architecture):
            arrays = [weights[name].detach().float().cpu().numpy() for name in names]
            file[external_name] = _to_external(arrays, kind)


def _parse_architecture(options: Mapping[str, Any]) -> ElmoArchitecture:
    lstm, cnn = options["lstm"], options["char_cnn"]
    clip, activation = lstm.get("cell_clip"), cnn["activation"]
    if lstm.get("proj_clip") != clip:
        raise ValueError(f"cell_clip {clip} and proj_clip {lstm.get('proj_clip')} must be the same")
    if activation not in _ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(_ACTIVATIONS)}, got {activation!r}")
    if cnn["n_characters"] not in (N_CHARACTERS, N_CHARACTERS + 1):  # with one for padding
        raise ValueError(
            f"n_characters must be {N_CHARACTERS} or {N_CHARACTERS + 1}, got {cnn['n_characters']}"
        )
    projection, cells = lstm["projection_dim"], lstm["dim"]
    if not projection < cells:
        raise ValueError(f"projection_dim must be below dim {cells}, got {projection}")
    return ElmoArchitecture(
        d_model=2 * projection,
        embedding_size=projection,
        d_ff=2 * cells,
        n_layers=lstm["n_layers"],
        cell_clip=None if clip is None else float(clip),
        residual=bool(lstm.get("use_skip_connections", False)),
        character_cnn=CharacterCNN(
            character_embedding_size=cnn["embedding"]["dim"],
            filters=tuple((int(width), int(n)) for width, n in cnn["filters"]),
            n_highway_layers=cnn.get("n_highway") or 0,
            activation=activation,
            max_characters=cnn["max_characters_per_token"],
        ),
        dropout=0.1, input_dropout=0.1, final_dropout=0.1,
    )  # fmt: skip


def _format_options(a: ElmoArchitecture) -> dict[str, Any]:
    """Return the content of options.json.

    Raises:
        ValueError: the layout does not support the architecture.
    """
    s = a.character_cnn
    if s.activation not in _ACTIVATIONS or not a.projection or a.d_model >= a.d_ff:
        raise ValueError(
            "bilm-tf's layout needs LSTMs with a projection to a smaller width, and filters with "
            f"{' or '.join(_ACTIVATIONS)}: got projected = {a.projection}, d_model = {a.d_model}, "
            f"d_ff = {a.d_ff}, activation {s.activation!r} of {sorted(ACTIVATIONS)}"
        )
    return {
        "lstm": {
            "dim": a.d_ff // 2,
            "projection_dim": a.d_model // 2,
            "n_layers": a.n_layers,
            "cell_clip": a.cell_clip,
            "proj_clip": a.cell_clip,
            "use_skip_connections": a.residual,
        },
        "char_cnn": {
            "embedding": {"dim": s.character_embedding_size},
            "filters": [list(filter_) for filter_ in s.filters],
            "n_highway": s.n_highway_layers,
            "activation": s.activation,
            "n_characters": N_CHARACTERS + 1,
            "max_characters_per_token": s.max_characters,
        },
    }


_H5PY_ERRORS = (OSError, RuntimeError, KeyError, TypeError)
"""Errors of h5py for a damaged file, besides those of all parsers."""

WeightLayout = Literal["same", "transposed", "filters", "gates", "gate_biases"]


def _name_table(a: ElmoArchitecture) -> Iterator[tuple[tuple[str, ...], str, WeightLayout]]:
    """Yield internal names, the external name, and the layout."""
    prefix = "backbone.tokens"
    yield (f"{prefix}.characters.weight",), "char_embed", "same"
    for i in range(len(a.character_cnn.filters)):
        yield (f"{prefix}.filters.{i}.weight",), f"CNN/W_cnn_{i}", "filters"
        yield (f"{prefix}.filters.{i}.bias",), f"CNN/b_cnn_{i}", "same"
    for i in range(a.character_cnn.n_highway_layers):
        for internal, external in (("carries", "carry"), ("transforms", "transform")):
            name = f"{prefix}.highways.{i}.{internal}"
            yield (f"{name}.weight",), f"CNN_high_{i}/W_{external}", "transposed"
            yield (f"{name}.bias",), f"CNN_high_{i}/b_{external}", "same"
    yield (f"{prefix}.narrows.weight",), "CNN_proj/W_proj", "transposed"
    yield (f"{prefix}.narrows.bias",), "CNN_proj/b_proj", "same"
    for direction, layers in enumerate(("layers", "backward_layers")):
        for i in range(a.n_layers):
            name = f"backbone.{layers}.{i}"
            cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{i}/LSTMCell"
            yield (f"{name}.reads.weight", f"{name}.recalls.weight"), f"{cell}/W_0", "gates"
            yield (f"{name}.reads.bias",), f"{cell}/B", "gate_biases"
            yield (f"{name}.projects.weight",), f"{cell}/W_P_0", "transposed"


def _to_internal(x: np.ndarray, layout: WeightLayout) -> list[np.ndarray]:
    """Convert an external array to internal ones.

    The external gates are input, new, forget, output; 1 is added to the forget gate at use. Input
    and recurrent weights are in one matrix, and have the same width.
    """
    if layout == "filters":
        return [np.ascontiguousarray(x[0].transpose(2, 1, 0))]
    if layout == "transposed":
        return [np.ascontiguousarray(x.T)]
    if layout == "gate_biases":
        i, new, keep, out = np.split(x, 4)
        return [np.concatenate((i, keep + np.float32(1), new, out))]
    if layout == "gates":
        i, new, keep, out = np.split(x.T, 4)
        both = np.concatenate((i, keep, new, out))
        return [np.ascontiguousarray(half) for half in np.split(both, 2, 1)]
    return [x]


def _to_external(arrays: list[np.ndarray], layout: WeightLayout) -> np.ndarray:
    """Convert internal arrays to an external one."""
    x = np.concatenate(arrays, -1)
    if layout == "filters":
        return x.transpose(2, 1, 0)[None]
    if layout == "transposed":
        return x.T
    if layout == "gate_biases":
        i, keep, new, out = np.split(x, 4)
        return np.concatenate((i, new, keep - np.float32(1), out))
    if layout == "gates":
        i, keep, new, out = np.split(x, 4)
        return np.concatenate((i, new, keep, out)).T
    return x


_SMALL_ARRAY_BYTES, _MAX_COMPRESSION = 2**20, 32
"""Array size in bytes up to which any compression is accepted, and the maximum compression of
larger ones: weights hardly compress."""

_N_AXES: Mapping[WeightLayout, int] = {"transposed": 2, "filters": 4, "gates": 2, "gate_biases": 1}


def _read_array(file: "h5py.File", name: str, path: Path, layout: WeightLayout) -> np.ndarray:
    """Read a numeric array stored in this file.

    Raises:
        ValueError: it is missing or something else.
    """
    with parser_errors_as_value_error(path, *_H5PY_ERRORS):
        return _find_array(file, name, path, layout)


def _find_array(file: "h5py.File", name: str, path: Path, layout: WeightLayout) -> np.ndarray:
    node: Any = file
    for part in name.split("/"):
        if not isinstance(node, _h5py().Group) or part not in node:
            raise ValueError(f"{path}: lacks {name}")
        if not isinstance(node.get(part, getlink=True), _h5py().HardLink):
            raise ValueError(f"{path}: {name} is a link, which is not followed")
        node = node[part]
    if not isinstance(node, _h5py().Dataset) or node.dtype.kind != "f":
        raise ValueError(f"{path}: {name} must be an array of floating-point numbers")
    if node.external or node.is_virtual:
        raise ValueError(f"{path}: {name} is stored in another file, which is not read")
    has_wrong_gates = layout in ("gates", "gate_biases") and node.shape[-1:] and node.shape[-1] % 4
    if len(node.shape) != _N_AXES.get(layout, len(node.shape)) or has_wrong_gates:
        raise ValueError(f"{path}: {name} has shape {list(node.shape)}, which is invalid")
    stored, size = int(node.id.get_storage_size()), node.size * node.dtype.itemsize
    if size > max(_SMALL_ARRAY_BYTES, _MAX_COMPRESSION * stored):
        raise ValueError(
            f"{path}: {name} has shape {list(node.shape)}, of {size:,} bytes, but the file has "
            f"{stored:,}"
        )
    return np.asarray(node[()], np.float32)


def _h5py() -> Any:
    """Import h5py.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    try:
        import h5py
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "weights in HDF5 need h5py: pip install 'unmask[elmo]'", name="h5py"
        ) from None
    return h5py
