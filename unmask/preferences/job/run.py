"""A run of preference optimization: steps, evaluations, checkpoints, and the folder at the end."""

import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from unmask.checkpoints import folder as checkpoints
from unmask.checkpoints.checksums import FILES_KEY
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.config import from_dict, to_dict
from unmask.files import lock_run_folder, remove_partial_files, write_atomically
from unmask.finetuning.data.batch_stream import BatchSize, count_epoch_steps, make_batch_stream
from unmask.finetuning.formulations.conversations.instructions import template_of_task
from unmask.finetuning.methods.method import is_parameter_efficient, make_schedule
from unmask.finetuning.results.predict import RUN_FILE
from unmask.finetuning.results.save_model import save_into_run_folder
from unmask.heads.model import Model
from unmask.output import OutputStream
from unmask.preferences.config import PreferConfig, check_same_prefer_config
from unmask.preferences.job.evaluate import Answers, score_policy
from unmask.preferences.job.prepare import PreferJob, prepare_prefer_job
from unmask.preferences.job.result import (
    MEASURES_FILE,
    RESPONSES_FILE,
    PreferenceResult,
    read_result,
)
from unmask.preferences.methods import (
    online_method,
    pair_loss_of,
    preference_method_name,
    steps_of_batch,
)
from unmask.preferences.online.estimates import policy_loss_of
from unmask.preferences.online.policy import PolicyForward
from unmask.preferences.online.stream import RolloutStream
from unmask.preferences.online.values import add_value_network
from unmask.preferences.pair_losses import KTO
from unmask.preferences.pair_training import KTOForward, PairForward
from unmask.preferences.reference import (
    Reference,
    ReferenceStore,
    attach_reference_scores,
    reference_of,
)
from unmask.saved_format import read_saved
from unmask.training import loop
from unmask.training.config import Recipe
from unmask.training.device import distributed
from unmask.training.device.activation_memory import check_optimizer_fits
from unmask.training.device.memory import keep_freed_memory, peak_memory_bytes
from unmask.training.interrupt import interrupt_on_signal, stop_after_step
from unmask.training.log import TrainingLog
from unmask.training.optimizers.config import AdamW
from unmask.training.resume import find_newest_checkpoint, restore_run, save_checkpoint
from unmask.training.run import BatchStream, TrainingForward, TrainingRun

_RECORDED = {
    "base_sha256": "model", "task": "task", "data": "data", "text_sha256": "text",
    "rewards": "reward or judge",
}  # fmt: skip
"""What must be as it was when a run goes on, and what it is called."""
_N_EVALUATIONS = 5
_BETAS = (0.9, 0.95)
"""Of Adam (Ouyang et al. 2022, arXiv:2203.02155, appendix "Additional model details")."""


@interrupt_on_signal()
def run_preferences(
    config: PreferConfig,
    folder: Path,
    *,
    resume: bool = False,
    device: str = "auto",
    terminal: OutputStream | None = None,
) -> PreferenceResult:
    """Train a model on preferences by a config; `unmask.prefer` takes its fields as arguments.

    Args:
        config: the configuration.
        folder: folder of the run.
        resume: continue the run in the folder.
        device: "auto", "cpu", "cuda", ...
        terminal: stream for progress. None: no progress is shown.

    Raises:
        FileNotFoundError: a file or model is missing.
        ValueError: a file, a row or an option is invalid, or the folder holds something else.
        KeyboardInterrupt: the run was stopped; it can be resumed.
    """
    recorded = _check_folder(folder, config, resume=resume)
    if recorded is not None and recorded.get("finished"):
        with lock_run_folder(folder):
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)
            return read_result(folder, from_dict(PreferConfig, recorded["recipe"], "recipe"))
    with distributed.process_group(device) as world:
        if world.size > 1:
            raise ValueError(f"preferences are learned in one process, not in {world.size}")
        n_threads = distributed.set_threads(None if recorded is None else recorded["threads"])
        keep_freed_memory()
        job = prepare_prefer_job(config, folder, world, n_threads, terminal)
        job = _resolve(job, recorded)
        model = job.build_model()  # a way of tuning that does not fit leaves no folder
        check_optimizer_fits(model, world.device)
        folder.mkdir(parents=True, exist_ok=True)
        with lock_run_folder(folder):
            if recorded is None:
                checkpoints.check_not_begun(folder, RUN_FILE)
            remove_partial_files(folder)
            if recorded is None:
                _write_record(job, {"finished": False})
            for warning in job.warnings:
                job.warn(warning)
            return _train(job, model)


def _check_folder(folder: Path, config: PreferConfig, *, resume: bool) -> Mapping[str, Any] | None:
    """Return the record of the run in the folder; None: there is none yet.

    Raises:
        ValueError: the folder holds something else, or a run that is not continued.
    """
    if not checkpoints.has_run(folder, (RUN_FILE,)):
        if resume and not folder.is_dir():  # else it was killed before it had written its record
            raise ValueError(f"{folder}: has no run to continue")
        return None
    facts = read_saved(folder / RUN_FILE)
    if facts.get("kind") != "prefer":
        raise ValueError(f"{folder}: is a run of {facts.get('kind')}, not of prefer")
    checkpoints.check_resumed(folder, resume=resume)
    check_same_prefer_config(folder, facts["recipe"], config, is_resolved=False)
    return facts


