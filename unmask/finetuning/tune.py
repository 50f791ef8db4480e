"""Fine-tuning: labelled files and a model -> a model that answers, its scores, and its folder."""

import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from unmask.adapters.folder import open_any
from unmask.adapters.mix import MixModule
from unmask.channels import Stream
from unmask.checkpoints import folder as checkpoints
from unmask.checkpoints.huggingface import Opened, labels_named
from unmask.checkpoints.written import FILES
from unmask.config import from_dict, to_dict
from unmask.files import read_object, sweep, write_whole
from unmask.finetuning import plan, results
from unmask.finetuning.ask import Ask, in_words
from unmask.finetuning.export import put
from unmask.finetuning.in_domain import FOLDER as IN_DOMAIN
from unmask.finetuning.job import (
    Job,
    begun_from,
    is_finished,
    of_cuts,
    prepare,
    read_in_parts,
)
from unmask.finetuning.kinds.catalogue import TASK_KINDS
from unmask.finetuning.kinds.generate import in_languages
from unmask.finetuning.kinds.kind import Signing
from unmask.finetuning.methods import is_small, word_of
from unmask.finetuning.numbers import plain
from unmask.finetuning.plan import Tuning
from unmask.finetuning.predict import FACTS, Said, say
from unmask.finetuning.results import Scored
from unmask.finetuning.score import score, settled
from unmask.finetuning.search import TRIALS, searched, trials
from unmask.finetuning.search import check as check_search
from unmask.finetuning.search import plain as plain_trial
from unmask.finetuning.single import State, train_one
from unmask.finetuning.task_metrics import tasks_of
from unmask.finetuning.tuned import Tuned
from unmask.heads.model import Model
from unmask.tasks.task import Task, Truth
from unmask.training import parallel
from unmask.training.aside import for_the_report
from unmask.training.stopping import interruptible

RESULTS = "results.json"


@runtime_checkable
class Loaded(Protocol):
    """What `unmask.load` and `finetune` return: a model that is open."""

    @property
    def opened(self) -> Opened:
        """The model with its tokenizer."""
        ...


@interruptible()
def run(
    tuning: Tuning,
    *,
    opened: Opened | None = None,
    out: Path | None = None,
    resume: bool = False,
    device: str = "auto",
    threads: int | None = None,
    adapt: Callable[[Job], Path] | None = None,
    terminal: Stream | None = sys.stderr,
) -> Tuned:
    """Fine-tune as a recipe says; `unmask.finetune` is the same with its fields as arguments.

    Args:
        tuning: the recipe.
        opened: the model, in place of what `tuning.base` names.
        out: a folder for the run. None: nothing is written.
        resume: go on with the run in `out`.
        device: "auto", "cpu", "cuda", ...
        threads: None: as many as there are cores.
        adapt: what trains the model of a job on the text of its task first, or goes on with that,
            and returns the model's folder; for a recipe that says so (`Tuning.in_domain`).
        terminal: where progress is shown. None: nowhere.
    """
    _check(tuning, opened, out, resume)
    with parallel.join(device) as world, _place(out) as folder:
        if world.size > 1:
            raise ValueError(f"fine-tuning runs in one process, not in {world.size}")
        n = parallel.use_threads(threads)
        parallel.reuse_memory()
        job = prepare(tuning, opened, folder, world, n, terminal)
        job = replace(job, kept=out is not None, peak=_peak(job))
        folder.mkdir(parents=True, exist_ok=True)
        with checkpoints.claim(folder):
            sweep(folder)
            for note in job.notes:
                job.say(note)
            for warning in job.warnings:
                job.warn(warning)
            if tuning.search:
                job = searched(job, tuning, _attempt)
            if is_finished(job):
                return _finished(job)
            if tuning.in_domain is not None:
                assert adapt is not None, "nothing was given that goes on with pretraining"
                job = _adapted(job, adapt)
            return _all(job)


