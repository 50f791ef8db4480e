"""One run of fine-tuning: steps, evaluation, selection of the best state, and checkpoints.

The loop is pretraining's (`unmask.training.loop`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from unmask.batching.collate import example_length, group_by_length, pad_examples
from unmask.checkpoints import folder as checkpoints
from unmask.checkpoints.folder import Checkpoint
from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.data.batch_stream import BatchSize, make_batch_stream
from unmask.finetuning.formulations.conversations.rows import row_length
from unmask.finetuning.formulations.formulation import ResamplesExamples
from unmask.finetuning.initial_model.auxiliary_lm import remove_language_head
from unmask.finetuning.initial_model.regression_scale import denormalize_head
from unmask.finetuning.initial_model.used_tokens import restore_embeddings, shrink_embeddings
from unmask.finetuning.job.finetune_job import FinetuneJob
from unmask.finetuning.methods.frozen_states import FrozenStates, fingerprint, frozen_part
from unmask.finetuning.methods.method import learning_rate_factors, make_schedule
from unmask.finetuning.results.cost import begin_cost, flops_per_token
from unmask.finetuning.results.predict import DEFAULT_BATCH_TOKENS, MAX_BATCH_ROWS
from unmask.finetuning.results.score import score
from unmask.heads.model import Model
from unmask.model.layers.quantized_inputs import load_quantization_tensors, quantization_tensors
from unmask.training import loop
from unmask.training.config import Recipe
from unmask.training.device.memory import peak_memory_bytes
from unmask.training.interrupt import stop_after_step
from unmask.training.log import TrainingLog
from unmask.training.optimizers.config import Adafactor, AdamW
from unmask.training.resume import (
    check_frozen_weights,
    progress_record,
    restore_run,
    state_tensors,
)
from unmask.training.run import TrainingRun

_MIN_CHECKPOINTS = 5
"""Minimum number of checkpoints written in a run."""
_MIN_EPOCHS_OF_FROZEN_STATES = 2
"""Minimum number of epochs in which frozen layers are computed before the first."""
_N_KEPT_CHECKPOINTS = 2
"""Number of checkpoints kept, unless more are averaged."""


@dataclass(frozen=True, kw_only=True)
class BestState:
    """The best state of a run so far."""

    step: int
    scores: Mapping[str, float]
    tensors: Mapping[str, Tensor]
    """Trained parameters, and ranges of inputs that are rounded."""
    n_worse_evaluations: int = 0
    """Number of evaluations since then."""


def train_run(job: FinetuneJob, arm: str, seed: int) -> tuple[Model, BestState]:
    """Make one run, or continue it; return its model in the best state, in float32."""
    folder = job.run_folder(arm, seed)
    folder.mkdir(exist_ok=True)
    model = job.build_model(arm, seed)
    examples = (*job.train_examples, *(q.example for q in job.dev_subset[1]))
    if not any(method.quantizes for method in job.config.compression):  # of all tokens
        shrink_embeddings(model, examples, job.formulation.special_ids.pad)
    checkpoint, damaged = checkpoints.newest_checkpoint(folder)
    for line in (*damaged, *checkpoints.truncate_logs(folder, checkpoint)):
        job.warn(line)
    if checkpoint is not None and checkpoint.progress["done"]:
        frozen = {name: p for name, p in model.named_parameters() if not p.requires_grad}
        check_frozen_weights(checkpoint, frozen)
        model.to(job.world.device)
        state = _read_best_state(checkpoint)
    else:
        state = _train(job, model, seed, folder, checkpoint)
    assert state is not None
    model.load_state_dict(dict(state.tensors), strict=False)
    load_quantization_tensors(model, state.tensors)
    restore_embeddings(model)
    model.eval()
    denormalize_head(model, job.formulation)
    if job.config.lm_loss_weight:
        remove_language_head(model)
    return model, state


def _train(
    job: FinetuneJob, model: Model, seed: int, folder: Path, checkpoint: Checkpoint | None
) -> BestState:
    run = set_up_run(job, model, seed)
    best = None
    if checkpoint is not None:
        restore_run(run, checkpoint)
        best = _read_best_state(checkpoint)
        job.print_progress(f"going on after step {run.progress.step:,}")
    best = _train_steps(job, run, folder, best)
    loop.finish_run(run)
    model.remove_training_modules()
    return best


def set_up_run(job: FinetuneJob, model: Model, seed: int) -> TrainingRun:
    """Set up the training loop of a run."""
    t = job.config
    assert t.learning_rate is not None
    assert t.evaluate_every is not None
    assert t.micro_batch_tokens is not None
    n, paper = job.total_steps, job.initial_model.preset.finetuning
    least = 0 if t.average else n // _MIN_CHECKPOINTS
    checkpoint_interval = -(-max(t.evaluate_every, least) // t.evaluate_every) * t.evaluate_every
    recipe = Recipe(
        model=job.initial_model.preset.name,
        steps=n,
        optimizer=(
            Adafactor(weight_decay=t.weight_decay)
            if t.optimizer == "adafactor"
            else AdamW(betas=paper.betas, weight_decay=t.weight_decay)
        ),
        learning_rate=t.learning_rate,
        schedule=make_schedule(t.tune, t.warmup, t.schedule or paper.schedule),
        max_grad_norm=t.max_grad_norm,
        compression=t.compression,
        precision=t.precision,
        seed=seed,
        log_every=t.log_every,
        evaluate_every=t.evaluate_every,
        checkpoint_every=checkpoint_interval,
        keep_checkpoints=max(_N_KEPT_CHECKPOINTS, t.average),
    )
    draw = (
        job.formulation.sample_example if isinstance(job.formulation, ResamplesExamples) else None
    )
    data = make_batch_stream(
        job.train_examples,
        job.formulation.special_ids,
        BatchSize(
            n_units=t.batch_size,
            n_tokens=t.batch_tokens,
            micro_batch_tokens=t.micro_batch_tokens,
            row_length=row_length(job.formulation),
        ),
        seed,
        draw,
        source_sampling=job.source_sampling,
    )
    run = loop.start_run(
        recipe,
        model,
        data,
        world=job.world,
        learning_rate_factors=learning_rate_factors(t.tune, model),
        forward=job.training_forward(model, seed, data),
    )
    _remember_frozen_states(job, model, texts_are_drawn=draw is not None)
    return run


def _remember_frozen_states(job: FinetuneJob, model: Model, *, texts_are_drawn: bool) -> None:
    """Let what is frozen be computed once, if its texts are read again.

    Not so where texts are drawn anew in each epoch, or the network also learns from a teacher, is
    compressed, or reads more than texts.
    """
    t, formulation = job.config, job.formulation
    again = job.total_steps >= _MIN_EPOCHS_OF_FROZEN_STATES * job.steps_per_epoch
    drawn = texts_are_drawn or bool(t.lm_loss_weight)
    if not again or drawn or t.compression or t.distillation is not None or job.world.size > 1:
        return
    if (part := frozen_part(t.tune, model)) is None:
        return
    job.state_store.keep_only(fingerprint(part, model))
    states = FrozenStates(part, job.state_store)
    model.frozen_states = states
    states.fill(
        model,
        (
            pad_examples([job.train_examples[i] for i in group], formulation.special_ids).to(
                job.world.device
            )
            for group in group_by_length(
                [example_length(e) for e in job.train_examples],
                DEFAULT_BATCH_TOKENS,
                MAX_BATCH_ROWS,
            )
        ),
    )
    if len(states.store) and not states.draws_in_training:
        job.print_progress(f"frozen layers are computed once, of {len(states.store):,} texts")


def _train_steps(
    job: FinetuneJob, run: TrainingRun, folder: Path, best: BestState | None
) -> BestState:
    """Run the remaining steps, evaluate and save; return the best state."""
    recipe, tuning = run.recipe, job.config
    if _should_stop_early(tuning, best):
        assert best is not None
        return best
    model = _require_model(run)
    begin_cost(job, model, recipe)
    with (
        TrainingLog(
            folder,
            flops_per_token=flops_per_token(job, model),
            peak_flops=job.peak_flops,
            memory_usage=lambda: peak_memory_bytes(job.world.device),
            terminal=job.terminal,
        ) as log,
        stop_after_step() as stop,
    ):
        tuning.tune.unfreeze(model, run.progress.step + 1, recipe.steps)
        for report in loop.train(run):
            log(report)
            job.cost.observe(report.seconds)
            last = report.step == recipe.steps
            if last or report.step % recipe.evaluate_every == 0:
                best = _evaluate(job, run, log, best)
                last = last or _should_stop_early(tuning, best)
            if last:
                break
            stopped = stop.is_requested
            if job.keeps_folder and (stopped or report.step % recipe.checkpoint_every == 0):
                _save_checkpoint(run, folder, best)
            if stopped:
                hint = "; resume to continue" if job.keeps_folder else ""
                log.print_above(f"stopped after step {report.step:,}{hint}")
                raise KeyboardInterrupt
            tuning.tune.unfreeze(model, report.step + 1, recipe.steps)
        step = run.progress.step
        if best is not None and step < recipe.steps:
            log.print_above(
                f"ended early, after step {step:,}: none better since step {best.step:,}"
            )
        elif best is not None and tuning.average:
            best = _average_checkpoints(job, run, log, best, folder)
        assert best is not None
        if job.keeps_folder:
            _save_checkpoint(run, folder, best, done=True)
    return best


def _average_checkpoints(
    job: FinetuneJob, run: TrainingRun, log: TrainingLog, best: BestState, folder: Path
) -> BestState:
    """Score the average of the last evaluated states; return it, or the best state if better.

    The last of these states is in the run, the others are in its checkpoints.
    """
    before = checkpoints.last_checkpoints(folder, job.config.average - 1)
    states = [*(checkpoint.tensors("model") for checkpoint in before), _trainable_tensors(run)]
    averaged = checkpoints.average_tensors(states, run.weights.trained_names)
    with torch.no_grad():
        for name, master in _trainable_tensors(run).items():
            master.copy_(averaged[name])
    run.weights.copy_to_model()
    scores = score(job.formulation, _require_model(run), *job.dev_subset)
    metric, better = job.task.metric, job.task.is_better(scores, best.scores)
    log.print_above(
        f"mean of the last {len(states)} evaluated states: {metric} {scores[metric]:.4f}, "
        f"{'better than' if better else 'not better than'} the best, {best.scores[metric]:.4f}"
    )
    if not better:
        return best
    return BestState(step=run.progress.step, scores=scores, tensors=_model_tensors(run))


def _should_stop_early(config: FinetuneConfig, best: BestState | None) -> bool:
    """Return whether there were too many evaluations without improvement."""
    return (
        best is not None
        and config.patience is not None
        and best.n_worse_evaluations >= config.patience
    )


def _require_model(run: TrainingRun) -> Model:
    assert isinstance(run.model, Model)
    return run.model


def _evaluate(
    job: FinetuneJob, run: TrainingRun, log: TrainingLog, best: BestState | None
) -> BestState:
    """Score the model on the dev file, and keep it if it is the best so far.

    States in which the model is not yet compressed as much as at the end do not count beside those
    in which it is.
    """
    step = run.progress.step
    scores = score(job.formulation, _require_model(run), *job.dev_subset)
    log.log_evaluation(step, scores)
    job.cost.observe_evaluation(step)
    first = _first_final_step(run)
    is_comparable = best is not None and (best.step >= first or step < first)
    if best is not None and is_comparable and not job.task.is_better(scores, best.scores):
        return replace(best, n_worse_evaluations=best.n_worse_evaluations + (step >= first))
    return BestState(step=step, scores=scores, tensors=_model_tensors(run))


def _first_final_step(run: TrainingRun) -> int:
    """Return the first step with the final number of zeros or codes; 0 without compression."""
    recipe = run.recipe
    return max((one.first_final_step(recipe.steps) for one in recipe.compression), default=0)


def _trainable_tensors(run: TrainingRun) -> dict[str, Tensor]:
    """Return the trained parameters in float32."""
    return {name: run.weights.masters[name] for name in run.weights.trained_names}


def _model_tensors(run: TrainingRun) -> dict[str, Tensor]:
    """Return a copy of the trained parameters as the model computes with them, in float32.

    And how it rounds the inputs of its layers, if it does.
    """
    names = run.weights.trained_names
    weights = {n: run.weights.transformed(n).detach().cpu().clone() for n in names}
    return weights | quantization_tensors(_require_model(run))


def _save_checkpoint(
    run: TrainingRun, folder: Path, best: BestState | None, *, done: bool = False
) -> None:
    """Write a checkpoint of the training state and the best state; if `done`, of the latter."""
    progress = progress_record(run) | {
        "done": done,
        "best": None
        if best is None
        else {
            "step": best.step,
            "scores": dict(best.scores),
            "worse": best.n_worse_evaluations,
        },
    }
    tensors = {"best": {} if best is None else best.tensors}
    if not done:
        tensors |= state_tensors(run)
    keep = 1 if done else run.recipe.keep_checkpoints
    checkpoints.write_checkpoint(folder, run.progress.step, tensors, progress, n_kept=keep)


def _read_best_state(checkpoint: Checkpoint) -> BestState | None:
    best = checkpoint.progress["best"]
    if best is None:
        return None
    tensors = checkpoint.tensors("best")
    return BestState(
        step=best["step"], scores=best["scores"], tensors=tensors, n_worse_evaluations=best["worse"]
    )
