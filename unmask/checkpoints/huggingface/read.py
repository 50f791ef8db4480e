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
from unmask.checkpoints.checksums import check_recorded_files
from unmask.checkpoints.huggingface.check import check_depth, check_missing, check_tied
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
from unmask.heads.classification.label_losses import (
    BinaryCrossEntropy,
    ChoiceCrossEntropy,
    CrossEntropy,
)
from unmask.heads.classification.pooler import Pooler
from unmask.heads.classification.sequence_classification import Pooling, SequenceClassification
from unmask.heads.language.language_modeling import (
    LanguageModeling,
)
from unmask.heads.model import Model
from unmask.heads.pretraining.bidirectional_lm import BidirectionalLM
from unmask.heads.spec import HeadSpec
from unmask.model.backbones.elmo import ElmoArchitecture
from unmask.model.backbones.encoder_decoder import source_encoder_of
from unmask.model.exchange.weight_names import MatchedWeights, WeightNames
from unmask.model.layers.attention.query_stream import EnhancedMaskDecoder
from unmask.objectives.published import CAUSAL_LM, MASKED_LM, XLNET, ObjectiveSpec
from unmask.saved_format import read_record
from unmask.tokenizers.encode import Tokenizer
from unmask.word_vectors.train.trainer import WORD_VECTOR_METHODS, WordVectorMethod
from unmask.zoo.catalogue import preset_for_config
from unmask.zoo.preset import Published, question_answering_head, token_classification_head
from unmask.zoo.unsupported_classes import UNSUPPORTED_CLASSES

HUB_PREFIX = "hf:"
MULTI_LABEL = "multi_label_classification"
"""The `problem_type` of a model whose labels may hold together."""
POOLER_WEIGHT = "pooler.dense.weight"
NATIVE_HEADS_KEY = "unmask"
"""Where config.json says heads that no class of transformers has; their tensors have our names."""
HUB_FILE_PATTERNS = ("*.json", "*.safetensors", "pytorch_model*.bin", "*.txt", "*.model")


@dataclass(frozen=True)
class _NativeHeads:
    """What is under `NATIVE_HEADS_KEY`."""

    heads: Mapping[str, HeadSpec]


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A model as a folder holds it."""

    preset: Published
    """The family's preset with this folder's architecture and heads."""
    model: Model
    tokenizer: Tokenizer | None
    label_names: tuple[str, ...]
    """Names of the classes, for a model that classifies."""
    missing: tuple[str, ...]
    """Weights that the folder does not have: they are freshly initialized."""
    unexpected: tuple[str, ...]
    """Tensors of the folder that this model has no place for."""
    source: str | None = None
    """Path or `hf:owner/name` that the weights and tokenizer were read from. None: built in memory,
    or changed since."""


def resolve_model_folder(name: str | Path) -> Path:
    """Return the folder of a path, a model in the package, or `hf:owner/name` of the Hub, fetched.

    Raises:
        FileNotFoundError: there is no such folder, or the Hub does not answer.
    """
    text = str(name)
    if not text.startswith(HUB_PREFIX):
        folder = Path(name) if Path(name).is_dir() else BUNDLED_MODELS.get(text)
        if folder is None:
            raise FileNotFoundError(f"{name}: no such folder")
        return folder
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    owner, _, revision = text.removeprefix(HUB_PREFIX).partition("@")
    try:
        found = snapshot_download(
            owner, revision=revision or None, allow_patterns=list(HUB_FILE_PATTERNS)
        )
    except HFValidationError as error:
        raise ValueError(f"{text}: {str(error).splitlines()[0]}") from None
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        why = str(error).strip().splitlines()[0]
        raise FileNotFoundError(f"{text}: cannot be fetched from the Hub: {why}") from None
    return Path(found)


def load_folder(
    folder: Path,
    head_specs: Mapping[str, HeadSpec] | None = None,
    seed: int = 0,
    *,
    replacement_tensors: Mapping[str, Tensor] | None = None,
) -> LoadedModel:
    """Open a model of any family of the catalogue.

    Args:
        folder: has config.json and weights, or a .bin file of llama2.c, or ELMo's options.json and
            .hdf5 file; a tokenizer if there is one.
        head_specs: what the model shall have; None: what `architectures` in config.json says.
        seed: fills the weights that the folder does not have.
        replacement_tensors: tensors, named as in the folder, that are in place of the folder's own.

    Raises:
        FileNotFoundError: config.json or the weights are missing.
        ValueError: a file is damaged, the family is unknown, or weights, configuration and
            tokenizer do not fit.
    """
    check_recorded_files(folder)
    card, theirs = read_preset(folder)
    check_depth(folder, card, theirs)
    state, over = _read_external_tensors(folder, card), dict(replacement_tensors or {})
    bare = card.weight_names.bare_name  # a base without heads has no prefix, its adapter has one
    replaced = {bare(name) for name in over}
    state = {name: x for name, x in state.items() if bare(name) not in replaced} | over
    labels = read_label_names(theirs)
    specs = dict(
        read_head_specs(card, theirs, labels, folder) if head_specs is None else head_specs
    )
    check_tied(
        folder,
        card,
        theirs,
        state,
        language_head="language" in specs and replacement_tensors is None,
    )
    specs = _match_stored_tensors(
        specs, card.weight_names, state, card.config_mapping.read_language_head(theirs)
    )
    card = replace(card, unused_pooler=_unused_pooler(card.weight_names, specs, state))
    model, read = _build_and_load(card, specs, state, folder, seed)
    tokenizer = load_model_tokenizer(folder, model.vocab_size)
    source = source_encoder_of(card.architecture)
    if tokenizer is not None and source is not None:
        tokenizer = tokenizer.with_source_tokenizer(
            load_source_tokenizer(folder / SOURCE_TOKENIZER_FOLDER, source.vocab_size)
        )
    objective = _objective_of_heads(card, specs) if head_specs is None else card.objective
    return LoadedModel(
        preset=replace(card, heads=specs, objective=objective),
        model=model.eval(),
        tokenizer=tokenizer,
        label_names=labels if any(spec.has_label_names for spec in specs.values()) else (),
        missing=read.missing,
        unexpected=read.unexpected,
    )


_OBJECTIVE_OF_TERM = {"masked": MASKED_LM, "next_token": CAUSAL_LM, "permuted": XLNET.objective}
"""By what a language head is asked."""


def _objective_of_heads(
    preset: Published, specs: Mapping[str, HeadSpec]
) -> ObjectiveSpec | WordVectorMethod:
    """Return the objective of a model where its heads tell that it is not its preset's."""
    asked = [spec.term for spec in specs.values() if isinstance(spec, LanguageModeling)]
    if isinstance(preset.objective, WORD_VECTOR_METHODS) or not set(asked) - set(
        preset.objective.loss_terms
    ):
        return preset.objective
    return _OBJECTIVE_OF_TERM.get(asked[0], preset.objective)


