"""A pretraining run from its recipe to a folder that others can open.

Killed anywhere, it goes on by `resume`.
"""

import errno
import logging
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import torch

from unmask.batch import Batch
from unmask.box import BOX
from unmask.channels import Stream, tell
from unmask.checkpoints.folder import Checkpoint, claim, rewind
from unmask.checkpoints.generator import fill_generator
from unmask.checkpoints.huggingface import (
    HUB,
    Opened,
    as_large,
    check_fit,
    locate,
    longest_text,
    open_folder,
)
from unmask.checkpoints.subwords import fill_subwords
from unmask.checkpoints.written import FILES, written
from unmask.config import check, from_dict, read_toml, to_dict, unknown
from unmask.evaluation.baselines import bigrams
from unmask.files import move_into, sweep
from unmask.heads.labels import Labels
from unmask.heads.model import HeadSpec, Model, asked_by
from unmask.hiding.needs import check_special
from unmask.model.architecture import Architecture
from unmask.model.attention import copy_to_wide
from unmask.model.beside import look_beside
from unmask.model.canine import CanineArchitecture
from unmask.model.names import AnyArchitecture
from unmask.model.positions import WITH_LENGTH
from unmask.model.transformer import EncoderDecoder
from unmask.published.card import Published
from unmask.published.catalogue import published
from unmask.published.fit import fit, offered
from unmask.published.own import worded
from unmask.serving import word_vectors
from unmask.serving.asking import samples
from unmask.serving.earlier import Earlier, earlier, same
from unmask.serving.folders import environment, write_facts, write_model
from unmask.serving.pipeline import Pipeline
from unmask.serving.prepare import OPTIONS, check_options, check_sources, find_tokenizer, tokenize
from unmask.serving.questions import check_questions
from unmask.serving.record import BASELINES, FACTS, SAMPLES, read_samples
from unmask.serving.report import save_baselines, save_samples, write_report
from unmask.serving.suited import in_shares, said_keys, shortened, suited, told_schedule
from unmask.text.corpus import Separator
from unmask.text.lines import EncodingErrors
from unmask.text.records import listed
from unmask.tokens.intact import Intact
from unmask.tokens.manifest import hash_of
from unmask.tokens.shards import Shards, tidy
from unmask.tokens.tokenizer import Tokenizer
from unmask.tokens.vocabulary import CodePointsWithSubwords, Frame, Special, SpelledWords
from unmask.tokens.workers import check_workers
from unmask.training import loop, parallel
from unmask.training import recipe as recipes
from unmask.training.aside import for_the_report
from unmask.training.data import (
    Data,
    Share,
    check_languages,
    check_sampling,
    check_unit,
    lay_out,
    prepared,
)
from unmask.training.layers import falling, layers_that_speak
from unmask.training.log import Log
from unmask.training.loop import Run
from unmask.training.parallel import World
from unmask.training.recipe import Recipe
from unmask.training.stopping import interruptible
from unmask.vectors.learning import METHODS

_log = logging.getLogger(__name__)

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
AT_ONCE = 16_384
"""Tokens that go through the model together unless the recipe says otherwise."""


def card_recipe(name: str, steps: int | None = None) -> Recipe:
    """Return the recipe that a card's paper gives, or that a small card was measured with.

    Its schedule is in shares of the steps, so that a shorter run has the same. Where it is not
    known of how many steps, it is as it was published, or fits `steps`.
    """
    recipe = _as_published(name)
    if _says_length(name):
        return in_shares(recipe)
    return recipe if steps is None or steps < 1 else shortened(recipe, steps)


def _says_length(name: str) -> bool:
    return "steps" in published(name).training


