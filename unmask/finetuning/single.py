"""One run of fine-tuning: its steps, when it is scored, which of its states is kept, checkpoints.

The loop is pretraining's (`unmask.training.loop`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from unmask.checkpoints import folder as checkpoints
from unmask.checkpoints.folder import Checkpoint
from unmask.finetuning.ask import Drawing
from unmask.finetuning.auxiliary import without_language
from unmask.finetuning.batches import batches
from unmask.finetuning.job import Job
from unmask.finetuning.methods import rates, reading, schedule, thaw
from unmask.finetuning.numbers import out_of_scale
from unmask.finetuning.plan import Tuning
from unmask.finetuning.score import score
from unmask.finetuning.used_tokens import keep_used, restore
from unmask.heads.model import Model
from unmask.hiding.collate import size
from unmask.training import loop, parallel
from unmask.training.log import Log
from unmask.training.loop import Run
from unmask.training.recipe import Adafactor, AdamW, Recipe

_CHECKPOINTS = 5
"""So many checkpoints, at least, are written over a run."""
_KEPT = 2
"""So many are kept, or as many as a mean is of."""


@dataclass(frozen=True, kw_only=True)
class State:
    """The best state of a run so far."""

    step: int
    scores: Mapping[str, float]
    tensors: Mapping[str, Tensor]
    """Of what is tuned."""
    worse: int = 0
    """Evaluations since then."""


def train_one(job: Job, arm: str, seed: int) -> tuple[Model, State]:
    """Make one run, or go on with it; return its model, in its best state and in float32."""
    folder = job.place(arm, seed)
    folder.mkdir(exist_ok=True)
    model = job.model(arm, seed)
    read = (*job.examples, *(q.example for q in job.watched[1]))
    keep_used(model, read, job.asked.special.pad)
    checkpoint, damaged = checkpoints.newest(folder)
    for line in (*damaged, *checkpoints.rewind(folder, checkpoint)):
        job.warn(line)
    if checkpoint is not None and checkpoint.progress["done"]:
        frozen = {name: p for name, p in model.named_parameters() if not p.requires_grad}
        loop.check_frozen(checkpoint, frozen)
        model.to(job.world.device)
        state = _best_of(checkpoint)
    else:
        state = _train(job, model, seed, folder, checkpoint)
    assert state is not None
    model.load_state_dict(dict(state.tensors), strict=False)
    restore(model)
    model.eval()
    out_of_scale(model, job.asked)
    if job.tuning.auxiliary:
        without_language(model)
    return model, state


def _train(job: Job, model: Model, seed: int, folder: Path, checkpoint: Checkpoint | None) -> State:
    run = start(job, model, seed)
    best = None
    if checkpoint is not None:
        loop.restore(run, checkpoint)
        best = _best_of(checkpoint)
        job.say(f"going on after step {run.progress.step:,}")
    best = _steps(job, run, folder, best)
    loop.finish(run)
    return best


def start(job: Job, model: Model, seed: int) -> Run:
    """Lay out the steps of a run."""
    t = job.tuning
    assert t.rate is not None
    assert t.evaluate_every is not None
    assert t.micro_tokens is not None
    n, paper = job.steps, job.begun.card.finetuning
    least = 0 if t.average else n // _CHECKPOINTS
    every = -(-max(t.evaluate_every, least) // t.evaluate_every) * t.evaluate_every
    recipe = Recipe(
        model=job.begun.card.name,
        steps=n,
        optimizer=(
            Adafactor(weight_decay=t.weight_decay)
            if t.optimizer == "adafactor"
            else AdamW(betas=paper.betas, weight_decay=t.weight_decay)
        ),
        rate=t.rate,
        schedule=schedule(t.tune, t.warmup, t.schedule or paper.schedule),
        clip=t.clip,
        precision=t.precision,
        seed=seed,
        log_every=t.log_every,
        evaluate_every=t.evaluate_every,
        checkpoint_every=every,
        keep=max(_KEPT, t.average),
    )
    draw = job.asked.drawn if isinstance(job.asked, Drawing) else None
    data = batches(
        job.examples, job.asked.special, t.batch, t.micro_tokens, seed, draw, tokens=t.batch_tokens,
        sources=job.sources,
    )  # fmt: skip
    return loop.start(
        recipe, model, data, world=job.world, rates=rates(t.tune, model),
        forward=reading(t.tune, model),
    )  # fmt: skip


def _steps(job: Job, run: Run, folder: Path, best: State | None) -> State:
    """Take the steps that are left, evaluate, save; return the best state."""
    recipe, tuning = run.recipe, job.tuning
    if _tired(tuning, best):
        assert best is not None
        return best
    with (
        Log(
            folder,
            flops=_flops(job),
            peak=job.peak,
            memory=lambda: parallel.memory_bytes(job.world.device),
            terminal=job.terminal,
        ) as log,
        loop.stopping() as stop,
    ):
        thaw(tuning.tune, _model(run), run.progress.step + 1, recipe.steps)
        for report in loop.train(run):
            log(report)
            last = report.step == recipe.steps
            if last or report.step % recipe.evaluate_every == 0:
                best = _evaluated(job, run, log, best)
                last = last or _tired(tuning, best)
            if last:
                break
            if job.kept and (stop.asked or report.step % recipe.checkpoint_every == 0):
                _save(run, folder, best)
            if stop.asked:
                kept = "; go on with it by resuming" if job.kept else ""
                log.say(f"stopped after step {report.step:,}{kept}")
                raise KeyboardInterrupt
            thaw(tuning.tune, _model(run), report.step + 1, recipe.steps)
        step = run.progress.step
        if best is not None and step < recipe.steps:
            log.say(f"ended early, after step {step:,}: none better since step {best.step:,}")
        elif best is not None and tuning.average:
            best = _with_mean(job, run, log, best, folder)
    assert best is not None
    if job.kept:
        _save(run, folder, best, done=True)
    return best


def _with_mean(job: Job, run: Run, log: Log, best: State, folder: Path) -> State:
    """Score the mean of the last evaluated states; return it, or the best if that is better.

    The last of them is the run's own, the others are in its checkpoints.
    """
    before = checkpoints.last(folder, job.tuning.average - 1)
    states = [*(one.tensors("model") for one in before), _tuned_tensors(run)]
    found = checkpoints.mean(states, run.weights.trained)
    with torch.no_grad():
        for name, master in _tuned_tensors(run).items():
            master.copy_(found[name])
    run.weights.refresh()
    scores = score(job.asked, _model(run), *job.watched)
    metric, better = job.task.metric, job.task.better(scores, best.scores)
    log.say(
        f"mean of the last {len(states)} evaluated states: {metric} {scores[metric]:.4f}, "
        f"{'better than' if better else 'not better than'} the best, {best.scores[metric]:.4f}"
    )
    if not better:
        return best
    tensors = {name: x.detach().cpu().clone() for name, x in _tuned_tensors(run).items()}
    return State(step=run.progress.step, scores=scores, tensors=tensors)


def _tired(tuning: Tuning, best: State | None) -> bool:
    """Say whether a run has not become better for too long."""
    return best is not None and tuning.patience is not None and best.worse >= tuning.patience


def _model(run: Run) -> Model:
    assert isinstance(run.model, Model)
    return run.model


def _flops(job: Job) -> float:
    """Count a training step's FLOPs a token, in texts of the mean length."""
    with torch.device("meta"):
        model = job.begun.card.build()
    length = round(float(np.mean([size(e) for e in job.examples])))
    asked = float(np.mean([np.mean(e.targets >= 0) for e in job.examples]))
    return model.flops(max(length, 1), asked)


