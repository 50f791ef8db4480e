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

from unmask.adapters.prefix import places_before
from unmask.batch import Example
from unmask.channels import Stream, tell
from unmask.checkpoints.huggingface import Opened
from unmask.config import to_dict
from unmask.files import read_json, write_whole
from unmask.finetuning import plan, results
from unmask.finetuning.ask import LABEL, Ask, Costly, Question, check_length, in_words
from unmask.finetuning.auxiliary import weight_of, with_next
from unmask.finetuning.batches import an_epoch, too_large
from unmask.finetuning.begin import Beginning, begin
from unmask.finetuning.by_text import ByText
from unmask.finetuning.framing import TOKENS
from unmask.finetuning.kinds.catalogue import TASK_KINDS, ask, choose_metric, options
from unmask.finetuning.kinds.pooled import reads_two
from unmask.finetuning.methods import (
    Frozen,
    SourceEncoder,
    begin_method,
    is_small,
    tunes_tokens,
    word_of,
)
from unmask.finetuning.mixture import Mixture
from unmask.finetuning.numbers import into_scale, scaled
from unmask.finetuning.plan import PRETRAINED, RANDOM, Data, Tuning
from unmask.finetuning.predict import FACTS
from unmask.finetuning.source import drawn, with_source
from unmask.finetuning.weights import weighted
from unmask.heads.model import Model
from unmask.hiding.sources import Sources
from unmask.tasks.task import Item, Task, digest
from unmask.tasks.text_forms import plain_form
from unmask.text.records import listed
from unmask.training import loop, parallel
from unmask.training.memory import tokens_at_once
from unmask.training.parallel import World

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Job:
    """All that the runs of a job share."""

    tuning: Tuning
    data: Data
    begun: Beginning
    asked: Ask
    """With numbers in the scale in which they are learned."""
    examples: Sequence[Example]
    """Of the training file."""
    sources: Sources | None = None
    """Of a mixture: which part each example is of, and how many of each an epoch reads."""
    dev: Sequence[Question]
    test: Sequence[Question]
    folder: Path
    kept: bool = True
    """The folder stays."""
    peak: float = 0.0
    """FLOP/s of this machine's matrix product. 0: not measured."""
    n_tuned: int = 0
    """Parameters that are tuned."""
    n_parameters: int = 0
    """Of the model, with what is added to it."""
    world: World
    facts: Mapping[str, Any]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    terminal: Stream | None

    @property
    def task(self) -> Task:
        """What is learned."""
        return self.asked.task

    @property
    def steps(self) -> int:
        """How many steps a run has."""
        t = self.tuning
        return plan.steps(t, an_epoch(self.examples, t.batch, t.batch_tokens, self.sources))

    @property
    def runs(self) -> list[tuple[str, int]]:
        """Arm and seed of each run, the arm under study first."""
        t = self.tuning
        arms = [RANDOM]
        if self.begun.trained and t.initialize == "pretrained":
            arms = [PRETRAINED, RANDOM] if t.baseline else [PRETRAINED]
        return [(arm, s) for arm in arms for s in range(t.seed, t.seed + t.seeds)]

    @property
    def watched(self) -> tuple[Sequence[Item], Sequence[Question]]:
        """The dev items that are scored while training, evenly spaced, and their questions.

        Of a mixture's tasks each has as many, or all that it has.
        """
        items = self.data.dev
        if not isinstance(self.asked, Costly) or len(items) <= self.asked.scored:
            return items, self.dev
        parts: dict[str, list[int]] = {}
        for i, item in enumerate(items):
            parts.setdefault(item.part, []).append(i)
        most = max(self.asked.scored // len(parts), 1)
        chosen = {
            part[i * len(part) // min(most, len(part))]
            for part in parts.values()
            for i in range(min(most, len(part)))
        }
        return [items[i] for i in sorted(chosen)], [q for q in self.dev if q.item in chosen]

    @property
    def decided(self) -> str:
        """What is learned from, and how: a line, in the words of the options."""
        t = self.tuning
        return (
            f"rows {len(self.data.train):,}, epochs {t.epochs:g}, batch {plan.batch_of(t)}, "
            f"steps {self.steps:,}, rate {t.rate:.3g}, length {t.length}, "
            f"tuned {self.n_tuned:,} of {self.n_parameters:,} parameters"
        )

    def model(self, arm: str, seed: int) -> Model:
        """Build the model of one run, ready for its first step.

        Raises:
            ValueError: it has not what the method tunes.
        """
        trained = arm != RANDOM
        model = self.begun.model(seed, trained=trained)
        if trained and f"heads.{LABEL}.out.weight" in self.begun.tensors:
            into_scale(model, self.asked)
        begin_method(self.tuning.tune, model, seed, self.begun.tokenizer)
        return model

    def place(self, arm: str, seed: int) -> Path:
        """Return the folder of one run: the job's own if there is but one."""
        if len(self.runs) == 1:
            return self.folder
        return self.folder / f"{'random-' if arm == RANDOM else ''}seed-{seed}"

    def say(self, text: str) -> None:
        """Show a line of progress."""
        if self.terminal is not None:
            tell(text, self.terminal)

    def warn(self, text: str) -> None:
        """Tell of what may be a mistake, also where no progress is shown."""
        _log.warning("%s", text)


def prepare(
    tuning: Tuning,
    opened: Opened | None,
    folder: Path,
    world: World,
    threads: int,
    terminal: Stream | None,
) -> Job:
    """Read the data, begin the model, and decide what was left open. Nothing is written.

    Raises:
        FileNotFoundError: a file or model is missing.
        ValueError: a file, a column or an option is not what it should be.
    """
    data = plan.read(tuning)
    begun = _begun(tuning, opened, data)
    tuning = replace(tuning, auxiliary=weight_of(begun.card.heads))
    task = _settled(begun, tuning, data)
    if tuning.class_weights is not None:
        card = weighted(begun.card, tuning.class_weights, task, data.train)
        begun = replace(begun, card=card)
    asked = scaled(ask(task, begun.card, begun.tokenizer), begun.card, data.train)
    with torch.device("meta"):
        model = begun.card.build()
    if isinstance(tuning.tune, Frozen) and not any(True for _ in model.heads.parameters()):
        raise ValueError(
            f"{begun.card.name} has no head of its own to learn: frozen, it learns nothing"
        )
    if is_small(tuning.tune) and not begun.trained:
        raise ValueError(
            f"{word_of(tuning.tune)} adds to a model that was trained, and {tuning.base} has no "
            "weights; pretrain it first, or tune it in full"
        )
    parameters, words = model.parameter_count(), in_words(begun.card)
    of_weights = _of_weights(begun, tuning)
    questions = asked.questions(data.train)
    sources = None
    if data.mixture is not None:
        sources = data.mixture.sources([data.train[q.item].part for q in questions])
    n_train = len(data.train) if sources is None else sum(sources.takes)
    asked_batch = tuning.batch
    tuning = plan.settle(tuning, task, n_train, parameters, words=words)
    tuning = _sized(tuning, begun, folder, world.device)
    examples = [with_next(q.example) if tuning.auxiliary else q.example for q in questions]
    tuning = plan.paced(tuning, an_epoch(examples, tuning.batch, tuning.batch_tokens, sources))
    n_cut = len({q.item for q in questions if q.cut})
    n_short = sum(q.shortened for q in questions)
    facts = {
        "format": 1,
        "kind": "finetune",
        "card": begun.card.name,
        "opened": opened is not None,
        "parameters": parameters,
        "recipe": to_dict(tuning),
        "task": to_dict(task),
        "data": {
            name: {"rows": len(some), "sha256": digest(some)}
            for name, some in (("train", data.train), ("dev", data.dev), ("test", data.test))
        }
        | ({} if data.mixture is None else {"mixture": to_dict(data.mixture)}),
        "versions": loop.versions(),
        "environment": _environment(world.device, threads),
    }
    job = Job(
        tuning=tuning,
        data=data,
        begun=begun,
        asked=asked,
        examples=examples,
        sources=sources,
        dev=asked.questions(data.dev),
        test=asked.questions(data.test) if data.test else [],
        folder=folder,
        world=world,
        facts=facts,
        notes=(
            *data.notes,
            *_of_parts(data.mixture, sources),
            *of_weights,
            *read_in_parts(task, n_cut, len(data.train), "training"),
        ),
        warnings=(
            *data.warnings,
            *of_cuts(asked, n_cut, n_short, len(data.train), "training"),
            *too_large(asked_batch, tuning.batch_tokens, examples, n_train),
        ),
        terminal=terminal,
    )
    model = job.model(*job.runs[0])  # now, not in the first run: what it cannot be is said here
    each = [(p.numel(), p.requires_grad) for p in model.parameters()]
    return replace(
        job,
        n_tuned=sum(n for n, tuned in each if tuned),
        n_parameters=sum(n for n, _ in each),
    )


def _begun(tuning: Tuning, opened: Opened | None, data: Data) -> Beginning:
    """Begin the model that is named, or that is open, for the task."""
    named = tuning.task if tuning.name is None else tuning.name
    task = Task(
        does=tuning.task, columns=data.columns, labels=data.labels, name=named,
        options=options(tuning.task, data.options),
    )  # fmt: skip
    begun = begin(
        opened or tuning.base,
        task,
        _all_texts(data.train, tagged=TASK_KINDS[task.does].files.tagged),
        tokenizer=tuning.tokenizer,
        vocabulary=tuning.vocabulary,
        dropout=tuning.dropout,
        auxiliary=_auxiliary(tuning),
        learned=tunes_tokens(tuning.tune),
    )
    if isinstance(tuning.tune, SourceEncoder):
        begun = with_source(begun, tuning.tune, data.train)
    return begun


def begun_from(job: Job, folder: Path) -> Job:
    """Return a job that begins with the weights of a folder, of the same network as its own.

    What the folder does not have, a pooler for instance, stays as it is. Where it knows more words,
    what is asked is made anew of these.
    """
    tuning, known = replace(job.tuning, base=str(folder)), job.begun.tensors
    found = _begun(tuning, None, job.data)
    if found.tokenizer.size != job.begun.tokenizer.size:
        threads = job.facts["environment"]["threads"]
        made = prepare(tuning, None, job.folder, job.world, threads, None)
        facts = {**job.facts, "parameters": made.facts["parameters"]}
        job = replace(made, facts=facts, kept=job.kept, peak=job.peak, terminal=job.terminal)
    tensors = {name: found.tensors.get(name, x) for name, x in known.items()}
    return replace(job, tuning=tuning, begun=replace(job.begun, tensors=tensors))


def _auxiliary(tuning: Tuning) -> float | None:
    """Return the weight that is asked for; of a head alone, from which none is learned, none."""
    if tuning.auxiliary is None and isinstance(tuning.tune, Frozen):
        return 0.0
    return tuning.auxiliary


def _sized(tuning: Tuning, begun: Beginning, folder: Path, device: torch.device) -> Tuning:
    """Decide how many tokens go through the model at once, or take it from the run in the folder.

    That was decided by the memory of then, and rounding depends on it.
    """
    if tuning.micro_tokens is not None:
        return tuning
    assert tuning.length is not None
    dtype = parallel.dtype_of(parallel.pick_precision(tuning.precision, device))
    most = tokens_at_once(begun.card.architecture, tuning.length, dtype, device)
    return replace(tuning, micro_tokens=_earlier(folder) or most)


def _earlier(folder: Path) -> int | None:
    """Read how many tokens went through the model at once in the run that the folder holds."""
    try:
        facts = read_json(folder / FACTS)
        known = facts["recipe"]["micro_tokens"]
    except (OSError, ValueError, KeyError, TypeError):  # no run: is_finished says what is wrong
        return None
    return known if isinstance(known, int) else None


def _all_texts(items: Sequence[Item], *, tagged: bool) -> Iterator[str]:
    """Yield what a vocabulary is learned from: texts, and answers, which some models say."""
    for item in items:
        if tagged:
            yield " ".join(item.texts)
            continue
        yield from item.texts
        yield from item.options
        if item.truth is not None:
            yield from item.truth if isinstance(item.truth, tuple) else (str(item.truth),)


def _settled(begun: Beginning, tuning: Tuning, data: Data) -> Task:
    """Complete the task by what depends on the model."""
    task = begun.task
    task = replace(
        task,
        length=check_length(begun.card, tuning.length, places_before(tuning.tune)),
        metric=choose_metric(task, tuning.metric),
    )
    return TASK_KINDS[task.does].settled(task, begun.card, data.train)


def _of_weights(begun: Beginning, tuning: Tuning) -> list[str]:
    """Say which weights are new, and which are not used."""
    notes: list[str] = []
    if not begun.trained and tuning.tokenizer is None:
        notes.append(
            f"a vocabulary of {begun.tokenizer.size:,} tokens, special ones included, was learned "
            "from the training texts"
        )
    if begun.card.pooler and begun.task.options.get("pool") != tuning.options.get("pool"):
        means = "the two texts' means are compared" if reads_two(begun.task) else "the mean is read"
        notes.append(
            f"no pooler was trained: {means}, of all layers (--option pool=first for "
            f"{begun.card.name}'s own head, which transformers has a class for)"
        )
    notes += _of_frame(begun, tuning)
    if tuning.initialize == "random" or not begun.trained:
        return [*notes, "all weights are drawn at random"]
    fresh = drawn(begun)
    if begun.added:
        fresh = (*fresh, *(f"the vector of {name}" for name in begun.tokenizer.pieces(begun.added)))
    if fresh:
        notes.append(f"new, drawn at random: {listed(fresh)}")
    if begun.extra:
        names = listed(begun.extra[:3]) + (", ..." if len(begun.extra) > 3 else "")
        notes.append(f"not used of the model: {len(begun.extra)} tensors ({names})")
    return notes


def _of_frame(begun: Beginning, tuning: Tuning) -> list[str]:
    """Say what a paper's own way of fine-tuning put around texts, or why it did not."""
    said, asked = begun.task.options, tuning.options
    notes: list[str] = []
    if said.get("frame") != asked.get("frame"):
        notes.append(
            f"around texts stand {listed(TOKENS.names)}, as in the model's paper (--option "
            "frame=own for what its tokenizer puts there)"
        )
    if said.get("pool") == "both" != asked.get("pool"):
        notes.append("two texts are read in both orders (--option symmetric=false for one)")
    wanted = "frame" in said and said["frame"] is None and begun.card.finetuning.frame == "added"
    if wanted and not tunes_tokens(tuning.tune):
        notes.append(
            f"{word_of(tuning.tune)} tunes no vectors of tokens: none are added, unlike in the "
            "paper"
        )
    return notes


def _of_parts(mixture: Mixture | None, sources: Sources | None) -> list[str]:
    """Say of each part of a mixture how much there is, and how much of it an epoch reads."""
    if mixture is None or sources is None:
        return []
    sizes, total = np.bincount(sources.of).tolist(), sum(sources.takes)
    return [
        f"{name}: {take:,} of {size:,} examples an epoch, {take / total:.1%} of what is learned"
        for name, size, take in zip(mixture.parts, sizes, sources.takes, strict=True)
    ]


def read_in_parts(task: Task, n_cut: int, n: int, which: str) -> list[str]:
    """Say how many texts are longer than a row, if any, where a row more costs nothing of them."""
    if not n_cut or not TASK_KINDS[task.does].in_parts:
        return []
    return [f"{_longer(n_cut, n, which, task)} are read in parts"]


def _longer(n_cut: int, n: int, which: str, task: Task) -> str:
    return f"{n_cut:,} of {n:,} {which} texts have more than {task.length} tokens and"


def of_cuts(asked: Ask, n_cut: int, n_short: int, n: int, which: str) -> list[str]:
    """Say of how many texts, and of how many targets, a part is lost, if of any.

    Args:
        asked: what is asked, of which task.
        n_cut: texts that are longer than what is read.
        n_short: targets that are longer than what is learned and written.
        n: all of both.
        which: of which file.
    """
    found: list[str] = []
    task = asked.task
    if n_cut and not TASK_KINDS[task.does].in_parts:
        form = task.options.get("form")
        oldest = form and plain_form(form, "options.form").keep == "end"
        how = "lose their beginning, of lines the oldest" if oldest else "are cut"
        found.append(f"{_longer(n_cut, n, which, task)} {how}")
    if n_short and isinstance(asked, ByText):
        found.append(
            f"{n_short:,} of {n:,} {which} targets have more than {asked.longest} tokens, and are "
            f"learned up to there (--option longest={2 * asked.longest} for more)"
        )
    return found


def _environment(device: torch.device, threads: int) -> dict[str, Any]:
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "threads": threads,
        "device": device.type if device.type == "cpu" else torch.cuda.get_device_name(device),
    }


def is_finished(job: Job) -> bool:
    """Compare with the run in the folder and say whether it is finished; if there is none, begin.

    Raises:
        ValueError: it is another run.
    """
    path = job.folder / FACTS
    if not path.is_file():
        write_whole(path, results.as_json(dict(job.facts) | {"finished": False}))
        return False
    old = recorded(job.folder)
    check_same(job.folder, old["recipe"], job.tuning)
    for name, value in job.facts["data"].items():
        if old["data"].get(name) != value:
            raise ValueError(f"{job.folder}: the {name} data have changed since this run began")
    return bool(old.get("finished"))


def recorded(folder: Path) -> dict[str, Any]:
    """Return what the run in a folder says of itself.

    Raises:
        ValueError: there is none, or it is no run of fine-tuning.
    """
    path = folder / FACTS
    if not path.is_file():
        raise ValueError(f"{folder}: holds no run to go on with")
    try:
        facts = read_json(path)
        if (kind := facts["kind"]) == "finetune":
            return {**facts, "recipe": dict(facts["recipe"]), "data": dict(facts["data"])}
    except (ValueError, KeyError, TypeError) as error:
        why = str(error).removeprefix(f"{path}: ")
        raise ValueError(f"{path}: not a run of fine-tuning ({why})") from None
    raise ValueError(f"{folder}: is a run of {kind}, not of fine-tuning")


def check_same(folder: Path, recipe: Mapping[str, Any], tuning: Tuning) -> None:
    """Check that what is asked for is what the record of a folder says.

    Raises:
        ValueError: it is not, with the first difference.
    """
    for key, value in json.loads(json.dumps(to_dict(tuning))).items():
        if recipe.get(key) != value:
            raise ValueError(
                f"{folder}: this run has {key} = {recipe.get(key)!r}, not {value!r}; "
                "a resumed run must be the same"
            )
