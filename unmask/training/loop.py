"""The loop: `train(run)` takes a step between two yields; its caller logs, evaluates and saves."""

import hashlib
import math
import struct
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from unmask.batch import Batch, Visibility
from unmask.heads.prediction import Term
from unmask.training.config import Recipe
from unmask.training.device import distributed
from unmask.training.device.distributed import World
from unmask.training.interrupt import StopRequest as StopRequest
from unmask.training.interrupt import stop_after_step as stop_after_step
from unmask.training.optimizers import build
from unmask.training.optimizers.master_weights import MasterWeights
from unmask.training.optimizers.state import AveragingOptimizer
from unmask.training.resume import load_state, trained_tensors
from unmask.training.run import (
    BatchStream,
    CountsTargets,
    MicroBatches,
    MicroBatchMemories,
    RunProgress,
    TrainingForward,
    TrainingRun,
)
from unmask.training.schedules import N_UNTIMED_STEPS, steps_within
from unmask.training.step_report import LossSums, StepReport


def start_run(
    recipe: Recipe,
    model: nn.Module,
    batches: BatchStream,
    *,
    world: World | None = None,
    learning_rate_factors: Mapping[str, float] | None = None,
    forward: TrainingForward | None = None,
) -> TrainingRun:
    """Begin a run with an initialized model; `restore` goes on with one.

    Moves the model to the device of `world` and its parameters to the recipe's precision.

    Args:
        recipe: all that the run depends on.
        model: takes a batch, returns a Prediction, and counts what a batch asks.
        batches: the data; see Batches.
        world: the processes that share the run.
        learning_rate_factors: factors of the learning rate by parameter name.
        forward: what answers in place of the model, with its weights.
    """
    world = world or World()
    model.to(world.device)
    precision = distributed.resolve_precision(recipe.precision, world.device)
    weights = MasterWeights(model, distributed.weight_dtype(precision))
    asked = model if forward is None else forward
    return TrainingRun(
        recipe=replace(recipe, precision=precision),
        model=model,
        forward=torch.compile(asked, dynamic=True) if recipe.compile else asked,
        target_counter=_as_target_counter(asked),
        weights=weights,
        optimizer=build.build_optimizer(
            recipe.optimizer, model, weights, learning_rate_factors=learning_rate_factors
        ),
        batches=batches,
        world=world,
    )


def train(run: TrainingRun) -> Iterator[StepReport]:
    """Train to the recipe's last step from wherever the run is, which can be saved at every yield.

    Raises:
        FloatingPointError: the recipe's `max_skipped_steps` steps in a row had no finite loss and
            gradient.
        ValueError: the data ended before the last step.
    """
    recipe, model = run.recipe, run.model
    if run.progress.step >= recipe.steps:
        return
    data = iter(run.batches(run.progress.cursor))
    model.train()
    while run.progress.step < recipe.steps:
        begin = time.perf_counter()
        step = run.progress.step + 1
        try:
            micro, cursor = next(data)
        except StopIteration:
            raise ValueError(f"the data ended before step {step} of {recipe.steps}") from None
        sums, tokens, norm = _accumulate_gradients(run, micro, step)
        rate = recipe.learning_rate_at(step)
        if recipe.sequence_length_jitter:
            rate *= tokens / recipe.batch_tokens
        moved = sums.is_finite and math.isfinite(norm)
        if not moved:
            run.memories.reset()  # of numbers that may not be numbers
        run.is_updating = True
        if moved:
            run.weights.clip_gradients(norm, recipe.max_grad_norm)
            run.optimizer.step(rate)
            run.weights.copy_to_model()
        p = run.progress
        progress = RunProgress(
            step=step,
            n_tokens=p.n_tokens + tokens,
            cursor=cursor,
            n_skipped=p.n_skipped + (not moved),
            n_skipped_in_a_row=0 if moved else p.n_skipped_in_a_row + 1,
            sums_since_log=p.sums_since_log + sums if moved else p.sums_since_log,
        )
        if step == recipe.steps:
            _check_final_loss(run, micro, rate)
        logged = step % recipe.log_every == 0 or step == recipe.steps
        run.progress = replace(progress, sums_since_log=LossSums()) if logged else progress
        run.is_updating = False
        yield StepReport(
            step=step,
            total_steps=recipe.steps,
            n_tokens=progress.n_tokens,
            step_tokens=tokens,
            sums=sums,
            sums_since_log=progress.sums_since_log if logged else None,
            learning_rate=rate,
            gradient_norm=norm,
            seconds=time.perf_counter() - begin,
            n_skipped=progress.n_skipped,
            was_skipped=not moved,
        )
        if progress.n_skipped_in_a_row >= recipe.max_skipped_steps:
            raise FloatingPointError(
                f"step {step}: the loss or its gradient was not finite in "
                f"{progress.n_skipped_in_a_row} "
                f"steps in a row (loss {sums.loss}, gradient norm {norm}); "
                f"a lower rate (now {rate:.3g}) or a longer warm-up may help"
            )


