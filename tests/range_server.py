"""A server of a folder over HTTP, with ranges, that can be slow, fail, and tell what it was asked.

Run as a script, it serves a folder until it is ended: `range_server.py FOLDER SECONDS`.
"""

import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class Served:
    """What a server does, and what it has been asked."""

    folder: Path
    seconds: float = 0.0
    """Latency of each answer."""
    failures: int = 0
    """Number of next readings that fail; -1: all."""
    failure: str = "close"
    """How: close (the connection breaks), half (in the middle), or a status."""
    ignores_ranges: bool = False
    authorization: str | None = None
    query: str | None = None
    paths: list[str] = field(default_factory=list)
    url: str = ""

    def fails(self) -> bool:
        if self.failures == 0:
            return False
        self.failures -= self.failures > 0
        return True


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    served: Served

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def answer(self, *, with_body: bool) -> None:
        served = self.served
        time.sleep(served.seconds)
        path, _, query = self.path.partition("?")
        if with_body:
            served.paths.append(path)
        file = served.folder / path.lstrip("/")
        fails = with_body and served.fails()
        refused = self.refusal(query, file)
        if fails and served.failure.isdecimal():
            refused = int(served.failure)
        if refused is not None:
            self.send_response(refused)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        data, code = self.part(file.read_bytes(), with_body=with_body)
        facts = file.stat()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", f'"{facts.st_mtime_ns:x}-{facts.st_size:x}"')
        self.end_headers()
        if fails:
            self.wfile.write(data[: len(data) // 2] if served.failure == "half" else b"")
            self.wfile.flush()
            self.close_connection = True
            self.connection.close()
        elif with_body:
            self.wfile.write(data)

    def refusal(self, query: str, file: Path) -> int | None:
        if self.served.authorization not in (None, self.headers.get("Authorization")):
            return 401
        if self.served.query not in (None, query):
            return 403
        return None if file.is_file() else 404

    def part(self, data: bytes, *, with_body: bool) -> tuple[bytes, int]:
        asked = self.headers.get("Range")
        if not asked or not with_body or self.served.ignores_ranges:
            return data, 200
        first, _, last = asked.removeprefix("bytes=").partition("-")
        return data[int(first) : int(last) + 1], 206

    def handle(self) -> None:
        with suppress(OSError, ValueError):  # the other side went away, or we closed it
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        pass


class QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass


@contextmanager
def serve(folder: Path, **how: object) -> Generator[Served]:
    served = Served(folder, **how)
    server = QuietServer(("127.0.0.1", 0), type("Serving", (Handler,), {"served": served}))
    served.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


if __name__ == "__main__":
    with serve(Path(sys.argv[1]), seconds=float(sys.argv[2])) as started:
        print(started.url, flush=True)
        threading.Event().wait()