def _as_published(name: str) -> Recipe:
    card = published(name)
    recipe = Recipe(
        model=card.name,
        length=card.length,
        batch_tokens=card.batch_tokens,
        micro_tokens=max(AT_ONCE, card.length) if card.batch_tokens > AT_ONCE else None,
        rate=card.rate,
        objective=card.objective,
    )
    return from_dict(Recipe, recipes.merge(to_dict(recipe), card.training))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run is told beside its recipe.

    Nothing of it changes what is learned, but for how many steps.
    """

    out: Path
    minutes: int | float | None = None
    """Until its number of steps is measured."""
    earlier: Earlier | None = None
    """The run in the folder, to go on with."""
    workers: int = 0
    device: str = "auto"
    threads: int | None = None
    tensorboard: bool = False
    terminal: Stream | None = None

    def say(self, text: str) -> None:
        """Show a line."""
        if self.terminal is not None:
            tell(text, self.terminal)


@interruptible()
def pretrain(
    model: str | Path | Recipe | None = None,
    *,
    data: str | Path | Sequence[str | Path] = (),
    out: str | Path,
    steps: int | None = None,
    tokens: int | None = None,
    minutes: int | float | None = None,
    begin: str | Path | None = None,
    tokenizer: str | Path | None = None,
    vocab_size: int | None = None,
    length: int | None = None,
    document: Separator | None = None,
    text: str | None = None,
    encoding_errors: EncodingErrors | None = None,
    sampling: int | float | None = None,
    seed: int | None = None,
    objective: str | None = None,
    checkpoint_every: int | None = None,
    changes: Sequence[str | Mapping[str, Any]] = (),
    resume: bool = False,
    workers: int = 0,
    device: str = "auto",
    threads: int | None = None,
    tensorboard: bool = False,
    quiet: bool = False,
) -> Pipeline:
    """Train a model from scratch, or on from given weights, on your text.

    What is None is the recipe's.

    Args:
        model: a card's name, a recipe file (`.toml`), or a Recipe; to resume a run it may be left
            out.
        data: text files, folders, globs, `hf:owner/name`, or one folder that `prepare` made.
        out: the run's folder; it must be new, unless `resume`.
        steps: of the optimizer. A run that is resumed may have more than before, if its schedule's
            rates for the steps that were taken do not depend on their number (Constant; WSD before
            its decay).
        tokens: instead of steps, how many to read, padding included.
        minutes: instead of steps, how long to train; measured on this machine and fixed before the
            first step.
        begin: a folder or `hf:owner/name` whose weights and tokenizer the run begins with.
        tokenizer: a folder with a tokenizer to use; by default one is learned from the data.
        vocab_size: of a tokenizer that is learned.
        length: tokens of a row, at most.
        document: what a document of plain text is: parted by blank lines, a line, or a file.
        text: the column that holds the text of a record.
        encoding_errors: with "replace", what is not UTF-8 becomes U+FFFD.
        sampling: exponent of each source's share of the tokens; 1: as they are. A source is a
            folder, a pattern or `hf:owner/name`, or the files named of one folder (where all are in
            one folder, each).
        seed: of everything that is drawn.
        objective: what is asked, by name: "mlm", "clm", "rtd:generator_size=0.25" (see
            `unmask.published.objectives`). None: what the card's paper asks.
        checkpoint_every: steps.
        changes: `key=value`, as for `--set`, or plain data: any other key of the recipe.
        resume: go on with the run in `out`, from its newest whole checkpoint, or from the start if
            it has none.
        workers: processes that prepare the data and make batches; what is learned does not depend
            on it.
        device: "auto", "cpu", "cuda", ...
        threads: that compute. None: all cores; of a resumed run, as many as it had.
        tensorboard: also write TensorBoard's event files.
        quiet: show nothing on the terminal.

    Raises:
        FileNotFoundError: a file of data or a folder is not there.
        ValueError: a name, key or value is wrong, the folder holds a run already, or the text
            cannot be read. Where that is found before the first step of a new run, nothing of it is
            left in `out`.
        FloatingPointError: the loss stays non-finite.
        KeyboardInterrupt: someone stopped the run; it can be resumed, and says so.
    """
    check_numbers(steps=steps, tokens=tokens, minutes=minutes, workers=workers, threads=threads)
    check(float | None, sampling, "sampling")
    out = Path(out)
    was = earlier(out, resume=resume)
    sources = (data,) if isinstance(data, str | Path) else tuple(data)
    told: dict[str, Any] = {
        "data": [str(source) for source in sources] or None,
        "steps": steps,
        "begin": None if begin is None else str(begin),
        "tokenizer": None if tokenizer is None else str(tokenizer),
        "vocab_size": vocab_size,
        "length": length,
        "document": document,
        "text": text,
        "encoding_errors": encoding_errors,
        "sampling": None if sampling is None else float(sampling),
        "seed": seed,
        "objective": objective,
        "checkpoint_every": checkpoint_every,
    }
    changed = [*changes, {key: value for key, value in told.items() if value is not None}]
    recipe = _recipe(model, changed, was, out)
    said = [change for change in changes if isinstance(change, str)]
    of_words = word_vectors.method_of(published(recipe.model)) is not None
    if of_words:
        long = any(number is not None for number in (steps, tokens, minutes))
        long = long or any(one.partition("=")[0].strip() == "steps" for one in said)
        word_vectors.check_recipe(recipe, card_recipe(recipe.model), long=long)
    _check_network(recipe, said)
    if tokens is not None:
        recipe = _lasting(recipe, math.ceil(tokens / recipe.batch_tokens))
    recipe, notes = suited_to(recipe, said_keys(changed))
    if was is not None:
        counted = steps is not None or tokens is not None
        counts = counted or (minutes is None and was.minutes is None)
        recipe = same(recipe, was, steps=counts and not of_words)
        minutes = None if counted or was.measured else minutes or was.minutes
        if counted:
            was = replace(was, minutes=None)
        threads = threads or was.threads
    plan = Plan(
        out=out,
        minutes=minutes,
        earlier=was,
        workers=workers,
        device=device,
        threads=threads,
        tensorboard=tensorboard,
        terminal=None if quiet else sys.stderr,
    )
    if os.environ.get("RANK", "0") == "0":  # of several processes the first one speaks
        for note in notes:
            plan.say(note)
    try:
        with parallel.join(device) as world:
            return _pretrain(
                recipe, plan if world.rank == 0 else replace(plan, terminal=None), world
            )
    except KeyboardInterrupt as stop:
        said = stop.args or ("interrupted",)
        raise KeyboardInterrupt(f"{out}: {said[0]}; go on with --resume") from None


def check_numbers(
    *,
    steps: int | None = None,
    tokens: int | None = None,
    minutes: int | float | None = None,
    workers: int = 0,
    threads: int | None = None,
) -> None:
    """Check what the recipe does not hold.

    Raises:
        ValueError: a number is not allowed, or several say how long to train.
    """
    spans = {"steps": steps, "tokens": tokens, "minutes": minutes}
    for name, value in spans.items():
        check(float | None if name == "minutes" else int | None, value, name)
    check(int, workers, "workers")
    check(int | None, threads, "threads")
    given = [name for name, value in spans.items() if value is not None]
    if len(given) > 1:
        raise ValueError(f"give one of steps, tokens and minutes, got {' and '.join(given)}")
    if minutes is not None and not 0 < minutes < math.inf:
        raise ValueError(f"minutes must be above 0, got {minutes}")
    if tokens is not None and tokens < 1:
        raise ValueError(f"tokens must be at least 1, got {tokens}")
    check_workers(workers)
    parallel.check_threads(threads)


def _recipe(
    model: str | Path | Recipe | None,
    changes: Sequence[str | Mapping[str, Any]],
    was: Earlier | None,
    out: Path,
) -> Recipe:
    """Return the recipe that is asked for."""
    if isinstance(model, Recipe):
        return recipes.changed(model, changes)
    if model is not None:
        if Path(model).is_dir() or str(model).startswith(HUB) or str(model) in BOX:
            raise ValueError(
                f"{model}: is no card; to go on from its weights, name its card, and it by --from"
            )
        base = partial(card_recipe, steps=_steps_said(model, changes))
        return recipes.read(model, base=base, changes=changes)
    if was is None:
        raise ValueError(
            f"{out}: holds no run to go on with; to begin one, name a card or a recipe file"
        )
    return recipes.changed(was.recipe, changes)


def _lasting(recipe: Recipe, steps: int) -> Recipe:
    """Return a recipe of so many steps; a schedule that is the card's fits them."""
    if recipe.schedule == card_recipe(recipe.model).schedule:
        return shortened(recipe, steps)
    return replace(recipe, steps=steps)


