"""`serve`: the workbench in a browser."""

from collections.abc import Mapping
from typing import Any

from unmask.output import print_json
from unmask.shell.from_dataclass import command
from unmask.shell.shared_options import JsonOption
from unmask.web.options import ServeOptions


@command(ServeOptions, JsonOption)
def serve(options: Mapping[str, Any], output: JsonOption) -> None:
    """Open the workbench: a local page from which everything here can be done and watched.

    Jobs go on when the page is closed or the server ends. Only this machine is served unless a
    password is set.
    """
    from unmask.web.serve import serve as run

    run(ServeOptions(**options), print_json if output.as_json else None)
