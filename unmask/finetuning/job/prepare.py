"""From a config to a job: data, model, formulation, derived options. Nothing is written."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from unmask.adapters.prefix import n_virtual_tokens_of
from unmask.batching.source_sampling import SourceSampling
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.config import to_dict
from unmask.files import write_atomically
from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.data.batch_stream import batch_size_warnings, count_epoch_steps
from unmask.finetuning.data.class_weights import with_class_weights
from unmask.finetuning.data.read_data import FinetuneData, read_data
from unmask.finetuning.formulations.build import complete_task, formulate
from unmask.finetuning.formulations.formulation import (
    TaskInput,
    resolve_max_length,
    uses_word_labels,
)
from unmask.finetuning.initial_model.auxiliary_lm import lm_loss_weight_of, with_next_token_targets
from unmask.finetuning.initial_model.load import (
    InitialModel,
    InitialModelOptions,
    load_initial_model,
)
from unmask.finetuning.initial_model.regression_scale import with_target_scale
from unmask.finetuning.initial_model.source_encoder import (
    add_source_encoder,
)
from unmask.finetuning.job.finetune_job import FinetuneJob
from unmask.finetuning.job.notes import (
    mixture_notes,
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
from unmask.output import OutputStream
from unmask.saved_format import FORMAT, read_saved
from unmask.tasks.all_kinds import TASK_KINDS, resolve_metric, resolve_options
from unmask.tasks.task import Task, TaskExample, examples_sha256
from unmask.training.device import distributed
from unmask.training.device.activation_memory import max_micro_batch_tokens
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
    """Read the data, begin the model, and decide what was left open. Nothing is written.

    Raises:
        FileNotFoundError: a file or model is missing.
        ValueError: a file, a column or an option is invalid.
    """
    data = read_data(config)
    begun = _load_initial_model(config, loaded_model, data)
    config = replace(config, lm_loss_weight=lm_loss_weight_of(begun.preset.heads))
    task = _complete_task(begun, config, data)
    if config.class_weights is not None:
        card = with_class_weights(begun.preset, config.class_weights, task, data.train)
        begun = replace(begun, preset=card)
    formulation = with_target_scale(
        formulate(task, begun.preset, begun.tokenizer), begun.preset, data.train
    )
    n_parameters = _check_method(config, begun)
    new_weights = weight_notes(begun, config)
    inputs = formulation.build_inputs(data.train)
    sources = _make_source_sampling(data, inputs)
    n_train = len(data.train) if sources is None else sum(sources.rows_per_epoch)
    requested_batch_size = config.batch_size
    config = derived_options.resolve_config(
        config, task, n_train, n_parameters, uses_word_labels=uses_word_labels(begun.preset)
    )
    config = _resolve_micro_batch_tokens(config, begun, folder, world.device)
    examples = [
        with_next_token_targets(one.example) if config.lm_loss_weight else one.example
        for one in inputs
    ]
    config = derived_options.resolve_evaluation_interval(
        config, count_epoch_steps(examples, config.batch_size, config.batch_tokens, sources)
    )
    n_cut = len({one.item_index for one in inputs if one.truncated})
    n_short = sum(one.target_truncated for one in inputs)
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
            *data.notes, *mixture_notes(data.mixture, sources), *new_weights,
            *split_text_notes(task, n_cut, len(data.train), "training"),
        ),
        warnings=(
            *data.warnings,
            *truncation_warnings(formulation, n_cut, n_short, len(data.train), "training"),
            *batch_size_warnings(requested_batch_size, config.batch_tokens, examples, n_train),
        ),
    )  # fmt: skip
    return _with_parameter_counts(job)


def _with_parameter_counts(job: FinetuneJob) -> FinetuneJob:
    """Count the parameters of the first run's model.

    It is built now, so that a method that the model does not support is reported before a run.
    """
    parameters = [(p.numel(), p.requires_grad) for p in job.build_model(*job.runs[0]).parameters()]
    return replace(
        job,
        n_trainable_parameters=sum(n for n, is_trainable in parameters if is_trainable),
        n_parameters=sum(n for n, _ in parameters),
    )


def _check_method(config: FinetuneConfig, initial_model: InitialModel) -> int:
    """Check that the model can be fine-tuned as configured; return its number of parameters."""
    preset = initial_model.preset
    model = preset.build_without_memory()
    if config.tune.trains_head_alone and not any(True for _ in model.heads.parameters()):
        raise ValueError(
            f"{preset.name} has no head of its own to learn: frozen, it learns nothing"
        )
    if is_parameter_efficient(config.tune) and not initial_model.is_pretrained:
        raise ValueError(
            f"{method_name(config.tune)} adds to a model that was trained, and {config.base} has "
            "no weights; pretrain it first, or tune it in full"
        )
    return model.parameter_count()


def _make_source_sampling(data: FinetuneData, inputs: Sequence[TaskInput]) -> SourceSampling | None:
    """Return how the tasks of a mixture are sampled."""
    if data.mixture is None:
        return None
    return data.mixture.make_source_sampling(
        [data.train[one.item_index].component for one in inputs]
    )


def _run_record(
    config: FinetuneConfig,
    data: FinetuneData,
    initial_model: InitialModel,
    task: Task,
    n_parameters: int,
) -> dict[str, Any]:
    """Return what the record of a run says of its model, its config and its data."""
    files = {
        name: {"rows": len(some), "sha256": examples_sha256(some)}
        for name, some in (("train", data.train), ("dev", data.dev), ("test", data.test))
    }
    return {
        "format": FORMAT,
        "kind": "finetune",
        "card": initial_model.preset.name,
        "parameters": n_parameters,
        "recipe": to_dict(config),
        "task": to_dict(task),
        "data": files | ({} if data.mixture is None else {"mixture": to_dict(data.mixture)}),
        "versions": library_versions(),
    }


def _load_initial_model(
    config: FinetuneConfig, loaded_model: LoadedModel | None, data: FinetuneData
) -> InitialModel:
    """Begin the model that is named, or that is open, for the task."""
    named = config.task if config.task_name is None else config.task_name
    task = Task(
        task_kind=config.task, columns=data.columns, labels=data.labels, task_name=named,
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
        ),
    )
    if isinstance(config.tune, SourceEncoder):
        begun = add_source_encoder(begun, config.tune, data.train)
    return begun


def restart_from(job: FinetuneJob, folder: Path) -> FinetuneJob:
    """Return a job that begins with the weights of a folder, of the same network as its own.

    What the folder does not have, a pooler for instance, stays as it is. Where it knows more words,
    what is asked is made anew of these.
    """
    config, known = replace(job.config, base=str(folder)), job.initial_model.pretrained_weights
    found = _load_initial_model(config, None, job.data)
    if found.tokenizer.vocab_size != job.initial_model.tokenizer.vocab_size:
        threads = job.run_record["environment"]["threads"]
        made = prepare_job(config, None, job.folder, job.world, threads, None)
        facts = {**job.run_record, "parameters": made.run_record["parameters"]}
        job = replace(
            made,
            run_record=facts,
            keeps_folder=job.keeps_folder,
            peak_flops=job.peak_flops,
            terminal=job.terminal,
        )
    tensors = {name: found.pretrained_weights.get(name, x) for name, x in known.items()}
    return replace(
        job,
        config=config,
        initial_model=replace(job.initial_model, pretrained_weights=tensors),
    )


def _requested_lm_loss_weight(config: FinetuneConfig) -> float | None:
    """Return the weight that is asked for; of a head alone, from which none is learned, none."""
    if config.lm_loss_weight is None and config.tune.trains_head_alone:
        return 0.0
    return config.lm_loss_weight


def _resolve_micro_batch_tokens(
    config: FinetuneConfig, initial_model: InitialModel, folder: Path, device: torch.device
) -> FinetuneConfig:
    """Decide how many tokens go through the model at once, or take it from the run in the folder.

    That was decided by the memory of then, and rounding depends on it.
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
    """Read how many tokens went through the model at once in the run that the folder holds."""
    try:
        known = read_saved(folder / RUN_FILE)["recipe"]["micro_batch_tokens"]
    except (OSError, ValueError, KeyError, TypeError):  # no run: is_finished says what is wrong
        return None
    return known if isinstance(known, int) else None


def _vocabulary_texts(items: Sequence[TaskExample], *, tagged: bool) -> Iterator[str]:
    """Yield what a vocabulary is learned from: texts, and answers, which some models say."""
    for item in items:
        if tagged:
            yield " ".join(item.texts)
            continue
        yield from item.texts
        yield from item.choices
        if item.label is not None:
            yield from item.label if isinstance(item.label, tuple) else (str(item.label),)


def _complete_task(initial_model: InitialModel, config: FinetuneConfig, data: FinetuneData) -> Task:
    """Complete the task by what depends on the model."""
    task = initial_model.task
    task = replace(
        task,
        max_length=resolve_max_length(
            initial_model.preset, config.max_length, n_virtual_tokens_of(config.tune)
        ),
        metric=resolve_metric(task, config.metric),
    )
    return complete_task(task, initial_model.preset, data.train)


def is_finished(job: FinetuneJob) -> bool:
    """Compare with the run in the folder and say whether it is finished; if there is none, begin.

    Raises:
        ValueError: it is another run.
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
