"""The training loop: `train` yields a report after each step; the caller logs and saves."""

import hashlib
import math
import struct
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from unmask.batch import Batch, Visibility
from unmask.compression.while_training import build_transforms
from unmask.heads.prediction import Term
from unmask.training.config import Recipe
from unmask.training.device import distributed
from unmask.training.device.distributed import World
from unmask.training.device.memory import FreedMemoryLimit
from unmask.training.device.recomputation import LayerRecomputation
from unmask.training.device.stopwatch import Stopwatch
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
    loss_sums,
    read_scalars,
    sum_target_counts,
    sum_terms,
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
    checkpoint_activations: bool = False,
) -> TrainingRun:
    """Start a run with an initialized model; `restore` continues one.

    Moves the model to the device of `world` and its parameters to the recipe's precision; if it is
    divided among processes, a copy of it.

    Args:
        recipe: the pretraining recipe.
        model: computes a Prediction for a batch, and counts the targets of a batch.
        batches: the data; see BatchStream.
        world: the processes that share the run.
        learning_rate_factors: factors of the learning rate by parameter name.
        forward: computes the training loss in place of the model, with the model's weights.
        checkpoint_activations: only inputs of layers are kept for the backward; see
            `unmask.training.device.recomputation`.

    Raises:
        ValueError: the run cannot be divided among processes, as `world` says, or its layers
            cannot compute again.
    """
    world = world or World()
    precision = distributed.resolve_precision(recipe.precision, world.device)
    dtype = distributed.weight_dtype(precision)
    sharded = None
    if world.strategy == "fsdp":
        _check_sharded(recipe, forward)
    if world.is_sharded:
        from unmask.training.device.sharding import ShardedModel

        sharded = ShardedModel(model, world, dtype)
        model = sharded.model
    else:
        model.to(world.device)
    recomputation = LayerRecomputation(model) if checkpoint_activations else None
    transforms = build_transforms(recipe.compression, model)
    weights = MasterWeights(model, torch.float32 if sharded else dtype, transforms)
    forward_pass = model if forward is None else forward
    return TrainingRun(
        recipe=replace(recipe, precision=precision),
        model=model,
        forward=torch.compile(forward_pass, dynamic=True) if recipe.compile else forward_pass,
        target_counter=_as_target_counter(forward_pass),
        weights=weights,
        optimizer=build.build_optimizer(
            recipe.optimizer,
            model,
            weights,
            learning_rate_factors=learning_rate_factors,
            dtype=dtype,
        ),
        batches=batches,
        world=world,
        sharded=sharded,
        recomputation=recomputation,
    )


def _check_sharded(recipe: Recipe, forward: TrainingForward | None) -> None:
    """Check that a run can be divided among its processes.

    Raises:
        ValueError: it cannot.
    """
    if recipe.compression:
        raise ValueError("strategy: a run that compresses while training must be ddp, got fsdp")
    if forward is not None:
        raise ValueError("strategy: a run with teachers must be ddp, got fsdp")


