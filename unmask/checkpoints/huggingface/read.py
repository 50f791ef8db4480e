"""Read and write folders in the Hugging Face layout.

That is config.json, model.safetensors and the tokenizer's files.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from unmask.bundled.models import BUNDLED_MODELS
from unmask.checkpoints import elmo, llama2c
from unmask.checkpoints.activations import load_activations
from unmask.checkpoints.checksums import check_recorded_files
from unmask.checkpoints.huggingface.check import check_depth, check_missing, check_tied
from unmask.checkpoints.huggingface.differences import task_head_tensors
from unmask.checkpoints.huggingface.generation import FolderGeneration, read_generation
from unmask.checkpoints.huggingface.preprocessing import load_preprocessing
from unmask.checkpoints.huggingface.pruned_heads import without_pruned_heads
from unmask.checkpoints.huggingface.sentence_vectors import find_sentence_folder
from unmask.checkpoints.huggingface.tokenizer import (
    SOURCE_TOKENIZER_FOLDER,
    load_model_tokenizer,
    load_source_tokenizer,
)
from unmask.checkpoints.tensors import (
    read_json_file,
    read_model_tensors,
    to_float32_weight,
)
from unmask.config import from_dict
from unmask.conversations.template import ChatTemplate
from unmask.conversations.template_files import load_chat_template
from unmask.heads.classification import label_losses as losses
from unmask.heads.classification.pooler import Pooler
from unmask.heads.classification.sequence_classification import Pooling, SequenceClassification
from unmask.heads.language.language_modeling import (
    LanguageModeling,
)
from unmask.heads.model import Model
from unmask.heads.pretraining.bidirectional_lm import BidirectionalLM
from unmask.heads.spec import HeadSpec
from unmask.images.preprocessing import ImagePreprocessing
from unmask.model.backbones.elmo import ElmoArchitecture
from unmask.model.backbones.encoder_decoder import source_encoder_of
from unmask.model.exchange.weight_names import MatchedWeights, WeightNames
from unmask.model.layers.attention.query_stream import EnhancedMaskDecoder
from unmask.objectives.published import CAUSAL_LM, MASKED_LM, XLNET, ObjectiveSpec
from unmask.saved_format import read_record
from unmask.tokenizers.encode import Tokenizer
from unmask.word_vectors.train.trainer import WORD_VECTOR_METHODS, WordVectorMethod
from unmask.zoo.catalogue import HUB_PREFIX, preset_for_config
from unmask.zoo.native_format import with_expressible_format
from unmask.zoo.preset import Published, question_answering_head, token_classification_head
from unmask.zoo.unsupported_classes import UNSUPPORTED_CLASSES

MULTI_LABEL = "multi_label_classification"
"""`problem_type` of a multi-label classifier."""
POOLER_WEIGHT = "pooler.dense.weight"
NATIVE_HEADS_KEY = "unmask"
"""Key of heads without a class in transformers; their tensors have internal names."""
HUB_FILE_PATTERNS = (
    "*.json",
    "*.safetensors",
    "*pytorch_model*.bin",
    "*.txt",
    "*.model",
    "*.jinja",
)


@dataclass(frozen=True)
class _NativeHeads:
    """Value of `NATIVE_HEADS_KEY`."""

    heads: Mapping[str, HeadSpec]


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A model loaded from a folder."""

    preset: Published
    """The family's preset with this folder's architecture and heads."""
    model: Model
    tokenizer: Tokenizer | None
    label_names: tuple[str, ...]
    """Class names of a classifier."""
    missing: tuple[str, ...]
    """Weights missing in the folder, randomly initialized."""
    unexpected: tuple[str, ...]
    """Tensors of the folder that the model does not use."""
    preprocessing: ImagePreprocessing | None = None
    """How pictures are prepared for it. None: it reads none."""
    chat_template: ChatTemplate | None = None
    """How it reads conversations. None: nothing is known of that."""
    sentence_folder: Path | None = None
    """The folder whose modules.json says how vectors of sentences are made. None: nothing does."""
    generation: FolderGeneration | None = None
    """How its folder says that it generates. None: it says nothing, or not in this layout."""
    source: str | None = None
    """Path or `hf:owner/name` of the weights and tokenizer. None: built or changed in memory."""


