"""Read and write folders in the Hugging Face layout.

That is config.json, model.safetensors and the tokenizer's files.
"""

import json
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
from unmask.checkpoints.tensors import (
    SAFETENSORS_WEIGHTS,
    read_json_file,
    read_model_tensors,
    to_float32_weight,
    write_tensors,
)
from unmask.config import from_dict, to_dict
from unmask.files import encode_utf8
from unmask.heads.classification.pooler import Pooler
from unmask.heads.classification.sequence_classification import (
    BinaryCrossEntropy,
    ChoiceCrossEntropy,
    CrossEntropy,
    Pooling,
    SequenceClassification,
    TokenClassification,
)
from unmask.heads.language.language_modeling import (
    AppendedMaskGeneration,
    LanguageModeling,
    ShiftedTargetGeneration,
    SourcePrefixGeneration,
)
from unmask.heads.model import HeadSpec, Model, is_kept_after_pretraining
from unmask.heads.pretraining.autoregressive_characters import AutoregressiveCharacters
from unmask.heads.pretraining.bidirectional_lm import BidirectionalLM
from unmask.heads.question_answering import QuestionAnswering
from unmask.heads.tagging.bilstm_crf import BiLSTMCRF
from unmask.model.architecture import source_encoder_of
from unmask.model.backbones.elmo import ElmoArchitecture
from unmask.model.layers.attention.query_stream import EnhancedMaskDecoder
from unmask.model.names import MatchedWeights, WeightNames
from unmask.objectives.published import CAUSAL_LM, MASKED_LM, XLNET, ObjectiveSpec
from unmask.saved_format import read_record, write_record
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.load import load_tokenizer
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.word_vectors.train.trainer import WORD_VECTOR_METHODS, WordVectorMethod
from unmask.zoo.catalogue import MODELS, preset_for_config
from unmask.zoo.native_format import NATIVE_PREFIX as OWN_WORDS
from unmask.zoo.native_format import inexpressible_keys
from unmask.zoo.preset import (
    Published,
    max_positions,
    question_answering_head,
    token_classification_head,
    with_vocab_size,
)
from unmask.zoo.unsupported_classes import UNSUPPORTED_CLASSES, unsupported_reason

HUB_PREFIX = "hf:"
MULTI_LABEL = "multi_label_classification"
"""The `problem_type` of a model whose labels may hold together."""
POOLER_WEIGHT = "pooler.dense.weight"
NATIVE_HEADS_KEY = "unmask"
"""Where config.json says heads that no class of transformers has; their tensors have our names."""
SOURCE_TOKENIZER_FOLDER = "source"
"""The folder in a model's with the tokenizer of sources that have a vocabulary of their own."""
HUB_FILE_PATTERNS = ("*.json", "*.safetensors", "pytorch_model*.bin", "*.txt", "*.model")


