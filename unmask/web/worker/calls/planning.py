"""`plan`: what a run will cost, fast enough to be asked at every key."""

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import cache, lru_cache
from typing import Any

import torch

from unmask.config import unknown_key_message
from unmask.jobs.options.plan import PlanOptions
from unmask.jobs.pretrain.plan import plan as plan_run
from unmask.planning.hardware import THIS_CPU, Hardware
from unmask.planning.plan import DEFAULT_UTILIZATION
from unmask.planning.this_machine import measure_this_cpu
from unmask.training.device.distributed import resolve_precision, set_threads

MEASURE = "measure"
"""Argument beside those of `PlanOptions`: whether the run is tried for some steps, as `unmask plan`
does on this processor; it takes seconds."""


def plan(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of `unmask plan`.

    This processor is measured once; the time of a step is computed from its peak, unless `measure`.

    Raises:
        ValueError: an option is unknown, or its value not allowed.
    """
    given = dict(arguments)
    measure = given.pop(MEASURE, False)
    names = [option.name for option in fields(PlanOptions)]
    if unknown := sorted(given.keys() - set(names)):
        raise ValueError(unknown_key_message(unknown[0], [*names, MEASURE]))
    if "model" not in given:
        raise ValueError("model must be named")
    text = json.dumps(given, sort_keys=True)
    return _measured_plan(text) if measure else _computed_plan(text)


@lru_cache(maxsize=64)
def _measured_plan(text: str) -> dict[str, Any]:
    return plan_run(**json.loads(text)).to_json()


@lru_cache(maxsize=256)
def _computed_plan(text: str) -> dict[str, Any]:
    given = json.loads(text)
    if given.get("hardware", THIS_CPU) != THIS_CPU:
        return plan_run(**given).to_json()
    precision = resolve_precision(given.get("precision", "auto"), torch.device("cpu"))
    given |= {"hardware": _this_cpu(precision), "precision": precision}
    if given.get("utilization") is None:
        given["utilization"] = DEFAULT_UTILIZATION["cpu"]
    return plan_run(**given).to_json()


@cache
def _this_cpu(precision: Any) -> Hardware:
    """Measure this processor, once: 0.3 seconds."""
    set_threads()
    return measure_this_cpu(precision)
