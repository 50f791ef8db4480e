"""Open an ONNX folder."""

from dataclasses import replace
from pathlib import Path

from unmask.checkpoints.checksums import check_recorded_files
from unmask.checkpoints.huggingface.generation import read_generation
from unmask.checkpoints.huggingface.preprocessing import load_preprocessing
from unmask.checkpoints.huggingface.read import (
    LoadedModel,
    read_head_specs,
    read_label_names,
    read_preset,
)
from unmask.checkpoints.huggingface.sentence_vectors import find_sentence_folder
from unmask.checkpoints.huggingface.tokenizer import load_model_tokenizer
from unmask.conversations.template_files import load_chat_template
from unmask.inference.onnx.model import OnnxModel
from unmask.inference.onnx.record import (
    DECODER_FILE,
    ENCODER_FILE,
    MODEL_FILE,
    RUN_FILE,
    read_onnx_record,
    require_onnx,
)
from unmask.inference.onnx.session import OnnxSession


def open_onnx_folder(folder: Path) -> LoadedModel:
    """Open a folder that `export_onnx` wrote.

    Raises:
        FileNotFoundError: a file is missing.
        ImportError: a library of the extra `onnx` is not installed.
        ValueError: a file is damaged, or they do not belong together.
    """
    require_onnx(f"{folder}: an ONNX folder")
    record = read_onnx_record(folder)
    check_recorded_files(folder)
    preset, configuration = read_preset(folder)
    labels = read_label_names(configuration)
    specs = dict(read_head_specs(preset, configuration, labels, folder))
    if record.head is not None and record.head not in specs:
        raise ValueError(
            f"{folder / RUN_FILE}: onnx.head must be one of {sorted(specs)}, got {record.head!r}"
        )
    specs = {name: spec for name, spec in specs.items() if name == record.head}
    generates_from_source = record.graph == "encoder_decoder"
    model = OnnxModel(
        preset.architecture,
        specs,
        OnnxSession(folder, ENCODER_FILE if generates_from_source else MODEL_FILE),
        record,
        OnnxSession(folder, DECODER_FILE) if generates_from_source else None,
    )
    return LoadedModel(
        preset=replace(preset, heads=specs),
        model=model.eval(),
        tokenizer=load_model_tokenizer(folder, model.vocab_size),
        label_names=labels if any(spec.has_label_names for spec in specs.values()) else (),
        missing=(),
        unexpected=(),
        preprocessing=load_preprocessing(folder, preset),
        chat_template=load_chat_template(folder),
        sentence_folder=find_sentence_folder(folder),
        generation=read_generation(folder, model),
    )
