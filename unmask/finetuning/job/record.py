"""What unmask.json says of a fine-tuning run, and whether a config is the same."""

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from unmask.config import to_dict
from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.results.predict import RUN_FILE
from unmask.saved_format import read_saved


def environment(device: torch.device, n_threads: int) -> dict[str, Any]:
    """Return the machine that a run computes on, as plain data."""
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "threads": n_threads,
        "device": device.type if device.type == "cpu" else torch.cuda.get_device_name(device),
    }


def read_run_record(folder: Path) -> dict[str, Any]:
    """Return what the run in a folder says of itself.

    Raises:
        ValueError: there is none, or it is no run of fine-tuning.
    """
    path = folder / RUN_FILE
    if not path.is_file():
        raise ValueError(f"{folder}: holds no run to go on with")
    try:
        facts = read_saved(path)
        if (kind := facts["kind"]) == "finetune":
            return {**facts, "recipe": dict(facts["recipe"]), "data": dict(facts["data"])}
    except (ValueError, KeyError, TypeError) as error:
        why = str(error).removeprefix(f"{path}: ")
        raise ValueError(f"{path}: not a run of fine-tuning ({why})") from None
    raise ValueError(f"{folder}: is a run of {kind}, not of fine-tuning")


def check_same_config(
    folder: Path, recorded_config: Mapping[str, Any], config: FinetuneConfig
) -> None:
    """Check that what is asked for is what the record of a folder says.

    Raises:
        ValueError: it is not, with the first difference.
    """
    for key, value in json.loads(json.dumps(to_dict(config))).items():
        if recorded_config.get(key) != value:
            raise ValueError(
                f"{folder}: this run has {key} = {recorded_config.get(key)!r}, not {value!r}; "
                "a resumed run must be the same"
            )
