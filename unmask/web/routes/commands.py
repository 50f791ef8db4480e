"""Commands and their forms, made from the options' dataclasses."""

from fastapi import APIRouter

from unmask.web.commands.catalogue import WEB_COMMANDS
from unmask.web.commands.forms import describe_form
from unmask.web.commands.recipe import recipe_toml
from unmask.web.routes.jobs import JobRequest
from unmask.web.routes.shared import JsonObject

router = APIRouter(tags=["commands"])


@router.get("/commands")
def list_commands() -> JsonObject:
    """List the commands that can be run from here."""
    return {"commands": [{"name": one, "summary": c.summary} for one, c in WEB_COMMANDS.items()]}


@router.get("/commands/{command}")
def show_form(command: str) -> JsonObject:
    """Return the form of a command: its options with help, kinds, defaults and choices."""
    if command not in WEB_COMMANDS:
        raise FileNotFoundError(f"there is no command {command[:40]!r}")
    return describe_form(command).to_json()


@router.post("/recipe")
def write_recipe(request: JobRequest) -> JsonObject:
    """Return the TOML recipe that does what a form says."""
    return {"recipe": recipe_toml(request.values)}