def resolve_model_folder(name: str | Path) -> Path:
    """Return the folder of a path, a bundled model, or `hf:owner/name` of the Hub, fetched.

    Raises:
        FileNotFoundError: there is no such folder, or the Hub does not answer.
        ValueError: it is a run that has not ended.
    """
    text = str(name)
    if not text.startswith(HUB_PREFIX):
        folder = Path(name) if Path(name).is_dir() else BUNDLED_MODELS.get(text)
        if folder is None:
            raise FileNotFoundError(f"{name}: no such folder")
        is_complete = is_model_folder(folder) or (folder / "adapter_config.json").is_file()
        if not is_complete and (folder / "unmask.json").is_file():
            raise ValueError(f"{folder}: this run has not ended; continue it with --resume")
        return folder
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    owner, _, revision = text.removeprefix(HUB_PREFIX).partition("@")
    try:
        path = snapshot_download(
            owner, revision=revision or None, allow_patterns=list(HUB_FILE_PATTERNS)
        )
    except HFValidationError as error:
        raise ValueError(f"{text}: {str(error).splitlines()[0]}") from None
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise FileNotFoundError(f"{text}: cannot be fetched from the Hub: {reason}") from None
    return Path(path)


def load_folder(
    folder: Path,
    head_specs: Mapping[str, HeadSpec] | None = None,
    seed: int = 0,
    *,
    replacement_tensors: Mapping[str, Tensor] | None = None,
) -> LoadedModel:
    """Load a model of any family of the catalogue.

    Args:
        folder: folder with config.json and weights, or a .bin file of llama2.c, or ELMo's
            options.json and .hdf5 file; and optionally a tokenizer.
        head_specs: heads of the model; None: those of `architectures` in config.json.
        seed: random seed for weights missing in the folder.
        replacement_tensors: tensors that replace those of the folder, with its names.

    Raises:
        FileNotFoundError: config.json or the weights are missing.
        ValueError: a file is damaged, the family is unknown, or weights, configuration and
            tokenizer do not fit.
    """
    check_recorded_files(folder)
    preset, config = read_preset(folder)
    check_depth(folder, preset, config)
    state, over = _read_external_tensors(folder, preset), dict(replacement_tensors or {})
    if NATIVE_HEADS_KEY in config:  # see `refusing_tensors`
        outputs = task_head_tensors(preset)
        state = {name: x for name, x in state.items() if name not in outputs or x.numel()}
    bare = preset.weight_names.bare_name  # a base without heads has no prefix, its adapter has one
    replaced = {bare(name) for name in over}
    state = {name: x for name, x in state.items() if bare(name) not in replaced} | over
    preset = preset.with_stored_mask_token(state)
    labels = read_label_names(config)
    specs = dict(
        read_head_specs(preset, config, labels, folder) if head_specs is None else head_specs
    )
    check_tied(
        folder,
        preset,
        config,
        state,
        language_head="language" in specs and replacement_tensors is None,
    )
    specs = _match_stored_tensors(
        specs, preset.weight_names, state, preset.config_mapping.read_language_head(config)
    )
    preset = replace(preset, unused_pooler=_unused_pooler(preset.weight_names, specs, state))
    try:
        model, load_result = _build_and_load(preset, specs, state, folder, seed)
    except ValueError as error:
        if pruned := config.get("pruned_heads"):
            raise ValueError(f"{error} (without the heads of pruned_heads, {pruned})") from None
        raise
    load_activations(folder, model)
    tokenizer = load_model_tokenizer(folder, model.vocab_size)
    source = source_encoder_of(preset.architecture)
    if tokenizer is not None and source is not None:
        tokenizer = tokenizer.with_source_tokenizer(
            load_source_tokenizer(folder / SOURCE_TOKENIZER_FOLDER, source.vocab_size)
        )
    objective = _objective_of_heads(preset, specs) if head_specs is None else preset.objective
    preset = replace(preset, heads=specs, objective=objective)
    return LoadedModel(
        preset=with_expressible_format(preset) if config.get("pruned_heads") else preset,
        model=model.eval(),
        tokenizer=tokenizer,
        label_names=labels if any(spec.has_label_names for spec in specs.values()) else (),
        missing=load_result.missing,
        unexpected=load_result.unexpected,
        preprocessing=load_preprocessing(folder, preset),
        chat_template=load_chat_template(folder),
        sentence_folder=find_sentence_folder(folder),
        generation=read_generation(folder, model),
    )