def _check(tuning: Tuning, opened: Opened | None, out: Path | None, resume: bool) -> None:
    """Find what can be found before anything is read."""
    if resume and out is None:
        raise ValueError("a run can only be resumed in its folder: name it with out")
    if tuning.average and out is None:
        raise ValueError("average is of a run's checkpoints: name a folder for it with out")
    if opened is not None and out is not None and is_small(tuning.tune):
        raise ValueError(
            f"what {word_of(tuning.tune)} tunes is saved without the model below it: name that "
            "model's folder rather than give it open, or save the run with `save`"
        )
    if out is not None:
        _check_place(out, resume)
    if tuning.search and not (out is not None and (out / FACTS).is_file()):
        check_search(tuning)  # a run that has begun has searched, and knows its rate and batch


def _adapted(job: Job, adapt: Callable[[Job], Path]) -> Job:
    """Return the job that begins with the model that has read the text of the task.

    Where that cannot even begin, nothing is left: the same folder will do for another try.
    """
    try:
        return begun_from(job, adapt(job))
    except ValueError:
        if not (job.folder / IN_DOMAIN).exists():
            shutil.rmtree(job.folder)
        raise


def _peak(job: Job) -> float:
    """Measure the machine, unless the job is over sooner than that."""
    if job.steps * len(job.runs) < 200:
        return 0.0
    precision = parallel.pick_precision(job.tuning.precision, job.world.device)
    return parallel.matmul_peak(parallel.dtype_of(precision), job.world.device)


def _check_place(out: Path, resume: bool) -> None:
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out}: is a file; a run needs a folder")
    there = out.is_dir() and any(not p.name.startswith(".") for p in out.iterdir())
    if there and not any((out / name).is_file() for name in (FACTS, TRIALS)):
        raise ValueError(f"{out}: holds files, but not a run; name a new folder")
    if there and not resume:
        raise ValueError(f"{out}: holds a run already; resume it, or name a new folder")


@contextmanager
def _place(out: Path | None) -> Generator[Path, None, None]:
    """Give the folder of the run; where none is asked for, one that vanishes."""
    if out is not None:
        yield out
        return
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def _attempt(job: Job) -> float | None:
    """Make the first run of a job and keep nothing; return its best score, None if it diverged."""
    with tempfile.TemporaryDirectory() as name:
        try:
            _, state = train_one(
                replace(job, folder=Path(name), kept=False, terminal=None), *job.runs[0]
            )
        except FloatingPointError:
            return None
    return float(state.scores[job.task.metric])


def _all(job: Job) -> Tuned:
    """Make all runs that are left, and write what came out."""
    job.say(job.decided)
    scored: list[Scored] = []
    best: tuple[Scored, Model] | None = None
    for arm, seed in job.runs:
        if len(job.runs) > 1:
            job.say(f"{arm}, seed {seed}")
        model, state = train_one(job, arm, seed)
        one = _scored(job, arm, seed, model, state)
        scored.append(one)
        first = arm == job.runs[0][0]
        if first and (best is None or job.task.better(one.dev, best[0].dev)):
            best = one, model
    assert best is not None
    opened = _opened(job, best[1])
    asked = settled(plain(job.asked), opened.model, job.data.dev, job.dev)
    said = say(asked, opened.model, job.dev)
    report: dict[str, Any] | None = None
    with for_the_report(RESULTS):
        report = results.comparison(
            scored, asked, Path(job.tuning.train).name, job.data.train, job.data.dev, said
        )
        if job.tuning.search:
            report["search"] = [plain_trial(one) for one in trials(job.folder)]
    n_short = sum(question.shortened for question in job.dev)
    warnings = of_cuts(job.asked, said.n_cut, n_short, len(job.data.dev), "dev")
    found = [
        *read_in_parts(job.task, said.n_cut, len(job.data.dev), "dev"),
        *_signatures(asked, job, opened.model, said),
        *(one.told() for one in opened.model.adapters.values() if isinstance(one, MixModule)),
    ]
    for warning in warnings:
        job.warn(warning)
    for note in found:
        job.say(note)
    tuned = Tuned(
        opened=opened, task=asked.task, tuning=job.tuning, scored=tuple(scored), best=best[0],
        notes=(*job.notes, *job.warnings, *warnings, *found),
        folder=job.folder if job.kept else None,
    )  # fmt: skip
    if job.kept:
        _write(job, tuned, report, (*job.warnings, *warnings))
    return tuned