@dataclass(frozen=True)
class _NativeHeads:
    """What stands under `NATIVE_HEADS_KEY`."""

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
        replacement_tensors: tensors, named as in the folder, that stand in place of the folder's
            own.

    Raises:
        FileNotFoundError: config.json or the weights are missing.
        ValueError: a file is damaged, the family is unknown, or weights, configuration and
            tokenizer do not fit.
    """
    check_recorded_files(folder)
    card, theirs = read_preset(folder)
    check_depth(folder, card, theirs)
    state = _read_external_tensors(folder, card) | dict(replacement_tensors or {})
    labels = read_label_names(theirs)
    specs = dict(
        _read_head_specs(card, theirs, labels, folder) if head_specs is None else head_specs
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
    tokenizer = _load_tokenizer(folder, model.vocab_size)
    source = source_encoder_of(card.architecture)
    if tokenizer is not None and source is not None:
        tokenizer = tokenizer.with_source_tokenizer(
            _load_source_tokenizer(folder / SOURCE_TOKENIZER_FOLDER, source.vocab_size)
        )
    objective = _objective_of_heads(card, specs) if head_specs is None else card.objective
    return LoadedModel(
        preset=replace(card, heads=specs, objective=objective),
        model=model.eval(),
        tokenizer=tokenizer,
        label_names=labels if any(map(has_label_names, specs.values())) else (),
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
    """Say whether a folder has what `read_preset` reads."""
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


def has_label_names(spec: HeadSpec) -> bool:
    """Say whether a head scores labels that have names."""
    return isinstance(spec, SequenceClassification | TokenClassification | BiLSTMCRF)


def heads_without_transformers_class(
    preset: Published, head_specs: Mapping[str, HeadSpec]
) -> dict[str, str]:
    """Describe the heads that no class of transformers has, by name.

    The class is the one that has the most of the others.
    """
    own = {
        n: said
        for n, s in head_specs.items()
        if (said := _head_without_class(preset, s)) is not None
    }
    left = [n for n, s in head_specs.items() if n not in own and is_kept_after_pretraining(s)]
    classes = preset.config_mapping.class_names_of(preset.architecture)
    class_of = max((k for k in classes if set(k) <= set(left)), key=len)
    return own | {n: type(head_specs[n]).__name__ for n in left if n not in class_of}


def transformers_difference(preset: Published, head_specs: Mapping[str, HeadSpec]) -> str | None:
    """Say what transformers does otherwise than a model that it opens; None: all is equal."""
    there = preset.config_mapping.in_transformers
    return preset.config_mapping.difference(preset.architecture, head_specs) if there else None


def opening_note(preset: Published, head_specs: Mapping[str, HeadSpec]) -> str | None:
    """Say what opens a model of which transformers lacks something; None: it opens all of it."""
    if not preset.config_mapping.in_transformers:
        return (
            f"{_native_format_note(preset)}transformers has no class of this network: "
            "`unmask.load` opens it"
        )
    other = transformers_difference(preset, head_specs)
    own = heads_without_transformers_class(preset, head_specs)
    said = [
        line for line in (_missing_head_note(preset, head_specs, own), other) if line is not None
    ]
    return "; ".join(said) or None


def _missing_head_note(
    preset: Published, head_specs: Mapping[str, HeadSpec], native_heads: Mapping[str, str]
) -> str | None:
    """Say which head of a model transformers does not open, and, where it has a class, why not."""
    if not native_heads:
        return next(
            (said for spec in head_specs.values() if (said := _head_difference(spec))), None
        )
    which, rest = (
        ("its", "model below the head") if len(native_heads) == len(head_specs) else ("a", "rest")
    )
    name, head = next(iter(native_heads.items()))
    why = unsupported_reason(name, preset.config_mapping.class_names[()])
    return (
        f"{which} head is {head}, which transformers does not have"
        f"{'' if why is None else f' ({why})'}: that opens the {rest}, `unmask.load` opens both"
    )


def _native_format_note(preset: Published) -> str:
    """Say which keys of a network its family's format cannot say; nothing: the format is ours."""
    if not preset.config_mapping.model_type.startswith(OWN_WORDS):
        return ""
    keys = inexpressible_keys(
        preset, next(one for one in MODELS.values() if one.family == preset.family)
    )
    said = ", ".join(f"architecture.{key}" for key in keys) or "this architecture"
    return f"the format of {preset.family} cannot say {said}, so it is in our words: "


def _head_difference(spec: HeadSpec) -> str | None:
    """Say what the other library does otherwise with a head that it has."""
    forward = spec.generation if isinstance(spec, LanguageModeling) else None
    if isinstance(forward, AppendedMaskGeneration) and forward.source_segment is not None:
        return "transformers fills masks with it and does not write; `unmask.load` does both"
    if isinstance(forward, ShiftedTargetGeneration):
        return (
            "each place names the token after its own, which transformers takes for its own; "
            "`unmask.load` fills masks as they were learned"
        )
    if isinstance(forward, SourcePrefixGeneration) and forward.bidirectional_source:
        return (
            "it sees a prompt as a whole, which transformers reads forward; `unmask.load` does as "
            "it was learned"
        )
    return None


def _head_without_class(preset: Published, spec: HeadSpec) -> str | None:
    if isinstance(spec, BiLSTMCRF | AutoregressiveCharacters):
        return type(spec).__name__
    if isinstance(spec, TokenClassification | QuestionAnswering):
        usual = (
            token_classification_head(preset)
            if isinstance(spec, TokenClassification)
            else question_answering_head(preset)
        )
        return (
            None
            if spec.transform == usual.transform
            else f"{type(spec).__name__}(transform={spec.transform})"
        )
    if not isinstance(spec, SequenceClassification) or preset.classification_head is None:
        return None
    pools = (
        {} if preset.config_mapping.pooling_key is None else preset.config_mapping.pooling_key[1]
    )
    pool = {} if spec.pooling in pools.values() else {"pooling": spec.pooling}
    read = {**pool, "pooled_layers": spec.pooled_layers}
    other = [f"{n}={x!r}" for n, x in read.items() if x != getattr(preset.classification_head, n)]
    return f"{type(spec).__name__}({', '.join(other)})" if other else None