def _told_schedule(recipe: Recipe) -> str | None:
    name = recipe.model
    return told_schedule(_as_published(name), recipe, length=_says_length(name))


def suited_to(recipe: Recipe, said: frozenset[str]) -> tuple[Recipe, list[str]]:
    """Leave out what the card's own recipe has and another network or objective cannot do.

    Returns:
        The recipe, and a line for each key that was left out.

    Raises:
        ValueError: the network cannot be asked the objective.
    """
    own = published(recipe.model)
    asked = replace(own, architecture=_network(own.architecture, recipe.architecture))
    if recipe.objective is not None:
        asked = fit(asked, recipe.objective)
    return suited(recipe, card_recipe(recipe.model), (own, asked), said)


def _steps_said(model: str | Path, changes: Sequence[str | Mapping[str, Any]]) -> int | None:
    """Return the number of steps that changes, or else a recipe file, name."""
    said: dict[str, Any] = {}
    if str(model).endswith(".toml") and Path(model).is_file():
        said |= read_toml(Path(model))
    for change in changes:
        if not isinstance(change, str):
            said |= change
        elif change.partition("=")[0].strip() == "steps":
            said |= recipes.parse(change)
    steps = said.get("steps")
    return steps if type(steps) is int else None


@dataclass(frozen=True, kw_only=True)
class _Job:
    """A run, with what it is made from."""

    plan: Plan
    run: Run
    opened: Opened
    """The model in training, as its folder will hold it."""
    data: Data
    dev: Sequence[Batch]
    """Held-out batches."""
    dev_parts: Mapping[str, Sequence[Batch]]
    """Those of each named part of what is asked, by itself."""
    environment: Mapping[str, Any]

    def write_facts(self, files: Mapping[str, Any] | None = None) -> None:
        """Write unmask.json, with the number of steps that the run has; with files, as finished."""
        card, n = self.opened.card, self.opened.model.parameter_count()
        _write_facts(
            self.plan, self.run.recipe, card, self.environment, n,
            files=files, shares=self.data.shares,
        )  # fmt: skip


def _write_facts(
    plan: Plan,
    recipe: Recipe,
    card: Published,
    around: Mapping[str, Any],
    parameters: int = 0,
    *,
    steps: bool = True,
    files: Mapping[str, Any] | None = None,
    shares: Sequence[Share] = (),
) -> None:
    """Write unmask.json; with the number of steps only where that is known.

    With what is to be known of the files of its model, the run is finished.
    """
    plain = to_dict(recipe) | ({} if steps else {"steps": None})
    minutes = plan.minutes or (plan.earlier.minutes if plan.earlier else None)
    more: dict[str, Any] = {} if minutes is None else {"minutes": minutes}
    if files is not None:
        more[FILES] = files
    if shares:
        more["sources"] = {
            s.name: {"tokens": s.tokens, "share": s.share, "gets": s.gets} for s in shares
        }
    write_facts(
        plan.out, "pretrain", plain, card, parameters, around,
        finished=files is not None, more=more,
    )  # fmt: skip