def _resolve(job: PreferJob, recorded: Mapping[str, Any] | None) -> PreferJob:
    """Return a job whose options are all resolved: of a new run, or of the recorded one.

    Raises:
        ValueError: the options do not fit, or the model or the data of the run have changed.
    """
    job = replace(job, config=_with_interval(job))
    if recorded is None:
        _recipe(job)  # checks the schedule, before a file is written
        return job
    check_same_prefer_config(job.folder, recorded["recipe"], job.config, is_resolved=True)
    for name, what in _RECORDED.items():
        if json.loads(json.dumps(job.run_record[name])) != recorded[name]:
            raise ValueError(f"{job.folder}: the {what} of this run changed since it began")
    # What fits into memory now may differ, and rounding depends on it.
    n = recorded["micro_batch_tokens"]
    return replace(
        job,
        micro_batch_tokens=n,
        run_record={**job.run_record, "micro_batch_tokens": n},
    )


def _with_interval(job: PreferJob) -> PreferConfig:
    """Resolve the interval between evaluations: a fifth of the steps, where a batch ends."""
    unit = steps_of_batch(job.config.method)
    every = job.config.evaluate_every or -(-_total_steps(job) // _N_EVALUATIONS)
    return replace(job.config, evaluate_every=-(-every // unit) * unit)


def _write_record(job: PreferJob, more: Mapping[str, Any]) -> None:
    facts = {**job.run_record, "recipe": to_dict(job.config), **more}
    text = json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
    write_atomically(job.folder / RUN_FILE, text)


def _total_steps(job: PreferJob) -> int:
    config = job.config
    if online_method(config.method) is not None:
        size = min(config.batch_size, len(job.train.rows))
        n_batches = math.ceil(config.epochs * (len(job.train.rows) // size))
        return max(n_batches, 1) * steps_of_batch(config.method)
    n = count_epoch_steps(job.train.examples, config.batch_size, None)
    return max(math.ceil(config.epochs * n), 1)


def _recipe(job: PreferJob) -> Recipe:
    config = job.config
    assert config.learning_rate is not None
    assert config.evaluate_every is not None
    return Recipe(
        model=job.initial_model.preset.name,
        steps=_total_steps(job),
        optimizer=AdamW(betas=_BETAS, weight_decay=config.weight_decay),
        learning_rate=config.learning_rate,
        schedule=make_schedule(config.tune, config.warmup, config.schedule),
        max_grad_norm=config.max_grad_norm,
        precision=config.precision,
        seed=config.seed,
        log_every=steps_of_batch(config.method),
        evaluate_every=config.evaluate_every,
        checkpoint_every=config.evaluate_every,
    )


def _train(job: PreferJob, model: Model) -> PreferenceResult:
    """Make the run, or continue it; write its results."""
    online = online_method(job.config.method)
    if online is not None and online.has_values:
        add_value_network(model, shared=online.shared_value)
    model.to(job.world.device)
    precision = distributed.resolve_precision(job.config.precision, job.world.device)
    reference = reference_of(model, distributed.weight_dtype(precision))
    job = _with_reference_scores(job, reference)
    run = _start(job, model, reference)
    forward = cast("TrainingForward", run.forward)
    checkpoint, damaged = find_newest_checkpoint(job.folder, job.world)
    for line in (*damaged, *checkpoints.truncate_logs(job.folder, checkpoint)):
        job.warn(line)
    before, first = score_policy(job, model, forward, reference, None)
    if checkpoint is not None:
        restore_run(run, checkpoint)
        job.print_progress(f"going on after step {run.progress.step:,}")
    _take_steps(job, run, forward, reference, first, before)
    loop.finish_run(run)
    after, last = score_policy(job, model, forward, reference, first)
    with TrainingLog(job.folder, terminal=job.terminal) as log:
        log.log_evaluation(run.recipe.steps, after)
    model.remove_training_modules()
    return _write_results(job, model, (before, after), (first, last))


def _with_reference_scores(job: PreferJob, reference: Reference) -> PreferJob:
    """Return the job with the reference's scores of all responses, if they are to be kept."""
    if job.config.reference != "cache":
        return job
    special, device = job.formulation.special_ids, job.world.device
    found: dict[str, Any] = {}
    for name, split in (("train", job.train), ("dev", job.dev)):
        path = job.folder / f"reference-{name}.safetensors"
        store = ReferenceStore.of(path, split.examples, str(job.run_record["base_sha256"]))
        examples = attach_reference_scores(
            split.examples, reference, special, job.micro_batch_tokens, device, store
        )
        found[name] = replace(split, examples=examples)
    return replace(job, **found)


def _start(job: PreferJob, model: Model, reference: Reference) -> TrainingRun:
    forward, batches = _forward_and_batches(job, model, reference)
    return loop.start_run(_recipe(job), model, batches, world=job.world, forward=forward)


def _forward_and_batches(
    job: PreferJob, model: Model, reference: Reference
) -> tuple[TrainingForward, BatchStream]:
    """Return what computes the loss of a step, and the batches."""
    config = job.config
    method = online_method(config.method)
    if method is not None:
        assert job.reward is not None
        stream = RolloutStream(
            policy=model, reference=reference, reward=job.reward, formulation=job.formulation,
            method=method, rows=job.train.rows, prompts=job.train.prompts,
            batch_size=min(config.batch_size, len(job.train.rows)),
            micro_batch_tokens=job.micro_batch_tokens, seed=config.seed,
            cut_reward=config.cut_reward, text=job.text,
        )  # fmt: skip
        return PolicyForward(model, policy_loss_of(method), config.text_weight), stream
    loss = pair_loss_of(config.method)
    micro_batch_tokens = job.micro_batch_tokens
    if loss is None:  # its divergence is estimated on the whole batch
        micro_batch_tokens = 2 * config.batch_size * (config.max_length or 1)
    batches = make_batch_stream(
        job.train.examples,
        job.formulation.special_ids,
        BatchSize(n_units=config.batch_size, micro_batch_tokens=micro_batch_tokens),
        config.seed,
    )
    kept = None if config.reference == "cache" else reference
    if loss is None:
        return KTOForward(model, cast("KTO", config.method), kept), batches
    return PairForward(model, loss, kept), batches


def _take_steps(
    job: PreferJob,
    run: TrainingRun,
    forward: TrainingForward,
    reference: Reference,
    first: Answers | None,
    before: Mapping[str, float],
) -> None:
    """Take the remaining steps; evaluate and save at intervals, and where a batch ends."""
    unit, recipe = steps_of_batch(job.config.method), run.recipe
    model = cast("Model", run.model)
    with (
        TrainingLog(
            job.folder,
            memory_usage=lambda: peak_memory_bytes(job.world.device),
            terminal=job.terminal,
        ) as log,
        stop_after_step() as stop,
    ):
        if run.progress.step == 0:
            log.log_evaluation(0, before)
        for report in loop.train(run):
            log(report)
            if report.step % unit:
                continue
            is_last = report.step == recipe.steps
            if report.step % recipe.evaluate_every == 0 and not is_last:
                found, _ = score_policy(job, model, forward, reference, first)
                log.log_evaluation(report.step, found)
            stopped = stop.is_requested
            if stopped or is_last or report.step % recipe.checkpoint_every == 0:
                save_checkpoint(run, job.folder)
            if stopped:
                log.print_above(f"stopped after step {report.step:,}; resume to continue")
                raise KeyboardInterrupt


def _write_results(
    job: PreferJob,
    model: Model,
    measures: tuple[Mapping[str, float], Mapping[str, float]],
    answers: tuple[Answers | None, Answers | None],
) -> PreferenceResult:
    """Write the model into the run's folder; the run is marked as finished last."""
    task = job.formulation.task
    before, after = measures
    result = PreferenceResult(
        loaded_model=LoadedModel(
            preset=replace(job.initial_model.preset, heads=model.head_specs),
            model=model.eval(),
            tokenizer=job.initial_model.tokenizer,
            chat_template=template_of_task(task),
            label_names=(),
            missing=(),
            unexpected=(),
            source=str(job.folder.absolute()),
        ),
        task=task,
        config=job.config,
        before=before,
        after=after,
        responses=_responses(*answers),
        warnings=job.warnings,
        folder=job.folder,
    )
    base = job.config.base if is_parameter_efficient(job.config.tune) else None
    lines = [
        f"trained by {preference_method_name(job.config.method)} on "
        f"{Path(job.config.train).name}, at rate {job.config.learning_rate:g}",
        *result.summary(),
        *job.warnings,
    ]
    files = save_into_run_folder(job.folder, result.loaded_model, task, lines, base)
    if result.responses:
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in result.responses]
        write_atomically(job.folder / RESPONSES_FILE, "".join(lines))
    found = {"before": dict(before), "after": dict(after)}
    write_atomically(job.folder / MEASURES_FILE, json.dumps(found, indent=2) + "\n")
    _write_record(job, {"finished": True, FILES_KEY: files})
    shutil.rmtree(job.folder / "checkpoints", ignore_errors=True)
    return result


def _responses(first: Answers | None, last: Answers | None) -> tuple[Mapping[str, Any], ...]:
    """Return a row for each development prompt, with the responses before and after."""
    if first is None or last is None:
        return ()
    rows: list[Mapping[str, Any]] = []
    for i, (old, new) in enumerate(zip(first.rollouts, last.rollouts, strict=True)):
        row: dict[str, Any] = {"prompt": [turn.to_dict() for turn in new.prompt]}
        for name, rollout, answers in (("before", old, first), ("after", new, last)):
            row[name] = rollout.text
            for rated, values in (("reward", answers.rewards), ("judge", answers.verdicts)):
                if values is not None:
                    row[f"{rated}_{name}"] = round(float(values[i]), 4)
        rows.append(row)
    return tuple(rows)
