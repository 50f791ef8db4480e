"""Loading a model by name, folder or run."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from unmask.adapters.folder import is_adapter, open_model_or_adapter
from unmask.bundled.models import BUNDLED_MODELS
from unmask.checkpoints.generator import add_generator
from unmask.checkpoints.huggingface.read import (
    HUB_PREFIX,
    is_model_folder,
    max_text_tokens,
    resolve_model_folder,
)
from unmask.checkpoints.subword_head import add_subword_head
from unmask.config import check_number_arguments, from_dict
from unmask.finetuning.formulations.text_to_text.formulate import with_task_languages
from unmask.finetuning.results.predict import read_task
from unmask.heads.model import Model
from unmask.heads.pretraining.contrastive import PAIR_HEADS
from unmask.inference.export import read_run_file
from unmask.inference.onnx.folder import open_onnx_folder
from unmask.inference.onnx.pipeline import OnnxPipeline
from unmask.inference.onnx.record import is_onnx_folder
from unmask.inference.pipeline import DEFAULT_SEQUENCE_LENGTH, RUN_FILE, Pipeline
from unmask.objectives.published import ObjectiveSpec
from unmask.word_vectors.train.trainer import WordVectorMethod
from unmask.zoo.catalogue import ALIASES, MODELS, did_you_mean, get_preset
from unmask.zoo.objectives.adapt_preset import resolve_objective
from unmask.zoo.preset import Published


@check_number_arguments
def load(model: str | Path, *, seed: int = 0) -> Pipeline:
    """Load a trained model.

    Args:
        model: a run folder, a folder in the Hugging Face layout, `hf:owner/name`, a bundled model
            (`unmask.bundled.models`). A preset's name has no weights.
        seed: random seed for weights missing in the folder.

    Raises:
        FileNotFoundError: there is no such folder, or the Hub does not answer.
        ValueError: the folder is damaged, of an unknown family, or an unfinished run; or the name
            is that of a preset.
    """
    folder = find_model(model)
    if is_onnx_folder(folder):
        return _load_onnx(folder)
    loaded_model = open_model_or_adapter(folder, seed=seed)
    source = str(Path(model).absolute()) if Path(model).is_dir() else str(model)
    published = next((p for p in MODELS.values() if source == f"{HUB_PREFIX}{p.hub_id}"), None)
    preset = _with_pretraining_options(loaded_model.preset, published, folder)
    heads = PAIR_HEADS.keys() & set(preset.objective.loss_terms)
    for name in (
        heads - loaded_model.model.head_specs.keys()
    ):  # heads without weights are in no file
        loaded_model.model.add_head(name, PAIR_HEADS[name])
    add_generator(folder, loaded_model.model)
    add_subword_head(folder, loaded_model.model)
    preset = _with_answerable_objective(preset, loaded_model.model)
    task, tokenizer = read_task(folder), loaded_model.tokenizer
    if tokenizer is not None:
        tokenizer = with_task_languages(tokenizer, task)
    return Pipeline(replace(loaded_model, preset=preset, tokenizer=tokenizer, source=source), task)


def _load_onnx(folder: Path) -> OnnxPipeline:
    """Open a folder with an ONNX graph."""
    loaded_model, task = open_onnx_folder(folder), read_task(folder)
    preset = _with_pretraining_options(loaded_model.preset, None, folder)
    tokenizer = loaded_model.tokenizer
    if tokenizer is not None:
        tokenizer = with_task_languages(tokenizer, task)
    source = str(folder.absolute())
    return OnnxPipeline(
        replace(loaded_model, preset=preset, tokenizer=tokenizer, source=source), task
    )


def find_model(model: str | Path) -> Path:
    """Return the folder of a model named as for `load`.

    Raises:
        FileNotFoundError: there is no such folder, or the Hub does not answer.
        ValueError: it is a file, a preset without weights, or the run is unfinished.
    """
    if not Path(model).is_dir():
        _check_name(str(model))
    folder = resolve_model_folder(model)
    if not is_model_folder(folder) and not is_adapter(folder):
        raise ValueError(f"{folder}: not a model: it has no config.json")
    return folder


def _check_name(name: str) -> None:
    """Refuse what names no trained model.

    Raises:
        FileNotFoundError: it is neither a folder nor an address on the Hub.
        ValueError: it is a file, or a preset.
    """
    if name in MODELS or name in ALIASES:
        hub_id = get_preset(name).hub_id
        published = f"hf:{hub_id} has the published weights; or " if hub_id else ""
        raise ValueError(
            f"{name} is a preset, which has no weights: {published}pretrain it "
            f"(`unmask pretrain {name} ...`), and give the folder of the run"
        )
    if Path(name).exists():
        raise ValueError(
            f"{name}: is a file; a model is a folder (word vectors are taken by unmask neighbors, "
            "evaluate, picture, convert and show)"
        )
    if not name.startswith(HUB_PREFIX) and os.sep not in name and name not in BUNDLED_MODELS:
        raise FileNotFoundError(
            f"{name}: no such folder, and no model of the catalogue{did_you_mean(name)}"
        )


@dataclass(frozen=True, kw_only=True)
class _PretrainingOptions:
    """The keys of a pretraining recipe that evaluation needs."""

    model: str | None = None
    objective: ObjectiveSpec | WordVectorMethod | str | None = None
    sequence_length: int | None = None


def _with_pretraining_options(
    preset: Published, named_preset: Published | None, folder: Path
) -> Published:
    """Return a preset with the objective and sequence length of its weights' pretraining.

    These are known for published weights and run folders.
    """
    run = _PretrainingOptions() if named_preset is not None else _read_pretraining(folder)
    if named_preset is None:
        named_preset = MODELS.get(run.model or "")
    source = preset if named_preset is None else named_preset
    objective = (
        source.objective if run.objective is None else resolve_objective(source, run.objective)
    )
    longest = max_text_tokens(preset)
    length = run.sequence_length or (
        DEFAULT_SEQUENCE_LENGTH if named_preset is None else named_preset.sequence_length
    )
    return replace(
        preset,
        objective=objective,
        sequence_length=length if longest is None else min(length, longest),
    )


def _with_answerable_objective(preset: Published, model: Model) -> Published:
    """Return a preset with an objective of its family that the model's heads can compute."""
    terms = {spec.objective_term for spec in model.head_specs.values()}
    if not terms or terms & set(preset.objective.loss_terms):
        return preset
    kin = (other.objective for other in MODELS.values() if other.family == preset.family)
    suitable = (objective for objective in kin if terms & set(objective.loss_terms))
    return replace(preset, objective=next(suitable, preset.objective))


def _read_pretraining(folder: Path) -> _PretrainingOptions:
    if not (folder / RUN_FILE).is_file():
        return _PretrainingOptions()
    facts = read_run_file(folder)
    recipe = facts.get("recipe")
    if facts.get("kind") not in ("pretrain", "model") or not isinstance(recipe, dict):
        return _PretrainingOptions()
    options = {k: recipe[k] for k in ("model", "objective", "sequence_length") if k in recipe}
    return from_dict(_PretrainingOptions, options, f"{folder / RUN_FILE}: recipe")