def _pretrain(recipe: Recipe, plan: Plan, world: World) -> Pipeline:
    threads = parallel.use_threads(plan.threads)
    parallel.reuse_memory()
    card = changed(published(recipe.model), recipe)
    if word_vectors.method_of(card) is not None:
        return _learn_words(recipe, card, plan, world, threads)
    begun = _begin(recipe, card)
    if begun is not None:
        card = begun.card
        if begun.missing:
            plan.say(f"new, drawn at random: {listed(begun.missing)}")
    _length(recipe, card)
    _check_data(recipe, begun, plan)
    first, around = world.rank == 0, environment(str(world.device), threads)
    with _folder(plan, world):
        with _or_nothing(plan) if first else nullcontext():
            if first:
                sweep(plan.out)
                if plan.earlier is None:
                    _write_facts(plan, recipe, card, around, steps=plan.minutes is None)
                _shards(recipe, card, begun, plan)
            world.first(None)
            job = _start(recipe, card, begun, plan, world, around)
            checkpoint = _first_or_last(job)
        for line in rewind(plan.out, checkpoint) if first else ():
            plan.say(line)
        ended = _steps(job)
        if first and ended:
            loop.finish(job.run)
            _after(job)
        elif first:
            _report(plan.out)
    if not ended:
        raise KeyboardInterrupt(
            f"stopped after step {job.run.progress.step:,} of {job.run.recipe.steps:,}"
        )
    world.first(None)
    return Pipeline(replace(job.opened, model=job.opened.model.float().eval()))


def _learn_words(
    recipe: Recipe, card: Published, plan: Plan, world: World, threads: int
) -> Pipeline:
    """Learn word vectors: they have steps of their own, and no network."""
    if world.size > 1:
        raise ValueError("word vectors are learned by one process; it uses --threads")
    _check_data(recipe, None, plan)
    around = environment(str(world.device), threads)
    with _folder(plan, world):
        with _or_nothing(plan):
            sweep(plan.out)
            if plan.earlier is None:
                _write_facts(plan, recipe, card, around, steps=False)
            shards = _shards(recipe, card, None, plan)
            job = word_vectors.Job.start(recipe, card, shards, plan.out, threads)
            checkpoint, damaged = job.go_on(plan.out) if plan.earlier else (None, [])
            _write_facts(plan, job.recipe, card, around)
        for line in [*damaged, *rewind(plan.out, checkpoint)]:
            plan.say(line)
        last = None if checkpoint is None else checkpoint.progress
        if last is not None:
            plan.say(f"going on after step {last['step']:,} of {job.recipe.steps:,}")
        if not job.learn(plan.out, plan.terminal, last, tensorboard=plan.tensorboard):
            _report(plan.out)
            raise KeyboardInterrupt("stopped before the last step")
        opened = job.opened()
        job.keep_ngrams(plan.out)
        files = _keep(plan.out, opened, {"learned from": job.said})
        files |= job.files(plan.out)
        with for_the_report(SAMPLES):
            save_samples(plan.out, job.near())
        n = opened.model.parameter_count()
        _write_facts(plan, job.recipe, card, around, n, files=files)
        _report(plan.out)
    return Pipeline(replace(opened, model=opened.model.eval()))


def _check_data(recipe: Recipe, begun: Opened | None, plan: Plan) -> None:
    """Find what can be found without reading the text, before anything is written."""
    if not recipe.data:
        raise ValueError(
            "no data: name text files, folders or hf:owner/name with --data; only a run that goes "
            f"on needs none, and {plan.out} holds no run"
        )
    ready = prepared(recipe.data)
    check_sampling(recipe, ready)
    check_languages(recipe, _languages(recipe, begun), ready)
    if ready is not None:
        _check_prepared(recipe, ready, begun)
        return
    if (plan.out / "data" / "shards.json").is_file():
        return
    if recipe.tokenizer is not None:
        Tokenizer.load(Path(recipe.tokenizer))
    for source in recipe.data:
        if (Path(source) / "unfinished.json").is_file():
            Shards.open(Path(source))  # says that it is unfinished
    check_sources(recipe.data)


def _languages(recipe: Recipe, begun: Opened | None) -> Special | Frame:
    """Return what says which languages there are tokens for."""
    if recipe.tokenizer is not None:
        return Tokenizer.load(Path(recipe.tokenizer)).special
    if begun is not None and begun.tokenizer is not None:
        return begun.tokenizer.special
    return published(recipe.model).tokenizer.frame


