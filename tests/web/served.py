"""A workbench that is really served, for tests: its own process, folder and port."""

import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SERVE = (sys.executable, "-m", "unmask.cli", "serve")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@dataclass
class Served:
    """A served workbench."""

    root: Path
    address: str
    """With the secret."""
    process: "subprocess.Popen[bytes]"

    @property
    def port(self) -> int:
        found = re.search(r":(\d+)/", self.address)
        assert found is not None
        return int(found[1])

    @property
    def secret(self) -> str:
        return self.address.partition("secret=")[2]

    def client(self) -> Any:
        """A client that is signed in, as a program."""
        httpx = pytest.importorskip("httpx", reason="the extra 'test' is not installed")
        headers = {"authorization": f"Bearer {self.secret}", "x-unmask": "1"}
        base = f"http://127.0.0.1:{self.port}"
        return httpx.Client(base_url=base, headers=headers, timeout=120)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def launch(
    arguments: list[str], n_lines: int = 2, command: Sequence[str] = SERVE
) -> "tuple[subprocess.Popen[bytes], str]":
    """Start `unmask serve`; return it and the first lines that it prints."""
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "said").open("w+b") as said:
        process = subprocess.Popen([*command, *arguments], stderr=said)
        for _ in range(1200):
            text = (Path(folder) / "said").read_text()
            if text.count("\n") >= n_lines or process.poll() is not None:
                return process, text
            time.sleep(0.05)
    raise AssertionError("the workbench does not start")


def start_workbench(root: Path, *options: str, port: int = 0) -> Served:
    """Start a workbench and wait for its address."""
    pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
    pytest.importorskip("uvicorn", reason="the extra 'serve' is not installed")
    process, said = launch([str(root), "--port", str(port), *options])
    found = re.search(r"http://\S+", said)
    assert found is not None, said
    served = Served(root, found[0], process)
    for _ in range(1200):
        try:
            with served.client() as client:
                client.get("/api/jobs")
            return served
        except OSError:
            time.sleep(0.05)
        except Exception as error:  # httpx's errors derive from no built-in one
            if type(error).__module__.partition(".")[0] != "httpx":
                raise
            time.sleep(0.05)
    raise AssertionError("the workbench does not answer")


@contextmanager
def workbench(root: Path, *options: str) -> Generator[Served]:
    """A workbench that ends with the test, and what it started as well."""
    served = start_workbench(root, *options)
    try:
        yield served
    finally:
        end_jobs(served)
        served.process.send_signal(signal.SIGTERM)
        try:
            served.process.wait(20)
        except subprocess.TimeoutExpired:
            served.kill()


def end_jobs(served: Served) -> None:
    """Kill the jobs of a workbench, whether or not its server answers."""
    from unmask.web.jobs.queue import JobQueue

    for job in JobQueue(served.root / ".unmask" / "jobs").jobs():
        if job.pid is not None:
            subprocess.run(["kill", "-9", str(job.pid)], check=False)


def forget_entries(page: Any) -> None:
    """
    Forget what earlier tests typed into a signed-in page, which is left.

    A page writes what was typed a moment later, and when it is left: the storage is emptied from an
    address that has no scripts.
    """
    page.goto(page.evaluate("location.origin") + "/assets/style.css")
    page.evaluate("sessionStorage.clear()")


@contextmanager
def browser_page(served: Served, *, width: int = 1280, height: int = 900) -> Generator[Any]:
    """A page of a real browser, signed in; what its console says of errors fails the test."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("no browser: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": height})
        page.set_default_timeout(120_000)  # a machine may have other work
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "console",
            lambda message: (
                errors.append(message.text)
                if message.type == "error" and "Failed to load resource" not in message.text
                else None
            ),
        )
        page.goto(served.address)
        yield page
        browser.close()
        assert errors == []
