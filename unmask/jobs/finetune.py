"""Fine-tuning in one call: a model, labelled files, and what shall be otherwise than usual.

Where the model is to read the text of its task first, `adapt_first` does that.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.config import check_number_arguments, from_dict
from unmask.finetuning.config import FinetuneConfig, OptimizerName
from unmask.finetuning.data.class_weights import ClassWeights
from unmask.finetuning.job import check_same_config, read_run_record
from unmask.finetuning.methods.adapt_first import TaskAdaptivePretraining
from unmask.finetuning.methods.method import FinetuningMethod, ScheduleShape, parse_method
from unmask.finetuning.results.finetuned_model import FinetunedModel
from unmask.finetuning.results.predict import RUN_FILE
from unmask.finetuning.run import HasLoadedModel, run_finetuning
from unmask.finetuning.search import TRIALS_FILE
from unmask.jobs.adapt_to_task import adapt_to_task_text, check_adaptation
from unmask.output import OutputStream
from unmask.tasks.task import TaskKindName
from unmask.text.lines import EncodingErrors
from unmask.tokenizers.vocabulary import VocabularySpec, parse_vocabulary
from unmask.training.config import Precision


@check_number_arguments
def finetune(
    base: str | Path | LoadedModel | HasLoadedModel,
    *,
    task: TaskKindName,
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
    task_options: Mapping[str, Any] | None = None,
    encoding_errors: EncodingErrors = "strict",
    initialize: Literal["pretrained", "random"] = "pretrained",
    adapt_first: bool | TaskAdaptivePretraining = False,
    baseline: bool = False,
    tokenizer: str | Path | None = None,
    vocabulary: str | VocabularySpec | None = None,
    tune: str | FinetuningMethod = "full",
    metric: str | None = None,
    epochs: float | None = None,
    batch_size: int | None = None,
    batch_tokens: int | None = None,
    learning_rate: float | None = None,
    warmup: float = 0.1,
    schedule: ScheduleShape | None = None,
    optimizer: OptimizerName = "adamw",
    average: int = 0,
    weight_decay: float = 0.01,
    class_weights: ClassWeights | None = None,
    lm_loss_weight: float | None = None,
    dropout: float | None = None,
    max_length: int | None = None,
    task_name: str | None = None,
    evaluate_every: int | None = None,
    patience: int | None = None,
    seed: int = 0,
    seeds: int = 1,
    search: int = 0,
    precision: Precision = "auto",
    device: str = "auto",
    resume: bool = False,
    terminal: OutputStream | None = sys.stderr,
) -> FinetunedModel:
    """Fine-tune a model on a labelled file. What is left open is decided; see `FinetuneConfig`.

    Args:
        base: a run folder, a folder in the Hugging Face layout, `hf:owner/name`, a model that is
            open, or a name of the catalogue (its weights are then drawn at random).
        task: one of `unmask.tasks.task.TASK_KIND_NAMES`: classify, pairs, regress, tag, choose, ...
        train: a .tsv, .csv, .jsonl or .parquet file; to tag also .conllu and .conll; to generate
            also a .toml file, a mixture of tasks: see `unmask.finetuning.data.task_mixture`.
        dev: by which the best state is chosen. None: a tenth of the training file.
        test: scored once, at the end.
        out: a folder for the run. None: nothing is written.
        text: the column of text; of pairs, two columns.
        label: the column of labels, numbers or tags.
        choices: the columns of the options to choose from.
        labels: all labels, in their order. None: those of the training file.
        rows: learn from so many rows of the training file.
        columns: names of all columns, for files without a header.
        task_options: what else the kind of task lets one choose; see `unmask.tasks.kinds`.
        encoding_errors: what becomes of bytes that are no UTF-8: an error, or U+FFFD.
        initialize: "random" draws the weights of `base` anew.
        adapt_first: first go on with pretraining on the text of the training rows, without labels;
            `TaskAdaptivePretraining(unlabeled=("more.txt",), epochs=3)`: on more text, or
            otherwise.
        baseline: also tune a randomly initialized network, and compare.
        tokenizer: a folder with a tokenizer, for a name of the catalogue.
        vocabulary: what such a model learns from the training texts, in place of its card's kind:
            "words" (a closed set of them), "unigram:8000", ...; see
            `unmask.tokenizers.vocabulary.VOCABULARY_KINDS`.
        tune: what is tuned: "full", "frozen", "lora", "lora:rank=4", `LoRA(rank=4)`, ...; see
            `unmask.finetuning.methods.method`.
        metric: by which the best state is chosen; see `unmask.tasks.metrics`.
        epochs: passes over the training file.
        batch_size: texts a step.
        batch_tokens: tokens a step, padding included, in place of `batch_size`.
        learning_rate: peak learning rate.
        warmup: share of the steps in which the rate rises to its peak, or, from 1 on, so many.
        schedule: "linear": then it falls to zero; "inverse_square_root": as 1 / sqrt(step);
            "constant": not at all.
        optimizer: "adafactor": a rate that is relative to each tensor's size, 1e-3 and constant
            unless told otherwise, as T5 is fine-tuned.
        average: the mean of the weights at so many last evaluations may be the best state.
        weight_decay: of matrices, a step at rate 1.
        class_weights: how much each label counts while it is learned; "balanced": rare ones more.
        lm_loss_weight: weight of a language model's loss beside the task's, for decoders. None:
            that of the model's paper, which most do not have.
        dropout: in place of the model's own.
        max_length: tokens that are read of a text at most.
        task_name: what an encoder-decoder reads before a text, for instance "sst2".
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
    loaded = base.loaded_model if isinstance(base, HasLoadedModel) else base
    opened = loaded if isinstance(loaded, LoadedModel) else None
    tuning = FinetuneConfig(
        base=opened.preset.name if opened is not None else str(base),
        task=task,
        train=str(train),
        dev=_as_text(dev),
        test=_as_text(test),
        text=(text,) if isinstance(text, str) else tuple(text),
        label=label,
        choices=(choices,) if isinstance(choices, str) else tuple(choices),
        labels=tuple(labels),
        rows=rows,
        columns=tuple(columns),
        task_options=task_options or {},
        encoding_errors=encoding_errors,
        initialize=initialize,
        baseline=baseline,
        tokenizer=_as_text(tokenizer),
        adapt_first=TaskAdaptivePretraining() if adapt_first is True else adapt_first or None,
        vocabulary=None if vocabulary is None else parse_vocabulary(vocabulary),
        tune=parse_method(tune),
        metric=metric,
        epochs=epochs,
        batch_size=batch_size,
        batch_tokens=batch_tokens,
        learning_rate=learning_rate,
        warmup=warmup,
        schedule=schedule,
        optimizer=optimizer,
        average=average,
        weight_decay=weight_decay,
        class_weights=class_weights,
        dropout=dropout,
        lm_loss_weight=None if lm_loss_weight is None else float(lm_loss_weight),
        max_length=max_length,
        task_name=task_name,
        evaluate_every=evaluate_every,
        patience=patience,
        seed=seed,
        seeds=seeds,
        search=search,
        precision=precision,
    )
    folder = None if out is None else Path(out)
    return _run_finetuning(
        tuning,
        loaded_model=opened,
        output_folder=folder,
        resume=resume,
        device=device,
        terminal=terminal,
    )


