"""Routes of the workbench: each parses, calls and answers."""

from importlib import import_module

from fastapi import APIRouter

_MODULES = ("jobs", "uploads", "stream", "runs", "commands", "models", "exports")


def every_router() -> list[APIRouter]:
    """Return the routers of all groups of routes."""
    return [import_module(f"{__name__}.{name}").router for name in _MODULES]
