"""Read and write the released layout of ELMo: options.json, and weights in an HDF5 file.

Its names and orders are those of bilm-tf (`bilm/model.py`, `bilm/training.py`; Peters et al. 2018,
arXiv:1802.05365). HDF5 holds arrays and names, and nothing in a file is run; links that lead out of
it are not followed.
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
    """Return the one .hdf5 file of a folder that has an options.json of ELMo, if there is one.

    Of several, it is the one whose name ends in "weights.hdf5".
    """
    if not (folder / OPTIONS_FILE).is_file():
        return None
    found = sorted(folder.glob("*.hdf5"))
    if len(found) > 1:
        found = [path for path in found if path.name.endswith("weights.hdf5")]
    return found[0] if len(found) == 1 else None


def read_config(path: Path) -> dict[str, Any]:
    """Say in our words what options.json says beside the weights, which have no head.

    Raises:
        ValueError: it is damaged, or says something that ELMo has not.
    """
    options = path.parent / OPTIONS_FILE
    try:
        a = _parse_architecture(read_json_file(options))
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        why = " ".join(str(error).split())
        raise ValueError(f"{options}: lacks {why}, or it is no number") from None
    except ValueError as error:
        raise ValueError(f"{options}: {str(error).removeprefix(f'{options}: ')}") from None
    return {
        "model_type": MODEL_TYPE,
        "architectures": [MODEL_TYPE],
        "architecture": write_record(to_dict(a)),
    }


def read_weights(path: Path, architecture: ElmoArchitecture) -> dict[str, Tensor]:
    """Read the weights, by our names.

    Raises:
        ModuleNotFoundError: h5py is not installed.
        ValueError: the file is damaged, or lacks what its options say.
    """
    with parser_errors_as_value_error(f"{path}: truncated or damaged", *_H5PY_ERRORS):
        file = _h5py().File(path, "r")
    with file:
        return {
            ours: torch.from_numpy(x)
            for names, theirs, kind in _name_table(architecture)
            for ours, x in zip(
                names, _to_internal(_read_array(file, theirs, path, kind), kind), strict=True
            )
        }


def elmo_tokenizer() -> Tokenizer:
    """Return what reads texts for released weights: words are what white space parts.

    So their texts were; punctuation is apart in them.
    """
    return Tokenizer(word_byte_pipeline(ELMO, split_punctuation=False), ELMO)


def write_elmo(folder: Path, architecture: ElmoArchitecture, weights: Mapping[str, Tensor]) -> None:
    """Write options.json and the weights into a folder; the caller makes it whole.

    Raises:
        ModuleNotFoundError: h5py is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    said = json.dumps(_format_options(architecture), indent=2)
    (folder / OPTIONS_FILE).write_text(said + "\n", encoding="utf-8")
    with _h5py().File(folder / WEIGHTS_FILE, "w") as file:
        for names, theirs, kind in _name_table(architecture):
            own = [weights[name].detach().float().cpu().numpy() for name in names]
            file[theirs] = _to_external(own, kind)


def _parse_architecture(options: Mapping[str, Any]) -> ElmoArchitecture:
    lstm, cnn = options["lstm"], options["char_cnn"]
    clip, activation = lstm.get("cell_clip"), cnn["activation"]
    if lstm.get("proj_clip") != clip:
        raise ValueError(f"cell_clip {clip} and proj_clip {lstm.get('proj_clip')} must be the same")
    if activation not in _ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(_ACTIVATIONS)}, got {activation!r}")
    if cnn["n_characters"] not in (N_CHARACTERS, N_CHARACTERS + 1):  # with one for no word at all
        raise ValueError(
            f"n_characters must be {N_CHARACTERS} or {N_CHARACTERS + 1}, got {cnn['n_characters']}"
        )
    said, cells = lstm["projection_dim"], lstm["dim"]
    if not said < cells:
        raise ValueError(f"projection_dim must be below dim {cells}, got {said}")
    return ElmoArchitecture(
        d_model=2 * said,
        embedding_size=said,
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
    """Say their options.

    Raises:
        ValueError: their layout has no words for this.
    """
    s = a.character_cnn
    if s.activation not in _ACTIVATIONS or not a.projection or a.d_model >= a.d_ff:
        raise ValueError(
            "bilm-tf's layout is of LSTMs that are projected to fewer numbers, and filters with "
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
            "filters": [list(one) for one in s.filters],
            "n_highway": s.n_highway_layers,
            "activation": s.activation,
            "n_characters": N_CHARACTERS + 1,
            "max_characters_per_token": s.max_characters,
        },
    }