def resume_finetuning(
    run_folder: Path,
    base: str | None = None,
    *,
    device: str = "auto",
    terminal: OutputStream | None = sys.stderr,
) -> FinetunedModel:
    """Go on with the run in a folder as its own record says.

    Args:
        run_folder: the run's folder.
        base: the model it began with, which need not be said.
        device: "auto", "cpu", "cuda", ...
        terminal: where progress is shown. None: nowhere.

    Raises:
        FileNotFoundError: a file or model is not there any more.
        ValueError: there is no run, or its data have changed.
    """
    if (run_folder / TRIALS_FILE).is_file() and not (run_folder / RUN_FILE).is_file():
        raise ValueError(
            f"{run_folder}: its search has not ended; resume it with all of its options"
        )
    facts = read_run_record(run_folder)
    if facts.get("opened"):
        raise ValueError(f"{run_folder}: was given its model open; give it again, in Python")
    tuning = from_dict(FinetuneConfig, facts["recipe"], f"{run_folder / RUN_FILE}: recipe")
    if base is not None:
        check_same_config(run_folder, facts["recipe"], replace(tuning, base=base))
    return _run_finetuning(
        tuning, output_folder=run_folder, resume=True, device=device, terminal=terminal
    )


def _as_text(path: str | Path | None) -> str | None:
    return None if path is None else str(path)


def _run_finetuning(
    config: FinetuneConfig,
    *,
    loaded_model: LoadedModel | None = None,
    output_folder: Path | None,
    resume: bool,
    device: str,
    terminal: OutputStream | None,
) -> FinetunedModel:
    if config.adapt_first is not None:
        check_adaptation(config, model_given=loaded_model is not None)
    return run_finetuning(
        config,
        loaded_model=loaded_model,
        output_folder=output_folder,
        resume=resume,
        device=device,
        adapt=adapt_to_task_text,
        terminal=terminal,
    )