def _signatures(asked: Ask, job: Job, model: Model, said: Said) -> list[str]:
    """Say how exactly figures were computed that others compare, and what they are."""
    kind = TASK_KINDS[job.task.does]
    if not isinstance(kind, Signing):
        return []
    found: list[str] = []
    for which, items, questions in (
        ("dev", job.data.dev, job.dev),
        ("test", job.data.test, job.test),
    ):
        scores = said.scores if which == "dev" or not items else say(asked, model, questions).scores
        for name, task in tasks_of(job.task).items():
            some = [
                (cast("Truth", item.truth), asked.truth(item, s))
                for item, s in zip(items, scores, strict=bool(items))
                if item.part == name
            ]
            lines = kind.signatures(task, [truth for truth, _ in some], [text for _, text in some])
            found += [f"{which} {name} {line}".replace("  ", " ") for line in lines]
    return found


def _scored(job: Job, arm: str, seed: int, model: Model, state: State) -> Scored:
    """Score the best state of a run as it will be used, in float32."""
    asked = settled(plain(job.asked), model, job.data.dev, job.dev)
    dev = score(asked, model, job.data.dev, job.dev)
    test = score(asked, model, job.data.test, job.test) if job.test else {}
    return Scored(arm=arm, seed=seed, step=state.step, dev=dev, test=test, tuned=job.n_tuned)


def _opened(job: Job, model: Model) -> Opened:
    # The names of what a head scores, which other libraries count; spans have none.
    named = any(map(labels_named, model.specs.values()))
    return Opened(
        card=replace(job.begun.card, heads=model.specs),
        model=model,
        tokenizer=in_languages(job.begun.tokenizer, job.task),
        labels=job.task.labels or (job.task.columns.label,) if named else (),
        missing=(),
        extra=(),
    )


def _write(
    job: Job, tuned: Tuned, report: Mapping[str, Any] | None, warnings: Sequence[str]
) -> None:
    """Write the model into the run's folder, and say at the very end that the run is finished."""
    folder = job.folder
    base = job.tuning.base if is_small(job.tuning.tune) else None
    files = put(folder, tuned.opened, tuned.task, [*_figures(tuned), *warnings], base)
    with for_the_report(RESULTS):
        if report is not None:
            write_whole(folder / RESULTS, results.as_json(report))
        if job.place(tuned.best.arm, tuned.best.seed) != folder:
            for name in checkpoints.LOGS:
                source = job.place(tuned.best.arm, tuned.best.seed) / name
                write_whole(folder / name, source.read_bytes())
    said = {
        "finished": True,
        FILES: files,
        "task": to_dict(tuned.task),
        "scored": to_dict(tuned.scored),
        "best": to_dict(tuned.best),
        "notes": list(tuned.notes),
    }
    write_whole(folder / FACTS, results.as_json(dict(job.facts) | said))
    _tidy(job)


def _tidy(job: Job) -> None:
    """Remove the checkpoints of a run that is finished."""
    for arm, seed in job.runs:
        shutil.rmtree(job.place(arm, seed) / "checkpoints", ignore_errors=True)


def _figures(tuned: Tuned) -> list[str]:
    """Say in a few lines how the model was made, and how good it is."""
    t = tuned.tuning
    size = plan.batch_of(t) + ("" if t.batch is None else " texts")
    return [
        f"fine-tuned on {Path(t.train).name} for {t.epochs:g} epochs of {size} a step, "
        f"at rate {t.rate:g}",
        *tuned.summary(),
    ]


def _finished(job: Job) -> Tuned:
    """Return what a finished run left in its folder."""
    _tidy(job)
    facts = read_object(job.folder / FACTS)
    opened = open_any(job.folder)
    if in_words(opened.card):
        opened = replace(opened, labels=())
    return Tuned(
        opened=replace(opened, model=opened.model.to(job.world.device)),
        task=from_dict(Task, facts["task"], "task"),
        tuning=job.tuning,
        scored=tuple(from_dict(Scored, one, "scored") for one in facts["scored"]),
        best=from_dict(Scored, facts["best"], "best"),
        notes=tuple(facts["notes"]),
        folder=job.folder,
    )