def train(run: TrainingRun) -> Iterator[StepReport]:
    """Train from the run's current step to the last; the run can be saved at every yield.

    Raises:
        FloatingPointError: the recipe's `max_skipped_steps` steps in a row were skipped: without a
            finite loss and gradient, or spikes.
        ValueError: the data end before the last step.
    """
    recipe, model = run.recipe, run.model
    if run.progress.step >= recipe.steps:
        return
    run.weights.update_transforms(run.progress.step + 1, recipe.steps)
    run.weights.copy_to_model()
    if run.sharded is not None:
        run.sharded.release_whole_model()
    data = iter(run.batches(run.progress.cursor))
    freed_memory = FreedMemoryLimit(run.world.device)
    model.train()
    while run.progress.step < recipe.steps:
        watch, step = Stopwatch(), run.progress.step + 1
        try:
            micro_batches, cursor = next(data)
        except StopIteration:
            raise ValueError(f"the data ended before step {step} of {recipe.steps}") from None
        sums, tokens, norm = _accumulate_gradients(run, micro_batches, step)
        rate = recipe.learning_rate_at(step)
        if recipe.sequence_length_jitter:
            rate *= tokens / recipe.batch_tokens
        is_finite = sums.is_finite and math.isfinite(norm)
        if not is_finite:
            run.memories.reset()  # hidden states may not be finite either
        is_spike = recipe.skip_spikes is not None and run.progress.recent.is_spike(
            sums.loss, norm, recipe.skip_spikes
        )
        is_skipped = not is_finite or is_spike
        run.is_updating = True
        if not is_skipped:
            _update_weights(run, norm, rate, step)
        done = replace(run.progress, step=step, cursor=cursor)
        progress = _count_step(done, recipe, sums, tokens, norm, is_skipped=is_skipped)
        if step == recipe.steps:
            _check_final_loss(run, micro_batches, rate)
        logged = step % recipe.log_every == 0 or step == recipe.steps
        run.progress = replace(progress, sums_since_log=LossSums()) if logged else progress
        run.is_updating = False
        freed_memory.apply()
        yield StepReport(
            step=step,
            total_steps=recipe.steps,
            n_tokens=progress.n_tokens,
            step_tokens=tokens,
            sums=sums,
            sums_since_log=progress.sums_since_log if logged else None,
            learning_rate=rate,
            gradient_norm=norm,
            seconds=watch.seconds,
            n_skipped=progress.n_skipped,
            was_skipped=is_skipped,
        )
        if progress.n_skipped_in_a_row >= recipe.max_skipped_steps:
            raise FloatingPointError(
                f"step {step}: the loss or its gradient was "
                f"{'far above those before' if is_spike else 'not finite'} in "
                f"{progress.n_skipped_in_a_row} "
                f"steps in a row (loss {sums.loss}, gradient norm {norm}); "
                f"a lower rate (now {rate:.3g}) or a longer warm-up may help"
            )


def _count_step(
    progress: RunProgress,
    recipe: Recipe,
    sums: LossSums,
    tokens: int,
    gradient_norm: float,
    *,
    is_skipped: bool,
) -> RunProgress:
    """Return the progress with what a step read, and whether it was skipped."""
    is_finite = sums.is_finite and math.isfinite(gradient_norm)
    progress = replace(
        progress,
        n_tokens=progress.n_tokens + tokens,
        n_skipped=progress.n_skipped + is_skipped,
        n_skipped_in_a_row=progress.n_skipped_in_a_row + 1 if is_skipped else 0,
    )
    if not is_finite:
        return progress
    recent = progress.recent
    return replace(
        progress,
        sums_since_log=progress.sums_since_log + sums,
        recent=recent if recipe.skip_spikes is None else recent.add(sums.loss, gradient_norm),
    )


def _update_weights(run: TrainingRun, gradient_norm: float, rate: float, step: int) -> None:
    """Move the weights by the gradients of a step, and prepare the model for the next one."""
    recipe, weights = run.recipe, run.weights
    weights.clip_gradients(gradient_norm, recipe.max_grad_norm)
    run.optimizer.step(rate)
    weights.step_transforms(rate / recipe.learning_rate)
    weights.update_transforms(step + 1, recipe.steps)
    weights.copy_to_model()


def _check_final_loss(run: TrainingRun, micro_batches: MicroBatches, learning_rate: float) -> None:
    """Check that the loss on the last step's batch is finite after the last update.

    An update that ruins the weights shows in the loss of the next step, which the last lacks.

    Raises:
        FloatingPointError: the loss is not finite.
    """
    world = run.world
    more = [] if run.sharded is None else run.sharded.missing_batches(micro_batches)
    with averaged_weights(run):
        sums = _evaluate_sums(run.model, micro_batches, world.device)
        _evaluate_sums(run.model, more, world.device)
    if any(world.all_gather_object(not sums.is_finite)):
        raise FloatingPointError(
            f"step {run.recipe.steps}: after this last step the loss is not finite "
            f"({sums.loss}): the weights are of no use, and are not saved; a lower rate "
            f"(now {learning_rate:.3g}) or a longer warm-up may help"
        )


