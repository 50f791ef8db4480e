"""Write a model as a folder with an ONNX graph."""

import logging
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from unmask.adapters.folder import merged
from unmask.checkpoints.checksums import FILES_KEY, record_files
from unmask.checkpoints.huggingface.generation import write_generation
from unmask.checkpoints.huggingface.preprocessing import save_preprocessing
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.checkpoints.huggingface.sentence_vectors import copy_sentence_files
from unmask.checkpoints.huggingface.write import write_configuration
from unmask.config import to_dict
from unmask.conversations.template_files import save_chat_template
from unmask.files import atomic_path, encode_utf8
from unmask.finetuning.formulations.formulation import (
    CHOICE_HEAD,
    LABEL_HEAD,
    LANGUAGE_HEAD,
    SPAN_HEAD,
    TOKEN_LABEL_HEAD,
)
from unmask.finetuning.results.save_model import write_model_record
from unmask.generation.text_batches import evaluation_mode
from unmask.heads.classification.sequence_classification import PAIR_POOLINGS
from unmask.heads.model import Model
from unmask.heads.tagging.bilstm_crf import BiLSTMCRFHead
from unmask.inference.export import check_new_folder, check_plain_inputs
from unmask.inference.onnx.encoder_decoder_graphs import (
    EncoderDecoderGraph,
    SourceTextGraph,
    split_encoder_decoder,
)
from unmask.inference.onnx.graphs import (
    PAST,
    DecoderGraph,
    GraphInterface,
    MultilingualTextGraph,
    PairGraph,
    PictureGraph,
    TextGraph,
)
from unmask.inference.onnx.quantize import (
    quantize_graph,
    share_tied_weights,
    uses_reduced_range,
)
from unmask.inference.onnx.record import (
    MAX_FILE_BYTES,
    MODEL_FILE,
    ONNX_KEY,
    OnnxRecord,
    require_onnx,
)
from unmask.model.architecture import BackboneArchitecture
from unmask.model.backbones.encoder_decoder import source_encoder_of
from unmask.model.backbones.transformer import Architecture
from unmask.model.backbones.vision_transformer import VisionArchitecture
from unmask.model.positions.transformer_xl import TransformerXLPositions
from unmask.output import escape_markdown

_log = logging.getLogger(__name__)
_EXPORTED_HEADS = (LABEL_HEAD, TOKEN_LABEL_HEAD, SPAN_HEAD, CHOICE_HEAD, LANGUAGE_HEAD)
"""Heads that are exported; of several the first."""


