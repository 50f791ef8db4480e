"""A fine-tuning job before its first step: data read, model begun, everything decided and said."""

import json
import logging
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unmask.adapters.prefix import n_virtual_tokens_of
from unmask.batch import Example
from unmask.batching.source_sampling import SourceSampling
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.config import to_dict
from unmask.files import write_atomically
from unmask.finetuning import config as finetune_config
from unmask.finetuning.config import PRETRAINED, RANDOM_INITIALIZATION, FinetuneConfig, FinetuneData
from unmask.finetuning.data.batch_stream import batch_size_warnings, count_epoch_steps
from unmask.finetuning.data.class_weights import with_class_weights
from unmask.finetuning.data.task_mixture import TaskMixture
from unmask.finetuning.formulations.build import complete_task, formulate
from unmask.finetuning.formulations.formulation import (
    LABEL_HEAD,
    LimitsDevEvaluation,
    TaskFormulation,
    TaskInput,
    resolve_max_length,
    uses_word_labels,
)
from unmask.finetuning.formulations.text_to_text.text_to_text import TextToTextFormulation
from unmask.finetuning.initial_model.auxiliary_lm import lm_loss_weight_of, with_next_token_targets
from unmask.finetuning.initial_model.load import InitialModel, load_initial_model
from unmask.finetuning.initial_model.regression_scale import normalize_head, with_target_scale
from unmask.finetuning.initial_model.source_encoder import (
    add_source_encoder,
    newly_initialized_names,
)
from unmask.finetuning.initial_model.task_tokens import TASK_TOKENS
from unmask.finetuning.methods.method import (
    FrozenFeatures,
    SourceEncoder,
    apply_method,
    is_parameter_efficient,
    method_name,
    trains_embeddings,
)
from unmask.finetuning.results import report
from unmask.finetuning.results.predict import RUN_FILE
from unmask.heads.model import Model
from unmask.output import OutputStream, print_line
from unmask.saved_format import FORMAT, read_saved
from unmask.tasks.kinds.all_kinds import TASK_KINDS, resolve_metric, resolve_options
from unmask.tasks.kinds.pooling_options import reads_two_texts
from unmask.tasks.task import Task, TaskExample, examples_sha256
from unmask.tasks.text_templates import parse_template
from unmask.text.records import format_names
from unmask.training.device import distributed
from unmask.training.device.activation_memory import max_micro_batch_tokens
from unmask.training.device.distributed import World
from unmask.training.resume import library_versions

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class FinetuneJob:
    """All that the runs of a job share."""

    config: FinetuneConfig
    data: FinetuneData
    initial_model: InitialModel
    formulation: TaskFormulation
    """With numbers in the scale in which they are learned."""
    train_examples: Sequence[Example]
    """Of the training file."""
    source_sampling: SourceSampling | None = None
    """Of a mixture: which part each example is of, and how many of each an epoch reads."""
    dev_inputs: Sequence[TaskInput]
    test_inputs: Sequence[TaskInput]
    folder: Path
    keeps_folder: bool = True
    """The folder stays."""
    peak_flops: float = 0.0
    """FLOP/s of this machine's matrix product. 0: not measured."""
    n_trainable_parameters: int = 0
    """Parameters that are tuned."""
    n_parameters: int = 0
    """Of the model, with what is added to it."""
    world: World
    run_record: Mapping[str, Any]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    terminal: OutputStream | None

    @property
    def task(self) -> Task:
        """What is learned."""
        return self.formulation.task

    @property
    def total_steps(self) -> int:
        """How many steps a run has."""
        t = self.config
        return finetune_config.count_steps(
            t,
            count_epoch_steps(
                self.train_examples, t.batch_size, t.batch_tokens, self.source_sampling
            ),
        )

    @property
    def runs(self) -> list[tuple[str, int]]:
        """Arm and seed of each run, the arm under study first."""
        t = self.config
        arms = [RANDOM_INITIALIZATION]
        if self.initial_model.is_pretrained and t.initialize == "pretrained":
            arms = [PRETRAINED, RANDOM_INITIALIZATION] if t.baseline else [PRETRAINED]
        return [(arm, s) for arm in arms for s in range(t.seed, t.seed + t.seeds)]

    @property
    def dev_subset(self) -> tuple[Sequence[TaskExample], Sequence[TaskInput]]:
        """The dev items that are scored while training, evenly spaced, and their questions.

        Of a mixture's tasks each has as many, or all that it has.
        """
        items = self.data.dev
        if (
            not isinstance(self.formulation, LimitsDevEvaluation)
            or len(items) <= self.formulation.max_dev_items
        ):
            return items, self.dev_inputs
        parts: dict[str, list[int]] = {}
        for i, item in enumerate(items):
            parts.setdefault(item.component, []).append(i)
        most = max(self.formulation.max_dev_items // len(parts), 1)
        chosen = {
            part[i * len(part) // min(most, len(part))]
            for part in parts.values()
            for i in range(min(most, len(part)))
        }
        return [items[i] for i in sorted(chosen)], [
            q for q in self.dev_inputs if q.item_index in chosen
        ]

    @property
    def summary(self) -> str:
        """What is learned from, and how: a line, in the words of the options."""
        t = self.config
        return (
            f"rows {len(self.data.train):,}, epochs {t.epochs:g}, batch size "
            f"{finetune_config.describe_batch_size(t)}, steps {self.total_steps:,}, learning rate "
            f"{t.learning_rate:.3g}, max length {t.max_length}, trainable parameters "
            f"{self.n_trainable_parameters:,} of {self.n_parameters:,}"
        )

    def build_model(self, arm: str, seed: int) -> Model:
        """Build the model of one run, ready for its first step.

        Raises:
            ValueError: it has not what the method tunes.
        """
        trained = arm != RANDOM_INITIALIZATION
        model = self.initial_model.build_model(seed, use_pretrained=trained)
        if trained and f"heads.{LABEL_HEAD}.out.weight" in self.initial_model.pretrained_weights:
            normalize_head(model, self.formulation)
        apply_method(self.config.tune, model, seed, self.initial_model.tokenizer)
        return model

    def run_folder(self, arm: str, seed: int) -> Path:
        """Return the folder of one run: the job's own if there is but one."""
        if len(self.runs) == 1:
            return self.folder
        return self.folder / f"{'random-' if arm == RANDOM_INITIALIZATION else ''}seed-{seed}"

    def print_progress(self, text: str) -> None:
        """Show a line of progress."""
        if self.terminal is not None:
            print_line(text, self.terminal)

    def warn(self, text: str) -> None:
        """Tell of what may be a mistake, also where no progress is shown."""
        _log.warning("%s", text)


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
        ValueError: a file, a column or an option is not what it should be.
    """
    data = finetune_config.read_data(config)
    begun = _load_initial_model(config, loaded_model, data)
    config = replace(config, lm_loss_weight=lm_loss_weight_of(begun.preset.heads))
    task = _complete_task(begun, config, data)
    if config.class_weights is not None:
        card = with_class_weights(begun.preset, config.class_weights, task, data.train)
        begun = replace(begun, preset=card)
    asked = with_target_scale(
        formulate(task, begun.preset, begun.tokenizer), begun.preset, data.train
    )
    with torch.device("meta"):
        model = begun.preset.build()
    if isinstance(config.tune, FrozenFeatures) and not any(True for _ in model.heads.parameters()):
        raise ValueError(
            f"{begun.preset.name} has no head of its own to learn: frozen, it learns nothing"
        )
    if is_parameter_efficient(config.tune) and not begun.is_pretrained:
        raise ValueError(
            f"{method_name(config.tune)} adds to a model that was trained, and {config.base} has "
            "no weights; pretrain it first, or tune it in full"
        )
    parameters, words = model.parameter_count(), uses_word_labels(begun.preset)
    of_weights = _weight_notes(begun, config)
    questions = asked.build_inputs(data.train)
    sources = None
    if data.mixture is not None:
        sources = data.mixture.make_source_sampling(
            [data.train[q.item_index].component for q in questions]
        )
    n_train = len(data.train) if sources is None else sum(sources.rows_per_epoch)
    asked_batch = config.batch_size
    config = finetune_config.resolve_config(
        config, task, n_train, parameters, uses_word_labels=words
    )
    config = _resolve_micro_batch_tokens(config, begun, folder, world.device)
    examples = [
        with_next_token_targets(q.example) if config.lm_loss_weight else q.example
        for q in questions
    ]
    config = finetune_config.resolve_evaluation_interval(
        config, count_epoch_steps(examples, config.batch_size, config.batch_tokens, sources)
    )
    n_cut = len({q.item_index for q in questions if q.truncated})
    n_short = sum(q.target_truncated for q in questions)
    facts = {
        "format": FORMAT,
        "kind": "finetune",
        "card": begun.preset.name,
        "opened": loaded_model is not None,
        "parameters": parameters,
        "recipe": to_dict(config),
        "task": to_dict(task),
        "data": {
            name: {"rows": len(some), "sha256": examples_sha256(some)}
            for name, some in (("train", data.train), ("dev", data.dev), ("test", data.test))
        }
        | ({} if data.mixture is None else {"mixture": to_dict(data.mixture)}),
        "versions": library_versions(),
        "environment": _environment(world.device, n_threads),
    }
    job = FinetuneJob(
        config=config,
        data=data,
        initial_model=begun,
        formulation=asked,
        train_examples=examples,
        source_sampling=sources,
        dev_inputs=asked.build_inputs(data.dev),
        test_inputs=asked.build_inputs(data.test) if data.test else [],
        folder=folder,
        world=world,
        run_record=facts,
        notes=(
            *data.notes,
            *_mixture_notes(data.mixture, sources),
            *of_weights,
            *split_text_notes(task, n_cut, len(data.train), "training"),
        ),
        warnings=(
            *data.warnings,
            *truncation_warnings(asked, n_cut, n_short, len(data.train), "training"),
            *batch_size_warnings(asked_batch, config.batch_tokens, examples, n_train),
        ),
        terminal=terminal,
    )
    model = job.build_model(
        *job.runs[0]
    )  # now, not in the first run: what it cannot be is said here
    each = [(p.numel(), p.requires_grad) for p in model.parameters()]
    return replace(
        job,
        n_trainable_parameters=sum(n for n, tuned in each if tuned),
        n_parameters=sum(n for n, _ in each),
    )


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
        tokenizer=config.tokenizer,
        vocabulary=config.vocabulary,
        dropout=config.dropout,
        lm_loss_weight=_requested_lm_loss_weight(config),
        trains_embeddings=trains_embeddings(config.tune),
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
    if config.lm_loss_weight is None and isinstance(config.tune, FrozenFeatures):
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


def _weight_notes(initial_model: InitialModel, config: FinetuneConfig) -> list[str]:
    """Say which weights are new, and which are not used."""
    notes: list[str] = []
    if not initial_model.is_pretrained and config.tokenizer is None:
        notes.append(
            f"a vocabulary of {initial_model.tokenizer.vocab_size:,} tokens, special ones "
            "included, was learned from the training texts"
        )
    if initial_model.preset.pooler_head and initial_model.task.options.get(
        "pooling"
    ) != config.task_options.get("pooling"):
        means = (
            "the two texts' means are compared"
            if reads_two_texts(initial_model.task)
            else "the mean is read"
        )
        notes.append(
            f"no pooler was trained: {means}, of all layers (--option pooling=first for "
            f"{initial_model.preset.name}'s own head, which transformers has a class for)"
        )
    notes += _template_notes(initial_model, config)
    if config.initialize == "random" or not initial_model.is_pretrained:
        return [*notes, "all weights are drawn at random"]
    fresh = newly_initialized_names(initial_model)
    if initial_model.new_token_ids:
        fresh = (
            *fresh,
            *(
                f"the vector of {name}"
                for name in initial_model.tokenizer.pieces(initial_model.new_token_ids)
            ),
        )
    if fresh:
        notes.append(f"new, drawn at random: {format_names(fresh)}")
    if initial_model.unexpected:
        names = format_names(initial_model.unexpected[:3]) + (
            ", ..." if len(initial_model.unexpected) > 3 else ""
        )
        notes.append(f"not used of the model: {len(initial_model.unexpected)} tensors ({names})")
    return notes


def _template_notes(initial_model: InitialModel, config: FinetuneConfig) -> list[str]:
    """Say what a paper's own way of fine-tuning put around texts, or why it did not."""
    said, asked = initial_model.task.options, config.task_options
    notes: list[str] = []
    if said.get("special_tokens") != asked.get("special_tokens"):
        notes.append(
            f"around texts stand {format_names(TASK_TOKENS.names)}, as in the model's paper "
            "(--option special_tokens=own for what its tokenizer puts there)"
        )
    if said.get("pooling") == "both" != asked.get("pooling"):
        notes.append("two texts are read in both orders (--option order_invariant=false for one)")
    wanted = (
        "special_tokens" in said
        and said["special_tokens"] is None
        and initial_model.preset.finetuning.special_tokens == "added"
    )
    if wanted and not trains_embeddings(config.tune):
        notes.append(
            f"{method_name(config.tune)} tunes no vectors of tokens: none are added, unlike in the "
            "paper"
        )
    return notes


def _mixture_notes(
    mixture: TaskMixture | None, source_sampling: SourceSampling | None
) -> list[str]:
    """Say of each part of a mixture how much there is, and how much of it an epoch reads."""
    if mixture is None or source_sampling is None:
        return []
    sizes, total = (
        np.bincount(source_sampling.source_of_row).tolist(),
        sum(source_sampling.rows_per_epoch),
    )
    return [
        f"{name}: {take:,} of {size:,} examples an epoch, {take / total:.1%} of what is learned"
        for name, size, take in zip(
            mixture.component_names, sizes, source_sampling.rows_per_epoch, strict=True
        )
    ]


def split_text_notes(task: Task, n_truncated: int, n_items: int, split_name: str) -> list[str]:
    """Say how many texts are longer than a row, if any, where a row more costs nothing of them."""
    if not n_truncated or not TASK_KINDS[task.task_kind].splits_long_texts:
        return []
    return [f"{_too_long_texts(n_truncated, n_items, split_name, task)} are read in parts"]


def _too_long_texts(n_truncated: int, n_items: int, split_name: str, task: Task) -> str:
    return (
        f"{n_truncated:,} of {n_items:,} {split_name} texts have more than {task.max_length} "
        "tokens and"
    )


def truncation_warnings(
    formulation: TaskFormulation,
    n_truncated: int,
    n_truncated_targets: int,
    n_items: int,
    split_name: str,
) -> list[str]:
    """Say of how many texts, and of how many targets, a part is lost, if of any.

    Args:
        formulation: what is asked, of which task.
        n_truncated: texts that are longer than what is read.
        n_truncated_targets: targets that are longer than what is learned and written.
        n_items: all of both.
        split_name: of which file.
    """
    found: list[str] = []
    task = formulation.task
    if n_truncated and not TASK_KINDS[task.task_kind].splits_long_texts:
        template = task.options.get("template")
        oldest = template and parse_template(template, "options.template").truncation_keeps == "end"
        how = "lose their beginning, of lines the oldest" if oldest else "are cut"
        found.append(f"{_too_long_texts(n_truncated, n_items, split_name, task)} {how}")
    if n_truncated_targets and isinstance(formulation, TextToTextFormulation):
        found.append(
            f"{n_truncated_targets:,} of {n_items:,} {split_name} targets have more than "
            f"{formulation.max_target_length} tokens, and are learned up to there (--option "
            f"max_target_length={2 * formulation.max_target_length} for more)"
        )
    return found


def _environment(device: torch.device, n_threads: int) -> dict[str, Any]:
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "threads": n_threads,
        "device": device.type if device.type == "cpu" else torch.cuda.get_device_name(device),
    }


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


def read_run_record(folder: Path) -> dict[str, Any]:
    """Return what the run in a folder says of itself.

    Raises:
        ValueError: there is none, or it is no run of fine-tuning.
    """
    path = folder / RUN_FILE
    if not path.is_file():
        raise ValueError(f"{folder}: holds no run to go on with")
    try:
        facts = read_saved(path)
        if (kind := facts["kind"]) == "finetune":
            return {**facts, "recipe": dict(facts["recipe"]), "data": dict(facts["data"])}
    except (ValueError, KeyError, TypeError) as error:
        why = str(error).removeprefix(f"{path}: ")
        raise ValueError(f"{path}: not a run of fine-tuning ({why})") from None
    raise ValueError(f"{folder}: is a run of {kind}, not of fine-tuning")


def check_same_config(
    folder: Path, recorded_config: Mapping[str, Any], config: FinetuneConfig
) -> None:
    """Check that what is asked for is what the record of a folder says.

    Raises:
        ValueError: it is not, with the first difference.
    """
    for key, value in json.loads(json.dumps(to_dict(config))).items():
        if recorded_config.get(key) != value:
            raise ValueError(
                f"{folder}: this run has {key} = {recorded_config.get(key)!r}, not {value!r}; "
                "a resumed run must be the same"
            )
