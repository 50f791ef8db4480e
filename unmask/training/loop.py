"""The loop: `train(run)` takes a step between two yields; its caller logs, evaluates and saves."""

import hashlib
import math
import platform
import struct
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from unmask.batch import Batch, Memory, Visibility
from unmask.checkpoints import folder as checkpoints
from unmask.checkpoints.folder import Checkpoint
from unmask.checkpoints.tensors import digest_of
from unmask.config import from_dict, to_dict
from unmask.heads.prediction import Prediction, Term
from unmask.hiding.loader import Cursor, Loader
from unmask.training import optimize, parallel
from unmask.training.log import Report, Sums
from unmask.training.optimize import Optimizer, Weights
from unmask.training.parallel import World
from unmask.training.recipe import Recipe
from unmask.training.schedule import DROPPED, steps_for
from unmask.training.stopping import Stop as Stop
from unmask.training.stopping import stopping as stopping

_FROZEN = "frozen"
"""In a checkpoint's progress: the digest of the weights that are not trained, if there are any."""

Micro = Sequence[Batch]
"""What goes through the model in one step, some texts at a time."""
Batches = Callable[[Any], Iterator[tuple[Micro, Any]]]
"""From a place in the data (None: its beginning): for each step, the micro-batches of this process
and the place after it. A place is plain data, since it is written as JSON."""


@runtime_checkable
class Counting(Protocol):
    """A model that knows, before it runs, how many places it will be asked."""

    def count(self, batch: Batch) -> Mapping[str, int]:
        """Count the places that each term asks."""
        ...


@runtime_checkable
class Forward(Counting, Protocol):
    """What answers in place of a model in training; see `unmask.adapters.consistency`."""

    def __call__(self, batch: Batch) -> Prediction:
        """Answer what the batch asks, at as many places as were counted."""
        ...


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a run is."""

    step: int = 0
    tokens: int = 0
    cursor: Any = None
    """The place in the data of the next step."""
    skipped: int = 0
    in_a_row: int = 0
    """Skipped steps since the last one that was not."""
    since: Sums = field(default_factory=Sums)
    """Of the steps since the last logged one."""


@dataclass
class Run:
    """Everything that changes while training, and what it is made by."""

    recipe: Recipe
    model: nn.Module
    forward: Callable[[Batch], Prediction]
    """The model, or what answers in its place, compiled if the recipe says so."""
    counting: Counting
    """The same, uncompiled."""
    weights: Weights
    optimizer: Optimizer
    batches: Batches
    world: World
    progress: Progress = field(default_factory=Progress)
    moving: bool = False
    """In the middle of changing weights: what there is now is no step's result."""
    memories: "Memories" = field(init=False)
    """Of the streams that this process reads."""

    def __post_init__(self) -> None:
        self.memories = Memories(self.recipe.memory)


class Memories:
    """A memory for each micro-batch of a step, which the same of the next step goes on with."""

    def __init__(self, length: int) -> None:
        self.length = length
        """Places of each; 0: there are none."""
        self._each: dict[int, Memory] = {}

    def behind(self, i: int, batch: Batch) -> Batch:
        """Give micro-batch i what stood before its rows."""
        if not self.length or batch.goes_on is None:
            return batch
        known = self._each.get(i)
        states = known.states if known is not None else []
        if not batch.goes_on or (states and len(states[0]) != len(batch.inputs)):
            known = None
        self._each[i] = known or Memory(self.length)
        return replace(batch, memory=self._each[i])

    def forget(self) -> None:
        """Begin anew."""
        self._each = {}

    def tensors(self) -> dict[str, Tensor]:
        """Return all that is remembered, by micro-batch and layer."""
        return {
            f"{i}.{layer}": states
            for i, memory in self._each.items()
            for layer, states in enumerate(memory.states)
        }

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Remember what `tensors` returned."""
        self.forget()
        for name, states in sorted(tensors.items(), key=lambda item: _numbers(item[0])):
            i, _ = _numbers(name)
            self._each.setdefault(i, Memory(self.length)).states.append(states)


def _numbers(name: str) -> tuple[int, int]:
    i, layer = name.split(".")
    return int(i), int(layer)


def start(
    recipe: Recipe,
    model: nn.Module,
    batches: Batches,
    *,
    world: World | None = None,
    rates: Mapping[str, float] | None = None,
    forward: Forward | None = None,
) -> Run:
    """Begin a run with an initialized model; `restore` goes on with one.

    Moves the model to the device of `world` and its parameters to the recipe's precision.

    Args:
        recipe: all that the run depends on.
        model: takes a batch, returns a Prediction, and counts what a batch asks.
        batches: the data; see Batches.
        world: the processes that share the run.
        rates: factors of the learning rate by parameter name.
        forward: what answers in place of the model, with its weights.
    """
    world = world or World()
    model.to(world.device)
    precision = parallel.pick_precision(recipe.precision, world.device)
    weights = Weights(model, parallel.dtype_of(precision))
    asked = model if forward is None else forward
    return Run(
        recipe=replace(recipe, precision=precision),
        model=model,
        forward=torch.compile(asked, dynamic=True) if recipe.compile else asked,
        counting=_counting(asked),
        weights=weights,
        optimizer=optimize.build(recipe.optimizer, model, weights, rates=rates),
        batches=batches,
        world=world,
    )


def reading(loader: Loader) -> Batches:
    """Take a run's data from a loader."""

    def since(cursor: Any) -> Iterator[tuple[Micro, Any]]:
        begin = loader.cursor if cursor is None else from_dict(Cursor, cursor)
        for micro, after in replace(loader, cursor=begin):
            yield micro, to_dict(after)

    return since


