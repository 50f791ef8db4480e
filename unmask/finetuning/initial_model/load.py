"""The initial model of a fine-tuning run: preset, tokenizer, and pretrained weights."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from unmask.adapters.folder import is_adapter, merge_permanently, open_adapter
from unmask.bundled.models import BUNDLED_MODELS
from unmask.checkpoints.huggingface.preprocessing import preset_preprocessing
from unmask.checkpoints.huggingface.read import (
    HUB_PREFIX,
    NATIVE_HEADS_KEY,
    LoadedModel,
    load_folder,
    read_preset,
    resolve_model_folder,
)
from unmask.checkpoints.huggingface.tokenizer import check_tokenizer_size
from unmask.conversations.template import ChatTemplate
from unmask.finetuning.formulations.build import heads_for_task
from unmask.finetuning.formulations.formulation import (
    CHOICE_HEAD,
    LABEL_HEAD,
    LANGUAGE_HEAD,
    SPAN_HEAD,
    TOKEN_LABEL_HEAD,
)
from unmask.finetuning.formulations.pooling import without_trained_pooler
from unmask.finetuning.initial_model.auxiliary_lm import with_language_head
from unmask.finetuning.initial_model.picture_network import (
    picture_network,
    preprocessing_of_size,
)
from unmask.finetuning.initial_model.task_tokens import (
    PER_TOKEN_PARAMETERS,
    add_task_tokens,
    resolve_input_options,
    with_embeddings_for,
)
from unmask.heads.classification.sequence_classification import (
    SequenceClassification,
    TokenClassification,
)
from unmask.heads.model import Model
from unmask.heads.question_answering import QuestionAnswering
from unmask.heads.spec import HeadSpec
from unmask.heads.tagging.bilstm_crf import BiLSTMCRF
from unmask.images.preprocessing import ImagePreprocessing
from unmask.model.layers.quantized_inputs import (
    InputQuantization,
    attach_quantizations,
    input_names,
    quantized_inputs,
)
from unmask.tasks.task import Task
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn.tokenizer import picture_tokenizer, train_tokenizer
from unmask.tokenizers.load import load_tokenizer
from unmask.tokenizers.vocabulary import VocabularySpec
from unmask.zoo.catalogue import ALIASES, MODELS, did_you_mean, get_preset
from unmask.zoo.preset import Published


@dataclass(frozen=True, kw_only=True)
class InitialModel:
    """The initial model of a run, independent of the seed."""

    preset: Published
    """Preset with the heads of the task."""
    tokenizer: Tokenizer
    pretrained_weights: Mapping[str, Tensor]
    """Pretrained weights, by our names; all others are initialized from a seed."""
    task: Task
    """The task; its labels are in the model's order, if the model was trained for exactly these."""
    unexpected: tuple[str, ...] = ()
    """Tensors of the folder that the model does not use."""
    new_token_ids: range = range(0)
    """Ids of tokens that are new to the pretrained tokenizer; their embeddings are initialized."""
    preprocessing: ImagePreprocessing | None = None
    """How pictures are prepared. None: it reads none."""
    chat_template: ChatTemplate | None = None
    """How it reads conversations. None: nothing is known of that."""
    quantized_inputs: Mapping[str, InputQuantization] = field(
        default_factory=dict[str, InputQuantization]
    )
    """How linear layers of the pretrained model round their inputs; empty: they do not."""

    @property
    def is_pretrained(self) -> bool:
        """Whether there are pretrained weights."""
        return bool(self.pretrained_weights)

    def newly_initialized(self) -> tuple[str, ...]:
        """Names of the weights that are initialized."""
        model = self.preset.build_without_memory()
        return tuple(
            name for name, _ in model.named_parameters() if name not in self.pretrained_weights
        )

    def build_model(self, seed: int, *, use_pretrained: bool = True) -> Model:
        """Build the model; missing weights, or all if not `use_pretrained`, are initialized."""
        tables = PER_TOKEN_PARAMETERS if self.new_token_ids else ()
        complete = [name for name in self.pretrained_weights if name not in tables]
        model = self.preset.build().initialize(seed, loaded=complete if use_pretrained else ())
        if use_pretrained:
            weights = model.own_weights()
            with torch.no_grad():
                for name, tensor in self.pretrained_weights.items():
                    if name in tables:
                        _copy_known_rows(weights[name], tensor, self.new_token_ids)
                    else:
                        weights[name].copy_(tensor)
            known = set(input_names(model))
            rounding = {n: one for n, one in self.quantized_inputs.items() if n in known}
            attach_quantizations(model, rounding)
        return model