def _check_prepared(recipe: Recipe, ready: Shards, begun: Opened | None) -> None:
    """Check that nothing else is asked for than what was prepared."""
    usual = Recipe(model=recipe.model)
    told = [name for name in OPTIONS if getattr(recipe, name) != getattr(usual, name)]
    check_options(Path(recipe.data[0]), ready.manifest, to_dict(recipe), told)
    if begun is not None and begun.tokenizer is not None:
        with tempfile.TemporaryDirectory() as folder:
            begun.tokenizer.save(Path(folder))
            if hash_of(Path(folder)) != ready.manifest.tokenizer:
                raise ValueError(
                    f"{recipe.data[0]}: was prepared with another tokenizer than that of "
                    f"{recipe.begin}; prepare it with --tokenizer {recipe.begin}"
                )


@contextmanager
def _folder(plan: Plan, world: World) -> Generator[None]:
    """Make the run's folder, which all processes then have, and keep others out of it."""
    if world.rank:
        world.first(None)
        yield
        return
    new = [folder for folder in (plan.out, *plan.out.parents) if not folder.exists()]
    plan.out.mkdir(parents=True, exist_ok=True)
    world.first(None)
    try:
        with claim(plan.out):
            yield
    finally:
        for folder in new:  # those that are empty still: nothing began
            with suppress(OSError):
                folder.rmdir()


@contextmanager
def _or_nothing(plan: Plan) -> Generator[None]:
    """Empty the folder of a new run that cannot begin: it can then be used again.

    But not where the disk is full, or much was tokenized: then the same run can go on.
    """
    try:
        yield
    except (ValueError, OSError) as error:
        data = plan.out / "data"
        much = (data / "unfinished.json").is_file() and any(data.glob("*.tokens"))
        full = isinstance(error, OSError) and error.errno in _FULL
        if plan.earlier is None and not (much or (full and (plan.out / FACTS).is_file())):
            for path in plan.out.iterdir():
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()
        raise


def _network(own: AnyArchitecture, told: Mapping[str, Any]) -> AnyArchitecture:
    """Return the network of a card with what is told of it."""
    if not told:
        return own
    plain = to_dict(own)
    return from_dict(type(own), recipes.merge(plain, _as_long(plain, told)), "architecture")


def _as_long(own: Mapping[str, Any], told: Mapping[str, Any]) -> Mapping[str, Any]:
    """Let another scheme of places be for texts as long as the network's own, unless told."""
    found: dict[str, Any] = {}
    for key, value in told.items():
        if key in ("encoder", "decoder", "source") and isinstance(value, Mapping):
            value = _as_long(own.get(key) or {}, value)
        if key == "position":
            value = _with_length(own.get(key) or {}, value)
        found[key] = value
    return found


def _with_length(own: Mapping[str, Any], told: Any) -> Any:
    new: Any = {"kind": told} if isinstance(told, str) else told
    if not isinstance(new, Mapping) or new.get("kind", own.get("kind")) == own.get("kind"):
        return told
    longer = "length" in own and new["kind"] in WITH_LENGTH and "length" not in new
    return {**new, "length": own["length"]} if longer else new


def _check_network(recipe: Recipe, changes: Sequence[str]) -> None:
    """Check that the network can be, and if not, say by which change.

    Raises:
        ValueError: it cannot be, with the `--set` that alone leads to the same, or with all of the
            network.
    """
    own = published(recipe.model).architecture
    try:
        _network(own, recipe.architecture)
    except ValueError as error:
        of_it = [c for c in changes if c.lstrip().startswith("architecture.")]
        alone = [c for c in of_it if _mistake(own, c) == str(error)]
        told = " ".join(f"--set {change}" for change in alone[-1:] or of_it)
        raise ValueError(f"{told}: {error}" if told else str(error)) from None


def _mistake(own: AnyArchitecture, change: str) -> str | None:
    """Say what is wrong with a change, if nothing else is changed."""
    try:
        _network(own, recipes.parse(change)["architecture"])
    except ValueError as error:
        return str(error)
    return None


def changed(card: Published, recipe: Recipe) -> Published:
    """Apply what a recipe says of the network and the objective to its card.

    Raises:
        ValueError: it names something that the architecture does not have, or its rows are not
            such that the objective can be asked of them.
    """
    card = replace(card, architecture=_network(card.architecture, recipe.architecture))
    if recipe.objective is not None:
        card = fit(card, recipe.objective)
    architecture, objective = card.architecture, card.objective
    if recipe.packing == "pack" and isinstance(architecture, CanineArchitecture):
        raise ValueError(
            f"packing: {card.name} reads blocks of characters, in rows of one text each; "
            "use 'bucket'"
        )
    check_unit(recipe, objective)
    heads_of = _offered(card, recipe.heads)
    heads = {n: s for n, s in heads_of.items() if asked_by(n, s) in objective.asks}
    if (rate := recipe.dropout) is not None:
        architecture = architecture.dropping(rate)
        heads = {
            n: replace(s, dropout=rate) if isinstance(s, Labels) else s for n, s in heads.items()
        }
    made = replace(card, architecture=architecture, objective=objective, heads=heads)
    return worded(made) if recipe.architecture else made