def _accumulate_gradients(
    run: TrainingRun, micro_batches: MicroBatches, step: int
) -> tuple[LossSums, int, float]:
    """Sum the gradients of a step over micro-batches and processes; return sums, tokens, norm."""
    world, weights = run.world, run.weights
    own_counts = _count_all_targets(run.target_counter, micro_batches)
    totals = world.sum_by_name(
        {"tokens": sum(count_tokens(batch) for batch in micro_batches)}
        | {f"targets.{name}": n for name, n in own_counts.items()}
    )
    tokens = int(totals.pop("tokens"))
    counts = {name.removeprefix("targets."): int(n) for name, n in totals.items()}

    uncounted = [] if run.sharded is None else run.sharded.missing_batches(micro_batches)
    weights.begin_step()
    batch_terms: list[Mapping[str, Term]] = []
    for i, batch in enumerate(micro_batches):
        torch.manual_seed(derive_seed(run.recipe.seed, step, i, world.rank))
        terms = run.forward(run.memories.attach(i, batch.to(world.device))).terms
        # Each term is a mean over the targets of the whole step, however the step is split.
        losses = [t.weight * (t.total / max(counts[name], 1)) for name, t in terms.items()]
        loss = torch.stack(losses).sum() if losses else torch.zeros(())
        _backward(run, loss)
        batch_terms.append(terms)
    assert own_counts == sum_target_counts(batch_terms, own_counts), "a head counted other targets"
    for batch in uncounted:
        terms = run.forward(batch.to(world.device)).terms
        zero = sum((0.0 * term.total for term in terms.values()), torch.zeros(()))
        _backward(run, zero)
    _reduce_gradients(run)
    weights.backward_through_transforms()

    values = read_scalars(sum_terms(batch_terms) | {"norm": weights.gradient_norm()})
    norm = values.pop("norm")
    return loss_sums(world.sum_by_name(values), counts, batch_terms), tokens, norm


def _backward(run: TrainingRun, loss: Tensor) -> None:
    if run.sharded is not None:
        loss = run.sharded.reaching_all_layers(loss)
    if loss.requires_grad:
        loss.backward()


def _reduce_gradients(run: TrainingRun) -> None:
    """Sum the gradients of all processes, and agree on which weights have one."""
    world, weights, sharded = run.world, run.weights, run.sharded
    if world.size == 1:
        weights.finish_backward(weights.has_gradient)
        return
    # Of a divided model, gradients are summed already, and zero where no process has one.
    own = weights.has_gradient if sharded is None else weights.has_nonzero_gradient
    has_gradient = torch.tensor(own, dtype=torch.float32, device=world.device)
    world.all_reduce_sum(has_gradient)
    weights.finish_backward([n > 0 for n in has_gradient.tolist()])
    if sharded is None:
        world.all_reduce_sum(weights.flat_gradient)


