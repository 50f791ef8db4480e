"""The record of a fine-tuning run in unmask.json, and its comparison with a config."""

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
    """Return a description of the machine of a run, as plain data."""
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "threads": n_threads,
        "device": device.type if device.type == "cpu" else torch.cuda.get_device_name(device),
    }


def read_run_record(folder: Path) -> dict[str, Any]:
    """Read the record of the run in a folder.

    Raises:
        ValueError: there is no run, or it is not a fine-tuning run.
    """
    path = folder / RUN_FILE
    if not path.is_file():
        raise ValueError(f"{folder}: has no run to continue")
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
    """Check that a config equals the recorded one.

    Raises:
        ValueError: it does not; the message has the first difference.
    """
    usual = FinetuneConfig(base=config.base, task=config.task, train=config.train)
    recorded = json.loads(json.dumps(to_dict(usual))) | dict(recorded_config)
    for key, value in json.loads(json.dumps(to_dict(config))).items():
        if recorded[key] != value:
            raise ValueError(
                f"{folder}: this run has {key} = {recorded[key]!r}, not {value!r}; "
                "a resumed run must be the same"
            )