def _read_head_specs(
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
    kept = tuple(name for name, spec in preset.heads.items() if is_kept_after_pretraining(spec))
    found = preset.config_mapping.heads_of_class(wanted)
    names = kept if found is None else found
    made = head_specs_by_name(names, preset, config, len(label_names))
    forward = wanted in preset.config_mapping.causal_class_names.values()
    return {name: as_causal_head(s) for name, s in made.items()} if forward else made


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
    where = f"{folder / 'config.json'}: {NATIVE_HEADS_KEY}"
    return from_dict(_NativeHeads, read_record(config[NATIVE_HEADS_KEY], where), where).heads


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


def as_causal_head(spec: HeadSpec) -> HeadSpec:
    """Return a head as a network that reads forward has it."""
    if not isinstance(spec, LanguageModeling):
        return spec
    return replace(spec, term="next_token", query_stream=None, generation=None)


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
    with torch.device("meta"):
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
        return preset.build(head_specs)
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


def _load_tokenizer(folder: Path, n_embeddings: int) -> Tokenizer | None:
    try:
        tokenizer = load_tokenizer(folder)
    except FileNotFoundError:
        if elmo.find_weights(folder) is None:
            return None
        tokenizer = elmo.elmo_tokenizer()
    check_tokenizer_size(tokenizer, n_embeddings, folder)
    return tokenizer


def _load_source_tokenizer(folder: Path, n_embeddings: int) -> Tokenizer:
    """Read the tokenizer of sources, without which the model reads nothing."""
    found = _load_tokenizer(folder, n_embeddings)
    if found is None:
        raise ValueError(f"{folder}: has no tokenizer, with which the model would read sources")
    return found


def check_tokenizer_size(tokenizer: Tokenizer, n_embeddings: int, where: Path | str) -> None:
    """Refuse a tokenizer that knows more ids than the model has vectors.

    Raises:
        ValueError: so it is.
    """
    if tokenizer.vocab_size > n_embeddings:
        raise ValueError(
            f"{where}: the tokenizer has {tokenizer.vocab_size:,} ids, "
            f"but the model only {n_embeddings:,} token vectors"
        )


def write_folder(
    folder: Path,
    model: Model,
    preset: Published,
    tokenizer: Tokenizer | None,
    label_names: Sequence[str] = (),
    *,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Write a model into `folder`.

    config.json, generation_config.json, model.safetensors and the tokenizer's files. The files are
    written one after another: the caller makes the folder whole. Of heads that transformers has no
    class for it opens the backbone only.
    """
    folder.mkdir(parents=True, exist_ok=True)
    theirs = to_external_config(model, preset, tokenizer, label_names)
    _write_json(folder / "config.json", theirs | {"dtype": str(dtype).removeprefix("torch.")})
    weights = {k: v.to(dtype) for k, v in model.trained_weights().items()}
    others = heads_without_transformers_class(preset, model.head_specs)
    own = {k: v for k, v in weights.items() if k.startswith(tuple(f"heads.{n}." for n in others))}
    named = {k: v for k, v in weights.items() if k not in own}
    state = preset.weight_names.to_external(named)
    if theirs.get("tie_word_embeddings") is False and not preset.config_mapping.ties_embeddings(
        theirs
    ):
        state |= preset.weight_names.tied_copies(named)
    if set(model.head_specs) - set(others) <= {"language"}:
        state = preset.weight_names.zero_rows(weights) | state
    if all(n in others or not is_kept_after_pretraining(s) for n, s in model.head_specs.items()):
        state = preset.weight_names.without_prefix(state)
    if theirs["architectures"][0] in preset.config_mapping.aliased_classes:
        state = preset.weight_names.with_alias(state)
    write_tensors(folder / SAFETENSORS_WEIGHTS, {**state, **own})
    if tokenizer is not None:
        tokenizer.save(
            folder, uses_segments=None if model.decoder_architecture.uses_segments else False
        )
        if tokenizer.source_tokenizer is not None:
            tokenizer.source_tokenizer.save(folder / SOURCE_TOKENIZER_FOLDER)
        if "language" in model.head_specs and (model.decoder_architecture.causal):
            _write_json(
                folder / "generation_config.json", _generation_config(tokenizer.special_ids, model)
            )


def to_external_config(
    model: Model,
    preset: Published,
    tokenizer: Tokenizer | None = None,
    label_names: Sequence[str] = (),
) -> dict[str, Any]:
    """Return their config.json of a model of ours."""
    own = heads_without_transformers_class(preset, model.head_specs)
    classes = preset.config_mapping.class_names_of(preset.architecture)
    specs = {n: s for n, s in model.head_specs.items() if is_kept_after_pretraining(s)}
    has = specs.keys() - own.keys()
    heads = next(k for k in classes if set(k) == has)
    theirs = preset.config_mapping.from_architecture(
        with_vocab_size(model.architecture, model.vocab_size)
    )
    theirs |= {"model_type": preset.config_mapping.model_type, "architectures": [classes[heads]]}
    if own or not _class_determines_heads(preset, specs):
        theirs[NATIVE_HEADS_KEY] = write_record({"heads": to_dict(specs)})
    language = model.head_specs.get("language")
    if isinstance(language, LanguageModeling):
        theirs["tie_word_embeddings"] = language.tie_embeddings
        if "scale_hidden" in preset.config_mapping.read_language_head({}):
            theirs["scale_decoder_outputs"] = language.scale_hidden
        theirs |= preset.config_mapping.write_language_head(language)
    if label_names:
        theirs["id2label"] = {str(i): name for i, name in enumerate(label_names)}
        theirs["label2id"] = {name: i for i, name in enumerate(label_names)}
    theirs |= _pooling_config(model.head_specs, preset)
    if label_names and (problem := _problem_type(model.head_specs)) is not None:
        theirs["problem_type"] = problem
    if tokenizer is not None:
        theirs |= _special_id_config(tokenizer.special_ids, model)
    return theirs


def _class_determines_heads(preset: Published, head_specs: Mapping[str, HeadSpec]) -> bool:
    """Say whether their configuration tells what a language head is asked, and how it says text."""
    spec = head_specs.get("language")
    cards = (one for one in MODELS.values() if one.family == preset.family)
    usual = next(cards, preset)
    theirs = {**usual.extra_heads, **usual.heads}.get("language")
    if not isinstance(spec, LanguageModeling) or not isinstance(theirs, LanguageModeling):
        return True
    if isinstance(spec.generation, AppendedMaskGeneration):  # UniLM's format says so
        return spec.term == theirs.term
    return (spec.term, spec.generation) == (theirs.term, theirs.generation)


def _problem_type(head_specs: Mapping[str, HeadSpec]) -> str | None:
    """Return their `problem_type`: by which loss their class learns, and what its scores mean."""
    spec = head_specs.get("label")
    if not isinstance(spec, SequenceClassification) or isinstance(spec.loss, ChoiceCrossEntropy):
        return None
    if isinstance(spec.loss, BinaryCrossEntropy):
        return MULTI_LABEL
    return "regression" if spec.n_labels == 1 else "single_label_classification"


def _pooling_config(head_specs: Mapping[str, HeadSpec], preset: Published) -> dict[str, str]:
    """Return what their configuration says of the pool of a head of labels."""
    if preset.config_mapping.pooling_key is None:
        return {}
    key, pools = preset.config_mapping.pooling_key
    used = [
        spec.pooling for spec in head_specs.values() if isinstance(spec, SequenceClassification)
    ]
    said = [theirs for theirs, ours in pools.items() if ours in used]
    return {key: said[0]} if said else {}


def _special_id_config(special_ids: SpecialTokenIds, model: Model) -> dict[str, int]:
    ids = {"pad_token_id": special_ids.pad}
    if model.decoder_architecture.causal:
        if special_ids.end is not None:
            ids["eos_token_id"] = special_ids.end
        if model.decoder_architecture.cross_attention:
            ids["decoder_start_token_id"] = special_ids.start
            if special_ids.decoder_prefix:
                ids["bos_token_id"] = special_ids.decoder_prefix[0]
        else:
            ids["bos_token_id"] = special_ids.start
    return ids


def _generation_config(special_ids: SpecialTokenIds, model: Model) -> dict[str, int]:
    """Return their generation_config.json: what is read before an answer is said by force there."""
    forced = (
        {"forced_bos_token_id": special_ids.decoder_prefix[0]}
        if model.decoder_architecture.cross_attention and special_ids.decoder_prefix
        else {}
    )
    return _special_id_config(special_ids, model) | forced


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    path.write_bytes(encode_utf8(json.dumps(data, indent=2, ensure_ascii=False) + "\n"))


def max_text_tokens(preset: Published) -> int | None:
    """Return how many tokens a text may have for this model; None where there is no such limit."""
    return max_positions(preset.architecture)