def export_onnx(
    loaded_model: LoadedModel, folder: Path, extra_facts: Mapping[str, Any], *, int8: bool = False
) -> Path:
    """Write a model as an ONNX graph into a new folder, with its configuration and tokenizer.

    Args:
        loaded_model: a Transformer, of one stack or two.
        folder: a new folder; it appears whole or not at all.
        extra_facts: what is recorded in unmask.json, such as the task.
        int8: whether weights are quantized to 8 bits.

    Raises:
        ImportError: a library of the extra `onnx` is not installed.
        ValueError: the model cannot be exported, or the folder holds something already.
    """
    check_plain_inputs(loaded_model, "onnx")
    require_onnx("an ONNX graph")
    check_new_folder(folder)
    record = plan_graph(loaded_model)
    name, task = loaded_model.preset.name, extra_facts.get("task") or {}
    if task.get("task_kind") == "cloze":
        raise ValueError(f"{name}: a model that labels by words in blanks is not exported to ONNX")
    if left := [head for head in loaded_model.model.head_specs if head != record.head]:
        _log.warning("%s: heads are left out: %s", name, ", ".join(left))
    record = replace(
        record,
        precision="int8" if int8 else "float32",
        reduce_range=int8 and uses_reduced_range(),
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(folder) as beside:
        beside.mkdir(exist_ok=True)
        model = loaded_model.model
        write_configuration(
            beside, model, loaded_model.preset, loaded_model.tokenizer, loaded_model.label_names
        )
        save_preprocessing(loaded_model.preprocessing, beside)
        save_chat_template(loaded_model.chat_template, beside)
        write_generation(beside, model, loaded_model.tokenizer, read=loaded_model.generation)
        copy_sentence_files(loaded_model.sentence_folder, beside)
        with merged(model), evaluation_mode(model):
            write_graph(model, record, beside / MODEL_FILE)
        if int8:
            quantize_graph(beside / MODEL_FILE, reduce_range=record.reduce_range)
        else:
            share_tied_weights(beside / MODEL_FILE)
        if record.graph == "encoder_decoder":
            split_encoder_decoder(beside)
        (beside / "README.md").write_bytes(encode_utf8(_graph_card(loaded_model, record)))
        facts = dict(extra_facts) | {ONNX_KEY: to_dict(record), FILES_KEY: record_files(beside)}
        write_model_record(beside, loaded_model, facts)
    return folder


def unexportable_reason(model: Model, head: str | None) -> str | None:
    """Return why a model cannot be exported; None: it can."""
    a = model.architecture
    stacks = [*a.stacks.values()]
    if (source := source_encoder_of(a)) is not None:
        stacks.append(source)
    if not all(isinstance(stack, Architecture) for stack in stacks):
        return f"only Transformers are exported to ONNX, got a {type(a).__name__}"
    if model.adapters and len(model.adapters) > 1:
        return "of several adapters only one can be in the weights"
    for stack in cast("list[Architecture]", stacks):
        if stack.reads_pictures and (reason := _unexportable_vision_reason(a, stack)):
            return reason
        if stack.has_language_embeddings and (stack.causal or stack.uses_segments):
            return "only networks that read whole texts without segments are told languages in ONNX"
        if isinstance(stack.position, TransformerXLPositions) and not stack.causal:
            return (
                "relative positions of Transformer-XL in both directions are not exported to ONNX"
            )
        if stack.adaptive_input is not None:
            return "token embeddings of several widths (adaptive_input) are not exported to ONNX"
        if stack.layers.types or (stack.cross_attention and not a.is_encoder_decoder):
            return "layers with convolutions or cross-attention alone are not exported to ONNX"
    return None if head is None else _unexportable_head_reason(model, head)


def _unexportable_vision_reason(a: BackboneArchitecture, stack: Architecture) -> str | None:
    """Return why a network that reads pictures cannot be exported; None: it can."""
    if len(a.stacks) > 1:
        return "networks that read pictures and texts are not exported to ONNX yet"
    if cast(VisionArchitecture, stack).encodes_seen_alone:
        return "masked autoencoders are not exported to ONNX; fine-tuned, their encoder is"
    return None


def _unexportable_head_reason(model: Model, head: str) -> str | None:
    """Return why a head cannot be exported; None: it can."""
    if isinstance(model.heads[head], BiLSTMCRFHead):
        return "a BiLSTM-CRF head has a recurrent network, which is not exported to ONNX"
    if model.decoder_architecture.has_global_tokens and head != LANGUAGE_HEAD:
        return "global attention, which the head's texts have, is not exported to ONNX"
    if _reads_pairs(model, head) and model.architecture.is_encoder_decoder:
        return "a head that reads two texts by themselves is not exported of an encoder-decoder"
    if _reads_pairs(model, head) and model.decoder_architecture.has_language_embeddings:
        return "a head that reads two texts by themselves is told no languages in ONNX"
    return None


def _reads_pairs(model: Model, head: str | None) -> bool:
    """Return whether a head reads two texts by themselves."""
    return head is not None and getattr(model.head_specs[head], "pooling", None) in PAIR_POOLINGS


def plan_graph(loaded_model: LoadedModel) -> OnnxRecord:
    """Return which graph and head are exported.

    Raises:
        ValueError: the model cannot be exported.
    """
    model = loaded_model.model
    a = model.architecture
    head = next((name for name in _EXPORTED_HEADS if name in model.heads), None)
    if (reason := unexportable_reason(model, head)) is not None:
        raise ValueError(f"{loaded_model.preset.name}: {reason}")
    if a.is_encoder_decoder:
        generates = head == LANGUAGE_HEAD
        return OnnxRecord(graph="encoder_decoder" if generates else "source_text", head=head)
    if head == LANGUAGE_HEAD and a.is_decoder_only:
        return OnnxRecord(graph="decoder", head=head)
    if a.picture_stack is not None:
        return OnnxRecord(graph="picture", head=head)
    return OnnxRecord(graph="pair" if _reads_pairs(model, head) else "text", head=head)


def write_graph(model: Model, record: OnnxRecord, path: Path) -> None:
    """Trace a model in evaluation mode and write its graph.

    Raises:
        ValueError: an operation of the model cannot be exported.
    """
    graph = _build_graph(model, record)
    with _quiet_exporter():
        program = _trace(graph, graph.interface())
    n_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
    program.save(path, external_data=n_bytes > MAX_FILE_BYTES)


def _build_graph(model: Model, record: OnnxRecord) -> Any:
    """Return the module that is traced."""
    if record.graph == "decoder":
        return DecoderGraph(model)
    if record.graph == "encoder_decoder":
        return EncoderDecoderGraph(model)
    if record.graph == "text" and model.decoder_architecture.has_language_embeddings:
        return MultilingualTextGraph(model, record.head)
    kinds = {
        "text": TextGraph,
        "pair": PairGraph,
        "picture": PictureGraph,
        "source_text": SourceTextGraph,
    }
    return kinds[record.graph](model, record.head)


def _trace(graph: nn.Module, interface: GraphInterface) -> Any:
    """Return the ONNX program of a graph.

    Raises:
        ValueError: an operation cannot be exported.
    """
    import onnxscript.optimizer

    try:
        program: Any = torch.onnx.export(
            graph.eval(),
            tuple(interface.inputs.values()),
            dynamo=True,
            input_names=list(interface.inputs),
            output_names=list(interface.outputs),
            dynamic_shapes=_dynamic_shapes(interface),
            verbose=False,
            # its fusions leave a product out that is read twice (DeBERTa), torch 2.13
            optimize=False,
        )
    except torch.onnx.OnnxExporterError as error:
        lines = [line for line in str(error.__cause__ or error).splitlines() if line.strip()]
        raise ValueError(f"the model cannot be exported to ONNX: {lines[0]}") from error
    for found in program.model.graph.inputs:
        for i, size in interface.varying[found.name].items():
            if isinstance(found.shape[i], int):
                raise ValueError(
                    f"the model cannot be exported to ONNX: its graph is for {size} "
                    f"{found.shape[i]} alone"
                )
    onnxscript.optimizer.optimize(program.model)
    _read_batch_from_first_input(program.model.graph)
    return program


def _read_batch_from_first_input(graph: Any) -> None:
    """Read the size of the batch from the first input, so that parts without others have it."""
    for node in graph:
        ends = {name: attribute.value for name, attribute in node.attributes.items()}
        if (
            node.op_type == "Shape"
            and node.inputs[0] in graph.inputs
            and ends == {"start": 0, "end": 1}
        ):
            node.replace_input_with(0, graph.inputs[0])


def _dynamic_shapes(interface: GraphInterface) -> tuple[Any, ...]:
    """Return the symbolic sizes in torch.export's form; sums of sizes are inferred."""
    names = {size for sizes in interface.varying.values() for size in sizes.values()}
    known = {
        name: torch.export.Dim.AUTO
        if "+" in name
        else torch.export.Dim(name, max=interface.longest.get(name))
        for name in names
    }
    shapes = [
        {i: known[size] for i, size in interface.varying[name].items()} for name in interface.inputs
    ]
    first_past = next((i for i, n in enumerate(interface.inputs) if PAST in n), len(shapes))
    return (*shapes[:first_past], *([tuple(shapes[first_past:])] if shapes[first_past:] else []))


@contextmanager
def _quiet_exporter() -> Generator[None]:
    """Silence what the exporter says of itself: deprecations within torch, names of axes."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", (FutureWarning))
            warnings.simplefilter("ignore", (DeprecationWarning))
            warnings.filterwarnings("ignore", "# The axis name", UserWarning)
            yield
    finally:
        logger.setLevel(level)


def _graph_card(loaded_model: LoadedModel, record: OnnxRecord) -> str:
    """Return the README.md of the folder."""
    numbers = "float32" if record.precision == "float32" else "8-bit integers"
    lines = [
        "---",
        "library_name: onnx",
        "tags: [unmask, onnx]",
        "---",
        f"# {escape_markdown(loaded_model.preset.name)}",
        "",
        f"An ONNX graph with weights in {numbers}, made with Unmask: `unmask predict`, `embed`, "
        '`fill` and `generate` run it by onnxruntime (`pip install "unmask[onnx]"`).',
    ]
    return "\n".join(lines) + "\n"