def _check_final_loss(run: TrainingRun, micro_batches: MicroBatches, learning_rate: float) -> None:
    """Ask the model after its last step what that step asked: its weights must say numbers.

    A step that ruins the weights shows in the loss of the next one, which the last does not have.

    Raises:
        FloatingPointError: the loss is not finite.
    """
    world = run.world
    with averaged_weights(run):
        sums = _evaluate_sums(run.model, micro_batches, world.device)
    if any(world.all_gather_object(not sums.is_finite)):
        raise FloatingPointError(
            f"step {run.recipe.steps}: after this last step the loss is not finite "
            f"({sums.loss}): the weights are of no use, and are not saved; a lower rate "
            f"(now {learning_rate:.3g}) or a longer warm-up may help"
        )


def _accumulate_gradients(
    run: TrainingRun, micro_batches: MicroBatches, step: int
) -> tuple[LossSums, int, float]:
    """Add up one step's gradients over micro-batches and processes; return sums, tokens, norm."""
    world, weights = run.world, run.weights
    mine = _count_all_targets(run.target_counter, micro_batches)
    asked = {f"asked.{name}": n for name, n in mine.items()}
    said = world.sum_by_name(
        {"tokens": sum(count_tokens(batch) for batch in micro_batches)} | asked
    )
    tokens = int(said.pop("tokens"))
    counts = {name.removeprefix("asked."): int(n) for name, n in said.items()}

    weights.begin_step()
    answers: list[Mapping[str, Term]] = []
    for i, batch in enumerate(micro_batches):
        torch.manual_seed(derive_seed(run.recipe.seed, step, i, world.rank))
        terms = run.forward(run.memories.attach(i, batch.to(world.device))).terms
        # Each term is a mean over the places of the whole step: how the step is cut changes
        # nothing.
        losses = [t.weight * (t.total / max(counts[name], 1)) for name, t in terms.items()]
        loss = torch.stack(losses).sum() if losses else torch.zeros(())
        if loss.requires_grad:
            loss.backward()
        answers.append(terms)
    assert mine == _targets_answered(answers, mine), "a head asked other places than it had counted"
    _reduce_gradients(world, weights)

    values = _read_scalars(_sum_terms(answers) | {"norm": weights.gradient_norm()})
    norm = values.pop("norm")
    return _loss_sums(world.sum_by_name(values), counts, answers), tokens, norm


def _reduce_gradients(world: World, weights: MasterWeights) -> None:
    if world.size == 1:
        weights.finish_backward(weights.has_gradient)
        return
    reached = torch.tensor(weights.has_gradient, dtype=torch.float32, device=world.device)
    world.all_reduce_sum(reached)
    weights.finish_backward([n > 0 for n in reached.tolist()])
    world.all_reduce_sum(weights.flat_gradient)


