"""From a config to a job: data, model, formulation and derived options. No file is written."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from unmask.adapters.prefix import n_virtual_tokens_of
from unmask.batching.source_sampling import SourceSampling
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.compression.distillation.teacher import open_teachers
from unmask.compression.methods import COMPRESSION_KEY, recorded_methods, training_records
from unmask.compression.while_training import build_transforms
from unmask.config import to_dict
from unmask.files import write_atomically
from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.data.batch_stream import batch_size_warnings, count_epoch_steps
from unmask.finetuning.data.class_weights import with_class_weights
from unmask.finetuning.data.read_data import FinetuneData, read_data
from unmask.finetuning.data.read_pictures import read_picture_data, resolve_pictures
from unmask.finetuning.formulations.build import complete_task, formulate
from unmask.finetuning.formulations.conversations.instructions import with_chat_template
from unmask.finetuning.formulations.conversations.rows import fitting_items
from unmask.finetuning.formulations.formulation import (
    LABEL_HEAD,
    TaskFormulation,
    TaskInput,
    resolve_max_length,
    uses_word_labels,
)
from unmask.finetuning.formulations.picture_classification import with_picture_preprocessing
from unmask.finetuning.initial_model.auxiliary_lm import lm_loss_weight_of, with_next_token_targets
from unmask.finetuning.initial_model.load import (
    InitialModel,
    InitialModelOptions,
    load_initial_model,
)
from unmask.finetuning.initial_model.regression_scale import normalize_head, with_target_scale
from unmask.finetuning.initial_model.source_encoder import (
    add_source_encoder,
)
from unmask.finetuning.job.finetune_job import FinetuneJob
from unmask.finetuning.job.notes import (
    label_notes,
    mixture_notes,
    random_weights_warnings,
    split_text_notes,
    truncation_warnings,
    weight_notes,
)
from unmask.finetuning.job.record import check_same_config, environment, read_run_record
from unmask.finetuning.methods.method import (
    SourceEncoder,
    is_parameter_efficient,
    method_name,
)
from unmask.finetuning.options import derived as derived_options
from unmask.finetuning.results import report
from unmask.finetuning.results.predict import RUN_FILE
from unmask.heads.classification.sequence_classification import PAIR_POOLINGS
from unmask.heads.model import Model
from unmask.output import OutputStream
from unmask.saved_format import FORMAT, read_saved
from unmask.tasks.all_kinds import TASK_KINDS, resolve_metric, resolve_options
from unmask.tasks.task import Task, TaskExample, examples_sha256
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.load import with_text_language
from unmask.tokenizers.unknown_tokens import check_known
from unmask.training.device import distributed
from unmask.training.device.activation_memory import check_optimizer_fits, max_micro_batch_tokens
from unmask.training.device.distributed import World
from unmask.training.resume import library_versions


def prepare_job(
    config: FinetuneConfig,
    loaded_model: LoadedModel | None,
    folder: Path,
    world: World,
    n_threads: int,
    terminal: OutputStream | None,
) -> FinetuneJob:
    """Read the data, load the model, and resolve open options. No file is written.

    Raises:
        FileNotFoundError: a file or model is missing.
        ValueError: a file, a column or an option is invalid.
    """
    config, data = _read_data(config, loaded_model, folder)
    begun = _load_initial_model(config, loaded_model, data)
    config = replace(config, lm_loss_weight=lm_loss_weight_of(begun.preset.heads))
    task = _complete_task(begun, config, data)
    begun = _with_class_weights(begun, config, task, data)
    formulation = with_target_scale(
        formulate(task, begun.preset, begun.tokenizer), begun.preset, data.train
    )
    formulation = with_picture_preprocessing(formulation, begun.preprocessing)
    data = _without_left_out(data, formulation, begun.tokenizer)
    n_parameters = _check_method(config, begun)
    new_weights = weight_notes(begun, config)
    labels, alike_labels = label_notes(task, data.train)
    inputs = formulation.build_inputs(data.train)
    sources = _make_source_sampling(data, inputs)
    n_train = len(data.train) if sources is None else sum(sources.rows_per_epoch)
    requested_batch_size = config.batch_size
    config = derived_options.resolve_config(
        config, task, n_train, n_parameters, uses_word_labels=uses_word_labels(begun.preset)
    )
    config = _resolve_micro_batch_tokens(config, begun, folder, world.device)
    examples = [
        with_next_token_targets(task_input.example) if config.lm_loss_weight else task_input.example
        for task_input in inputs
    ]
    config = derived_options.resolve_evaluation_interval(
        config, count_epoch_steps(examples, config.batch_size, config.batch_tokens, sources)
    )
    n_cut = len({task_input.item_index for task_input in inputs if task_input.truncated})
    n_short = sum(task_input.target_truncated for task_input in inputs)
    record = _run_record(config, data, begun, task, n_parameters) | {
        "opened": loaded_model is not None,
        "environment": environment(world.device, n_threads),
    }
    job = FinetuneJob(
        config=config, data=data, initial_model=begun, formulation=formulation,
        train_examples=examples, source_sampling=sources,
        dev_inputs=formulation.build_inputs(data.dev),
        test_inputs=formulation.build_inputs(data.test) if data.test else [],
        folder=folder, world=world, run_record=record, terminal=terminal,
        notes=(
            *data.notes, *labels, *new_weights, *mixture_notes(data.mixture, sources, data.train),
            *split_text_notes(task, n_cut, len(data.train), "training"),
        ),
        warnings=(
            *random_weights_warnings(begun, config), *alike_labels, *data.warnings,
            *truncation_warnings(formulation, n_cut, n_short, len(data.train), "training"),
            *batch_size_warnings(requested_batch_size, config.batch_tokens, examples, n_train),
        ),
    )  # fmt: skip
    return _with_parameter_counts(job)


def _with_class_weights(
    begun: InitialModel, config: FinetuneConfig, task: Task, data: FinetuneData
) -> InitialModel:
    """Return the initial model with weights of labels in its loss, if there are any."""
    if config.class_weights is None:
        return begun
    preset = with_class_weights(begun.preset, config.class_weights, task, data.train)
    return replace(begun, preset=preset)


def _read_data(
    config: FinetuneConfig, loaded_model: LoadedModel | None, folder: Path
) -> tuple[FinetuneConfig, FinetuneData]:
    """Read texts, or pictures, as the model does."""
    config, preprocessing = resolve_pictures(config, loaded_model)
    if preprocessing is None:
        return config, read_data(config)
    return config, read_picture_data(config, preprocessing, folder)


_MAX_UNKNOWN_SHARE = 0.9
"""Share of unknown tokens of training texts; vectors of words know the rest."""


def _without_left_out(
    data: FinetuneData, formulation: TaskFormulation, tokenizer: Tokenizer
) -> FinetuneData:
    """Leave out the items that have no input; warn of their number and of unknown tokens.

    Raises:
        ValueError: none is left to train on, or most tokens are unknown.
    """
    warnings = list(data.warnings)
    kept: dict[str, Sequence[TaskExample]] = {}
    for name in ("train", "dev", "test"):
        items: Sequence[TaskExample] = getattr(data, name)
        kept[name], reasons = fitting_items(formulation, items)
        if reasons:
            warnings.append(f"{name}: left out of {len(items):,} rows: {'; '.join(reasons)}")
    if not kept["train"]:
        raise ValueError(f"no row is left to train on: {warnings[-1]}")
    sample = [" ".join(item.texts) for item in kept["train"][:1000] if item.picture is None]
    warnings += check_known(tokenizer, sample, "the training texts", _MAX_UNKNOWN_SHARE)
    return replace(data, **kept, warnings=tuple(warnings))


def _with_parameter_counts(job: FinetuneJob) -> FinetuneJob:
    """Count the parameters of the first run's model.

    It is built here, so that a method that the model does not support is reported before a run.
    """
    model = job.build_model(*job.runs[0])
    parameters = [(p.numel(), p.requires_grad) for p in model.parameters()]
    build_transforms(job.config.compression, model)
    n_moments = 0 if job.config.optimizer == "adafactor" else 2
    check_optimizer_fits(model, job.world.device, n_moments)
    job = replace(job, teachers=_open_teachers(job, model))
    job.training_forward(model.to(job.world.device), job.config.seed)
    return replace(
        job,
        n_trainable_parameters=sum(n for n, is_trainable in parameters if is_trainable),
        n_parameters=sum(n for n, _ in parameters),
    )


def _open_teachers(job: FinetuneJob, model: Model) -> list[Model]:
    """Open the teachers of a job, if it has any."""
    distillation = job.config.distillation
    if distillation is None:
        return []
    has_names = any(spec.has_label_names for spec in model.head_specs.values())
    labels = job.task.labels if has_names else ()
    base = job.initial_model
    teachers = open_teachers(
        distillation,
        base.tokenizer,
        labels,
        preprocessing=base.preprocessing,
        device=job.world.device,
    )
    for name, teacher in zip(distillation.teacher, teachers, strict=True):
        if LABEL_HEAD in teacher.heads:
            _check_reading(name, teacher, model)
            normalize_head(teacher, job.formulation)
    return teachers


def _check_reading(name: str, teacher: Model, student: Model) -> None:
    """Check that a teacher reads two texts as the student does.

    Raises:
        ValueError: one reads them as one text, and the other each by itself.
    """
    own, other = (
        getattr(m.head_specs.get(LABEL_HEAD), "pooling", None) for m in (student, teacher)
    )
    if own != other and (own in PAIR_POOLINGS or other in PAIR_POOLINGS):
        raise ValueError(
            f"teacher {name}: was fine-tuned with pooling={other}, the student has pooling={own}, "
            f"so that they read two texts otherwise: give --option pooling={other}"
        )


def _check_method(config: FinetuneConfig, initial_model: InitialModel) -> int:
    """Check that the model can be fine-tuned as configured; return its number of parameters."""
    preset = initial_model.preset
    model = preset.build_without_memory()
    if config.tune.trains_head_alone and not any(True for _ in model.heads.parameters()):
        raise ValueError(
            f"{preset.name} has no new head for this task: with tune = frozen, nothing is trained"
        )
    if is_parameter_efficient(config.tune) and not initial_model.is_pretrained:
        raise ValueError(
            f"{method_name(config.tune)} needs pretrained weights, and {config.base} has none; "
            "pretrain it first, or use tune = full"
        )
    return model.parameter_count()


def _make_source_sampling(data: FinetuneData, inputs: Sequence[TaskInput]) -> SourceSampling | None:
    """Return the sampling of the tasks of a mixture."""
    if data.mixture is None:
        return None
    return data.mixture.make_source_sampling(
        [data.train[task_input.item_index].component for task_input in inputs]
    )


def _run_record(
    config: FinetuneConfig,
    data: FinetuneData,
    initial_model: InitialModel,
    task: Task,
    n_parameters: int,
) -> dict[str, Any]:
    """Return the record of a run: its model, config and data."""
    files = {
        name: {"rows": len(some), "sha256": examples_sha256(some)}
        for name, some in (("train", data.train), ("dev", data.dev), ("test", data.test))
    }
    base = Path(config.base)
    records = recorded_methods(base) if base.is_dir() else []
    records += training_records(config.compression, config.distillation)
    return {
        "format": FORMAT,
        "kind": "finetune",
        "card": initial_model.preset.name,
        "parameters": n_parameters,
        "recipe": to_dict(config),
        "task": to_dict(task),
        "data": files | ({} if data.mixture is None else {"mixture": to_dict(data.mixture)}),
        "versions": library_versions(),
    } | ({COMPRESSION_KEY: records} if records else {})


def _load_initial_model(
    config: FinetuneConfig, loaded_model: LoadedModel | None, data: FinetuneData
) -> InitialModel:
    """Load the initial model for the task, by name or from a model in memory."""
    task_name = config.task if config.task_name is None else config.task_name
    task = Task(
        task_kind=config.task, columns=data.columns, labels=data.labels, task_name=task_name,
        options=resolve_options(config.task, data.task_options),
    )  # fmt: skip
    begun = load_initial_model(
        loaded_model or config.base,
        task,
        _vocabulary_texts(data.train, tagged=TASK_KINDS[task.task_kind].reader.word_per_line),
        InitialModelOptions(
            tokenizer=config.tokenizer,
            vocabulary=config.vocabulary,
            dropout=config.dropout,
            lm_loss_weight=_requested_lm_loss_weight(config),
            trains_embeddings=config.tune.trains_embeddings,
            keeps_first_token=config.tune.keeps_first_token,
            keeps_backbone=is_parameter_efficient(config.tune),
        ),
    )
    if config.language is not None:
        begun = replace(begun, tokenizer=with_text_language(begun.tokenizer, config.language))
    if isinstance(config.tune, SourceEncoder):
        begun = add_source_encoder(begun, config.tune, data.train)
    return begun


def restart_from(job: FinetuneJob, folder: Path) -> FinetuneJob:
    """Return the job with the weights of a folder, which has the same network.

    Weights that the folder lacks, for instance a pooler, are unchanged. If its vocabulary is
    larger, examples are encoded again.
    """
    config, weights = replace(job.config, base=str(folder)), job.initial_model.pretrained_weights
    initial_model = _load_initial_model(config, None, job.data)
    if initial_model.tokenizer.vocab_size != job.initial_model.tokenizer.vocab_size:
        threads = job.run_record["environment"]["threads"]
        new_job = prepare_job(config, None, job.folder, job.world, threads, None)
        facts = {**job.run_record, "parameters": new_job.run_record["parameters"]}
        job = replace(
            new_job,
            run_record=facts,
            keeps_folder=job.keeps_folder,
            peak_flops=job.peak_flops,
            terminal=job.terminal,
        )
    tensors = {name: initial_model.pretrained_weights.get(name, x) for name, x in weights.items()}
    return replace(
        job,
        config=config,
        initial_model=replace(job.initial_model, pretrained_weights=tensors),
    )


def _requested_lm_loss_weight(config: FinetuneConfig) -> float | None:
    """Return the requested weight of the auxiliary loss; 0 if only the head is trained."""
    if config.lm_loss_weight is None and config.tune.trains_head_alone:
        return 0.0
    return config.lm_loss_weight


def _resolve_micro_batch_tokens(
    config: FinetuneConfig, initial_model: InitialModel, folder: Path, device: torch.device
) -> FinetuneConfig:
    """Choose the micro-batch size in tokens, or take it from the run in the folder.

    The recorded size depends on the memory available then, and rounding depends on it.
    """
    if config.micro_batch_tokens is not None:
        return config
    assert config.max_length is not None
    dtype = distributed.weight_dtype(distributed.resolve_precision(config.precision, device))
    most = max_micro_batch_tokens(
        initial_model.preset.architecture, config.max_length, dtype, device
    )
    return replace(config, micro_batch_tokens=_recorded_micro_batch_tokens(folder) or most)


def _recorded_micro_batch_tokens(folder: Path) -> int | None:
    """Read the micro-batch size in tokens of the run in the folder."""
    try:
        recorded = read_saved(folder / RUN_FILE)["recipe"]["micro_batch_tokens"]
    except (OSError, ValueError, KeyError, TypeError):  # no run: is_finished reports the error
        return None
    return recorded if isinstance(recorded, int) else None


def _vocabulary_texts(items: Sequence[TaskExample], *, tagged: bool) -> Iterator[str]:
    """Yield the texts to train a tokenizer on: inputs, and targets, which some models generate."""
    for item in items:
        if tagged:
            yield " ".join(item.texts)
            continue
        yield from item.texts
        yield from item.choices
        if item.label is not None:
            yield from item.label if isinstance(item.label, tuple) else (str(item.label),)


def _complete_task(initial_model: InitialModel, config: FinetuneConfig, data: FinetuneData) -> Task:
    """Complete the task with the fields that depend on the model."""
    task = initial_model.task
    task = replace(
        task,
        max_length=resolve_max_length(
            initial_model.preset, config.max_length, n_virtual_tokens_of(config.tune)
        ),
        metric=resolve_metric(task, config.metric),
    )
    task = with_chat_template(task, initial_model.chat_template, initial_model.tokenizer)
    return complete_task(task, initial_model.preset, data.train)


def is_finished(job: FinetuneJob) -> bool:
    """Return whether the folder has this run, finished; if it has no run, write its record.

    Raises:
        ValueError: the folder has another run.
    """
    path = job.folder / RUN_FILE
    if not path.is_file():
        write_atomically(path, report.to_json(dict(job.run_record) | {"finished": False}))
        return False
    old = read_run_record(job.folder)
    check_same_config(job.folder, old["recipe"], job.config)
    for name, value in job.run_record["data"].items():
        if old["data"].get(name) != value:
            raise ValueError(f"{job.folder}: the {name} data have changed since this run began")
    return bool(old.get("finished"))
