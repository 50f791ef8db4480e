"""`export_formats`, `export`: a model as a folder, or a file, that other programs open."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from unmask.adapters.folder import is_adapter
from unmask.adapters.peft_format.folder import (
    CONFIG_FILE,
    LIBRARY_TYPE,
    RECORD_FILE,
    WEIGHTS_FILE,
)
from unmask.bundled.models import BUNDLED_MODELS
from unmask.checkpoints.elmo import MODEL_TYPE as ELMO_FAMILY
from unmask.checkpoints.gguf.families import resolve_family
from unmask.checkpoints.gguf.write import GgufDtype, require_gguf
from unmask.checkpoints.huggingface.differences import opening_note
from unmask.checkpoints.huggingface.write import to_external_config
from unmask.config import from_dict
from unmask.files import atomic_path, read_json_object
from unmask.finetuning.formulations.formulation import LABEL_HEAD
from unmask.inference.export import ModelFormat, check_new_folder, check_plain_inputs
from unmask.inference.onnx.export import plan_graph
from unmask.inference.onnx.record import require_onnx
from unmask.inference.pipeline import Pipeline
from unmask.inference.vectors.load_word_vectors import is_word_vectors
from unmask.output import error_reason
from unmask.web.worker.open_models import open_models
from unmask.word_vectors.formats.files import Format, write_vectors
from unmask.word_vectors.train.trainer import FASTTEXT_FILE

ExportFormat = Literal[
    "huggingface", "unmask", "onnx", "gguf", "elmo", "peft", "word2vec-text", "word2vec-binary",
    "glove", "fasttext",
]  # fmt: skip
_VECTOR_FILES: Mapping[str, str] = {
    "word2vec-text": "vectors.vec",
    "word2vec-binary": "vectors.bin",
    "glove": "vectors.txt",
    "fasttext": "model.bin",
}
_ADAPTER_FILES = (
    CONFIG_FILE, WEIGHTS_FILE, RECORD_FILE, "README.md", "tokenizer.json", "tokenizer_config.json",
    "unmask.json",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _FormatsArguments:
    model: str


@dataclass(frozen=True, kw_only=True)
class _ExportArguments:
    model: str
    target: str
    """A new folder, which the server names."""
    format: ExportFormat
    int8: bool = False
    """8-bit weights, of ONNX."""
    dtype: GgufDtype = "float32"
    """Numbers of a GGUF file's matrices."""


def export_formats(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return each format with "can", and "reason" or "note" where there is one to tell."""
    name = from_dict(_FormatsArguments, arguments).model
    vectors = _vector_formats(name)
    if is_word_vectors(name):
        return {"formats": vectors}
    pipeline = open_models().pipeline(name)
    checks: Mapping[str, Callable[[Pipeline], str | None]] = {
        "huggingface": _huggingface_note,
        "unmask": lambda one: None,
        "onnx": _check_onnx,
        "gguf": _check_gguf,
        "peft": lambda one: _check_peft(name),
    }
    found = [_checked(kind, check, pipeline) for kind, check in checks.items()]
    if pipeline.preset.family == ELMO_FAMILY:
        found.append({"format": "elmo", "can": True})
    return {"formats": found + vectors}


def export(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Write a model into a new folder; return its "files", and the "snippet" that opens it.

    Raises:
        ImportError: the format needs a library that is not installed.
        ValueError: the model is not written in this format, or the folder holds something.
    """
    given = from_dict(_ExportArguments, arguments)
    folder = Path(given.target)
    if given.int8 and given.format != "onnx":
        raise ValueError(f"int8 is of format onnx alone, got format {given.format}")
    check_new_folder(folder)
    if given.format in _VECTOR_FILES:
        _export_vectors(given, folder)
    elif given.format == "peft":
        _check_peft(given.model)
        _copy_adapter(_folder(given.model), folder)
    else:
        pipeline = open_models().pipeline(given.model)
        kind = cast(ModelFormat, given.format)
        pipeline.save(folder, format=kind, int8=given.int8, dtype=given.dtype)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        "format": given.format,
        "files": [
            {"name": path.relative_to(folder).as_posix(), "bytes": path.stat().st_size}
            for path in files
        ],
        "snippet": _snippet(given, folder.name),
    }


def _folder(name: str) -> Path:
    return BUNDLED_MODELS.get(name, Path(name))


def _checked(
    kind: str, check: Callable[[Pipeline], str | None], pipeline: Pipeline
) -> dict[str, Any]:
    """Return whether a model is written in a format, what is to be noted, or why it is not."""
    try:
        note = check(pipeline)
    except (ValueError, ImportError) as error:
        return {"format": kind, "can": False, "reason": error_reason(error)}
    return {"format": kind, "can": True} | ({} if note is None else {"note": note})