def _copy_known_rows(embedding_table: Tensor, known_rows: Tensor, new_token_ids: range) -> None:
    """Copy the known rows of an embedding table, except those of new tokens."""
    new_rows = embedding_table[new_token_ids.start : new_token_ids.stop].clone()
    embedding_table[: len(known_rows)].copy_(known_rows)
    embedding_table[new_token_ids.start : new_token_ids.stop] = new_rows


@dataclass(frozen=True, kw_only=True)
class InitialModelOptions:
    """Changes of a run to its initial model."""

    tokenizer: str | None = None
    """Folder of a tokenizer, for a catalogue name. None: trained on the texts."""
    vocabulary: VocabularySpec | None = None
    """Type of tokenizer to train. None: that of the preset."""
    dropout: float | None = None
    """Dropout probability. None: that of the preset."""
    lm_loss_weight: float | None = None
    """Weight of the auxiliary language modeling loss. None: that of the preset."""
    trains_embeddings: bool = True
    """Whether token embeddings are trained, so that task tokens may be added."""
    keeps_first_token: bool = False
    """Whether the tuning method leaves the first token nearly as it was pretrained."""
    keeps_backbone: bool = False
    """Whether the network stays as it is, since an adapter of it is saved without it."""


def load_initial_model(
    source: str | LoadedModel,
    task: Task,
    texts: Iterable[str],
    options: InitialModelOptions = InitialModelOptions(),
) -> InitialModel:
    """Return the initial model of a run.

    Args:
        source: a run folder, a folder in the Hugging Face layout, `hf:owner/name`, a bundled model,
            an open model, or a catalogue name, which has no weights.
        task: the task, with its labels.
        texts: training texts of the vocabulary of a catalogue name without a tokenizer.
        options: changes to the model.

    Raises:
        FileNotFoundError: there is no such folder or model.
        ValueError: the model does not support the task, has no tokenizer, or its folder is damaged.
    """
    if isinstance(source, LoadedModel):
        initial_model = _from_loaded_model(source, task, options)
    elif Path(source).is_dir() or source.startswith(HUB_PREFIX) or source in BUNDLED_MODELS:
        initial_model = _from_folder(resolve_model_folder(source), task, options)
    elif source in MODELS or source in ALIASES:
        card = _with_dropout(get_preset(source), options.dropout)
        if options.vocabulary is not None:
            tokenizer_spec = replace(card.tokenizer, vocabulary=options.vocabulary)
            card = replace(card, tokenizer=tokenizer_spec)
        return _for_pictures(_from_preset(card, task, texts, options))
    else:
        raise FileNotFoundError(
            f"{source}: no such folder, and no model of the catalogue{did_you_mean(source)}"
        )
    if options.tokenizer is not None or options.vocabulary is not None:
        name = "tokenizer" if options.vocabulary is None else "vocabulary"
        raise ValueError(
            f"{name} is for a model of the catalogue; {initial_model.preset.name} has its own"
        )
    initial_model = replace(
        initial_model, preset=_with_dropout(initial_model.preset, options.dropout)
    )
    return _for_pictures(initial_model, keeps_backbone=options.keeps_backbone)


def _for_pictures(initial_model: InitialModel, *, keeps_backbone: bool = False) -> InitialModel:
    """Return the initial model for pictures of the task's size; one of texts is unchanged.

    Raises:
        ValueError: the size is not one of the network, or the network must stay as it is.
    """
    own = initial_model.preprocessing
    if own is None or initial_model.preset.reads_texts:
        return initial_model
    size = initial_model.task.options.get("image_size")
    if keeps_backbone:
        if size is not None and own.size != (size, size):
            raise ValueError(
                f"options.image_size = {size}: an adapter belongs to the network as it is, which "
                f"reads {own.size}; leave it out, or use tune = full"
            )
        return initial_model
    preset, weights = picture_network(initial_model.preset, initial_model.pretrained_weights, size)
    return replace(
        initial_model,
        preset=preset,
        pretrained_weights=weights,
        preprocessing=preprocessing_of_size(own, size),
    )


def _head_specs(task: Task, preset: Published, lm_loss_weight: float | None) -> dict[str, HeadSpec]:
    return with_language_head(heads_for_task(task, preset), preset, lm_loss_weight)


