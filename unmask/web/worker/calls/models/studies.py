"""`check_study`: whether a study that is composed on the page can be run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unmask.config import from_dict, parse_toml
from unmask.studies.run_study import check_cells
from unmask.studies.study import Study

_NAME = "study"


@dataclass(frozen=True, kw_only=True)
class _CheckArguments:
    toml: str
    """The file of the study."""


def check_study(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names of the cells of a study whose models, objectives and changes fit.

    Raises:
        ValueError: it is not TOML, or a key or a cell is not possible.
    """
    plain = parse_toml(from_dict(_CheckArguments, arguments).toml, "toml")
    study = from_dict(Study, {"name": _NAME} | plain)
    check_cells(study)
    return {"cells": [cell.name for cell in study.cells]}