def _huggingface_note(pipeline: Pipeline) -> str | None:
    check_plain_inputs(pipeline.loaded_model, "huggingface")
    return opening_note(pipeline.preset, pipeline.model.head_specs)


def _check_onnx(pipeline: Pipeline) -> None:
    check_plain_inputs(pipeline.loaded_model, "onnx")
    plan_graph(pipeline.loaded_model)
    require_onnx("an ONNX graph")


def _check_gguf(pipeline: Pipeline) -> str | None:
    check_plain_inputs(pipeline.loaded_model, "gguf")
    model, preset = pipeline.model, pipeline.preset
    resolve_family(preset, model, str(to_external_config(model, preset)["model_type"]))
    require_gguf()
    if LABEL_HEAD in model.head_specs:
        return "For the vectors of texts alone: the labels that it learned are not in the file."
    return None


def _check_peft(name: str) -> None:
    if not is_adapter(_folder(name)):
        raise ValueError("only a run with an adapter (--tune lora, ...) is in the format of PEFT")
    if LIBRARY_TYPE in read_json_object(_folder(name) / CONFIG_FILE):
        raise ValueError("PEFT has no adapter like this one, or not on this model")


def _copy_adapter(source: Path, folder: Path) -> None:
    """Copy what PEFT reads; the checkpoints and logs of its training stay."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(folder) as beside:
        beside.mkdir(exist_ok=True)
        for name in _ADAPTER_FILES:
            if (source / name).is_file():
                shutil.copyfile(source / name, beside / name)


def _vector_formats(name: str) -> list[dict[str, Any]]:
    """Return formats of word vectors, of those and of models with a table of tokens."""
    try:
        open_models().vectors(name)
    except (ValueError, FileNotFoundError) as error:  # an adapter has no files of a model
        return [
            {"format": kind, "can": False, "reason": _without_place(error, name)}
            for kind in _VECTOR_FILES
        ]
    has_ngrams = (_folder(name) / FASTTEXT_FILE).is_file()
    others = [{"format": kind, "can": True} for kind in _VECTOR_FILES if kind != "fasttext"]
    if has_ngrams:
        return [*others, {"format": "fasttext", "can": True}]
    reason = "only a run of fastText has vectors of n-grams"
    return [*others, {"format": "fasttext", "can": False, "reason": reason}]


def _without_place(error: ValueError | FileNotFoundError, name: str) -> str:
    """Return the reason of an error without the path of the model."""
    if is_adapter(_folder(name)):
        return "it is an adapter: the vectors are those of the model below it"
    return (error_reason(error) or "").removeprefix(f"{name}: ")


def _export_vectors(given: _ExportArguments, folder: Path) -> None:
    space = open_models().vectors(given.model)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(folder) as beside:
        beside.mkdir(exist_ok=True)
        path = beside / _VECTOR_FILES[given.format]
        write_vectors(space, path, cast(Format, given.format), white_space_replacement="_")


def _snippet(given: _ExportArguments, name: str) -> str:
    """Return the program that opens what was written."""
    if given.format in _VECTOR_FILES:
        file = _VECTOR_FILES[given.format]
        return f'import unmask\n\nvectors = unmask.load_word_vectors("{name}/{file}")\n'
    if given.format == "gguf":
        does = "cli" if open_models().pipeline(given.model).continues_prompt else "embedding"
        return f'llama-{does} --model {name}/model.gguf --prompt "Once upon a time"\n'
    if given.format == "peft":
        return (
            f'from peft import AutoPeftModel\n\nmodel = AutoPeftModel.from_pretrained("{name}")\n'
        )
    if given.format == "huggingface":
        pipeline = open_models().pipeline(given.model)
        if opening_note(pipeline.preset, pipeline.model.head_specs) is None:
            config = to_external_config(pipeline.model, pipeline.preset)
            kind = str(config["architectures"][0])
            if kind.endswith("ForSequenceClassification") and pipeline.can_predict:
                return (
                    "# pip install transformers torch\nfrom transformers import pipeline\n\n"
                    f'classify = pipeline("text-classification", model="{name}")\n'
                    'print(classify(["A text.", "Another one."]))\n'
                )
            return (
                f"from transformers import AutoTokenizer, {kind}\n\n"
                f'tokenizer = AutoTokenizer.from_pretrained("{name}")\n'
                f'model = {kind}.from_pretrained("{name}")\n'
            )
    needs = "unmask[onnx]" if given.format == "onnx" else "unmask"
    can_predict = open_models().pipeline(given.model).can_predict
    says = 'print(model.predict(["A text.", "Another one."]))\n' if can_predict else ""
    return f"# pip install '{needs}'\nimport unmask\n\nmodel = unmask.load(\"{name}\")\n{says}"