def _from_preset(
    preset: Published,
    task: Task,
    texts: Iterable[str],
    options: InitialModelOptions,
) -> InitialModel:
    if preset.pooler_head:
        task = without_trained_pooler(task, keeps_first_token=options.keeps_first_token)
    # An unsupported task is refused before a vocabulary is trained.
    _head_specs(task, preset, options.lm_loss_weight)
    folder = None if options.tokenizer is None else resolve_model_folder(options.tokenizer)
    if not preset.reads_texts:
        tokenizer = picture_tokenizer()
    else:
        tokenizer = (
            train_tokenizer(preset.tokenizer, texts) if folder is None else load_tokenizer(folder)
        )
    task = resolve_input_options(
        task, preset, tokenizer, trains_embeddings=options.trains_embeddings
    )
    tokenizer, heads = (
        add_task_tokens(task, tokenizer),
        _head_specs(task, preset, options.lm_loss_weight),
    )
    preset = replace(preset.with_vocabulary(tokenizer.special_ids), heads=heads)
    return InitialModel(
        preset=preset,
        tokenizer=tokenizer,
        pretrained_weights={},
        task=task,
        preprocessing=preset_preprocessing(preset),
    )


def _from_folder(folder: Path, task: Task, options: InitialModelOptions) -> InitialModel:
    """Load a folder with the task's head; if it has such a head, with that one, to compare."""
    if is_adapter(folder):
        opened = open_adapter(folder)
        merge_permanently(opened.model)
        return _from_loaded_model(opened, task, options)
    card, theirs = read_preset(folder)
    card = replace(card, name=folder.name)
    kinds = cast("Sequence[str]", theirs.get("architectures")) or ("",)
    class_names = (
        *card.config_mapping.class_names.items(),
        *card.config_mapping.causal_class_names.items(),
    )
    head_names = next((k for k, kind in class_names if kind in kinds), ())
    if NATIVE_HEADS_KEY in theirs or {LABEL_HEAD, TOKEN_LABEL_HEAD, SPAN_HEAD, CHOICE_HEAD} & set(
        head_names
    ):
        return _from_loaded_model(load_folder(folder), task, options)
    heads = _head_specs(task, card, options.lm_loss_weight)
    return _from_loaded_model(load_folder(folder, heads), task, options)


def _from_loaded_model(
    loaded_model: LoadedModel, task: Task, options: InitialModelOptions
) -> InitialModel:
    """Keep the weights that the task can use: the backbone, and matching parts of the head."""
    if not loaded_model.preset.reads_texts:
        loaded_model = replace(loaded_model, tokenizer=picture_tokenizer())
    if loaded_model.tokenizer is None:
        raise ValueError(f"{loaded_model.preset.name} has no tokenizer, which reading text needs")
    check_tokenizer_size(
        loaded_model.tokenizer, loaded_model.model.vocab_size, loaded_model.preset.name
    )
    weights = {
        n: x
        for n, x in loaded_model.model.trained_weights().items()
        if n not in loaded_model.missing
    }
    if loaded_model.preset.pooler_head and not _shared_layers(
        loaded_model.preset, weights, LABEL_HEAD, ("dense",)
    ):
        task = without_trained_pooler(task, keeps_first_token=options.keeps_first_token)
    task = resolve_input_options(
        task,
        loaded_model.preset,
        loaded_model.tokenizer,
        trains_embeddings=options.trains_embeddings,
    )
    tokenizer = add_task_tokens(task, loaded_model.tokenizer)
    head_specs = _head_specs(task, loaded_model.preset, options.lm_loss_weight)
    head = next(iter(head_specs))  # the task's own; an auxiliary language head comes after it
    reused = {n: x for n, x in weights.items() if n.startswith("backbone.")}
    own = {n: x for n, x in weights.items() if n.startswith(f"heads.{head}.")}
    if LANGUAGE_HEAD in head_specs:
        reused |= {n: x for n, x in weights.items() if n.startswith(f"heads.{LANGUAGE_HEAD}.")}
    if head == LANGUAGE_HEAD or _has_same_labels(loaded_model, head, head_specs[head], task):
        reused |= own
        if head != LANGUAGE_HEAD and task.labels:
            task = replace(task, labels=loaded_model.label_names)
            head_specs = _head_specs(task, loaded_model.preset, options.lm_loss_weight)
    elif isinstance(spec := head_specs[head], SequenceClassification) and spec.dense_layer:
        below = ("dense", "norm") if spec.norm else ("dense",)
        reused |= _shared_layers(loaded_model.preset, weights, head, below)
    used = {id(x) for x in reused.values()}
    extra = [n for n, x in weights.items() if n not in reused and id(x) not in used]
    return InitialModel(
        preset=replace(
            with_embeddings_for(loaded_model.preset, tokenizer),
            heads=head_specs,
            unused_pooler=None,
        ),
        tokenizer=tokenizer,
        pretrained_weights=reused,
        task=task,
        unexpected=(*loaded_model.unexpected, *extra),
        new_token_ids=range(loaded_model.tokenizer.vocab_size, tokenizer.vocab_size),
        preprocessing=loaded_model.preprocessing,
        chat_template=loaded_model.chat_template,
        quantized_inputs=_of_kept_heads(
            quantized_inputs(loaded_model.model), {*reused, f"heads.{LANGUAGE_HEAD}.projected"}
        ),
    )