def _offered(card: Published, changes: Mapping[str, Any]) -> dict[str, HeadSpec]:
    """Return a card's heads, as the recipe has them, and those that any model can be asked by.

    Raises:
        ValueError: the recipe names a head that there is not, or what a head does not have.
    """
    found = offered(card)
    for name, difference in changes.items():
        if name not in found:
            raise ValueError(f"heads: {unknown(name, found)}")
        if not isinstance(difference, Mapping):
            raise ValueError(f"heads.{name}: must be a table, got {difference!r}")
        spec = found[name]
        plain = recipes.merge(to_dict(spec), difference)
        found[name] = from_dict(type(spec), plain, f"heads.{name}")
    return found


def _begin(recipe: Recipe, card: Published) -> Opened | None:
    """Open the weights that the run begins with, in the network that the recipe makes of theirs.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: they are of another family, have no tokenizer, or do not fit the network.
    """
    if recipe.begin is None:
        return None
    folder = locate(recipe.begin)
    opened = _grown(open_folder(folder, as_large(card.heads, folder), recipe.seed), card)
    filled = fill_generator(folder, opened.model) | fill_subwords(folder, opened.model)
    opened = replace(opened, missing=tuple(n for n in opened.missing if n not in filled))
    if opened.card.family != card.family:
        raise ValueError(
            f"{recipe.begin}: is a {opened.card.family} model, the recipe's is {card.family}"
        )
    if opened.tokenizer is not None:
        opened.tokenizer.check_reads(f"pretraining on from {recipe.begin}")
    if opened.tokenizer is None and recipe.tokenizer is None:
        raise ValueError(
            f"{recipe.begin}: has no tokenizer; name a folder that has one with --tokenizer"
        )
    if _lacks_subwords(opened.tokenizer, card):  # they are not published: new ones are learned
        opened = replace(opened, tokenizer=None)
    own = replace(card, architecture=opened.card.architecture, heads=opened.model.specs)
    own = changed(replace(own, pooled=opened.card.pooled), recipe)
    with torch.device("meta"):
        model = own.build()
    weights = opened.model.state_dict()
    wanted = {name: x.shape for name, x in model.state_dict().items()}
    if odd := [n for n in wanted.keys() | weights.keys() if wanted.get(n) != _shape(weights, n)]:
        had, asked = to_dict(opened.card.architecture), to_dict(own.architecture)
        other = [f"{n} {asked[n]} (it has {had.get(n)})" for n in asked if asked[n] != had.get(n)]
        raise ValueError(
            f"{recipe.begin}: its weights do not fit the recipe's architecture: "
            f"{', '.join(other) or min(odd)}; leave that out, or begin from scratch"
        )
    model.load_state_dict(weights, assign=True)
    learned = model.requires_grad_(True)
    if learned.pooler is not None:
        learned.pooler.requires_grad_(False)
    return replace(opened, card=own, model=learned)


def _lacks_subwords(tokenizer: Tokenizer | None, card: Published) -> bool:
    """Say whether a tokenizer knows none of the subwords or words that a card's loss is about."""
    wanted = isinstance(card.tokenizer.vocabulary, CodePointsWithSubwords | SpelledWords)
    return wanted and tokenizer is not None and tokenizer.special.subwords is None


def _grown(opened: Opened, card: Published) -> Opened:
    """Turn a model of a family that the card grows from into one of its own."""
    grow, wanted = card.grows.get(opened.card.family), card.architecture
    if grow is None or not isinstance(wanted, Architecture):
        return opened
    model = grow(opened.model, wanted)
    own = replace(card, architecture=model.architecture, heads=model.specs, pooled=model.pooled)
    return replace(opened, card=own, model=model)


def _shape(weights: Mapping[str, torch.Tensor], name: str) -> torch.Size | None:
    return weights[name].shape if name in weights else None


def _shards(recipe: Recipe, card: Published, begun: Opened | None, plan: Plan) -> Shards:
    """Open the run's tokens, or make them, if the tokenizer and the length fit the model."""
    ready = prepared(recipe.data)
    if ready is not None:
        return ready
    folder = plan.out / "data"
    if (folder / "shards.json").is_file():
        tidy(folder)
        return Shards.open(folder)
    if begun is not None and begun.tokenizer is not None and recipe.tokenizer is None:
        tokenizer = begun.tokenizer
        if recipe.vocab_size not in (None, tokenizer.size):
            plan.say(
                f"vocab_size = {recipe.vocab_size} is not used: {recipe.begin} has a tokenizer"
            )
    else:
        tokenizer = find_tokenizer(recipe, folder, plan.terminal, card)
    if begun is not None:
        check_fit(tokenizer, begun.model.vocab_size, str(recipe.begin))
    card.objective.budget(_length(recipe, card), tokenizer.special)
    workers = max(1, plan.workers)
    return tokenize(recipe, folder, tokenizer, workers=workers, terminal=plan.terminal)