def train(run: Run) -> Iterator[Report]:
    """Train to the recipe's last step from wherever the run is, which can be saved at every yield.

    Raises:
        FloatingPointError: the recipe's `max_skipped` steps in a row had no finite loss and
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
        sums, tokens, norm = _gradient(run, micro, step)
        rate = recipe.rate_at(step)
        if recipe.jitter:
            rate *= tokens / recipe.batch_tokens
        moved = sums.finite and math.isfinite(norm)
        if not moved:
            run.memories.forget()  # of numbers that may not be numbers
        run.moving = True
        if moved:
            run.weights.clip(norm, recipe.clip)
            run.optimizer.step(rate)
            run.weights.refresh()
        p = run.progress
        progress = Progress(
            step=step,
            tokens=p.tokens + tokens,
            cursor=cursor,
            skipped=p.skipped + (not moved),
            in_a_row=0 if moved else p.in_a_row + 1,
            since=p.since + sums if moved else p.since,
        )
        if step == recipe.steps:
            _check_outputs(run, micro, rate)
        logged = step % recipe.log_every == 0 or step == recipe.steps
        run.progress = replace(progress, since=Sums()) if logged else progress
        run.moving = False
        yield Report(
            step=step,
            steps=recipe.steps,
            tokens=progress.tokens,
            new_tokens=tokens,
            sums=sums,
            since=progress.since if logged else None,
            rate=rate,
            gradient_norm=norm,
            seconds=time.perf_counter() - begin,
            skipped=progress.skipped,
            skipped_now=not moved,
        )
        if progress.in_a_row >= recipe.max_skipped:
            raise FloatingPointError(
                f"step {step}: the loss or its gradient was not finite in {progress.in_a_row} "
                f"steps in a row (loss {sums.loss}, gradient norm {norm}); "
                f"a lower rate (now {rate:.3g}) or a longer warm-up may help"
            )


def _check_outputs(run: Run, micro: Micro, rate: float) -> None:
    """Ask the model after its last step what that step asked: its weights must say numbers.

    A step that ruins the weights shows in the loss of the next one, which the last does not have.

    Raises:
        FloatingPointError: the loss is not finite.
    """
    world = run.world
    with averaged(run):
        sums = _answered(run.model, micro, world.device)
    if any(world.tell(not sums.finite)):
        raise FloatingPointError(
            f"step {run.recipe.steps}: after this last step the loss is not finite ({sums.loss}): "
            f"the weights are of no use, and are not saved; a lower rate (now {rate:.3g}) or a "
            "longer warm-up may help"
        )


def _gradient(run: Run, micro: Micro, step: int) -> tuple[Sums, int, float]:
    """Add up one step's gradients over micro-batches and processes; return sums, tokens, norm."""
    world, weights = run.world, run.weights
    mine = _counts(run.counting, micro)
    asked = {f"asked.{name}": n for name, n in mine.items()}
    said = world.total({"tokens": sum(count_tokens(batch) for batch in micro)} | asked)
    tokens = int(said.pop("tokens"))
    counts = {name.removeprefix("asked."): int(n) for name, n in said.items()}

    weights.begin()
    answers: list[Mapping[str, Term]] = []
    for i, batch in enumerate(micro):
        torch.manual_seed(seed_of(run.recipe.seed, step, i, world.rank))
        terms = run.forward(run.memories.behind(i, batch.to(world.device))).terms
        # Each term is a mean over the places of the whole step: how the step is cut changes
        # nothing.
        losses = [t.weight * (t.total / max(counts[name], 1)) for name, t in terms.items()]
        loss = torch.stack(losses).sum() if losses else torch.zeros(())
        if loss.requires_grad:
            loss.backward()
        answers.append(terms)
    assert mine == _asked(answers, mine), "a head asked other places than it had counted"
    _share_gradients(world, weights)

    values = _read(_added(answers) | {"norm": weights.norm()})
    norm = values.pop("norm")
    return _sums(world.total(values), counts, answers), tokens, norm


