"""The training, dev and test pictures of a run, decoded once, with their labels."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from unmask.adapters.folder import is_adapter, open_adapter
from unmask.checkpoints.huggingface.preprocessing import load_preprocessing, preset_preprocessing
from unmask.checkpoints.huggingface.read import (
    HUB_PREFIX,
    LoadedModel,
    is_model_folder,
    read_preset,
    resolve_model_folder,
)
from unmask.config import from_dict
from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.data.read_data import FinetuneData, sample_rows
from unmask.finetuning.initial_model.picture_network import preprocessing_of_size
from unmask.images.decode import DecodeSummary
from unmask.images.preprocessing import ImagePreprocessing
from unmask.images.reading import PictureOptions, open_or_write_store
from unmask.images.records import ImageColumns
from unmask.images.store import ImageStore
from unmask.tasks.kinds.pictures import PICTURES, PictureTaskOptions
from unmask.tasks.task import StoredPicture, TaskColumns, TaskExample, split_dev
from unmask.zoo.catalogue import ALIASES, MODELS, get_preset
from unmask.zoo.preset import Published

STORES_FOLDER = "pictures"
"""In the folder of a run."""
DEFAULT_COLUMNS = TaskColumns(texts=("image",), label="label")


def read_picture_data(
    config: FinetuneConfig, preprocessing: ImagePreprocessing, folder: Path
) -> FinetuneData:
    """Read and decode the pictures of a run into stores in its folder.

    Raises:
        FileNotFoundError: a source is missing.
        ValueError: a picture cannot be read or has no label, or a label is unknown.
    """
    _check_config(config)
    options = from_dict(PictureTaskOptions, dict(config.task_options), "options")
    columns = _columns(config)
    notes: list[str] = []
    train, *others = (
        _read_split(config, name, preprocessing, options, folder, notes)
        for name in ("train", "dev", "test")
    )
    labels = config.labels or PICTURES.find_labels(train, config.train)
    for path, some in zip((config.train, config.dev, config.test), (train, *others), strict=True):
        if path is not None:
            PICTURES.check_examples(some, labels, columns.label)
    dev, test = others
    if config.dev is None:
        train, dev = split_dev(train, location=config.train, unit="pictures")
        notes.append(
            f"no dev file: {len(dev):,} of the {len(train) + len(dev):,} training pictures are "
            "held out"
        )
    if config.rows is not None and config.rows < len(train):
        notes.append(f"{config.rows:,} of {len(train):,} training pictures are used")
        train = sample_rows(train, config.rows)
        PICTURES.find_labels(train, f"{config.rows} pictures of {config.train}")
    return FinetuneData(
        columns=columns, train=train, dev=dev, test=test, labels=tuple(labels),
        notes=tuple(notes), warnings=(), task_options=config.task_options,
    )  # fmt: skip


def resolve_pictures(
    config: FinetuneConfig, loaded_model: LoadedModel | None
) -> tuple[FinetuneConfig, ImagePreprocessing | None]:
    """Return the preprocessing of a model that reads pictures, and the config of their task.

    None: it reads texts.

    Raises:
        FileNotFoundError: there is no such model.
        ValueError: its folder is damaged, or the task is not one of pictures.
    """
    preset, own = _preset_of(config.base, loaded_model)
    if preset is not None and preset.reads_pictures and preset.reads_texts:
        raise ValueError(
            f"{config.base} reads pictures with texts and is not fine-tuned: pretrain it further "
            "(unmask pretrain --from), or fine-tune a network of pictures, as vit-mini"
        )
    if preset is None or preset.reads_texts:
        if config.task == "pictures":
            raise ValueError(f"task = pictures: {config.base} reads texts, not pictures")
        return config, None
    if config.task not in ("classify", "pictures"):
        raise ValueError(
            f"{config.base} reads pictures: task must be classify, got {config.task!r}"
        )
    config = replace(config, task="pictures")
    if config.distillation and preset.architecture.encoder_stack.has_distillation_token:
        with_token = {"distillation_token": True, **config.task_options}
        config = replace(config, task_options=with_token)
    options = from_dict(PictureTaskOptions, dict(config.task_options), "options")
    assert own is not None
    return config, preprocessing_of_size(own, options.image_size)


def _preset_of(
    base: str, loaded_model: LoadedModel | None
) -> tuple[Published | None, ImagePreprocessing | None]:
    """Return the preset of a model and its preprocessing; None: `load_initial_model` says why."""
    if loaded_model is not None:
        return loaded_model.preset, loaded_model.preprocessing
    if base in MODELS or base in ALIASES:
        preset = get_preset(base)
        return preset, preset_preprocessing(preset)
    if not base.startswith(HUB_PREFIX) and not Path(base).is_dir():
        return None, None
    folder = resolve_model_folder(base)
    if is_adapter(folder):
        opened = open_adapter(folder)
        return opened.preset, opened.preprocessing
    if not is_model_folder(folder):
        return None, None
    preset = read_preset(folder)[0]
    return preset, load_preprocessing(folder, preset)


def _check_config(config: FinetuneConfig) -> None:
    """Refuse what is of texts alone."""
    of_texts = {
        "choices": config.choices, "columns": config.columns, "tokenizer": config.tokenizer,
        "vocabulary": config.vocabulary, "language": config.language,
        "adapt_first": config.adapt_first, "lm_loss_weight": config.lm_loss_weight,
    }  # fmt: skip
    if given := [name for name, value in of_texts.items() if value]:
        raise ValueError(f"{given[0]} is of texts, and {config.base} reads pictures; leave it out")
    if len(config.text) > 1:
        raise ValueError(f"text: one column has the pictures, got {', '.join(config.text)}")


def _columns(config: FinetuneConfig) -> TaskColumns:
    return TaskColumns(
        texts=config.text or DEFAULT_COLUMNS.texts, label=config.label or DEFAULT_COLUMNS.label
    )


def _read_split(
    config: FinetuneConfig,
    name: str,
    preprocessing: ImagePreprocessing,
    options: PictureTaskOptions,
    folder: Path,
    notes: list[str],
) -> list[TaskExample]:
    """Decode the pictures of one split; none where there is none."""
    path = getattr(config, name)
    if path is None:
        return []
    usual, given = DEFAULT_COLUMNS, _columns(config)  # a record names the usual ones, too
    wanted = ImageColumns(
        image=None if given.texts == usual.texts else given.texts[0],
        label=None if given.label == usual.label else given.label,
    )
    summary = DecodeSummary()
    store = open_or_write_store(
        [path],
        folder / STORES_FOLDER / name,
        PictureOptions(columns=wanted, bad=options.bad),
        preprocessing,
        summary,
    )
    notes += summary.notes()
    return picture_examples(store, path)


def picture_examples(
    store: ImageStore, location: str, *, need_labels: bool = True
) -> list[TaskExample]:
    """Return an example for each picture of a store, with its label where labels are needed.

    Raises:
        ValueError: a picture has no label.
    """
    bare = np.flatnonzero(store.labels < 0)
    if need_labels and len(bare):
        raise ValueError(
            f"{location}: {len(bare):,} of {len(store):,} pictures have no label, the first is "
            f"{store[int(bare[0])].name}; put each in a folder of its label, or name a column with "
            "--label"
        )
    names = store.label_names
    return [
        TaskExample(
            texts=(name,),
            label=names[number] if need_labels else None,
            location=f"{location}: {name}",
            picture=StoredPicture(store, i),
        )
        for i, (number, name) in enumerate(zip(store.labels.tolist(), store.names(), strict=True))
    ]