def _start(
    recipe: Recipe,
    card: Published,
    begun: Opened | None,
    plan: Plan,
    world: World,
    around: Mapping[str, Any],
) -> _Job:
    """Build the model and lay out its data."""
    shards = _shards(recipe, card, begun, replace(plan, terminal=None))
    if begun is not None and (new := _other_heads(card, begun, shards.tokenizer)):
        plan.say(f"new, drawn at random: {listed(new)}, of other words than {recipe.begin} knows")
    model = network(card, recipe, shards.tokenizer, begun)
    _freeze(model, recipe.frozen)
    card = replace(card, architecture=model.architecture, heads=model.specs)
    objective = card.objective
    assert not isinstance(objective, METHODS)  # they are learned elsewhere
    where = recipe.tokenizer or recipe.begin or (recipe.data[0] if recipe.data else recipe.model)
    check_special(objective, shards.tokenizer.special, where)
    data = lay_out(
        shards,
        recipe,
        objective,
        _length(recipe, card),
        workers=plan.workers,
        rank=world.rank,
        world=world.size,
    )
    if data.shares:
        plan.say(f"sampling = {recipe.sampling:g}: {_said(data.shares)}")
    if (note := check_questions(data, model, begun=begun is not None)) is not None:
        plan.say(note)
    if world.rank == 0 and (note := data.check_batch()) is not None:
        _log.warning("%s", note)
    return _Job(
        plan=plan,
        run=loop.start(recipe, model, data.batches, world=world, rates=_rates(recipe, model)),
        opened=Opened(
            card=card, model=model, tokenizer=shards.tokenizer, labels=(), missing=(), extra=()
        ),
        data=data,
        dev=data.dev_batches(),
        dev_parts=data.dev_parts(),
        environment=around,
    )


def _rates(recipe: Recipe, model: Model) -> dict[str, float] | None:
    """Return the factor of each parameter's rate; None where all are 1."""
    if recipe.layer_decay == 1:
        return None
    return falling(layers_that_speak(model), recipe.layer_decay)


def _said(shares: Sequence[Share]) -> str:
    """Say what share of the tokens each source has and gets, the first twenty."""
    each = [f"{s.name} has {s.share:.1%} of the tokens and gets {s.gets:.1%}" for s in shares[:20]]
    return "; ".join([*each, f"and {len(shares) - 20} more"] if len(shares) > 20 else each)


def network(
    card: Published, recipe: Recipe, tokenizer: Tokenizer, begun: Opened | None = None
) -> Model:
    """Return the network that a run begins with, for the ids of its tokenizer.

    Raises:
        ValueError: the tokenizer has more ids than the given weights have vectors; or this network
            has no heads that can look beside, or cannot read a memory.
    """
    own = card.with_vocabulary(tokenizer.special)
    if begun is None:
        model = own.build().initialize(recipe.seed)
        if recipe.memory:
            model.check_recalls()
        if recipe.look_beside:
            look_beside(model.stacks, recipe.look_beside)
        return model
    check_fit(tokenizer, begun.model.vocab_size, str(recipe.begin))
    model = begun.model
    if recipe.memory:
        model.check_recalls()
    other = {name: spec for name, spec in own.heads.items() if spec != model.specs[name]}
    for name, spec in other.items():
        model.add(name, spec)
    if other:
        new = tuple(f"heads.{name}." for name in other)
        model.initialize(recipe.seed, [n for n in model.weights() if not n.startswith(new)])
    return model.train()


def _other_heads(card: Published, begun: Opened, tokenizer: Tokenizer) -> list[str]:
    """Name the heads whose weights the run has, but of another vocabulary than that they ask."""
    wanted = card.with_vocabulary(tokenizer.special).heads
    heads = [n for n, spec in wanted.items() if spec != begun.model.specs[n]]
    return [n for n in heads if not any(x.startswith(f"heads.{n}.") for x in begun.missing)]


def _freeze(model: Model, patterns: Sequence[str]) -> None:
    """Keep some parameters as they are.

    Raises:
        ValueError: there are none of such a name, or nothing is left to learn.
    """
    named = dict(model.named_parameters())
    for pattern in patterns:
        frozen = [name for name in named if fnmatchcase(name, pattern)]
        if not frozen:
            raise ValueError(
                f"frozen: no parameter is called {pattern!r} (they are {', '.join(named)})"
            )
        for name in frozen:
            named[name].requires_grad_(False)
    if not any(p.requires_grad for p in named.values()):
        raise ValueError(f"frozen: {', '.join(patterns)} leaves nothing to be learned")


def _length(recipe: Recipe, card: Published) -> int:
    length = card.length if recipe.length is None else recipe.length
    longest = longest_text(card)
    if longest is not None and length > longest:
        raise ValueError(f"length must be at most the model's {longest} positions, got {length}")
    return length