def _evaluated(job: Job, run: Run, log: Log, best: State | None) -> State:
    """Score the model on the dev file, and keep it if it is the best so far."""
    step = run.progress.step
    scores = score(job.asked, _model(run), *job.watched)
    log.evaluation(step, scores)
    if best is not None and not job.task.better(scores, best.scores):
        return replace(best, worse=best.worse + 1)
    tensors = {name: x.detach().cpu().clone() for name, x in _tuned_tensors(run).items()}
    return State(step=step, scores=scores, tensors=tensors)


def _tuned_tensors(run: Run) -> dict[str, Tensor]:
    """Return what is tuned, in float32."""
    return {name: run.weights.masters[name] for name in run.weights.trained}


def _save(run: Run, folder: Path, best: State | None, *, done: bool = False) -> None:
    """Write a checkpoint: the loop's and the best state so far; of a run that is done only that."""
    progress = loop.progress_of(run) | {
        "done": done,
        "best": None
        if best is None
        else {
            "step": best.step,
            "scores": dict(best.scores),
            "worse": best.worse,
        },
    }
    tensors = {"best": {} if best is None else best.tensors}
    if not done:
        tensors |= {"model": loop.model_tensors(run), "optimizer": run.optimizer.tensors()}
    keep = 1 if done else run.recipe.keep
    checkpoints.save(folder, run.progress.step, tensors, progress, keep=keep)


def _best_of(checkpoint: Checkpoint) -> State | None:
    said = checkpoint.progress["best"]
    if said is None:
        return None
    tensors = checkpoint.tensors("best")
    return State(step=said["step"], scores=said["scores"], tensors=tensors, worse=said["worse"])