def is_model_folder(folder: Path) -> bool:
    """Return whether a folder has what `read_preset` reads."""
    return (folder / "config.json").is_file() or any(
        one.find_weights(folder) for one in _OTHER_LAYOUTS
    )


def read_config(folder: Path) -> Mapping[str, Any]:
    """Read what config.json says, or what it would say of a folder in another layout.

    Those are llama2.c's, and that of ELMo's released code.

    Raises:
        FileNotFoundError: it is neither.
        ValueError: the file is not a JSON object.
    """
    path = folder / "config.json"
    if not path.is_file():
        for one in _OTHER_LAYOUTS:
            if (other := one.find_weights(folder)) is not None:
                return one.read_config(other)
    return read_json_file(path)


_OTHER_LAYOUTS = (llama2c, elmo)


def _read_external_tensors(folder: Path, preset: Published) -> dict[str, Tensor]:
    if not (folder / "config.json").is_file():
        if (other := llama2c.find_weights(folder)) is not None:
            return llama2c.read_weights(other)
        if (other := elmo.find_weights(folder)) is not None:
            return elmo.read_weights(other, cast(ElmoArchitecture, preset.architecture))
    return {_modern_name(name): x for name, x in read_model_tensors(folder).items()}


def read_preset(folder: Path) -> tuple[Published, dict[str, Any]]:
    """Return what a folder says of its model: its preset, and the configuration, keys filled in.

    Raises:
        FileNotFoundError: it has no configuration.
        ValueError: the family is unknown, or a key holds what it may not hold.
    """
    said = read_config(folder)
    try:
        card = preset_for_config(said)
        theirs = card.config_mapping.config_keys.complete(said)
        architecture, labels = (
            card.config_mapping.to_architecture(theirs),
            _read_classification_head(card, theirs),
        )
    except (ValueError, TypeError) as error:
        raise ValueError(f"{folder / 'config.json'}: {error}") from None
    name = str(theirs.get("_name_or_path") or folder.name)
    return replace(card, architecture=architecture, name=name, classification_head=labels), theirs