def _count_all_targets(model: CountsTargets, batches: Iterable[Batch]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for batch in batches:
        for name, n in model.count_targets(batch).items():
            counts[name] = counts.get(name, 0) + n
    return counts


def _as_target_counter(model: Any) -> CountsTargets:
    return model


def derive_seed(*numbers: int) -> int:
    """Hash numbers, such as seed and step, to a seed that is the same on every machine."""
    data = struct.pack(f"<{len(numbers)}q", *numbers)
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def count_tokens(batch: Batch) -> int:
    """Count the tokens of a batch without padding, on both sides of an encoder-decoder."""
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
    """Sum the losses of a model on batches; see `evaluate_batches`."""
    training = model.training
    model.eval()
    sums, memories = LossSums(), MicroBatchMemories(memory_length)
    try:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            for batch in batches:
                counts = _count_all_targets(_as_target_counter(model), [batch])
                terms = model(memories.attach(0, batch.to(device))).terms
                sums += loss_sums(read_scalars(sum_terms([terms])), counts, [terms])
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
    """Evaluate a model on batches: the loss, and each term's loss, accuracy and number of targets.

    On streams, hidden states of the `memory_length` preceding tokens are kept (Transformer-XL,
    LSTMs). With a `component` of a mixture, its name is appended to those of the terms.

    Evaluation is deterministic: sampling (ELECTRA's generator) uses a fixed seed. The model's
    training mode is restored.

    Raises:
        FloatingPointError: a loss is not finite.
    """
    sums = _evaluate_sums(model, batches, device, memory_length)
    if not sums.is_finite:
        losses = ", ".join(f"{n} {x}" for n, x in sums.mean_losses.items() if not math.isfinite(x))
        raise FloatingPointError(
            f"the loss on held-out text is not finite ({losses}): the weights are of no use; a "
            "lower rate or a longer warm-up may help"
        )
    result = {} if component else {"loss": sums.loss}
    for name, mean in sums.mean_losses.items():
        column = f"{name}_{component}" if component else name
        result[f"{column}_loss"] = mean
        if name in sums.accuracy:
            result[f"{column}_accuracy"] = sums.accuracy[name]
        result[f"{column}_asked"] = sums.n_targets[name]
    return result


def estimate_steps(
    run: TrainingRun,
    minutes: int | float,
    *,
    spent_seconds: int | float = 0,
    max_trial_steps: int = 12,
    max_time_fraction: float = 0.1,
) -> int:
    """Estimate the number of steps that fit into `minutes`, by timing some and undoing them.

    The run is restored bit for bit. A run that is given by minutes therefore equals one that is
    given by the returned number of steps; write that into the saved recipe before the first step.
    The trial's time counts as spent.

    Args:
        run: a run that has taken no step.
        minutes: duration of the whole run.
        spent_seconds: seconds that have passed already.
        max_trial_steps: maximum number of timed steps.
        max_time_fraction: fraction of the time after which the trial ends, once it has three steps.
    """
    watch = Stopwatch()
    progress, weights = run.progress, {k: t.clone() for k, t in trained_tensors(run).items()}
    optimizer_state = {k: t.clone() for k, t in run.optimizer.state_tensors().items()}
    transform_state = {k: t.clone() for k, t in run.weights.transform_state().items()}
    recipe = run.recipe
    run.recipe = replace(recipe, steps=max(recipe.steps, progress.step + max_trial_steps))
    measured: list[float] = []
    for report in train(run):
        measured.append(report.seconds)
        spent_here = run.world.broadcast_object(
            watch.seconds
        )  # all processes end after the same step
        enough = len(measured) > N_UNTIMED_STEPS and spent_here > max_time_fraction * minutes * 60
        if len(measured) == max_trial_steps or enough or report.was_skipped:
            break
    run.recipe, run.progress = recipe, progress
    run.memories.reset()
    run.weights.load_transform_state(transform_state)
    load_state(run, weights, optimizer_state)
    if run.sharded is not None:
        run.sharded.restore_whole_model()
    total = spent_seconds + watch.seconds
    return int(run.world.broadcast_object(steps_within(minutes, measured, spent_seconds=total)))


@contextmanager
def averaged_weights(run: TrainingRun) -> Generator[None, None, None]:
    """Replace the weights by their average, if the optimizer keeps one."""
    averages = (
        run.optimizer.averaged_weights if isinstance(run.optimizer, AveragingOptimizer) else {}
    )
    current = {name: run.weights.masters[name].clone() for name in averages}
    try:
        _set_weights(run, averages)
        yield
    finally:
        _set_weights(run, current)


def _set_weights(run: TrainingRun, tensors: Mapping[str, Tensor]) -> None:
    if tensors:
        with torch.no_grad():
            for name, tensor in tensors.items():
                run.weights.masters[name].copy_(tensor)
        run.weights.copy_to_model()


def report_dev_loss(run: TrainingRun, loss: float) -> None:
    """Pass the held-out loss to an optimizer that averages weights."""
    if isinstance(run.optimizer, AveragingOptimizer):
        run.optimizer.update_dev_loss(loss)


def finish_run(run: TrainingRun) -> nn.Module:
    """Finish a run, in all its processes: return its model in float32, ready to evaluate and save.

    Its weights are averaged, if the optimizer keeps an average.
    """
    if isinstance(run.optimizer, AveragingOptimizer):
        _set_weights(run, run.optimizer.averaged_weights)
    run.weights.restore_model()
    if run.recomputation is not None:
        run.recomputation.remove()
    if run.sharded is None:
        return run.model.eval()
    run.sharded.restore_whole_model()
    return run.sharded.whole_model.eval()