def _sum_terms(term_lists: Iterable[Mapping[str, Term]]) -> dict[str, Tensor]:
    """Sum what some batches answered, by term, on the device."""
    sums: dict[str, Tensor] = {}
    for terms in term_lists:
        for name, term in terms.items():
            found = {f"total.{name}": term.total}
            if term.n_correct is not None:
                found[f"right.{name}"] = term.n_correct
            for key, value in found.items():
                value = value.detach().double()
                sums[key] = sums[key] + value if key in sums else value
    return sums


def _targets_answered(
    term_lists: Iterable[Mapping[str, Term]], names: Iterable[str]
) -> dict[str, int]:
    asked = dict.fromkeys(names, 0)
    for terms in term_lists:
        for name, term in terms.items():
            asked[name] = asked.get(name, 0) + term.count
    return asked


def _loss_sums(
    values: Mapping[str, float], counts: Mapping[str, int], term_lists: Iterable[Mapping[str, Term]]
) -> LossSums:
    rights = {name: f"right.{name}" for name in counts}
    return LossSums(
        {name: values.get(f"total.{name}", 0.0) for name in counts},
        counts,
        {name: int(values[key]) for name, key in rights.items() if key in values},
        {name: t.weight for terms in term_lists for name, t in terms.items() if t.weight != 1},
    )


