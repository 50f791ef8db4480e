"""Fine-tuning: labelled files and a model -> a model that labels, its scores, and its folder.

The loop is pretraining's (`unmask.training.loop`); what is here decides what it is fed, when the
model is scored, and which of its states is kept.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TextIO, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from unmask.adapters.folder import open_any
from unmask.checkpoints import folder as checkpoints
from unmask.checkpoints.folder import Checkpoint
from unmask.checkpoints.huggingface import Opened, labels_named
from unmask.config import from_dict, to_dict
from unmask.files import sweep, whole, write_whole
from unmask.finetuning import plan, results
from unmask.finetuning.ask import LABEL, Answer, in_words
from unmask.finetuning.auxiliary import without_language
from unmask.finetuning.batches import batches
from unmask.finetuning.export import put, write_model
from unmask.finetuning.job import Job, is_finished, of_cuts, prepare
from unmask.finetuning.methods import (
    Method,
    begin_method,
    is_small,
    method_of,
    rates,
    reading,
    schedule,
    thaw,
    word_of,
)
from unmask.finetuning.numbers import into_scale, out_of_scale, plain
from unmask.finetuning.plan import RANDOM, Tuning
from unmask.finetuning.predict import BATCH_TOKENS, FACTS, predict, say
from unmask.finetuning.results import Scored
from unmask.finetuning.score import score, settled
from unmask.finetuning.search import TRIALS, searched, trials
from unmask.finetuning.search import check as check_search
from unmask.finetuning.search import plain as plain_trial
from unmask.finetuning.tasks import Kind, Task
from unmask.finetuning.weights import ClassWeights
from unmask.heads.model import Model
from unmask.hiding.collate import size
from unmask.text.lines import EncodingErrors
from unmask.training import loop, parallel
from unmask.training.log import Log
from unmask.training.loop import Run
from unmask.training.recipe import AdamW, Precision, Recipe

_CHECKPOINTS = 5
"""So many checkpoints, at least, are written over a run."""


@runtime_checkable
class Loaded(Protocol):
    """What `unmask.load` and `finetune` return: a model that is open."""

    @property
    def opened(self) -> Opened:
        """The model with its tokenizer."""
        ...


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """A fine-tuned model, and how good it is."""

    opened: Opened
    task: Task
    tuning: Tuning
    """As it was asked for, and what was decided where nothing was."""
    scored: tuple[Scored, ...]
    """Every run."""
    best: Scored
    """The run whose model this is: the best on the dev file of those under study."""
    notes: tuple[str, ...]
    """What a user should be told."""
    folder: Path | None = None

    def predict(self, texts: Sequence[Any], *, batch_tokens: int = BATCH_TOKENS) -> list[Answer]:
        """Label texts, pairs of texts or the words of sentences; see `predict.predict`."""
        return predict(self.opened, texts, task=self.task, batch_tokens=batch_tokens)

    def save(self, folder: str | Path, *, format: Literal["huggingface"] = "huggingface") -> Path:
        """Write the model into a new folder, which transformers opens, whole or not at all.

        Raises:
            ValueError: there is no such format, or the folder exists and holds something.
        """
        if format != "huggingface":
            raise ValueError(f"format must be 'huggingface', got {format!r}")
        path = Path(folder)
        if path.exists() and not (path.is_dir() and not any(path.iterdir())):
            raise ValueError(f"{path}: is there already; name a new folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path) as beside:
            write_model(beside, self.opened, self.task, self.summary())
        return path

    def summary(self) -> list[str]:
        """Say for each arm how good it is: the mean over seeds, and their standard deviation."""
        return [
            _summary(arm, [s for s in self.scored if s.arm == arm], self.task.metric)
            for arm in dict.fromkeys(s.arm for s in self.scored)
        ]


def _summary(arm: str, scored: Sequence[Scored], metric: str) -> str:
    def over(values: Sequence[float]) -> str:
        spread = f" ± {np.std(values, ddof=1):.4f}" if len(values) > 1 else ""
        return f"{np.mean(values):.4f}{spread}"

    parts = [f"dev {over([s.dev[metric] for s in scored])}"]
    if all(s.test for s in scored):
        parts.append(f"test {over([s.test[metric] for s in scored])}")
    seeds = f" ({len(scored)} seeds)" if len(scored) > 1 else ""
    return f"{arm}: {metric} {', '.join(parts)}{seeds}"


def finetune(
    base: str | Path | Opened | Loaded,
    *,
    task: Kind,
    train: str | Path,
    dev: str | Path | None = None,
    test: str | Path | None = None,
    out: str | Path | None = None,
    text: str | Sequence[str] = (),
    label: str | None = None,
    choices: str | Sequence[str] = (),
    labels: Sequence[str] = (),
    rows: int | None = None,
    columns: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    encoding_errors: EncodingErrors = "strict",
    initialize: Literal["pretrained", "random"] = "pretrained",
    baseline: bool = False,
    tokenizer: str | Path | None = None,
    tune: str | Method = "full",
    metric: str | None = None,
    epochs: float | None = None,
    batch: int | None = None,
    rate: float | None = None,
    warmup: float = 0.1,
    weight_decay: float = 0.01,
    class_weights: ClassWeights | None = None,
    auxiliary: float = 0.0,
    dropout: float | None = None,
    length: int | None = None,
    name: str | None = None,
    evaluate_every: int | None = None,
    patience: int | None = None,
    seed: int = 0,
    seeds: int = 1,
    search: int = 0,
    precision: Precision = "auto",
    device: str = "auto",
    resume: bool = False,
    terminal: TextIO | None = sys.stderr,
) -> Tuned:
    """Fine-tune a model on a labelled file. What is left open is decided; see `plan.Tuning`.

    Args:
        base: a run folder, a folder in the Hugging Face layout, `hf:owner/name`, a model that is
            open, or a name of the catalogue (its weights are then drawn at random).
        task: one of `unmask.finetuning.tasks.KINDS`: classify, pairs, regress, tag, choose, ...
        train: a .tsv, .csv, .jsonl or .parquet file; to tag also .conllu and .conll.
        dev: by which the best state is chosen. None: a tenth of the training file.
        test: scored once, at the end.
        out: a folder for the run. None: nothing is written.
        text: the column of text; of pairs, two columns.
        label: the column of labels, numbers or tags.
        choices: the columns of the options to choose from.
        labels: all labels, in their order. None: those of the training file.
        rows: learn from so many rows of the training file.
        columns: names of all columns, for files without a header.
        options: what else the kind of task lets one choose; see `unmask.finetuning.kinds`.
        encoding_errors: what becomes of bytes that are no UTF-8: an error, or U+FFFD.
        initialize: "random" draws the weights of `base` anew.
        baseline: also tune a randomly initialized network, and compare.
        tokenizer: a folder with a tokenizer, for a name of the catalogue.
        tune: what is tuned: "full", "frozen", "lora", "lora:rank=4", `LoRA(rank=4)`, ...; see
            `unmask.finetuning.methods`.
        metric: by which the best state is chosen; see `unmask.finetuning.metrics`.
        epochs: passes over the training file.
        batch: texts a step.
        rate: peak learning rate.
        warmup: share of the steps in which the rate rises to its peak; then it falls to zero.
        weight_decay: of matrices, a step at rate 1.
        class_weights: how much each label counts while it is learned; "balanced": rare ones more.
        auxiliary: weight of a language model's loss beside the task's, for decoders.
        dropout: in place of the model's own.
        length: tokens that are read of a text at most.
        name: what an encoder-decoder reads before a text, for instance "sst2".
        evaluate_every: steps. None: each epoch, or 1,000 if that has more.
        patience: a run ends after so many evaluations that were not better than the best one.
        seed: of the head's weights, the order of the data, and dropout.
        seeds: so many runs, of consecutive seeds; the best model is kept, and all scores are.
        search: so many rates and batch sizes are tried first, where these are open.
        precision: of the model's weights while training.
        device: "auto", "cpu", "cuda", ...
        resume: go on with the run in `out`.
        terminal: where progress is shown. None: nowhere.

    Raises:
        FileNotFoundError: a file or model is missing.
        ValueError: a file, a column or an option is not what it should be, or `out` holds a run
            already.
        KeyboardInterrupt: someone stopped the run; if it has a folder, it can be resumed.
    """
    loaded = base.opened if isinstance(base, Loaded) else base
    opened = loaded if isinstance(loaded, Opened) else None
    tuning = Tuning(
        base=opened.card.name if opened is not None else str(base),
        task=task, train=str(train), dev=_name(dev), test=_name(test),
        text=(text,) if isinstance(text, str) else tuple(text), label=label,
        choices=(choices,) if isinstance(choices, str) else tuple(choices),
        labels=tuple(labels), rows=rows, columns=tuple(columns), options=options or {},
        encoding_errors=encoding_errors,
        initialize=initialize, baseline=baseline, tokenizer=_name(tokenizer),
        tune=method_of(tune), metric=metric, epochs=epochs,
        batch=batch, rate=rate, warmup=warmup, weight_decay=weight_decay,
        class_weights=class_weights, auxiliary=float(auxiliary), dropout=dropout,
        length=length, name=name, evaluate_every=evaluate_every, patience=patience,
        seed=seed, seeds=seeds, search=search, precision=precision,
    )  # fmt: skip
    folder = None if out is None else Path(out)
    return run(tuning, opened=opened, out=folder, resume=resume, device=device, terminal=terminal)


def _name(path: str | Path | None) -> str | None:
    return None if path is None else str(path)


def run(
    tuning: Tuning,
    *,
    opened: Opened | None = None,
    out: Path | None = None,
    resume: bool = False,
    device: str = "auto",
    threads: int | None = None,
    terminal: TextIO | None = sys.stderr,
) -> Tuned:
    """Fine-tune as a recipe says; `finetune` is the same with its fields as arguments.

    Args:
        tuning: the recipe.
        opened: the model, in place of what `tuning.base` names.
        out: a folder for the run. None: nothing is written.
        resume: go on with the run in `out`.
        device: "auto", "cpu", "cuda", ...
        threads: None: as many as there are cores.
        terminal: where progress is shown. None: nowhere.
    """
    if resume and out is None:
        raise ValueError("a run can only be resumed in its folder: name it with out")
    if opened is not None and out is not None and is_small(tuning.tune):
        raise ValueError(
            f"what {word_of(tuning.tune)} tunes is saved without the model below it: name that "
            "model's folder rather than give it open, or save the run with `save`"
        )
    if tuning.search:
        check_search(tuning)
    if out is not None:
        _check_place(out, resume)
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
            if tuning.search:
                job = searched(job, tuning, _attempt)
            return _finished(job) if is_finished(job) else _all(job)


def _peak(job: Job) -> float:
    """Measure the machine, unless the job is over sooner than that."""
    if plan.steps(job.tuning, job.n_units) * len(job.runs) < 200:
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
            _, state = _one(
                replace(job, folder=Path(name), kept=False, terminal=None), *job.runs[0]
            )
        except FloatingPointError:
            return None
    return float(state.scores[job.task.metric])


@dataclass(frozen=True, kw_only=True)
class _State:
    """The best state of a run so far."""

    step: int
    scores: Mapping[str, float]
    tensors: Mapping[str, Tensor]
    """Of what is tuned."""
    worse: int = 0
    """Evaluations since then."""


def _all(job: Job) -> Tuned:
    """Make all runs that are left, and write what came out."""
    for note in job.notes:
        job.say(note)
    scored: list[Scored] = []
    best: tuple[Scored, Model] | None = None
    for arm, seed in job.runs:
        if len(job.runs) > 1:
            job.say(f"{arm}, seed {seed}")
        model, state = _one(job, arm, seed)
        one = _scored(job, arm, seed, model, state)
        scored.append(one)
        first = arm == job.runs[0][0]
        if first and (best is None or job.task.better(one.dev, best[0].dev)):
            best = one, model
    assert best is not None
    opened = _opened(job, best[1])
    asked = settled(plain(job.asked), opened.model, job.data.dev, job.dev)
    said = say(asked, opened.model, job.dev)
    report = results.comparison(
        scored, asked, Path(job.tuning.train).name, job.data.train, job.data.dev, said
    )
    if job.tuning.search:
        report["search"] = [plain_trial(one) for one in trials(job.folder)]
    notes = [*job.notes, *of_cuts(job.task, said.n_cut, len(job.data.dev), "dev")]
    tuned = Tuned(
        opened=opened, task=asked.task, tuning=job.tuning, scored=tuple(scored), best=best[0],
        notes=tuple(notes), folder=job.folder if job.kept else None,
    )  # fmt: skip
    if job.kept:
        _write(job, tuned, report)
    return tuned


def _one(job: Job, arm: str, seed: int) -> tuple[Model, _State]:
    """Make one run, or go on with it; return its model, in its best state and in float32."""
    folder = job.place(arm, seed)
    folder.mkdir(exist_ok=True)
    trained = arm != RANDOM
    model = job.begun.model(seed, trained=trained)
    asked = job.asked
    if trained and f"heads.{LABEL}.out.weight" in job.begun.tensors:
        into_scale(model, asked)
    begin_method(job.tuning.tune, model, seed, job.begun.tokenizer)
    checkpoint, damaged = checkpoints.newest(folder)
    for line in (*damaged, *checkpoints.rewind(folder, checkpoint)):
        job.say(line)
    if checkpoint is not None and checkpoint.progress["done"]:
        model.to(job.world.device)
        state = _best_of(checkpoint)
    else:
        state = _train(job, model, seed, folder, checkpoint)
    assert state is not None
    model.load_state_dict(dict(state.tensors), strict=False)
    model.eval()
    out_of_scale(model, asked)
    if job.tuning.auxiliary:
        without_language(model)
    return model, state


def _train(
    job: Job, model: Model, seed: int, folder: Path, checkpoint: Checkpoint | None
) -> _State:
    run = _start(job, model, seed)
    best = None
    if checkpoint is not None:
        loop.restore(run, checkpoint)
        best = _best_of(checkpoint)
        job.say(f"going on after step {run.progress.step:,}")
    best = _steps(job, run, folder, best)
    loop.finish(run)
    return best


def _start(job: Job, model: Model, seed: int) -> Run:
    t = job.tuning
    assert t.batch is not None
    assert t.rate is not None
    assert t.evaluate_every is not None
    assert t.micro_tokens is not None
    n = plan.steps(t, job.n_units)
    every = -(-max(t.evaluate_every, n // _CHECKPOINTS) // t.evaluate_every) * t.evaluate_every
    recipe = Recipe(
        model=job.begun.card.name,
        steps=n,
        optimizer=AdamW(betas=(0.9, 0.999), weight_decay=t.weight_decay),
        rate=t.rate,
        schedule=schedule(t.tune, t.warmup),
        clip=t.clip,
        precision=t.precision,
        seed=seed,
        log_every=t.log_every,
        evaluate_every=t.evaluate_every,
        checkpoint_every=every,
    )
    data = batches(job.examples, job.asked.special, t.batch, t.micro_tokens, seed)
    return loop.start(
        recipe, model, data, world=job.world, rates=rates(t.tune, model),
        forward=reading(t.tune, model),
    )  # fmt: skip


def _steps(job: Job, run: Run, folder: Path, best: _State | None) -> _State:
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
    assert best is not None
    if job.kept:
        _save(run, folder, best, done=True)
    return best


def _tired(tuning: Tuning, best: _State | None) -> bool:
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


def _evaluated(job: Job, run: Run, log: Log, best: _State | None) -> _State:
    """Score the model on the dev file, and keep it if it is the best so far."""
    step = run.progress.step
    scores = score(job.asked, _model(run), *job.watched)
    log.evaluation(step, scores)
    if best is not None and not job.task.better(scores, best.scores):
        return replace(best, worse=best.worse + 1)
    tensors = {name: x.detach().cpu().clone() for name, x in _tuned_tensors(run).items()}
    return _State(step=step, scores=scores, tensors=tensors)


def _tuned_tensors(run: Run) -> dict[str, Tensor]:
    """Return what is tuned, in float32."""
    return {name: run.weights.masters[name] for name in run.weights.trained}


def _save(run: Run, folder: Path, best: _State | None, *, done: bool = False) -> None:
    """Write a checkpoint: the loop's and the best state so far; of a run that is done only that."""
    progress = to_dict(run.progress) | {
        "seed": run.recipe.seed,
        "precision": run.recipe.precision,
        "optimizer": type(run.recipe.optimizer).__name__,
        "versions": loop.versions(),
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


def _best_of(checkpoint: Checkpoint) -> _State | None:
    said = checkpoint.progress["best"]
    if said is None:
        return None
    tensors = checkpoint.tensors("best")
    return _State(step=said["step"], scores=said["scores"], tensors=tensors, worse=said["worse"])


def _scored(job: Job, arm: str, seed: int, model: Model, state: _State) -> Scored:
    """Score the best state of a run as it will be used, in float32."""
    asked = settled(plain(job.asked), model, job.data.dev, job.dev)
    dev = score(asked, model, job.data.dev, job.dev)
    test = score(asked, model, job.data.test, job.test) if job.test else {}
    tuned = sum(x.numel() for x in state.tensors.values())
    return Scored(arm=arm, seed=seed, step=state.step, dev=dev, test=test, tuned=tuned)


def _opened(job: Job, model: Model) -> Opened:
    # The names of what a head scores, which other libraries count; spans have none.
    named = any(map(labels_named, model.specs.values()))
    return Opened(
        card=replace(job.begun.card, heads=model.specs),
        model=model,
        tokenizer=job.begun.tokenizer,
        labels=job.task.labels or (job.task.columns.label,) if named else (),
        missing=(),
        extra=(),
    )


def _write(job: Job, tuned: Tuned, report: Mapping[str, Any]) -> None:
    """Write the model into the run's folder, and say at the very end that the run is finished."""
    folder = job.folder
    write_whole(folder / "results.json", results.as_json(report))
    if job.place(tuned.best.arm, tuned.best.seed) != folder:
        for name in checkpoints.LOGS:
            source = job.place(tuned.best.arm, tuned.best.seed) / name
            write_whole(folder / name, source.read_bytes())
    base = job.tuning.base if is_small(job.tuning.tune) else None
    put(folder, tuned.opened, tuned.task, _figures(tuned), base)
    said = {
        "finished": True,
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
    return [
        f"fine-tuned on {Path(t.train).name} for {t.epochs:g} epochs of {t.batch} texts a step, "
        f"at rate {t.rate:g}",
        *tuned.summary(),
    ]


def _finished(job: Job) -> Tuned:
    """Return what a finished run left in its folder."""
    _tidy(job)
    facts = json.loads((job.folder / FACTS).read_text(encoding="utf-8"))
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