def _read_classification_head(
    preset: Published, config: Mapping[str, Any]
) -> SequenceClassification | None:
    """Return the preset's head of labels, reading what their configuration says."""
    if preset.classification_head is None:
        return None
    labels = replace(
        preset.classification_head, **preset.config_mapping.read_classification_head(config)
    )
    if (
        preset.config_mapping.pooling_key is None
        or config.get(preset.config_mapping.pooling_key[0]) is None
    ):
        return labels
    key, pools = preset.config_mapping.pooling_key
    return replace(labels, pooling=cast(Pooling, pools[config[key]]))


def _modern_name(name: str) -> str:
    """Rename what the first releases called gamma and beta."""
    return re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))


def read_label_names(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the labels that a configuration of theirs says."""
    table = config.get("id2label")
    if isinstance(table, dict):
        return tuple(str(table[k]) for k in sorted(table, key=int))
    return tuple(f"LABEL_{i}" for i in range(config.get("num_labels") or 2))


def read_head_specs(
    preset: Published, config: Mapping[str, Any], label_names: tuple[str, ...], folder: Path
) -> Mapping[str, HeadSpec]:
    """Find which heads the configuration's class of theirs has, or which of ours it says.

    The preset's own where it says none or an unknown one.
    """
    if NATIVE_HEADS_KEY in config:
        return _native_heads(folder, config)
    wanted = (cast("Sequence[str]", config.get("architectures")) or ("",))[0]
    if wanted in UNSUPPORTED_CLASSES and preset.config_mapping.heads_of_class(wanted) is None:
        raise ValueError(
            f"{folder / 'config.json'}: architectures: {wanted} is not read: "
            f"{UNSUPPORTED_CLASSES[wanted]}"
        )
    kept = tuple(name for name, spec in preset.heads.items() if spec.is_kept_after_pretraining)
    found = preset.config_mapping.heads_of_class(wanted)
    names = kept if found is None else found
    made = head_specs_by_name(names, preset, config, len(label_names))
    forward = wanted in preset.config_mapping.causal_class_names.values()
    return {name: s.as_causal() for name, s in made.items()} if forward else made


def as_large(heads: Mapping[str, HeadSpec], folder: Path) -> dict[str, HeadSpec]:
    """Return heads, those of a vocabulary of their own with as many words as a folder's have.

    Raises:
        FileNotFoundError, ValueError: as `load_folder`.
    """
    theirs = read_preset(folder)[1]
    if NATIVE_HEADS_KEY not in theirs:
        return dict(heads)
    own = _native_heads(folder, theirs)
    return {n: _as_large(spec, own.get(n)) for n, spec in heads.items()}


def _native_heads(folder: Path, config: Mapping[str, Any]) -> Mapping[str, HeadSpec]:
    """Return the heads that we noted in a configuration."""
    location = f"{folder / 'config.json'}: {NATIVE_HEADS_KEY}"
    return from_dict(_NativeHeads, read_record(config[NATIVE_HEADS_KEY], location), location).heads


def _as_large(spec: HeadSpec, own: HeadSpec | None) -> HeadSpec:
    if isinstance(spec, BidirectionalLM) and isinstance(own, BidirectionalLM):
        return replace(spec, output_vocab_size=own.output_vocab_size)
    return spec


def head_specs_by_name(
    head_names: Collection[str], preset: Published, config: Mapping[str, Any], n_labels: int
) -> dict[str, HeadSpec]:
    """Return the heads of a class of theirs, by our names, as a configuration of theirs says."""
    made: dict[str, HeadSpec] = {}
    for name in head_names:
        if name == "label" and preset.classification_head is not None:
            several = config.get("problem_type") == MULTI_LABEL
            loss = BinaryCrossEntropy() if several else CrossEntropy()
            made[name] = replace(preset.classification_head, n_labels=n_labels, loss=loss)
        elif name == "choice" and preset.classification_head is not None:
            made[name] = replace(
                preset.classification_head, term=name, n_labels=1, loss=ChoiceCrossEntropy()
            )
        elif name == "token_label":
            made[name] = replace(token_classification_head(preset), n_labels=n_labels)
        elif name == "spans":
            made[name] = question_answering_head(preset)
        else:
            made[name] = {**preset.extra_heads, **preset.heads}[name]
    return made


def _match_stored_tensors(
    head_specs: Mapping[str, HeadSpec],
    weight_names: WeightNames,
    state: Mapping[str, Tensor],
    language_options: Mapping[str, Any],
) -> dict[str, HeadSpec]:
    """Read off the tensors whether scores have a matrix or a bias of their own, a decoder places.

    Configurations are not to be trusted here. A bias that is all zeros is none: most families that
    can have one never learn it.
    """
    own = weight_names.external_tensor("heads.language.out.weight", state)
    table = weight_names.external_tensor("backbone.tokens.weight", state)
    tied = own is None or table is None or torch.equal(own, table)
    bias = weight_names.external_tensor("heads.language.bias", state)
    biased = bias is not None and bool(bias.any())

    def found(spec: HeadSpec) -> HeadSpec:
        if not isinstance(spec, LanguageModeling):
            return spec
        read = replace(spec, **language_options, tie_embeddings=tied, bias=spec.bias or biased)
        return (
            replace(read, query_stream=None)
            if _lacks_positions(read.query_stream, weight_names, state)
            else read
        )

    return {name: found(spec) for name, spec in head_specs.items()}


def _unused_pooler(
    weight_names: WeightNames, head_specs: Mapping[str, HeadSpec], state: Mapping[str, Tensor]
) -> Pooler | None:
    """Return the map above the first token that a folder has, if no head holds it."""
    if weight_names.external_tensor(POOLER_WEIGHT, state) is None:
        return None
    dense = [
        n
        for n, spec in head_specs.items()
        if isinstance(spec, SequenceClassification) and spec.dense_layer
    ]
    held = {
        one for name in dense for one in weight_names.external_names(f"heads.{name}.dense.weight")
    }
    return None if held.intersection(weight_names.external_names(POOLER_WEIGHT)) else Pooler()


def _lacks_positions(
    query_stream: Any, weight_names: WeightNames, state: Mapping[str, Tensor]
) -> bool:
    table = "heads.language.decoder.table"
    there = weight_names.external_tensor(f"{table}.weight", state) is not None
    return isinstance(query_stream, EnhancedMaskDecoder) and not (
        there and weight_names.has_required_tensors(table, state)
    )


def _build_and_load(
    preset: Published,
    head_specs: Mapping[str, HeadSpec],
    state: Mapping[str, Tensor],
    folder: Path,
    seed: int,
) -> tuple[Model, MatchedWeights]:
    model = _build_model(folder, preset, head_specs)
    wanted = {n: p.shape for n, p in model.named_parameters()}
    try:
        read = _match_tensors(preset, state, wanted)
        tensors = {name: to_float32_weight(name, x).clone() for name, x in read.tensors.items()}
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None
    if any(name.startswith("backbone.") for name in read.missing):
        lacking = [name for name in read.missing if name.startswith("backbone.")]
        raise ValueError(
            f"{folder}: the weights lack {len(lacking)} tensors of the configuration's network: "
            f"{', '.join(lacking[:3])}"
        )
    check_missing(folder, wanted, read)
    computed = any(True for _ in model.buffers())  # of no file
    if read.missing or computed:
        model = preset.build(head_specs).initialize(seed, loaded=read.tensors)
    model.load_state_dict(tensors, strict=False, assign=True)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.startswith("pooler."))
    return model, read


def _build_model(folder: Path, preset: Published, head_specs: Mapping[str, HeadSpec]) -> Model:
    try:
        return preset.build_without_memory(head_specs)
    except ValueError as error:
        raise ValueError(f"{folder / 'config.json'}: {error}") from None
    except RuntimeError as error:  # a product of sizes that is no number of bytes
        raise ValueError(f"{folder / 'config.json'}: no machine holds it: {error}") from None


def _match_tensors(
    preset: Published, state: Mapping[str, Tensor], expected_shapes: Mapping[str, torch.Size]
) -> MatchedWeights:
    """Find our tensors: of heads that theirs lack by our names, all others by theirs."""
    own = {n: x for n, x in state.items() if n.startswith("heads.") and n in expected_shapes}
    for name, tensor in own.items():
        if tensor.shape != expected_shapes[name]:
            raise ValueError(
                f"tensor {name} has shape {list(tensor.shape)}, "
                f"the configuration says {list(expected_shapes[name])}"
            )
    read = preset.weight_names.from_external(
        {n: x for n, x in state.items() if n not in own},
        {n: shape for n, shape in expected_shapes.items() if n not in own},
    )
    return replace(read, tensors={**read.tensors, **own})


def max_text_tokens(preset: Published) -> int | None:
    """Return how many tokens a text may have for this model; None where there is no such limit."""
    return preset.architecture.max_positions