def _count_all_targets(model: CountsTargets, batches: Iterable[Batch]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for batch in batches:
        for name, n in model.count_targets(batch).items():
            counts[name] = counts.get(name, 0) + n
    return counts


def _as_target_counter(model: Any) -> CountsTargets:
    return model


def _read_scalars(tensors: Mapping[str, Tensor]) -> dict[str, float]:
    """Read numbers back from the device, all at once."""
    if not tensors:
        return {}
    values: list[float] = torch.stack([t.detach().double() for t in tensors.values()]).tolist()
    return dict(zip(tensors, values, strict=True))


def derive_seed(*numbers: int) -> int:
    """Make a seed from a place in the run: the same on every machine, unlike its neighbors'."""
    data = struct.pack(f"<{len(numbers)}q", *numbers)
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def count_tokens(batch: Batch) -> int:
    """Count the tokens of a batch that are not padding, of both sides of an encoder-decoder."""
    n = _count_real_tokens(batch.inputs, batch.visibility, batch.last_token_positions)
    return (
        n
        if batch.source is None
        else n + _count_real_tokens(batch.source, batch.source_visibility, None)
    )


def _count_real_tokens(ids: Tensor, visibility: Visibility, last: Tensor | None) -> int:
    if visibility.document is not None:
        return int((visibility.document >= 0).sum())
    return ids.numel() if last is None else int((last + 1).sum())


@torch.no_grad()
def _evaluate_sums(
    model: nn.Module, batches: Iterable[Batch], device: torch.device | str, memory_length: int = 0
) -> LossSums:
    """Ask a model what some batches ask; see `evaluate_batches`."""
    training = model.training
    model.eval()
    sums, memories = LossSums(), MicroBatchMemories(memory_length)
    try:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            for batch in batches:
                counts = _count_all_targets(_as_target_counter(model), [batch])
                terms = model(memories.attach(0, batch.to(device))).terms
                sums += _loss_sums(_read_scalars(_sum_terms([terms])), counts, [terms])
    finally:
        model.train(training)
    return sums


def evaluate_batches(
    model: nn.Module,
    batches: Iterable[Batch],
    device: torch.device | str = "cpu",
    *,
    memory_length: int = 0,
    component: str = "",
) -> dict[str, float]:
    """Ask a model what some batches ask: the loss, and each term's loss, accuracy and places asked.

    Of streams, `memory_length` places of what stood before are remembered. Where the batches are
    of one part of what is asked, terms are told under its name, too.

    The same batches give the same numbers: what is drawn (a generator's guesses) is drawn from one
    seed. The model is left in the mode in which it was.

    Raises:
        FloatingPointError: a loss is not finite.
    """
    sums = _evaluate_sums(model, batches, device, memory_length)
    if not sums.is_finite:
        odd = ", ".join(f"{n} {x}" for n, x in sums.mean_losses.items() if not math.isfinite(x))
        raise FloatingPointError(
            f"the loss on held-out text is not finite ({odd}): the weights are of no use; a lower "
            "rate or a longer warm-up may help"
        )
    result = {} if component else {"loss": sums.loss}
    for name, mean in sums.mean_losses.items():
        told = f"{name}_{component}" if component else name
        result[f"{told}_loss"] = mean
        if name in sums.accuracy:
            result[f"{told}_accuracy"] = sums.accuracy[name]
        result[f"{told}_asked"] = sums.n_targets[name]
    return result


def estimate_steps(
    run: TrainingRun,
    minutes: int | float,
    *,
    spent_seconds: int | float = 0,
    max_trial_steps: int = 12,
    max_time_fraction: float = 0.1,
) -> int:
    """Say how many steps fit into `minutes` on this machine, by taking some and taking them back.

    The run is then what it was before, bit for bit, so a run that is given by minutes equals the
    one that is given by the number of steps that this returns: put it into the recipe and write
    that to the disk before the first step. The time of the trial counts as spent.

    Args:
        run: at its beginning.
        minutes: that the whole run may take.
        spent_seconds: seconds of them that have passed already.
        max_trial_steps: steps to take, at most.
        max_time_fraction: share of the time after which the trial ends, if it has at least three
            steps by then.
    """
    begin = time.perf_counter()
    before, progress = run.progress, {k: t.clone() for k, t in trained_tensors(run).items()}
    memory = {k: t.clone() for k, t in run.optimizer.state_tensors().items()}
    recipe = run.recipe
    run.recipe = replace(recipe, steps=max(recipe.steps, before.step + max_trial_steps))
    measured: list[float] = []
    for report in train(run):
        measured.append(report.seconds)
        spent_here = run.world.broadcast_object(
            time.perf_counter() - begin
        )  # all end after the same step
        enough = len(measured) > N_UNTIMED_STEPS and spent_here > max_time_fraction * minutes * 60
        if len(measured) == max_trial_steps or enough or report.was_skipped:
            break
    run.recipe, run.progress = recipe, before
    run.memories.reset()
    load_state(run, progress, memory)
    total = spent_seconds + time.perf_counter() - begin
    return int(run.world.broadcast_object(steps_within(minutes, measured, spent_seconds=total)))


@contextmanager
def averaged_weights(run: TrainingRun) -> Generator[None, None, None]:
    """Let the mean of the weights stand in their place, where the optimizer keeps one."""
    means = run.optimizer.averaged_weights if isinstance(run.optimizer, AveragingOptimizer) else {}
    now = {name: run.weights.masters[name].clone() for name in means}
    try:
        _set_weights(run, means)
        yield
    finally:
        _set_weights(run, now)


def _set_weights(run: TrainingRun, tensors: Mapping[str, Tensor]) -> None:
    if tensors:
        with torch.no_grad():
            for name, tensor in tensors.items():
                run.weights.masters[name].copy_(tensor)
        run.weights.copy_to_model()


def report_dev_loss(run: TrainingRun, loss: float) -> None:
    """Tell the optimizer the loss on held-out text, where it asks."""
    if isinstance(run.optimizer, AveragingOptimizer):
        run.optimizer.update_dev_loss(loss)


def finish_run(run: TrainingRun) -> nn.Module:
    """End a run: return its model in float32, ready to evaluate and save.

    Its weights are their mean, where the optimizer keeps one.
    """
    if isinstance(run.optimizer, AveragingOptimizer):
        _set_weights(run, run.optimizer.averaged_weights)
    run.weights.restore_model()
    return run.model.eval()