def _of_kept_heads(
    rounding: Mapping[str, InputQuantization], kept_names: Iterable[str]
) -> dict[str, InputQuantization]:
    """Return how the network and those heads round inputs that have names among these."""
    heads = {_head_of(name) for name in kept_names}
    return {
        name: one
        for name, one in rounding.items()
        if name.startswith("backbone.") or _head_of(name) in heads
    }


def _head_of(name: str) -> str:
    """Return the head of a name: "heads.label"."""
    return ".".join(name.split(".")[:2])


def _has_same_labels(
    loaded_model: LoadedModel, head_name: str, wanted_spec: HeadSpec, task: Task
) -> bool:
    """Return whether a head was trained for exactly these labels, a number, or answer spans."""
    spec = loaded_model.model.head_specs.get(head_name)
    if f"heads.{head_name}.out.weight" in loaded_model.missing or type(spec) is not type(
        wanted_spec
    ):
        return False
    if not isinstance(spec, SequenceClassification | TokenClassification | BiLSTMCRF):
        return isinstance(spec, QuestionAnswering)
    if not _has_same_pooling(spec, wanted_spec):
        return False
    if not task.labels:
        return spec.n_labels == 1
    if not _has_same_structure(spec, wanted_spec):
        return False
    return spec.n_labels == len(loaded_model.label_names) and sorted(
        loaded_model.label_names
    ) == sorted(task.labels)


def _has_same_pooling(first: HeadSpec, second: HeadSpec) -> bool:
    """Return whether two classification heads have the same pooling."""
    if isinstance(first, SequenceClassification) and isinstance(second, SequenceClassification):
        return (first.pooling, first.pooled_layers, first.dense_layer) == (
            second.pooling,
            second.pooled_layers,
            second.dense_layer,
        )
    return True


def _has_same_structure(first: HeadSpec, second: HeadSpec) -> bool:
    """Compare heads of one kind, except for the fields that depend on the labels."""
    if isinstance(first, SequenceClassification) and isinstance(second, SequenceClassification):
        return isinstance(second.loss, type(first.loss))
    if isinstance(first, BiLSTMCRF) and isinstance(second, BiLSTMCRF):
        return (
            replace(
                first, n_labels=second.n_labels, forbidden_transitions=second.forbidden_transitions
            )
            == second
        )
    return True


def _shared_layers(
    preset: Published, weights: Mapping[str, Tensor], head_name: str, layer_names: Sequence[str]
) -> dict[str, Tensor]:
    """Find the layers below a head's output layer among the weights of other heads or the pooler.

    They are the layers to which transformers gives the same name, since it initializes a head with
    them; for networks that it lacks, the layer of another classification head.
    """
    names, shared = preset.weight_names, dict[str, Tensor]()
    heads = {n: x for n, x in weights.items() if not n.startswith("backbone.")}
    by_theirs = {name: x for n, x in heads.items() for name in names.external_names(n)}
    other_heads = [LABEL_HEAD, CHOICE_HEAD, *([preset.pooler_head] if preset.pooler_head else ())]
    for part in layer_names:
        for tail in ("weight", "bias"):
            ours = f"heads.{head_name}.{part}.{tail}"
            alike = [f"heads.{name}.{part}.{tail}" for name in other_heads]
            if candidates := [by_theirs[n] for n in names.external_names(ours) if n in by_theirs]:
                shared[ours] = candidates[0]
            elif (
                not preset.config_mapping.in_transformers
                and (mine := next((weights[n] for n in alike if n in weights), None)) is not None
            ):
                shared[ours] = mine
    return shared


def _with_dropout(preset: Published, dropout: float | None) -> Published:
    """Return the preset with another dropout, if one is given."""
    return (
        preset
        if dropout is None
        else replace(preset, architecture=preset.architecture.with_dropout(dropout))
    )
