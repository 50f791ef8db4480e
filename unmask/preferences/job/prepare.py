"""From a config to a job: model, rows, examples, reward and judge. No file is written."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import numpy as np

from unmask.adapters.prefix import n_virtual_tokens_of
from unmask.batch import Example
from unmask.bundled.models import BUNDLED_MODELS
from unmask.checkpoints.tensors import tensors_sha256
from unmask.config import to_dict
from unmask.finetuning.data.batch_stream import batch_size_warnings
from unmask.finetuning.formulations.build import complete_task, formulate
from unmask.finetuning.formulations.conversations.instructions import (
    InstructionFormulation,
    with_chat_template,
)
from unmask.finetuning.formulations.formulation import resolve_max_length
from unmask.finetuning.initial_model.load import (
    InitialModel,
    InitialModelOptions,
    load_initial_model,
)
from unmask.finetuning.initial_model.reopened import check_base_of_adapter
from unmask.finetuning.methods.method import (
    apply_method,
    is_parameter_efficient,
    method_learning_rate,
)
from unmask.finetuning.options.derived import default_learning_rate
from unmask.heads.model import Model
from unmask.output import OutputStream, print_line
from unmask.preferences.config import PreferConfig
from unmask.preferences.data.encode import encode_labeled, encode_pairs, encode_prompts
from unmask.preferences.data.rows import (
    PreferenceRow,
    read_labeled,
    read_pairs,
    read_prompts,
    rows_sha256,
)
from unmask.preferences.methods import online_method, pair_loss_of
from unmask.preferences.online.reward import RewardFunction, open_reward
from unmask.saved_format import FORMAT
from unmask.tasks.all_kinds import resolve_metric, resolve_options
from unmask.tasks.kinds.instruct import LAST_TURN, LOSS_METRIC
from unmask.tasks.task import Task, TaskColumns
from unmask.text.documents import read_documents
from unmask.training.device import distributed
from unmask.training.device.activation_memory import max_micro_batch_tokens
from unmask.training.device.distributed import World
from unmask.training.resume import library_versions
from unmask.zoo.catalogue import ALIASES, MODELS

_log = logging.getLogger(__name__)

_LEARNING_RATE_FACTOR = 0.1
"""Of the rate of fine-tuning: the model is already good, and should stay near."""
_DEV_SHARE = 10


@dataclass(frozen=True, kw_only=True)
class SplitRows:
    """Rows of one split, their examples, and their prompts."""

    examples: Sequence[Example]
    """Two of each pair, or of each labeled response; none of prompts alone."""
    rows: Sequence[PreferenceRow]
    """Prompts that fit with a written response, once each."""
    prompts: Sequence[Example]
    """An example of each of these."""


@dataclass(frozen=True, kw_only=True)
class PreferJob:
    """The state of a run before its first step."""

    config: PreferConfig
    folder: Path
    initial_model: InitialModel
    formulation: InstructionFormulation
    train: SplitRows
    dev: SplitRows
    text: Sequence[Example]
    reward: RewardFunction | None
    judge: RewardFunction | None
    micro_batch_tokens: int
    world: World
    run_record: Mapping[str, Any]
    warnings: tuple[str, ...]
    terminal: OutputStream | None

    def build_model(self) -> Model:
        """Build the model as it is before the first step."""
        model = self.initial_model.build_model(self.config.seed)
        apply_method(self.config.tune, model, self.config.seed, self.initial_model.tokenizer)
        return model

    def print_progress(self, text: str) -> None:
        """Show a line of progress."""
        if self.terminal is not None:
            print_line(text, self.terminal)

    def warn(self, text: str) -> None:
        """Print a warning, also if progress is not shown."""
        _log.warning("%s", text)


def prepare_prefer_job(
    config: PreferConfig, folder: Path, world: World, n_threads: int, terminal: OutputStream | None
) -> PreferJob:
    """Read the data, load the models, and resolve open options. No file is written.

    Raises:
        FileNotFoundError: a file or model is missing.
        ValueError: a file, a row or an option is invalid.
    """
    _check_base(config)
    splits = _read_rows(config)
    initial_model, task = _load_model(config)
    formulation = cast(
        "InstructionFormulation", formulate(task, initial_model.preset, initial_model.tokenizer)
    )
    n_parameters = sum(x.numel() for x in initial_model.pretrained_weights.values())
    rate = _LEARNING_RATE_FACTOR * method_learning_rate(
        config.tune, default_learning_rate(n_parameters, uses_word_labels=False)
    )
    config = replace(config, max_length=task.max_length, learning_rate=config.learning_rate or rate)
    warnings: list[str] = []
    encoded = {
        name: _encode(config, formulation, rows, name, warnings) for name, rows in splits.items()
    }
    reward, judge = (
        None if source is None else open_reward(source, name, world.device, reads=config.reads)
        for name, source in (("reward", config.reward), ("judge", config.judge))
    )
    warnings += _check_sizes(config, encoded["train"])
    for name, function in (("reward", reward), ("judge", judge)):
        _check_rating(config, formulation, encoded, name, function)
    if config.judge is not None and config.judge == config.reward:
        warnings.append("judge: is the reward itself, so it says nothing of what was not learned")
    text = _read_text(config, formulation)
    weights = tensors_sha256(initial_model.pretrained_weights)
    dtype = distributed.weight_dtype(distributed.resolve_precision(config.precision, world.device))
    micro_batch_tokens = max_micro_batch_tokens(
        initial_model.preset.architecture, task.max_length, dtype, world.device
    )
    return PreferJob(
        config=config, folder=folder, initial_model=initial_model, formulation=formulation,
        train=encoded["train"], dev=encoded["dev"], text=text,
        reward=reward, judge=judge, world=world, warnings=tuple(warnings), terminal=terminal,
        micro_batch_tokens=micro_batch_tokens,
        run_record={
            "format": FORMAT,
            "kind": "prefer",
            "card": initial_model.preset.name,
            "parameters": n_parameters,
            "base_sha256": weights,
            "task": to_dict(task),
            "data": {
                name: {"rows": len(rows), "sha256": rows_sha256(rows)}
                for name, rows in splits.items()
            },
            "text_sha256": sha256(b"".join(row.inputs.tobytes() for row in text)).hexdigest(),
            "rewards": {
                name: None if one is None else tensors_sha256(one.model.state_dict())
                for name, one in (("reward", reward), ("judge", judge))
            },
            "threads": n_threads,
            "micro_batch_tokens": micro_batch_tokens,
            "versions": library_versions(),
        },
    )  # fmt: skip


def _check_sizes(config: PreferConfig, train: SplitRows) -> list[str]:
    """Check the parts of a batch; return a warning if the batch is larger than the data."""
    online = online_method(config.method)
    n_rows = len(train.rows) if online is not None else len(train.examples) // 2
    if online is not None:
        n = min(config.batch_size, n_rows) * online.responses
        if online.minibatches > n:
            raise ValueError(
                f"minibatches must be at most the responses of a batch, {n}, got "
                f"{online.minibatches}"
            )
    return batch_size_warnings(config.batch_size, None, train.examples, n_rows)


def _check_rating(
    config: PreferConfig,
    formulation: InstructionFormulation,
    splits: Mapping[str, SplitRows],
    option: str,
    reward: RewardFunction | None,
) -> None:
    """Check that responses can be written and rated, so that no run ends because of one.

    Raises:
        ValueError: they cannot.
    """
    if reward is None:
        return
    most = config.max_response_length
    is_learned = option == "reward" and online_method(config.method) is not None
    for name in ("train", "dev") if is_learned else ("dev",):
        rows = splits[name].rows
        if not rows:
            raise ValueError(
                f"{option}: all prompts of {name} are empty or too long to be answered: a prompt "
                f"and a response of {most} tokens have at most {formulation.task.max_length}"
            )
        try:
            reward.check_prompts([row.prompt for row in rows], [r.location for r in rows], most)
        except (ValueError, FloatingPointError) as error:
            raise ValueError(f"{option}: {error}") from None


def _check_base(config: PreferConfig) -> None:
    """Check that there are weights, and that what is saved can be opened."""
    is_folder = Path(config.base).is_dir() or config.base in BUNDLED_MODELS
    if not is_folder and (config.base in MODELS or config.base in ALIASES):
        raise ValueError(f"{config.base} has no weights; pretrain it first")
    check_base_of_adapter(config.base, config.tune)


def _read_rows(config: PreferConfig) -> dict[str, list[PreferenceRow]]:
    """Read training and development rows; without a file of the latter, a tenth is held out."""
    read = read_labeled if online_method(config.method) is None else read_prompts
    if pair_loss_of(config.method) is not None:
        read = read_pairs
    train = read(config.train, config.encoding_errors)
    if config.dev is not None:
        return {"train": train, "dev": read(config.dev, config.encoding_errors)}
    prompts = list(dict.fromkeys(row.prompt for row in train))
    if len(prompts) < 2:
        raise ValueError(
            f"{config.train}: has one prompt alone, of which none can be held out; give dev"
        )
    order = np.random.default_rng(0).permutation(len(prompts))
    held_out = {prompts[i] for i in order[: max(len(prompts) // _DEV_SHARE, 1)].tolist()}
    return {
        "train": [row for row in train if row.prompt not in held_out],
        "dev": [row for row in train if row.prompt in held_out],
    }


def _load_model(config: PreferConfig) -> tuple[InitialModel, Task]:
    """Load the model with its language head, and its task: to answer instructions."""
    options: dict[str, Any] = {"max_response_length": config.max_response_length}
    if config.chat_template is not None:
        options["chat_template"] = config.chat_template
    task = Task(
        task_kind="instruct",
        columns=TaskColumns(texts=("messages",), label=LAST_TURN),
        task_name="instruct",
        metric=LOSS_METRIC,
        options=resolve_options("instruct", options),
    )
    found = load_initial_model(
        config.base,
        task,
        (),
        InitialModelOptions(
            dropout=config.dropout, keeps_backbone=is_parameter_efficient(config.tune)
        ),
    )
    virtual = n_virtual_tokens_of(config.tune)
    length = resolve_max_length(found.preset, config.max_length, virtual)
    task = replace(found.task, max_length=length, metric=resolve_metric(found.task, None))
    task = with_chat_template(task, found.chat_template, found.tokenizer)
    return found, complete_task(task, found.preset, ())


def _encode(
    config: PreferConfig,
    formulation: InstructionFormulation,
    rows: Sequence[PreferenceRow],
    name: str,
    warnings: list[str],
) -> SplitRows:
    """Encode the rows of a split; what does not fit is counted in a warning.

    Raises:
        ValueError: none fits.
    """
    examples: Sequence[Example] = ()
    reasons: list[str] = []
    if online_method(config.method) is None:
        encode = encode_labeled if pair_loss_of(config.method) is None else encode_pairs
        examples, reasons = encode(formulation, rows)
    kept: Sequence[PreferenceRow] = ()
    prompts: Sequence[Example] = ()
    left = len(examples)
    if config.reward is not None or config.judge is not None:
        if config.max_response_length >= formulation.task.max_length:
            raise ValueError(
                f"max_response_length must be below max_length, {formulation.task.max_length}, got "
                f"{config.max_response_length}"
            )
        unique = list({row.prompt: row for row in rows}.values())
        kept, prompts, too_long = encode_prompts(formulation, unique)
        if online_method(config.method) is not None:
            reasons, left = too_long, len(kept)
        elif too_long and name == "dev":
            warnings.append(f"{name}: {too_long[0]}: they are not answered")
    if reasons:
        warnings.append(f"{name}: left out of {len(rows):,} rows: {'; '.join(reasons)}")
    if not left:
        raise ValueError(f"no row of {name} is left" + (f": {warnings[-1]}" if reasons else ""))
    return SplitRows(examples=examples, rows=kept, prompts=prompts)


def _read_text(config: PreferConfig, formulation: InstructionFormulation) -> list[Example]:
    """Read plain text as rows of the maximum length, for the language-model loss."""
    if config.text is None:
        return []
    if formulation.is_encoder_decoder:
        raise ValueError("text: is for decoders; an encoder-decoder has another objective")
    length = formulation.task.max_length
    found: list[Example] = []
    for document in read_documents([config.text], encoding_errors=config.encoding_errors):
        (ids,) = formulation.tokenizer.encode_ids_batch([document.text])
        ids = np.append(ids, formulation.end_id)
        for start in range(0, len(ids) - 1, length):
            row = ids[start : start + length + 1]
            found.append(Example(inputs=row[:-1], targets=row[1:], rank=np.arange(len(row) - 1)))
    if not found:
        raise ValueError(f"{config.text}: has no text")
    return found