def _share_gradients(world: World, weights: Weights) -> None:
    if world.size == 1:
        weights.settle(weights.reached)
        return
    reached = torch.tensor(weights.reached, dtype=torch.float32, device=world.device)
    world.add_up(reached)
    weights.settle([n > 0 for n in reached.tolist()])
    world.add_up(weights.gradient)


def _added(answers: Iterable[Mapping[str, Term]]) -> dict[str, Tensor]:
    """Sum what some batches answered, by term, on the device."""
    sums: dict[str, Tensor] = {}
    for terms in answers:
        for name, term in terms.items():
            found = {f"total.{name}": term.total}
            if term.right is not None:
                found[f"right.{name}"] = term.right
            for key, value in found.items():
                value = value.detach().double()
                sums[key] = sums[key] + value if key in sums else value
    return sums


def _asked(answers: Iterable[Mapping[str, Term]], names: Iterable[str]) -> dict[str, int]:
    asked = dict.fromkeys(names, 0)
    for terms in answers:
        for name, term in terms.items():
            asked[name] = asked.get(name, 0) + term.count
    return asked


def _sums(
    values: Mapping[str, float], counts: Mapping[str, int], answers: Iterable[Mapping[str, Term]]
) -> Sums:
    rights = {name: f"right.{name}" for name in counts}
    return Sums(
        {name: values.get(f"total.{name}", 0.0) for name in counts},
        counts,
        {name: int(values[key]) for name, key in rights.items() if key in values},
        {name: t.weight for terms in answers for name, t in terms.items() if t.weight != 1},
    )