_OBJECTIVE_OF_TERM = {"masked": MASKED_LM, "next_token": CAUSAL_LM, "permuted": XLNET.objective}
"""Objective for each term of a language head."""


def _objective_of_heads(
    preset: Published, specs: Mapping[str, HeadSpec]
) -> ObjectiveSpec | WordVectorMethod:
    """Return the objective implied by the heads, if it differs from the preset's."""
    terms = [spec.term for spec in specs.values() if isinstance(spec, LanguageModeling)]
    if isinstance(preset.objective, WORD_VECTOR_METHODS) or not set(terms) - set(
        preset.objective.loss_terms
    ):
        return preset.objective
    return _OBJECTIVE_OF_TERM.get(terms[0], preset.objective)


def is_model_folder(folder: Path) -> bool:
    """Return whether a folder has a configuration for `read_preset`."""
    return (folder / "config.json").is_file() or any(
        layout.find_weights(folder) for layout in _OTHER_LAYOUTS
    )


def read_config(folder: Path) -> Mapping[str, Any]:
    """Read config.json, or its equivalent for a folder in another layout.

    These are llama2.c's, and that of ELMo's released code.

    Raises:
        FileNotFoundError: there is neither.
        ValueError: the file is not a JSON object.
    """
    path = folder / "config.json"
    if not path.is_file():
        for layout in _OTHER_LAYOUTS:
            if (file := layout.find_weights(folder)) is not None:
                return layout.read_config(file)
    return read_json_file(path)


_OTHER_LAYOUTS = (llama2c, elmo)


def _read_external_tensors(folder: Path, preset: Published) -> dict[str, Tensor]:
    if not (folder / "config.json").is_file():
        if (path := llama2c.find_weights(folder)) is not None:
            return llama2c.read_weights(path)
        if (path := elmo.find_weights(folder)) is not None:
            return elmo.read_weights(path, cast(ElmoArchitecture, preset.architecture))
    return {_modern_name(name): x for name, x in read_model_tensors(folder).items()}


def read_preset(folder: Path) -> tuple[Published, dict[str, Any]]:
    """Return the preset of a folder, and its configuration with all keys.

    Raises:
        FileNotFoundError: it has no configuration.
        ValueError: the family is unknown, or a value is invalid.
    """
    stored = read_config(folder)
    try:
        preset = preset_for_config(stored)
        config = preset.config_mapping.config_keys.complete(stored)
        architecture, labels = (
            without_pruned_heads(preset.config_mapping.to_architecture(config), config),
            _read_classification_head(preset, config),
        )
    except (ValueError, TypeError) as error:
        raise ValueError(f"{folder / 'config.json'}: {error}") from None
    name = str(config.get("_name_or_path") or folder.name)
    return replace(preset, architecture=architecture, name=name, classification_head=labels), config


def _read_classification_head(
    preset: Published, config: Mapping[str, Any]
) -> SequenceClassification | None:
    """Return the preset's classification head with the settings of the configuration."""
    if preset.classification_head is None:
        return None
    labels = replace(
        preset.classification_head, **preset.config_mapping.read_classification_head(config)
    )
    key, pools = preset.config_mapping.pooling_key
    if not pools or config.get(key) is None:
        return labels
    return replace(labels, pooling=cast(Pooling, pools[config[key]]))


def _modern_name(name: str) -> str:
    """Rename gamma and beta of the first releases."""
    return re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))