_H5PY_ERRORS = (OSError, RuntimeError, KeyError, TypeError)
"""What h5py raises of a file that is damaged, besides what all parsers do."""

WeightLayout = Literal["same", "transposed", "filters", "gates", "gate_biases"]


def _name_table(a: ElmoArchitecture) -> Iterator[tuple[tuple[str, ...], str, WeightLayout]]:
    """Give ours and theirs, and how the one is made of the other."""
    own = "backbone.tokens"
    yield (f"{own}.characters.weight",), "char_embed", "same"
    for i in range(len(a.character_cnn.filters)):
        yield (f"{own}.filters.{i}.weight",), f"CNN/W_cnn_{i}", "filters"
        yield (f"{own}.filters.{i}.bias",), f"CNN/b_cnn_{i}", "same"
    for i in range(a.character_cnn.n_highway_layers):
        for ours, theirs in (("carries", "carry"), ("transforms", "transform")):
            name = f"{own}.highways.{i}.{ours}"
            yield (f"{name}.weight",), f"CNN_high_{i}/W_{theirs}", "transposed"
            yield (f"{name}.bias",), f"CNN_high_{i}/b_{theirs}", "same"
    yield (f"{own}.narrows.weight",), "CNN_proj/W_proj", "transposed"
    yield (f"{own}.narrows.bias",), "CNN_proj/b_proj", "same"
    for way, layers in enumerate(("layers", "backward_layers")):
        for i in range(a.n_layers):
            name = f"backbone.{layers}.{i}"
            cell = f"RNN_{way}/RNN/MultiRNNCell/Cell{i}/LSTMCell"
            yield (f"{name}.reads.weight", f"{name}.recalls.weight"), f"{cell}/W_0", "gates"
            yield (f"{name}.reads.bias",), f"{cell}/B", "gate_biases"
            yield (f"{name}.projects.weight",), f"{cell}/W_P_0", "transposed"


def _to_internal(x: np.ndarray, layout: WeightLayout) -> list[np.ndarray]:
    """Make ours of theirs.

    Their gates are input, new, forget, output; 1 is added to the forget gate when it is used. What
    a cell reads and what it recalls are in one matrix, and are as wide as each other.
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
    """Make theirs of ours."""
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
"""Bytes of an array that may be more than the file holds of it, and how many times more a larger
one may be: weights are numbers that hardly shrink."""

_N_AXES: Mapping[WeightLayout, int] = {"transposed": 2, "filters": 4, "gates": 2, "gate_biases": 1}


def _read_array(file: "h5py.File", name: str, path: Path, layout: WeightLayout) -> np.ndarray:
    """Read an array of numbers that is in this file.

    Raises:
        ValueError: there is none of this name, or it is something else.
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
        raise ValueError(f"{path}: {name} is no array of floating-point numbers")
    if node.external or node.is_virtual:
        raise ValueError(f"{path}: {name} lies in another file, which is not read")
    odd = layout in ("gates", "gate_biases") and node.shape[-1:] and node.shape[-1] % 4
    if len(node.shape) != _N_AXES.get(layout, len(node.shape)) or odd:
        raise ValueError(f"{path}: {name} has shape {list(node.shape)}, which cannot be")
    held, size = int(node.id.get_storage_size()), node.size * node.dtype.itemsize
    if size > max(_SMALL_ARRAY_BYTES, _MAX_COMPRESSION * held):
        raise ValueError(
            f"{path}: {name} has shape {list(node.shape)}, of {size:,} bytes, but the file holds "
            f"{held:,} of them"
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