def _first_or_last(job: _Job) -> Checkpoint | None:
    """Go back to the newest whole checkpoint, if there is one; else fix what the run will be."""
    plan, run, first = job.plan, job.run, job.run.world.rank == 0
    checkpoint, damaged = None, list[str]()
    if plan.earlier is not None:
        checkpoint, damaged = loop.newest(plan.out, run.world)
    for line in damaged:
        plan.say(line)
    if checkpoint is not None:
        loop.restore(run, checkpoint)
        assert plan.earlier is not None
        if first and run.recipe.steps != plan.earlier.recipe.steps:
            job.write_facts()  # it is the longer run from here on
        plan.say(f"going on after step {run.progress.step:,} of {run.recipe.steps:,}")
        return checkpoint
    if plan.minutes is not None:
        plan.say(f"measuring how many steps fit into {plan.minutes:g} minutes")
        run.recipe = _lasting(run.recipe, loop.measure(run, plan.minutes))
        run.batches = replace(job.data, recipe=run.recipe).batches
    if (note := _told_schedule(run.recipe)) is not None:
        plan.say(note)
    if first:
        job.write_facts()
        _before(job)
    return None


def _before(job: _Job) -> None:
    """Keep what the untrained model says, and what simple tables reach on the held-out text."""
    if not job.dev:
        return
    with for_the_report(BASELINES):
        _save_baselines(job)
    with for_the_report(SAMPLES):
        save_samples(job.plan.out, samples(job.opened, job.data))


def _save_baselines(job: _Job) -> None:
    opened, specs = job.opened, job.opened.model.specs
    spec = specs.get("language") or specs.get("generator")
    if spec is not None and not isinstance(opened.model.backbone, EncoderDecoder):
        table = bigrams(job.data.shards, job.data.train_spans)
        name = f"{asked_by('language', spec)}_accuracy"
        save_baselines(job.plan.out, {name: table.accuracy(job.dev)})


def _flops(job: _Job) -> float:
    """Count FLOPs of a training step a token, from the places asked in the held-out batches."""
    tokens = sum(map(loop.count_tokens, job.dev))
    asked = sum(map(_count_asked, job.dev))
    return job.opened.model.flops(job.data.length, asked / tokens if tokens else 1.0)


def _count_asked(batch: Batch) -> int:
    if batch.asked is not None:
        return batch.asked.numel()
    return 0 if batch.targets is None else batch.targets.numel()


def _steps(job: _Job) -> bool:
    """Take the steps that are left, with evaluations and checkpoints; False if someone stops it."""
    recipe, world = job.run.recipe, job.run.world
    peak = parallel.matmul_peak(parallel.dtype_of(recipe.precision), world.device) * world.size
    log = None
    if world.rank == 0:
        log = Log(
            job.plan.out,
            flops=_flops(job),
            peak=peak,
            memory=lambda: parallel.memory_bytes(world.device),
            terminal=job.plan.terminal,
            tensorboard=job.plan.tensorboard,
        )
    shards = job.data.shards
    with (
        log or nullcontext(),
        loop.stopping() as stop,
        Intact(shards) if world.rank == 0 else nullcontext() as intact,
    ):
        for report in loop.train(job.run):
            last = report.step == recipe.steps
            if log is not None:
                log(report)
            if job.dev and (last or report.step % recipe.evaluate_every == 0):
                memory = job.run.recipe.memory
                with loop.averaged(job.run):
                    result = loop.evaluate_on(job.run.model, job.dev, world.device, memory=memory)
                    for part, batches in job.dev_parts.items():
                        result |= loop.evaluate_on(job.run.model, batches, world.device, part=part)
                loop.hear(job.run, result["loss"])
                if log is not None:
                    log.evaluation(report.step, result)
            stopped = stop.agreed(world)
            if last or stopped or report.step % recipe.checkpoint_every == 0:
                if intact is not None:
                    intact.wait()
                loop.save(job.run, job.plan.out)
            if stopped and not last:
                return False
    return True


def _after(job: _Job) -> None:
    """Write the trained model, and say at the very end that the run is finished."""
    out, progress = job.plan.out, job.run.progress
    if job.run.recipe.begin is None:  # no objective has wide tokens, so nothing was learned of them
        copy_to_wide(job.opened.model)
    figures = {"trained on": f"{progress.tokens:,} tokens in {progress.step:,} steps"}
    files = _keep(out, job.opened, figures)
    if job.dev:
        before = None
        with for_the_report(f"{SAMPLES} before training"):
            before = read_samples(out / SAMPLES)
        with for_the_report(SAMPLES):
            save_samples(out, samples(job.opened, job.data, before or ()))
    job.write_facts(files)
    _report(out)


def _report(out: Path) -> None:
    with for_the_report("report.html"):
        write_report(out)


def _keep(out: Path, opened: Opened, figures: Mapping[str, Any]) -> dict[str, Any]:
    """Write a trained model into its run's folder, whole; say what is to be known of its files."""
    beside = out / ".final.part"
    if beside.exists():
        shutil.rmtree(beside)
    write_model(beside, opened, figures)
    files = written(beside)
    move_into(beside, out, last="config.json")
    return files
