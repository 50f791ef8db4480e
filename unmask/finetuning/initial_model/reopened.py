"""The base model of a fine-tuning run: by name, or in memory.

An adapter is saved with the name of its base model, not with its weights (`adapter_config.json`,
`base_model_name_or_path`). A model in memory can therefore be the base of a saved adapter only if
its weights can be read again from their source.
"""

from pathlib import Path

import torch

from unmask.adapters.folder import is_adapter, open_model_or_adapter
from unmask.checkpoints.huggingface.read import LoadedModel, resolve_model_folder
from unmask.finetuning.methods.method import FinetuningMethod, is_parameter_efficient, method_name
from unmask.finetuning.options.finetune import HasLoadedModel


def name_or_open_model(
    base: str | Path | LoadedModel | HasLoadedModel, method: FinetuningMethod, *, is_saved: bool
) -> tuple[str, LoadedModel | None]:
    """Return the name of a run's model, and the model itself unless it is read by that name.

    Args:
        base: as given by the user.
        method: the tuning method. One that is saved without its base model needs a name.
        is_saved: whether the run has a folder.

    Raises:
        ValueError: the base model of an adapter was built or changed in memory.
    """
    loaded = base.loaded_model if isinstance(base, HasLoadedModel) else base
    if not isinstance(loaded, LoadedModel):
        return str(loaded), None
    if not is_saved or not is_parameter_efficient(method):
        return loaded.preset.name, loaded
    if loaded.source is None or not _has_weights_of(loaded, loaded.source):
        state = "was built or changed in memory"
        where = "" if loaded.source is None else f" and differs from {loaded.source}"
        raise ValueError(
            f"a run of {method_name(method)} is saved without its base model, and this one {state}"
            f"{where}: save it first and give its folder, or leave out `out` and use `save`"
        )
    return loaded.source, None


def check_base_of_adapter(base: str, method: FinetuningMethod) -> None:
    """Check that what is saved without its base model does not need another adapter.

    Raises:
        ValueError: the model is an adapter itself.
    """
    if is_parameter_efficient(method) and is_adapter(Path(base)):
        raise ValueError(
            f"a run of {method_name(method)} is saved without its base model, and {base} is an "
            f"adapter itself: merge it into a model first (unmask convert {base} FOLDER)"
        )


def _has_weights_of(loaded_model: LoadedModel, source: str) -> bool:
    """Compare a model in memory with the weights at its source."""
    saved = open_model_or_adapter(resolve_model_folder(source))
    ours, theirs = _weights(loaded_model), _weights(saved)
    return ours.keys() == theirs.keys() and all(
        torch.equal(ours[name].cpu(), theirs[name]) for name in theirs
    )


def _weights(loaded_model: LoadedModel) -> dict[str, torch.Tensor]:
    """Return the weights that are in the model's files, adapters included."""
    model, newly_initialized = loaded_model.model, set(loaded_model.missing)
    adapters = {n: p.detach() for n, p in model.named_parameters() if n.startswith("adapters.")}
    trained = model.trained_weights() | adapters
    return {name: weight for name, weight in trained.items() if name not in newly_initialized}
