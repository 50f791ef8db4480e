"""Protocols find the members of modules in every version of Python.

From Python 3.12 on, `isinstance` looks members up without `__getattr__`, by which PyTorch finds
submodules and parameters: a class whose member is a submodule is no instance there.
"""

import importlib
import inspect
import pkgutil
import typing
from typing import Any

import pytest
import torch
from torch import nn

import unmask
from unmask.zoo.catalogue import MODELS

NOT_INSTALLED_HERE = {"unmask.inference.lm_eval"}


def protocols() -> list[type]:
    found: dict[type, None] = {}
    for info in pkgutil.walk_packages(unmask.__path__, "unmask."):
        if info.name in NOT_INSTALLED_HERE or info.name.endswith("__main__"):
            continue
        for value in vars(importlib.import_module(info.name)).values():
            if (
                inspect.isclass(value)
                and value.__module__.startswith("unmask.")
                and getattr(value, "_is_runtime_protocol", False)
            ):
                found[value] = None
    return [*found]


def members(protocol: Any) -> set[str]:
    own = getattr(protocol, "__protocol_attrs__", None)
    return set(typing._get_protocol_attrs(protocol) if own is None else own)


def is_found(value: object, name: str) -> bool:
    try:
        inspect.getattr_static(value, name)
    except AttributeError:
        return False
    return True


def hidden_members(value: object, protocol: type) -> set[str]:
    """Return the members that only `__getattr__` finds, of a value that has all of a protocol."""
    names = members(protocol)
    if not all(hasattr(value, name) for name in names):
        return set()
    return {name for name in names if not is_found(value, name)}


def test_submodule_as_a_member_is_seen() -> None:
    @typing.runtime_checkable
    class HasInner(typing.Protocol):
        @property
        def inner(self) -> nn.Module: ...

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Identity()

    assert hidden_members(Outer(), HasInner) == {"inner"}
    assert not hidden_members(nn.Identity(), HasInner)


PROTOCOLS = protocols()
FAMILIES = {preset.family: name for name, preset in reversed(MODELS.items())}


@pytest.mark.parametrize("family", FAMILIES)
def test_members_of_protocols_are_no_submodules(family: str) -> None:
    assert len(PROTOCOLS) > 40
    with torch.device("meta"):
        model = MODELS[FAMILIES[family]].build()
    of_each_type = {type(module): module for module in model.modules()}
    for kind, module in of_each_type.items():
        for protocol in PROTOCOLS:
            assert not hidden_members(module, protocol), f"{kind.__name__}: {protocol.__name__}"
