"""Serving the workbench: checks, the printed address, the server, and its end."""

import socket
import sys
import webbrowser
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from unmask.output import print_line
from unmask.web.options import ServeOptions
from unmask.web.state import WorkbenchState

_OWN_ADDRESSES = frozenset(("127.0.0.1", "localhost", "::1"))


def serve(
    options: ServeOptions, announce: Callable[[Mapping[str, str]], object] | None = None
) -> None:
    """Serve the workbench until it is interrupted.

    Args:
        options: what is served, and where.
        announce: told "address" and "folder" once the server listens, besides the lines on
            standard error.

    Raises:
        ValueError: an option is not possible, or the address is not free.
        ImportError: the extra is not installed.
    """
    try:
        import uvicorn

        from unmask.web.app import make_app
    except ImportError as error:
        raise ImportError(
            f"the workbench needs {error.name}: pip install 'unmask[serve]'", name=error.name
        ) from None
    options = _checked(options)
    is_public = options.host not in _OWN_ADDRESSES
    with _listen(options.host, options.port) as listening:
        port = listening.getsockname()[1]
        state = WorkbenchState.open(options, port, is_public=is_public)
        config = uvicorn.Config(
            make_app(state), log_level="error", access_log=False, ws="none",
            server_header=False, timeout_graceful_shutdown=1, limit_concurrency=1024,
        )  # fmt: skip
        server = uvicorn.Server(config)
        state.is_ending = lambda: server.should_exit
        with state, suppress(KeyboardInterrupt):
            address = _print_address(options, port, state)
            if announce is not None:
                announce({"address": address, "folder": str(state.workplace.root)})
            server.run(sockets=[listening])
    going = sum(not one.is_over and one.state != "waiting" for one in state.queue.jobs())
    jobs = f"; {going} {'job goes' if going == 1 else 'jobs go'} on" if going else ""
    print_line(f"unmask serve: ended{jobs}", sys.stderr)


def _checked(options: ServeOptions) -> ServeOptions:
    """Return the options with the password read.

    Raises:
        ValueError: an option is not possible.
    """
    if not 0 <= options.port < 65536:
        raise ValueError(f"port must be from 0 to 65535: {options.port}")
    if not options.max_upload > 0:
        raise ValueError(f"max_upload must be positive, in GiB: {options.max_upload}")
    password = options.password
    if password == "-":
        password = sys.stdin.readline().rstrip("\n")
    if password is not None and len(password) < 8:
        raise ValueError("password must have 8 characters or more")
    if options.host not in _OWN_ADDRESSES and password is None:
        raise ValueError(
            f"host {options.host}: whoever reaches this address could read and write the folder "
            "and use this machine; --password is needed, and what is sent is not encrypted"
        )
    return replace(options, password=password)


def _listen(host: str, port: int) -> socket.socket:
    """Open the socket.

    Raises:
        ValueError: the address is not this machine's, or not free.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        opened = socket.socket(family, kind, protocol)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            opened.bind(address)
            opened.listen(512)
        except OSError:
            opened.close()
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(
            f"host {host} port {port}: {reason}; choose another with --port (0: a free one)"
        ) from None
    return opened


def _print_address(options: ServeOptions, port: int, state: WorkbenchState) -> str:
    """Say where the page is, and return its address."""
    host = f"[{options.host}]" if ":" in options.host else options.host
    if options.host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    address = f"http://{host}:{port}/"
    if state.access.password is None:
        address += f"?secret={state.access.secret}"
    limits = state.scheduler.limits
    jobs = "1 job" if limits.jobs == 1 else f"{limits.jobs} jobs"
    lines = [
        f"Workbench of {state.workplace.root}: {address}",
        f"  {jobs} at once, {limits.threads} threads each; Ctrl-C ends the page, not the jobs",
    ]
    if state.is_public:
        lines.append(
            "  Open to the network: whoever knows the password can read and write this folder and "
            "use this machine. What is sent is not encrypted."
        )
    for line in lines:
        print_line(line, sys.stderr)
    if options.open_browser:
        webbrowser.open(address)
    return address