def read_label_names(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the label names of a configuration."""
    table = config.get("id2label")
    if isinstance(table, dict):
        return tuple(str(table[k]) for k in sorted(table, key=int))
    return tuple(f"LABEL_{i}" for i in range(config.get("num_labels") or 2))


def read_head_specs(
    preset: Published, config: Mapping[str, Any], label_names: tuple[str, ...], folder: Path
) -> Mapping[str, HeadSpec]:
    """Return the heads of the configuration's class in transformers, or its native heads.

    Those of the preset if there is no class or an unknown one.
    """
    if NATIVE_HEADS_KEY in config:
        return _native_heads(folder, config)
    class_name = (cast("Sequence[str]", config.get("architectures")) or ("",))[0]
    if (
        class_name in UNSUPPORTED_CLASSES
        and preset.config_mapping.heads_of_class(class_name) is None
    ):
        raise ValueError(
            f"{folder / 'config.json'}: architectures: {class_name} is not supported: "
            f"{UNSUPPORTED_CLASSES[class_name]}"
        )
    default_names = tuple(
        name for name, spec in preset.heads.items() if spec.is_kept_after_pretraining
    )
    class_heads = preset.config_mapping.heads_of_class(class_name)
    names = default_names if class_heads is None else class_heads
    specs = head_specs_by_name(names, preset, config, len(label_names))
    forward = class_name in preset.config_mapping.causal_class_names.values()
    return {name: s.as_causal() for name, s in specs.items()} if forward else specs


def as_large(heads: Mapping[str, HeadSpec], folder: Path) -> dict[str, HeadSpec]:
    """Return heads, with output vocabularies of the size in a folder.

    Raises:
        FileNotFoundError, ValueError: as `load_folder`.
    """
    config = read_preset(folder)[1]
    if NATIVE_HEADS_KEY not in config:
        return dict(heads)
    stored_heads = _native_heads(folder, config)
    return {n: _as_large(spec, stored_heads.get(n)) for n, spec in heads.items()}


def _native_heads(folder: Path, config: Mapping[str, Any]) -> Mapping[str, HeadSpec]:
    """Return the native heads of a configuration."""
    location = f"{folder / 'config.json'}: {NATIVE_HEADS_KEY}"
    return from_dict(_NativeHeads, read_record(config[NATIVE_HEADS_KEY], location), location).heads


def _as_large(spec: HeadSpec, stored: HeadSpec | None) -> HeadSpec:
    if isinstance(spec, BidirectionalLM) and isinstance(stored, BidirectionalLM):
        return replace(spec, output_vocab_size=stored.output_vocab_size)
    return spec


def head_specs_by_name(
    head_names: Collection[str], preset: Published, config: Mapping[str, Any], n_labels: int
) -> dict[str, HeadSpec]:
    """Return heads by internal names, with the settings of a configuration."""
    specs: dict[str, HeadSpec] = {}
    for name in head_names:
        if name == "label" and preset.classification_head is not None:
            is_multilabel = config.get("problem_type") == MULTI_LABEL
            loss = losses.BinaryCrossEntropy() if is_multilabel else losses.CrossEntropy()
            specs[name] = replace(preset.classification_head, n_labels=n_labels, loss=loss)
        elif name == "choice" and preset.classification_head is not None:
            loss = losses.ChoiceCrossEntropy()
            specs[name] = replace(preset.classification_head, term=name, n_labels=1, loss=loss)
        elif name == "token_label":
            specs[name] = replace(token_classification_head(preset), n_labels=n_labels)
        elif name == "spans":
            specs[name] = question_answering_head(preset)
        else:
            specs[name] = {**preset.extra_heads, **preset.heads}[name].with_n_labels(n_labels)
    return specs


def _match_stored_tensors(
    head_specs: Mapping[str, HeadSpec],
    weight_names: WeightNames,
    state: Mapping[str, Tensor],
    language_options: Mapping[str, Any],
) -> dict[str, HeadSpec]:
    """Infer from the tensors whether output embeddings are untied or biased, and positions.

    Configurations are unreliable here. An all-zero bias counts as none: most families with this
    option do not train it.
    """
    options = weight_names.external_tensor("heads.language.out.weight", state)
    table = weight_names.external_tensor("backbone.tokens.weight", state)
    factor = weight_names.external_tensor("backbone.tokens.narrow.weight", state)
    is_equal = factor is None if table is None else options is None or torch.equal(options, table)
    tied = options is None or is_equal
    bias = weight_names.external_tensor("heads.language.bias", state)
    biased = bias is not None and bool(bias.any())

    def found(spec: HeadSpec) -> HeadSpec:
        if not isinstance(spec, LanguageModeling):
            return spec
        spec = replace(spec, **language_options)
        matched = replace(spec, tie_embeddings=tied, bias=spec.bias or biased)
        return (
            replace(matched, query_stream=None)
            if _lacks_positions(matched.query_stream, weight_names, state)
            else matched
        )

    return {name: found(spec) for name, spec in head_specs.items()}


def _unused_pooler(
    weight_names: WeightNames, head_specs: Mapping[str, HeadSpec], state: Mapping[str, Tensor]
) -> Pooler | None:
    """Return the pooler of a folder, if no head contains it."""
    if weight_names.external_tensor(POOLER_WEIGHT, state) is None:
        return None
    dense = [
        n
        for n, spec in head_specs.items()
        if isinstance(spec, SequenceClassification) and spec.dense_layer
    ]
    external_names = {
        external_name
        for name in dense
        for external_name in weight_names.external_names(f"heads.{name}.dense.weight")
    }
    return (
        None
        if external_names.intersection(weight_names.external_names(POOLER_WEIGHT))
        else Pooler()
    )


def _lacks_positions(
    query_stream: Any, weight_names: WeightNames, state: Mapping[str, Tensor]
) -> bool:
    table = "heads.language.decoder.table"
    has_table = weight_names.external_tensor(f"{table}.weight", state) is not None
    return isinstance(query_stream, EnhancedMaskDecoder) and not (
        has_table and weight_names.has_required_tensors(table, state)
    )


def _build_and_load(
    preset: Published,
    head_specs: Mapping[str, HeadSpec],
    state: Mapping[str, Tensor],
    folder: Path,
    seed: int,
) -> tuple[Model, MatchedWeights]:
    model = _build_model(folder, preset, head_specs)
    shapes = {n: p.shape for n, p in model.named_parameters()}
    try:
        matched = _match_tensors(preset, state, shapes)
        tensors = {name: to_float32_weight(name, x) for name, x in matched.tensors.items()}
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None
    if any(name.startswith("backbone.") for name in matched.missing):
        missing = [name for name in matched.missing if name.startswith("backbone.")]
        raise ValueError(
            f"{folder}: the weights lack {len(missing)} tensors of the configured network: "
            f"{', '.join(missing[:3])}"
        )
    check_missing(folder, shapes, matched)
    computed = any(True for _ in model.buffers())  # of no file
    if matched.missing or computed:
        model = preset.build(head_specs).initialize(seed, loaded=matched.tensors)
    model.load_state_dict(tensors, strict=False, assign=True)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.startswith("pooler."))
    return model, matched


def _build_model(folder: Path, preset: Published, head_specs: Mapping[str, HeadSpec]) -> Model:
    try:
        return preset.build_without_memory(head_specs)
    except ValueError as error:
        raise ValueError(f"{folder / 'config.json'}: {error}") from None
    except RuntimeError as error:  # the product of sizes overflows
        raise ValueError(f"{folder / 'config.json'}: the model is too large: {error}") from None


def _match_tensors(
    preset: Published, state: Mapping[str, Tensor], expected_shapes: Mapping[str, torch.Size]
) -> MatchedWeights:
    """Map tensors to internal names: native heads have these, all others external names."""
    native = {n: x for n, x in state.items() if n.startswith("heads.") and n in expected_shapes}
    for name, tensor in native.items():
        if tensor.shape != expected_shapes[name]:
            raise ValueError(
                f"tensor {name} has shape {list(tensor.shape)}, "
                f"the configuration says {list(expected_shapes[name])}"
            )
    matched = preset.weight_names.from_external(
        {n: x for n, x in state.items() if n not in native},
        {n: shape for n, shape in expected_shapes.items() if n not in native},
    )
    return replace(matched, tensors={**matched.tensors, **native})


def max_text_tokens(preset: Published) -> int | None:
    """Return the maximum text length of a model in tokens; None if there is no limit."""
    return preset.architecture.max_positions
