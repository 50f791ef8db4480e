"""What routes share: the state of the workbench, and texts of JSON."""

from typing import Annotated, Any

from fastapi import Depends, Request

from unmask.web.state import WorkbenchState


def _state_of(request: Request) -> WorkbenchState:
    return request.app.state.workbench


Workbench = Annotated[WorkbenchState, Depends(_state_of)]
"""The state of the workbench, as a parameter of a route."""
JsonObject = dict[str, Any]

REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)
"""A report is shown apart from the page: it can load nothing, and reach nothing of the page."""
