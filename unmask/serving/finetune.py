"""Fine-tuning in one call: a model, labelled files, and what shall be otherwise than usual.

Where the model is to read the text of its task first, `in_domain` does that.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from unmask.channels import Stream
from unmask.checkpoints.huggingface import Opened
from unmask.config import check, from_dict
from unmask.finetuning.in_domain import InDomain
from unmask.finetuning.job import check_same, recorded
from unmask.finetuning.methods import Method, Shape, method_of
from unmask.finetuning.plan import Tuning, Word
from unmask.finetuning.predict import FACTS
from unmask.finetuning.search import TRIALS
from unmask.finetuning.tune import Loaded, run
from unmask.finetuning.tuned import Tuned
from unmask.finetuning.weights import ClassWeights
from unmask.serving.in_domain import adapt, check_domain
from unmask.tasks.task import Kind
from unmask.text.lines import EncodingErrors
from unmask.tokens.vocabulary import Vocabulary, vocabulary_of
from unmask.training.recipe import Precision


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
    in_domain: bool | InDomain = False,
    baseline: bool = False,
    tokenizer: str | Path | None = None,
    vocabulary: str | Vocabulary | None = None,
    tune: str | Method = "full",
    metric: str | None = None,
    epochs: float | None = None,
    batch: int | None = None,
    batch_tokens: int | None = None,
    rate: float | None = None,
    warmup: float = 0.1,
    schedule: Shape | None = None,
    optimizer: Word = "adamw",
    average: int = 0,
    weight_decay: float = 0.01,
    class_weights: ClassWeights | None = None,
    auxiliary: float | None = None,
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
    terminal: Stream | None = sys.stderr,
) -> Tuned:
    """Fine-tune a model on a labelled file. What is left open is decided; see `plan.Tuning`.

    Args:
        base: a run folder, a folder in the Hugging Face layout, `hf:owner/name`, a model that is
            open, or a name of the catalogue (its weights are then drawn at random).
        task: one of `unmask.tasks.task.KINDS`: classify, pairs, regress, tag, choose, ...
        train: a .tsv, .csv, .jsonl or .parquet file; to tag also .conllu and .conll; to generate
            also a .toml file, a mixture of tasks: see `unmask.finetuning.mixture`.
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
        in_domain: first go on with pretraining on the text of the training rows, without labels;
            `InDomain(unlabeled=("more.txt",), epochs=3)`: on more text, or otherwise.
        baseline: also tune a randomly initialized network, and compare.
        tokenizer: a folder with a tokenizer, for a name of the catalogue.
        vocabulary: what such a model learns from the training texts, in place of its card's kind:
            "words" (a closed set of them), "unigram:8000", ...; see
            `unmask.tokens.vocabulary.KINDS`.
        tune: what is tuned: "full", "frozen", "lora", "lora:rank=4", `LoRA(rank=4)`, ...; see
            `unmask.finetuning.methods`.
        metric: by which the best state is chosen; see `unmask.tasks.metrics`.
        epochs: passes over the training file.
        batch: texts a step.
        batch_tokens: tokens a step, padding included, in place of `batch`.
        rate: peak learning rate.
        warmup: share of the steps in which the rate rises to its peak, or, from 1 on, so many.
        schedule: "linear": then it falls to zero; "inverse_square_root": as 1 / sqrt(step);
            "constant": not at all.
        optimizer: "adafactor": a rate that is relative to each tensor's size, 1e-3 and constant
            unless told otherwise, as T5 is fine-tuned.
        average: the mean of the weights at so many last evaluations may be the best state.
        weight_decay: of matrices, a step at rate 1.
        class_weights: how much each label counts while it is learned; "balanced": rare ones more.
        auxiliary: weight of a language model's loss beside the task's, for decoders. None: that
            of the model's paper, which most do not have.
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
    check(float | None, auxiliary, "auxiliary")
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
        in_domain=InDomain() if in_domain is True else in_domain or None,
        vocabulary=None if vocabulary is None else vocabulary_of(vocabulary),
        tune=method_of(tune), metric=metric, epochs=epochs,
        batch=batch, batch_tokens=batch_tokens, rate=rate, warmup=warmup, schedule=schedule,
        optimizer=optimizer,
        average=average, weight_decay=weight_decay,
        class_weights=class_weights, dropout=dropout,
        auxiliary=None if auxiliary is None else float(auxiliary),
        length=length, name=name, evaluate_every=evaluate_every, patience=patience,
        seed=seed, seeds=seeds, search=search, precision=precision,
    )  # fmt: skip
    folder = None if out is None else Path(out)
    return _run(tuning, opened=opened, out=folder, resume=resume, device=device, terminal=terminal)


def go_on(
    out: Path,
    base: str | None = None,
    *,
    device: str = "auto",
    terminal: Stream | None = sys.stderr,
) -> Tuned:
    """Go on with the run in a folder as its own record says.

    Args:
        out: the run's folder.
        base: the model it began with, which need not be said.
        device: "auto", "cpu", "cuda", ...
        terminal: where progress is shown. None: nowhere.

    Raises:
        FileNotFoundError: a file or model is not there any more.
        ValueError: there is no run, or its data have changed.
    """
    if (out / TRIALS).is_file() and not (out / FACTS).is_file():
        raise ValueError(f"{out}: its search has not ended; resume it with all of its options")
    facts = recorded(out)
    if facts.get("opened"):
        raise ValueError(f"{out}: was given its model open; give it again, in Python")
    tuning = from_dict(Tuning, facts["recipe"], f"{out / FACTS}: recipe")
    if base is not None:
        check_same(out, facts["recipe"], replace(tuning, base=base))
    return _run(tuning, out=out, resume=True, device=device, terminal=terminal)


def _name(path: str | Path | None) -> str | None:
    return None if path is None else str(path)


def _run(
    tuning: Tuning,
    *,
    opened: Opened | None = None,
    out: Path | None,
    resume: bool,
    device: str,
    terminal: Stream | None,
) -> Tuned:
    if tuning.in_domain is not None:
        check_domain(tuning, given=opened is not None)
    return run(
        tuning, opened=opened, out=out, resume=resume, device=device, adapt=adapt,
        terminal=terminal,
    )  # fmt: skip