def _counts(model: Counting, micro: Iterable[Batch]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for batch in micro:
        for name, n in model.count(batch).items():
            counts[name] = counts.get(name, 0) + n
    return counts


def _counting(model: Any) -> Counting:
    return model


def _read(tensors: Mapping[str, Tensor]) -> dict[str, float]:
    """Read numbers back from the device, all at once."""
    if not tensors:
        return {}
    values: list[float] = torch.stack([t.detach().double() for t in tensors.values()]).tolist()
    return dict(zip(tensors, values, strict=True))


def seed_of(*numbers: int) -> int:
    """Make a seed from a place in the run: the same on every machine, unlike its neighbors'."""
    data = struct.pack(f"<{len(numbers)}q", *numbers)
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def count_tokens(batch: Batch) -> int:
    """Count the tokens of a batch that are not padding, of both sides of an encoder-decoder."""
    n = _real(batch.inputs, batch.visibility, batch.last)
    return n if batch.source is None else n + _real(batch.source, batch.source_visibility, None)


def _real(ids: Tensor, visibility: Visibility, last: Tensor | None) -> int:
    if visibility.document is not None:
        return int((visibility.document >= 0).sum())
    return ids.numel() if last is None else int((last + 1).sum())


@torch.no_grad()
def _answered(
    model: nn.Module, batches: Iterable[Batch], device: torch.device | str, memory: int = 0
) -> Sums:
    """Ask a model what some batches ask; see `evaluate_on`."""
    training = model.training
    model.eval()
    sums, memories = Sums(), Memories(memory)
    try:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            for batch in batches:
                counts = _counts(_counting(model), [batch])
                terms = model(memories.behind(0, batch.to(device))).terms
                sums += _sums(_read(_added([terms])), counts, [terms])
    finally:
        model.train(training)
    return sums


def evaluate_on(
    model: nn.Module,
    batches: Iterable[Batch],
    device: torch.device | str = "cpu",
    *,
    memory: int = 0,
    part: str = "",
) -> dict[str, float]:
    """Ask a model what some batches ask: the loss, and each term's loss, accuracy and places asked.

    Of streams, `memory` places of what stood before are remembered. Where the batches are of one
    part of what is asked, terms are told under its name, too.

    The same batches give the same numbers: what is drawn (a generator's guesses) is drawn from one
    seed. The model is left in the mode in which it was.

    Raises:
        FloatingPointError: a loss is not finite.
    """
    sums = _answered(model, batches, device, memory)
    if not sums.finite:
        odd = ", ".join(f"{n} {x}" for n, x in sums.parts.items() if not math.isfinite(x))
        raise FloatingPointError(
            f"the loss on held-out text is not finite ({odd}): the weights are of no use; a lower "
            "rate or a longer warm-up may help"
        )
    result = {} if part else {"loss": sums.loss}
    for name, mean in sums.parts.items():
        told = f"{name}_{part}" if part else name
        result[f"{told}_loss"] = mean
        if name in sums.accuracy:
            result[f"{told}_accuracy"] = sums.accuracy[name]
        result[f"{told}_asked"] = sums.counts[name]
    return result


def measure(
    run: Run, minutes: int | float, *, spent: int | float = 0, trial: int = 12, most: float = 0.1
) -> int:
    """Say how many steps fit into `minutes` on this machine, by taking some and taking them back.

    The run is then what it was before, bit for bit, so a run that is given by minutes equals the
    one that is given by the number of steps that this returns: put it into the recipe and write
    that to the disk before the first step. The time of the trial counts as spent.

    Args:
        run: at its beginning.
        minutes: that the whole run may take.
        spent: seconds of them that have passed already.
        trial: steps to take, at most.
        most: share of the time after which the trial ends, if it has at least three steps by then.
    """
    begin = time.perf_counter()
    before, progress = run.progress, {k: t.clone() for k, t in model_tensors(run).items()}
    memory = {k: t.clone() for k, t in run.optimizer.tensors().items()}
    recipe = run.recipe
    run.recipe = replace(recipe, steps=max(recipe.steps, before.step + trial))
    measured: list[float] = []
    for report in train(run):
        measured.append(report.seconds)
        spent_here = run.world.first(time.perf_counter() - begin)  # all end after the same step
        enough = len(measured) > DROPPED and spent_here > most * minutes * 60
        if len(measured) == trial or enough or report.skipped_now:
            break
    run.recipe, run.progress = recipe, before
    run.memories.forget()
    _take(run, progress, memory)
    total = spent + time.perf_counter() - begin
    return int(run.world.first(steps_for(minutes, measured, spent=total)))


def model_tensors(run: Run) -> dict[str, Tensor]:
    """Return the float32 weights that are trained, by name, and the model's persistent buffers.

    Shared ones once.
    """
    state = run.model.state_dict()
    buffers = {name: state[name] for name, _ in run.model.named_buffers() if name in state}
    return {name: run.weights.masters[name] for name in run.weights.trained} | buffers


def _frozen(run: Run) -> dict[str, Tensor]:
    """Return the float32 weights that are not trained; a checkpoint has but their digest."""
    trained = set(run.weights.trained)
    return {name: x for name, x in run.weights.masters.items() if name not in trained}


def save(run: Run, folder: Path) -> Path | None:
    """Write a checkpoint of the run to its folder, if this is the first process.

    Log and evaluate before, not after: the checkpoint says how long the logs are.

    Raises:
        OSError: it cannot be written; earlier checkpoints are untouched.
        RuntimeError: the last step was broken off halfway, by a second Ctrl-C for instance.
    """
    if run.moving:
        raise RuntimeError(
            f"step {run.progress.step + 1} was broken off: its weights are not saved"
        )
    memories = run.world.gather(run.memories.tensors()) if run.recipe.memory else []
    if run.world.rank:
        return None
    tensors = {"model": model_tensors(run), "optimizer": run.optimizer.tensors()}
    if memories:
        tensors["memory"] = {
            f"{rank}.{name}": x for rank, each in enumerate(memories) for name, x in each.items()
        }
    said = progress_of(run)
    return checkpoints.save(folder, run.progress.step, tensors, said, keep=run.recipe.keep)


def progress_of(run: Run) -> dict[str, Any]:
    """Say how far a run is, and what a checkpoint of it depends on."""
    frozen = _frozen(run)
    kept = {_FROZEN: digest_of(frozen)} if frozen else {}
    return to_dict(run.progress) | _fixed(run.recipe) | kept | {"versions": versions()}


def newest(folder: Path, world: World) -> tuple[Checkpoint | None, list[str]]:
    """Find the newest whole checkpoint; the first process looks and tells the others.

    Returns it, and a line for each newer one that is damaged.
    """
    found, damaged = checkpoints.newest(folder) if world.rank == 0 else (None, [])
    path = world.first(None if found is None else str(found.path))
    if world.rank and path is not None:
        progress = checkpoints.read_progress(Path(path))
        found = Checkpoint(Path(path), progress["step"], progress)
    return found, damaged


def restore(run: Run, checkpoint: Checkpoint) -> None:
    """Bring a run that was just started to where it was when it was saved.

    Raises:
        ValueError: the checkpoint is not of this recipe: other weights, optimizer, seed or
            precision; or what is not trained has changed.
    """
    check_frozen(checkpoint, _frozen(run))
    said = dict(checkpoint.progress)
    for name, value in _fixed(run.recipe).items():
        if said[name] != value:
            raise ValueError(
                f"{checkpoint.path}: {name} was {said[name]!r}, the recipe says {value!r}"
            )
    fields = {name: said[name] for name in to_dict(Progress()) if name != "kind"}
    try:
        _take(run, checkpoint.tensors("model"), checkpoint.tensors("optimizer"))
    except ValueError as error:
        raise ValueError(f"{checkpoint.path}: {error}") from None
    if run.recipe.memory:
        own = f"{run.world.rank}."
        known = checkpoint.tensors("memory").items()
        run.memories.load(
            {
                name.removeprefix(own): x.to(run.world.device)
                for name, x in known
                if name.startswith(own)
            }
        )
    run.progress = from_dict(Progress, fields)


def check_frozen(checkpoint: Checkpoint, weights: Mapping[str, Tensor]) -> None:
    """Check that the weights that are not trained are those that a checkpoint was made with.

    Raises:
        ValueError: they are not.
    """
    was, now = checkpoint.progress.get(_FROZEN), digest_of(weights) if weights else None
    if was != now:
        raise ValueError(
            f"{checkpoint.path}: the weights that are not trained have changed since this run "
            f"began (SHA-256 {was or 'none'}, now {now or 'none'}): it can go on only with the "
            "model that it began with"
        )


def _fixed(recipe: Recipe) -> dict[str, Any]:
    """Say what of a recipe a checkpoint depends on, and shapes do not show."""
    return {
        "seed": recipe.seed,
        "precision": recipe.precision,
        "optimizer": type(recipe.optimizer).__name__,
    }


def _take(run: Run, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> None:
    mine = model_tensors(run)
    if odd := sorted(set(mine) ^ set(model)):
        raise ValueError(
            f"these weights are of another model: only one of the two has {', '.join(odd[:3])}"
            + (f" and {len(odd) - 3} more" if len(odd) > 3 else "")
        )
    for name, tensor in mine.items():
        if tensor.shape != model[name].shape:
            raise ValueError(
                f"these weights are of another model: {name} is {list(model[name].shape)}, "
                f"not {list(tensor.shape)}"
            )
    with torch.no_grad():
        for name, tensor in mine.items():
            tensor.copy_(model[name])
    run.weights.refresh()
    run.optimizer.load(optimizer)


@contextmanager
def averaged(run: Run) -> Generator[None, None, None]:
    """Let the mean of the weights stand in their place, where the optimizer keeps one."""
    means = run.optimizer.means if isinstance(run.optimizer, optimize.Averaging) else {}
    now = {name: run.weights.masters[name].clone() for name in means}
    try:
        _put(run, means)
        yield
    finally:
        _put(run, now)


def _put(run: Run, tensors: Mapping[str, Tensor]) -> None:
    if tensors:
        with torch.no_grad():
            for name, tensor in tensors.items():
                run.weights.masters[name].copy_(tensor)
        run.weights.refresh()


def hear(run: Run, loss: float) -> None:
    """Tell the optimizer the loss on held-out text, where it asks."""
    if isinstance(run.optimizer, optimize.Averaging):
        run.optimizer.hear(loss)


def finish(run: Run) -> nn.Module:
    """End a run: return its model in float32, ready to evaluate and save.

    Its weights are their mean, where the optimizer keeps one.
    """
    if isinstance(run.optimizer, optimize.Averaging):
        _put(run, run.optimizer.means)
    run.weights.release()
    return run.model.eval()


def versions() -> dict[str, str]:
    """Say what a run was made with."""
    found = {"python": platform.python_version()}
    for name in ("unmask", "torch", "numpy", "tokenizers", "safetensors"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # used from its source tree
            found[name] = "unknown"
    return found
